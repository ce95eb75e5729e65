//! The allow and deny lists of a server, in its own table, and of clients, in `clients.NAME`.

use crate::config::diagnostic::Diagnostic;
use crate::config::fields::{Field, Fields, FileDialect, Problems};
use crate::config::keys::{Section, ValueKind, keys, table};
use crate::config::node::{Position, Value};
use crate::policy::{BadEntry, ClientPolicy, Lists, Policy};
use gripfast_core::policy::Pattern;

keys! {
    /// Entries to offer. Patterns match the server's own names, as a whole, or whole URIs; `*` matches any number of
    /// characters, `?` exactly one.
    pub(super) struct ServerListKeys {
        /// Entries to offer. An empty list offers nothing.
        key allow: ValueKind::TextList => "[\"*\"]";
        /// Entries not to offer. Takes precedence over `allow`.
        key deny: ValueKind::TextList => "[]";
    }
}

keys! {
    /// Entries that the clients may see and use: patterns as for a server, in the form `SERVER/NAME`.
    pub(super) struct ClientListKeys {
        /// Entries that the clients may use. An empty list allows nothing.
        key allow: ValueKind::TextList => "[\"*\"]";
        /// Entries that the clients may not use. Takes precedence over `allow`.
        key deny: ValueKind::TextList => "[]";
    }
}

keys! {
    /// Access rules for the clients whose names match the name of the table, which may be a pattern.
    pub(super) struct ClientKeys {
        /// Tools that the clients may see and call.
        key tools: ValueKind::Table(table::<ClientListKeys>);
        /// Resources that the clients may see and read, by `SERVER/URI`.
        key resources: ValueKind::Table(table::<ClientListKeys>);
        /// Prompts that the clients may see and get.
        key prompts: ValueKind::Table(table::<ClientListKeys>);
        /// Methods that MCP does not define and that the clients may call, by patterns such as `skills/*`. Without this
        /// key all of them are allowed, unless one of the tables above has an `allow` list: then none is, because
        /// gripfast cannot know what they access.
        key methods: ValueKind::TextList;
    }
}

/// The entries of a pair of lists, as written.
struct ListWords {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Default for ListWords {
    fn default() -> Self {
        Self { allow: vec!["*".to_owned()], deny: Vec::new() }
    }
}

/// Parser of the entries of a pair of lists.
type ParseLists = fn(&[String], &[String]) -> Result<Lists, BadEntry>;

/// The lists of a server.
pub(super) fn policy_of_server(fields: &mut Fields<'_>, problems: &mut Problems) -> Policy {
    let at = fields.position_of("tools");
    let words = tools(fields, problems);
    Policy {
        tools: read(words, Lists::of_server, at, problems),
        resources: lists(fields, "resources", Lists::of_server, problems),
        prompts: lists(fields, "prompts", Lists::of_server, problems),
        methods: methods(fields, problems),
    }
}

/// The lists of all clients. A mistake here is an error of the file, because access rules must not be ignored.
pub(in crate::config) fn clients(field: &Field<'_>, problems: &mut Problems) -> Vec<ClientPolicy> {
    let mut clients = Vec::new();
    for (name, field) in field.pairs(problems) {
        let Some(mut fields) = Fields::open(&field, ClientKeys::rows, problems) else { continue };
        let policy = Policy {
            tools: lists(&mut fields, "tools", Lists::of_client, problems),
            resources: lists(&mut fields, "resources", Lists::of_client, problems),
            prompts: lists(&mut fields, "prompts", Lists::of_client, problems),
            methods: methods(&mut fields, problems),
        };
        fields.finish(problems);
        clients.push(ClientPolicy { clients: name.name.clone(), policy });
    }
    clients
}

fn methods(fields: &mut Fields<'_>, problems: &mut Problems) -> Option<Vec<Pattern>> {
    let words = fields.take("methods")?.words(problems)?;
    Some(words.into_iter().map(Pattern::new).collect())
}

fn lists(fields: &mut Fields<'_>, name: &'static str, reading: ParseLists, problems: &mut Problems) -> Lists {
    let at = fields.position_of(name);
    let mut words = ListWords::default();
    if let Some(field) = fields.take(name) {
        lists_table(&field, &mut words, problems);
    }
    read(words, reading, at, problems)
}

fn read(
    words: ListWords,
    reading: ParseLists,
    (path, at): (String, Position),
    problems: &mut Problems,
) -> Lists {
    reading(&words.allow, &words.deny).unwrap_or_else(|bad| {
        problems.error(Diagnostic::error(path, at, bad.to_string()));
        Lists::default()
    })
}

const ALLOW_ALIASES: &[&str] =
    &["enabledTools", "enabled_tools", "includeTools", "allowedTools", "available_tools"];
const DENY_ALIASES: &[&str] = &["disabledTools", "disabled_tools", "excludeTools"];

/// The entries for tools, with the names that other clients use for the keys.
fn tools(fields: &mut Fields<'_>, problems: &mut Problems) -> ListWords {
    let mut filter = ListWords::default();
    if let Some(field) = fields.take("tools") {
        match (&field.node.value, field.dialect) {
            // Copilot CLI writes a list of names, or the string `*`.
            (Value::List(_), FileDialect::Foreign | FileDialect::Hermes) => {
                filter.allow = field.words(problems).unwrap_or_default();
            }
            (Value::Str(text), FileDialect::Foreign | FileDialect::Hermes) => {
                filter.allow = vec![text.clone()]
            }
            _ => lists_table(&field, &mut filter, problems),
        }
    }
    flat_list(fields, ALLOW_ALIASES, &mut filter.allow, problems);
    flat_list(fields, DENY_ALIASES, &mut filter.deny, problems);
    filter
}

fn lists_table(field: &Field<'_>, filter: &mut ListWords, problems: &mut Problems) {
    let Some(mut table) = Fields::open(field, ServerListKeys::rows, problems) else { return };
    let allow = table.take_or_alias("allow", &["include"], problems);
    let deny = table.take_or_alias("deny", &["exclude"], problems);
    let include_wins = field.dialect == FileDialect::Hermes
        && [&allow, &deny].iter().all(|list| list.as_ref().is_some_and(|list| list.path.ends_with("clude")));
    if let Some(words) = allow.and_then(|field| field.words(problems)) {
        filter.allow = words;
    }
    if let Some(field) = deny {
        if include_wins {
            let message =
                "ignored, because `include` is set and takes precedence over `exclude` in this kind of file";
            problems.warning(field.warning(message).with_hint("`deny` always applies"));
        } else if let Some(words) = field.words(problems) {
            filter.deny = words;
        }
    }
    table.finish(problems);
}

/// A filter beside `tools`, as several clients have it. Ignoring it would offer tools that the user has hidden.
fn flat_list(
    fields: &mut Fields<'_>,
    names: &'static [&'static str],
    into: &mut Vec<String>,
    problems: &mut Problems,
) {
    for name in names {
        if let Some(words) = fields.take_foreign(name).and_then(|field| field.words(problems)) {
            *into = words;
        }
    }
}
