//! Making a link: which ways and eras are tried in which order. The handshake of each is in `greet`.
//!
//! What worked last time is tried first. A server that does not fit is asked otherwise; a server that is
//! away is not, for silence proves nothing about the way it speaks.

use super::answers::{Answers, Thinking};
use super::greet::{Miss, says_modern};
use super::level::SessionLevel;
use super::{Live, ServerFacts, Settings, Upstream};
use crate::config::ProtocolChoice;
use crate::transport::{Inbox, Incoming, Link, Renewed, Route, Session, Surroundings, Underway};
use gripfast_core::event::Event;
use gripfast_core::failure::{BlockCause, During, Evidence, Failure, Observed};
use gripfast_core::ids::Epoch;
use gripfast_core::supervise::upstream::Manner;
use gripfast_wire::envelope::Message;
use gripfast_wire::{Era, ProtocolVersion, RawValue};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The way and the era in which a server was last spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) route: WireRoute,
    pub(crate) modern: bool,
    /// Whether it tells of changed resources: asked about also while it is away, or not started yet.
    #[serde(default)]
    pub(crate) follows: bool,
    /// The duration of its last start in whole steps of [`Verdict::START_STEP`]: of a quick one nothing.
    #[serde(default)]
    pub(crate) start_steps: u32,
}

impl Verdict {
    /// Coarse, so that a start that took a second more than the last one is no news for the disk.
    const START_STEP: Duration = Duration::from_secs(10);

    /// The duration of its last start, rounded up; zero if it was quick.
    pub(crate) fn last_start(&self) -> Duration {
        Self::START_STEP * self.start_steps
    }
}

/// [`Route`] as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireRoute {
    Stdio,
    Http,
    LegacySse,
    Custom,
}

impl From<Route> for WireRoute {
    fn from(route: Route) -> Self {
        match route {
            Route::Stdio => Self::Stdio,
            Route::Http => Self::Http,
            Route::LegacySse => Self::LegacySse,
            Route::Custom => Self::Custom,
        }
    }
}

/// A link that was just made.
pub(super) struct Dialed {
    pub(super) live: Live,
    pub(super) inbox: mpsc::Receiver<Incoming>,
    /// What it said meanwhile.
    pub(super) heard: Vec<Incoming>,
}

impl Dialed {
    /// What was seen of its end, if it went meanwhile.
    pub(super) fn lost(&self) -> Option<&Evidence> {
        self.heard.iter().find_map(|heard| match heard {
            Incoming::Lost(evidence) => Some(evidence),
            Incoming::Message(_)
            | Incoming::Question { .. }
            | Incoming::Unattributed { .. }
            | Incoming::StreamRefused { .. }
            | Incoming::Junk { .. } => None,
        })
    }
}

/// The link of a handshake under way, so that whoever gives the handshake up can wait for the link's end.
#[derive(Clone, Default)]
pub(super) struct Opening(Arc<Mutex<Option<Arc<dyn Link>>>>);

impl Opening {
    fn set(&self, link: Option<Arc<dyn Link>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    pub(super) fn take(&self) -> Option<Arc<dyn Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Carries on with `work`, and takes what the server says meanwhile out of the way of its answers. What must
/// not be missed is kept.
pub(super) async fn while_hearing<T>(
    inbox: &mut mpsc::Receiver<Incoming>,
    heard: &mut Vec<Incoming>,
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            Some(incoming) = inbox.recv() => keep(heard, incoming),
        }
    }
}

/// Notifications can be missed: everything is listed afresh when a link is put to use. Its end cannot, and comes once.
pub(super) fn keep(heard: &mut Vec<Incoming>, incoming: Incoming) {
    if matches!(incoming, Incoming::Lost(_)) || heard.len() < KEPT && !is_notification(&incoming) {
        heard.push(incoming);
    }
}

/// One attempt: this way, this era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) route: Route,
    pub(super) era: Era,
}

