//! Who may see and use what. A server has lists, and so may a client; each list allows and denies by patterns.
//! Deny wins, and whatever has a say must allow.
//!
//! A tool's own hints may be named in a list (`@read_only`, `@destructive`, `@idempotent`). They are the
//! server's word about itself: denying by them is prudent, allowing by them trusts the server.

use super::Pattern;
use super::uri;
use crate::failure::recovery::ToolHints;
use std::borrow::Cow;
use std::fmt;

/// A kind of thing that servers offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A tool, by its name.
    Tool,
    /// A resource, by its URI.
    Resource,
    /// A prompt, by its name.
    Prompt,
}

impl Kind {
    /// The word in the config.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource => "resources",
            Self::Prompt => "prompts",
        }
    }

    /// The word for one of them.
    pub const fn one(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
        }
    }
}

/// What somebody would see or use.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The server that has it.
    pub server: &'a str,
    /// What it is.
    pub kind: Kind,
    /// The server's own name for it, or its URI.
    pub name: &'a str,
    /// What a tool says about itself.
    pub hints: ToolHints,
}

impl Subject<'_> {
    /// The names under which a server may know it. Of a resource there may be several.
    fn forms(&self) -> Vec<Cow<'_, str>> {
        match self.kind {
            Kind::Resource => uri::forms(self.name),
            Kind::Tool | Kind::Prompt => vec![Cow::Borrowed(self.name)],
        }
    }
}

/// What one list of patterns, allowing and denying, says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lists {
    allow: Vec<Entry>,
    deny: Vec<Entry>,
}

/// One entry of a list, such as `delete_*`, `github/*`, `*/@destructive`.
#[derive(Clone, PartialEq, Eq)]
struct Entry {
    text: String,
    server: Pattern,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Name(Pattern),
    Hint(Hint),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    ReadOnly,
    Destructive,
    Idempotent,
}

/// An entry that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// A hint that no tool has.
    #[error("`{0}` is not a hint; there are `@read_only`, `@destructive` and `@idempotent`")]
    UnknownHint(String),
    /// A client's list says which server it means.
    #[error("`{0}` does not say of which server; write `SERVER/{0}`, or `*/{0}` for all")]
    NoServer(String),
}

impl Lists {
    /// Lists of a server: entries are names or hints.
    ///
    /// # Errors
    /// An entry means nothing.
    pub fn of_server(allow: &[String], deny: &[String]) -> Result<Self, BadEntry> {
        Self::read(allow, deny, |text| Entry::of("*", text, text))
    }

    /// Lists of a client: entries are `SERVER/NAME` or `SERVER/@HINT`.
    ///
    /// # Errors
    /// An entry means nothing.
    pub fn of_client(allow: &[String], deny: &[String]) -> Result<Self, BadEntry> {
        Self::read(allow, deny, |text| match text.split_once('/') {
            Some((server, what)) => Entry::of(server, what, text),
            None if text == "*" => Entry::of("*", "*", text),
            None => Err(BadEntry::NoServer(text.to_owned())),
        })
    }

    fn read(
        allow: &[String],
        deny: &[String],
        entry: impl Fn(&str) -> Result<Entry, BadEntry>,
    ) -> Result<Self, BadEntry> {
        let entries = |texts: &[String]| texts.iter().map(|text| entry(text)).collect::<Result<Vec<_>, _>>();
        Ok(Self { allow: entries(allow)?, deny: entries(deny)? })
    }

    /// What is allowed, as it was written.
    pub fn allow(&self) -> impl Iterator<Item = &str> {
        self.allow.iter().map(|entry| entry.text.as_str())
    }

    /// What is denied, as it was written.
    pub fn deny(&self) -> impl Iterator<Item = &str> {
        self.deny.iter().map(|entry| entry.text.as_str())
    }

    /// Whether they let everything pass, so that there is nothing to decide.
    pub fn are_open(&self) -> bool {
        let everything = |entry: &Entry| {
            let all_names = matches!(&entry.what, What::Name(pattern) if pattern.is_everything());
            all_names && entry.server.is_everything()
        };
        self.deny.is_empty() && self.allow.iter().any(everything)
    }

    /// The entry that denies it, in whichever form.
    fn denies(&self, subject: &Subject<'_>) -> Option<&Entry> {
        let forms = subject.forms();
        self.deny.iter().find(|entry| forms.iter().any(|form| entry.matches(subject, form)))
    }

