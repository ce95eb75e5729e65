//! Texts of other clients in our spelling: references to variables and files, and what only an editor knows.
//! Values that look like secrets are taken as they are, and said aloud without being shown.

use super::clients::Client;
use super::veil::shown_args;
use gripfast::config::{Lookup, ProcessEnvironment};
use gripfast::redact;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How one client writes references, and what was noticed on the way.
#[derive(Debug)]
pub(super) struct Words {
    dialect: Dialect,
    /// The directory of the file, from which its relative paths go.
    directory: PathBuf,
    variables: BTreeSet<String>,
    padded: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

/// References besides `${NAME}`, `${NAME:-text}`, `${env:NAME}` and `${file:PATH}`, which are ours too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// `{env:NAME}`, `{file:PATH}`
    Braces,
    /// `$NAME`, `%NAME%`
    Shells,
    /// Only what an editor fills in.
    Editors,
}

impl Words {
    pub(super) fn of(client: &Client, file: &Path) -> Self {
        let dialect = match client.id {
            "opencode" => Dialect::Braces,
            "gemini" => Dialect::Shells,
            _ => Dialect::Editors,
        };
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let directory = file.parent().map(Path::to_owned).unwrap_or_default();
        let (variables, padded, secrets) = Default::default();
        Self { dialect, directory, variables, padded, secrets }
    }

    /// A text under a key.
    pub(super) fn said(&mut self, key: &str, text: &str) -> Result<String, String> {
        if text.trim() != text {
            self.padded.insert(key.to_owned());
        }
        let text = match self.dialect {
            Dialect::Braces => braces(text),
            Dialect::Shells => shells(text),
            Dialect::Editors => text.to_owned(),
        };
        self.filled_in(&text)
    }

    /// The arguments of a command.
    pub(super) fn arguments(&mut self, words: &[String]) -> Result<Vec<String>, String> {
        let said: Vec<String> = words.iter().map(|word| self.said("args", word)).collect::<Result<_, _>>()?;
        if shown_args(&said).iter().any(Option::is_some) {
            self.secrets.insert("args".to_owned());
        }
        Ok(said)
    }

    /// The value of a variable or a header.
    pub(super) fn secret(&mut self, name: &str, text: &str) -> Result<String, String> {
        let said = self.said(name, text)?;
        if is_secret(name, &said) {
            self.secrets.insert(name.to_owned());
        }
        Ok(said)
    }

    /// What was noticed.
    pub(super) fn notes(&self) -> Vec<String> {
        let list = |names: &BTreeSet<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let mut notes = Vec::new();
        if !self.variables.is_empty() {
            notes.push(format!("an editor asked for what it needs; set {} instead", list(&self.variables)));
        }
        if !self.padded.is_empty() {
            notes.push(format!("{} begins or ends with a space", list(&self.padded)));
        }
        if !self.secrets.is_empty() {
            notes.push(format!(
                "{} holds a secret in plain text; write `${{env:NAME}}` and set the variable",
                list(&self.secrets)
            ));
        }
        notes
    }

    /// References that an editor fills in, as variables. What else it knows about a workspace, nobody does here.
    fn filled_in(&mut self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let Some(end) = rest[at..].find('}') else { break };
            let body = &rest[at + 2..at + end];
            out.push_str(&rest[..at]);
            if let Some(id) = body.strip_prefix("input:") {
                let letters =
                    id.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
                let name = letters.collect::<String>().to_ascii_uppercase();
                out.push_str(&format!("${{env:{name}}}"));
                self.variables.insert(name);
            } else if let Some(path) = body.strip_prefix("file:") {
                out.push_str(&format!("${{file:{}}}", self.absolute(path).display()));
            } else if body == "userHome" {
                out.push_str("${env:HOME}");
            } else if body.starts_with("workspaceFolder") || body.starts_with("command:") {
                return Err(format!("refers to `${{{body}}}`, which only an editor knows"));
            } else {
                out.push_str(&rest[at..=at + end]);
            }
            rest = &rest[at + end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The absolute path of a file that is referred to: from the home directory, or from the file that refers to it.
    fn absolute(&self, path: &str) -> PathBuf {
        let home = || ProcessEnvironment.variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        match path.strip_prefix("~/").and_then(|rest| Some(Path::new(&home()?).join(rest))) {
            Some(path) => path,
            None => self.directory.join(path.strip_prefix("./").unwrap_or(path)),
        }
    }
}

/// `{env:NAME}` and `{file:PATH}` in our spelling.
fn braces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let body = &rest[at..];
        let ours =
            ["{env:", "{file:"].iter().any(|start| body.starts_with(start)) && !rest[..at].ends_with('$');
        out.push_str(&rest[..at]);
        out.push_str(if ours { "${" } else { "{" });
        rest = &body[1..];
    }
    out + rest
}

