//! The file as a whole.

use super::rules::{BUDGET, CLIENT};
use super::{GATEWAY, Kind, Row, SERVER, Table, Usual};

pub(in crate::config) static FILE: Table = Table {
    about: "The file as a whole.",
    groups: &[&[
        Row {
            name: "gateway",
            kind: Kind::Table(&GATEWAY),
            usual: Usual::Nothing,
            about: "The gateway itself: where it listens, who may use it, what it keeps. Changes count from the next \
                    start on.",
        },
        Row {
            name: "defaults",
            kind: Kind::ServerKeys,
            usual: Usual::Nothing,
            about: "Keys for all servers. A server's own key wins; tables such as `timeouts` and `env` are merged key by \
                    key. Keys that belong to one server are not allowed here: `command`, `args`, `cwd`, `url`, `transport`, \
                    `headers`, `redirects`, `client_cert`, `client_key`, `oauth`, `prefix`, `restore`.",
        },
        Row {
            name: "servers",
            kind: Kind::Map(&Kind::Table(&SERVER)),
            usual: Usual::Nothing,
            about: "The servers by their names: letters, digits, `_` and `-`, at most 64, without `__` and without `_` \
                    at the end, because clients see `server__tool`. Their order decides who gets a name that two \
                    want at the first listing; then its holder keeps it.",
        },
        Row {
            name: "clients",
            kind: Kind::Map(&Kind::Table(&CLIENT)),
            usual: Usual::Nothing,
            about: "What clients may see and use, by patterns over their names. Where several fit a client, each must \
                    allow what it does. Without `gateway.auth` everybody on this machine is the client `local`.",
        },
        Row {
            name: "budgets",
            kind: Kind::Map(&Kind::Table(&BUDGET)),
            usual: Usual::Nothing,
            about: "How many calls there may be, each budget under a name of your own.",
        },
    ]],
};
