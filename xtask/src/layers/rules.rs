//! Allowed dependencies between crates and between modules, each with its reason.
//!
//! A new crate needs a rule in [`CRATES`]. A new dependency changes this file, and thereby the architecture.

/// Allowed dependencies of a workspace crate. Its dev-dependencies may add [`TESTS_MAY_USE`] and any external crate.
pub(super) struct CrateRule {
    pub(super) name: &'static str,
    pub(super) may_use: &'static [&'static str],
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
        may_use: &[],
        outside: Outside::Pure,
        why: "core decides without clock, runtime or IO, so that a test of twelve idle hours takes a microsecond",
    },
    CrateRule {
        name: "gripfast-wire",
        may_use: &["gripfast-core"],
        outside: Outside::Pure,
        why: "wire reads and writes MCP messages as byte slices; the transports do the IO",
    },
    CrateRule {
        name: "gripfast-http1",
        may_use: &[],
        outside: Outside::Any,
        why: "http1 reads and writes HTTP messages for both sides of the gateway; it knows neither MCP nor the config",
    },
    CrateRule {
        name: "gripfast-cluster",
        may_use: &["gripfast-core"],
        outside: Outside::Any,
        why: "cluster performs what core::placement decides on the store; it knows neither servers nor clients",
    },
    CrateRule {
        name: "gripfast",
        may_use: &["gripfast-core", "gripfast-http1", "gripfast-wire"],
        outside: Outside::Any,
        why: "other programs embed the library, so it contains neither the gateway nor the sample server",
    },
    CrateRule {
        name: "gripfast-demo",
        may_use: &[],
        outside: Outside::Any,
        why: "the sample server shares no code with the host: with the same parser, tests would not notice its mistakes",
    },
    CrateRule {
        name: "gripfast-gateway",
        may_use: &["gripfast", "gripfast-cluster", "gripfast-demo", "gripfast-http1"],
        outside: Outside::Any,
        why: "the gateway uses the public library like any program that embeds it; messages are read with its re-export `gripfast::wire`",
    },
    CrateRule {
        name: "gripfast-chaos",
        may_use: &["gripfast-measure", "gripfast-testkit"],
        outside: Outside::Any,
        why: "chaos tests the gateway from outside, through its command line and MCP, like any other gateway; the peers of the test kit share no code with it",
    },
    CrateRule {
        name: "gripfast-bench",
        may_use: &["gripfast-measure"],
        outside: Outside::Any,
        why: "bench measures the gateway from outside, through its command line and MCP, like any other gateway",
    },
    CrateRule {
        name: "gripfast-measure",
        may_use: &[],
        outside: Outside::Any,
        why: "what measures a gateway is independent of the measured code",
    },
    CrateRule {
        name: "gripfast-counts",
        may_use: &["gripfast-core", "gripfast-wire"],
        outside: Outside::Pure,
        why: "only the pure parts of a call are counted",
    },
    CrateRule {
        name: "gripfast-testkit",
        may_use: &["gripfast-measure"],
        outside: Outside::Any,
        why: "the peers in tests share no code with the tested crates",
    },
    CrateRule {
        name: "rmcp-peer",
        may_use: &[],
        outside: Outside::Any,
        why: "a real peer shares no code with the tested crates",
    },
    CrateRule {
        name: "conformance-server",
        may_use: &[],
        outside: Outside::Any,
        why: "with our own parser, client and server would agree on the same mistake",
    },
    CrateRule {
        name: "xtask",
        may_use: &[],
        outside: Outside::Any,
        why: "xtask compiles before everything else",
    },
];

/// Workspace crates that any dev-dependencies may name.
pub(super) const TESTS_MAY_USE: &[&str] = &["gripfast-testkit", "gripfast-demo"];

/// External crates without clock, runtime, randomness or IO.
pub(super) const PURE: &[&str] = &[
    "base64",
    "globset",
    "itoa",
    "memchr",
    "ref-cast",
    "serde",
    "serde_json",
    "serde_json_canonicalizer",
    "sha2",
    "smallvec",
    "snowball_stemmers_rs",
    "strsim",
    "thiserror",
    // Parses and formats. clippy.toml bans `Url::socket_addrs`, which resolves names.
    "url",
];

/// A ban: code in `within` must not name a path in `never`, except in `except`. Test code may.
///
/// Modules are written in full from the name of the crate. A path in `never` also matches as part of a longer path: the
/// rule on `Instant::now` covers std and tokio.
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
        why: "core and wire take `now` and bytes as arguments; Cargo cannot keep the clocks and IO of std out",
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
        why: "one file reads clocks and entropy, so that tests control the time and print their seeds",
    },
    PathRule {
        within: &["gripfast_core", "gripfast_cluster", "gripfast", "gripfast_gateway"],
        never: &["Json::assume_valid", "JsonText::assume_valid"],
        except: &["gripfast_core::json_text"],
        why: "JSON is checked where it enters; only wire takes values apart and puts them together",
    },
    PathRule {
        within: &["gripfast_cluster"],
        never: &["Instant::now", "SystemTime::now", "clock_gettime"],
        except: &["gripfast_cluster::clock"],
        why: "leases count on two clocks together, which one file reads",
    },
    PathRule {
        within: &["gripfast_gateway"],
        never: &["SystemTime::now"],
        except: &[],
        why: "the gateway reads the wall clock with `gripfast::Clock` and `gripfast::unix_time`",
    },
    PathRule {
        within: &["gripfast", "gripfast_gateway"],
        never: &["PoisonError", "std::sync::Mutex", "std::sync::RwLock"],
        except: &["gripfast::sync"],
        why: "the locks of `gripfast::sync` ignore poisoning, so that no caller has to",
    },
    PathRule {
        within: &["gripfast::transport"],
        never: &["gripfast::policy", "gripfast_core::policy"],
        except: &[],
        why: "a transport moves bytes; policy is decided before",
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
        why: "a config in the current directory is used only if it is trusted, which cli::config::load decides",
    },
    PathRule {
        within: &["gripfast::observe"],
        never: &["gripfast::upstream", "gripfast::transport"],
        except: &[],
        why: "observe sees events and never acts",
    },
];

/// Modules that must not name each other.
pub(super) struct Independent {
    pub(super) modules: &'static [&'static str],
    pub(super) why: &'static str,
}

pub(super) const INDEPENDENT: &[Independent] = &[Independent {
    modules: &[
        "gripfast_core::cache",
        "gripfast_core::catalog",
        "gripfast_core::isolation",
        "gripfast_core::placement",
        "gripfast_core::policy",
        "gripfast_core::search",
        "gripfast_core::session_state",
        "gripfast_core::supervise",
    ],
    why: "each makes one kind of decision; the host combines them in one readable call function",
}];
