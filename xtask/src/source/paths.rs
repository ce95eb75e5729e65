//! Paths that a file names outside of its tests, in full from the name of the crate: `gripfast_core::policy::pins`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kind, Token, attribute, is_cfg_test, marks_a_test, past_group, tokens};

/// The full path of a module: the crate, then the modules. `["gripfast_core", "supervise", "link"]`.
pub(crate) type ModulePath = Vec<String>;

/// One source file of a crate.
pub(crate) struct SourceFile {
    /// The path from the root of the workspace, for messages.
    pub(crate) shown: String,
    pub(crate) module: ModulePath,
    pub(crate) text: String,
}

impl SourceFile {
    /// A file of a crate. `inside_src` is the path below `src/`, with slashes.
    pub(crate) fn new(krate: &str, inside_src: &str, shown: String, text: String) -> Self {
        let stem = inside_src.strip_suffix(".rs").unwrap_or(inside_src);
        let mut module = vec![krate.to_owned()];
        if !matches!(stem, "lib" | "main") {
            module.extend(stem.split('/').map(str::to_owned));
        }
        if module.len() > 1 && module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        Self { shown, module, text }
    }

    fn krate(&self) -> &str {
        &self.module[0]
    }
}

/// One path in a file, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// Whether it is `path::*`, which includes everything below.
    pub(crate) glob: bool,
}

/// The mentions of each file that is not test code, in the order of `files`.
///
/// Re-exports of the crate root and renamed imports (`use … as …`) are resolved to the original path, so that renaming
/// does not bypass a rule.
pub(crate) fn mentions(files: &[SourceFile]) -> Vec<(&SourceFile, Vec<Mention>)> {
    let modules: BTreeSet<&[String]> = files.iter().map(|file| file.module.as_slice()).collect();
    let production: Vec<_> = files.iter().map(|file| production(&tokens(&file.text))).collect();
    let mut test_modules: BTreeSet<ModulePath> = BTreeSet::new();
    for (file, production) in files.iter().zip(&production) {
        if production.whole_file_is_test {
            test_modules.insert(file.module.clone());
        }
        test_modules.extend(
            production.test_modules.iter().map(|name| join(&file.module, std::slice::from_ref(name))),
        );
    }
    let is_test = |file: &SourceFile| test_modules.iter().any(|test| file.module.starts_with(test));

    let mut reexports: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for (file, production) in files.iter().zip(&production) {
        if file.module.len() == 1 {
            let reading = read(&production.tokens);
            for (name, path) in reading.aliases.into_iter().filter(|(_, path)| path.public) {
                let path = resolve(&path, file, &modules, &BTreeMap::new());
                reexports.insert(join(&file.module, &[name]), path);
            }
        }
    }

    let mut all = Vec::new();
    for (file, production) in files.iter().zip(&production) {
        if is_test(file) {
            continue;
        }
        let reading = read(&production.tokens);
        let mentions = reading.paths.iter().map(|written| {
            let mut path = resolve(written, file, &modules, &reading.aliases);
            if let Some(target) = path.get(..2).and_then(|name| reexports.get(name)) {
                path = join(target, &path[2..]);
            }
            Mention { path, line: written.line, glob: written.glob }
        });
        all.push((file, mentions.collect()));
    }
    all
}

/// A file without its test code.
struct Production<'s> {
    tokens: Vec<Token<'s>>,
    /// Modules declared as `#[cfg(test)] mod name;`. Their files are test code too.
    test_modules: Vec<String>,
    whole_file_is_test: bool,
}

fn production<'s>(all: &[Token<'s>]) -> Production<'s> {
    let mut left = Production { tokens: Vec::new(), test_modules: Vec::new(), whole_file_is_test: false };
    let mut at = 0;
    while at < all.len() {
        match attribute(all, at) {
            Some((content, _)) if all[at + 1].is("!") && is_cfg_test(content) => {
                return Production { tokens: Vec::new(), test_modules: Vec::new(), whole_file_is_test: true };
            }
            Some((content, end)) if is_cfg_test(content) || marks_a_test(content) => {
                let start = past_attributes(all, end);
                let end = past_item(all, start);
                if let [module, name, semicolon, ..] = &all[start..end]
                    && module.is("mod")
                    && semicolon.is(";")
                {
                    left.test_modules.push(name.text.to_owned());
                }
                at = end;
            }
            Some((_, end)) => {
                left.tokens.extend_from_slice(&all[at..end]);
                at = end;
            }
            None => {
                if all[at].kind != Kind::Doc {
                    left.tokens.push(all[at]);
                }
                at += 1;
            }
        }
    }
    left
}

