//! The keys of the table `gateway`.

use super::{Kind, Row, Span, Table, Usual, show, size, words};
use crate::private_files::StrictModes;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(in crate::config) static GATEWAY: Table = Table {
    about: "The gateway itself. What stands here counts from the next start on.",
    groups: &[LISTENING, KEEPING],
};

const LISTENING: &[Row] = &[
    Row {
        name: "listen",
        kind: Kind::Text,
        usual: Usual::Gateway(|gateway| gateway.listen.to_string()),
        about: "Where it listens: an IP address and a port, of which 0 is any that is free. Anything but a loopback \
                address lets other machines in, and needs `auth`.",
    },
    Row {
        name: "public_url",
        kind: Kind::Text,
        usual: Usual::Nothing,
        about: "What clients call the gateway, if that is not the address it listens on: behind a proxy, or by a name. \
                Its host is accepted in `Host` and `Origin`, and clients that look for where to log in are told this \
                address. Needed with `auth.jwt` where `listen` is every address (0.0.0.0). Wrong, and they are \
                turned away or log in for something else.",
    },
    Row {
        name: "allowed_origins",
        kind: Kind::Words,
        usual: Usual::Nothing,
        about: "Origins whose web pages may speak to the gateway, besides its own pages: `\"http://localhost:6274\"`. \
                Another port of this machine is another origin. Name only programs that you would let use all servers; \
                without the one that you use in a browser, it is told that the Origin header names another site.",
    },
    Row { name: "auth", kind: Kind::Table(&AUTH), usual: Usual::Nothing, about: "Who may use it." },
    Row {
        name: "tls",
        kind: Kind::Table(&TLS),
        usual: Usual::Nothing,
        about: "What the listener proves itself with. With it clients speak https and nothing else, without it http.",
    },
    Row {
        name: "startup_wait",
        kind: Kind::Duration(Span::between(Duration::ZERO, Duration::from_secs(600))),
        usual: Usual::Gateway(|gateway| show(gateway.startup_wait)),
        about: "How long a first list waits for servers without a stored catalog. Too short, and a client that lists \
                only once misses their tools; too long, and one slow server delays every client.",
    },
    Row {
        name: "shutdown_timeout",
        kind: Kind::Duration(Span::at_least(Duration::from_secs(1))),
        usual: Usual::Gateway(|gateway| show(gateway.shutdown_timeout)),
        about: "How long everything may take from SIGTERM to the end of the process: calls in flight have four ninths \
                of it, the servers the rest. A second signal ends at once. Too short, and calls are cut that were about \
                to end; too long, and a supervisor kills the process first (Docker after 10s, Kubernetes after 30s).",
    },
    Row {
        name: "linger",
        kind: Kind::Duration(Span::at_least(Duration::from_secs(1))),
        usual: Usual::Gateway(|gateway| show(gateway.linger)),
        about: "How long a gateway that `gripfast stdio --background` started goes on after its last client has left. \
                Too short, and the servers start again for the next client; too long, and they run for nobody. A \
                gateway that was started with `gripfast serve` does not end by itself.",
    },
    Row {
        name: "session_idle_timeout",
        kind: Kind::Duration(Span::at_least(Duration::from_secs(1))),
        usual: Usual::Gateway(|gateway| show(gateway.session_idle_timeout)),
        about: "How long a legacy client's session lives without a request or an open stream; after that the client \
                has to shake hands again. Too short, and clients that pause lose their sessions, which some take badly; \
                too long, and sessions of clients that went away stay in memory, up to `limits.sessions`.",
    },
    Row {
        name: "limits",
        kind: Kind::Table(&LIMITS),
        usual: Usual::Nothing,
        about: "How much clients may have at a time.",
    },
];

