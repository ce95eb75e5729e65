//! Where a link puts what the server says unasked. Each link has an inbox of its own, which its owner
//! begins to read when the link is in use: what a link says while it is still being made, or after it was
//! given up, reaches nobody by mistake.

use super::underway::Underway;
use super::{LOG_MESSAGE, Secrets, StderrRing};
use bytes::Bytes;
use gripfast_core::failure::Evidence;
use gripfast_core::isolation::Whose;
use gripfast_wire::envelope::Message;
use gripfast_wire::results::Progress;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// What a link may say to its owner.
#[derive(Debug)]
pub enum Incoming {
    /// A request or notification of the server.
    Message(Bytes),
    /// A question of the server that is not certainly about one call. Links put in messages; the inbox tells
    /// which of them are such questions.
    Question {
        /// The request.
        message: Bytes,
        /// What could be told.
        whose: Whose,
    },
    /// A notification that may be about the calls of any of several principals, and so is given to none. As with
    /// questions, the inbox tells which of the messages are such.
    Unattributed {
        /// Whether a call is under way whose client might otherwise have got it.
        beside_calls: bool,
    },
    /// The link is gone.
    Lost(Evidence),
    /// The stream of unasked messages was refused, or the server could not be reached for it. The link
    /// itself may be gone too: this is worth a look.
    StreamRefused {
        /// The session of the stream, which may be over: calls that began in it may still be under way.
        session: Option<String>,
        /// What was seen.
        evidence: Evidence,
    },
    /// The server keeps writing things that are not MCP.
    Junk {
        /// How many lines so far.
        lines: u64,
        /// The beginning of the last one.
        sample: String,
    },
}

/// The way from a link to its owner. Bounded: a link whose owner is busy waits.
///
/// What the server asks or says without naming a call is given to the caller that is meant, if no other can
/// be; the owner gets the rest.
#[derive(Debug, Clone)]
pub struct Inbox {
    to: mpsc::Sender<Incoming>,
    underway: Arc<Underway>,
}

impl Inbox {
    /// What the server may say before its owner listens.
    const CAPACITY: usize = 256;

    /// An inbox, and the end that its owner reads.
    pub fn new() -> (Self, mpsc::Receiver<Incoming>) {
        let (to, from) = mpsc::channel(Self::CAPACITY);
        (Self { to, underway: Arc::default() }, from)
    }

    /// Hands over; waits while the owner is busy. After the owner has gone, nothing matters any more.
    pub async fn put(&self, incoming: Incoming) {
        let for_the_owner = match incoming {
            Incoming::Message(message) => self.address(message),
            other => Some(other),
        };
        if let Some(incoming) = for_the_owner {
            let _ = self.to.send(incoming).await;
        }
    }

    /// The calls under way on this link.
    pub(crate) fn underway(&self) -> &Arc<Underway> {
        &self.underway
    }

    /// Gives a message to the caller that it is for; what remains is for the owner.
    fn address(&self, message: Bytes) -> Option<Incoming> {
        let asks = match Message::parse(&message) {
            Ok(Message::Request(request)) if request.method != "ping" => true,
            Ok(Message::Notification(said)) if said.method == LOG_MESSAGE => false,
            Ok(Message::Notification(said)) if said.method == Progress::METHOD => {
                let token = said.params.and_then(Progress::read).and_then(|said| said.token.as_minted());
                return match token.and_then(|id| self.underway.call(id)) {
                    Some(call) => {
                        call.said(&message);
                        None
                    }
                    None => Some(Incoming::Message(message)),
                };
            }
            Ok(_) | Err(_) => return Some(Incoming::Message(message)),
        };
        let (whose, newest) = self.underway.whose();
        match (newest, whose) {
            // A question ends with its call; one that may be about another call must not.
            (Some(_), whose @ Whose::Client(_)) if asks => Some(Incoming::Question { message, whose }),
            (Some(call), _) => {
                call.said(&message);
                None
            }
            (None, whose) if asks => Some(Incoming::Question { message, whose }),
            (None, Whose::SeveralPrincipals) => {
                Some(Incoming::Unattributed { beside_calls: self.underway.has_calls() })
            }
            (None, _) => Some(Incoming::Message(message)),
        }
    }
}

/// What a link is given for its life.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Where to put what the server says unasked.
    pub inbox: Inbox,
    /// Where to put what a child writes to stderr.
    pub stderr: Arc<StderrRing>,
    /// What nothing that the server says may be shown with.
    pub secrets: Arc<Secrets>,
    /// The children that were started and not yet seen to be gone, also those that nobody took when they were there.
    /// Whoever lets the server go waits for them.
    pub(crate) children: TaskTracker,
    /// The name of the host that opens the link.
    pub(crate) host_id: Arc<str>,
    /// The largest message that is taken, in bytes.
    pub max_message: usize,
}