/// An open link on its way through the handshake.
struct Opened {
    route: Route,
    link: Arc<dyn Link>,
    inbox: mpsc::Receiver<Incoming>,
    underway: Arc<Underway>,
    heard: Vec<Incoming>,
}

/// What a server may say in the handshake that is kept for later.
const KEPT: usize = 256;

impl Upstream {
    /// Makes a link of this epoch. Its time is bounded by the machine, which has it aborted.
    pub(super) async fn dial(&self, epoch: Epoch, opening: &Opening) -> Result<Dialed, Failure> {
        let mut dialed = self.try_each(epoch, opening).await;
        // A credential that was good when it was last shown may have ended since.
        if let Err(Failure::CredentialRefused(said)) = &dialed {
            dialed = match self.mend_credential(said).await {
                Ok(()) => self.try_each(epoch, opening).await,
                Err(failure) => Err(failure),
            };
        }
        opening.set(None);
        dialed
    }

    /// Has another credential put in the place of the one that the server refused.
    async fn mend_credential(&self, said: &str) -> Result<(), Failure> {
        match self.settings().dialer.renew_credential().await {
            Ok(Renewed::Replaced) => Ok(()),
            Ok(Renewed::NeedsPerson(None)) => Err(Failure::CredentialRefused(said.to_owned())),
            Ok(Renewed::NeedsPerson(Some(why))) => Err(Failure::CredentialRefused(format!("{why}: {said}"))),
            Ok(Renewed::Rejected(why)) => {
                Err(Failure::Blocked(BlockCause::NeedsLogin(format!("{why}: {said}"))))
            }
            Err(evidence) => Err(self.secrets.classify(&evidence)),
        }
    }

    /// The present link and session, with another credential.
    pub(super) async fn renew_credential(&self, epoch: Epoch, live: &Live) -> Result<Live, Failure> {
        self.mend_credential("the server refused its credential").await?;
        let (link, underway) = (Arc::clone(&live.link), Arc::clone(&live.underway));
        let (session, server) = (Arc::clone(&live.session), Arc::clone(&live.server));
        let mut renewed = self.live_with(epoch, live.route, link, session, server, underway);
        renewed.calls = live.calls.clone();
        Ok(renewed)
    }

