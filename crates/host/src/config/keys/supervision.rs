//! The supervision keys of a server: lifecycle, keepalive, restarts, timeouts and queue limits.

use super::choices::WHEN_DOWN;
use super::{DefaultValue, DurationRange, Row, Table, ValueKind, choices, or_off, show};
use gripfast_core::supervise::spec::KeepaliveSpec;
use std::time::Duration;

/// The shortest time that a clock of milliseconds can wait.
const AT_LEAST_1_MS: DurationRange = DurationRange::at_least(Duration::from_millis(1));

/// Long enough that repeated attempts do not become a storm.
const AT_LEAST_100_MS: DurationRange = DurationRange::at_least(Duration::from_millis(100));

pub(super) const SUPERVISION: &[Row] = &[
    Row {
        name: "disabled",
        kind: ValueKind::Flag,
        default: DefaultValue::Server(|spec| spec.disabled.to_string()),
        doc: "Keep the server in the config without using it.",
    },
    Row {
        name: "enabled",
        kind: ValueKind::Flag,
        default: DefaultValue::Absent,
        doc: "The opposite of `disabled`; set only one of them.",
    },
    Row {
        name: "lazy",
        kind: ValueKind::Flag,
        default: DefaultValue::Server(|spec| spec.supervision.lazy.to_string()),
        doc: "Start the server on first use instead of at once. Its tools are listed from the stored catalog, so the \
              server must have run once.",
    },
    Row {
        name: "idle_timeout",
        kind: ValueKind::Duration(AT_LEAST_100_MS),
        default: DefaultValue::Server(|spec| show(spec.supervision.idle_timeout)),
        doc: "Time without use after which a lazy server, or a dedicated instance, is stopped. Too short: calls wait \
              for its start. Too long: it uses memory for nothing.",
    },
    Row {
        name: "when_down",
        kind: ValueKind::Choice(|| choices::names(WHEN_DOWN)),
        default: DefaultValue::Server(|spec| choices::name_of(WHEN_DOWN, &spec.supervision.when_down)),
        doc: "Listing of tools while their server is down: `keep` leaves them listed byte for byte, and a call waits \
              or gets an error at once; `withdraw` removes them from the list while the server is parked.",
    },
    Row {
        name: "keepalive_interval",
        kind: ValueKind::Duration(DurationRange::at_least(KeepaliveSpec::SHORTEST_INTERVAL).or_off()),
        default: DefaultValue::Server(|spec| or_off(spec.supervision.keepalive.interval)),
        doc: "Silence after which an idle server is probed. Too long: a call is the first to notice that the server \
              is gone. Too short: needless probes.",
    },
    Row {
        name: "keepalive_timeout",
        kind: ValueKind::Duration(AT_LEAST_100_MS),
        default: DefaultValue::Server(|spec| show(spec.supervision.keepalive.timeout)),
        doc: "Time limit for the answer to a probe; after it the connection is replaced. Too short: a busy server \
              is restarted. Too long: calls wait for a server that hangs.",
    },
    Row {
        name: "circuit",
        kind: ValueKind::Table(&CIRCUIT),
        default: DefaultValue::Absent,
        doc: "Circuit breaker: when to stop sending calls over a failing connection.",
    },
    Row {
        name: "restart",
        kind: ValueKind::Table(&RESTART),
        default: DefaultValue::Absent,
        doc: "Restart policy for a lost server: pauses between attempts, and when it is parked.",
    },
    Row {
        name: "spare",
        kind: ValueKind::Number(0..=1),
        default: DefaultValue::Server(|spec| u32::from(spec.supervision.spare).to_string()),
        doc: "1 keeps a second child process ready, which takes over when the first one dies. Costs a second process. \
              For servers with a `command`.",
    },
    Row {
        name: "recycle",
        kind: ValueKind::Table(&RECYCLE),
        default: DefaultValue::Absent,
        doc: "Replacement of a connection that still works, for servers that leak. The new connection is made first.",
    },
];

pub(super) const CALL_LIMITS: &[Row] = &[
    Row {
        name: "timeouts",
        kind: ValueKind::Table(&TIMEOUTS),
        default: DefaultValue::Absent,
        doc: "Time limits of connection attempts and calls.",
    },
    Row {
        name: "max_in_flight",
        kind: ValueKind::Number(1..=65_536),
        default: DefaultValue::Server(|spec| spec.supervision.max_in_flight.to_string()),
        doc: "Requests in flight to the server at once; more wait. Too small: calls queue behind slow ones. Too \
              large: the server may be overloaded.",
    },
    Row {
        name: "max_waiting",
        kind: ValueKind::Number(0..=1_000_000),
        default: DefaultValue::Server(|spec| spec.supervision.max_waiting.to_string()),
        doc: "Requests that may wait, for a slot or for the connection. More are refused as overloaded. Too small: \
              short bursts are refused. Too large: more memory, and long waits.",
    },
];

