//! Connecting: which transports and eras are tried in which order. The handshakes are in `handshake`.
//!
//! The combination that worked last time is tried first. A server that answers but does not fit is tried in another
//! way; an unreachable server is not, because silence says nothing about its transport or era.

use super::handshake::{HandshakeError, says_modern};
use super::replies::{OpenQuestions, ReplySender};
use super::session_state::log_level::SessionLevel;
use super::session_state::restore::resolve_restore_calls;
use super::{Connection, ServerFacts, Upstream, UpstreamDeps};
use crate::config::{ProtocolChoice, ServerSpec};
use crate::sync::Mutex;
use crate::transport::{InFlightCalls, Inbox, Incoming, Link, LinkContext, RenewOutcome, Route, Session};
use gripfast_core::event::Event;
use gripfast_core::failure::{BlockCause, During, Evidence, Failure, Observed};
use gripfast_core::ids::Epoch;
use gripfast_core::supervise::upstream::CloseMode;
use gripfast_wire::envelope::Message;
use gripfast_wire::{Era, JsonText, ProtocolVersion};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// Transport and era of the last successful connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedRoute {
    pub(crate) route: StoredRoute,
    pub(crate) modern: bool,
    /// The server supports resource subscriptions; also needed while it is disconnected or was not started yet.
    #[serde(default)]
    pub(crate) follows: bool,
    /// Duration of the last start in steps of [`RememberedRoute::START_STEP`]; zero for a quick one.
    #[serde(default)]
    pub(crate) start_steps: u32,
}

impl RememberedRoute {
    /// Coarse, so that a start that takes a second longer than the last one does not cause a write.
    const START_STEP: Duration = Duration::from_secs(10);

    /// Duration of the last start, rounded up; zero if it was quick.
    pub(crate) fn last_start(&self) -> Duration {
        Self::START_STEP * self.start_steps
    }
}

/// Stored form of [`Route`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredRoute {
    Stdio,
    Http,
    LegacySse,
    Replica,
    Custom,
}

impl From<Route> for StoredRoute {
    fn from(route: Route) -> Self {
        match route {
            Route::Stdio => Self::Stdio,
            Route::Http => Self::Http,
            Route::LegacySse => Self::LegacySse,
            Route::Replica => Self::Replica,
            Route::Custom => Self::Custom,
        }
    }
}

/// A new connection.
pub(super) struct NewConnection {
    pub(super) connection: Connection,
    pub(super) inbox: mpsc::Receiver<Incoming>,
    /// Messages that arrived during the handshake.
    pub(super) received: Vec<Incoming>,
}

impl NewConnection {
    /// Evidence of its loss, if it was lost meanwhile.
    pub(super) fn lost(&self) -> Option<&Evidence> {
        self.received.iter().find_map(|received| {
            let Incoming::Lost(evidence) = received else { return None };
            Some(evidence)
        })
    }
}

/// The link of a running handshake, so that a cancelled handshake can wait until the link is closed.
#[derive(Clone, Default)]
pub(super) struct PendingLink(Arc<Mutex<Option<Arc<dyn Link>>>>);

impl PendingLink {
    fn set(&self, link: Option<Arc<dyn Link>>) {
        *self.0.lock() = link;
    }

    pub(super) fn take(&self) -> Option<Arc<dyn Link>> {
        self.0.lock().take()
    }
}

/// Runs `work` and meanwhile receives messages, so that they do not block its answers. Those that must not be lost
/// are kept.
pub(super) async fn while_receiving<T>(
    inbox: &mut mpsc::Receiver<Incoming>,
    received: &mut Vec<Incoming>,
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            Some(incoming) = inbox.recv() => keep_received(received, incoming),
        }
    }
}

/// Keeps a message for later. Notifications are dropped: the catalog is listed after the connection is in use. The
/// loss of the link is always kept.
pub(super) fn keep_received(received: &mut Vec<Incoming>, incoming: Incoming) {
    if matches!(incoming, Incoming::Lost(_)) || received.len() < MAX_RECEIVED && !is_notification(&incoming) {
        received.push(incoming);
    }
}

/// One connection attempt: a transport and an era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectStep {
    pub(super) route: Route,
    pub(super) era: Era,
}