    async fn try_each(&self, epoch: Epoch, opening: &Opening) -> Result<Dialed, Failure> {
        let remembered = *self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let shy = self.ended_over_probe.load(Ordering::Relaxed);
        let gently =
            shy.then_some(Verdict { route: WireRoute::Stdio, modern: false, follows: false, start_steps: 0 });
        let first = remembered.or(gently);
        let settings = self.settings();
        let mut plan = VecDeque::from(plan(&settings.dialer.routes(), settings.protocol, first));
        let marked = settings.marked().await?;
        let mut asked_again = false;
        let mut open: Option<Opened> = None;
        let mut refusal: Option<Evidence> = None;
        while let Some(step) = plan.pop_front() {
            let mut opened = match open.take().filter(|open| open.route == step.route) {
                Some(opened) => opened,
                None => match self.open(&settings, step.route, opening).await {
                    Ok(opened) => opened,
                    // It answers, but not this way.
                    Err(evidence) if is_no(&self.secrets.classify(&evidence)) => {
                        refusal.get_or_insert(evidence);
                        continue;
                    }
                    Err(evidence) => {
                        return Err(self.secrets.classify(more_telling(refusal.as_ref(), &evidence)));
                    }
                },
            };
            match self.greet_and_hear(&mut opened, step).await {
                Ok((session, server)) => {
                    self.remember(
                        &settings,
                        Verdict {
                            route: step.route.into(),
                            modern: step.era == Era::Modern,
                            follows: server.capabilities.resources_subscribe,
                            start_steps: remembered.map_or(0, |last| last.start_steps),
                        },
                    );
                    let (session, server) = (Arc::new(session), Arc::new(server));
                    let Opened { link, mut inbox, underway, mut heard, .. } = opened;
                    let mut live = self.live_with(epoch, step.route, link, session, server, underway);
                    live.calls = while_hearing(&mut inbox, &mut heard, self.restore(&live, &marked)).await;
                    return Ok(Dialed { live, inbox, heard });
                }
                Err(Miss::AnotherEra(evidence)) => {
                    // A child that ended over the question cannot be asked the other one. Its next start
                    // begins with that one; it is a start like any other, and counts as one.
                    if matches!(evidence.observed, Observed::Exited { .. } | Observed::Closed(_)) {
                        opened.link.close(None, Manner::AtOnce).await;
                        self.ended_over_probe.store(true, Ordering::Relaxed);
                        return Err(self.secrets.classify(&evidence));
                    }
                    open = Some(opened);
                    // A server that was slow to start heard both questions at once: its no to the second one
                    // says that it has understood the first.
                    let again = Step { era: Era::Modern, ..step };
                    let choice = settings.protocol;
                    let worth_it = choice == ProtocolChoice::Auto && says_modern(&evidence);
                    if worth_it && !plan.contains(&again) && !std::mem::replace(&mut asked_again, true) {
                        plan.push_front(again);
                    }
                    if step.era == Era::Legacy || refusal.is_none() {
                        refusal = Some(evidence);
                    }
                }
                Err(Miss::Away(evidence)) => {
                    opened.link.close(None, Manner::AtOnce).await;
                    // It ends over the other question too: the probe was not to blame.
                    self.ended_over_probe.store(false, Ordering::Relaxed);
                    return Err(self.secrets.classify(&evidence));
                }
            }
        }
        if let Some(opened) = open {
            opened.link.close(None, Manner::AtOnce).await;
        }
        let nothing =
            || Evidence::unsent(During::Handshake, Observed::BadConfig("no way to reach it".to_owned()));
        Err(self.misfit(self.secrets.classify(&refusal.unwrap_or_else(nothing))))
    }

    /// A server that answers, but not in the era that the config insists on: asking again cannot mend that.
    fn misfit(&self, failure: Failure) -> Failure {
        let wanted = match self.settings().protocol {
            ProtocolChoice::Auto => return failure,
            ProtocolChoice::Legacy => "legacy",
            ProtocolChoice::Modern => "modern",
        };
        match failure {
            Failure::Declined(said) => Failure::Blocked(BlockCause::BadConfig(format!(
                "it does not speak the protocol that the config asks for (`protocol = \"{wanted}\"`): {said}"
            ))),
            failure => failure,
        }
    }

    /// A new session on the present link, without anything of the old one.
    pub(super) async fn renew_session(&self, epoch: Epoch, live: &Live) -> Result<Live, Failure> {
        let step = Step { route: live.route, era: live.session.era };
        match live.route {
            Route::Http | Route::Custom => {}
            // There the session is the stream or the process itself: a new one is a new link.
            Route::Stdio | Route::LegacySse => {
                return Err(Failure::Lost("it forgot the session that its link stands for".to_owned()));
            }
        }
        let marked = self.settings().marked().await?;
        let mut greeted =
            self.greet(&*live.link, step).await.map_err(|miss| self.secrets.classify(miss.evidence()));
        // Its server may have been started anew with the session and the credential forgotten.
        if let Err(Failure::CredentialRefused(said)) = &greeted {
            self.mend_credential(said).await?;
            greeted =
                self.greet(&*live.link, step).await.map_err(|miss| self.secrets.classify(miss.evidence()));
        }
        match greeted {
            Ok((session, server)) => {
                let (link, underway) = (Arc::clone(&live.link), Arc::clone(&live.underway));
                let (session, server) = (Arc::new(session), Arc::new(server));
                let mut renewed = self.live_with(epoch, live.route, link, session, server, underway);
                renewed.calls = self.restore(&renewed, &marked).await;
                self.pins.go_on_from(live.epoch, epoch);
                Ok(renewed)
            }
            Err(failure) => Err(failure),
        }
    }

