//! Finds the secrets in a config file, so that no message about the file shows them. Values of `env`, `headers` and
//! `arguments` are recognised by their key, arguments of a command by the flag before them; [`gripfast_core::redact`]
//! recognises the rest by shape.

use super::node::{Node, Value};
use super::template::Template;
use gripfast_core::redact::{KnownSecrets, REDACTED, is_harmless, secret_arguments, shapes, text};
use std::borrow::Cow;

/// Keys under which every value may be secret, in native files and in those of other clients.
pub(super) const SECRET_KEYS: &[&str] = &[
    "env",
    "environment",
    "envs",
    "headers",
    "http_headers",
    "arguments",
    "client_secret",
    "clientSecret",
    "CLIENT_SECRET",
    "private_key",
    "privateKey",
];

/// Returns whether the value at this path of keys may be secret.
pub(super) fn is_secret(path: &[String]) -> bool {
    path.iter().any(|key| SECRET_KEYS.contains(&key.as_str()))
        || path.starts_with(&CLUSTER_KEY.map(str::to_owned))
}

/// The secret of a service. Elsewhere `key` names a file.
const CLUSTER_KEY: [&str; 2] = ["cluster", "key"];

/// Masks a line for an error message: known secrets and token-shaped words are masked, and control characters cannot
/// reach the terminal. Every character keeps its column.
pub(super) fn mask_line(line: &str, secrets: Option<&KnownSecrets>) -> String {
    let shown = match secrets {
        Some(secrets) => Cow::Owned(shapes(&secrets.mask(line)).into_owned()),
        // The file could not be parsed, so no key shows which values are secret.
        None => text(line),
    };
    shown.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The value of a variable, a header or a secret argument with only its references.
pub(super) fn references_of(value: &str) -> String {
    Template::parse(value).map_or_else(|_| REDACTED.to_owned(), |template| template.into_secret().to_string())
}

/// Redacts the value of a variable, a header or a secret argument: only its references are shown, unless the rest is
/// too short or too common to be a secret. The name does not matter: `SETTING` may hold a token as well as `API_TOKEN`.
pub fn redact_value(value: &str) -> String {
    match Template::parse(value) {
        Ok(template) if template.literal_texts().all(is_harmless) => value.to_owned(),
        Ok(_) | Err(_) => references_of(value),
    }
}

/// Texts that no excerpt may show: the literal values of `env`, `headers` and arguments of calls at any depth, and the
/// values of secret flags.
pub(super) fn secrets(node: &Node) -> KnownSecrets {
    fn collect(node: &Node, path: &mut Vec<String>, found: &mut Vec<String>) {
        let held = is_secret(path);
        match &node.value {
            Value::Table(entries) => {
                for (key, value) in entries {
                    path.push(key.name.clone());
                    collect(value, path, found);
                    path.pop();
                }
            }
            Value::List(list) => {
                list.iter().for_each(|value| collect(value, path, found));
                let words: Vec<&str> = list.iter().map(text_of).collect();
                secret_arguments(&words).into_iter().flatten().for_each(|part| literals(part, found));
            }
            Value::Str(text) if held => literals(text, found),
            // Ports are shown; longer numbers may be secrets.
            Value::Number(text) if held && text.len() > "65535".len() => found.push(text.clone()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Date | Value::Str(_) => {}
        }
    }
    fn literals(text: &str, found: &mut Vec<String>) {
        match Template::parse(text) {
            Ok(template) => found.extend(template.literal_texts().map(str::to_owned)),
            Err(_) => found.extend(literals_outside_references(text)),
        }
    }
    fn text_of(node: &Node) -> &str {
        match &node.value {
            Value::Str(text) | Value::Number(text) => text,
            Value::Null | Value::Bool(_) | Value::Date | Value::List(_) | Value::Table(_) => "",
        }
    }
    let mut found = Vec::new();
    collect(node, &mut Vec::new(), &mut found);
    let mut secrets = KnownSecrets::default();
    found.iter().filter(|text| !is_harmless(text)).for_each(|text| secrets.insert(text.trim()));
    secrets
}

/// The literal texts of a template with a mistake. The mistake is in a reference, which the excerpt must show.
fn literals_outside_references(text: &str) -> impl Iterator<Item = String> {
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
    fn the_references_of_a_value_are_shown() {
        for (text, shown) in [
            ("80", "80"),
            ("true", "true"),
            ("hunter22", "[redacted]"),
            ("Bearer hunter22", "[redacted]"),
            ("Bearer ${env:T}", "Bearer ${env:T}"),
            ("${env:A}/${file:/b}", "${env:A}/${file:/b}"),
            ("hunter22${A}", "[redacted]${env:A}"),
            ("${A}hunter22", "${env:A}[redacted]"),
            ("${A:-hunter22}", "${env:A:-…}"),
            ("${A:-x}", "${A:-x}"),
            ("$${hunter22}", "[redacted]"),
            ("${hunter22", REDACTED),
        ] {
            assert_eq!(redact_value(text), shown, "{text}");
        }
    }
}