/// An open link before or during the handshake.
struct OpenedLink {
    route: Route,
    link: Arc<dyn Link>,
    inbox: mpsc::Receiver<Incoming>,
    in_flight: Arc<InFlightCalls>,
    received: Vec<Incoming>,
}

/// Maximum number of messages that are kept during the handshake.
const MAX_RECEIVED: usize = 256;

impl Upstream {
    /// Connects for this epoch. The supervision machine limits its time and aborts it.
    pub(super) async fn connect(
        &self,
        epoch: Epoch,
        opening: &PendingLink,
    ) -> Result<NewConnection, Failure> {
        let mut connected = self.try_steps(epoch, opening).await;
        // The credential may have expired since its last use.
        if let Err(Failure::CredentialRefused(message)) = &connected {
            connected = match self.replace_credential(message).await {
                Ok(()) => self.try_steps(epoch, opening).await,
                Err(failure) => Err(failure),
            };
        }
        opening.set(None);
        connected
    }

    /// Replaces the credential that the server refused.
    async fn replace_credential(&self, message: &str) -> Result<(), Failure> {
        match self.deps().dialer.renew_credential().await {
            Ok(RenewOutcome::Replaced) => Ok(()),
            Ok(RenewOutcome::NeedsPerson(None)) => Err(Failure::CredentialRefused(message.to_owned())),
            Ok(RenewOutcome::NeedsPerson(Some(why))) => {
                Err(Failure::CredentialRefused(format!("{why}: {message}")))
            }
            Ok(RenewOutcome::Rejected(why)) => {
                Err(Failure::Blocked(BlockCause::NeedsLogin(format!("{why}: {message}"))))
            }
            Err(evidence) => Err(self.secrets.classify(&evidence)),
        }
    }

    /// The present link and session with a new credential.
    pub(super) async fn renew_credential(
        &self,
        epoch: Epoch,
        connection: &Connection,
    ) -> Result<Connection, Failure> {
        self.replace_credential("the server refused its credential").await?;
        let (link, in_flight) = (Arc::clone(&connection.link), Arc::clone(&connection.in_flight));
        let (session, server) = (Arc::clone(&connection.session), Arc::clone(&connection.server));
        let mut renewed = self.new_connection(epoch, connection.route, link, session, server, in_flight);
        renewed.restore_calls = connection.restore_calls.clone();
        Ok(renewed)
    }

