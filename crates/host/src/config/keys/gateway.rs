//! The keys of the table `gateway`.

use super::{DefaultValue, DurationRange, Row, Table, ValueKind, choices, show, size};
use crate::private_files::StrictModes;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(in crate::config) static GATEWAY: Table = Table {
    doc: "The gateway itself. Changes take effect at the next start.",
    groups: &[LISTENING, STORAGE],
};

const LISTENING: &[Row] = &[
    Row {
        name: "listen",
        kind: ValueKind::Text,
        default: DefaultValue::Gateway(|gateway| gateway.listen.to_string()),
        doc: "IP address and port of the listener. Port 0 picks a free port. An address other than loopback lets \
              other machines connect and requires `auth`.",
    },
    Row {
        name: "public_url",
        kind: ValueKind::Text,
        default: DefaultValue::Absent,
        doc: "URL that clients use for the gateway, if it differs from `listen`: behind a proxy, or with a host name. \
              The gateway accepts its host in `Host` and `Origin`, and names this URL to clients that look for the \
              authorization server. Required with `auth.jwt` if `listen` is every address (0.0.0.0). If it is wrong, \
              clients are refused, or get tokens for another service.",
    },
    Row {
        name: "allowed_origins",
        kind: ValueKind::TextList,
        default: DefaultValue::Absent,
        doc: "Origins whose web pages may send requests to the gateway, besides its own pages: \
              `\"http://localhost:6274\"`. Another port on this machine is another origin. List only programs that \
              may use all servers. A program in a browser that is not listed is refused because of its Origin header.",
    },
    Row {
        name: "auth",
        kind: ValueKind::Table(&AUTH),
        default: DefaultValue::Absent,
        doc: "Client authentication.",
    },
    Row {
        name: "tls",
        kind: ValueKind::Table(&TLS),
        default: DefaultValue::Absent,
        doc: "Certificate of the listener. With it clients must use https, without it http.",
    },
    Row {
        name: "startup_wait",
        kind: ValueKind::Duration(DurationRange::between(Duration::ZERO, Duration::from_secs(600))),
        default: DefaultValue::Gateway(|gateway| show(gateway.startup_wait)),
        doc: "Time that a first list request waits for servers without a stored catalog. Too short: a client that \
              lists only once misses their tools. Too long: one slow server delays every client.",
    },
    Row {
        name: "shutdown_timeout",
        kind: ValueKind::Duration(DurationRange::at_least(Duration::from_secs(1))),
        default: DefaultValue::Gateway(|gateway| show(gateway.shutdown_timeout)),
        doc: "Time limit from SIGTERM to the end of the process. Calls in flight get four ninths of it, the servers \
              the rest. A second signal ends the process at once. Too short: calls are cut off shortly before their \
              end. Too long: the process manager kills the gateway first (Docker after 10s, Kubernetes after 30s).",
    },
    Row {
        name: "linger",
        kind: ValueKind::Duration(DurationRange::at_least(Duration::from_secs(1))),
        default: DefaultValue::Gateway(|gateway| show(gateway.linger)),
        doc: "Time that a gateway started by `gripfast stdio --background` keeps running after its last client has \
              left. Too short: the servers start again for the next client. Too long: the servers run unused. A \
              gateway started with `gripfast serve` does not stop by itself.",
    },
    Row {
        name: "session_idle_timeout",
        kind: ValueKind::Duration(DurationRange::at_least(Duration::from_secs(1))),
        default: DefaultValue::Gateway(|gateway| show(gateway.session_idle_timeout)),
        doc: "Time that a legacy client's session lives without a request or an open stream; after that the client \
              must initialize again. Too short: clients that pause lose their sessions, which some handle badly. Too \
              long: sessions of clients that have left stay in memory, up to `limits.sessions`.",
    },
    Row {
        name: "limits",
        kind: ValueKind::Table(&LIMITS),
        default: DefaultValue::Absent,
        doc: "Limits on what clients may use at the same time.",
    },
];

