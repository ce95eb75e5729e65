//! `cargo xtask layers`: checks the dependencies between crates and between modules against the rules in `rules.rs`.
//!
//! Dependencies between crates come from `cargo metadata`, those between modules from the paths that the sources name.

mod rules;

use std::collections::BTreeSet;

use crate::source::paths::{Mention, SourceFile, mentions};
use crate::workspace::{DependencyKind, Package, Workspace, read, rust_files};
use rules::{CRATES, CrateRule, INDEPENDENT, Independent, Outside, PATHS, PURE, PathRule, TESTS_MAY_USE};

/// Checks all rules. The result is a summary, or all violations, each with the reason of its rule.
pub(crate) fn check(workspace: &Workspace) -> Result<String, String> {
    let files = sources(workspace)?;
    let mut broken = forbidden_crates(&workspace.packages, CRATES);
    broken.extend(forbidden_paths(&files, PATHS, INDEPENDENT));
    if !broken.is_empty() {
        let count = broken.len();
        let hint = "hint: the rules are in xtask/src/layers/rules.rs, with the way to change them";
        return Err(format!("{}\n{count} violation(s) of the layers\n{hint}", broken.join("\n")));
    }
    Ok(format!("{} crates and {} files respect the layers", workspace.packages.len(), files.len()))
}

fn sources(workspace: &Workspace) -> Result<Vec<SourceFile>, String> {
    let mut files = Vec::new();
    for package in &workspace.packages {
        let src = package.dir.join("src");
        for path in rust_files(&src)? {
            let inside = path.strip_prefix(&src).unwrap_or(&path).display().to_string().replace('\\', "/");
            files.push(SourceFile::new(&package.ident(), &inside, workspace.display(&path), read(&path)?));
        }
    }
    Ok(files)
}