    async fn try_steps(&self, epoch: Epoch, opening: &PendingLink) -> Result<NewConnection, Failure> {
        let remembered = *self.remembered_route.lock();
        let probe_ended_start = self.probe_ended_start.load(Ordering::Relaxed);
        let legacy_first = probe_ended_start.then_some(RememberedRoute {
            route: StoredRoute::Stdio,
            modern: false,
            follows: false,
            start_steps: 0,
        });
        let first = remembered.or(legacy_first);
        let (spec, deps) = self.config.read().clone();
        self.with_machine(|machine, _| machine.set_kind(deps.dialer.kind()));
        let mut plan = VecDeque::from(plan(&deps.dialer.routes(), spec.protocol, first));
        let is_elsewhere = plan.front().is_some_and(|step| step.route == Route::Replica);
        // The replica that runs the server makes them.
        let restore_calls = if is_elsewhere { Vec::new() } else { resolve_restore_calls(&spec).await? };
        let mut asked_again = false;
        let mut open: Option<OpenedLink> = None;
        let mut refusal: Option<Evidence> = None;
        while let Some(step) = plan.pop_front() {
            let mut opened = match open.take().filter(|open| open.route == step.route) {
                Some(opened) => opened,
                None => match self.open(&spec, &deps, step.route, opening).await {
                    Ok(opened) => opened,
                    // The server answers, but not on this transport.
                    Err(evidence) if is_refusal(&self.secrets.classify(&evidence)) => {
                        refusal.get_or_insert(evidence);
                        continue;
                    }
                    Err(evidence) => {
                        return Err(self.secrets.classify(more_specific(refusal.as_ref(), &evidence)));
                    }
                },
            };
            match self.handshake_while_receiving(&mut opened, step).await {
                Ok((session, server)) => {
                    let verdict = RememberedRoute {
                        route: step.route.into(),
                        modern: step.era == Era::Modern,
                        follows: server.capabilities.resources_subscribe,
                        start_steps: remembered.map_or(0, |last| last.start_steps),
                    };
                    self.remember(&deps, verdict);
                    let (session, server) = (Arc::new(session), Arc::new(server));
                    let OpenedLink { link, mut inbox, in_flight, mut received, .. } = opened;
                    let mut connection =
                        self.new_connection(epoch, step.route, link, session, server, in_flight);
                    connection.restore_calls =
                        while_receiving(&mut inbox, &mut received, self.restore(&connection, &restore_calls))
                            .await;
                    return Ok(NewConnection { connection, inbox, received });
                }
                Err(HandshakeError::WrongEra(evidence)) => {
                    // A child that exits on the modern probe cannot be asked again. Its next start begins with the
                    // legacy handshake and counts as a normal restart.
                    if matches!(evidence.observed, Observed::Exited { .. } | Observed::Closed(_)) {
                        opened.link.close(None, CloseMode::Immediate).await;
                        self.probe_ended_start.store(true, Ordering::Relaxed);
                        return Err(self.secrets.classify(&evidence));
                    }
                    open = Some(opened);
                    // A slow server receives both handshakes at once: if it refuses the second with a modern error,
                    // it has understood the first.
                    let again = ConnectStep { era: Era::Modern, ..step };
                    let choice = spec.protocol;
                    let worth_it = choice == ProtocolChoice::Auto && says_modern(&evidence);
                    if worth_it && !plan.contains(&again) && !std::mem::replace(&mut asked_again, true) {
                        plan.push_front(again);
                    }
                    if step.era == Era::Legacy || refusal.is_none() {
                        refusal = Some(evidence);
                    }
                }
                Err(HandshakeError::Unavailable(evidence)) => {
                    opened.link.close(None, CloseMode::Immediate).await;
                    // The child exits on the legacy handshake too: the probe was not the reason.
                    self.probe_ended_start.store(false, Ordering::Relaxed);
                    return Err(self.secrets.classify(&evidence));
                }
            }
        }
        if let Some(opened) = open {
            opened.link.close(None, CloseMode::Immediate).await;
        }
        let nothing = || {
            Evidence::unsent(During::Handshake, Observed::BadConfig("no transport is configured".to_owned()))
        };
        Err(self.era_mismatch(self.secrets.classify(&refusal.unwrap_or_else(nothing))))
    }

    /// Turns a refusal into a config error if the config demands an era: retries cannot help.
    fn era_mismatch(&self, failure: Failure) -> Failure {
        let wanted = match self.spec().protocol {
            ProtocolChoice::Auto => return failure,
            ProtocolChoice::Legacy => "legacy",
            ProtocolChoice::Modern => "modern",
        };
        match failure {
            Failure::Declined(message) => Failure::Blocked(BlockCause::BadConfig(format!(
                "it does not speak the configured protocol (`protocol = \"{wanted}\"`): {message}"
            ))),
            failure => failure,
        }
    }

    /// Makes a new session on the present link.
    pub(super) async fn renew_session(
        &self,
        epoch: Epoch,
        connection: &Connection,
    ) -> Result<Connection, Failure> {
        let step = ConnectStep { route: connection.route, era: connection.session.era };
        match connection.route {
            Route::Http | Route::Replica | Route::Custom => {}
            // The session is the stream or the process itself, so a new session needs a new link.
            Route::Stdio | Route::LegacySse => {
                return Err(Failure::Lost("the server no longer knows its session".to_owned()));
            }
        }
        let restore_calls = resolve_restore_calls(&self.spec()).await?;
        let mut completed = self
            .handshake(&*connection.link, step)
            .await
            .map_err(|handshake_error| self.secrets.classify(handshake_error.evidence()));
        // The server may have restarted and forgotten the credential together with the session.
        if let Err(Failure::CredentialRefused(message)) = &completed {
            self.replace_credential(message).await?;
            completed = self
                .handshake(&*connection.link, step)
                .await
                .map_err(|handshake_error| self.secrets.classify(handshake_error.evidence()));
        }
        match completed {
            Ok((session, server)) => {
                let (link, in_flight) = (Arc::clone(&connection.link), Arc::clone(&connection.in_flight));
                let (session, server) = (Arc::new(session), Arc::new(server));
                let mut renewed =
                    self.new_connection(epoch, connection.route, link, session, server, in_flight);
                renewed.restore_calls = self.restore(&renewed, &restore_calls).await;
                self.pins.carry_over(connection.epoch, epoch);
                Ok(renewed)
            }
            Err(failure) => Err(failure),
        }
    }

