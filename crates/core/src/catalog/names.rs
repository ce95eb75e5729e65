//! Names on the public surface: what clients call a tool or prompt of one of many servers.
//!
//! A public name is stable: it depends on the server's prefix and on the tool's own name, and on nothing
//! else that may change between two runs.

use sha2::{Digest, Sha256};

/// What many models and clients take for a tool's name at the most.
pub const LONGEST: usize = 64;

const SEPARATOR: &str = "__";
const HASH_DIGITS: usize = 8;
/// What is left of a name that has to carry a hash.
const SHORTENED: usize = LONGEST - HASH_DIGITS - 1;

/// The public name of `name` under `prefix`. An empty prefix leaves the name as the server has it.
///
/// With a prefix the result has only characters that every client takes, and is short enough for them; a
/// name that had to be changed for that carries a hash of what it was, so two names stay two.
pub fn public(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        return name.to_owned();
    }
    let whole = format!("{prefix}{SEPARATOR}{name}");
    if whole.len() <= LONGEST && whole.chars().all(is_plain) {
        return whole;
    }
    let kept: String = plain_only(&whole).take(SHORTENED).collect();
    format!("{kept}_{}", hash(&whole))
}

/// A public name for what would otherwise collide: the same for the same server and name, always.
pub fn distinguished(server: &str, name: &str) -> String {
    let kept: String = public(server, name).chars().take(SHORTENED).collect();
    format!("{kept}_{}", hash(&format!("{server}\0{name}")))
}

/// The beginning of all names under a prefix.
pub(super) fn head(prefix: &str) -> String {
    plain_only(&format!("{prefix}{SEPARATOR}")).take(SHORTENED).collect()
}

/// How a public name fits a server of which nothing is listed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The name carries the server's prefix, or its name.
    ByName,
    /// The server has no prefix: it may have anything.
    Perhaps,
    /// It is no name of this server's.
    No,
}

/// Whether something of `server`, whose prefix this is, may be called `public`.
pub fn fit(server: &str, prefix: &str, public: &str) -> Fit {
    let carries = |prefix: &str| public.starts_with(&head(prefix));
    // A name that gave way to another's has the server's own name in front.
    if carries(server) || (!prefix.is_empty() && carries(prefix)) {
        Fit::ByName
    } else if prefix.is_empty() {
        Fit::Perhaps
    } else {
        Fit::No
    }
}

/// The scheme by which clients know what may be shown as an app. A public URI keeps it in front.
const UI: &str = "ui://";

/// The public URI of a resource whose own URI another server has too.
pub fn shared_uri(server: &str, uri: &str) -> String {
    let scheme = if uri.starts_with(UI) { UI } else { "" };
    format!("{scheme}{server}+{uri}")
}

/// What `server` itself calls the resource with this public URI, if the URI names the server.
pub fn own_uri<'a>(server: &str, public: &'a str) -> Option<&'a str> {
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
        assert_eq!(public("github", "create_issue"), "github__create_issue");
        assert_eq!(public("", "create_issue"), "create_issue");
    }

    #[test]
    fn an_overlong_name_is_shortened_stably_and_two_of_them_stay_two() {
        let long = "a".repeat(80);
        let (one, two) = (public("s", &format!("{long}1")), public("s", &format!("{long}2")));
        assert_eq!((one.len(), two.len()), (LONGEST, LONGEST));
        assert_ne!(one, two);
        assert_eq!(one, public("s", &format!("{long}1")));
    }

    #[test]
    fn a_name_with_characters_that_clients_refuse_is_changed_and_stays_distinct() {
        assert_ne!(public("s", "a.b"), public("s", "a/b"));
        assert!(public("s", "a.b").starts_with("s__a_b_"));
    }

    #[test]
    fn an_unprefixed_server_may_have_anything_and_a_prefixed_one_only_its_own() {
        assert_eq!(fit("github", "github", "github__create_issue"), Fit::ByName);
        assert_eq!(fit("github", "gh", "gh__create_issue"), Fit::ByName);
        assert_eq!(fit("github", "gh", "github__create_issue"), Fit::ByName, "if it had to give way");
        assert_eq!(fit("github", "", "create_issue"), Fit::Perhaps);
        assert_eq!(fit("github", "github", "create_issue"), Fit::No);
        assert_eq!(fit("git", "git", "github__create_issue"), Fit::No);
    }

    proptest! {
        #[test]
        fn whatever_a_server_may_offer_fits_it(server in "[a-z.]{1,70}", prefix in "[a-z.]{0,70}", name in ".{0,80}") {
            let [wanted, second] = [public(&prefix, &name), public(&server, &name)];
            prop_assert!(fit(&server, &prefix, &wanted) != Fit::No);
            for renamed in [second, distinguished(&server, &name)] {
                prop_assert_eq!(fit(&server, &prefix, &renamed), Fit::ByName);
            }
        }

        #[test]
        fn a_prefixed_name_is_always_one_that_every_client_takes(prefix in "[a-z]{1,64}", name in ".{0,200}") {
            for name in [public(&prefix, &name), distinguished(&prefix, &name)] {
                prop_assert!(name.len() <= LONGEST && !name.is_empty());
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            }
        }
    }

    #[test]
    fn a_uri_that_names_its_server_leads_back_and_an_app_stays_one() {
        for uri in ["file:///a", "ui://panel/app.html", "x+y://z"] {
            assert_eq!(own_uri("two", &shared_uri("two", uri)), Some(uri));
            assert_eq!(own_uri("one", &shared_uri("two", uri)), None);
            assert_eq!(own_uri("two", uri), None);
        }
        assert!(shared_uri("two", "ui://panel").starts_with("ui://"));
    }
}
