//! Allow and deny lists of tools, resources, prompts and methods. Servers and clients have lists of patterns; deny
//! wins, and every list that applies must allow.
//!
//! An entry may be a tool hint (`@read_only`, `@destructive`, `@idempotent`). Hints are the server's own statements:
//! denying by them is prudent, allowing by them trusts the server.

use super::Pattern;
use super::uri::{self, UriForm, UriReadings};
use crate::failure::recovery::ToolHints;
use std::borrow::Cow;
use std::fmt;

/// Kind of item in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemKind {
    /// A tool, by its name.
    Tool,
    /// A resource, by its URI.
    Resource,
    /// A prompt, by its name.
    Prompt,
}

impl ItemKind {
    /// The plural, as in the config.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource => "resources",
            Self::Prompt => "prompts",
        }
    }

    /// The singular.
    pub const fn singular(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
        }
    }
}

/// The item that a decision is about.
#[derive(Debug, Clone, Copy)]
pub struct PolicyTarget<'a> {
    /// The server.
    pub server: &'a str,
    /// The kind of item.
    pub kind: ItemKind,
    /// The server's own name of the item, or its URI.
    pub name: &'a str,
    /// The hints of a tool.
    pub hints: ToolHints,
}

impl PolicyTarget<'_> {
    /// The forms of the name to compare with a list. A resource may have several.
    fn forms(&self, list: List) -> Vec<UriForm<'_>> {
        match (self.kind, list) {
            (ItemKind::Resource, List::Deny) => uri::forms_of_uri(self.name),
            (ItemKind::Resource, List::Allow) => uri::forms_to_allow(self.name),
            (ItemKind::Tool | ItemKind::Prompt, List::Deny | List::Allow) => {
                vec![UriForm { text: Cow::Borrowed(self.name), readings: UriReadings::WRITTEN }]
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
    const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Allow and deny patterns.
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
    what: ListPattern,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ListPattern {
    /// The pattern in each of its readings, the written one first. Only URIs have more than that.
    Name(Vec<(Pattern, UriReadings)>),
    Hint(Hint),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    ReadOnly,
    Destructive,
    Idempotent,
}

/// An invalid entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// An unknown hint.
    #[error("unknown tool hint `{0}`; the hints are `@read_only`, `@destructive` and `@idempotent`")]
    UnknownHint(String),
    /// An entry of a client's list without a server.
    #[error("`{0}` names no server; write `SERVER/{0}`, or `*/{0}` for all servers")]
    NoServer(String),
}

impl Lists {
    /// Lists of a server, whose entries are names or hints.
    ///
    /// # Errors
    /// An entry is invalid.
    pub fn of_server(allow: &[String], deny: &[String]) -> Result<Self, BadEntry> {
        Self::read(allow, deny, |text| Entry::of("*", text, text))
    }

    /// Lists of a client, whose entries are `SERVER/NAME` or `SERVER/@HINT`.
    ///
    /// # Errors
    /// An entry is invalid.
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

    /// The allow entries as written.
    pub fn allow(&self) -> impl Iterator<Item = &str> {
        self.allow.iter().map(|entry| entry.text.as_str())
    }

    /// The deny entries as written.
    pub fn deny(&self) -> impl Iterator<Item = &str> {
        self.deny.iter().map(|entry| entry.text.as_str())
    }

    /// Returns whether everything is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.deny.is_empty() && self.allows_all()
    }

    /// Returns whether the allow list contains `*`.
    fn allows_all(&self) -> bool {
        let everything = |entry: &Entry| {
            let all_names =
                matches!(&entry.what, ListPattern::Name(patterns) if patterns[0].0.is_everything());
            all_names && entry.server.is_everything()
        };
        self.allow.iter().any(everything)
    }

    /// The entry that denies the item in any of its forms.
    fn denies(&self, target: &PolicyTarget<'_>) -> Option<&Entry> {
        let forms = target.forms(List::Deny);
        self.deny.iter().find(|entry| forms.iter().any(|form| entry.matches(target, form, List::Deny)))
    }

    /// The entry that allows the item in all of its forms.
    fn allows(&self, target: &PolicyTarget<'_>) -> Option<&Entry> {
        let forms = target.forms(List::Allow);
        self.allow.iter().find(|entry| forms.iter().all(|form| entry.matches(target, form, List::Allow)))
    }
}