    fn new_connection(
        &self,
        epoch: Epoch,
        route: Route,
        link: Arc<dyn Link>,
        session: Arc<Session>,
        server: Arc<ServerFacts>,
        in_flight: Arc<InFlightCalls>,
    ) -> Connection {
        self.session_state.register_followers(&in_flight);
        let listening = Arc::clone(&link).listen(Arc::clone(&session));
        let answers = ReplySender::new(&link, Arc::clone(&session));
        let context = self.context(session.version.clone().unwrap_or(ProtocolVersion::MODERN));
        let since = self.clock.mono();
        Connection {
            epoch,
            link,
            session,
            server,
            route,
            since,
            version_json: JsonText::of(context.version.as_str()).expect("a text is JSON"),
            context,
            restore_calls: Vec::new(),
            session_number: OnceLock::new(),
            log_level: SessionLevel::default(),
            replies: answers,
            in_flight,
            max_nesting: self.deps().max_nesting,
            open_questions: OpenQuestions::default(),
            has_asked: AtomicBool::new(false),
            has_asked_for_roots: AtomicBool::new(false),
            _listening: listening,
        }
    }

    async fn open(
        &self,
        spec: &ServerSpec,
        deps: &UpstreamDeps,
        route: Route,
        opening: &PendingLink,
    ) -> Result<OpenedLink, Evidence> {
        self.attempt_line.store(self.stderr.lines_from(u64::MAX).first, Ordering::Relaxed);
        let (to, inbox) = Inbox::new();
        let in_flight = Arc::clone(to.in_flight());
        let context = LinkContext {
            inbox: to,
            stderr: Arc::clone(&self.stderr),
            secrets: Arc::clone(&self.secrets),
            children: self.children.clone(),
            host_id: Arc::clone(&deps.host_id),
            max_message: spec.max_message,
            dedicated_to: self.role.client().cloned(),
            is_leased: false,
        };
        let link = deps.dialer.connect(route, context).await?;
        opening.set(Some(Arc::clone(&link)));
        Ok(OpenedLink { route, link, inbox, in_flight, received: Vec::new() })
    }

    pub(super) fn is_known_modern(&self) -> bool {
        let remembered = self.remembered_route.lock();
        remembered.is_some_and(|verdict| verdict.modern)
    }

    fn remember(&self, deps: &UpstreamDeps, verdict: RememberedRoute) {
        let mut remembered = self.remembered_route.lock();
        if *remembered != Some(verdict) {
            *remembered = Some(verdict);
            deps.store.save_remembered_route(verdict);
        }
    }

    /// Remembers the duration of a successful start, also for the next run of the gateway.
    pub(super) fn remember_start(&self) {
        let took = self.with_machine(|machine, _| machine.last_start());
        let remembered = *self.remembered_route.lock();
        if let Some(verdict) = remembered {
            let steps = took.div_duration_f64(RememberedRoute::START_STEP).floor() as u32;
            let start_steps = if steps == 0 { 0 } else { steps.saturating_add(1) };
            self.remember(&self.deps(), RememberedRoute { start_steps, ..verdict });
        }
    }

    async fn handshake_while_receiving(
        &self,
        opened: &mut OpenedLink,
        step: ConnectStep,
    ) -> Result<(Session, ServerFacts), HandshakeError> {
        let OpenedLink { link, inbox, received, .. } = opened;
        let handshake = self.handshake(&**link, step);
        tokio::pin!(handshake);
        loop {
            tokio::select! {
                completed = &mut handshake => return completed,
                Some(incoming) = inbox.recv() => match incoming {
                    // Reported immediately: a server that logs to stdout may never complete the handshake.
                    Incoming::Junk { lines, sample } => {
                        self.announce(self.clock.now(), Event::JunkSkipped { lines, sample });
                    }
                    incoming @ (Incoming::Message(_)
                    | Incoming::ServerRequest { .. }
                    | Incoming::Unattributed { .. }
                    | Incoming::Lost(_)
                    | Incoming::StreamRefused { .. }) => keep_received(received, incoming),
                },
            }
        }
    }
}

