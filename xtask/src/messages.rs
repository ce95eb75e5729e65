//! `cargo xtask messages`: collects the texts that people read from the sources of the product crates into
//! `docs/reference/messages.md`, so that they can be proofread on one page.
//!
//! The scan works on tokens. It knows the places where texts are written: `kind` and `fmt` of events, `CallError::new`,
//! `.with_hint(…)`, `#[error(…)]` and the macros of `tracing`. Test code is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::Mode;
use crate::source::production::Production;
use crate::workspace::{Workspace, read, rust_files};

/// The generated page, from the root of the repository.
const PAGE: &str = "docs/reference/messages.md";
/// The crates that the binary consists of.
const CRATES: [&str; 5] = ["core", "wire", "host", "cluster", "gateway"];
/// Enums of events, whose variants have a kind and texts, and their files.
const EVENTS: [(&str, &str); 2] =
    [("core/src/event.rs", "Event"), ("core/src/security/mod.rs", "SecurityEvent")];
/// The enum of error codes, whose variants have a word and a meaning, and its file.
const CODES: (&str, &str) = ("core/src/failure/call_error.rs", "Code");
/// Parts of the program, by the beginning of their paths; the first one that fits counts.
const PARTS: [(&str, &str); 5] = [
    ("gateway/src/cli/", "Command line"),
    ("gateway/src/", "Gateway"),
    ("host/src/config/", "Config"),
    ("host/src/", "Host"),
    ("", "Decisions and messages (core, wire)"),
];
/// Files without texts for people, or whose texts are on another page of the reference.
const SKIPPED: [&str; 6] = [
    "host/src/config/keys/",
    "gateway/src/cli/args",
    "gateway/src/cli/completions.rs",
    "gateway/src/cli/login/callback.rs",
    "gateway/src/metrics/",
    "gateway/src/api/operations.rs",
];
/// Functions and macros whose texts only developers see.
const PANICS: [&str; 8] =
    ["expect", "assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "panic", "unreachable"];
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Checks or writes the page. The result is a summary, or the problem.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<String, String> {
    let mut messages = Messages::default();
    for name in CRATES {
        let root = workspace.root.join("crates");
        for file in rust_files(&root.join(name).join("src"))? {
            let shown = file.strip_prefix(&root).unwrap_or(&file).display().to_string().replace('\\', "/");
            let stream = Production::of(&read(&file)?).tokens;
            if let Some((_, name)) = EVENTS.iter().find(|(file, _)| *file == shown) {
                add_enum(&mut messages.events, stream.clone(), name);
            } else if shown == CODES.0 {
                add_enum(&mut messages.codes, stream.clone(), CODES.1);
            } else if !SKIPPED.iter().any(|skipped| shown.starts_with(skipped)) {
                let part =
                    PARTS.iter().find(|(path, _)| shown.starts_with(path)).map_or("", |(_, part)| part);
                add_sentences(messages.other.entry(part).or_default(), stream.clone());
            }
            messages.add(stream);
        }
    }
    let (page, path) = (messages.page(), workspace.root.join(PAGE));
    if mode == Mode::Write {
        std::fs::write(&path, &page).map_err(|error| format!("cannot write {PAGE}: {error}"))?;
    } else if std::fs::read_to_string(&path).ok().as_deref() != Some(page.as_str()) {
        return Err(format!("{PAGE} is out of date; `cargo xtask messages --write` updates it"));
    }
    Ok(format!("{} texts", messages.len()))
}

#[derive(Default)]
struct Messages {
    events: Variants,
    codes: Variants,
    hints: BTreeSet<String>,
    /// By level.
    logs: BTreeMap<&'static str, BTreeSet<String>>,
    /// Errors and other texts, by the part of the program.
    other: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Variants of an enum in the order of the source, each with its literals: its word and its texts.
type Variants = Vec<(String, Vec<String>)>;

impl Messages {
    fn len(&self) -> usize {
        let variants = self.events.iter().chain(&self.codes).map(|(_, texts)| texts.len()).sum::<usize>();
        let lists = self.logs.values().chain(self.other.values()).chain([&self.hints]);
        variants + lists.map(BTreeSet::len).sum::<usize>()
    }

    /// Collects hints, log lines and the texts of `#[error(…)]`.
    fn add(&mut self, stream: TokenStream) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        for (at, tree) in trees.iter().enumerate() {
            let TokenTree::Group(group) = tree else { continue };
            let word = |back: usize| at.checked_sub(back).map(|at| trees[at].to_string()).unwrap_or_default();
            let before = (word(2), word(1));
            if let Some(level) =
                LEVELS.into_iter().find(|level| before == ((*level).to_owned(), "!".to_owned()))
            {
                self.logs.entry(level).or_default().extend(sentence_of(group));
            } else if before.0 == "." && matches!(before.1.as_str(), "hint" | "with_hint") {
                self.hints.extend(texts_in(group).into_iter().filter(|text| has_words(text)));
            }
            self.add(group.stream());
        }
    }

    fn page(&self) -> String {
        let mut page = String::from(
            "<!-- Generated by `cargo xtask messages --write`. -->\n# Messages\n\nThe texts of events, errors, hints and log \
             lines, as the sources contain them. Words in braces are filled in at run time.\n\n## Events\n\nLogs, \
             `gripfast events`, `/api/v1/events` and the dashboard show an event as its kind, the server and the text.\n\n\
             | kind | text |\n|---|---|\n",
        );
        write_variants(&mut page, &self.events);
        page.push_str("\n## Error codes\n\n| code | meaning |\n|---|---|\n");
        write_variants(&mut page, &self.codes);
        let mut list = |title: &str, texts: &BTreeSet<String>| {
            let _ = write!(page, "\n## {title}\n\n");
            texts.iter().for_each(|text| {
                let _ = writeln!(page, "- {}", cell(text));
            });
        };
        list("Hints", &self.hints);
        for level in LEVELS {
            if let Some(texts) = self.logs.get(level) {
                list(&format!("Log lines: {level}"), texts);
            }
        }
        let known: BTreeSet<&String> = self.logs.values().flatten().chain(&self.hints).collect();
        for (_, part) in PARTS {
            let texts = self.other.get(part).into_iter().flatten();
            let texts = texts.filter(|text| !known.contains(text)).cloned().collect();
            list(&format!("Errors and other texts: {part}"), &texts);
        }
        page
    }
}

/// A row for each variant that has a word and a text.
fn write_variants(page: &mut String, variants: &Variants) {
    let is_word = |text: &str| text.chars().all(|char| char.is_ascii_lowercase() || char == '_');
    for (_, texts) in variants {
        let (words, texts): (Vec<&String>, Vec<&String>) = texts.iter().partition(|text| is_word(text));
        if let (Some(word), false) = (words.first(), texts.is_empty()) {
            let texts: Vec<String> = texts.into_iter().map(|text| cell(text)).collect();
            let _ = writeln!(page, "| `{word}` | {} |", texts.join("<br>"));
        }
    }
}

/// Collects the literals in the `impl` blocks of one enum, and the words of its variants in `word_enum!`.
fn add_enum(variants: &mut Variants, stream: TokenStream, name: &str) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for pair in trees.windows(2) {
        match pair {
            [TokenTree::Ident(before), TokenTree::Group(body)] if before == name => {
                if body.to_string().contains("Self ::") {
                    add_variants(variants, body.stream());
                } else {
                    add_words(variants, body.stream());
                }
            }
            [TokenTree::Punct(mark), TokenTree::Group(body)] if mark.as_char() == '!' => {
                add_enum(variants, body.stream(), name);
            }
            _ => {}
        }
    }
}

