//! The file as a whole.

use super::rules::{BUDGET, CLIENT};
use super::{DefaultValue, GATEWAY, Row, SERVER, Table, ValueKind};

pub(in crate::config) static FILE: Table = Table {
    doc: "The file as a whole.",
    groups: &[&[
        Row {
            name: "gateway",
            kind: ValueKind::Table(&GATEWAY),
            default: DefaultValue::Absent,
            doc: "The gateway itself: listener, authentication, limits and storage. Changes take effect at the next \
                  start.",
        },
        Row {
            name: "defaults",
            kind: ValueKind::ServerKeys,
            default: DefaultValue::Absent,
            doc: "Keys for all servers. A server's own key takes precedence; tables such as `timeouts` and `env` are \
                  merged key by key. Keys that belong to one server are not allowed here: `command`, `args`, `cwd`, \
                  `url`, `transport`, `headers`, `redirects`, `client_cert`, `client_key`, `oauth`, `prefix`, \
                  `restore`.",
        },
        Row {
            name: "servers",
            kind: ValueKind::Map(&ValueKind::Table(&SERVER)),
            default: DefaultValue::Absent,
            doc: "The servers by name. A name has letters, digits, `_` and `-`, at most 64, without `__` and without \
                  `_` at the end, because clients see `server__tool`. If two servers want the same public name at the \
                  first listing, the first one in the file gets it; from then on it keeps it.",
        },
        Row {
            name: "clients",
            kind: ValueKind::Map(&ValueKind::Table(&CLIENT)),
            default: DefaultValue::Absent,
            doc: "Access rules for clients, by patterns over client names. If several tables match a client, each of \
                  them must allow the access. Without `gateway.auth` every program on this machine is the client \
                  `local`.",
        },
        Row {
            name: "budgets",
            kind: ValueKind::Map(&ValueKind::Table(&BUDGET)),
            default: DefaultValue::Absent,
            doc: "Call budgets, each under a name of your choice.",
        },
    ]],
};
