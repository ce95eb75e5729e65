//! Standby and retired connections of the supervisor: a spare or replacement beside the present connection, and
//! replaced ones that still have calls.

use super::connect::{NewConnection, keep_received, while_receiving};
use super::notifications::default_reply;
use super::supervisor::{ActionReport, PendingAction, Supervisor};
use super::{Connection, Listing, Upstream};
use crate::transport::Incoming;
use gripfast_core::failure::Failure;
use gripfast_core::ids::{Epoch, StandbyId};
use gripfast_core::supervise::upstream::{CloseMode, Input, StandbyRole};
use gripfast_wire::envelope::Message;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A connection beside the present one.
pub(super) struct Standby {
    id: StandbyId,
    state: State,
}

enum State {
    Connecting(PendingAction),
    /// A spare connection.
    Ready(Box<NewConnection>),
}

/// A replaced connection, kept for the calls that began on it.
pub(super) struct RetiredConnection {
    connection: Arc<Connection>,
    reader: AbortHandle,
}

/// A new standby connection.
pub(super) struct NewStandby {
    pub(super) new_connection: NewConnection,
    /// Its catalog; `None` for a spare, which is not listed.
    listing: Option<Listing>,
}

impl Supervisor {
    pub(super) fn connect_standby(&mut self, id: StandbyId, role: StandbyRole) {
        let pending = self.spawn_action(move |upstream, opening| async move {
            let outcome = match upstream.connect(Epoch::default(), &opening).await {
                Ok(new_connection) => upstream.prepare(new_connection, role).await,
                Err(failure) => Err(failure),
            };
            ActionReport::StandbyConnected { id, role, outcome: outcome.map(Box::new) }
        });
        self.standby = Some(Standby { id, state: State::Connecting(pending) });
    }

    /// Applies the result of a standby connection attempt.
    pub(super) fn apply_standby(
        &mut self,
        id: StandbyId,
        role: StandbyRole,
        outcome: Result<Box<NewStandby>, Failure>,
    ) {
        let outcome = outcome.and_then(|new_standby| match new_standby.new_connection.lost() {
            // Lost before it was used.
            Some(evidence) => {
                let failure = self.upstream.secrets.classify(evidence);
                self.closing_standbys.close(
                    new_standby.new_connection.connection.link,
                    None,
                    CloseMode::Immediate,
                );
                Err(failure)
            }
            None => Ok(new_standby),
        });
        let wanted = self.standby.as_ref().is_some_and(|standby| standby.id == id);
        match outcome {
            // No longer wanted when it succeeded.
            Ok(new_standby) if !wanted => self.closing_standbys.close(
                new_standby.new_connection.connection.link,
                None,
                CloseMode::Immediate,
            ),
            Ok(new_standby) => match role {
                StandbyRole::Spare => {
                    self.standby =
                        Some(Standby { id, state: State::Ready(Box::new(new_standby.new_connection)) });
                    self.upstream.handle_input(Input::SpareUp { id });
                }
                StandbyRole::Replacement => {
                    self.standby = None;
                    self.replace_connection(id, *new_standby);
                }
            },
            Err(failure) => {
                if wanted {
                    self.standby = None;
                }
                self.upstream.handle_input(Input::StandbyDown { id, failure });
            }
        }
    }

    /// Puts a replacement to use while the machine is locked, so that no call is admitted to one connection and finds
    /// the other.
    fn replace_connection(&mut self, id: StandbyId, new_standby: NewStandby) {
        let NewStandby { new_connection: NewConnection { mut connection, inbox, received }, listing } =
            new_standby;
        let probe = connection.first_probe();
        let link = Arc::clone(&connection.link);
        let switched = self.upstream.with_machine(|machine, now| {
            connection.epoch = machine.take_over(now, id, probe)?;
            let connection = Arc::new(connection);
            Some((self.upstream.set_connection(Some(Arc::clone(&connection))), connection))
        });
        let Some((old, connection)) = switched else {
            return self.closing_standbys.close(link, None, CloseMode::Immediate);
        };
        if let Some(listing) = listing {
            self.upstream.apply_listing(connection.epoch, listing);
        }
        if let (Some(old), Some(inbox)) = (old, self.inbox.replace(inbox)) {
            let reader = tokio::spawn(drain_retired(Arc::clone(&self.upstream), Arc::clone(&old), inbox));
            let reader = reader.abort_handle();
            self.retired.push(RetiredConnection { connection: old, reader });
        }
        let epoch = connection.epoch;
        self.start_session_sync(connection);
        for incoming in received {
            self.upstream.handle_incoming(epoch, incoming);
        }
    }

    /// Takes the spare with this id, if it is ready.
    pub(super) fn take_spare(&mut self, id: StandbyId) -> Option<NewConnection> {
        match self.standby.take_if(|standby| standby.id == id)?.state {
            State::Ready(new_connection) => Some(*new_connection),
            State::Connecting(pending) => {
                self.closing_standbys.add(pending.abort());
                None
            }
        }
    }

