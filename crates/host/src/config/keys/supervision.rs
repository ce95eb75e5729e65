//! The keys of a server that say how it is kept alive.

use super::words::WHEN_DOWN;
use super::{Kind, Row, Span, Table, Usual, or_off, show, words};
use gripfast_core::supervise::spec::KeepaliveSpec;
use std::time::Duration;

/// The least that a clock of milliseconds can wait.
const INSTANT: Span = Span::at_least(Duration::from_millis(1));

/// How often something may be tried without being a storm.
const PATIENT: Span = Span::at_least(Duration::from_millis(100));

pub(super) const LIFE: &[Row] = &[
    Row {
        name: "disabled",
        kind: Kind::Flag,
        usual: Usual::Server(|spec| spec.disabled.to_string()),
        about: "Kept in the config but not used.",
    },
    Row {
        name: "enabled",
        kind: Kind::Flag,
        usual: Usual::Nothing,
        about: "The opposite of `disabled`; one of them is enough.",
    },
    Row {
        name: "lazy",
        kind: Kind::Flag,
        usual: Usual::Server(|spec| spec.supervision.lazy.to_string()),
        about: "Start on first use instead of at once. Its tools are listed from what is stored of them, so it has to \
                have run once.",
    },
    Row {
        name: "idle_timeout",
        kind: Kind::Duration(PATIENT),
        usual: Usual::Server(|spec| show(spec.supervision.idle_timeout)),
        about: "How long a lazy server may be unused before it is stopped again. Too short, and calls wait for its \
                start; too long, and it holds memory for nobody. Means nothing without `lazy`.",
    },
    Row {
        name: "when_down",
        kind: Kind::Choice(|| words::of(WHEN_DOWN)),
        usual: Usual::Server(|spec| words::for_meaning(WHEN_DOWN, &spec.supervision.when_down)),
        about: "What happens to the tools of a server that is away: `keep` leaves them listed byte for byte, and a call \
                waits or is answered at once; `withdraw` takes them off the list while it is parked.",
    },
    Row {
        name: "keepalive_interval",
        kind: Kind::Duration(Span::at_least(KeepaliveSpec::SHORTEST_INTERVAL).or_off()),
        usual: Usual::Server(|spec| or_off(spec.supervision.keepalive.interval)),
        about: "Silence after which an idle server is asked whether it is there. Too long, and a call finds out that it \
                is not; too short, and it is asked for nothing.",
    },
    Row {
        name: "keepalive_timeout",
        kind: Kind::Duration(PATIENT),
        usual: Usual::Server(|spec| show(spec.supervision.keepalive.timeout)),
        about: "How long its answer to that may take before the link is replaced. Too short, and a busy server is \
                restarted; too long, and calls wait for one that hangs.",
    },
    Row {
        name: "circuit",
        kind: Kind::Table(&CIRCUIT),
        usual: Usual::Nothing,
        about: "When to stop sending calls into a failing link.",
    },
    Row {
        name: "restart",
        kind: Kind::Table(&RESTART),
        usual: Usual::Nothing,
        about: "How eagerly it is brought back, and when eagerness turns into patience.",
    },
    Row {
        name: "spare",
        kind: Kind::Number(0..=1),
        usual: Usual::Server(|spec| u32::from(spec.supervision.spare).to_string()),
        about: "1 keeps a second child ready, which takes over when the first one dies. Costs a second process. For \
                servers with a `command`.",
    },
    Row {
        name: "recycle",
        kind: Kind::Table(&RECYCLE),
        usual: Usual::Nothing,
        about: "When a link that works is replaced all the same, for servers that leak. The new one is made first.",
    },
];

pub(super) const PATIENCE: &[Row] = &[
    Row {
        name: "timeouts",
        kind: Kind::Table(&TIMEOUTS),
        usual: Usual::Nothing,
        about: "How long anything may take.",
    },
    Row {
        name: "max_in_flight",
        kind: Kind::Number(1..=65_536),
        usual: Usual::Server(|spec| spec.supervision.max_in_flight.to_string()),
        about: "Requests under way at once; more wait. Too small, and calls queue behind slow ones; too large, and the \
                server may choke.",
    },
    Row {
        name: "max_waiting",
        kind: Kind::Number(0..=1_000_000),
        usual: Usual::Server(|spec| spec.supervision.max_waiting.to_string()),
        about: "Requests that may wait, for a slot or for the link. More are refused as overloaded.",
    },
];

