//! The keys of a server, except for those of its supervision.

use super::choices::{GRANTS, ISOLATIONS, PIN_MODES, PROTOCOLS, TRANSPORTS};
use super::rules::{CACHE, LISTS, REPLAY, RESTORE_CALL};
use super::supervision::{CALL_LIMITS, SUPERVISION};
use super::{DefaultValue, Row, Table, ValueKind, choices, size};

pub(in crate::config) static SERVER: Table = Table {
    doc: "One server, with a `command` or a `url`. Strings may contain references: `${env:NAME}`, \
          `${env:NAME:-default}`, `${file:PATH}`, `${cmd:PROGRAM ARGUMENTS}`. A mistake in this table, or a variable \
          that is not set, blocks only this server.",
    groups: &[PROCESS, CONNECTION, SUPERVISION, CALL_LIMITS, CATALOG],
};

const PROCESS: &[Row] = &[
    Row {
        name: "command",
        kind: ValueKind::Template,
        default: DefaultValue::Absent,
        doc: "Program to start: a path, or a name to look up in `PATH`. It never goes through a shell.",
    },
    Row {
        name: "args",
        kind: ValueKind::Templates,
        default: DefaultValue::Absent,
        doc: "Arguments of `command`.",
    },
    Row {
        name: "env",
        kind: ValueKind::Map(&ValueKind::Template),
        default: DefaultValue::Absent,
        doc: "Environment variables to set for the program. Of gripfast's own environment it gets `PATH`, `HOME`, \
              `USER`, `LOGNAME`, `LANG`, `TERM`, `SHELL`, `TMPDIR`, `LC_*`, `XDG_*` and those of `network_env`, and \
              no others.",
    },
    Row {
        name: "inherit_env",
        kind: ValueKind::TextList,
        default: DefaultValue::Absent,
        doc: "More variables of gripfast's own environment to pass to the program.",
    },
    Row {
        name: "network_env",
        kind: ValueKind::Flag,
        default: DefaultValue::Literal("true"),
        doc: "Pass the variables for certificate authorities and proxies from gripfast's own environment: \
              `SSL_CERT_FILE`, `SSL_CERT_DIR`, `NODE_EXTRA_CA_CERTS`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`, \
              `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY` and the proxies in lower case. Set `false` for a \
              server that must not see a proxy password. Without them a server behind a company proxy cannot reach \
              the network.",
    },
    Row {
        name: "cwd",
        kind: ValueKind::Template,
        default: DefaultValue::Described("gripfast's working directory"),
        doc: "Working directory of the program.",
    },
];

const CONNECTION: &[Row] = &[
    Row {
        name: "url",
        kind: ValueKind::Template,
        default: DefaultValue::Absent,
        doc: "URL of the server's MCP endpoint, `http` or `https`.",
    },
    Row {
        name: "transport",
        kind: ValueKind::Choice(|| choices::names(TRANSPORTS)),
        default: DefaultValue::Literal("auto"),
        doc: "Transport of the server: `http` is Streamable HTTP, `sse` the older HTTP+SSE. `auto` detects it and \
              remembers the result.",
    },
    Row {
        name: "headers",
        kind: ValueKind::Map(&ValueKind::Template),
        default: DefaultValue::Absent,
        doc: "HTTP headers to send with every request.",
    },
    Row {
        name: "redirects",
        kind: ValueKind::TextList,
        default: DefaultValue::Absent,
        doc: "Other origins that the server may redirect to, such as `\"https://eu.example.com\"`. Redirects within \
              its own origin, and from http to https on its own host, are always followed. `headers` and tokens are \
              not sent to another origin.",
    },
    Row {
        name: "ca_file",
        kind: ValueKind::Template,
        default: DefaultValue::Absent,
        doc: "PEM file with certificates to trust besides those of the system: of certificate authorities, or of the \
              server itself.",
    },
    Row {
        name: "client_cert",
        kind: ValueKind::Template,
        default: DefaultValue::Absent,
        doc: "PEM file with the client certificate to present to the server. Requires `client_key`.",
    },
    Row {
        name: "client_key",
        kind: ValueKind::Template,
        default: DefaultValue::Absent,
        doc: "PEM file with the private key of `client_cert`.",
    },
    Row {
        name: "oauth",
        kind: ValueKind::Table(&OAUTH),
        default: DefaultValue::Absent,
        doc: "OAuth settings, for a server that requires a token and whose own metadata is not enough. For servers \
              without an `Authorization` in `headers`.",
    },
    Row {
        name: "protocol",
        kind: ValueKind::Choice(|| choices::names(PROTOCOLS)),
        default: DefaultValue::Server(|spec| choices::name_of(PROTOCOLS, &spec.protocol)),
        doc: "Generation of MCP: `legacy` has the `initialize` handshake (until 2025-11-25), `modern` has none. \
              `auto` detects it and remembers the result.",
    },
    Row {
        name: "max_message",
        kind: ValueKind::Size(1 << 10..=1 << 30),
        default: DefaultValue::Server(|spec| size(spec.max_message as u64)),
        doc: "Largest message that the server may send. A larger one ends its call, or the connection if its call \
              cannot be identified. Too small: large results fail. Too large: one message can use that much memory.",
    },
];

