//! Who may see and use what. A server has lists, and so may a client; each list allows and denies by patterns.
//! Deny wins, and whatever has a say must allow.
//!
//! A tool's own hints may be named in a list (`@read_only`, `@destructive`, `@idempotent`). They are the
//! server's word about itself: denying by them is prudent, allowing by them trusts the server.

use super::Pattern;
use super::uri::{self, Form, Readings};
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
    /// The names that a list must not match, or must match. Of a resource there may be several.
    fn forms(&self, list: List) -> Vec<Form<'_>> {
        match (self.kind, list) {
            (Kind::Resource, List::Deny) => uri::forms_of_uri(self.name),
            (Kind::Resource, List::Allow) => uri::forms_to_allow(self.name),
            (Kind::Tool | Kind::Prompt, List::Deny | List::Allow) => {
                vec![Form { text: Cow::Borrowed(self.name), readings: Readings::WRITTEN }]
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Allow,
    Deny,
}

impl List {
    const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
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
    /// The pattern in each of its readings, the written one first. Names other than URIs have that alone.
    Name(Vec<(Pattern, Readings)>),
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
        self.deny.is_empty() && self.allow_everything()
    }

    /// Whether nothing is left out by not being allowed.
    fn allow_everything(&self) -> bool {
        let everything = |entry: &Entry| {
            let all_names = matches!(&entry.what, What::Name(patterns) if patterns[0].0.is_everything());
            all_names && entry.server.is_everything()
        };
        self.allow.iter().any(everything)
    }

    /// The entry that denies it, in any of its forms.
    fn denies(&self, subject: &Subject<'_>) -> Option<&Entry> {
        let forms = subject.forms(List::Deny);
        self.deny.iter().find(|entry| forms.iter().any(|form| entry.matches(subject, form, List::Deny)))
    }

    /// The entry that allows it, in all of its forms.
    fn allows(&self, subject: &Subject<'_>) -> Option<&Entry> {
        let forms = subject.forms(List::Allow);
        self.allow.iter().find(|entry| forms.iter().all(|form| entry.matches(subject, form, List::Allow)))
    }
}

impl Default for Lists {
    /// Everything.
    fn default() -> Self {
        let everything = Entry { text: "*".to_owned(), server: Pattern::new("*"), what: What::named("*") };
        Self { allow: vec![everything], deny: Vec::new() }
    }
}

impl What {
    fn named(text: &str) -> Self {
        let forms = uri::forms_of_rule(text).into_iter();
        Self::Name(forms.map(|form| (Pattern::new(form.text), form.readings)).collect())
    }
}

impl Entry {
    fn of(server: &str, what: &str, text: &str) -> Result<Self, BadEntry> {
        let what = match what.strip_prefix('@') {
            None => What::named(what),
            Some("read_only") => What::Hint(Hint::ReadOnly),
            Some("destructive") => What::Hint(Hint::Destructive),
            Some("idempotent") => What::Hint(Hint::Idempotent),
            Some(_) => return Err(BadEntry::UnknownHint(what.to_owned())),
        };
        Ok(Self { text: text.to_owned(), server: Pattern::new(server), what })
    }

