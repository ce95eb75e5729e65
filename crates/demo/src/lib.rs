//! The sample MCP server behind `gripfast demo-server`.
//!
//! It speaks both protocol eras on stdio, on Streamable HTTP (`/mcp`) and on legacy HTTP+SSE (`/sse`), offers a
//! few honest tools (`echo`, `add`, `sleep`, `counter`, …), and can break in every way that a gateway has to
//! survive: by a tool call (`crash`, `misbehave`), by a flag at start ([`Faults`]), or, in a test, by
//! [`RunningServer::set_faults`] while it runs.
//!
//! It shares no code with the gateway's own wire layer, so that a misreading of the protocol there does not
//! cancel itself out here.
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

mod catalog;
mod frame;
mod http;
mod inquire;
mod later;
mod methods;
mod misbehave;
mod options;
mod peer;
mod process;
mod rpc;
mod showcase;
mod stdio;
mod stream;
mod tools;
mod world;

pub use http::{RunningServer, serve_http, start_http};
pub use options::{
    EndpointForm, EraChoice, ExitAtStart, Faults, Lasts, Options, ParseOptionError, Refusal, SessionExpiry,
};
pub use stdio::{serve_on, serve_stdio};
