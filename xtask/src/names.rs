//! `cargo xtask names`: checks the names of module files and of crate-visible types.
//!
//! It also checks the length of test names and the beginnings of doc comments.
//!
//! Each word of a name must be a common word of the field (`xtask/words.txt`) or a term of `docs/glossary.md`. Words of
//! an older vocabulary are banned. Two crate-visible types of one crate must not share a name, and two files of one crate
//! must not have names that differ only in punctuation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::tests_in::tests_of;
use crate::workspace::{Workspace, read, rust_files};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{File, Item, Visibility};

const WORDS: &str = "xtask/words.txt";
const GLOSSARY: &str = "docs/glossary.md";

/// Words that named modules and types before, and that a reader of this field would not understand.
const BANNED: &[&str] = &[
    "aside",
    "asked",
    "begun",
    "bell",
    "board",
    "book",
    "deaf",
    "desk",
    "door",
    "ear",
    "ears",
    "earshot",
    "errand",
    "errands",
    "farewell",
    "follows",
    "goodbye",
    "greet",
    "heard",
    "herald",
    "kitchen",
    "knock",
    "leash",
    "meant",
    "menu",
    "mingled",
    "miss",
    "nudge",
    "outbox",
    "overhear",
    "owed",
    "passedon",
    "passenger",
    "patient",
    "pen",
    "portions",
    "presence",
    "pulse",
    "purse",
    "recall",
    "recipe",
    "roster",
    "said",
    "seat",
    "seats",
    "shelf",
    "solitude",
    "standing",
    "steady",
    "surroundings",
    "thing",
    "told",
    "trouble",
    "trunk",
    "turnstile",
    "underway",
    "veil",
    "whose",
    "wish",
    "wishes",
];

/// Names of an older vocabulary whose words are common in longer names.
const BANNED_WHOLE: &[&str] = &[
    "ask",
    "base",
    "dial",
    "entry",
    "exchange",
    "failed",
    "front",
    "holder",
    "home",
    "line",
    "live",
    "marks",
    "means",
    "newest",
    "own",
    "owner",
    "pages",
    "parts",
    "pass",
    "pending",
    "post",
    "proof",
    "questions",
    "repeats",
    "running",
    "seal",
    "second",
    "served",
    "settings",
    "shares",
    "spend",
    "suspended",
    "terms",
    "under_way",
    "way",
];

/// The longest name of a test, in characters.
const MAX_TEST_NAME: usize = 80;

/// Words with which no doc comment begins: a reader searches for a noun or a verb.
const DOC_STARTS: [&str; 5] = ["What", "Who", "Whose", "How", "Where"];

/// Types of which one crate has several definitions behind `cfg`, of which each build has one.
const ALTERNATIVES: &[(&str, &str)] = &[
    ("gripfast-cluster", "Connection"),
    ("gripfast-cluster", "LiveConnection"),
    ("gripfast-cluster", "Messages"),
    ("gripfast-gateway", "Hangups"),
    ("gripfast-gateway", "Signals"),
    ("gripfast-gateway", "Span"),
    ("gripfast-gateway", "Telemetry"),
    ("gripfast-gateway", "TelemetryConfigError"),
];