fn past_attributes(all: &[Token<'_>], mut at: usize) -> usize {
    loop {
        if let Some((_, end)) = attribute(all, at) {
            at = end;
        } else if all.get(at).is_some_and(|token| token.kind == Kind::Doc) {
            at += 1;
        } else {
            return at;
        }
    }
}

/// The index after the item, statement, field or match arm that an attribute applies to.
fn past_item(all: &[Token<'_>], start: usize) -> usize {
    const ITEMS: [&str; 15] = [
        "pub", "mod", "use", "fn", "struct", "enum", "union", "impl", "trait", "const", "static", "type",
        "async", "unsafe", "extern",
    ];
    let is_item = all.get(start).is_some_and(|first| ITEMS.contains(&first.text));
    let mut at = start;
    while at < all.len() {
        match all[at].text {
            _ if all[at].kind != Kind::Punct => at += 1,
            "{" => return past_group(all, at),
            "(" | "[" => at = past_group(all, at),
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// A path as it is written, with its position.
#[derive(Clone)]
struct Written {
    segments: Vec<String>,
    line: usize,
    glob: bool,
    /// The inline modules that contain it.
    inside: Vec<String>,
    imported: bool,
    public: bool,
}

#[derive(Default)]
struct Reading {
    paths: Vec<Written>,
    /// The names that `use` introduces, with their paths.
    aliases: BTreeMap<String, Written>,
}

fn read(tokens: &[Token<'_>]) -> Reading {
    let mut reading = Reading::default();
    let mut inside: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        if token.is("{") {
            depth += 1;
        } else if token.is("}") {
            depth = depth.saturating_sub(1);
            if inside.last().is_some_and(|(_, opened)| *opened == depth) {
                inside.pop();
            }
        } else if let [keyword, name, open, ..] = &tokens[at..]
            && keyword.is("mod")
            && name.kind == Kind::Ident
            && open.is("{")
        {
            inside.push((name.text.to_owned(), depth));
        } else if token.is("use") {
            let start = Written {
                segments: Vec::new(),
                line: token.line,
                glob: false,
                inside: inside.iter().map(|(name, _)| name.clone()).collect(),
                imported: true,
                public: at > 0 && (tokens[at - 1].is("pub") || tokens[at - 1].is(")")),
            };
            at = read_use_tree(tokens, at + 1, start, &mut reading);
            continue;
        } else if token.kind == Kind::Ident && starts_a_path(tokens, at) {
            let mut segments = vec![token.text.to_owned()];
            while let [colons, next, ..] = &tokens[at + 1..]
                && colons.is("::")
                && next.kind == Kind::Ident
            {
                segments.push(next.text.to_owned());
                at += 2;
            }
            if segments.len() > 1 {
                let inside = inside.iter().map(|(name, _)| name.clone()).collect();
                let line = token.line;
                reading.paths.push(Written {
                    segments,
                    line,
                    glob: false,
                    inside,
                    imported: false,
                    public: false,
                });
            }
        }
        at += 1;
    }
    reading
}

fn starts_a_path(tokens: &[Token<'_>], at: usize) -> bool {
    let before = |steps: usize| at.checked_sub(steps).and_then(|index| tokens.get(index));
    match before(1) {
        Some(token) if token.is("::") => {
            !before(2).is_some_and(|token| token.kind == Kind::Ident || token.is(">"))
        }
        Some(token) => !token.is("."),
        None => true,
    }
}

/// Reads one branch of a `use` tree and returns the index after it.
fn read_use_tree(tokens: &[Token<'_>], mut at: usize, mut written: Written, reading: &mut Reading) -> usize {
    while let Some(token) = tokens.get(at) {
        if token.is("::") {
            at += 1;
        } else if token.is("*") {
            reading.paths.push(Written { glob: true, ..written });
            return at + 1;
        } else if token.is("{") {
            let end = past_group(tokens, at);
            at += 1;
            while at + 1 < end {
                let next = read_use_tree(&tokens[..end - 1], at, written.clone(), reading);
                let past_comma = next + usize::from(tokens.get(next).is_some_and(|token| token.is(",")));
                at = past_comma.max(at + 1);
            }
            return end;
        } else if token.is("as") {
            let name = tokens.get(at + 1).map_or("_", |name| name.text);
            reading.aliases.insert(name.to_owned(), written.clone());
            reading.paths.push(written);
            return at + 2;
        } else if token.kind == Kind::Ident {
            // `a::b::{self}` is `a::b`; `self::a` starts at the module.
            if !token.is("self") || written.segments.is_empty() {
                written.segments.push(token.text.to_owned());
            }
            written.line = token.line;
            at += 1;
        } else {
            break;
        }
    }
    if let Some(name) = written.segments.last() {
        reading.aliases.insert(name.clone(), written.clone());
        reading.paths.push(written);
    }
    // The caller handles a separator. Any other token is skipped, so that the loop always advances.
    if tokens.get(at).is_some_and(|token| token.is(",") || token.is(";") || token.is("}")) {
        at
    } else {
        at + 1
    }
}

fn resolve(
    written: &Written,
    file: &SourceFile,
    modules: &BTreeSet<&[String]>,
    aliases: &BTreeMap<String, Written>,
) -> Vec<String> {
    let here = join(&file.module, &written.inside);
    let first = written.segments.first().map_or("", String::as_str);
    let rest = written.segments.get(1..).unwrap_or_default();
    match first {
        "crate" => join(&[file.krate().to_owned()], rest),
        "self" => join(&here, rest),
        "super" => {
            let ups = written.segments.iter().take_while(|segment| *segment == "super").count();
            join(&here[..here.len().saturating_sub(ups).max(1)], &written.segments[ups..])
        }
        _ => {
            if let Some(alias) = aliases.get(first).filter(|_| !written.imported) {
                return join(&resolve(alias, file, modules, &BTreeMap::new()), rest);
            }
            let child = join(&here, &[first.to_owned()]);
            if modules.contains(child.as_slice()) { join(&child, rest) } else { written.segments.clone() }
        }
    }
}

fn join(start: &[String], rest: &[String]) -> Vec<String> {
    start.iter().chain(rest).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile::new("krate", path, (*path).to_owned(), (*text).to_owned()))
            .collect();
        let mentions = mentions(&files);
        let paths = mentions.iter().flat_map(|(_, mentions)| mentions);
        paths.map(|m| format!("{}{}", m.path.join("::"), if m.glob { "::*" } else { "" })).collect()
    }

    #[test]
    fn a_use_tree_is_spelled_out() {
        let found = named(&[("a.rs", "use crate::{b::{self, c}, d as e, f::*};\nuse std::fs;")]);
        assert_eq!(found, ["krate::b", "krate::b::c", "krate::d", "krate::f::*", "std::fs"]);
    }

    #[test]
    fn super_and_self_start_at_the_module_also_inside_inline_ones() {
        let found = named(&[(
            "a/b.rs",
            "use super::c; mod inner { use super::super::d; use self::e; } fn f() { self::g::h() }",
        )]);
        assert_eq!(found, ["krate::a::c", "krate::a::d", "krate::a::b::inner::e", "krate::a::b::g::h"]);
    }

    #[test]
    fn a_renamed_import_is_followed() {
        let found = named(&[("a.rs", "use std::time::Instant as T; fn f() { T::now(); }")]);
        assert_eq!(found, ["std::time::Instant", "std::time::Instant::now"]);
    }

    #[test]
    fn a_re_export_of_the_root_is_followed_to_its_home() {
        let found = named(&[("lib.rs", "pub use b::Budget;"), ("a.rs", "use crate::Budget;"), ("b.rs", "")]);
        assert_eq!(found, ["krate::b::Budget", "krate::b::Budget"]);
    }

    #[test]
    fn unfinished_code_ends() {
        for text in [
            "use",
            "use a::{",
            "use a::{b; c}",
            "use a::{,}",
            "use a as",
            "use a::{$x};",
            "mod x {",
            "use<'a>",
        ] {
            named(&[("a.rs", text)]);
        }
    }

    #[test]
    fn test_code_is_not_seen() {
        let found = named(&[
            ("a.rs", "#[cfg(test)] mod tests { use crate::b; } #[cfg(test)] mod stories; use crate::c::d;"),
            ("a/stories.rs", "use crate::e;"),
            (
                "f.rs",
                "#[tokio::test(start_paused = true)] async fn g() { crate::h::i() } #[cfg(not(test))] use crate::j;",
            ),
            ("k.rs", "#![cfg(test)] use crate::l;"),
            ("m.rs", "fn n() { let o = P { #[cfg(test)] q: crate::r::s(), t: crate::u::v() }; }"),
        ]);
        assert_eq!(found, ["krate::c::d", "krate::j", "krate::u::v"]);
    }
}
