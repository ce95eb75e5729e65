//! Where a link puts what the server says unasked. Each link has an inbox of its own, which its owner
//! begins to read when the link is in use: what a link says while it is still being made, or after it was
//! given up, reaches nobody by mistake.

use super::StderrRing;
use bytes::Bytes;
use gripfast_core::failure::Evidence;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What a link may say to its owner.
#[derive(Debug)]
pub enum Incoming {
    /// A request or notification of the server.
    Message(Bytes),
    /// The link is gone.
    Lost(Evidence),
    /// The stream of unasked messages was refused, or the server could not be reached for it. The link
    /// itself may be gone too: this is worth a look.
    StreamRefused(Evidence),
    /// The server keeps writing things that are not MCP.
    Junk {
        /// How many lines so far.
        lines: u64,
        /// The beginning of the last one.
        sample: String,
    },
}

/// The way from a link to its owner. Bounded: a link whose owner is busy waits.
#[derive(Debug, Clone)]
pub struct Inbox {
    to: mpsc::Sender<Incoming>,
}

impl Inbox {
    /// What the server may say before its owner listens.
    const CAPACITY: usize = 256;

    /// An inbox, and the end that its owner reads.
    pub fn new() -> (Self, mpsc::Receiver<Incoming>) {
        let (to, from) = mpsc::channel(Self::CAPACITY);
        (Self { to }, from)
    }

    /// Hands over; waits while the owner is busy. After the owner has gone, nothing matters any more.
    pub async fn put(&self, incoming: Incoming) {
        let _ = self.to.send(incoming).await;
    }
}

/// What a link is given for its life.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Where to put what the server says unasked.
    pub inbox: Inbox,
    /// Where to put what a child writes to stderr.
    pub stderr: Arc<StderrRing>,
    /// The largest message that is taken, in bytes.
    pub max_message: usize,
}