/// Collects the literals of `Variant = "word"`.
fn add_words(variants: &mut Variants, stream: TokenStream) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for three in trees.windows(3) {
        if let [TokenTree::Ident(variant), TokenTree::Punct(_), word @ TokenTree::Literal(_)] = three
            && let Some(word) = text_of(word)
        {
            add_text(variants, &variant.to_string(), word);
        }
    }
}

/// Collects the literals that follow `Self::Variant`.
fn add_variants(variants: &mut Variants, stream: TokenStream) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut variant = None;
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Ident(name) if at >= 3 && trees[at - 3].to_string() == "Self" => {
                variant = Some(name.to_string());
            }
            TokenTree::Literal(_) => {
                if let (Some(variant), Some(text)) = (&variant, text_of(tree)) {
                    add_text(variants, variant, text);
                }
            }
            TokenTree::Group(group) => {
                let body = variant.clone().filter(|_| group.delimiter() != Delimiter::Bracket);
                match body.filter(|_| !group.to_string().contains("Self ::")) {
                    Some(variant) => {
                        texts_in(group).into_iter().for_each(|text| add_text(variants, &variant, text));
                    }
                    None => add_variants(variants, group.stream()),
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

fn add_text(variants: &mut Variants, variant: &str, text: String) {
    if !text.chars().any(char::is_alphabetic) {
        return;
    }
    match variants.iter_mut().find(|(known, _)| known == variant) {
        Some((_, texts)) if texts.contains(&text) => {}
        Some((_, texts)) => texts.push(text),
        None => variants.push((variant.to_owned(), vec![text])),
    }
}

/// Collects literals of three words or more. Attributes, which hold the texts of `--help`, are skipped: the reference of
/// the command line has them.
fn add_sentences(sentences: &mut BTreeSet<String>, stream: TokenStream) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) if is_attribute(&trees, at) => {
                sentences.extend(error_attribute(group).filter(|text| has_words(text)));
            }
            TokenTree::Group(_) if is_panic(&trees, at) => {}
            TokenTree::Group(group) => add_sentences(sentences, group.stream()),
            TokenTree::Literal(_) => {
                sentences.extend(text_of(tree).filter(|text| is_sentence(text)));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Returns true for the brackets of `#[…]` and `#![…]`. Doc comments are attributes too.
fn is_attribute(trees: &[TokenTree], at: usize) -> bool {
    let is = |back: usize, text: &str| at >= back && trees[at - back].to_string() == text;
    is(1, "#") || (is(1, "!") && is(2, "#"))
}

/// Returns true for a text of three words or more that is neither SQL nor HTTP.
fn is_sentence(text: &str) -> bool {
    let is_code = ["CREATE ", "SELECT ", "INSERT ", "DELETE ", "UPDATE ", "PRAGMA ", "HTTP/1.1 ", "WITH "]
        .iter()
        .any(|word| text.starts_with(word));
    has_words(text) && text.split(' ').count() >= 3 && !is_code
}

/// Returns true for the arguments of a function or macro in [`PANICS`].
fn is_panic(trees: &[TokenTree], at: usize) -> bool {
    let is_listed = |back: usize| at >= back && PANICS.contains(&trees[at - back].to_string().as_str());
    is_listed(1) || (at >= 1 && trees[at - 1].to_string() == "!" && is_listed(2))
}

/// Returns true for a text with two words or more besides placeholders.
fn has_words(text: &str) -> bool {
    text.split(' ').filter(|word| !word.contains('{') && word.chars().any(char::is_alphabetic)).count() >= 2
}

/// All string literals in a group, also in nested ones.
fn texts_in(group: &Group) -> Vec<String> {
    let mut texts = Vec::new();
    for tree in group.stream() {
        match &tree {
            TokenTree::Group(group) => texts.extend(texts_in(group)),
            TokenTree::Literal(_) => texts.extend(text_of(&tree)),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    texts
}

/// The message of a log macro: its last literal that is not the value of a field.
fn sentence_of(group: &Group) -> Option<String> {
    let trees: Vec<TokenTree> = group.stream().into_iter().collect();
    let is_value = |at: usize| at > 0 && trees[at - 1].to_string() == "=";
    let mut texts =
        trees.iter().enumerate().filter(|(at, _)| !is_value(*at)).filter_map(|(_, tree)| text_of(tree));
    texts.next_back().filter(|text| text.contains(' '))
}

/// The text of `#[error("…")]`.
fn error_attribute(group: &Group) -> Option<String> {
    let mut trees = group.stream().into_iter();
    match (trees.next()?, trees.next()?) {
        (TokenTree::Ident(name), TokenTree::Group(group)) if name == "error" => {
            texts_in(&group).into_iter().next()
        }
        _ => None,
    }
}

/// The value of a string literal, on one line.
fn text_of(tree: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = tree else { return None };
    let source = literal.to_string();
    let text = source.strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some('\n')) => while chars.next_if(|next| next.is_whitespace()).is_some() {},
            ('\\', Some('n' | 'r')) => {
                chars.next();
                value.push(' ');
            }
            ('\\', Some(_)) => value.extend(chars.next()),
            (other, _) => value.push(other),
        }
    }
    Some(value.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|value| !value.is_empty())
}

/// A text in a table cell or list item.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(source: &str) -> Messages {
        let mut messages = Messages::default();
        messages.add(Production::of(source).tokens);
        messages
    }

    #[test]
    fn hints_log_lines_and_other_texts_are_collected() {
        let source = r#"#[error("cannot read {0}")] struct A;
            /// A doc comment of several words.
            fn f() { let text = format!("server `{name}` did \
                     not answer"); x.with_hint("try again"); tracing::warn!(kind = "x", "a line was skipped");
                     y.expect("this cannot happen here"); assert!(z, "nor can this one"); }"#;
        let found = messages(source);
        assert_eq!(found.hints.iter().collect::<Vec<_>>(), ["try again"]);
        assert_eq!(found.logs["warn"].iter().collect::<Vec<_>>(), ["a line was skipped"]);
        let mut sentences = BTreeSet::new();
        add_sentences(&mut sentences, source.parse().unwrap());
        let expected = ["a line was skipped", "cannot read {0}", "server `{name}` did not answer"];
        assert_eq!(sentences.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn test_code_is_skipped() {
        let found = messages(
            r#"#[cfg(test)] mod tests { fn f() { x.with_hint("not this") } } fn g() { x.with_hint("this one") }"#,
        );
        assert_eq!(found.hints.iter().collect::<Vec<_>>(), ["this one"]);
    }

    #[test]
    fn events_have_a_kind_and_texts() {
        let mut found = Variants::new();
        add_enum(
            &mut found,
            r#"impl Other { fn kind(&self) { match self { Self::Else => "else" } } }
               impl Event { fn kind(&self) { match self { Self::Lost { .. } => "lost", Self::Back => "back" } } }
               impl fmt::Display for Event {
                   fn fmt(&self) { match self { Self::Lost { cause } => { write!(f, "lost: {cause}") }
                                                Self::Back => f.write_str("is back") } } }"#
                .parse()
                .unwrap(),
            "Event",
        );
        let expected = [("Lost", ["lost", "lost: {cause}"]), ("Back", ["back", "is back"])];
        let expected: Vec<(String, Vec<String>)> =
            expected.map(|(name, texts)| (name.to_owned(), texts.map(str::to_owned).to_vec())).to_vec();
        assert_eq!(found, expected);
    }
}
