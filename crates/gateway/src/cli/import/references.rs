//! Rewrites references to variables and files from the syntax of other clients into gripfast's. Values that look like
//! secrets are kept, and reported by name only.

use super::clients::ClientFormat;
use super::redact::redacted_args;
use gripfast::config::{Lookup, ProcessEnvironment};
use gripfast::redact;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Rewrites the references of one client, and collects notes for the user.
#[derive(Debug)]
pub(super) struct ReferenceRewriter {
    dialect: Dialect,
    /// The directory of the file, to which its relative paths refer.
    directory: PathBuf,
    variables: BTreeSet<String>,
    padded: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

/// References of a client besides `${NAME}`, `${NAME:-text}`, `${env:NAME}` and `${file:PATH}`, which gripfast has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// `{env:NAME}`, `{file:PATH}`
    Braces,
    /// `$NAME`, `%NAME%`
    Shells,
    /// Only references that an editor fills in.
    Editors,
}

impl ReferenceRewriter {
    pub(super) fn of(client: &ClientFormat, file: &Path) -> Self {
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

    /// Rewrites the text of a key.
    pub(super) fn rewrite(&mut self, key: &str, text: &str) -> Result<String, String> {
        if text.trim() != text {
            self.padded.insert(key.to_owned());
        }
        let text = match self.dialect {
            Dialect::Braces => rewrite_braces(text),
            Dialect::Shells => rewrite_shell(text),
            Dialect::Editors => text.to_owned(),
        };
        self.rewrite_editor_references(&text)
    }

    /// Rewrites the arguments of a command.
    pub(super) fn rewrite_arguments(&mut self, words: &[String]) -> Result<Vec<String>, String> {
        let rewritten: Vec<String> =
            words.iter().map(|word| self.rewrite("args", word)).collect::<Result<_, _>>()?;
        if redacted_args(&rewritten).iter().any(Option::is_some) {
            self.secrets.insert("args".to_owned());
        }
        Ok(rewritten)
    }

    /// Rewrites the value of a variable or a header.
    pub(super) fn rewrite_secret(&mut self, name: &str, text: &str) -> Result<String, String> {
        let rewritten = self.rewrite(name, text)?;
        if is_secret(name, &rewritten) {
            self.secrets.insert(name.to_owned());
        }
        Ok(rewritten)
    }

    /// The notes for the user.
    pub(super) fn notes(&self) -> Vec<String> {
        let list = |names: &BTreeSet<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let mut notes = Vec::new();
        if !self.variables.is_empty() {
            notes.push(format!(
                "the editor prompted for input; set {} in the environment instead",
                list(&self.variables)
            ));
        }
        if !self.padded.is_empty() {
            notes.push(format!("{} starts or ends with a space", list(&self.padded)));
        }
        if !self.secrets.is_empty() {
            notes.push(format!(
                "{} contains a secret in plain text; write `${{env:NAME}}` and set the variable",
                list(&self.secrets)
            ));
        }
        notes
    }

    /// Rewrites editor inputs as variables. References to an editor's workspace are an error.
    fn rewrite_editor_references(&mut self, text: &str) -> Result<String, String> {
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
                return Err(format!("refers to `${{{body}}}`, which only an editor can resolve"));
            } else {
                out.push_str(&rest[at..=at + end]);
            }
            rest = &rest[at + end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The absolute path of a referenced file, relative to the home directory or to the file with the reference.
    fn absolute(&self, path: &str) -> PathBuf {
        let home = || ProcessEnvironment.variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        match path.strip_prefix("~/").and_then(|rest| Some(Path::new(&home()?).join(rest))) {
            Some(path) => path,
            None => self.directory.join(path.strip_prefix("./").unwrap_or(path)),
        }
    }
}

/// Rewrites `{env:NAME}` and `{file:PATH}`.
fn rewrite_braces(text: &str) -> String {
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

/// Rewrites `$NAME` and `%NAME%`.
fn rewrite_shell(text: &str) -> String {
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

/// Returns true if a value is a plain-text secret, by its name or its look.
fn is_secret(name: &str, text: &str) -> bool {
    !text.contains("${") && (redact::announces_secret(name) && text.len() >= 8 || redact::text(text) != text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_rewritten() {
        assert_eq!(
            rewrite_braces("a {env:B}/{file:~/c} {d} ${env:E}"),
            "a ${env:B}/${file:~/c} {d} ${env:E}"
        );
        assert_eq!(rewrite_shell("$A-%B%-$1-100%-${C}-$"), "${env:A}-${env:B}-$1-100%-${C}-$");
    }

    #[test]
    fn editor_inputs_become_variables_and_workspace_references_an_error() {
        let mut words = ReferenceRewriter::of(
            crate::cli::import::clients::named("vscode").unwrap(),
            "/x/mcp.json".as_ref(),
        );
        assert_eq!(
            words.rewrite("a", "x ${input:api-key} ${userHome}").unwrap(),
            "x ${env:API_KEY} ${env:HOME}"
        );
        assert!(words.rewrite("a", "${workspaceFolder}/x").is_err());
        assert_eq!(
            words.notes(),
            ["the editor prompted for input; set `API_KEY` in the environment instead"]
        );
        assert_eq!(words.rewrite("a", "${v%x} ${").unwrap(), "${v%x} ${");
    }

    #[test]
    fn a_referenced_file_gets_its_absolute_path() {
        let mut words = ReferenceRewriter::of(
            crate::cli::import::clients::named("opencode").unwrap(),
            "/x/opencode.json".as_ref(),
        );
        let home = std::env::var("HOME").unwrap();
        assert_eq!(words.rewrite("a", "{file:~/key}").unwrap(), format!("${{file:{home}/key}}"));
        assert_eq!(
            words.rewrite("a", "{file:./key} {file:/run/key}").unwrap(),
            "${file:/x/key} ${file:/run/key}"
        );
    }

    #[test]
    fn secrets_are_reported_by_name_only() {
        let mut words = ReferenceRewriter::of(
            crate::cli::import::clients::named("cursor").unwrap(),
            "/x/mcp.json".as_ref(),
        );
        words.rewrite_secret("API_TOKEN", "abcdefgh1234").unwrap();
        words.rewrite_secret("OTHER_TOKEN", "${env:T}").unwrap();
        words.rewrite_arguments(&["--api-key".to_owned(), "ijklmnop".to_owned()]).unwrap();
        let notes = words.notes().join("\n");
        assert!(
            notes.contains("`API_TOKEN`, `args`") && !notes.contains("OTHER") && !notes.contains("abcdefgh"),
            "{notes}"
        );
    }
}