const KEEPING: &[Row] = &[
    Row {
        name: "state_dir",
        kind: Kind::Text,
        usual: Usual::Words("the platform's own"),
        about: "The directory where logins, pins, catalogs, the ledger, the admin token and the control sockets are \
                kept; `--state-dir` overrides it. Commands find a running gateway by the socket in it, so they need \
                the same directory to operate one.",
    },
    Row {
        name: "strict_modes",
        kind: Kind::Flag,
        usual: Usual::Gateway(|gateway| (gateway.access.strict_modes == StrictModes::On).to_string()),
        about: "Whether a config, key file or state directory that another user could have changed is refused: one that \
                belongs neither to the user who runs gripfast nor to root, or that its group or others may write. `false` \
                makes it a warning, for container volumes whose owner and modes cannot be chosen; then whoever can \
                write those files can have the gateway run programs and let clients in. For the config itself it \
                counts where the file was named (`--config`, `$GRIPFAST_CONFIG`) or trusted, and not for the one in the \
                platform's config directory.",
    },
    Row {
        name: "ledger",
        kind: Kind::Choice(|| words::of(&words::ledgers())),
        usual: Usual::Gateway(|gateway| gateway.ledger.keeps.word().to_owned()),
        about: "What is noted down of tool calls. `digest` keeps who called which tool of which server, when, what \
                became of it, and a digest of the arguments; `arguments` keeps up to 16 KiB of the arguments too; `off` \
                keeps nothing, and nobody can tell then what was under way when the gateway died.",
    },
    Row {
        name: "ledger_size",
        kind: Kind::Size(64 << 10..=1 << 30),
        usual: Usual::Gateway(|gateway| size(gateway.ledger.size)),
        about: "What the ledger takes on disk at the most, for each process; 16 MiB are about thirty thousand calls. \
                Too small, and yesterday's calls are gone; too large, and reading it takes seconds.",
    },
    Row {
        name: "audit",
        kind: Kind::Choice(|| words::of(&words::audits())),
        usual: Usual::Gateway(|gateway| gateway.audit.keeps.word().to_owned()),
        about: "The audit log: `digest` writes a line for every request and decision with a digest of its arguments, \
                `arguments` writes those too, without what looks like a secret.",
    },
    Row {
        name: "audit_size",
        kind: Kind::Size(64 << 10..=64 << 30),
        usual: Usual::Gateway(|gateway| size(gateway.audit.size)),
        about: "What the audit log takes on disk at the most. Beyond it the oldest lines go.",
    },
    Row {
        name: "audit_fail_closed",
        kind: Kind::Flag,
        usual: Usual::Gateway(|gateway| gateway.audit.fail_closed.to_string()),
        about: "Whether requests are refused while they cannot be written down. Otherwise they go on, and status counts \
                what is missing.",
    },
    Row {
        name: "status_tool",
        kind: Kind::Flag,
        usual: Usual::Gateway(|gateway| gateway.status_tool.to_string()),
        about: "Whether clients are offered a tool `gripfast_status`, by which a model can find out why tools are missing and \
                tell its user. It lists the servers that the client may use, with their state, and the cause where clients do \
                not have to authenticate.",
    },
    Row {
        name: "log_format",
        kind: Kind::Choice(|| words::of(&words::log_formats())),
        usual: Usual::Gateway(|gateway| gateway.log_format.word().to_owned()),
        about: "The format of log lines on stderr: `text` for people, `json` for log collectors, with one object per line. \
                `$GRIPFAST_LOG_FORMAT` wins over it, `$GRIPFAST_LOG` decides how much is logged.",
    },
    Row {
        name: "login_key",
        kind: Kind::Choice(|| words::of(&words::login_keys())),
        usual: Usual::Gateway(|gateway| gateway.login_key.word().to_owned()),
        about: "Where the key is with which logins are sealed: in a `file` beside them, or in the system's `keyring`, which \
                a service or a container cannot ask.",
    },
    Row {
        name: "cache_size",
        kind: Kind::Size(0..=4 << 30),
        usual: Usual::Gateway(|gateway| size(gateway.cache.bytes as u64)),
        about: "How many bytes of answers are kept to be given again, in all. Too small, and servers are asked again; \
                too large, and memory.",
    },
    Row {
        name: "cache_per_tool",
        kind: Kind::Number(0..=100_000),
        usual: Usual::Gateway(|gateway| gateway.cache.per_topic.to_string()),
        about: "How many answers of one tool, or about one resource, are kept.",
    },
];