/// `$NAME` and `%NAME%` in our spelling.
fn shells(text: &str) -> String {
    let name = |rest: &str| {
        rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(rest.len())
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '%']) {
        out.push_str(&rest[..at]);
        let (sign, after) = rest[at..].split_at(1);
        let end = name(after);
        let named = end > 0 && !after.starts_with(|letter: char| letter.is_ascii_digit());
        match sign {
            "$" if named => {
                out.push_str(&format!("${{env:{}}}", &after[..end]));
                rest = &after[end..];
            }
            "%" if named && after[end..].starts_with('%') => {
                out.push_str(&format!("${{env:{}}}", &after[..end]));
                rest = &after[end + 1..];
            }
            sign => {
                out.push_str(sign);
                rest = after;
            }
        }
    }
    out + rest
}

/// A name that says so, or a value that looks like it, which stands there in plain.
fn is_secret(name: &str, text: &str) -> bool {
    !text.contains("${") && (redact::announces_secret(name) && text.len() >= 8 || redact::text(text) != text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_respelled() {
        assert_eq!(braces("a {env:B}/{file:~/c} {d} ${env:E}"), "a ${env:B}/${file:~/c} {d} ${env:E}");
        assert_eq!(shells("$A-%B%-$1-100%-${C}-$"), "${env:A}-${env:B}-$1-100%-${C}-$");
    }

    #[test]
    fn what_an_editor_fills_in_is_a_variable_or_a_reason() {
        let mut words = Words::of(super::super::clients::named("vscode").unwrap(), "/x/mcp.json".as_ref());
        assert_eq!(
            words.said("a", "x ${input:api-key} ${userHome}").unwrap(),
            "x ${env:API_KEY} ${env:HOME}"
        );
        assert!(words.said("a", "${workspaceFolder}/x").is_err());
        assert_eq!(words.notes(), ["an editor asked for what it needs; set `API_KEY` instead"]);
        assert_eq!(words.said("a", "${v%x} ${").unwrap(), "${v%x} ${");
    }

    #[test]
    fn a_file_that_is_referred_to_gets_its_whole_path() {
        let mut words =
            Words::of(super::super::clients::named("opencode").unwrap(), "/x/opencode.json".as_ref());
        let home = std::env::var("HOME").unwrap();
        assert_eq!(words.said("a", "{file:~/key}").unwrap(), format!("${{file:{home}/key}}"));
        assert_eq!(
            words.said("a", "{file:./key} {file:/run/key}").unwrap(),
            "${file:/x/key} ${file:/run/key}"
        );
    }

    #[test]
    fn secrets_are_named_and_not_shown() {
        let mut words = Words::of(super::super::clients::named("cursor").unwrap(), "/x/mcp.json".as_ref());
        words.secret("API_TOKEN", "abcdefgh1234").unwrap();
        words.secret("OTHER_TOKEN", "${env:T}").unwrap();
        words.arguments(&["--api-key".to_owned(), "ijklmnop".to_owned()]).unwrap();
        let notes = words.notes().join("\n");
        assert!(
            notes.contains("`API_TOKEN`, `args`") && !notes.contains("OTHER") && !notes.contains("abcdefgh"),
            "{notes}"
        );
    }
}
