//! What a server says unasked: changed lists, questions, farewells of streams.

use super::{Live, Upstream};
use crate::transport::{Incoming, LOG_MESSAGE};
use gripfast_core::event::Event;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Failure};
use gripfast_core::ids::Epoch;
use gripfast_core::supervise::upstream::{Input, ProbeAnswer};
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::results::List;
use gripfast_wire::{Era, RawValue, codes};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to listen in the modern era.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);

impl Upstream {
    /// Takes what a link says; answers with what the machine has to know.
    pub(super) fn heard(self: &Arc<Self>, epoch: Epoch, incoming: Incoming) {
        match incoming {
            Incoming::Message(message) => self.heard_message(epoch, &message),
            Incoming::Question { message, whose } => {
                self.tell(Input::Heard { epoch });
                if let Some(live) = self.live().filter(|live| live.epoch == epoch) {
                    self.asked(&live, message, whose);
                }
            }
            Incoming::Lost(evidence) => self.tell(Input::LinkDown { epoch, failure: classify(&evidence) }),
            Incoming::StreamRefused(evidence) => match classify(&evidence) {
                // A server may decline the stream and be well otherwise.
                Failure::Declined(_) | Failure::Outdated(_) | Failure::Nonsense(_) | Failure::Busy { .. } => {
                }
                failure @ (Failure::Unreachable(_)
                | Failure::SessionExpired(_)
                | Failure::CredentialRefused(_)) => {
                    self.tell(Input::ProbeEnded { epoch, answer: ProbeAnswer::Failed(failure) });
                }
                // Gateways cut idle streams; that costs the link only if the server is gone too.
                Failure::Lost(_) | Failure::TimedOut(_) | Failure::ServerFault(_) | Failure::Blocked(_) => {
                    let Some(live) = self.live().filter(|live| live.epoch == epoch) else { return };
                    let upstream = Arc::clone(self);
                    tokio::spawn(async move { upstream.look_after(&live).await });
                }
            },
            Incoming::Junk { lines, sample } => {
                self.observer.tell(self.clock.now(), Event::JunkSkipped { lines, sample });
            }
        }
    }

    /// Asks whether the server is there, out of turn, and tells the machine.
    async fn look_after(&self, live: &Live) {
        let answer = self.probe(live, live.first_probe()).await;
        self.tell(Input::ProbeEnded { epoch: live.epoch, answer });
    }

    fn heard_message(self: &Arc<Self>, epoch: Epoch, bytes: &[u8]) {
        match Message::parse(bytes) {
            Ok(Message::Notification(notification)) => {
                let changed = List::ALL.iter().any(|list| list.changed() == notification.method);
                self.tell(if changed { Input::CatalogChanged { epoch } } else { Input::Heard { epoch } });
                if notification.method == LOG_MESSAGE {
                    self.said_to_client(bytes);
                }
            }
            Ok(Message::Request(request)) => {
                self.tell(Input::Heard { epoch });
                if let Some(live) = self.live().filter(|live| live.epoch == epoch) {
                    live.answers.put(own_answer(&request));
                }
            }
            Ok(Message::Response(_)) | Err(_) => {}
        }
    }

    /// Listens for changed lists in the modern era, where that is a request of its own, for as long as
    /// the link of this epoch is in use.
    pub(super) async fn subscribe(self: Arc<Self>, live: Arc<Live>) {
        if self.role.is_own() {
            return;
        }
        let Some(params) = wanted(&live) else { return };
        loop {
            let ended = self.listen_once(&live, &params).await;
            let current = self.live().is_some_and(|now| now.epoch == live.epoch);
            if !current || !ended {
                return;
            }
            tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
        }
    }

    /// One subscription, until it ends. Answers whether another one is worth trying.
    async fn listen_once(&self, live: &Live, params: &RawValue) -> bool {
        let Ok(params) = live.context.apply_to(Some(params)) else { return false };
        let id = self.mint_id();
        let method = "subscriptions/listen";
        let request = crate::transport::Outgoing {
            id,
            method: method.to_owned(),
            message: envelope::request(id, method, Some(&params)),
            name: None,
            param_headers: Vec::new(),
            during: During::Probe,
            sent: Arc::default(),
            listener: None,
        };
        let failure = match live.link.request(&live.session, request).await {
            Ok(reply) => match Message::parse(&reply.message) {
                Ok(Message::Response(envelope::Response {
                    outcome: gripfast_wire::Outcome::Error(_),
                    ..
                })) => return false,
                Ok(_) | Err(_) => None,
            },
            Err(trouble) => Some(classify(&trouble.evidence)),
        };
        match failure {
            Some(Failure::Declined(_)) => return false,
            Some(failure @ Failure::Unreachable(_)) => {
                self.tell(Input::ProbeEnded { epoch: live.epoch, answer: ProbeAnswer::Failed(failure) });
            }
            // The stream's end may be the server's end: ask, before anybody calls.
            None | Some(_) => self.look_after(live).await,
        }
        true
    }
}

/// What we say to a question when nobody else does.
pub(super) fn own_answer(request: &envelope::Request<'_>) -> Vec<u8> {
    match &*request.method {
        "ping" => envelope::response(request.id, &super::dial::raw("{}")),
        method => envelope::error_response(
            Some(request.id),
            codes::METHOD_NOT_FOUND,
            &format!("this client does not answer `{method}`"),
            None,
        ),
    }
}

/// The filter for what the server says it can tell; `None` if that is nothing.
fn wanted(live: &Live) -> Option<Box<RawValue>> {
    let offers = live.server.capabilities;
    if live.session.era == Era::Legacy {
        return None;
    }
    let mut filter = Vec::new();
    for (offered, member) in [
        (offers.tools_changes, "toolsListChanged"),
        (offers.prompts_changes, "promptsListChanged"),
        (offers.resources_changes, "resourcesListChanged"),
    ] {
        if offered {
            filter.push(format!("\"{member}\":true"));
        }
    }
    (!filter.is_empty()).then(|| super::dial::raw(&format!("{{\"notifications\":{{{}}}}}", filter.join(","))))
}
