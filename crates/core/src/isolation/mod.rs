//! Whether the clients of a server share one instance of it, and whom it means when it asks something
//! without naming a call.
//!
//! An instance is one child process or one session. The base instance is everybody's; an own instance
//! belongs to one client. [`Seats`] says who is served where, [`whose`] whom a question is for. Neither knows
//! how an instance is made.

mod seats;
mod whose;

pub use seats::{Apart, Holder, Needs, Seat, SeatNumber, Seats};
pub use whose::{Caller, ServedPrincipals, Whose, whose};

/// Whether clients share one instance of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// One for everybody, until the server asks something and it cannot be known whom it means. From then on
    /// every client that can be asked has its own, and that is remembered; every client, if the server was serving
    /// several principals.
    #[default]
    Auto,
    /// One for everybody, whatever the server does.
    Shared,
    /// One for each client.
    PerClient,
}
