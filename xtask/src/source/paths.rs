//! Paths that a file names outside of its tests, in full from the name of the crate: `gripfast_core::policy::pins`.

use super::production::Production;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, File, Ident, ItemMod, ItemUse, Macro, Meta, Path, UseTree, Visibility};

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
pub(crate) fn mentions(files: &[SourceFile]) -> Vec<(&SourceFile, syn::Result<Vec<Mention>>)> {
    let modules: BTreeSet<&[String]> = files.iter().map(|file| file.module.as_slice()).collect();
    let production: Vec<_> = files.iter().map(|file| Production::of(&file.text)).collect();
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
            let aliases = read(&production.tokens).map(|reading| reading.aliases).unwrap_or_default();
            for (name, path) in aliases.into_iter().filter(|(_, path)| path.public) {
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
        let mention = |written: &Written, aliases: &BTreeMap<String, Written>| {
            let mut path = resolve(written, file, &modules, aliases);
            if let Some(target) = path.get(..2).and_then(|name| reexports.get(name)) {
                path = join(target, &path[2..]);
            }
            Mention { path, line: written.line, glob: written.glob }
        };
        let mentions = read(&production.tokens)
            .map(|reading| reading.paths.iter().map(|written| mention(written, &reading.aliases)).collect());
        all.push((file, mentions));
    }
    all
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
    /// The inline modules around the current item.
    inside: Vec<String>,
}

fn read(tokens: &TokenStream) -> syn::Result<Reading> {
    let mut reading = Reading::default();
    reading.visit_file(&syn::parse2::<File>(tokens.clone())?);
    Ok(reading)
}

impl Reading {
    /// A path at this place without its segments.
    fn written(&self, line: usize) -> Written {
        let inside = self.inside.clone();
        Written { segments: Vec::new(), line, glob: false, inside, imported: false, public: false }
    }

    fn add_all(&mut self, found: Vec<(Vec<String>, usize)>) {
        for (segments, line) in found {
            let written = Written { segments, ..self.written(line) };
            self.paths.push(written);
        }
    }

    /// Reads one branch of a `use` tree.
    fn add_use(&mut self, tree: &UseTree, mut written: Written) {
        let mut extend = |ident: &Ident| {
            // `a::b::{self}` is `a::b`; `self::a` starts at the module.
            if ident != "self" || written.segments.is_empty() {
                written.segments.push(ident.to_string());
            }
            written.line = ident.span().start().line;
        };
        let alias = match tree {
            UseTree::Path(path) => {
                extend(&path.ident);
                return self.add_use(&path.tree, written);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_use(tree, written.clone()));
            }
            UseTree::Glob(_) => return self.paths.push(Written { glob: true, ..written }),
            UseTree::Rename(renamed) => {
                extend(&renamed.ident);
                Some(renamed.rename.to_string())
            }
            UseTree::Name(name) => {
                extend(&name.ident);
                written.segments.last().cloned()
            }
        };
        self.aliases.extend(alias.map(|name| (name, written.clone())));
        self.paths.push(written);
    }
}

impl Visit<'_> for Reading {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, import: &ItemUse) {
        let public = !matches!(import.vis, Visibility::Inherited);
        let start = self.written(import.use_token.span().start().line);
        self.add_use(&import.tree, Written { imported: true, public, ..start });
    }

    fn visit_path(&mut self, path: &Path) {
        if path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add_all(vec![(segments, path.span().start().line)]);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &Macro) {
        visit::visit_macro(self, invoked);
        self.add_all(paths_in(invoked.tokens.clone()));
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        visit::visit_attribute(self, attribute);
        if let Meta::List(list) = &attribute.meta {
            self.add_all(paths_in(list.tokens.clone()));
        }
    }
}

/// The paths of two segments or more in tokens, each with its line.
pub(crate) fn paths_in(tokens: TokenStream) -> Vec<(Vec<String>, usize)> {
    let mut found: Vec<(Vec<String>, usize)> = Vec::new();
    let mut colons = 0;
    for tree in tokens {
        match tree {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Ident(ident) => {
                match found.last_mut().filter(|_| colons == 2) {
                    Some((segments, _)) => segments.push(ident.to_string()),
                    None => found.push((vec![ident.to_string()], ident.span().start().line)),
                }
                colons = 0;
            }
            TokenTree::Group(group) => {
                found.extend(paths_in(group.stream()));
                colons = 0;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => colons = 0,
        }
    }
    found.retain(|(segments, _)| segments.len() > 1);
    found
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
        let paths = mentions.iter().flat_map(|(_, mentions)| mentions.as_ref().expect("fixtures are Rust"));
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
    fn paths_in_macros_and_attributes_are_seen() {
        let found = named(&[(
            "a.rs",
            "#[derive(b::C)] struct D; fn f() { e::g!(x, h::i(), j: k, l.m::<n::O>()); p::q::<r::S>(); }",
        )]);
        assert_eq!(found, ["b::C", "e::g", "h::i", "n::O", "p::q", "r::S"]);
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
            (
                "w.rs",
                "use crate::x; /// For tests.\n#[derive(y::Z)] #[cfg(test)] struct A { b: crate::c::D }",
            ),
            ("m.rs", "fn n() { let o = P { #[cfg(test)] q: crate::r::s(), t: crate::u::v() }; }"),
        ]);
        assert_eq!(found, ["krate::c::d", "krate::j", "krate::x", "krate::u::v"]);
    }
}
