//! The command line as its users meet it: the real binary, real child processes, a home directory of its own
//! for every test. What a person reads is kept as snapshots, so that a change of wording is seen in review.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod audit;
#[cfg(unix)]
mod background;
mod call;
#[cfg(unix)]
mod calls;
mod check;
mod connect;
mod demo_server;
mod doctor;
mod edit;
#[cfg(unix)]
mod elsewhere;
mod environment;
#[cfg(target_os = "linux")]
mod file_limit;
mod help;
mod import;
#[cfg(unix)]
mod impostor;
#[cfg(unix)]
mod in_force;
#[cfg(unix)]
mod json;
mod keys;
mod logs;
#[cfg(unix)]
mod modes;
mod operate;
mod pins;
mod policy;
#[cfg(unix)]
mod redaction;
#[cfg(unix)]
mod reload;
mod running;
mod sandbox;
mod schema;
mod serve;
#[cfg(unix)]
mod serving;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod state_dir;
mod status;
mod through;
mod tls;
#[cfg(unix)]
mod token;
mod tools;
#[cfg(unix)]
mod trust;
mod usage;
