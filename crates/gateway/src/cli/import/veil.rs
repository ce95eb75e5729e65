//! What is shown of a config on a terminal, where somebody may look over a shoulder: everything but the secrets that stand
//! in it in plain text.

use super::words::is_secret;
use gripfast::{mask_tokens, secret_arguments};
use toml_edit::{DocumentMut, Item, TableLike, Value, value};

const VEIL: &str = "[not shown here]";

/// The same without secrets.
pub(super) fn veiled(mut document: DocumentMut) -> DocumentMut {
    let servers = document.get_mut("servers").and_then(Item::as_table_like_mut);
    for (_, server) in servers.into_iter().flat_map(|servers| servers.iter_mut()) {
        if let Some(server) = server.as_table_like_mut() {
            veil_pairs(server);
            veil_args(server);
            veil_url(server);
        }
    }
    document
}

fn veil_pairs(server: &mut dyn TableLike) {
    for table in ["env", "headers"] {
        let pairs = server.get_mut(table).and_then(Item::as_table_like_mut);
        for (name, item) in pairs.into_iter().flat_map(|pairs| pairs.iter_mut()) {
            if item.as_str().is_some_and(|text| is_secret(&name, text)) {
                *item = value(VEIL);
            }
        }
    }
}

fn veil_args(server: &mut dyn TableLike) {
    let Some(args) = server.get_mut("args").and_then(Item::as_array_mut) else { return };
    let words: Vec<String> = args.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
    for (word, shown) in args.iter_mut().zip(shown_args(&words)) {
        if let Some(shown) = shown {
            *word = Value::from(shown);
        }
    }
}

/// What is shown in place of those arguments that hold a secret.
pub(super) fn shown_args(words: &[String]) -> Vec<Option<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let plain = |part: &str| !part.contains("${");
    let shown =
        words.iter().zip(secret_arguments(&words)).map(|(word, part)| match part.filter(|p| plain(p)) {
            Some(part) => Some(format!("{}{VEIL}", &word[..word.len() - part.len()])),
            None => Some(mask_tokens(word)).filter(|shown| shown != word),
        });
    shown.collect()
}

/// Without user, password and the values of its query.
fn veil_url(server: &mut dyn TableLike) {
    let Some(item) = server.get_mut("url") else { return };
    let Some(url) = item.as_str() else { return };
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let mut shown = match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host =
                authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("{VEIL}@{host}"));
            mask_tokens(&format!("{scheme}://{host}{path}"))
        }
        None => mask_tokens(address),
    };
    if let Some(query) = query {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, text)) if !text.contains("${") => format!("{name}={VEIL}"),
            Some(_) | None => mask_tokens(pair),
        });
        shown = format!("{shown}?{}", pairs.collect::<Vec<_>>().join("&"));
    }
    if shown != url {
        *item = value(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        veiled(text.parse().unwrap()).to_string()
    }

    #[test]
    fn a_secret_in_plain_text_is_not_shown_on_a_terminal() {
        let shown = shown(
            "[servers.a]\ncommand = \"npx\"\nenv = { API_KEY = \"abcdefgh123\", MODE = \"fast-and-safe\", \
             GITHUB_PAT = \"ghp_0123456789abcdef\" }\n\
             [servers.b]\nurl = \"https://h.example\"\nheaders = { Authorization = \"Bearer ${env:T}\" }\n",
        );
        assert!(!shown.contains("abcdefgh123") && !shown.contains("ghp_"), "{shown}");
        for harmless in ["API_KEY", "fast-and-safe", "${env:T}", "https://h.example"] {
            assert!(shown.contains(harmless), "{shown}");
        }
    }

    #[test]
    fn nor_is_one_among_the_arguments_or_in_a_url() {
        let shown = shown(
            "[servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"server\", \"--api-key\", \"hunter22\", \
             \"--token=hunter22\", \"--header\", \"Authorization: Bearer hunter22\", \"ghp_0123456789abcdef\", \
             \"--secret\", \"${env:S}\"]\n\
             [servers.b]\nurl = \"https://me:hunter22@h.example/mcp?key=hunter22&user=${env:U}\"\n",
        );
        assert!(!shown.contains("hunter22") && !shown.contains("ghp_"), "{shown}");
        for harmless in [
            "\"-y\", \"server\", \"--api-key\"",
            "--token=[not shown here]",
            "Authorization: [not shown here]",
            "${env:S}",
            "@h.example/mcp?key=[not shown here]&user=${env:U}",
        ] {
            assert!(shown.contains(harmless), "{harmless} in {shown}");
        }
    }
}
