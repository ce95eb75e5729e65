//! What a server says unasked: changed lists and resources, questions, farewells of streams.

use super::exchange::is_request_too_deep;
use super::{Live, Upstream};
use crate::transport::{Incoming, LOG_MESSAGE};
use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::ids::Epoch;
use gripfast_core::standing::Subject;
use gripfast_core::supervise::upstream::{Input, ProbeAnswer};
use gripfast_wire::envelope::{self, Message, Notification};
use gripfast_wire::results::List;
use gripfast_wire::subscriptions::{self, Acknowledged};
use gripfast_wire::{codes, tasks};
use std::sync::Arc;

impl Upstream {
    /// Takes what a link says; answers with what the machine has to know.
    pub(super) fn heard(self: &Arc<Self>, epoch: Epoch, incoming: Incoming) {
        if let Incoming::Message(message) | Incoming::Question { message, .. } = &incoming
            && is_request_too_deep(message, self.settings().nesting)
        {
            return self.heard_too_deep(epoch, message);
        }
        match incoming {
            Incoming::Message(message) => self.heard_message(epoch, &message),
            Incoming::Question { message, whose } => {
                self.tell(Input::Heard { epoch });
                if let Some(live) = self.live().filter(|live| live.epoch == epoch) {
                    self.asked(&live, message, whose);
                }
            }
            Incoming::Unattributed { beside_calls } => {
                self.tell(Input::Heard { epoch });
                self.unattributed(beside_calls);
            }
            Incoming::Lost(evidence) => {
                self.tell(Input::LinkDown { epoch, failure: self.secrets.classify(&evidence) })
            }
            Incoming::StreamRefused { session, .. } if self.is_over(epoch, session.as_deref()) => {}
            Incoming::StreamRefused { evidence, .. } => match self.secrets.classify(&evidence) {
                // A server may decline the stream and be well otherwise.
                Failure::Declined(_)
                | Failure::Outdated(_)
                | Failure::BeyondScope(_)
                | Failure::Nonsense(_)
                | Failure::LacksResources(_)
                | Failure::Busy { .. } => {}
                // A server without such streams may say so with a 404: only a probe tells it from a lost session.
                Failure::SessionExpired(_) => self.tell(Input::SessionDoubted { epoch }),
                failure @ Failure::Unreachable(_) => {
                    self.tell(Input::ProbeEnded { epoch, answer: ProbeAnswer::Failed(failure) });
                }
                // Gateways cut idle streams, and some servers let nobody in there; that costs the link, or the
                // credential, only if the server says the same to a probe.
                Failure::Lost(_)
                | Failure::TimedOut(_)
                | Failure::ServerFault(_)
                | Failure::CredentialRefused(_)
                | Failure::Blocked(_) => {
                    let Some(live) = self.live().filter(|live| live.epoch == epoch) else { return };
                    let upstream = Arc::clone(self);
                    tokio::spawn(async move { upstream.look_after(&live).await });
                }
            },
            Incoming::Junk { lines, sample } => {
                self.announce(self.clock.now(), Event::JunkSkipped { lines, sample });
            }
        }
    }

    /// A message that is nested too deeply is not passed on. A question is answered with an error.
    fn heard_too_deep(&self, epoch: Epoch, message: &[u8]) {
        self.tell(Input::Heard { epoch });
        let live = self.live().filter(|live| live.epoch == epoch);
        if let (Ok(Message::Request(request)), Some(live)) = (Message::parse(message), live) {
            live.answers.put(too_deep_answer(&request, live.nesting));
        }
    }

    /// Whether a session of the link in use is not the one in use.
    fn is_over(&self, epoch: Epoch, session: Option<&str>) -> bool {
        let live = self.live().filter(|live| live.epoch == epoch);
        live.is_some_and(|live| live.session.id.as_deref() != session)
    }

    /// Asks whether the server is there, out of turn, and tells the machine.
    pub(super) async fn look_after(&self, live: &Live) {
        let answer = self.probe(live, live.first_probe()).await;
        self.tell(Input::ProbeEnded { epoch: live.epoch, answer });
    }

    fn heard_message(self: &Arc<Self>, epoch: Epoch, bytes: &[u8]) {
        match Message::parse(bytes) {
            Ok(Message::Notification(notification)) => {
                let changed = List::ALL.iter().any(|list| list.changed() == notification.method);
                if changed {
                    self.cache.forget_server(&self.name);
                }
                self.tell(if changed { Input::CatalogChanged { epoch } } else { Input::Heard { epoch } });
                if notification.method == LOG_MESSAGE {
                    self.said_to_client(bytes);
                }
                if !self.earshot.takes(&notification.method, bytes) {
                    self.followed(epoch, &notification, bytes);
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

    /// What tells of what somebody follows, or of what will be told of it.
    fn followed(&self, epoch: Epoch, notification: &Notification<'_>, bytes: &[u8]) {
        let Some(params) = notification.params else { return };
        match &*notification.method {
            subscriptions::UPDATED => {
                if let Some(uri) = subscriptions::updated_uri(params) {
                    self.cache.forget_resource(&self.name, &uri);
                    self.wishes.updated(&uri, bytes);
                }
            }
            Acknowledged::METHOD => {
                if let Some(Acknowledged { subscription, granted }) = Acknowledged::read(params)
                    && let Some(id) = subscription.as_minted()
                {
                    let uris = granted.uris.into_iter().map(Subject::Resource);
                    let tasks = granted.tasks.into_iter().map(Subject::Task);
                    let live = self.live().filter(|live| live.epoch == epoch);
                    if let Some(session) = live.as_ref().and_then(|live| live.told_as.get()) {
                        self.wishes.acknowledged(*session, id, uris.chain(tasks).collect());
                    }
                }
            }
            tasks::MODERN_STATUS => {
                if let Some(id) = tasks::named_in(params) {
                    self.wishes.task_said(&id, bytes);
                }
            }
            _ => {}
        }
    }
}

/// The answer to a server's request that is nested too deeply to be put to a client.
pub(super) fn too_deep_answer(request: &envelope::Request<'_>, limit: usize) -> Vec<u8> {
    let text = format!("the request is nested more than {limit} levels deep (`gateway.limits.nesting`)");
    envelope::error_response(Some(request.id), codes::INVALID_REQUEST, &text, None)
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