/// Checks the whole workspace. The result is a summary, or all problems.
pub(crate) fn check(workspace: &Workspace) -> Result<String, String> {
    let mut vocabulary = vocabulary(&read(&workspace.root.join(WORDS))?);
    vocabulary.extend(glossary_words(&read(&workspace.root.join(GLOSSARY))?));
    let mut problems = Vec::new();
    let mut names = 0;
    for package in &workspace.packages {
        let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut stems: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in rust_files(&package.dir)? {
            let shown = workspace.display(&file);
            let stem = module_name(&file);
            names += 1;
            problems.extend(
                problem_with(&stem, &vocabulary).map(|why| format!("{shown}: module `{stem}`: {why}")),
            );
            stems.entry(letters(&stem)).or_default().insert(stem);
            let text = read(&file)?;
            let parsed = match syn::parse_file(&text) {
                Ok(parsed) => parsed,
                Err(error) => {
                    problems.push(format!("{shown}:{}: {error}", error.span().start().line));
                    continue;
                }
            };
            problems
                .extend(problems_in(&text, &parsed).into_iter().map(|problem| format!("{shown}:{problem}")));
            let is_product = file.starts_with(package.dir.join("src"));
            for (name, line) in visible_types(&parsed) {
                names += 1;
                problems.extend(
                    problem_with(&name, &vocabulary)
                        .map(|why| format!("{shown}:{line}: type `{name}`: {why}")),
                );
                if is_product {
                    types.entry(name).or_default().push(format!("{shown}:{line}"));
                }
            }
        }
        for (name, places) in types {
            if places.len() > 1 && !ALTERNATIVES.contains(&(package.name.as_str(), name.as_str())) {
                problems.push(format!("type `{name}` is defined more than once: {}", places.join(", ")));
            }
        }
        for stems in stems.into_values().filter(|stems| stems.len() > 1) {
            let stems: Vec<String> = stems.into_iter().collect();
            problems.push(format!(
                "{}: file names differ only in punctuation: {}",
                package.name,
                stems.join(", ")
            ));
        }
    }
    if problems.is_empty() {
        return Ok(format!("{names} names of modules and types"));
    }
    let hint = format!("hint: use a common word of the field, or add it to {WORDS} or {GLOSSARY}");
    Err(format!("{} problem(s) with names\n{}\n{hint}", problems.len(), problems.join("\n")))
}

/// The name of the module in a file: the directory for `mod.rs`, otherwise the file name.
fn module_name(file: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    match text(file.file_stem()).as_str() {
        "mod" | "main" | "lib" => text(file.parent().and_then(Path::file_name)),
        stem => stem.to_owned(),
    }
}

fn vocabulary(list: &str) -> BTreeSet<String> {
    let words = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    words.flat_map(str::split_whitespace).map(str::to_lowercase).collect()
}

/// The words of the terms in the first column of the glossary's tables.
fn glossary_words(page: &str) -> BTreeSet<String> {
    let terms = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    terms.flat_map(|term| term.split(|char: char| !char.is_alphanumeric())).map(str::to_lowercase).collect()
}

fn problem_with(name: &str, vocabulary: &BTreeSet<String>) -> Option<String> {
    let words = words_of(name);
    if BANNED_WHOLE.contains(&words.join("_").as_str()) {
        return Some("the name is banned".to_owned());
    }
    if let Some(banned) = words.iter().find(|word| BANNED.contains(&word.as_str())) {
        return Some(format!("`{banned}` is banned"));
    }
    let unknown: Vec<String> = words
        .into_iter()
        .filter(|word| !vocabulary.contains(word) && !word.chars().all(|char| char.is_ascii_digit()))
        .map(|word| format!("`{word}`"))
        .collect();
    (!unknown.is_empty()).then(|| format!("unknown word {}", unknown.join(", ")))
}

/// Test names that are too long, and doc comments that begin with one of [`DOC_STARTS`], with their lines.
fn problems_in(source: &str, parsed: &File) -> Vec<String> {
    let tests = tests_of(parsed).into_iter().filter(|test| test.name.chars().count() > MAX_TEST_NAME);
    let tests = tests.map(|test| format!("{}: the test name `{}` is too long", test.lines.0, test.name));
    let starts = |line: &str| {
        let text = line.trim_start().strip_prefix("//!").or_else(|| line.trim_start().strip_prefix("///"))?;
        let first = text.split_whitespace().next()?;
        DOC_STARTS.contains(&first).then(|| first.to_owned())
    };
    // A line in the middle of a comment may begin with any word.
    let lines: Vec<&str> = source.lines().collect();
    let is_first = |at: usize| at == 0 || !matches!(lines[at - 1].trim_start().get(..3), Some("//!" | "///"));
    let comments = lines.iter().enumerate().filter(|(at, _)| is_first(*at)).filter_map(|(at, line)| {
        starts(line).map(|word| format!("{}: a doc comment begins with `{word}`", at + 1))
    });
    tests.chain(comments).collect()
}