impl Default for Lists {
    /// Allows everything.
    fn default() -> Self {
        let everything =
            Entry { text: "*".to_owned(), server: Pattern::new("*"), what: ListPattern::named("*") };
        Self { allow: vec![everything], deny: Vec::new() }
    }
}

impl ListPattern {
    fn named(text: &str) -> Self {
        let forms = uri::forms_of_rule(text).into_iter();
        Self::Name(forms.map(|form| (Pattern::new(form.text), form.readings)).collect())
    }
}

impl Entry {
    fn of(server: &str, what: &str, text: &str) -> Result<Self, BadEntry> {
        let what = match what.strip_prefix('@') {
            None => ListPattern::named(what),
            Some("read_only") => ListPattern::Hint(Hint::ReadOnly),
            Some("destructive") => ListPattern::Hint(Hint::Destructive),
            Some("idempotent") => ListPattern::Hint(Hint::Idempotent),
            Some(_) => return Err(BadEntry::UnknownHint(what.to_owned())),
        };
        Ok(Self { text: text.to_owned(), server: Pattern::new(server), what })
    }

    /// Returns whether it matches a form in any of its readings, or in all of them for an allow list.
    fn matches(&self, target: &PolicyTarget<'_>, form: &UriForm<'_>, list: List) -> bool {
        let what = match &self.what {
            ListPattern::Name(patterns) => {
                let mut same = patterns.iter().filter(|(_, readings)| readings.overlap(form.readings));
                match list {
                    List::Deny => same.any(|(pattern, _)| pattern.matches(&form.text)),
                    List::Allow => same.all(|(pattern, _)| pattern.matches(&form.text)),
                }
            }
            ListPattern::Hint(hint) => {
                target.kind == ItemKind::Tool
                    && match hint {
                        Hint::ReadOnly => target.hints.read_only,
                        Hint::Destructive => target.hints.destructive,
                        Hint::Idempotent => target.hints.idempotent,
                    }
            }
        };
        what && self.server.matches(target.server)
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
    /// Lists of tools.
    pub tools: Lists,
    /// Lists of resources.
    pub resources: Lists,
    /// Lists of prompts.
    pub prompts: Lists,
    /// Allowed methods outside the MCP specification. If unset, all are allowed where no list restricts anything, and
    /// none where one does.
    pub methods: Option<Vec<Pattern>>,
}

impl Policy {
    /// Returns whether everything is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.methods.is_none() && self.lists().into_iter().all(Lists::is_unrestricted)
    }

    fn lists(&self) -> [&Lists; 3] {
        [&self.tools, &self.resources, &self.prompts]
    }

    fn of(&self, kind: ItemKind) -> &Lists {
        match kind {
            ItemKind::Tool => &self.tools,
            ItemKind::Resource => &self.resources,
            ItemKind::Prompt => &self.prompts,
        }
    }
}

/// Owner of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOwner<'a> {
    /// A server.
    Server(&'a str),
    /// A client.
    Client(&'a str),
}

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// True if the item may be listed and used.
    pub allowed: bool,
    /// The entry and list that decided.
    pub reason: String,
}