    fn live_with(
        &self,
        epoch: Epoch,
        route: Route,
        link: Arc<dyn Link>,
        session: Arc<Session>,
        server: Arc<ServerFacts>,
        underway: Arc<Underway>,
    ) -> Live {
        self.wishes.serve_by(&underway);
        let listening = Arc::clone(&link).listen(Arc::clone(&session));
        let answers = Answers::over(&link, Arc::clone(&session));
        let context = self.context(session.version.clone().unwrap_or(ProtocolVersion::MODERN));
        let since = self.clock.mono();
        Live {
            epoch,
            link,
            session,
            server,
            route,
            since,
            context,
            calls: Vec::new(),
            told_as: OnceLock::new(),
            level: SessionLevel::default(),
            answers,
            underway,
            nesting: self.settings().nesting,
            thinking: Thinking::default(),
            has_asked: AtomicBool::new(false),
            knows_roots: AtomicBool::new(false),
            _listening: listening,
        }
    }

    async fn open(&self, settings: &Settings, route: Route, opening: &Opening) -> Result<Opened, Evidence> {
        self.attempt_line.store(self.stderr.from(u64::MAX).first, Ordering::Relaxed);
        let (to, inbox) = Inbox::new();
        let underway = Arc::clone(to.underway());
        let surroundings = Surroundings {
            inbox: to,
            stderr: Arc::clone(&self.stderr),
            secrets: Arc::clone(&self.secrets),
            children: self.children.clone(),
            host_id: Arc::clone(&settings.host_id),
            max_message: settings.max_message,
        };
        let link = settings.dialer.open(route, surroundings).await?;
        opening.set(Some(Arc::clone(&link)));
        Ok(Opened { route, link, inbox, underway, heard: Vec::new() })
    }

    pub(super) fn is_known_modern(&self) -> bool {
        let remembered = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.is_some_and(|verdict| verdict.modern)
    }

    fn remember(&self, settings: &Settings, verdict: Verdict) {
        let mut remembered = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if *remembered != Some(verdict) {
            *remembered = Some(verdict);
            settings.shelf.keep_verdict(verdict);
        }
    }

    /// Remembers how long the start took that has just succeeded, also for the next run of the gateway.
    pub(super) fn remember_start(&self) {
        let took = self.with(|machine, _| machine.last_start());
        let remembered = *self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = remembered {
            let steps = took.div_duration_f64(Verdict::START_STEP).floor() as u32;
            let start_steps = if steps == 0 { 0 } else { steps.saturating_add(1) };
            self.remember(&self.settings(), Verdict { start_steps, ..verdict });
        }
    }

    async fn greet_and_hear(&self, opened: &mut Opened, step: Step) -> Result<(Session, ServerFacts), Miss> {
        let Opened { link, inbox, heard, .. } = opened;
        let greeting = self.greet(&**link, step);
        tokio::pin!(greeting);
        loop {
            tokio::select! {
                greeted = &mut greeting => return greeted,
                Some(incoming) = inbox.recv() => match incoming {
                    // Told at once: a server that logs to stdout may never get through the handshake.
                    Incoming::Junk { lines, sample } => {
                        self.announce(self.clock.now(), Event::JunkSkipped { lines, sample });
                    }
                    incoming @ (Incoming::Message(_)
                    | Incoming::Question { .. }
                    | Incoming::Unattributed { .. }
                    | Incoming::Lost(_)
                    | Incoming::StreamRefused { .. }) => keep(heard, incoming),
                },
            }
        }
    }
}

