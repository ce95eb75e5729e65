//! Command line: the real binary, real child processes, and a home directory for each test. Output for people is kept
//! as snapshots, so that a change of wording shows in review.

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
mod effective_config;
mod environment;
#[cfg(unix)]
mod fake_gateway;
#[cfg(target_os = "linux")]
mod file_limit;
#[cfg(unix)]
mod file_modes;
#[cfg(unix)]
mod gateway_process;
mod help;
mod import;
mod in_process_gateway;
#[cfg(unix)]
mod json;
mod keys;
mod kubernetes;
mod logs;
mod pins;
mod policy;
#[cfg(unix)]
mod redaction;
#[cfg(unix)]
mod reload;
#[cfg(unix)]
mod remote_gateway;
mod sandbox;
mod schema;
mod serve;
mod server_actions;
#[cfg(unix)]
mod service;
#[cfg(unix)]
mod service_manager;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod state_dir;
mod status;
mod tls;
#[cfg(unix)]
mod token;
mod tools;
#[cfg(unix)]
mod trust;
mod usage;
mod via_gateway;