static CIRCUIT: Table = Table {
    about: "When to stop sending calls into a failing link.",
    groups: &[&[
        Row {
            name: "threshold",
            kind: Kind::Number(1..=10_000),
            usual: Usual::Server(|spec| spec.supervision.circuit.threshold.to_string()),
            about: "Failures of the link in a row that open the circuit. Too small, and one bad moment refuses calls; \
                    too large, and many calls wait for a server that is not there.",
        },
        Row {
            name: "cooldown",
            kind: Kind::Duration(PATIENT),
            usual: Usual::Server(|spec| show(spec.supervision.circuit.cooldown)),
            about: "How long it stays open before one call is let through to try. Too long, and a server that is back \
                    goes unused.",
        },
    ]],
};

static RESTART: Table = Table {
    about: "How eagerly a lost server is brought back. It is never given up.",
    groups: &[&[
        Row {
            name: "max",
            kind: Kind::Number(0..=10_000),
            usual: Usual::Server(|spec| spec.supervision.restart.max.to_string()),
            about: "Restarts within `window` that are still taken for bad luck; one more parks the server.",
        },
        Row {
            name: "window",
            kind: Kind::Duration(PATIENT),
            usual: Usual::Server(|spec| show(spec.supervision.restart.window)),
            about: "The time in which `max` is counted. Being away for all of it parks the server too.",
        },
        Row {
            name: "backoff_min",
            kind: Kind::Duration(INSTANT),
            usual: Usual::Server(|spec| show(spec.supervision.restart.backoff_min)),
            about: "The first pause after the retry that comes at once. They grow from there.",
        },
        Row {
            name: "backoff_max",
            kind: Kind::Duration(INSTANT),
            usual: Usual::Server(|spec| show(spec.supervision.restart.backoff_max)),
            about: "The longest pause. Too long, and a server that is back goes unused; too short, and a remote one is \
                    asked all the time.",
        },
        Row {
            name: "parked_probe",
            kind: Kind::Duration(PATIENT),
            usual: Usual::Server(|spec| show(spec.supervision.restart.parked_probe)),
            about: "How often a parked server is tried when nobody calls it.",
        },
    ]],
};

static RECYCLE: Table = Table {
    about: "When a link that works is replaced all the same. The new one is made first.",
    groups: &[&[
        Row {
            name: "max_lifetime",
            kind: Kind::Duration(Span::at_least(Duration::from_secs(1))),
            usual: Usual::Nothing,
            about: "Replace it after this time.",
        },
        Row {
            name: "max_rss",
            kind: Kind::Size(1 << 20..=1 << 40),
            usual: Usual::Nothing,
            about: "Replace it when the child and its offspring hold more memory than this. For servers with a \
                    `command`.",
        },
    ]],
};

static TIMEOUTS: Table = Table {
    about: "How long anything may take.",
    groups: &[&[
        Row {
            name: "connect",
            kind: Kind::Duration(INSTANT),
            usual: Usual::Server(|spec| show(spec.supervision.timeouts.connect)),
            about: "The first attempt to connect to the server or to start it, with the handshake. With `npx`, `uvx`, `pipx`, \
                    `bunx` and `docker`, which may download the server first, the default is `connect_max`.",
        },
        Row {
            name: "connect_max",
            kind: Kind::Duration(INSTANT),
            usual: Usual::Server(|spec| show(spec.supervision.timeouts.connect_max)),
            about: "The longest attempt. After an attempt that ran out of time the next one gets twice its time, up to this, so \
                    a server that is slow to start comes up. Too short, and a slow server is stopped before it is ready; \
                    too long, and a server that hangs at start is noticed late.",
        },
        Row {
            name: "call",
            kind: Kind::Duration(INSTANT),
            usual: Usual::Server(|spec| show(spec.supervision.timeouts.call)),
            about: "One call, from being written to being answered. Progress does not extend it.",
        },
        Row {
            name: "progress",
            kind: Kind::Duration(INSTANT),
            usual: Usual::Server(|spec| show(spec.supervision.timeouts.progress)),
            about: "Silence between two progress notifications of one call; counts from the first one.",
        },
        Row {
            name: "reconnect_wait",
            kind: Kind::Duration(Span::at_least(Duration::ZERO)),
            usual: Usual::Server(|spec| show(spec.supervision.timeouts.reconnect_wait)),
            about: "How long a call is held for a link that is being made; with 0s it is answered at once.",
        },
    ]],
};