/// The attempts, in order: what worked last time, then the modern era on each way, then the legacy one.
fn plan(routes: &[Route], choice: ProtocolChoice, remembered: Option<Verdict>) -> Vec<Step> {
    let mut steps = Vec::new();
    for route in routes {
        // The old transport is older than the modern era.
        if *route != Route::LegacySse && choice != ProtocolChoice::Legacy {
            steps.push(Step { route: *route, era: Era::Modern });
        }
        if choice != ProtocolChoice::Modern {
            steps.push(Step { route: *route, era: Era::Legacy });
        }
    }
    let known = remembered.and_then(|verdict| {
        let era = if verdict.modern { Era::Modern } else { Era::Legacy };
        steps.iter().position(|step| WireRoute::from(step.route) == verdict.route && step.era == era)
    });
    if let Some(at) = known {
        let first = steps.remove(at);
        steps.insert(0, first);
    }
    steps
}

/// Whether a server answered, with a no.
fn is_no(failure: &Failure) -> bool {
    matches!(failure, Failure::Declined(_) | Failure::Blocked(BlockCause::NotMcp(_)))
}

/// A way that answered, if only with a no, tells more than another's silence; but not more than a server
/// that is gone by now, or that named an address which is not followed.
fn more_telling<'a>(refusal: Option<&'a Evidence>, evidence: &'a Evidence) -> &'a Evidence {
    match &evidence.observed {
        Observed::Dial { .. } | Observed::LacksResources(_) | Observed::BadConfig(_) => evidence,
        Observed::NoExecutable(_)
        | Observed::SpawnFailed(_)
        | Observed::UnsetVariable(_)
        | Observed::NoToken(_)
        | Observed::Closed(_)
        | Observed::TurnedAway(_)
        | Observed::Exited { .. }
        | Observed::Silence(_)
        | Observed::Http(_)
        | Observed::Rpc { .. }
        | Observed::Garbled(_)
        | Observed::TooLarge(_)
        | Observed::NoMemory { .. } => refusal.unwrap_or(evidence),
    }
}

fn is_notification(incoming: &Incoming) -> bool {
    match incoming {
        Incoming::Message(message) => matches!(Message::parse(message), Ok(Message::Notification(_))),
        Incoming::Unattributed { .. } => true,
        Incoming::Question { .. }
        | Incoming::Lost(_)
        | Incoming::StreamRefused { .. }
        | Incoming::Junk { .. } => false,
    }
}

pub(super) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("a literal that is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP_THEN_SSE: [Route; 2] = [Route::Http, Route::LegacySse];

    fn steps(plan: Vec<Step>) -> Vec<(Route, bool)> {
        plan.into_iter().map(|step| (step.route, step.era == Era::Modern)).collect()
    }

    #[test]
    fn d08_an_unknown_server_is_asked_in_the_modern_way_first() {
        let plan = plan(&HTTP_THEN_SSE, ProtocolChoice::Auto, None);
        assert_eq!(steps(plan), [(Route::Http, true), (Route::Http, false), (Route::LegacySse, false)]);
    }

    #[test]
    fn d08_what_worked_last_time_is_tried_first_and_the_rest_stays() {
        let remembered =
            Verdict { route: WireRoute::LegacySse, modern: false, follows: false, start_steps: 0 };
        let plan = plan(&HTTP_THEN_SSE, ProtocolChoice::Auto, Some(remembered));
        assert_eq!(steps(plan), [(Route::LegacySse, false), (Route::Http, true), (Route::Http, false)]);
    }

    #[test]
    fn d08_the_operators_choice_leaves_the_other_era_out_whatever_is_remembered() {
        let remembered =
            Some(Verdict { route: WireRoute::Stdio, modern: true, follows: false, start_steps: 0 });
        assert_eq!(steps(plan(&[Route::Stdio], ProtocolChoice::Legacy, remembered)), [(Route::Stdio, false)]);
        assert_eq!(steps(plan(&[Route::Stdio], ProtocolChoice::Modern, None)), [(Route::Stdio, true)]);
    }
}