/// Decides about `target`. Each of `policies` must allow it.
pub fn decide<'a>(
    policies: impl IntoIterator<Item = (ListOwner<'a>, &'a Policy)> + Clone,
    target: &PolicyTarget<'_>,
) -> PolicyDecision {
    if target.kind == ItemKind::Resource && uri::is_refused_uri(target.name) {
        let reason = "refused: its URI has control characters, or spaces at its ends".to_owned();
        return PolicyDecision { allowed: false, reason };
    }
    let key = |owner, list| ListKey { owner, kind: target.kind, list };
    for (owner, policy) in policies.clone() {
        if let Some(entry) = policy.of(target.kind).denies(target) {
            let reason = format!("denied by `{}` in {}", entry.text, key(owner, List::Deny));
            return PolicyDecision { allowed: false, reason };
        }
    }
    let mut reasons = Vec::new();
    for (owner, policy) in policies {
        let key = key(owner, List::Allow);
        match policy.of(target.kind).allows(target) {
            Some(entry) => reasons.push(format!("`{}` in {key}", entry.text)),
            None => {
                return PolicyDecision {
                    allowed: false,
                    reason: format!("not allowed by any entry of {key}"),
                };
            }
        }
    }
    let reason = match reasons.as_slice() {
        [] => "allowed: no list applies".to_owned(),
        reasons => format!("allowed by {}", reasons.join(" and ")),
    };
    PolicyDecision { allowed: true, reason }
}

/// Decides about a method outside the MCP specification. It may do anything, with items that no list covers, so
/// wherever a list restricts something, the method has to be allowed too.
pub fn decide_method<'a>(
    policies: impl IntoIterator<Item = (ListOwner<'a>, &'a Policy)>,
    method: &str,
) -> PolicyDecision {
    for (owner, policy) in policies {
        let allowed = match &policy.methods {
            Some(methods) => methods.iter().any(|pattern| pattern.matches(method)),
            None => policy.lists().into_iter().all(Lists::allows_all),
        };
        if !allowed {
            let reason = format!("not allowed by any entry of {owner}.methods");
            return PolicyDecision { allowed: false, reason };
        }
    }
    PolicyDecision { allowed: true, reason: "allowed".to_owned() }
}

impl fmt::Display for ListOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(name) => write!(f, "servers.{name}"),
            Self::Client(name) => write!(f, "clients.{name}"),
        }
    }
}

/// The config key of a list.
struct ListKey<'a> {
    owner: ListOwner<'a>,
    kind: ItemKind,
    list: List,
}