/// The words of a name in snake case or camel case, in lower case. Digits belong to the word before them.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in name.split(['_', '-', '.']).filter(|part| !part.is_empty()) {
        let mut after_capital = true;
        words.push(String::new());
        for char in part.chars() {
            if char.is_uppercase() && !after_capital {
                words.push(String::new());
            }
            after_capital = char.is_uppercase();
            if let Some(word) = words.last_mut() {
                word.extend(char.to_lowercase());
            }
        }
    }
    words
}

fn letters(name: &str) -> String {
    name.chars().filter(|char| char.is_alphanumeric()).collect::<String>().to_lowercase()
}

/// Types that are visible outside their module, with their lines.
fn visible_types(parsed: &File) -> Vec<(String, usize)> {
    let mut types = VisibleTypes(Vec::new());
    types.visit_file(parsed);
    types.0
}

struct VisibleTypes(Vec<(String, usize)>);

impl Visit<'_> for VisibleTypes {
    fn visit_item(&mut self, item: &Item) {
        let named = match item {
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            Item::Union(item) => Some((&item.vis, &item.ident)),
            _ => None,
        };
        if let Some((vis, ident)) = named.filter(|(vis, _)| !matches!(vis, Visibility::Inherited)) {
            self.0.push((ident.to_string(), vis.span().start().line));
        }
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> Option<String> {
        problem_with(name, &vocabulary("session table # comment\nh2 http"))
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words_of("session_table"), ["session", "table"]);
        assert_eq!(words_of("SessionTable"), ["session", "table"]);
        assert_eq!(words_of("H2Stream"), ["h2", "stream"]);
        assert_eq!(words_of("OAuthSpec"), ["oauth", "spec"]);
    }

    #[test]
    fn an_unknown_word_and_a_banned_word_are_problems() {
        assert_eq!(problem("SessionTable"), None);
        assert_eq!(problem("session_roster").as_deref(), Some("`roster` is banned"));
        assert_eq!(problem("SessionLedger").as_deref(), Some("unknown word `ledger`"));
    }

    #[test]
    fn a_whole_name_can_be_banned_whose_word_is_common() {
        assert_eq!(problem_with("Owner", &vocabulary("owner name")).as_deref(), Some("the name is banned"));
        assert_eq!(problem_with("NameOwner", &vocabulary("owner name")), None);
    }

    #[test]
    fn long_test_names_and_doc_comments_that_begin_with_a_question_word_are_problems() {
        let long = "x".repeat(MAX_TEST_NAME + 1);
        let source = format!(
            "/// How it works.\nfn f() {{}}\n/// A text.\n/// How is fine here.\n#[test]\nfn {long}() {{}}\n"
        );
        let problems_in = |source: &str| problems_in(source, &syn::parse_file(source).unwrap());
        let found = problems_in(&source);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].ends_with("is too long") && found[1] == "1: a doc comment begins with `How`",
            "{found:?}"
        );
        assert_eq!(problems_in(&format!("#[test]\nfn {}() {{}}\n", "x".repeat(MAX_TEST_NAME))), [""; 0]);
    }

    #[test]
    fn terms_of_the_glossary_are_known_words() {
        let words = glossary_words("| term | meaning |\n|---|---|\n| orphan reaper | the helper process |\n");
        assert!(words.contains("reaper") && !words.contains("helper"));
    }

    #[test]
    fn only_visible_types_are_found() {
        let source = "pub struct A; pub(crate) enum B {} pub(in crate::x) trait C {} struct D; pub fn e() {}";
        assert_eq!(
            visible_types(&syn::parse_file(source).unwrap()),
            [("A".to_owned(), 1), ("B".to_owned(), 1), ("C".to_owned(), 1)]
        );
    }

    #[test]
    fn the_module_of_a_mod_file_is_its_directory() {
        assert_eq!(module_name(Path::new("crates/x/src/session/mod.rs")), "session");
        assert_eq!(module_name(Path::new("crates/x/src/session/table.rs")), "table");
    }
}
