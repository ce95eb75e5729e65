//! Redacts plain-text secrets in a config that is printed instead of written: output ends up in terminals, logs and
//! chats, while a file has a mode.

use gripfast::config::redact_value;
use gripfast::redact::{self, secret_arguments};
use std::borrow::Cow;
use toml_edit::{DocumentMut, Item, TableLike, Value, value};

/// The document without secrets.
pub(super) fn redacted(mut document: DocumentMut) -> DocumentMut {
    let servers = document.get_mut("servers").and_then(Item::as_table_like_mut);
    for (_, server) in servers.into_iter().flat_map(|servers| servers.iter_mut()) {
        if let Some(server) = server.as_table_like_mut() {
            redact_pairs(server);
            redact_args(server);
            redact_words(server);
            redact_url(server);
        }
    }
    document
}

fn redact_pairs(server: &mut dyn TableLike) {
    for table in ["env", "headers"] {
        let pairs = server.get_mut(table).and_then(Item::as_table_like_mut);
        for (_, item) in pairs.into_iter().flat_map(|pairs| pairs.iter_mut()) {
            if let Some(text) = item.as_str() {
                *item = value(redact_value(text));
            }
        }
    }
}

/// Redacts `command` and `cwd`: some configs have a whole command line in `command`.
fn redact_words(server: &mut dyn TableLike) {
    for key in ["command", "cwd"] {
        if let Some(item) = server.get_mut(key)
            && let Some(text) = item.as_str()
            && let Cow::Owned(shown) = redact::text(text)
        {
            *item = value(shown);
        }
    }
}

fn redact_args(server: &mut dyn TableLike) {
    let Some(args) = server.get_mut("args").and_then(Item::as_array_mut) else { return };
    let words: Vec<String> = args.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
    for (word, shown) in args.iter_mut().zip(redacted_args(&words)) {
        if let Some(shown) = shown {
            *word = Value::from(shown);
        }
    }
}

/// For each argument with a secret, the text to show instead.
pub(super) fn redacted_args(words: &[String]) -> Vec<Option<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shown = words.iter().zip(secret_arguments(&words)).map(|(word, part)| match part {
        Some(part) => Some(format!("{}{}", &word[..word.len() - part.len()], redact_value(part)))
            .filter(|shown| shown != word),
        None => Some(redact::text(word).into_owned()).filter(|shown| shown != word),
    });
    shown.collect()
}

fn redact_url(server: &mut dyn TableLike) {
    let Some(item) = server.get_mut("url") else { return };
    let Some(url) = item.as_str() else { return };
    let shown = redact::url(url);
    if shown != url {
        *item = value(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        redacted(text.parse().unwrap()).to_string()
    }

    #[test]
    fn a_secret_in_plain_text_is_not_shown() {
        let shown = shown(
            "[servers.a]\ncommand = \"npx\"\nenv = { API_KEY = \"abcdefgh123\", MODE = \"fast-and-safe\", \
             GITHUB_PAT = \"ghp_0123456789abcdef\" }\n\
             [servers.b]\nurl = \"https://h.example\"\nheaders = { Authorization = \"Bearer ${env:T}\" }\n",
        );
        assert!(!shown.contains("abcdefgh123") && !shown.contains("ghp_"), "{shown}");
        assert!(!shown.contains("fast-and-safe"), "the name does not matter: {shown}");
        for harmless in ["API_KEY", "MODE", "Bearer ${env:T}", "https://h.example"] {
            assert!(shown.contains(harmless), "{shown}");
        }
    }

    #[test]
    fn a_secret_in_the_arguments_or_in_a_url_is_not_shown() {
        let shown = shown(
            "[servers.a]\ncommand = \"npx ghp_0123456789abcdef\"\nargs = [\"-y\", \"server\", \"--api-key\", \"hunter22\", \
             \"--token=hunter22\", \"--header\", \"Authorization: Bearer hunter22\", \"ghp_0123456789abcdef\", \
             \"--secret\", \"${env:S}\", \"--api-key\", \"hunter22-${X}\", \"--token\", \"${KEY:-hunter22}\", \"-p\", \"hunter22\"]\n\
             [servers.b]\nurl = \"https://me:hunter22@h.example/mcp?key=hunter22&user=${env:U}\"\n",
        );
        assert!(!shown.contains("hunter22") && !shown.contains("ghp_"), "{shown}");
        for harmless in [
            "\"-y\", \"server\", \"--api-key\"",
            "--token=[redacted]",
            "Authorization: [redacted]",
            "${env:S}",
            "@h.example/mcp?key=[redacted]&user=${env:U}",
        ] {
            assert!(shown.contains(harmless), "{harmless} in {shown}");
        }
    }
}