const STORAGE: &[Row] = &[
    Row {
        name: "state_dir",
        kind: ValueKind::Text,
        default: DefaultValue::Described("the platform's state directory"),
        doc: "Directory for logins, pins, catalogs, the ledger, the admin token and the control sockets. \
              `--state-dir` overrides it. Commands find a running gateway by the socket in this directory, so they \
              need the same value.",
    },
    Row {
        name: "strict_modes",
        kind: ValueKind::Flag,
        default: DefaultValue::Gateway(|gateway| {
            (gateway.access.strict_modes == StrictModes::On).to_string()
        }),
        doc: "Refuse a config, key file or state directory that another user could have changed: one that is owned \
              neither by the user who runs gripfast nor by root, or that its group or others can write. `false` makes \
              this a warning, for container volumes whose owner and modes cannot be set; then every user who can \
              write these files can make the gateway run programs and admit clients. For the config file itself the \
              key has an effect only if the file was named (`--config`, `$GRIPFAST_CONFIG`) or trusted, not for the \
              file in the platform's config directory.",
    },
    Row {
        name: "ledger",
        kind: ValueKind::Choice(|| choices::names(&choices::ledgers())),
        default: DefaultValue::Gateway(|gateway| gateway.ledger.detail.word().to_owned()),
        doc: "Record of tool calls. `digest` records the client, the server, the tool, the time, the outcome and a \
              digest of the arguments. `arguments` also records up to 16 KiB of the arguments. `off` records nothing; \
              after a crash of the gateway it is then unknown which calls were in flight.",
    },
    Row {
        name: "ledger_size",
        kind: ValueKind::Size(64 << 10..=1 << 30),
        default: DefaultValue::Gateway(|gateway| size(gateway.ledger.size)),
        doc: "Largest size of the ledger on disk, for each process; 16 MiB hold about thirty thousand calls. Too \
              small: the calls of yesterday are lost. Too large: reading the ledger takes seconds.",
    },
    Row {
        name: "audit",
        kind: ValueKind::Choice(|| choices::names(&choices::audits())),
        default: DefaultValue::Gateway(|gateway| gateway.audit.detail.word().to_owned()),
        doc: "Audit log. `digest` writes a line for every request and decision, with a digest of the arguments. \
              `arguments` also writes the arguments, without values that look like secrets. `off` writes nothing.",
    },
    Row {
        name: "audit_size",
        kind: ValueKind::Size(64 << 10..=64 << 30),
        default: DefaultValue::Gateway(|gateway| size(gateway.audit.size)),
        doc: "Largest size of the audit log on disk. Beyond it the oldest lines are deleted. Too small: lines are \
              deleted before they are read. Too large: more disk space.",
    },
    Row {
        name: "audit_fail_closed",
        kind: ValueKind::Flag,
        default: DefaultValue::Gateway(|gateway| gateway.audit.fail_closed.to_string()),
        doc: "Refuse requests while the audit log cannot be written. With `false` requests go on, and `status` counts \
              the missing lines.",
    },
    Row {
        name: "status_tool",
        kind: ValueKind::Flag,
        default: DefaultValue::Gateway(|gateway| gateway.status_tool.to_string()),
        doc: "Offer clients the tool `gripfast_status`, so that a model can find out why tools are missing and tell \
              its user. It lists the servers that the client may use and their state; if clients do not have to \
              authenticate, also the cause.",
    },
    Row {
        name: "log_format",
        kind: ValueKind::Choice(|| choices::names(&choices::log_formats())),
        default: DefaultValue::Gateway(|gateway| gateway.log_format.as_str().to_owned()),
        doc: "Format of log lines on stderr: `text` for people, `json` for log collectors, with one object per line. \
              `$GRIPFAST_LOG_FORMAT` overrides it. `$GRIPFAST_LOG` sets the log level.",
    },
    Row {
        name: "login_key",
        kind: ValueKind::Choice(|| choices::names(&choices::login_keys())),
        default: DefaultValue::Gateway(|gateway| gateway.login_key.as_str().to_owned()),
        doc: "Location of the key that encrypts stored logins: a `file` beside them, or the system's `keyring`, which \
              a service or a container cannot use.",
    },
    Row {
        name: "cache_size",
        kind: ValueKind::Size(0..=4 << 30),
        default: DefaultValue::Gateway(|gateway| size(gateway.cache.bytes as u64)),
        doc: "Memory for cached answers, in total. 0 disables the cache. Too small: servers are asked again. Too \
              large: the gateway uses more memory.",
    },
    Row {
        name: "cache_per_tool",
        kind: ValueKind::Number(0..=100_000),
        default: DefaultValue::Gateway(|gateway| gateway.cache.per_topic.to_string()),
        doc: "Largest number of cached answers of one tool, or of one resource. 0 disables the cache. Too small: \
              servers are asked again. Too large: the answers of one tool can displace those of others.",
    },
];

