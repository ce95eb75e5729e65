//! The endpoint with its time turned by hand: nothing but the clock decides when things are over. There is no
//! socket here; requests go straight to the routes.

#![expect(clippy::unwrap_used, reason = "tests")]

mod desk;
mod sessions;