const CATALOG: &[Row] = &[
    Row {
        name: "prefix",
        kind: ValueKind::Text,
        default: DefaultValue::Described("the server's name"),
        doc: "Prefix of the names of its tools and prompts, before `__`. With an empty prefix the names stay as they \
              are; if two of them collide, the server that has the name first keeps it, and the other name gets its \
              server's name as prefix.",
    },
    Row {
        name: "tools",
        kind: ValueKind::Table(&LISTS),
        default: DefaultValue::Absent,
        doc: "Tools to offer. Besides names, entries may be `@read_only`, `@destructive` and `@idempotent`, which \
              match the annotations of tools.",
    },
    Row {
        name: "resources",
        kind: ValueKind::Table(&LISTS),
        default: DefaultValue::Absent,
        doc: "Resources to offer, by URI.",
    },
    Row {
        name: "prompts",
        kind: ValueKind::Table(&LISTS),
        default: DefaultValue::Absent,
        doc: "Prompts to offer.",
    },
    Row {
        name: "methods",
        kind: ValueKind::TextList,
        default: DefaultValue::Absent,
        doc: "Methods that MCP does not define and that clients may call, by patterns such as `skills/*`. Without \
              this key all of them are allowed, unless `tools`, `resources` or `prompts` has an `allow` list: then \
              none is, because gripfast cannot know what they access.",
    },
    Row {
        name: "pins",
        kind: ValueKind::Choice(|| choices::names(PIN_MODES)),
        default: DefaultValue::Server(|spec| choices::name_of(PIN_MODES, &spec.pins)),
        doc: "Handling of a tool whose definition has changed since it was first seen: `enforce` blocks it until \
              `gripfast pins approve` and shows its earlier definition; `strict` blocks new tools too; `warn` reports \
              the change and uses the tool; `off` compares nothing. Set `warn` for a server whose descriptions change \
              by themselves, with dates or counts in them.",
    },
    Row {
        name: "max_tools",
        kind: ValueKind::Number(1..=100_000),
        default: DefaultValue::Server(|spec| spec.max_tools.to_string()),
        doc: "Largest number of tools that are pinned and offered, and of prompts and resource templates each. Beyond \
              it new ones are hidden, with an event; approved ones stay. Too small: new tools of a large server are \
              missing. Too large: a server can fill the context of its clients and the state directory.",
    },
    Row {
        name: "isolation",
        kind: ValueKind::Choice(|| choices::names(ISOLATIONS)),
        default: DefaultValue::Server(|spec| choices::name_of(ISOLATIONS, &spec.isolation)),
        doc: "Sharing of instances between clients. An instance is one child process or session. `auto` shares one \
              instance until the server sends a request, or logs while several principals share it, and the client \
              that it is meant for cannot be determined. Set `per_client` for a server that keeps state per session; \
              with `shared` its clients see each other's state.",
    },
    Row {
        name: "max_instances",
        kind: ValueKind::Number(1..=10_000),
        default: DefaultValue::Server(|spec| spec.max_instances.to_string()),
        doc: "Largest number of clients with an instance of their own at a time. Too small: with `per_client` calls \
              of further clients are refused as overloaded (with `auto` they share). Too large: as many child \
              processes run.",
    },
    Row {
        name: "replay",
        kind: ValueKind::Table(&REPLAY),
        default: DefaultValue::Absent,
        doc: "Tools that may be called again if the connection is lost before the answer.",
    },
    Row {
        name: "restore",
        kind: ValueKind::Tables(&RESTORE_CALL),
        default: DefaultValue::Absent,
        doc: "Calls to make in every new session before all others, in this order: a login, the choice of a \
              workspace. A failed call is shown in `status` and blocks no client. Together they have half of \
              `timeouts.connect`; each costs a round trip before the server can be used. At most 32.",
    },
    Row {
        name: "cache",
        kind: ValueKind::Table(&CACHE),
        default: DefaultValue::Absent,
        doc: "Answers of the server that may be cached.",
    },
];