static AUTH: Table = Table {
    about: "What clients have to show. Without either key only this machine may use the gateway, and needs nothing.",
    groups: &[&[
        Row {
            name: "keys",
            kind: Kind::Flag,
            usual: Usual::Gateway(|gateway| gateway.access.keys.to_string()),
            about: "Whether clients may show an API key of `gripfast keys`.",
        },
        Row {
            name: "jwt",
            kind: Kind::Table(&JWT),
            usual: Usual::Nothing,
            about: "Whose signed tokens clients may show.",
        },
    ]],
};

pub(in crate::config) static TLS: Table = Table {
    about: "The certificate of the listener. Both files are looked at every second and taken for new connections when \
            they have changed; if they cannot be used, the certificate in use stays, and `status` says why.",
    groups: &[&[
        Row {
            name: "cert",
            kind: Kind::Text,
            usual: Usual::Needed,
            about: "A file in PEM form: the certificate, and behind it those that vouch for it, up to but not including \
                    the authority that clients know.",
        },
        Row {
            name: "key",
            kind: Kind::Text,
            usual: Usual::Needed,
            about: "A file in PEM form: the private key of the certificate.",
        },
    ]],
};

pub(in crate::config) static JWT: Table = Table {
    about: "Whose signed tokens are good here.",
    groups: &[&[
        Row {
            name: "issuer",
            kind: Kind::Text,
            usual: Usual::Needed,
            about: "Who issues them: what they have to say in `iss`, and where clients are sent to log in. A URL has to be \
                    https, or http on loopback.",
        },
        Row {
            name: "audience",
            kind: Kind::Text,
            usual: Usual::Needed,
            about: "Whom they have to be for, in `aud`. Without it a token for any other service of the issuer would be \
                    good here too.",
        },
        Row {
            name: "jwks",
            kind: Kind::Text,
            usual: Usual::Needed,
            about: "The issuer's public keys: a URL, which is asked again for a key that is not known and at least \
                    every hour, or a file, which is read again when it changes. A URL has to be https, or http on \
                    loopback, and so does every address that it redirects to.",
        },
        Row {
            name: "name",
            kind: Kind::Text,
            usual: Usual::Is("sub"),
            about: "The claim that says who it is.",
        },
        Row {
            name: "scopes",
            kind: Kind::Words,
            usual: Usual::Is("[]"),
            about: "The scopes that a token needs.",
        },
        Row {
            name: "typ",
            kind: Kind::Choice(|| words::of(words::TOKEN_TYPES)),
            usual: Usual::Is("any"),
            about: "Which types of tokens are accepted, by their header `typ`. `any` accepts `at+jwt`, `JWT` and tokens \
                    without a type, for authorization servers that do not type their access tokens; `at+jwt` accepts \
                    nothing else (RFC 9068). Set it if your authorization server follows RFC 9068: no other kind of \
                    token is then taken for an access token. ID tokens are refused in either case.",
        },
    ]],
};

/// How much of something clients may have.
const SOME: RangeInclusive<u32> = 1..=1_000_000;

/// What requests and answers may take in memory.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 40;

