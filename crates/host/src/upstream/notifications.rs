//! Unsolicited messages of a server: list changes, resource updates, requests, and the end of streams.

use super::call::is_request_too_deep;
use super::{Connection, Upstream};
use crate::transport::{Incoming, LOG_MESSAGE};
use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::ids::Epoch;
use gripfast_core::session_state::SubscriptionTarget;
use gripfast_core::supervise::upstream::{Input, ProbeAnswer};
use gripfast_wire::envelope::{self, Message, Notification};
use gripfast_wire::results::List;
use gripfast_wire::subscriptions::{self, Acknowledged};
use gripfast_wire::{codes, tasks};
use std::sync::Arc;

impl Upstream {
    /// Handles a message or event of a link and reports it to the machine.
    pub(super) fn handle_incoming(self: &Arc<Self>, epoch: Epoch, incoming: Incoming) {
        if let Incoming::Message(message) | Incoming::ServerRequest { message, .. } = &incoming
            && is_request_too_deep(message, self.deps().max_nesting)
        {
            return self.handle_too_deep(epoch, message);
        }
        match incoming {
            Incoming::Message(message) => self.handle_message(epoch, &message),
            Incoming::ServerRequest { message, attribution } => {
                self.handle_input(Input::Received { epoch });
                if let Some(connection) = self.connection().filter(|connection| connection.epoch == epoch) {
                    self.route_request(&connection, message, attribution);
                }
            }
            Incoming::Unattributed { has_calls: beside_calls } => {
                self.handle_input(Input::Received { epoch });
                self.drop_unattributed(beside_calls);
            }
            Incoming::Lost(evidence) => {
                self.handle_input(Input::LinkDown { epoch, failure: self.secrets.classify(&evidence) })
            }
            Incoming::StreamRefused { session, .. }
                if self.is_replaced_session(epoch, session.as_deref()) => {}
            Incoming::StreamRefused { evidence, .. } => match self.secrets.classify(&evidence) {
                // A server may refuse the stream and work otherwise.
                Failure::Declined(_)
                | Failure::HeaderMismatch(_)
                | Failure::InsufficientScope(_)
                | Failure::InvalidResponse(_)
                | Failure::OutOfResources(_)
                | Failure::Busy { .. } => {}
                // A server without such streams may answer with 404: only a probe tells it from a lost session.
                Failure::SessionExpired(_) => self.handle_input(Input::SessionDoubted { epoch }),
                failure @ Failure::Unreachable(_) => {
                    self.handle_input(Input::ProbeEnded { epoch, answer: ProbeAnswer::Failed(failure) });
                }
                // Proxies cut idle streams, and some servers refuse them to all clients. The link or credential is
                // given up only if a probe fails too.
                Failure::Lost(_)
                | Failure::TimedOut(_)
                | Failure::ServerFault(_)
                | Failure::CredentialRefused(_)
                | Failure::Blocked(_) => {
                    let Some(connection) = self.connection().filter(|connection| connection.epoch == epoch)
                    else {
                        return;
                    };
                    let upstream = Arc::clone(self);
                    tokio::spawn(async move { upstream.probe_now(&connection).await });
                }
            },
            Incoming::Junk { lines, sample } => {
                self.announce(self.clock.now(), Event::JunkSkipped { lines, sample });
            }
        }
    }

    /// Drops a message that is nested too deeply. A request is answered with an error.
    fn handle_too_deep(&self, epoch: Epoch, message: &[u8]) {
        self.handle_input(Input::Received { epoch });
        let connection = self.connection().filter(|connection| connection.epoch == epoch);
        if let (Ok(Message::Request(request)), Some(connection)) = (Message::parse(message), connection) {
            connection.replies.send(too_deep_reply(&request, connection.max_nesting));
        }
    }

    /// Returns true if `session` is not the present session of this connection.
    fn is_replaced_session(&self, epoch: Epoch, session: Option<&str>) -> bool {
        let connection = self.connection().filter(|connection| connection.epoch == epoch);
        connection.is_some_and(|connection| connection.session.id.as_deref() != session)
    }

    /// Probes the server now and reports the result to the machine.
    pub(super) async fn probe_now(&self, connection: &Connection) {
        let answer = self.probe(connection, connection.first_probe()).await;
        self.handle_input(Input::ProbeEnded { epoch: connection.epoch, answer });
    }

    fn handle_message(self: &Arc<Self>, epoch: Epoch, bytes: &[u8]) {
        match Message::parse(bytes) {
            Ok(Message::Notification(notification)) => {
                let changed = List::ALL.iter().any(|list| list.changed_notification() == notification.method);
                if changed {
                    self.cache.invalidate_server(&self.name);
                }
                self.handle_input(if changed {
                    Input::CatalogChanged { epoch }
                } else {
                    Input::Received { epoch }
                });
                if notification.method == LOG_MESSAGE {
                    self.forward_to_client(bytes);
                }
                if !self.notification_sink.try_forward(&notification.method, bytes) {
                    self.handle_subscription_message(epoch, &notification, bytes);
                }
            }
            Ok(Message::Request(request)) => {
                self.handle_input(Input::Received { epoch });
                if let Some(connection) = self.connection().filter(|connection| connection.epoch == epoch) {
                    connection.replies.send(default_reply(&request));
                }
            }
            Ok(Message::Response(_)) | Err(_) => {}
        }
    }

    /// Handles updates of subscribed resources and tasks, and the acknowledgement of an update stream.
    fn handle_subscription_message(&self, epoch: Epoch, notification: &Notification<'_>, bytes: &[u8]) {
        let Some(params) = notification.params else { return };
        match &*notification.method {
            subscriptions::UPDATED => {
                if let Some(uri) = subscriptions::updated_uri(params) {
                    self.cache.invalidate_resource(&self.name, &uri);
                    self.session_state.updated(&uri, bytes);
                }
            }
            Acknowledged::METHOD => {
                if let Some(Acknowledged { subscription, granted }) = Acknowledged::read(params)
                    && let Some(id) = subscription.as_minted()
                {
                    let uris = granted.uris.into_iter().map(SubscriptionTarget::Resource);
                    let tasks = granted.tasks.into_iter().map(SubscriptionTarget::Task);
                    let connection = self.connection().filter(|connection| connection.epoch == epoch);
                    if let Some(session) =
                        connection.as_ref().and_then(|connection| connection.session_number.get())
                    {
                        self.session_state.acknowledged(*session, id, uris.chain(tasks).collect());
                    }
                }
            }
            tasks::MODERN_STATUS => {
                if let Some(id) = tasks::task_id(params) {
                    self.session_state.task_updated(&id, bytes);
                }
            }
            _ => {}
        }
    }
}

/// The reply to a server request that is nested too deeply.
pub(super) fn too_deep_reply(request: &envelope::Request<'_>, limit: usize) -> Vec<u8> {
    let text = format!("the request is nested more than {limit} levels deep (`gateway.limits.nesting`)");
    envelope::error_response(Some(request.id), codes::INVALID_REQUEST, &text, None)
}

/// The reply of the host itself to a server request: `ping` is answered, everything else is refused.
pub(super) fn default_reply(request: &envelope::Request<'_>) -> Vec<u8> {
    match &*request.method {
        "ping" => envelope::response(request.id, &super::connect::raw("{}")),
        method => envelope::error_response(
            Some(request.id),
            codes::METHOD_NOT_FOUND,
            &format!("this client does not answer `{method}`"),
            None,
        ),
    }
}
