//! Inbox of one link for unsolicited server messages. The supervisor starts to read it when the link is in use, so
//! messages of a link that is still being opened, or was given up, reach no client by mistake.

use super::in_flight::InFlightCalls;
use super::{LOG_MESSAGE, Secrets, StderrRing};
use bytes::Bytes;
use gripfast_core::failure::Evidence;
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::Attribution;
use gripfast_wire::envelope::Message;
use gripfast_wire::results::Progress;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// Report of a link to its supervisor.
#[derive(Debug)]
pub enum Incoming {
    /// Request or notification of the server.
    Message(Bytes),
    /// Request of the server that is not certainly about one call. Links put in plain messages; the inbox turns them
    /// into this.
    ServerRequest {
        /// JSON-RPC request.
        message: Bytes,
        /// Attribution of the request.
        attribution: Attribution,
    },
    /// Notification that may be about the calls of any of several principals, and is therefore given to none. As with
    /// requests, the inbox turns plain messages into this.
    Unattributed {
        /// True if a call is in flight whose client might otherwise have got it.
        has_calls: bool,
    },
    /// The link is lost.
    Lost(Evidence),
    /// The stream for unsolicited messages was refused, or the server could not be reached for it. The link itself may
    /// be lost too, so the supervisor checks it.
    StreamRefused {
        /// Session of the stream, which may have ended; calls that began in it may still be in flight.
        session: Option<String>,
        /// Evidence of the refusal.
        evidence: Evidence,
    },
    /// The server writes lines that are not MCP.
    Junk {
        /// Number of such lines so far.
        lines: u64,
        /// Beginning of the last one.
        sample: String,
    },
}

/// Channel from a link to its supervisor. Bounded: a link whose supervisor is busy waits.
///
/// A message that names no call is given to the caller that it belongs to, if no other is possible; the supervisor gets
/// the rest.
#[derive(Debug, Clone)]
pub struct Inbox {
    sender: mpsc::Sender<Incoming>,
    in_flight: Arc<InFlightCalls>,
}

impl Inbox {
    /// Messages that are buffered before the supervisor reads.
    const CAPACITY: usize = 256;

    /// Creates an inbox and the receiver for its supervisor.
    pub fn new() -> (Self, mpsc::Receiver<Incoming>) {
        let (to, from) = mpsc::channel(Self::CAPACITY);
        (Self { sender: to, in_flight: Arc::default() }, from)
    }

    /// Puts in a message; waits while the supervisor is busy. Without a supervisor the message is dropped.
    pub async fn put(&self, incoming: Incoming) {
        let for_supervisor = match incoming {
            Incoming::Message(message) => self.route(message),
            other => Some(other),
        };
        if let Some(incoming) = for_supervisor {
            let _ = self.sender.send(incoming).await;
        }
    }

    /// Returns the calls in flight on this link.
    pub(crate) fn in_flight(&self) -> &Arc<InFlightCalls> {
        &self.in_flight
    }

    /// Gives a message to its caller, or returns it for the supervisor.
    fn route(&self, message: Bytes) -> Option<Incoming> {
        let is_request = match Message::parse(&message) {
            Ok(Message::Request(request)) if request.method != "ping" => true,
            Ok(Message::Notification(notification)) if notification.method == LOG_MESSAGE => false,
            Ok(Message::Notification(notification)) if notification.method == Progress::METHOD => {
                let token = notification
                    .params
                    .and_then(Progress::read)
                    .and_then(|notification| notification.token.as_minted());
                return match token.and_then(|id| self.in_flight.get(id)) {
                    Some(call) => {
                        call.on_message(&message);
                        None
                    }
                    None => Some(Incoming::Message(message)),
                };
            }
            Ok(_) | Err(_) => return Some(Incoming::Message(message)),
        };
        let (attribution, newest) = self.in_flight.attribute();
        match (newest, attribution) {
            // A request ends with its call; one that may be about another call must not.
            (Some(_), attribution @ Attribution::Client(_)) if is_request => {
                Some(Incoming::ServerRequest { message, attribution })
            }
            (Some(call), _) => {
                call.on_message(&message);
                None
            }
            (None, attribution) if is_request => Some(Incoming::ServerRequest { message, attribution }),
            (None, Attribution::AmbiguousPrincipal) => {
                Some(Incoming::Unattributed { has_calls: self.in_flight.has_calls() })
            }
            (None, _) => Some(Incoming::Message(message)),
        }
    }
}

/// Resources that a link gets when it is opened.
#[derive(Debug, Clone)]
pub struct LinkContext {
    /// Receives unsolicited server messages.
    pub inbox: Inbox,
    /// Receives the stderr of a child.
    pub stderr: Arc<StderrRing>,
    /// Secrets to redact from everything that the server says.
    pub secrets: Arc<Secrets>,
    /// Children that were started and not yet seen to be gone, including those whose start was abandoned. Stopping the
    /// server waits for them.
    pub(crate) children: TaskTracker,
    /// Id of the host that opens the link.
    pub(crate) host_id: Arc<str>,
    /// Maximum size of a message in bytes.
    pub max_message: usize,
    /// Client of the dedicated instance that the link is for; `None` for the shared instance.
    pub dedicated_to: Option<ClientKey>,
    /// A child of this link is also killed from outside when the lease of its singleton server ends.
    pub(crate) is_leased: bool,
}