    /// Whether it matches a form in any of its readings, or in all of them if it is to allow.
    fn matches(&self, subject: &Subject<'_>, form: &Form<'_>, list: List) -> bool {
        let what = match &self.what {
            What::Name(patterns) => {
                let mut same = patterns.iter().filter(|(_, readings)| readings.overlap(form.readings));
                match list {
                    List::Deny => same.any(|(pattern, _)| pattern.matches(&form.text)),
                    List::Allow => same.all(|(pattern, _)| pattern.matches(&form.text)),
                }
            }
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
    /// Methods that are not of the protocol and may be used, if it says so. Otherwise all of them may where nothing has
    /// to be allowed, and none where something has to.
    pub methods: Option<Vec<Pattern>>,
}

impl Policy {
    /// Whether everything may pass, so that there is nothing to decide.
    pub fn is_open(&self) -> bool {
        self.methods.is_none() && self.lists().into_iter().all(Lists::are_open)
    }

    fn lists(&self) -> [&Lists; 3] {
        [&self.tools, &self.resources, &self.prompts]
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
    if subject.kind == Kind::Resource && uri::is_refused_uri(subject.name) {
        let reason = "refused: its URI has control characters, or spaces at its ends".to_owned();
        return Decision { allowed: false, reason };
    }
    let place = |whose, list| Place { whose, kind: subject.kind, list };
    for (whose, policy) in policies.clone() {
        if let Some(entry) = policy.of(subject.kind).denies(subject) {
            let reason = format!("denied by `{}` in {}", entry.text, place(whose, List::Deny));
            return Decision { allowed: false, reason };
        }
    }
    let mut reasons = Vec::new();
    for (whose, policy) in policies {
        let place = place(whose, List::Allow);
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

/// Decides about a method that is not of the protocol. It may do anything, with things that no list can see, so where a
/// list says what is allowed, the method has to be allowed too.
pub fn decide_method<'a>(
    policies: impl IntoIterator<Item = (Whose<'a>, &'a Policy)>,
    method: &str,
) -> Decision {
    for (whose, policy) in policies {
        let allowed = match &policy.methods {
            Some(methods) => methods.iter().any(|pattern| pattern.matches(method)),
            None => policy.lists().into_iter().all(Lists::allow_everything),
        };
        if !allowed {
            let reason = format!("not allowed by anything in {whose}.methods");
            return Decision { allowed: false, reason };
        }
    }
    Decision { allowed: true, reason: "allowed".to_owned() }
}

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(name) => write!(f, "servers.{name}"),
            Self::Client(name) => write!(f, "clients.{name}"),
        }
    }
}

/// Where a list stands in the config.
struct Place<'a> {
    whose: Whose<'a>,
    kind: Kind,
    list: List,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.whose, self.kind.word(), self.list.word())
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
    fn g01_where_something_must_be_allowed_an_unknown_method_must_be_too() {
        let may = |policy: &Policy, method| decide_method([(Whose::Client("c"), policy)], method).allowed;
        let denying = tools(Lists::of_client(&words(&["*"]), &words(&["db/drop"])));
        assert!(may(&Policy::default(), "x/y") && may(&denying, "x/y"));
        let allow = Lists::of_client(&words(&["db/read_*"]), &[]).unwrap();
        let by_kind = [
            Policy { tools: allow.clone(), ..Policy::default() },
            Policy { resources: allow.clone(), ..Policy::default() },
            Policy { prompts: allow, ..Policy::default() },
        ];
        for policy in by_kind {
            assert!(!may(&policy, "x/y"));
            let methods = Some(vec![Pattern::new("x/*")]);
            let named = Policy { methods, ..policy };
            assert!(may(&named, "x/y") && !may(&named, "y/x"));
        }
        let none = Policy { methods: Some(Vec::new()), ..Policy::default() };
        assert!(!may(&none, "x/y") && !none.is_open());
        let refused = decide_method([(Whose::Client("c"), &none)], "x/y");
        assert_eq!(refused.reason, "not allowed by anything in clients.c.methods");
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
        assert!(may(&["file:///srv/a%20b"], &[], "file:///srv/a%20b"), "a rule speaks of what it spells out");
        assert!(may(&["demo://Public/*"], &[], "demo://Public/x"));
        assert!(!may(&["demo://Public/*"], &[], "demo://public/x"), "not all servers read them alike");
        assert!(!may(&["*"], &["file:///srv/a%20b"], "file:///srv/a b"));
        assert!(!may(&["*"], &["https://H.example:443/*"], "https://h.example/x"));
        assert!(!may(&["*"], &["file:///etc/*"], "file://elsewhere/etc/passwd"));
        assert!(!may(&["file:///srv/*"], &[], "file://elsewhere/srv/a"), "it is not the same everywhere");
        assert!(may(&["file://share/srv/*"], &[], "file://share/srv/a"));
        assert!(!may(&["https://h/*/pub"], &[], "https://h/secret#/pub"));
    }

    #[test]
    fn g01_a_uri_with_control_characters_or_outer_spaces_is_refused_by_open_lists_too() {
        for uri in
            ["file:///pub/.\t./priv/b", "demo://a\r\nb", " demo://a", "demo://a\u{3000}", "demo://a\u{85}"]
        {
            let subject = Subject { kind: Kind::Resource, ..tool("files", uri) };
            let decision = decide([(Whose::Server("files"), &Policy::default())], &subject);
            assert!(!decision.allowed, "{uri:?}");
            assert_eq!(decision.reason, "refused: its URI has control characters, or spaces at its ends");
        }
        let inside = Subject { kind: Kind::Resource, ..tool("files", "file:///srv/a b") };
        assert!(decide([(Whose::Server("files"), &Policy::default())], &inside).allowed);
    }
}
