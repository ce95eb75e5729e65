//! `cargo xtask docs`: checks every link of the documentation and builds `docs/` as a book with search.
//!
//! The link check uses no network and is also a step of `cargo xtask test`. The rules:
//!
//! - a relative link or image names a file that exists, and an anchor names a heading of its target;
//! - an `http` link is only checked for its syntax;
//! - a page under `docs/` links only to files under `docs/`, because the book contains nothing else;
//! - `docs/SUMMARY.md` lists every page under `docs/` exactly once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::markdown::{Link, Page};
use crate::test::tools;
use crate::workspace::{Workspace, read};

/// Pages outside of `docs/` whose links are checked too.
const OUTSIDE: [&str; 5] =
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "deploy/README.md"];
const DOCS: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks the links and builds the book. The result is a summary for the terminal.
pub(crate) fn run(workspace: &Workspace) -> Result<String, String> {
    let checked = check(workspace)?;
    let mdbook = tools::mdbook(workspace)?;
    let book = workspace.target.join("book");
    let mut command = Command::new(mdbook);
    command.args(["build", "docs", "--dest-dir"]).arg(&book);
    command.current_dir(&workspace.root).stdin(Stdio::null());
    let status = command.status().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() {
        Ok(format!("{checked}\nbook: {}", book.join("index.html").display()))
    } else {
        Err(format!("mdbook failed ({status}); its output is above"))
    }
}

/// Checks the links without building anything. The result is a summary, or all findings.
pub(crate) fn check(workspace: &Workspace) -> Result<String, String> {
    let mut pages = BTreeMap::new();
    let mut paths: Vec<String> = OUTSIDE.iter().map(|path| (*path).to_owned()).collect();
    collect(&workspace.root, DOCS.trim_end_matches('/'), &mut paths)?;
    for path in paths {
        let page = Page::read(&read(&workspace.root.join(&path))?);
        pages.insert(path, page);
    }
    let entry = |path: &str| match workspace.root.join(path) {
        path if path.is_dir() => Some(Entry::Directory),
        path if path.is_file() => Some(Entry::File),
        _ => None,
    };
    let findings = findings(&pages, &entry);
    if findings.is_empty() {
        let links: usize = pages.values().map(|page| page.links.len()).sum();
        return Ok(format!("{links} links on {} pages are valid", pages.len()));
    }
    Err(format!("{} problem(s) with the links\n{}", findings.len(), findings.join("\n")))
}

/// The paths of all Markdown files below `dir`, from the root and with slashes.
fn collect(root: &Path, dir: &str, found: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot list {dir}: {error}");
    for entry in std::fs::read_dir(root.join(dir)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, found)?;
        } else if is_markdown(&path) {
            found.push(path);
        }
    }
    Ok(())
}

fn is_markdown(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File,
    Directory,
}

/// Everything that is wrong with the pages. `entry` tells what exists at a path from the root.
fn findings(pages: &BTreeMap<String, Page>, entry: &dyn Fn(&str) -> Option<Entry>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, page) in pages {
        for link in &page.links {
            if let Err(problem) = check_link(path, link, pages, entry) {
                findings.push(format!("{path}:{}: {problem}", link.line));
            }
        }
    }
    findings.extend(summary_findings(pages));
    findings
}

fn check_link(
    path: &str,
    link: &Link,
    pages: &BTreeMap<String, Page>,
    entry: &dyn Fn(&str) -> Option<Entry>,
) -> Result<(), String> {
    let target = link.target.as_str();
    match scheme(target) {
        Some("http" | "https") if is_http_url(target) => return Ok(()),
        Some("mailto") => return Ok(()),
        Some(_) => return Err(format!("`{target}` is not a valid address")),
        None => {}
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let file = if file.is_empty() && anchor.is_some() {
        path.to_owned()
    } else {
        resolve(path, file)
            .ok_or_else(|| format!("`{target}` is not a relative path within the repository"))?
    };
    let in_docs = path.starts_with(DOCS);
    if in_docs && !file.starts_with(DOCS) {
        return Err(format!("`{target}` leaves docs/, so the link would be broken in the book"));
    }
    match entry(&file) {
        Some(Entry::File) => {}
        Some(Entry::Directory) if !in_docs && anchor.is_none() => return Ok(()),
        Some(Entry::Directory) => return Err(format!("`{target}` is a directory; link to a page")),
        None => return Err(format!("there is no file `{file}`")),
    }
    let Some(anchor) = anchor else { return Ok(()) };
    match pages.get(&file) {
        Some(page) if page.anchors.contains(anchor) => Ok(()),
        Some(_) => Err(format!("`{file}` has no heading `#{anchor}`")),
        None => Err(format!("`{file}` is not a checked page, so it cannot be linked with `#{anchor}`")),
    }
}

/// `https` of `https://example.com`; nothing for a path.
fn scheme(target: &str) -> Option<&str> {
    let (scheme, _) = target.split_once(':')?;
    let valid = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.');
    scheme.chars().all(valid).then_some(scheme)
}

fn is_http_url(target: &str) -> bool {
    let rest = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://")).unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | ':' | '[' | ']');
    let forbidden = |char: char| char.is_whitespace() || matches!(char, '<' | '>' | '"');
    !host.is_empty() && host.chars().all(plain) && !rest.contains(forbidden)
}

/// The path from the root that a relative link on a page names, unless it leaves the repository.
fn resolve(page: &str, relative: &str) -> Option<String> {
    if relative.is_empty() || relative.starts_with('/') {
        return None;
    }
    let mut segments: Vec<&str> = page.split('/').collect();
    segments.pop();
    for segment in relative.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop()?;
            }
            name => segments.push(name),
        }
    }
    Some(segments.join("/"))
}

