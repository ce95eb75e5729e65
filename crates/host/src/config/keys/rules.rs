//! The keys that say who may use what, how often, and what may be repeated.

use super::words::{COUNTINGS, SUBJECTS};
use super::{Kind, Row, Span, Table, Usual, show, words};
use gripfast_core::policy::budget::Budgets;
use std::time::Duration;

pub(in crate::config) static LISTS: Table = Table {
    about: "What is offered. Patterns match whole names of the server's own, or whole URIs; `*` stands for any number \
            of characters, `?` for one.",
    groups: LISTS_KEYS,
};

const LISTS_KEYS: &[&[Row]] = &[&[
    Row {
        name: "allow",
        kind: Kind::Words,
        usual: Usual::Is("[\"*\"]"),
        about: "What is offered. An empty list offers nothing.",
    },
    Row { name: "deny", kind: Kind::Words, usual: Usual::Is("[]"), about: "What is not. Wins over `allow`." },
]];

static CLIENT_LISTS: Table = Table {
    about: "What a client may see and use: patterns as those of a server, in the form `SERVER/NAME`.",
    groups: LISTS_KEYS,
};

pub(in crate::config) static CLIENT: Table = Table {
    about: "What the clients may see and use whose names fit the name of the table, which may be a pattern.",
    groups: &[&[
        Row { name: "tools", kind: Kind::Table(&CLIENT_LISTS), usual: Usual::Nothing, about: "Which tools." },
        Row {
            name: "resources",
            kind: Kind::Table(&CLIENT_LISTS),
            usual: Usual::Nothing,
            about: "Which resources, by `SERVER/URI`.",
        },
        Row {
            name: "prompts",
            kind: Kind::Table(&CLIENT_LISTS),
            usual: Usual::Nothing,
            about: "Which prompts.",
        },
        Row {
            name: "methods",
            kind: Kind::Words,
            usual: Usual::Nothing,
            about: "Which methods that are not of the protocol may be used, by patterns such as `skills/*`. Without it all \
                    of them may, unless one of the tables above has an `allow` list: then none may, for no list can see \
                    what such a method does.",
        },
    ]],
};

pub(in crate::config) static BUDGET: Table = Table {
    about: "A budget of calls: `calls` within `within`, or `in_flight`, or both.",
    groups: &[&[
        Row {
            name: "client",
            kind: Kind::Text,
            usual: Usual::Is("*"),
            about: "Whose calls count: a pattern over the names of clients.",
        },
        Row {
            name: "server",
            kind: Kind::Text,
            usual: Usual::Is("*"),
            about: "Calls of which servers count: a pattern.",
        },
        Row {
            name: "tool",
            kind: Kind::Text,
            usual: Usual::Is("*"),
            about: "Calls of which tools count: a pattern over the servers' own names.",
        },
        Row {
            name: "per",
            kind: Kind::Choices(SUBJECTS),
            usual: Usual::Is("[]"),
            about: "What has a counter of its own. Without it there is one for all.",
        },
        Row {
            name: "calls",
            kind: Kind::Number(0..=Budgets::MOST_CALLS),
            usual: Usual::Nothing,
            about: "How many calls there may be within `within`.",
        },
        Row {
            name: "within",
            kind: Kind::Duration(Span::between(
                Duration::from_millis(1),
                Duration::from_secs(31 * 24 * 3600),
            )),
            usual: Usual::Nothing,
            about: "The time for `calls`.",
        },
        Row {
            name: "window",
            kind: Kind::Choice(|| words::of(COUNTINGS)),
            usual: Usual::Is("sliding"),
            about: "`sliding` counts the calls of the last `within`, at any moment; `fixed` begins anew every `within`.",
        },
        Row {
            name: "in_flight",
            kind: Kind::Number(0..=1_000_000),
            usual: Usual::Nothing,
            about: "How many calls there may be at a time.",
        },
    ]],
};

pub(super) static CACHE: Table = Table {
    about: "Which answers of a server may be given again.",
    groups: &[&[
        Row {
            name: "reads",
            kind: Kind::Flag,
            usual: Usual::Server(|spec| spec.cache.reads.to_string()),
            about: "Whether resources are kept for as long as the server says. Servers of the legacy era say nothing, \
                    and nothing of theirs is kept.",
        },
        Row {
            name: "tools",
            kind: Kind::Map(&Kind::DurationOr(
                Span::between(Duration::from_millis(1), Duration::from_secs(24 * 3600)),
                "hinted",
            )),
            usual: Usual::Nothing,
            about: "Tools whose results may be given again, by pattern, and for how long; `hinted` is as long as the \
                    server says. Only tools that say that they change nothing are kept, whatever is written here. The \
                    first pattern that fits counts.",
        },
        Row {
            name: "lists",
            kind: Kind::Duration(Span::between(Duration::ZERO, Duration::from_secs(24 * 3600))),
            usual: Usual::Server(|spec| show(spec.cache.lists)),
            about: "For how long clients may keep the lists of a server that says nothing about it, as no server of the \
                    legacy era does, but tells when they change. Too long, and a client that does not listen works with \
                    old lists.",
        },
        Row {
            name: "stale_lists",
            kind: Kind::Duration(Span::between(Duration::ZERO, Duration::from_secs(24 * 3600))),
            usual: Usual::Server(|spec| show(spec.cache.stale_lists)),
            about: "For how long a list that a program asked the library for, and whose time is over, is given all the \
                    same if the server fails. At `0s` its failure is the answer.",
        },
    ]],
};

pub(super) static REPLAY: Table = Table {
    about: "Which tools may be sent again when the link is lost before the answer.",
    groups: &[&[
        Row {
            name: "safe",
            kind: Kind::Words,
            usual: Usual::Is("[]"),
            about: "Safe to send twice, whatever the server says about them: patterns over its own names.",
        },
        Row {
            name: "never",
            kind: Kind::Words,
            usual: Usual::Is("[]"),
            about: "Never sent twice, whatever the server says about them. Wins over `safe`.",
        },
    ]],
};

pub(in crate::config) static RESTORED: Table = Table {
    about: "A call that is made in every new session.",
    groups: &[&[
        Row {
            name: "tool",
            kind: Kind::Text,
            usual: Usual::Needed,
            about: "The server's own name of the tool.",
        },
        Row {
            name: "arguments",
            kind: Kind::Map(&Kind::Anything),
            usual: Usual::Nothing,
            about: "Its arguments. Texts may refer to variables and files.",
        },
    ]],
};