static LIMITS: Table = Table {
    about: "How much clients may have at a time. The defaults are far above what honest clients need and far below \
            what would hurt the machine.",
    groups: &[&[
        Row {
            name: "sessions",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.sessions.to_string()),
            about: "Legacy sessions in memory. Beyond it those that were unused for longest make room: their ids still \
                    open, but streams that could have been picked up again are lost. Too small, and that happens to \
                    clients that are still there; too large, and memory (about 2 KB each).",
        },
        Row {
            name: "sessions_per_client",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.sessions_per_client.to_string()),
            about: "Of these, sessions of one client: whoever showed the same key, or without `auth` all of this \
                    machine. Beyond it its own sessions make room, not those of others.",
        },
        Row {
            name: "in_flight",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.in_flight.to_string()),
            about: "Requests that are not answered yet. Beyond it they are refused with 503. Too small, and busy \
                    clients are refused; too large, and memory for questions and answers.",
        },
        Row {
            name: "in_flight_per_client",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.in_flight_per_client.to_string()),
            about: "Of these, requests of one client, over all its sessions. Beyond it they are refused with 429. Too \
                    small, and a busy client is refused; too large, and one client can keep every server busy.",
        },
        Row {
            name: "connections",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.connections.to_string()),
            about: "Open connections. One carries one request or one stream at a time, so this bounds both. A quarter is \
                    reserved for connections that have authenticated (without `auth`: that have sent a complete \
                    request). Of the others, the oldest is closed to make room for a new one; where there is none, the \
                    new one is told 503 and closed. It is lowered at the start if the limit of open files is too low.",
        },
        Row {
            name: "connections_per_client",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.connections_per_client.to_string()),
            about: "Of these, connections of one client, which is an IPv4 address or an IPv6 network of 64 bits. A quarter \
                    is reserved in the same way.",
        },
        Row {
            name: "first_request_timeout",
            kind: Kind::Duration(Span::between(Duration::from_millis(100), Duration::from_secs(60))),
            usual: Usual::Gateway(|gateway| show(gateway.limits.first_request_timeout)),
            about: "How long a connection that has not authenticated (without `auth`: that has sent no complete request) \
                    may take for the head of a request; then it is closed. Too short, and clients on slow lines are cut \
                    off; too long, and connections that send nothing take up room.",
        },
        Row {
            name: "requests",
            kind: Kind::Number(0..=1_000_000),
            usual: Usual::Words("1000 with `auth`, no limit without"),
            about: "Requests per second of each principal, and of each address (IPv6: network of 64 bits) for requests \
                    without a valid credential; as many may come in an instant. Each message of a batch counts. Beyond \
                    it requests are refused with 429. `/healthz`, `/readyz` and the control socket are exempt. 0 is no \
                    limit. Too small, and busy clients are refused; too large, and one client can keep the gateway busy.",
        },
        Row {
            name: "memory",
            kind: Kind::Size(MEMORY),
            usual: Usual::Gateway(|gateway| size(gateway.limits.memory)),
            about: "The bytes of request bodies and answers in memory. A request beyond it is refused with 503; an answer \
                    beyond it ends its call with `overloaded`, outcome `done`. Too small, and large answers are lost; \
                    too large, and clients that do not read can fill the machine's memory.",
        },
        Row {
            name: "memory_per_client",
            kind: Kind::Size(MEMORY),
            usual: Usual::Gateway(|gateway| size(gateway.limits.memory_per_client)),
            about: "Of these, the bytes of one client. Beyond it its requests are refused with 429, and its answers end \
                    their calls in the same way.",
        },
        Row {
            name: "nesting",
            kind: Kind::Number(16..=100_000),
            usual: Usual::Gateway(|gateway| gateway.limits.nesting.to_string()),
            about: "Levels of arrays and objects within the arguments of a request and within a result. A deeper request \
                    is refused, and a deeper result ends its call with an error. Too small, and honest structured data \
                    is refused; too large, and clients and servers that read recursively crash on it.",
        },
        Row {
            name: "suspended_calls",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.suspended_calls.to_string()),
            about: "Calls of modern clients that wait for their client to come back with input. Beyond it the client \
                    that has the most loses its oldest one: the server is told, and the client has to call again. Too \
                    small, and people who think for long lose their calls; too large, and memory.",
        },
        Row {
            name: "suspended_calls_per_client",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.suspended_calls_per_client.to_string()),
            about: "Of these, calls of one client. Beyond it its own oldest one is given up, not one of others.",
        },
        Row {
            name: "questions",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.questions.to_string()),
            about: "Questions of servers that clients have not answered. Beyond it the client that has the most loses \
                    its oldest one, and the server is told so. Too small, and people who think for long are not waited \
                    for; too large, and memory.",
        },
        Row {
            name: "questions_per_client",
            kind: Kind::Number(SOME),
            usual: Usual::Gateway(|gateway| gateway.limits.questions_per_client.to_string()),
            about: "Of these, questions to one client, over all its sessions. Beyond it its own oldest one is given up.",
        },
    ]],
};
