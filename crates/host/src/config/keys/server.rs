//! The keys of a server, but for those that say how it is kept alive.

use super::rules::{CACHE, LISTS, REPLAY, RESTORED};
use super::supervision::{LIFE, PATIENCE};
use super::words::{GRANTS, ISOLATIONS, PIN_MODES, PROTOCOLS, TRANSPORTS};
use super::{Kind, Row, Table, Usual, size, words};

pub(in crate::config) static SERVER: Table = Table {
    about: "One server. It has a `command` or a `url`. Texts may refer to what is not in the file: `${env:NAME}`, \
            `${env:NAME:-otherwise}`, `${file:PATH}`, `${cmd:PROGRAM ARGUMENTS}`. A mistake here, or a variable that is \
            not set, keeps only this server out.",
    groups: &[PROCESS, CONNECTION, LIFE, PATIENCE, OFFER],
};

const PROCESS: &[Row] = &[
    Row {
        name: "command",
        kind: Kind::Template,
        usual: Usual::Nothing,
        about: "The program to start: a path, or a name to look up in `PATH`. It never goes through a shell.",
    },
    Row { name: "args", kind: Kind::Templates, usual: Usual::Nothing, about: "Its arguments." },
    Row {
        name: "env",
        kind: Kind::Map(&Kind::Template),
        usual: Usual::Nothing,
        about: "Variables to set for it. Of gripfast's own environment it gets `PATH`, `HOME`, `USER`, `LOGNAME`, `LANG`, \
                `TERM`, `SHELL`, `TMPDIR`, `LC_*`, `XDG_*` and those of `network_env`, and no others.",
    },
    Row {
        name: "inherit_env",
        kind: Kind::Words,
        usual: Usual::Nothing,
        about: "More variables of gripfast's own environment to pass to it.",
    },
    Row {
        name: "network_env",
        kind: Kind::Flag,
        usual: Usual::Is("true"),
        about: "Whether it gets the certificate authorities and proxies of gripfast's own environment: `SSL_CERT_FILE`, \
                `SSL_CERT_DIR`, `NODE_EXTRA_CA_CERTS`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`, `HTTP_PROXY`, `HTTPS_PROXY`, \
                `ALL_PROXY`, `NO_PROXY` and the proxies in lower case. Say `false` for a server that must not see a proxy \
                password. Without them a server behind a company's proxy cannot reach anything.",
    },
    Row {
        name: "cwd",
        kind: Kind::Template,
        usual: Usual::Words("gripfast's own"),
        about: "The directory to start it in.",
    },
];

const CONNECTION: &[Row] = &[
    Row {
        name: "url",
        kind: Kind::Template,
        usual: Usual::Nothing,
        about: "The address of its MCP endpoint, `http` or `https`.",
    },
    Row {
        name: "transport",
        kind: Kind::Choice(|| words::of(TRANSPORTS)),
        usual: Usual::Is("auto"),
        about: "How it is spoken to: `http` is Streamable HTTP, `sse` the older HTTP+SSE. `auto` finds out and \
                remembers.",
    },
    Row {
        name: "headers",
        kind: Kind::Map(&Kind::Template),
        usual: Usual::Nothing,
        about: "Headers to send with every request.",
    },
    Row {
        name: "redirects",
        kind: Kind::Words,
        usual: Usual::Nothing,
        about: "Other origins that it may redirect to, such as `\"https://eu.example.com\"`. Redirects on its own origin, and \
                from http to https on its own host, are followed anyway. Neither `headers` nor a token go to another origin.",
    },
    Row {
        name: "ca_file",
        kind: Kind::Template,
        usual: Usual::Nothing,
        about: "A file with certificates (PEM) to trust besides those of the system: of authorities, or of the server itself.",
    },
    Row {
        name: "client_cert",
        kind: Kind::Template,
        usual: Usual::Nothing,
        about: "A file with the certificate (PEM) to show to the server. Goes with `client_key`.",
    },
    Row {
        name: "client_key",
        kind: Kind::Template,
        usual: Usual::Nothing,
        about: "A file with the key (PEM) of `client_cert`.",
    },
    Row {
        name: "oauth",
        kind: Kind::Table(&OAUTH),
        usual: Usual::Nothing,
        about: "How a token for it is got, where it wants one and says too little itself. Without an `Authorization` in \
                `headers`.",
    },
    Row {
        name: "protocol",
        kind: Kind::Choice(|| words::of(PROTOCOLS)),
        usual: Usual::Server(|spec| words::for_meaning(PROTOCOLS, &spec.protocol)),
        about: "Which generation of MCP to speak: `legacy` has the `initialize` handshake (until 2025-11-25), `modern` \
                has none. `auto` finds out and remembers.",
    },
    Row {
        name: "max_message",
        kind: Kind::Size(1 << 10..=1 << 30),
        usual: Usual::Server(|spec| size(spec.max_message as u64)),
        about: "The largest message it may send. A larger one ends the call, or the link where the call cannot be told.",
    },
];

