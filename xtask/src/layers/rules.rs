//! Who may know whom: the whole table, each line with its reason.
//!
//! A new crate needs a line in [`CRATES`]; a new arrow is a change to this file, and so to the architecture.

/// What a crate of this workspace may depend on. Its dev-dependencies may add [`TESTS_MAY_USE`] and any outside crate.
pub(super) struct CrateRule {
    pub(super) name: &'static str,
    pub(super) knows: &'static [&'static str],
    pub(super) outside: Outside,
    pub(super) why: &'static str,
}

pub(super) enum Outside {
    Any,
    /// Only [`PURE`].
    Pure,
}

pub(super) const CRATES: &[CrateRule] = &[
    CrateRule {
        name: "gripfast-core",
        knows: &[],
        outside: Outside::Pure,
        why: "core decides: no clock, no runtime, no IO, so that twelve idle hours are a microsecond in a test",
    },
    CrateRule {
        name: "gripfast-wire",
        knows: &["gripfast-core"],
        outside: Outside::Pure,
        why: "wire is MCP as bytes: what it reads and writes are slices, and somebody else moves them",
    },
    CrateRule {
        name: "gripfast",
        knows: &["gripfast-core", "gripfast-wire"],
        outside: Outside::Any,
        why: "the library is embedded by others: it brings neither the gateway nor the sample server",
    },
    CrateRule {
        name: "gripfast-demo",
        knows: &[],
        outside: Outside::Any,
        why: "the sample server is a stranger: with our parser it would share our mistakes, and tests would not see them",
    },
    CrateRule {
        name: "gripfast-gateway",
        knows: &["gripfast", "gripfast-demo"],
        outside: Outside::Any,
        why: "the gateway goes through the library like anybody who embeds it, and not past it to core or wire",
    },
    CrateRule {
        name: "gripfast-chaos",
        knows: &["gripfast-place"],
        outside: Outside::Any,
        why: "chaos judges the gateway from outside, by its command line and by MCP, as it would judge any other",
    },
    CrateRule {
        name: "gripfast-bench",
        knows: &["gripfast-place"],
        outside: Outside::Any,
        why: "the bench measures the gateway from outside, by its command line and by MCP, as it would any other",
    },
    CrateRule {
        name: "gripfast-place",
        knows: &[],
        outside: Outside::Any,
        why: "what a page of figures says of its machine is no part of what was measured",
    },
    CrateRule {
        name: "gripfast-counts",
        knows: &["gripfast-core", "gripfast-wire"],
        outside: Outside::Pure,
        why: "what is counted are the pure parts, and nothing that would count something else with them",
    },
    CrateRule {
        name: "gripfast-testkit",
        knows: &[],
        outside: Outside::Any,
        why: "what plays the other side in tests shares no code with ours",
    },
    CrateRule { name: "rmcp-peer", knows: &[], outside: Outside::Any, why: "a real peer is a stranger" },
    CrateRule {
        name: "conformance-server",
        knows: &[],
        outside: Outside::Any,
        why: "with our parser it would pass where only we agree with ourselves",
    },
    CrateRule {
        name: "xtask",
        knows: &[],
        outside: Outside::Any,
        why: "chores compile before everything else",
    },
];

/// Ours, for dev-dependencies only.
pub(super) const TESTS_MAY_USE: &[&str] = &["gripfast-testkit", "gripfast-demo"];

/// Outside crates without clock, runtime, randomness or IO.
pub(super) const PURE: &[&str] = &[
    "base64",
    "globset",
    "memchr",
    "serde",
    "serde_json",
    "serde_json_canonicalizer",
    "sha2",
    "strsim",
    "thiserror",
    // Parses and prints; `Url::socket_addrs`, which resolves names, is banned in clippy.toml.
    "url",
];

/// Code in `within` names none of `never`, except in `except`. Tests are free.
///
/// Modules are spelled out from the crate's name. A path that `never` lists is found anywhere in a longer one: the rule
/// on `Instant::now` holds for std's and tokio's alike.
pub(super) struct PathRule {
    pub(super) within: &'static [&'static str],
    pub(super) never: &'static [&'static str],
    pub(super) except: &'static [&'static str],
    pub(super) why: &'static str,
}

pub(super) const PATHS: &[PathRule] = &[
    PathRule {
        within: &["gripfast_core", "gripfast_wire"],
        never: &[
            "Instant::now",
            "SystemTime::now",
            "UNIX_EPOCH::elapsed",
            "std::env",
            "std::fs",
            "std::io::stdin",
            "std::io::stdout",
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::UdpSocket",
            "std::os",
            "std::process",
            "std::thread",
            "RandomState",
        ],
        except: &[],
        why: "core and wire take `now` and bytes as arguments; std brings clocks and IO along, Cargo cannot keep it out",
    },
    PathRule {
        within: &["gripfast"],
        never: &[
            "Instant::now",
            "SystemTime::now",
            "getrandom",
            "rand",
            "fastrand",
            "RandomState",
            "Uuid::new_v4",
            "Uuid::now_v7",
        ],
        except: &["gripfast::clock"],
        why: "one file reads clocks and entropy, so that tests turn time by hand and print their seeds",
    },
    PathRule {
        within: &["gripfast::transport"],
        never: &["gripfast::policy", "gripfast_core::policy"],
        except: &[],
        why: "a transport moves bytes; who may send them was decided before",
    },
    PathRule {
        within: &["gripfast_gateway"],
        never: &["Config::load", "ConfigText::read"],
        except: &[
            "gripfast_gateway::cli::check",
            "gripfast_gateway::cli::config",
            "gripfast_gateway::cli::config_trust",
            "gripfast_gateway::reload",
        ],
        why: "a config of the current directory is used only if it is trusted, and cli::config::load decides that",
    },
    PathRule {
        within: &["gripfast::observe"],
        never: &["gripfast::upstream", "gripfast::transport"],
        except: &[],
        why: "observe watches and never decides: it sees events and nothing that can act",
    },
];

/// Modules of which none may name another.
pub(super) struct Strangers {
    pub(super) modules: &'static [&'static str],
    pub(super) why: &'static str,
}

pub(super) const STRANGERS: &[Strangers] = &[Strangers {
    modules: &[
        "gripfast_core::cache",
        "gripfast_core::catalog",
        "gripfast_core::isolation",
        "gripfast_core::policy",
        "gripfast_core::standing",
        "gripfast_core::supervise",
    ],
    why: "each is a decision of its own; the host brings them together in one readable call function",
}];
