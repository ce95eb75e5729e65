//! MCP endpoint: both eras on one path, HTTP+SSE and stdio, with sample servers of both eras. The clients here are a
//! few lines of raw HTTP, so that no SDK hides mistakes of the gateway. Official clients are in `tests/peers`.

#![expect(clippy::unwrap_used, reason = "tests")]

mod access;
mod aggregation;
mod apps;
mod bad_clients;
mod batches;
mod cache_ttl;
mod client;
mod elicitation;
mod embeddings;
mod eras;
mod exposure;
mod failure;
mod fidelity;
mod gateway_restart;
mod in_flight;
mod isolation;
mod legacy;
mod legacy_results;
mod limits;
mod list_changes;
mod logs;
mod many_clients;
mod memory;
mod modern;
mod nesting;
mod policy;
mod principals;
#[cfg(target_os = "linux")]
mod replicas;
mod request_checks;
mod roots;
mod scripted_server;
mod session_list;
mod shutdown;
#[cfg(target_os = "linux")]
mod socket_activation;
mod status_tool;
mod stdio;
mod stdio_client;
mod subscriptions;
mod tasks;
mod test_gateway;
mod tls;
mod trace;
mod unknown_methods;
mod url_elicitation;