    pub(super) fn drop_standby(&mut self) {
        match self.standby.take().map(|standby| standby.state) {
            Some(State::Connecting(pending)) => self.closing_standbys.add(pending.abort()),
            Some(State::Ready(new_connection)) => {
                let Connection { link, session, .. } = new_connection.connection;
                self.closing_standbys.close(link, Some(session), CloseMode::Graceful);
            }
            None => {}
        }
    }

    pub(super) fn close_retired(&mut self, epoch: Epoch) {
        for RetiredConnection { connection, reader } in
            self.retired.extract_if(.., |retired| retired.connection.epoch == epoch)
        {
            reader.abort();
            self.closing_standbys.close(
                Arc::clone(&connection.link),
                Some(Arc::clone(&connection.session)),
                CloseMode::Graceful,
            );
        }
    }

    /// Handles a message of a spare. Requests are kept until the spare is used; only pings are answered.
    pub(super) fn handle_standby_message(&mut self, incoming: Incoming) {
        let Some(Standby { id, state: State::Ready(new_connection) }) = &mut self.standby else { return };
        match incoming {
            Incoming::Lost(evidence) => {
                let (id, failure) = (*id, self.upstream.secrets.classify(&evidence));
                if let Some(State::Ready(new_connection)) = self.standby.take().map(|standby| standby.state) {
                    self.closing_standbys.close(new_connection.connection.link, None, CloseMode::Immediate);
                }
                self.upstream.handle_input(Input::StandbyDown { id, failure });
            }
            Incoming::Message(message) if is_ping(&message) => reply(&new_connection.connection, &message),
            incoming => keep_received(&mut new_connection.received, incoming),
        }
    }

    pub(super) fn measure_memory(&mut self, epoch: Epoch) {
        let Some(connection) = self.upstream.connection() else { return };
        self.tasks.spawn(async move {
            let link = Arc::clone(&connection.link);
            let resident = tokio::task::spawn_blocking(move || link.resident_memory()).await;
            ActionReport::Measured { epoch, resident: resident.ok().flatten() }
        });
    }
}

impl Upstream {
    /// Prepares a new connection for its role: a replacement is listed.
    async fn prepare(
        &self,
        mut new_connection: NewConnection,
        role: StandbyRole,
    ) -> Result<NewStandby, Failure> {
        match role {
            StandbyRole::Spare => Ok(NewStandby { new_connection, listing: None }),
            StandbyRole::Replacement if !self.needs_listing(&new_connection.connection) => {
                Ok(NewStandby { new_connection, listing: None })
            }
            StandbyRole::Replacement => {
                let NewConnection { connection, inbox, received } = &mut new_connection;
                match while_receiving(inbox, received, self.list(connection, |_tools| {})).await {
                    Ok(listing) => Ok(NewStandby { new_connection, listing: Some(listing) }),
                    Err(failure) => {
                        new_connection
                            .connection
                            .link
                            .close(Some(&new_connection.connection.session), CloseMode::Graceful)
                            .await;
                        Err(failure)
                    }
                }
            }
        }
    }
}

/// The next message of the spare; pending while there is none.
pub(super) async fn next_message(standby: &mut Option<Standby>) -> Incoming {
    if let Some(Standby { state: State::Ready(new_connection), .. }) = standby
        && let Some(incoming) = new_connection.inbox.recv().await
    {
        return incoming;
    }
    // There is no spare, or its link has no inbox of its own.
    std::future::pending().await
}

/// Reads the unsolicited messages of a replaced connection, so that it never blocks. Its calls and their server
/// requests go on.
async fn drain_retired(
    upstream: Arc<Upstream>,
    connection: Arc<Connection>,
    mut inbox: mpsc::Receiver<Incoming>,
) {
    while let Some(incoming) = inbox.recv().await {
        match incoming {
            Incoming::Message(message) => reply(&connection, &message),
            Incoming::ServerRequest { message, attribution } => {
                upstream.route_request(&connection, message, attribution)
            }
            // The connection was replaced, so its end needs no reaction.
            Incoming::Lost(_) | Incoming::StreamRefused { .. } | Incoming::Junk { .. } => {}
            Incoming::Unattributed { has_calls: beside_calls } => upstream.drop_unattributed(beside_calls),
        }
    }
}

fn is_ping(message: &[u8]) -> bool {
    matches!(Message::parse(message), Ok(Message::Request(request)) if request.method == "ping")
}

/// Answers a server request of a connection that is not in use.
fn reply(connection: &Connection, message: &[u8]) {
    if let Ok(Message::Request(request)) = Message::parse(message) {
        connection.replies.send(default_reply(&request));
    }
}
