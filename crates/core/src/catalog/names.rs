//! Public names: the names under which clients see the tools, prompts and resources of all servers.
//!
//! A public name is stable: it depends only on the server's prefix and the item's own name.

use sha2::{Digest, Sha256};

/// Maximum length of a tool name that many models and clients accept.
pub const MAX_LENGTH: usize = 64;

const SEPARATOR: &str = "__";
const HASH_DIGITS: usize = 8;
/// Length of the part of a name that is kept in front of a hash.
const SHORTENED: usize = MAX_LENGTH - HASH_DIGITS - 1;

/// The public name of `name` under `prefix`. With an empty prefix the name stays as it is.
///
/// With a prefix, the result has only characters that every client accepts, and is short enough for them. A name that
/// had to be changed for that ends in a hash of the full name, so that two names stay distinct.
pub fn public_name(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        return name.to_owned();
    }
    let whole = format!("{prefix}{SEPARATOR}{name}");
    if whole.len() <= MAX_LENGTH && whole.chars().all(is_plain) {
        return whole;
    }
    let kept: String = plain_only(&whole).take(SHORTENED).collect();
    format!("{kept}_{}", hash(&whole))
}

/// A public name for an item that would collide otherwise. It depends only on the server and the name.
pub fn disambiguated(server: &str, name: &str) -> String {
    let kept: String = public_name(server, name).chars().take(SHORTENED).collect();
    format!("{kept}_{}", hash(&format!("{server}\0{name}")))
}

/// The start of all names with this prefix.
pub(super) fn name_prefix(prefix: &str) -> String {
    plain_only(&format!("{prefix}{SEPARATOR}")).take(SHORTENED).collect()
}

/// Match between a public name and a server that was not listed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFit {
    /// The name starts with the server's prefix or name.
    ByPrefix,
    /// The server has no prefix, so that any name can be its own.
    Possible,
    /// The name cannot belong to this server.
    No,
}

/// Returns whether an item of `server` with this prefix may have the public name `public`.
pub fn name_fit(server: &str, prefix: &str, public: &str) -> NameFit {
    let carries = |prefix: &str| public.starts_with(&name_prefix(prefix));
    // After a name conflict the server's own name is in front.
    if carries(server) || (!prefix.is_empty() && carries(prefix)) {
        NameFit::ByPrefix
    } else if prefix.is_empty() {
        NameFit::Possible
    } else {
        NameFit::No
    }
}

/// The URI scheme of MCP apps. A public URI keeps it in front, because clients recognise apps by it.
const UI: &str = "ui://";

/// The public URI of a resource whose own URI is used by another server too.
pub fn prefixed_uri(server: &str, uri: &str) -> String {
    let scheme = if uri.starts_with(UI) { UI } else { "" };
    format!("{scheme}{server}+{uri}")
}

/// The server's own URI of the resource with this public URI, if the public URI names the server.
pub fn original_uri<'a>(server: &str, public: &'a str) -> Option<&'a str> {
    let own = |uri: &'a str| uri.strip_prefix(server)?.strip_prefix('+');
    own(public).or_else(|| own(public.strip_prefix(UI)?))
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn plain_only(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| if is_plain(c) { c } else { '_' })
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_ordinary_name_is_server_and_tool() {
        assert_eq!(public_name("github", "create_issue"), "github__create_issue");
        assert_eq!(public_name("", "create_issue"), "create_issue");
    }

    #[test]
    fn overlong_names_are_shortened_stably_and_stay_distinct() {
        let long = "a".repeat(80);
        let (one, two) = (public_name("s", &format!("{long}1")), public_name("s", &format!("{long}2")));
        assert_eq!((one.len(), two.len()), (MAX_LENGTH, MAX_LENGTH));
        assert_ne!(one, two);
        assert_eq!(one, public_name("s", &format!("{long}1")));
    }

    #[test]
    fn names_with_invalid_characters_are_changed_and_stay_distinct() {
        assert_ne!(public_name("s", "a.b"), public_name("s", "a/b"));
        assert!(public_name("s", "a.b").starts_with("s__a_b_"));
    }

    #[test]
    fn a_server_without_prefix_may_have_any_name() {
        assert_eq!(name_fit("github", "github", "github__create_issue"), NameFit::ByPrefix);
        assert_eq!(name_fit("github", "gh", "gh__create_issue"), NameFit::ByPrefix);
        assert_eq!(
            name_fit("github", "gh", "github__create_issue"),
            NameFit::ByPrefix,
            "if it had to give way"
        );
        assert_eq!(name_fit("github", "", "create_issue"), NameFit::Possible);
        assert_eq!(name_fit("github", "github", "create_issue"), NameFit::No);
        assert_eq!(name_fit("git", "git", "github__create_issue"), NameFit::No);
    }

    proptest! {
        #[test]
        fn every_public_name_of_a_server_fits_it(server in "[a-z.]{1,70}", prefix in "[a-z.]{0,70}", name in ".{0,80}") {
            let [wanted, second] = [public_name(&prefix, &name), public_name(&server, &name)];
            prop_assert!(name_fit(&server, &prefix, &wanted) != NameFit::No);
            for renamed in [second, disambiguated(&server, &name)] {
                prop_assert_eq!(name_fit(&server, &prefix, &renamed), NameFit::ByPrefix);
            }
        }

        #[test]
        fn a_prefixed_name_is_accepted_by_every_client(prefix in "[a-z]{1,64}", name in ".{0,200}") {
            for name in [public_name(&prefix, &name), disambiguated(&prefix, &name)] {
                prop_assert!(name.len() <= MAX_LENGTH && !name.is_empty());
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            }
        }
    }

    #[test]
    fn a_prefixed_uri_round_trips_and_keeps_the_ui_scheme() {
        for uri in ["file:///a", "ui://panel/app.html", "x+y://z"] {
            assert_eq!(original_uri("two", &prefixed_uri("two", uri)), Some(uri));
            assert_eq!(original_uri("one", &prefixed_uri("two", uri)), None);
            assert_eq!(original_uri("two", uri), None);
        }
        assert!(prefixed_uri("two", "ui://panel").starts_with("ui://"));
    }
}