    /// The entry that allows it, in whichever form it is read.
    fn allows(&self, subject: &Subject<'_>) -> Option<&Entry> {
        let forms = subject.forms();
        self.allow.iter().find(|entry| forms.iter().all(|form| entry.matches(subject, form)))
    }
}

impl Default for Lists {
    /// Everything.
    fn default() -> Self {
        let everything =
            Entry { text: "*".to_owned(), server: Pattern::new("*"), what: What::Name(Pattern::new("*")) };
        Self { allow: vec![everything], deny: Vec::new() }
    }
}

impl Entry {
    fn of(server: &str, what: &str, text: &str) -> Result<Self, BadEntry> {
        let what = match what.strip_prefix('@') {
            None => What::Name(Pattern::new(what)),
            Some("read_only") => What::Hint(Hint::ReadOnly),
            Some("destructive") => What::Hint(Hint::Destructive),
            Some("idempotent") => What::Hint(Hint::Idempotent),
            Some(_) => return Err(BadEntry::UnknownHint(what.to_owned())),
        };
        Ok(Self { text: text.to_owned(), server: Pattern::new(server), what })
    }

    fn matches(&self, subject: &Subject<'_>, name: &str) -> bool {
        let what = match &self.what {
            What::Name(pattern) => pattern.matches(name),
            What::Hint(hint) => {
                subject.kind == Kind::Tool
                    && match hint {
                        Hint::ReadOnly => subject.hints.read_only,
                        Hint::Destructive => subject.hints.destructive,
                        Hint::Idempotent => subject.hints.idempotent,
                    }
            }
        };
        what && self.server.matches(subject.server)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// The lists of one server or one client, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Of tools.
    pub tools: Lists,
    /// Of resources.
    pub resources: Lists,
    /// Of prompts.
    pub prompts: Lists,
}

impl Policy {
    /// Whether everything may pass, so that there is nothing to decide.
    pub fn is_open(&self) -> bool {
        [&self.tools, &self.resources, &self.prompts].into_iter().all(Lists::are_open)
    }

    fn of(&self, kind: Kind) -> &Lists {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Resource => &self.resources,
            Kind::Prompt => &self.prompts,
        }
    }
}

/// Whose lists they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// The server's.
    Server(&'a str),
    /// The client's.
    Client(&'a str),
}

/// A verdict and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be seen and used.
    pub allowed: bool,
    /// Which entry of which list says so, in words.
    pub reason: String,
}

/// Decides about `subject`. All of `policies` have a say; none of them forbidding it is not enough, each must
/// allow it.
pub fn decide<'a>(
    policies: impl IntoIterator<Item = (Whose<'a>, &'a Policy)> + Clone,
    subject: &Subject<'_>,
) -> Decision {
    let place = |whose, list| Place { whose, kind: subject.kind, list };
    for (whose, policy) in policies.clone() {
        if let Some(entry) = policy.of(subject.kind).denies(subject) {
            let reason = format!("denied by `{}` in {}", entry.text, place(whose, "deny"));
            return Decision { allowed: false, reason };
        }
    }
    let mut reasons = Vec::new();
    for (whose, policy) in policies {
        let place = place(whose, "allow");
        match policy.of(subject.kind).allows(subject) {
            Some(entry) => reasons.push(format!("`{}` in {place}", entry.text)),
            None => {
                return Decision { allowed: false, reason: format!("not allowed by anything in {place}") };
            }
        }
    }
    let reason = match reasons.as_slice() {
        [] => "allowed, for nothing has a say".to_owned(),
        reasons => format!("allowed by {}", reasons.join(" and ")),
    };
    Decision { allowed: true, reason }
}