/// The attempts in order: the remembered one, then the modern era on each transport, then the legacy one.
fn plan(routes: &[Route], choice: ProtocolChoice, remembered: Option<RememberedRoute>) -> Vec<ConnectStep> {
    let mut steps = Vec::new();
    for route in routes {
        // Replicas speak the modern era with each other, whatever the server speaks.
        if *route == Route::Replica {
            steps.push(ConnectStep { route: *route, era: Era::Modern });
            continue;
        }
        // HTTP+SSE exists only in the legacy era.
        if *route != Route::LegacySse && choice != ProtocolChoice::Legacy {
            steps.push(ConnectStep { route: *route, era: Era::Modern });
        }
        if choice != ProtocolChoice::Modern {
            steps.push(ConnectStep { route: *route, era: Era::Legacy });
        }
    }
    let known = remembered.and_then(|verdict| {
        let era = if verdict.modern { Era::Modern } else { Era::Legacy };
        steps.iter().position(|step| StoredRoute::from(step.route) == verdict.route && step.era == era)
    });
    if let Some(at) = known {
        let first = steps.remove(at);
        steps.insert(0, first);
    }
    steps
}

/// Returns true if the server answered with a refusal.
fn is_refusal(failure: &Failure) -> bool {
    matches!(failure, Failure::Declined(_) | Failure::Blocked(BlockCause::NotMcp(_)))
}

/// Chooses the evidence to report: a refusal says more than the silence of another transport, but less than a
/// connection failure or an address that the config does not allow.
fn more_specific<'a>(refusal: Option<&'a Evidence>, evidence: &'a Evidence) -> &'a Evidence {
    match &evidence.observed {
        Observed::Connect { .. }
        | Observed::OutOfResources(_)
        | Observed::Unplaced(_)
        | Observed::BadConfig(_) => evidence,
        Observed::NoExecutable(_)
        | Observed::SpawnFailed(_)
        | Observed::UnsetVariable(_)
        | Observed::NoToken(_)
        | Observed::Closed(_)
        | Observed::RefusedByPeer(_)
        | Observed::Exited { .. }
        | Observed::NoAnswer(_)
        | Observed::Http(_)
        | Observed::Rpc { .. }
        | Observed::Malformed(_)
        | Observed::TooLarge(_)
        | Observed::NoMemory { .. } => refusal.unwrap_or(evidence),
    }
}

fn is_notification(incoming: &Incoming) -> bool {
    match incoming {
        Incoming::Message(message) => matches!(Message::parse(message), Ok(Message::Notification(_))),
        Incoming::Unattributed { .. } => true,
        Incoming::ServerRequest { .. }
        | Incoming::Lost(_)
        | Incoming::StreamRefused { .. }
        | Incoming::Junk { .. } => false,
    }
}

pub(super) fn raw(text: &str) -> JsonText {
    JsonText::parse(text.to_owned()).expect("a literal that is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP_THEN_SSE: [Route; 2] = [Route::Http, Route::LegacySse];

    fn steps(plan: Vec<ConnectStep>) -> Vec<(Route, bool)> {
        plan.into_iter().map(|step| (step.route, step.era == Era::Modern)).collect()
    }

    #[test]
    fn d08_an_unknown_server_is_tried_in_the_modern_era_first() {
        let plan = plan(&HTTP_THEN_SSE, ProtocolChoice::Auto, None);
        assert_eq!(steps(plan), [(Route::Http, true), (Route::Http, false), (Route::LegacySse, false)]);
    }

    #[test]
    fn d08_the_remembered_attempt_comes_first_and_the_others_stay() {
        let remembered =
            RememberedRoute { route: StoredRoute::LegacySse, modern: false, follows: false, start_steps: 0 };
        let plan = plan(&HTTP_THEN_SSE, ProtocolChoice::Auto, Some(remembered));
        assert_eq!(steps(plan), [(Route::LegacySse, false), (Route::Http, true), (Route::Http, false)]);
    }

    #[test]
    fn d08_a_configured_era_excludes_the_other_one_even_if_it_is_remembered() {
        let remembered =
            Some(RememberedRoute { route: StoredRoute::Stdio, modern: true, follows: false, start_steps: 0 });
        assert_eq!(steps(plan(&[Route::Stdio], ProtocolChoice::Legacy, remembered)), [(Route::Stdio, false)]);
        assert_eq!(steps(plan(&[Route::Stdio], ProtocolChoice::Modern, None)), [(Route::Stdio, true)]);
    }
}