fn forbidden_crates(packages: &[Package], rules: &[CrateRule]) -> Vec<String> {
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut broken = Vec::new();
    for package in packages {
        let Some(rule) = rules.iter().find(|rule| rule.name == package.name) else {
            broken.push(format!("crate `{}` has no rule\n  why: every crate needs a rule", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let in_tests = dependency.kind == DependencyKind::Dev;
            let allowed = if ours.contains(name) {
                rule.may_use.contains(&name) || (in_tests && TESTS_MAY_USE.contains(&name))
            } else {
                match rule.outside {
                    Outside::Any => true,
                    Outside::Pure => in_tests || PURE.contains(&name),
                }
            };
            if !allowed {
                let verb = if in_tests { "tests of" } else { "crate" };
                broken.push(format!(
                    "{verb} `{}` must not depend on `{name}`\n  why: {}",
                    package.name, rule.why
                ));
            }
        }
    }
    broken
}

fn forbidden_paths(files: &[SourceFile], rules: &[PathRule], independent: &[Independent]) -> Vec<String> {
    let mut broken = Vec::new();
    for (file, mentions) in mentions(files) {
        let mentions = mentions.unwrap_or_else(|error| {
            broken.push(format!("{}: its paths cannot be read: {error}", file.shown));
            Vec::new()
        });
        for mention in mentions {
            for rule in rules {
                let applies = rule.within.iter().any(|module| is_inside(&file.module, module))
                    && !rule.except.iter().any(|module| is_inside(&file.module, module));
                if applies && let Some(never) = rule.never.iter().find(|never| names(&mention, never)) {
                    broken.push(describe(file, &mention, never, rule.why));
                }
            }
            for group in independent {
                let Some(home) = group.modules.iter().find(|module| is_inside(&file.module, module)) else {
                    continue;
                };
                let others = group.modules.iter().filter(|module| *module != home);
                if let Some(other) = others.into_iter().find(|other| names(&mention, other)) {
                    broken.push(describe(file, &mention, other, group.why));
                }
            }
        }
    }
    broken.dedup();
    broken
}

fn is_inside(module: &[String], outer: &str) -> bool {
    let mut segments = module.iter();
    outer.split("::").all(|wanted| segments.next().is_some_and(|segment| segment == wanted))
}

/// Whether the mention contains the path, or is a glob that imports it implicitly.
fn names(mention: &Mention, path: &str) -> bool {
    let wanted: Vec<&str> = path.split("::").collect();
    let contains = mention.path.windows(wanted.len()).any(|window| window == wanted.as_slice());
    let brings_in = mention.glob && mention.path.len() < wanted.len() && is_prefix(&mention.path, &wanted);
    contains || brings_in
}

fn is_prefix(path: &[String], of: &[&str]) -> bool {
    path.iter().zip(of).all(|(have, wanted)| have == wanted)
}

fn describe(file: &SourceFile, mention: &Mention, never: &str, why: &str) -> String {
    let Mention { path, line, glob } = mention;
    let shown = format!("{}{}", path.join("::"), if *glob { "::*" } else { "" });
    let through = if shown == never { String::new() } else { format!(" through `{shown}`") };
    format!(
        "{}:{line}: `{}` must not name `{never}`{through}\n  why: {why}",
        file.shown,
        file.module.join("::")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The violations of the real rules in a tree of `crate/path` and text.
    fn broken(tree: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = tree
            .iter()
            .map(|(path, text)| {
                let (krate, inside) = path.split_once('/').expect("fixture paths are crate/file");
                SourceFile::new(krate, inside, (*path).to_owned(), (*text).to_owned())
            })
            .collect();
        let broken = forbidden_paths(&files, PATHS, INDEPENDENT);
        broken.into_iter().map(|text| text.lines().next().unwrap_or_default().to_owned()).collect()
    }

    /// A crate and its dependencies, each with its kind in the notation of cargo.
    type Crate = (&'static str, &'static [(&'static str, Option<&'static str>)]);

    fn broken_crates(dependencies: &[Crate]) -> Vec<String> {
        let packages: Vec<_> = dependencies
            .iter()
            .map(|(name, dependencies)| {
                let dependencies: Vec<_> =
                    dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
                json!({ "name": name, "manifest_path": "/x/Cargo.toml", "dependencies": dependencies })
            })
            .collect();
        let metadata =
            json!({ "packages": packages, "workspace_root": "/x", "target_directory": "/x/target" });
        let workspace = Workspace::from_metadata(&metadata).expect("fixture has the form of cargo metadata");
        let broken = forbidden_crates(&workspace.packages, CRATES);
        broken.into_iter().map(|text| text.lines().next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn the_intended_dependencies_are_allowed() {
        let fine = broken_crates(&[
            ("gripfast-core", &[("serde", None), ("proptest", Some("dev"))]),
            ("gripfast-wire", &[("gripfast-core", None), ("memchr", None)]),
            (
                "gripfast",
                &[("gripfast-core", None), ("gripfast-wire", None), ("gripfast-testkit", Some("dev"))],
            ),
            ("gripfast-demo", &[("tokio", None)]),
            (
                "gripfast-gateway",
                &[("gripfast", None), ("gripfast-demo", None), ("gripfast-testkit", Some("dev"))],
            ),
            ("gripfast-testkit", &[("tokio", None)]),
        ]);
        assert_eq!(fine, [""; 0]);
    }

    #[test]
    fn a_dependency_in_the_wrong_direction_is_forbidden() {
        let found = broken_crates(&[
            ("gripfast-core", &[("gripfast-wire", None)]),
            ("gripfast-wire", &[]),
            ("gripfast", &[("gripfast-gateway", Some("build"))]),
            ("gripfast-gateway", &[("gripfast-core", None)]),
        ]);
        assert_eq!(
            found,
            [
                "crate `gripfast-core` must not depend on `gripfast-wire`",
                "crate `gripfast` must not depend on `gripfast-gateway`",
                "crate `gripfast-gateway` must not depend on `gripfast-core`",
            ]
        );
    }

    #[test]
    fn a_pure_crate_has_no_runtime() {
        let found = broken_crates(&[("gripfast-core", &[("tokio", None), ("rusqlite", Some("build"))])]);
        assert_eq!(
            found,
            [
                "crate `gripfast-core` must not depend on `tokio`",
                "crate `gripfast-core` must not depend on `rusqlite`"
            ]
        );
    }

    #[test]
    fn the_testkit_stays_in_tests() {
        let found = broken_crates(&[("gripfast", &[("gripfast-testkit", None)]), ("gripfast-testkit", &[])]);
        assert_eq!(found, ["crate `gripfast` must not depend on `gripfast-testkit`"]);
    }

    #[test]
    fn a_crate_without_a_rule_is_reported() {
        assert_eq!(broken_crates(&[("gripfast-new", &[])]), ["crate `gripfast-new` has no rule"]);
    }

    #[test]
    fn independent_modules_do_not_name_each_other_in_any_form() {
        let found = broken(&[
            ("gripfast_core/lib.rs", "pub mod policy; pub mod supervise; pub use policy::Budget;"),
            ("gripfast_core/policy/mod.rs", "pub mod pins;"),
            ("gripfast_core/supervise/mod.rs", "use super::policy::pins;"),
            ("gripfast_core/supervise/link.rs", "fn f() { crate::policy::pins::check() }"),
            ("gripfast_core/cache.rs", "use crate::{catalog::names, json};"),
            ("gripfast_core/catalog/mod.rs", "use crate::Budget;"),
            ("gripfast_core/catalog/diff.rs", "use crate::*;"),
            ("gripfast_core/ledger.rs", "use crate::policy::Budget;"),
        ]);
        assert_eq!(
            found,
            [
                "gripfast_core/supervise/mod.rs:1: `gripfast_core::supervise` must not name `gripfast_core::policy` \
                 through `gripfast_core::policy::pins`",
                "gripfast_core/supervise/link.rs:1: `gripfast_core::supervise::link` must not name \
                 `gripfast_core::policy` through `gripfast_core::policy::pins::check`",
                "gripfast_core/cache.rs:1: `gripfast_core::cache` must not name `gripfast_core::catalog` through \
                 `gripfast_core::catalog::names`",
                "gripfast_core/catalog/mod.rs:1: `gripfast_core::catalog` must not name `gripfast_core::policy` \
                 through `gripfast_core::policy::Budget`",
                "gripfast_core/catalog/diff.rs:1: `gripfast_core::catalog::diff` must not name \
                 `gripfast_core::cache` through `gripfast_core::*`",
            ]
        );
    }

    #[test]
    fn core_and_wire_use_no_clock_and_no_io() {
        let found = broken(&[
            ("gripfast_core/time.rs", "use std::time::Instant;\nfn now() { Instant::now(); }"),
            ("gripfast_wire/sse.rs", "use std::{fs, io};"),
            ("gripfast_core/ids.rs", "use std::net::IpAddr; #[cfg(test)] mod tests { use std::thread; }"),
        ]);
        assert_eq!(
            found,
            [
                "gripfast_core/time.rs:2: `gripfast_core::time` must not name `Instant::now` through \
                 `std::time::Instant::now`",
                "gripfast_wire/sse.rs:1: `gripfast_wire::sse` must not name `std::fs`",
            ]
        );
    }

    #[test]
    fn only_the_clock_of_the_host_reads_a_clock_or_entropy() {
        let found = broken(&[
            ("gripfast/clock.rs", "fn now() { std::time::SystemTime::now(); getrandom::fill(b); }"),
            ("gripfast/call.rs", "use tokio::time as t; fn f() { t::Instant::now(); }"),
            ("gripfast/host.rs", "fn f() { let seed = rustix::rand::getrandom(b); }"),
        ]);
        assert_eq!(
            found,
            [
                "gripfast/call.rs:1: `gripfast::call` must not name `Instant::now` through `tokio::time::Instant::now`",
                "gripfast/host.rs:1: `gripfast::host` must not name `getrandom` through `rustix::rand::getrandom`",
            ]
        );
    }

    #[test]
    fn a_transport_sees_no_policy_and_observe_sees_nothing_that_acts() {
        let found = broken(&[
            ("gripfast/transport/http.rs", "use gripfast_core::policy::allow;"),
            ("gripfast/observe/mod.rs", "use crate::upstream::handle;\nuse gripfast_core::event;"),
        ]);
        assert_eq!(
            found,
            [
                "gripfast/transport/http.rs:1: `gripfast::transport::http` must not name `gripfast_core::policy` \
                 through `gripfast_core::policy::allow`",
                "gripfast/observe/mod.rs:1: `gripfast::observe` must not name `gripfast::upstream` through \
                 `gripfast::upstream::handle`",
            ]
        );
    }
}