pub(in crate::config) static OAUTH: Table = Table {
    doc: "Settings of the OAuth client for the authorization server of a server with a `url`.",
    groups: &[&[
        Row {
            name: "issuer",
            kind: ValueKind::Template,
            default: DefaultValue::Described("the authorization server that the server names"),
            doc: "Address of the authorization server (`https`, or on this machine). Tokens are requested at its own \
                  endpoints, whatever the server names. Required with a `client_secret` or a `private_key`, which are \
                  sent to no other authorization server, and for an authorization server in a private network.",
        },
        Row {
            name: "client_id",
            kind: ValueKind::Template,
            default: DefaultValue::Described("gripfast registers a client"),
            doc: "Id of a client that is already registered at the authorization server.",
        },
        Row {
            name: "client_secret",
            kind: ValueKind::Template,
            default: DefaultValue::Absent,
            doc: "Secret of `client_id`, if it has one.",
        },
        Row {
            name: "private_key",
            kind: ValueKind::Template,
            default: DefaultValue::Absent,
            doc: "PEM key (PKCS #8; P-256, P-384, Ed25519, or RSA) with which the client signs instead of sending a \
                  secret (`private_key_jwt`); with `client_credentials`. Usually a reference: \
                  `\"${file:/run/secrets/key}\"`.",
        },
        Row {
            name: "private_key_id",
            kind: ValueKind::Text,
            default: DefaultValue::Absent,
            doc: "Id of `private_key` at the authorization server (`kid`), if it requires one.",
        },
        Row {
            name: "client_metadata_url",
            kind: ValueKind::Text,
            default: DefaultValue::Absent,
            doc: "The `https` address of a client metadata document, for authorization servers that identify clients \
                  by such documents. Used if there is no `client_id`.",
        },
        Row {
            name: "scopes",
            kind: ValueKind::TextList,
            default: DefaultValue::Described("the scopes that the server asks for"),
            doc: "Scopes to request.",
        },
        Row {
            name: "grant",
            kind: ValueKind::Choice(|| choices::names(GRANTS)),
            default: DefaultValue::Literal("authorization_code"),
            doc: "OAuth grant: with `authorization_code` a person logs in by `gripfast login`; with \
                  `client_credentials` the client uses its `client_id` and its `client_secret` or `private_key`, \
                  without a person.",
        },
        Row {
            name: "callback_port",
            kind: ValueKind::Number(1..=65_535),
            default: DefaultValue::Described("any free port"),
            doc: "Port on which `gripfast login` waits for the browser. Set it if the client was registered with a \
                  fixed port.",
        },
    ]],
};
