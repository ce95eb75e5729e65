//! Keeps secrets out of what is shown. Values of `env`, `headers` and `arguments` are known by their place, arguments of a
//! command by the flag before them; the rest is known by its looks: a token pasted into an argument, a URL with a password
//! in it. All of them matter where a source line in an error message holds the secret next to the mistake.

use super::node::{Node, Value};
use super::template::Template;
pub(super) use gripfast_core::redact::mask_tokens;
use gripfast_core::redact::secret_arguments;

/// How every hidden text is shown where it has no fixed width to keep.
pub(super) const REDACTED: &str = "[redacted]";

/// Keys under which every value may be secret, in our own form and in those of others.
pub(super) const HOLDERS: &[&str] = &[
    "env",
    "environment",
    "envs",
    "headers",
    "http_headers",
    "arguments",
    "client_secret",
    "clientSecret",
    "CLIENT_SECRET",
];

/// A URL, possibly with references in it, without what may be secret: user, password and query.
pub(super) fn mask_url(url: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, _)) => (address, "?…"),
        None => (url, ""),
    };
    let shown = match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            match authority.rsplit_once('@') {
                Some((_, host)) => format!("{scheme}://…@{host}{path}"),
                None => address.to_owned(),
            }
        }
        None => address.to_owned(),
    };
    mask_tokens(&shown) + query
}

/// One line of a text to show in an error: the known secrets and token-shaped words are starred out, and
/// control characters cannot reach the terminal. Every character keeps its column.
pub(super) fn mask_line(line: &str, secrets: &[String]) -> String {
    let mut line = line.to_owned();
    for secret in secrets {
        if line.contains(secret.as_str()) {
            line = line.replace(secret.as_str(), &"*".repeat(secret.chars().count()));
        }
    }
    mask_tokens(&line).chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The literal values of `env`, `headers` and the arguments of calls, wherever they stand, and what flags announce: what
/// no excerpt may show.
pub(super) fn secrets(node: &Node) -> Vec<String> {
    /// Shorter ones are `1` and `true`, and starring those out would make excerpts unreadable.
    const SHORTEST: usize = 4;
    const HARMLESS: &[&str] = &["Bearer", "Basic", "token", "true", "false"];
    fn collect(node: &Node, held: bool, found: &mut Vec<String>) {
        match &node.value {
            Value::Table(entries) => {
                for (key, value) in entries {
                    collect(value, held || HOLDERS.contains(&key.name.as_str()), found);
                }
            }
            Value::List(list) => {
                list.iter().for_each(|value| collect(value, held, found));
                let words: Vec<&str> = list.iter().map(text_of).collect();
                secret_arguments(&words).into_iter().flatten().for_each(|part| literals(part, found));
            }
            Value::Str(text) if held => literals(text, found),
            // Ports are worth seeing, longer numbers may be anything.
            Value::Number(text) if held && text.len() > "65535".len() => found.push(text.clone()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Date | Value::Str(_) => {}
        }
    }
    fn literals(text: &str, found: &mut Vec<String>) {
        match Template::parse(text) {
            Ok(template) => found.extend(template.fixed_texts().map(str::to_owned)),
            Err(_) => found.extend(outside_references(text)),
        }
    }
    fn text_of(node: &Node) -> &str {
        match &node.value {
            Value::Str(text) | Value::Number(text) => text,
            Value::Null | Value::Bool(_) | Value::Date | Value::List(_) | Value::Table(_) => "",
        }
    }
    let mut found = Vec::new();
    collect(node, false, &mut found);
    let mut found: Vec<String> = found.iter().map(|text| text.trim().to_owned()).collect();
    found.retain(|text| text.len() >= SHORTEST && !HARMLESS.contains(&text.as_str()));
    // Longest first, or a secret that contains another would be hidden only in part.
    found.sort_unstable_by_key(|text| std::cmp::Reverse(text.len()));
    found
}

/// The fixed texts of what is nearly a template: the mistake is in a reference, and showing that is the point.
fn outside_references(text: &str) -> impl Iterator<Item = String> {
    let (first, rest) = text.split_once("${").unwrap_or((text, ""));
    let behind = rest.split("${").flat_map(|piece| {
        let (inside, after) = piece.split_once('}').unwrap_or((piece, ""));
        [inside.split_once(":-").map_or("", |(_, default)| default), after]
    });
    std::iter::once(first).chain(behind).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_user_and_query() {
        assert_eq!(mask_url("https://me:pw@h.example/mcp?key=1"), "https://…@h.example/mcp?…");
        assert_eq!(mask_url("https://h.example/a@b"), "https://h.example/a@b");
        assert_eq!(mask_url("${BASE}/mcp"), "${BASE}/mcp");
    }
}
