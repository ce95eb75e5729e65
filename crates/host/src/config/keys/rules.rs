//! The keys for access rules, call budgets, caching, replay and restored calls.

use super::choices::{BUDGET_SCOPES, WINDOWS};
use super::{DefaultValue, DurationRange, Row, Table, ValueKind, choices, show};
use gripfast_core::policy::budget::Budgets;
use std::time::Duration;

pub(in crate::config) static LISTS: Table = Table {
    doc: "Entries to offer. Patterns match the server's own names, as a whole, or whole URIs; `*` matches any number \
          of characters, `?` exactly one.",
    groups: &[&[
        Row {
            name: "allow",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[\"*\"]"),
            doc: "Entries to offer. An empty list offers nothing.",
        },
        Row {
            name: "deny",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[]"),
            doc: "Entries not to offer. Takes precedence over `allow`.",
        },
    ]],
};

static CLIENT_LISTS: Table = Table {
    doc: "Entries that the clients may see and use: patterns as for a server, in the form `SERVER/NAME`.",
    groups: &[&[
        Row {
            name: "allow",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[\"*\"]"),
            doc: "Entries that the clients may use. An empty list allows nothing.",
        },
        Row {
            name: "deny",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[]"),
            doc: "Entries that the clients may not use. Takes precedence over `allow`.",
        },
    ]],
};

pub(in crate::config) static CLIENT: Table = Table {
    doc: "Access rules for the clients whose names match the name of the table, which may be a pattern.",
    groups: &[&[
        Row {
            name: "tools",
            kind: ValueKind::Table(&CLIENT_LISTS),
            default: DefaultValue::Absent,
            doc: "Tools that the clients may see and call.",
        },
        Row {
            name: "resources",
            kind: ValueKind::Table(&CLIENT_LISTS),
            default: DefaultValue::Absent,
            doc: "Resources that the clients may see and read, by `SERVER/URI`.",
        },
        Row {
            name: "prompts",
            kind: ValueKind::Table(&CLIENT_LISTS),
            default: DefaultValue::Absent,
            doc: "Prompts that the clients may see and get.",
        },
        Row {
            name: "methods",
            kind: ValueKind::TextList,
            default: DefaultValue::Absent,
            doc: "Methods that MCP does not define and that the clients may call, by patterns such as `skills/*`. \
                  Without this key all of them are allowed, unless one of the tables above has an `allow` list: then \
                  none is, because gripfast cannot know what they access.",
        },
    ]],
};

pub(in crate::config) static BUDGET: Table = Table {
    doc: "A budget of calls: `calls` within `within`, or `in_flight`, or both.",
    groups: &[&[
        Row {
            name: "client",
            kind: ValueKind::Text,
            default: DefaultValue::Literal("*"),
            doc: "Clients whose calls count: a pattern over client names.",
        },
        Row {
            name: "server",
            kind: ValueKind::Text,
            default: DefaultValue::Literal("*"),
            doc: "Servers whose calls count: a pattern over server names.",
        },
        Row {
            name: "tool",
            kind: ValueKind::Text,
            default: DefaultValue::Literal("*"),
            doc: "Tools whose calls count: a pattern over the servers' own names.",
        },
        Row {
            name: "per",
            kind: ValueKind::Choices(BUDGET_SCOPES),
            default: DefaultValue::Literal("[]"),
            doc: "Separate counters for each client, server or tool. Without it there is one counter for all.",
        },
        Row {
            name: "calls",
            kind: ValueKind::Number(0..=Budgets::MAX_CALLS),
            default: DefaultValue::Absent,
            doc: "Largest number of calls within `within`.",
        },
        Row {
            name: "within",
            kind: ValueKind::Duration(DurationRange::between(
                Duration::from_millis(1),
                Duration::from_secs(31 * 24 * 3600),
            )),
            default: DefaultValue::Absent,
            doc: "Period for `calls`.",
        },
        Row {
            name: "window",
            kind: ValueKind::Choice(|| choices::names(WINDOWS)),
            default: DefaultValue::Literal("sliding"),
            doc: "`sliding` counts the calls of the last `within`, at any moment; `fixed` starts a new count every \
                  `within`.",
        },
        Row {
            name: "in_flight",
            kind: ValueKind::Number(0..=1_000_000),
            default: DefaultValue::Absent,
            doc: "Largest number of calls at a time.",
        },
    ]],
};

pub(super) static CACHE: Table = Table {
    doc: "Answers of a server that may be cached.",
    groups: &[&[
        Row {
            name: "reads",
            kind: ValueKind::Flag,
            default: DefaultValue::Server(|spec| spec.cache.reads.to_string()),
            doc: "Cache resources for as long as the server states. Legacy servers state no time, so nothing of \
                  theirs is cached.",
        },
        Row {
            name: "tools",
            kind: ValueKind::Map(&ValueKind::DurationOr(
                DurationRange::between(Duration::from_millis(1), Duration::from_secs(24 * 3600)),
                "hinted",
            )),
            default: DefaultValue::Absent,
            doc: "Tools whose results may be cached, by pattern, and for how long; `hinted` means as long as the \
                  server states. Only tools that declare themselves read-only are cached, regardless of this key. \
                  The first matching pattern applies. Too long: clients get outdated results.",
        },
        Row {
            name: "lists",
            kind: ValueKind::Duration(DurationRange::between(Duration::ZERO, Duration::from_secs(24 * 3600))),
            default: DefaultValue::Server(|spec| show(spec.cache.lists)),
            doc: "Time that clients may cache the lists of a server that states none, as legacy servers do, but \
                  notifies of changes. Too long: a client that does not listen for changes works with old lists.",
        },
        Row {
            name: "stale_lists",
            kind: ValueKind::Duration(DurationRange::between(Duration::ZERO, Duration::from_secs(24 * 3600))),
            default: DefaultValue::Server(|spec| show(spec.cache.stale_lists)),
            doc: "Time that an expired list is still returned if the server fails, to programs that request lists \
                  through the library. With `0s` they get the failure. Too long: they work with outdated lists.",
        },
    ]],
};

pub(super) static REPLAY: Table = Table {
    doc: "Tools that may be called again if the connection is lost before the answer.",
    groups: &[&[
        Row {
            name: "safe",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[]"),
            doc: "Tools that may be called twice, whatever the server says about them: patterns over its own names.",
        },
        Row {
            name: "never",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[]"),
            doc: "Tools that are never called twice, whatever the server says about them. Takes precedence over \
                  `safe`.",
        },
    ]],
};

pub(in crate::config) static RESTORE_CALL: Table = Table {
    doc: "A call that is made in every new session.",
    groups: &[&[
        Row {
            name: "tool",
            kind: ValueKind::Text,
            default: DefaultValue::Required,
            doc: "Tool to call, by the server's own name.",
        },
        Row {
            name: "arguments",
            kind: ValueKind::Map(&ValueKind::AnyJson),
            default: DefaultValue::Absent,
            doc: "Arguments of the call. Strings may refer to variables and files.",
        },
    ]],
};