static AUTH: Table = Table {
    doc: "Credentials that clients must present. Without `keys` and `jwt` only programs on this machine may use the \
          gateway, and they need no credential.",
    groups: &[&[
        Row {
            name: "keys",
            kind: ValueKind::Flag,
            default: DefaultValue::Gateway(|gateway| gateway.access.keys.to_string()),
            doc: "Accept API keys that were created with `gripfast keys`.",
        },
        Row {
            name: "jwt",
            kind: ValueKind::Table(&JWT),
            default: DefaultValue::Absent,
            doc: "Accept signed tokens (JWT) of this issuer.",
        },
    ]],
};

pub(in crate::config) static TLS: Table = Table {
    doc: "Certificate of the listener. The gateway checks both files every second and uses changed files for new \
          connections. If they cannot be used, it keeps the current certificate, and `status` shows the reason.",
    groups: &[&[
        Row {
            name: "cert",
            kind: ValueKind::Text,
            default: DefaultValue::Required,
            doc: "PEM file with the certificate, followed by its intermediate certificates, without the root \
                  certificate.",
        },
        Row {
            name: "key",
            kind: ValueKind::Text,
            default: DefaultValue::Required,
            doc: "PEM file with the private key of the certificate.",
        },
    ]],
};

pub(in crate::config) static JWT: Table = Table {
    doc: "Signed tokens (JWT) that clients may present.",
    groups: &[&[
        Row {
            name: "issuer",
            kind: ValueKind::Text,
            default: DefaultValue::Required,
            doc: "Issuer of the tokens: the required value of the claim `iss`, and the authorization server where \
                  clients log in. A URL must be https, or http on loopback.",
        },
        Row {
            name: "audience",
            kind: ValueKind::Text,
            default: DefaultValue::Required,
            doc: "Required value of the claim `aud`. Without it a token for any other service of the issuer would be \
                  accepted here too.",
        },
        Row {
            name: "jwks",
            kind: ValueKind::Text,
            default: DefaultValue::Required,
            doc: "Public keys of the issuer: a URL, fetched again for an unknown key and at least every hour, or a \
                  file, read again when it changes. A URL, and every address that it redirects to, must be https, or \
                  http on loopback.",
        },
        Row {
            name: "name",
            kind: ValueKind::Text,
            default: DefaultValue::Literal("sub"),
            doc: "Claim that identifies the client.",
        },
        Row {
            name: "scopes",
            kind: ValueKind::TextList,
            default: DefaultValue::Literal("[]"),
            doc: "Scopes that a token must have.",
        },
        Row {
            name: "typ",
            kind: ValueKind::Choice(|| choices::names(choices::TOKEN_TYPES)),
            default: DefaultValue::Literal("any"),
            doc: "Token types that are accepted, by the header `typ`. `any` accepts `at+jwt`, `JWT` and tokens \
                  without a type, for authorization servers that do not type their access tokens. `at+jwt` accepts \
                  nothing else (RFC 9068); set it if your authorization server follows RFC 9068, so that no other \
                  kind of token is accepted as an access token. ID tokens are refused in both cases.",
        },
    ]],
};

/// Range of the limits that are counts.
const COUNT_RANGE: RangeInclusive<u32> = 1..=1_000_000;

/// Range of the memory limits.
const MEMORY_RANGE: RangeInclusive<u64> = 1 << 20..=1 << 40;