/// Pages that the table of contents does not list, or lists twice. An entry without a page is a broken link.
fn summary_findings(pages: &BTreeMap<String, Page>) -> Vec<String> {
    let Some(summary) = pages.get(SUMMARY) else { return vec![format!("there is no {SUMMARY}")] };
    let listed: Vec<String> =
        summary.links.iter().filter_map(|link| resolve(SUMMARY, &link.target)).collect();
    let mut findings = Vec::new();
    for path in pages.keys().filter(|path| path.starts_with(DOCS) && *path != SUMMARY) {
        match listed.iter().filter(|entry| *entry == path).count() {
            0 => findings.push(format!("{SUMMARY} does not list {path}")),
            1 => {}
            _ => findings.push(format!("{SUMMARY} lists {path} more than once")),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings of a tree of paths and texts. Paths without the extension `md` are files that only exist.
    fn findings_of(tree: &[(&str, &str)]) -> Vec<String> {
        let pages = tree.iter().filter(|(path, _)| is_markdown(path));
        let pages = pages.map(|(path, text)| ((*path).to_owned(), Page::read(text))).collect();
        findings(&pages, &|path| {
            if tree.iter().any(|(file, _)| *file == path) {
                return Some(Entry::File);
            }
            let below = format!("{path}/");
            tree.iter().any(|(file, _)| file.starts_with(&below)).then_some(Entry::Directory)
        })
    }

    const SUMMARY_OF_A_AND_B: (&str, &str) = (SUMMARY, "# Summary\n\n- [A](a.md)\n- [B](sub/b.md)\n");

    #[test]
    fn valid_links_are_no_finding() {
        let found = findings_of(&[
            SUMMARY_OF_A_AND_B,
            (
                "README.md",
                "[a](docs/a.md#one), [docs](docs), [licence](LICENSE), [x](https://example.com/a?b#c)",
            ),
            ("LICENSE", ""),
            ("docs/a.md", "# One\n[b](sub/b.md#two--three) ![i](img/i.png) [up](#one) <m@example.com>"),
            ("docs/img/i.png", ""),
            ("docs/sub/b.md", "## Two & three\n[a](../a.md) [mail](mailto:m@example.com)"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_link_to_a_file_that_does_not_exist_is_a_finding() {
        let found = findings_of(&[
            SUMMARY_OF_A_AND_B,
            ("docs/a.md", "[b](b.md)\n\n![i](img/i.png)"),
            ("docs/sub/b.md", ""),
        ]);
        assert_eq!(
            found,
            ["docs/a.md:1: there is no file `docs/b.md`", "docs/a.md:3: there is no file `docs/img/i.png`"]
        );
    }

    #[test]
    fn an_anchor_without_a_heading_is_a_finding() {
        let found = findings_of(&[
            SUMMARY_OF_A_AND_B,
            ("docs/a.md", "# One\n[b](sub/b.md#one) [here](#two)"),
            ("docs/sub/b.md", "# Two"),
        ]);
        assert_eq!(
            found,
            [
                "docs/a.md:2: `docs/sub/b.md` has no heading `#one`",
                "docs/a.md:2: `docs/a.md` has no heading `#two`"
            ]
        );
    }

    #[test]
    fn summary_lists_every_page_once_and_nothing_else() {
        let found = findings_of(&[
            (SUMMARY, "- [A](a.md)\n- [A again](a.md)\n- [Gone](gone.md)\n"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
        ]);
        assert_eq!(
            found,
            [
                "docs/SUMMARY.md:3: there is no file `docs/gone.md`",
                "docs/SUMMARY.md lists docs/a.md more than once",
                "docs/SUMMARY.md does not list docs/b.md",
            ]
        );
        assert_eq!(findings_of(&[("docs/a.md", "")]), ["there is no docs/SUMMARY.md"]);
    }

    #[test]
    fn a_docs_page_links_only_to_files_of_the_book() {
        let found = findings_of(&[
            SUMMARY_OF_A_AND_B,
            ("SECURITY.md", "[outside](../x.md) [root](/docs/a.md)"),
            ("docs/a.md", "[security](../SECURITY.md) [sub](sub)"),
            ("docs/sub/b.md", ""),
        ]);
        assert_eq!(
            found,
            [
                "SECURITY.md:1: `../x.md` is not a relative path within the repository",
                "SECURITY.md:1: `/docs/a.md` is not a relative path within the repository",
                "docs/a.md:1: `../SECURITY.md` leaves docs/, so the link would be broken in the book",
                "docs/a.md:1: `sub` is a directory; link to a page",
            ]
        );
    }

    #[test]
    fn addresses_are_checked_for_their_syntax() {
        for valid in ["https://example.com", "http://127.0.0.1:7331/", "http://[::1]:80/a#b"] {
            assert!(is_http_url(valid), "{valid}");
        }
        let found = findings_of(&[
            (SUMMARY, ""),
            ("README.md", "[a](https://) [b](http:/example.com) [c](ftp://example.com)"),
        ]);
        assert_eq!(
            found,
            [
                "README.md:1: `https://` is not a valid address",
                "README.md:1: `http:/example.com` is not a valid address",
                "README.md:1: `ftp://example.com` is not a valid address",
            ]
        );
    }
}