static CIRCUIT: Table = Table {
    doc: "Circuit breaker: when to stop sending calls over a failing connection.",
    groups: &[&[
        Row {
            name: "threshold",
            kind: ValueKind::Number(1..=10_000),
            default: DefaultValue::Server(|spec| spec.supervision.circuit.threshold.to_string()),
            doc: "Consecutive failures of the connection that open the circuit. Too small: one short failure refuses \
                  calls. Too large: many calls wait for a server that is gone.",
        },
        Row {
            name: "cooldown",
            kind: ValueKind::Duration(AT_LEAST_100_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.circuit.cooldown)),
            doc: "Time that the circuit stays open before one call is let through as a trial. Too long: a server that \
                  is back goes unused. Too short: trial calls fail while the server is still down.",
        },
    ]],
};

static RESTART: Table = Table {
    doc: "Restart policy for a lost server: pauses between attempts, and when it is parked. The gateway never gives \
          up.",
    groups: &[&[
        Row {
            name: "max",
            kind: ValueKind::Number(0..=10_000),
            default: DefaultValue::Server(|spec| spec.supervision.restart.max.to_string()),
            doc: "Restarts within `window` that are tolerated; one more parks the server. Too small: a server with a \
                  short problem is parked. Too large: a broken server is restarted for longer.",
        },
        Row {
            name: "window",
            kind: ValueKind::Duration(AT_LEAST_100_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.restart.window)),
            doc: "Period in which `max` is counted. A server that is down for all of it is parked too. Too short: \
                  repeated restarts are not counted together. Too long: a server is parked because of old restarts.",
        },
        Row {
            name: "backoff_min",
            kind: ValueKind::Duration(AT_LEAST_1_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.restart.backoff_min)),
            doc: "First pause after the immediate retry. The pauses grow from there. Too short: a failing server is \
                  tried in quick succession. Too long: a short outage lasts longer.",
        },
        Row {
            name: "backoff_max",
            kind: ValueKind::Duration(AT_LEAST_1_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.restart.backoff_max)),
            doc: "Longest pause. Too long: a server that is back goes unused. Too short: a remote server gets \
                  attempts all the time.",
        },
        Row {
            name: "parked_probe",
            kind: ValueKind::Duration(AT_LEAST_100_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.restart.parked_probe)),
            doc: "Interval at which a parked server is tried without a call. Too long: a server that is back is \
                  noticed late. Too short: needless attempts.",
        },
    ]],
};

static RECYCLE: Table = Table {
    doc: "Replacement of a connection that still works. The new connection is made first.",
    groups: &[&[
        Row {
            name: "max_lifetime",
            kind: ValueKind::Duration(DurationRange::at_least(Duration::from_secs(1))),
            default: DefaultValue::Absent,
            doc: "Replace the connection after this time. Too short: needless restarts.",
        },
        Row {
            name: "max_rss",
            kind: ValueKind::Size(1 << 20..=1 << 40),
            default: DefaultValue::Absent,
            doc: "Replace the connection when the child process and its descendants use more memory than this. For \
                  servers with a `command`. Too small: a healthy server is replaced again and again.",
        },
    ]],
};

static TIMEOUTS: Table = Table {
    doc: "Time limits of connection attempts and calls.",
    groups: &[&[
        Row {
            name: "connect",
            kind: ValueKind::Duration(AT_LEAST_1_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.timeouts.connect)),
            doc: "First attempt to connect to the server or to start it, with the handshake. With `npx`, `uvx`, \
                  `pipx`, `bunx` and `docker`, which may download the server first, the default is `connect_max`.",
        },
        Row {
            name: "connect_max",
            kind: ValueKind::Duration(AT_LEAST_1_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.timeouts.connect_max)),
            doc: "Longest attempt. After an attempt that timed out the next one gets twice its time, up to this \
                  limit, so that a slow server comes up. Too short: a slow server is stopped before it is ready. Too \
                  long: a server that hangs at start is noticed late.",
        },
        Row {
            name: "call",
            kind: ValueKind::Duration(AT_LEAST_1_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.timeouts.call)),
            doc: "Whole call: waiting, all attempts and the answer. Progress does not extend it; time in which the \
                  server waits for input from the client does not count. Too short: long calls fail. Too long: \
                  clients wait for calls that hang.",
        },
        Row {
            name: "progress",
            kind: ValueKind::Duration(AT_LEAST_1_MS),
            default: DefaultValue::Server(|spec| show(spec.supervision.timeouts.progress)),
            doc: "Longest silence between two progress notifications of one call, counted from the first one. Too \
                  short: calls with rare progress fail. Too long: calls that hang are noticed late.",
        },
        Row {
            name: "reconnect_wait",
            kind: ValueKind::Duration(DurationRange::at_least(Duration::ZERO)),
            default: DefaultValue::Server(|spec| show(spec.supervision.timeouts.reconnect_wait)),
            doc: "Time that a call waits for a connection that is being made; with 0s it gets an error at once. Too \
                  short: calls fail during a short reconnect. Too long: clients wait for a server that does not come \
                  back.",
        },
    ]],
};