static LIMITS: Table = Table {
    doc: "Limits on what clients may use at the same time. The defaults are far above the needs of well-behaved \
          clients and far below what would harm the machine.",
    groups: &[&[
        Row {
            name: "sessions",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.sessions.to_string()),
            doc: "Legacy sessions in memory. Beyond it the sessions that were unused for longest are removed from \
                  memory: their ids remain valid, but their resumable streams are lost. Too small: this happens to \
                  clients that are still there. Too large: more memory (about 2 KB each).",
        },
        Row {
            name: "sessions_per_client",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.sessions_per_client.to_string()),
            doc: "Share of `sessions` for one client: all sessions with the same credential, or without `auth` all \
                  sessions of this machine. Beyond it the client's own sessions are removed, not those of other \
                  clients. Too large: one client can displace the sessions of others.",
        },
        Row {
            name: "in_flight",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.in_flight.to_string()),
            doc: "Requests without an answer yet. More are refused with 503. Too small: busy clients are refused. Too \
                  large: more memory for requests and answers.",
        },
        Row {
            name: "in_flight_per_client",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.in_flight_per_client.to_string()),
            doc: "Share of `in_flight` for one client, over all its sessions. More are refused with 429. Too small: a \
                  busy client is refused. Too large: one client can keep every server busy.",
        },
        Row {
            name: "connections",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.connections.to_string()),
            doc: "Open connections. A connection carries one request or one stream at a time, so this limits both. A \
                  quarter is reserved for connections that have authenticated, or without `auth` for connections that \
                  have sent a complete request. Of the others, the oldest is closed to make room for a new one; if \
                  there is none, the new one gets 503 and is closed. The value is lowered at the start if the limit \
                  of open files is too low.",
        },
        Row {
            name: "connections_per_client",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.connections_per_client.to_string()),
            doc: "Share of `connections` for one client, which is an IPv4 address or an IPv6 network of 64 bits. A \
                  quarter is reserved in the same way. Too small: clients behind one address displace each other. Too \
                  large: one address can use up `connections`.",
        },
        Row {
            name: "first_request_timeout",
            kind: ValueKind::Duration(DurationRange::between(
                Duration::from_millis(100),
                Duration::from_secs(60),
            )),
            default: DefaultValue::Gateway(|gateway| show(gateway.limits.first_request_timeout)),
            doc: "Time that a connection may take for the head of a request before it has authenticated; then it is \
                  closed. Without `auth` this holds until the connection has sent a complete request. Too short: \
                  clients with slow connections are cut off. Too long: connections that send nothing take up room.",
        },
        Row {
            name: "requests",
            kind: ValueKind::Number(0..=1_000_000),
            default: DefaultValue::Described("1000 with `auth`, no limit without"),
            doc: "Requests per second for each principal, and for each address (IPv6: network of 64 bits) for \
                  requests without a valid credential; a burst may be as large. Each message of a batch counts. More \
                  are refused with 429. `/healthz`, `/readyz` and the control socket are exempt. 0 means no limit. \
                  Too small: busy clients are refused. Too large: one client can keep the gateway busy.",
        },
        Row {
            name: "memory",
            kind: ValueKind::Size(MEMORY_RANGE),
            default: DefaultValue::Gateway(|gateway| size(gateway.limits.memory)),
            doc: "Memory for request bodies and answers. A request beyond it is refused with 503; an answer beyond it \
                  ends its call with `overloaded`, outcome `done`. Too small: large answers are lost. Too large: \
                  clients that do not read can fill the machine's memory.",
        },
        Row {
            name: "memory_per_client",
            kind: ValueKind::Size(MEMORY_RANGE),
            default: DefaultValue::Gateway(|gateway| size(gateway.limits.memory_per_client)),
            doc: "Share of `memory` for one client. A request beyond it is refused with 429; an answer beyond it ends \
                  its call in the same way. Too small: large answers are lost. Too large: one client can use up \
                  `memory`.",
        },
        Row {
            name: "nesting",
            kind: ValueKind::Number(16..=100_000),
            default: DefaultValue::Gateway(|gateway| gateway.limits.nesting.to_string()),
            doc: "Levels of nested arrays and objects in the arguments of a request and in a result. A deeper request \
                  is refused; a deeper result ends its call with an error. Too small: valid structured data is \
                  refused. Too large: clients and servers that parse recursively crash on it.",
        },
        Row {
            name: "suspended_calls",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.suspended_calls.to_string()),
            doc: "Calls of modern clients that wait until their client comes back with input. Beyond it the oldest \
                  one of the client with the most is cancelled: the server is notified, and the client must call \
                  again. Too small: people who take long to answer lose their calls. Too large: more memory.",
        },
        Row {
            name: "suspended_calls_per_client",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.suspended_calls_per_client.to_string()),
            doc: "Share of `suspended_calls` for one client. Beyond it the client's own oldest call is cancelled, not \
                  one of another client.",
        },
        Row {
            name: "questions",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.questions.to_string()),
            doc: "Requests of servers that clients have not answered. Beyond it the oldest one of the client with \
                  the most is cancelled, and the server gets an error or a cancellation. Too small: servers do not get \
                  the answers of people who take long. Too large: more memory.",
        },
        Row {
            name: "questions_per_client",
            kind: ValueKind::Number(COUNT_RANGE),
            default: DefaultValue::Gateway(|gateway| gateway.limits.questions_per_client.to_string()),
            doc: "Share of `questions` for one client, over all its sessions. Beyond it the client's own oldest one \
                  is cancelled.",
        },
    ]],
};