impl fmt::Display for ListKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.owner, self.kind.plural(), self.list.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn tool<'a>(server: &'a str, name: &'a str) -> PolicyTarget<'a> {
        PolicyTarget { server, kind: ItemKind::Tool, name, hints: ToolHints::default() }
    }

    fn tools(lists: Result<Lists, BadEntry>) -> Policy {
        Policy { tools: lists.unwrap(), ..Policy::default() }
    }

    #[test]
    fn g01_deny_wins_over_allow() {
        let may = |allow: &[&str], deny: &[&str], name| {
            let policy = tools(Lists::of_server(&words(allow), &words(deny)));
            decide([(ListOwner::Server("s"), &policy)], &tool("s", name)).allowed
        };
        assert!(may(&["*"], &["delete_*"], "read") && !may(&["*"], &["delete_*"], "delete_all"));
        assert!(may(&["read_*"], &[], "read_file") && !may(&["read_*"], &[], "write_file"));
        assert!(!may(&[], &[], "anything"), "no `allow` pattern allows nothing");
        let open = Policy::default();
        assert!(
            open.is_unrestricted()
                && decide([(ListOwner::Server("s"), &open)], &tool("s", "anything")).allowed
        );
        assert!(!tools(Lists::of_server(&words(&["*"]), &words(&["x"]))).is_unrestricted());
        assert!(!tools(Lists::of_client(&words(&["github/*"]), &[])).is_unrestricted());
    }

    #[test]
    fn g01_a_client_is_allowed_what_its_server_and_its_own_lists_allow() {
        let github = tools(Lists::of_server(&words(&["*"]), &words(&["delete_*"])));
        let ci = tools(Lists::of_client(&words(&["github/*", "docs/search"]), &words(&["*/create_*"])));
        let both = [(ListOwner::Server("github"), &github), (ListOwner::Client("ci"), &ci)];
        let said = |name| decide(both, &tool("github", name));
        assert_eq!(
            said("read").reason,
            "allowed by `*` in servers.github.tools.allow and `github/*` in clients.ci.tools.allow"
        );
        assert_eq!(said("delete_repo").reason, "denied by `delete_*` in servers.github.tools.deny");
        assert_eq!(said("create_issue").reason, "denied by `*/create_*` in clients.ci.tools.deny");
        let elsewhere = decide([(ListOwner::Client("ci"), &ci)], &tool("docs", "publish"));
        assert_eq!(elsewhere.reason, "not allowed by any entry of clients.ci.tools.allow");
        assert!(!elsewhere.allowed);
    }

    #[test]
    fn g01_a_tools_own_hints_can_be_denied_and_allowed() {
        let careful =
            tools(Lists::of_client(&words(&["*/@read_only", "demo/*"]), &words(&["*/@destructive"])));
        let hinted = |read_only, destructive| {
            let hints = ToolHints { read_only, destructive, ..ToolHints::default() };
            decide([(ListOwner::Client("c"), &careful)], &PolicyTarget { hints, ..tool("db", "query") })
                .allowed
        };
        assert!(hinted(true, false) && !hinted(false, false) && !hinted(false, true));
        let resource = PolicyTarget { kind: ItemKind::Resource, ..tool("db", "x") };
        let by_hint = Policy { resources: careful.tools.clone(), ..Policy::default() };
        assert!(!decide([(ListOwner::Client("c"), &by_hint)], &resource).allowed, "only tools have hints");
    }

    #[test]
    fn g01_with_an_allow_list_unknown_methods_must_be_allowed_too() {
        let may = |policy: &Policy, method| decide_method([(ListOwner::Client("c"), policy)], method).allowed;
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
        assert!(!may(&none, "x/y") && !none.is_unrestricted());
        let refused = decide_method([(ListOwner::Client("c"), &none)], "x/y");
        assert_eq!(refused.reason, "not allowed by any entry of clients.c.methods");
    }

    #[test]
    fn invalid_entries_are_refused() {
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
            let target = PolicyTarget { kind: ItemKind::Resource, ..tool("files", uri) };
            decide([(ListOwner::Client("c"), &policy)], &target).allowed
        };
        assert!(may("file:///srv/a/b") && !may("file:///etc/passwd") && !may("file:///srv/../etc/passwd"));
    }

    #[test]
    fn g01_a_resource_must_be_allowed_in_every_form_and_is_denied_in_any() {
        let may = |allow: &[&str], deny: &[&str], uri| {
            let resources = Lists::of_server(&words(allow), &words(deny)).unwrap();
            let policy = Policy { resources, ..Policy::default() };
            let target = PolicyTarget { kind: ItemKind::Resource, ..tool("files", uri) };
            decide([(ListOwner::Server("files"), &policy)], &target).allowed
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
    fn g01_a_uri_with_control_characters_or_outer_spaces_is_refused() {
        for uri in
            ["file:///pub/.\t./priv/b", "demo://a\r\nb", " demo://a", "demo://a\u{3000}", "demo://a\u{85}"]
        {
            let target = PolicyTarget { kind: ItemKind::Resource, ..tool("files", uri) };
            let decision = decide([(ListOwner::Server("files"), &Policy::default())], &target);
            assert!(!decision.allowed, "{uri:?}");
            assert_eq!(decision.reason, "refused: its URI has control characters, or spaces at its ends");
        }
        let inside = PolicyTarget { kind: ItemKind::Resource, ..tool("files", "file:///srv/a b") };
        assert!(decide([(ListOwner::Server("files"), &Policy::default())], &inside).allowed);
    }
}