const OFFER: &[Row] = &[
    Row {
        name: "prefix",
        kind: Kind::Text,
        usual: Usual::Words("the server's name"),
        about: "What its tools and prompts are prefixed with, before `__`. Empty leaves their names as they are; where \
                two then collide, the one that has the name first keeps it, and the other gets its own name in front.",
    },
    Row {
        name: "tools",
        kind: Kind::Table(&LISTS),
        usual: Usual::Nothing,
        about: "Which of its tools are offered. Tools may be named by what they say about themselves: `@read_only`, \
                `@destructive`, `@idempotent`.",
    },
    Row {
        name: "resources",
        kind: Kind::Table(&LISTS),
        usual: Usual::Nothing,
        about: "Which of its resources are offered, by URI.",
    },
    Row {
        name: "prompts",
        kind: Kind::Table(&LISTS),
        usual: Usual::Nothing,
        about: "Which of its prompts are offered.",
    },
    Row {
        name: "methods",
        kind: Kind::Words,
        usual: Usual::Nothing,
        about: "Which methods that are not of the protocol may be used, by patterns such as `skills/*`. Without it all of \
                them may, unless `tools`, `resources` or `prompts` has an `allow` list: then none may, for no list can see \
                what such a method does.",
    },
    Row {
        name: "pins",
        kind: Kind::Choice(|| words::of(PIN_MODES)),
        usual: Usual::Server(|spec| words::for_meaning(PIN_MODES, &spec.pins)),
        about: "What is done about a tool that says something else than when it was first seen: `enforce` holds it back \
                until `gripfast pins approve`, and shows it as it was; `strict` holds new tools back too; `warn` tells of it \
                and uses it; `off` looks at nothing. Say `warn` for a server whose descriptions change by themselves, with \
                dates or counts in them.",
    },
    Row {
        name: "max_tools",
        kind: Kind::Number(1..=100_000),
        usual: Usual::Server(|spec| spec.max_tools.to_string()),
        about: "How many tools of it are pinned and offered, and as many prompts and resource templates. Beyond it new ones \
                are hidden, with an event; those that were approved stay. Too few, and new tools of a large server are \
                missing; too many, and a server can fill the context of its clients and the state directory.",
    },
    Row {
        name: "isolation",
        kind: Kind::Choice(|| words::of(ISOLATIONS)),
        usual: Usual::Server(|spec| words::for_meaning(ISOLATIONS, &spec.isolation)),
        about: "Whether clients share one instance of it, which is one child or session. `auto` shares until the server \
                asks something, or logs while several principals share it, and it cannot be known for whom. Say `per_client` for a server that keeps state per session; \
                with `shared` its clients meet each other's state.",
    },
    Row {
        name: "max_instances",
        kind: Kind::Number(1..=10_000),
        usual: Usual::Server(|spec| spec.max_instances.to_string()),
        about: "How many clients may have an instance of their own at a time. Too few, and with `per_client` calls of \
                further clients are refused as overloaded (with `auto` they share); too many, and as many children run.",
    },
    Row {
        name: "replay",
        kind: Kind::Table(&REPLAY),
        usual: Usual::Nothing,
        about: "Which of its tools may be sent again when the link is lost before the answer.",
    },
    Row {
        name: "restore",
        kind: Kind::Tables(&RESTORED),
        usual: Usual::Nothing,
        about: "Calls that are made in every new session before anybody else's, in this order: a login, the choice of a \
                workspace. One that fails is named in status and keeps nobody out. They have half of `timeouts.connect` \
                together; each costs a round trip before the server is used. At most 32.",
    },
    Row {
        name: "cache",
        kind: Kind::Table(&CACHE),
        usual: Usual::Nothing,
        about: "Which of its answers may be given again.",
    },
];

pub(in crate::config) static OAUTH: Table = Table {
    about: "Who we are to the authorization server of a server with a `url`.",
    groups: &[&[
        Row {
            name: "issuer",
            kind: Kind::Template,
            usual: Usual::Words("the authorization server that the server names"),
            about: "The address of the authorization server (`https`, or on this machine). Tokens are asked for at its own \
                    endpoints, whatever the server says. Needed with a `client_secret` or a `private_key`, which go to \
                    no other authorization server; and for one in a private network.",
        },
        Row {
            name: "client_id",
            kind: Kind::Template,
            usual: Usual::Words("we register ourselves"),
            about: "The id of a client that was registered for us.",
        },
        Row {
            name: "client_secret",
            kind: Kind::Template,
            usual: Usual::Nothing,
            about: "The secret that goes with `client_id`, if it has one.",
        },
        Row {
            name: "private_key",
            kind: Kind::Template,
            usual: Usual::Nothing,
            about: "A key in PEM form (PKCS #8; P-256, P-384, Ed25519, or RSA) by which the client signs instead of having a \
                    secret (`private_key_jwt`); with `client_credentials`. Mostly a reference: `\"${file:/run/secrets/key}\"`.",
        },
        Row {
            name: "private_key_id",
            kind: Kind::Text,
            usual: Usual::Nothing,
            about: "What the authorization server calls that key (`kid`), if it wants to be told.",
        },
        Row {
            name: "client_metadata_url",
            kind: Kind::Text,
            usual: Usual::Nothing,
            about: "The `https` address of a document that says who we are, for authorization servers that know clients \
                    by such documents; used where there is no `client_id`.",
        },
        Row {
            name: "scopes",
            kind: Kind::Words,
            usual: Usual::Words("what the server says it wants"),
            about: "What to ask for.",
        },
        Row {
            name: "grant",
            kind: Kind::Choice(|| words::of(GRANTS)),
            usual: Usual::Is("authorization_code"),
            about: "Who gives the grant: a person by `gripfast login`, or with `client_credentials` the client itself by \
                    its `client_id` and `client_secret` or `private_key`, which needs nobody.",
        },
        Row {
            name: "callback_port",
            kind: Kind::Number(1..=65_535),
            usual: Usual::Words("any that is free"),
            about: "The port on which `gripfast login` waits for the browser to come back. Say one if the client was \
                    registered with it.",
        },
    ]],
};
