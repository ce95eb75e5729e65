//! The sample MCP server behind `gripfast demo-server`.
//!
//! It supports both protocol eras on stdio, on Streamable HTTP (`/mcp`) and on legacy HTTP+SSE (`/sse`), offers a few
//! well-behaved tools (`echo`, `add`, `sleep`, `counter`, …), and can fail in every way that a gateway has to handle:
//! by a tool call (`crash`, `misbehave`), by a flag at start ([`Faults`]), or, in a test, by
//! [`RunningServer::set_faults`] while it runs.
//!
//! It shares no code with the gateway's own wire layer, so that a mistake about the protocol in one of them is noticed
//! in tests against the other.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! let server = gripfast_demo::start_http(([127, 0, 0, 1], 0).into(), gripfast_demo::Options::default()).await?;
//! let url = server.url(); // http://127.0.0.1:PORT/mcp
//! server.forget_sessions(); // every client now has a dead session id
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod background_tasks;
mod catalog;
mod elicit;
mod frame;
mod http;
mod methods;
mod misbehave;
mod options;
mod peer;
mod process;
mod rpc;
mod showcase;
mod state;
mod stdio;
mod stream;
mod tools;

pub use http::{RunningServer, serve_http, start_http};
pub use options::{
    EndpointForm, EraChoice, ExitAtStart, Faults, Options, ParseOptionError, Refusal, RefusalDuration,
    SessionExpiry,
};
pub use stdio::{serve_on, serve_stdio};