/// Where a list stands in the config.
struct Place<'a> {
    whose: Whose<'a>,
    kind: Kind,
    list: &'static str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, list) = (self.kind.word(), self.list);
        match self.whose {
            Whose::Server(name) => write!(f, "servers.{name}.{kind}.{list}"),
            Whose::Client(name) => write!(f, "clients.{name}.{kind}.{list}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn tool<'a>(server: &'a str, name: &'a str) -> Subject<'a> {
        Subject { server, kind: Kind::Tool, name, hints: ToolHints::default() }
    }

    fn tools(lists: Result<Lists, BadEntry>) -> Policy {
        Policy { tools: lists.unwrap(), ..Policy::default() }
    }

    #[test]
    fn g01_deny_wins_over_allow() {
        let may = |allow: &[&str], deny: &[&str], name| {
            let policy = tools(Lists::of_server(&words(allow), &words(deny)));
            decide([(Whose::Server("s"), &policy)], &tool("s", name)).allowed
        };
        assert!(may(&["*"], &["delete_*"], "read") && !may(&["*"], &["delete_*"], "delete_all"));
        assert!(may(&["read_*"], &[], "read_file") && !may(&["read_*"], &[], "write_file"));
        assert!(!may(&[], &[], "anything"), "no `allow` pattern allows nothing");
        let open = Policy::default();
        assert!(open.is_open() && decide([(Whose::Server("s"), &open)], &tool("s", "anything")).allowed);
        assert!(!tools(Lists::of_server(&words(&["*"]), &words(&["x"]))).is_open());
        assert!(!tools(Lists::of_client(&words(&["github/*"]), &[])).is_open());
    }

    #[test]
    fn g01_a_client_is_allowed_what_its_server_and_its_own_lists_allow() {
        let github = tools(Lists::of_server(&words(&["*"]), &words(&["delete_*"])));
        let ci = tools(Lists::of_client(&words(&["github/*", "docs/search"]), &words(&["*/create_*"])));
        let both = [(Whose::Server("github"), &github), (Whose::Client("ci"), &ci)];
        let said = |name| decide(both, &tool("github", name));
        assert_eq!(
            said("read").reason,
            "allowed by `*` in servers.github.tools.allow and `github/*` in clients.ci.tools.allow"
        );
        assert_eq!(said("delete_repo").reason, "denied by `delete_*` in servers.github.tools.deny");
        assert_eq!(said("create_issue").reason, "denied by `*/create_*` in clients.ci.tools.deny");
        let elsewhere = decide([(Whose::Client("ci"), &ci)], &tool("docs", "publish"));
        assert_eq!(elsewhere.reason, "not allowed by anything in clients.ci.tools.allow");
        assert!(!elsewhere.allowed);
    }

    #[test]
    fn g01_a_tools_own_hints_can_be_denied_and_allowed() {
        let careful =
            tools(Lists::of_client(&words(&["*/@read_only", "demo/*"]), &words(&["*/@destructive"])));
        let hinted = |read_only, destructive| {
            let hints = ToolHints { read_only, destructive, ..ToolHints::default() };
            decide([(Whose::Client("c"), &careful)], &Subject { hints, ..tool("db", "query") }).allowed
        };
        assert!(hinted(true, false) && !hinted(false, false) && !hinted(false, true));
        let resource = Subject { kind: Kind::Resource, ..tool("db", "x") };
        let by_hint = Policy { resources: careful.tools.clone(), ..Policy::default() };
        assert!(!decide([(Whose::Client("c"), &by_hint)], &resource).allowed, "only tools have hints");
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        let hint = Lists::of_server(&words(&["@readonly"]), &[]).unwrap_err();
        assert_eq!(hint, BadEntry::UnknownHint("@readonly".to_owned()));
        let server = Lists::of_client(&words(&["delete_*"]), &[]).unwrap_err();
        assert_eq!(server, BadEntry::NoServer("delete_*".to_owned()));
        assert!(Lists::of_client(&words(&["*"]), &[]).is_ok(), "everything of everybody");
    }

    #[test]
    fn resources_are_matched_by_their_whole_uri() {
        let files = Lists::of_client(&words(&["files/file:///srv/*"]), &words(&["*/*..*"])).unwrap();
        let policy = Policy { resources: files, ..Policy::default() };
        let may = |uri| {
            let subject = Subject { kind: Kind::Resource, ..tool("files", uri) };
            decide([(Whose::Client("c"), &policy)], &subject).allowed
        };
        assert!(may("file:///srv/a/b") && !may("file:///etc/passwd") && !may("file:///srv/../etc/passwd"));
    }

    #[test]
    fn g01_a_resource_must_be_allowed_in_every_form_and_is_denied_in_any() {
        let may = |allow: &[&str], deny: &[&str], uri| {
            let resources = Lists::of_server(&words(allow), &words(deny)).unwrap();
            let policy = Policy { resources, ..Policy::default() };
            let subject = Subject { kind: Kind::Resource, ..tool("files", uri) };
            decide([(Whose::Server("files"), &policy)], &subject).allowed
        };
        for way_out in ["file:///srv/%2e%2e/etc/x", "file:///srv/..\\etc/x", "file:///srv/%252e%252e/etc/x"] {
            assert!(!may(&["file:///srv/*"], &[], way_out), "{way_out}");
            assert!(!may(&["*"], &["file:///etc/*"], way_out), "{way_out}");
        }
        assert!(may(&["file:///srv/*"], &["file:///etc/*"], "file:///srv/a%20b"));
    }
}
