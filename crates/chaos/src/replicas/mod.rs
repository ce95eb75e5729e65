//! Faults of a service of three replicas on a real store (`cargo xtask chaos --replicas`): replicas are killed, stopped
//! and restarted, the store goes away, and connections between them are cut, while clients send their requests to all
//! replicas in turn.
//!
//! Every call with a side effect has a token that the server records with the value that it answers. The record
//! decides whether a call was executed twice and whether an answer is true.

mod budget;
pub mod fault;
pub mod page;
mod refresh;
pub mod row;
pub mod service;
mod singleton;
mod streams;
mod strike;
mod tables;
