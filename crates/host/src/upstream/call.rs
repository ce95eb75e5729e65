//! The way of one request to one upstream: admitted, written, answered, or judged and perhaps sent once
//! more. The only place where a call waits.

use super::answer::Answer;
use super::call_watch::CallWatch;
use super::catalog::wants_headers;
use super::input_waits::InputWait;
use super::waiters::Waiter;
use super::{Live, Origin, Upstream};
use crate::client::Principal;
use crate::ledger::OpenRow;
use crate::memory::AnswerMemory;
use crate::transport::{CallEar, Entered, Listener, Outgoing, Reply, SentMark, Trouble, not_a_response};
use gripfast_core::failure::classify::{doubts_session, without_last_words};
use gripfast_core::failure::crashes::{Allowed, Crashes};
use gripfast_core::failure::recovery::{self, Next, Replays, Safety};
use gripfast_core::failure::{
    CallError, Code, During, Evidence, Failure, Observed, Outcome as Fate, RpcError, Sent,
};
use gripfast_core::ids::Epoch;
use gripfast_core::isolation::{Caller, ServedPrincipals};
use gripfast_core::json::Digest;
use gripfast_core::supervise::upstream::{
    Admission, CallEnd, Input, LinkKind, Place, Reason, Refusal, Ticket, WaitFor,
};
use gripfast_core::text;
use gripfast_core::time::Mono;
use gripfast_wire::envelope::Message;
use gripfast_wire::era::{may_have_meta, meta};
use gripfast_wire::log::LogLevel;
use gripfast_wire::patch::{Object, Patch, patch_payload};
use gripfast_wire::trace::TraceContext;
use gripfast_wire::{Era, Outcome, RawValue, RequestId, envelope, headers, nesting};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// A request to one upstream.
pub(crate) struct Order {
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
    /// Whether executing it twice does harm.
    pub(crate) safety: Safety,
    /// When the caller stops waiting, if before the upstream's own limits.
    pub(crate) deadline: Option<Mono>,
    /// Who hears of its progress.
    pub(crate) listener: Option<Arc<dyn Listener>>,
    /// For whom it is made.
    pub(crate) caller: Caller,
    /// On whose behalf it is made.
    pub(crate) principal: Principal,
    /// What the caller can be asked, if it is not what the host can be asked.
    pub(crate) capabilities: Option<Box<RawValue>>,
    /// The least severe log message that the caller wants, if it said so.
    pub(crate) log_level: Option<LogLevel>,
    /// The tool that it calls, by the server's own name.
    pub(crate) tool: Option<String>,
    /// The memory that its answer is counted against.
    pub(crate) memory: Option<Arc<dyn AnswerMemory>>,
}

impl Order {
    /// The digest of who asks for what. `_meta` has no part in it: it differs from one attempt to the next.
    fn identity(&self) -> Digest {
        let params = self.params.as_deref().and_then(|params| Object::parse(params).ok());
        let bare = params.map(|params| Patch::new().remove("_meta").apply(&params));
        let said = bare.as_deref().or(self.params.as_deref()).map_or("", RawValue::get);
        let principal = self.principal.name();
        Digest::of(format!("{principal}\n{}\n{said}", self.method).as_bytes())
    }
}

impl Upstream {
    /// Carries out `order`. Dropping the future withdraws it: the server is told if it has seen it, and
    /// the slot is free at once.
    pub(crate) async fn exchange(&self, order: &Order, row: &OpenRow<'_>) -> Result<Answer, CallError> {
        let mut replays = Replays::default();
        let mut patience = Patience::new(self, &order.principal, order.deadline);
        // What is known of earlier attempts, if they left us at all.
        let mut attempted: Option<Fate> = None;
        self.refuse_after_crashes(order)?;
        self.refuse_while_asking(&order.principal, &order.caller)?;
        loop {
            let admitted = self.admitted(&mut patience, || row.waits(attempted)).await;
            let mut ticket = admitted.map_err(|error| after_an_attempt(error, attempted))?;
            patience.has_link();
            let Some(live) = self.live().filter(|live| live.epoch == ticket.epoch()) else {
                // The link went between admission and now; nothing was sent.
                drop(ticket);
                self.in_passing(&patience).await.map_err(|error| after_an_attempt(error, attempted))?;
                continue;
            };
            self.tell_level(&live, order.log_level, patience.deadline).await;
            if order.tool.is_some() && self.lacks_headers(&live) {
                self.listed(live.epoch, patience.deadline).await;
            }
            if let Some(tool) = &order.tool {
                let approved = self.still_approved(tool, live.epoch, patience.deadline).await;
                approved.map_err(|error| after_an_attempt(error, attempted))?;
            }
            let mark = Arc::new(SentMark::default());
            row.goes();
            ticket.used = true;
            let gone_at = self.clock.mono();
            let nesting = self.settings().nesting;
            let trouble = match self.send(&live, order, &mark, &ticket, gone_at, &mut patience).await {
                Ok(reply) => {
                    let is_too_deep = is_response_too_deep(&reply.message, nesting);
                    match judge(reply, &live) {
                        Ok(answer) => {
                            ticket.end(CallEnd::Answered);
                            self.crash_record_answered(order);
                            let answer = answer.after(attempted);
                            return if is_too_deep {
                                Err(too_deep(&self.name, nesting, answer.fate()))
                            } else {
                                Ok(answer)
                            };
                        }
                        Err(trouble) => trouble,
                    }
                }
                Err(trouble) => trouble,
            };
            if let Observed::NoMemory { why, is_answer } = &trouble.evidence.observed {
                ticket.end(CallEnd::Answered);
                self.crash_record_answered(order);
                let outcome = if *is_answer { Fate::Done } else { Fate::Unknown };
                return Err(no_memory(&self.name, why, recovery::final_outcome(outcome, attempted)));
            }
            let failure = self.secrets.classify(&trouble.evidence);
            if doubts_session(&trouble.evidence) {
                self.tell(Input::SessionDoubted { epoch: live.epoch });
            }
            ticket.end(match (&failure, trouble.evidence.sent) {
                // It could not even be written down: the server had no part in it.
                (Failure::Declined(_), Sent::No) => CallEnd::Unused,
                // Most of its time was gone before the server saw it, which teaches nothing about the server.
                (Failure::TimedOut(_), _) if patience.since(gone_at) < patience.spent() / 2 => {
                    CallEnd::Abandoned
                }
                _ => CallEnd::Failed(failure.clone()),
            });
            let answer = trouble.answer.and_then(|message| Answer::read(&message, live.session.era));
            if let (Failure::Declined(_), Some(answer)) = (&failure, &answer) {
                return Ok(answer.clone().after(attempted));
            }
            let failure = match live.underway.served_only(&order.principal) {
                true => failure,
                // What the server wrote to stderr may be about the calls of others.
                false => failure.without_last_words(),
            };
            let fate = recovery::fate_of(&failure, trouble.evidence.sent);
            let earlier = attempted;
            attempted = attempted.filter(|known| *known == Fate::Unknown).or(fate);
            let safety = match self.allowed_after(order, &live, &failure, trouble.evidence.sent) {
                Allowed::Replay => order.safety,
                Allowed::Once | Allowed::Nothing(_) => Safety::AtMostOnce,
            };
            let next = recovery::after(&failure, trouble.evidence.sent, safety, &mut replays);
            row.replayed(replays.count());
            match next {
                Next::Again => {}
                Next::AgainAfter(pause) => {
                    row.waits(attempted);
                    if !patience.rest(pause).await {
                        let fate = match &failure {
                            Failure::LacksResources(_) => Fate::NotSent,
                            _ => Fate::Refused,
                        };
                        let refused = CallError::from_failure(&self.name, &failure, fate);
                        return Err(after_an_attempt(refused, earlier));
                    }
                }
                Next::AgainOnceListed => self.listed(live.epoch, patience.deadline).await,
                Next::GiveUp(fate) => {
                    return match (failure, answer) {
                        // It says itself what is wrong with the request.
                        (Failure::Outdated(_), Some(answer)) => Ok(answer.after(earlier)),
                        (failure, _) => {
                            let failure = patience.as_told(failure);
                            let error = CallError::from_failure(&self.name, &failure, fate);
                            Err(after_an_attempt(error, earlier))
                        }
                    };
                }
            }
        }
    }

    /// Refuses a request that was the only one in flight at several deaths of the server process.
    fn refuse_after_crashes(&self, order: &Order) -> Result<(), CallError> {
        if !self.has_crashes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let wait = match self.crashes().allowed(self.clock.mono(), order.identity()) {
            Allowed::Replay | Allowed::Once => return Ok(()),
            Allowed::Nothing(wait) => wait,
        };
        let (name, deaths) = (&*self.name, Crashes::REFUSED_AT);
        let text = format!(
            "server `{name}` died {deaths} times within {} while this request was the only one in flight, \
             so the request is not sent",
            text::duration(Crashes::WINDOW),
        );
        Err(CallError::new(Code::Unreachable, name, Fate::NotSent, text)
            .retry_after(Some(wait))
            .hint(format!("`gripfast logs {name}` shows what the server wrote before it died")))
    }

    /// Notes the death of a server process with one request in flight, and tells whether that request may be replayed.
    fn allowed_after(&self, order: &Order, live: &Live, failure: &Failure, sent: Sent) -> Allowed {
        let died = matches!((failure, sent), (Failure::Lost(_), Sent::Yes));
        if !died || self.settings().dialer.kind() != LinkKind::Process {
            return Allowed::Replay;
        }
        let (now, request) = (self.clock.mono(), order.identity());
        let mut crashes = self.crashes();
        if live.underway.was_alone_at_loss() {
            crashes.died(now, request);
            self.has_crashes.store(true, Ordering::Relaxed);
        }
        crashes.allowed(now, request)
    }

    /// The request was answered, so it is not what the server process died of.
    fn crash_record_answered(&self, order: &Order) {
        if self.has_crashes.load(Ordering::Relaxed) {
            let mut crashes = self.crashes();
            crashes.answered(self.clock.mono(), order.identity());
            self.has_crashes.store(!crashes.is_empty(), Ordering::Relaxed);
        }
    }

    fn crashes(&self) -> MutexGuard<'_, Crashes> {
        self.crashes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it takes a first listing to know which arguments this server wants repeated in headers.
    fn lacks_headers(&self, live: &Live) -> bool {
        wants_headers(live) && self.listing.borrow().origin == Origin::Nothing
    }

    /// Waits while the catalog is being listed. Its failure ends that too.
    async fn listed(&self, epoch: Epoch, deadline: Mono) {
        self.while_listing(deadline, || self.with(|machine, _| machine.is_listing(epoch))).await;
    }

    /// A server may have come back as another one, so a tool is called only after what the tools say on this link
    /// was held up against what was approved, however long ago the caller asked. A session that is renewed on its link
    /// goes on with what was compared in the one before, until it is listed. A server that cannot list them at
    /// present is called all the same: callers see its tools as they were approved.
    async fn still_approved(&self, tool: &str, epoch: Epoch, deadline: Mono) -> Result<(), CallError> {
        if self.pins.are_behind(epoch) {
            let is_awaited =
                || self.pins.are_behind(epoch) && self.with(|machine, _| machine.has_catalog(epoch));
            self.while_listing(deadline, is_awaited).await;
        }
        if self.pins.holds(tool) {
            // Somebody may have approved it meanwhile, here or elsewhere.
            self.screen_again();
        }
        if self.pins.holds(tool) { Err(self.pins.refusal(&self.name, tool)) } else { Ok(()) }
    }

    /// Waits while something is so that a listing ends, or the failure of one.
    async fn while_listing(&self, deadline: Mono, is_so: impl Fn() -> bool) {
        let limit = self.clock.mono() + self.settings().supervision.timeouts.connect;
        let until = self.clock.instant(deadline.min(limit));
        loop {
            let turn = self.changed.notified();
            tokio::pin!(turn);
            turn.as_mut().enable();
            if !is_so() {
                return;
            }
            tokio::select! {
                () = turn => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    fn served(&self) -> MutexGuard<'_, ServedPrincipals<Principal>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mint_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until the machine lets this call go, for as long as it may be held.
    pub(super) async fn admitted(
        &self,
        patience: &mut Patience<'_>,
        has_to_wait: impl Fn(),
    ) -> Result<OpenTicket<'_>, CallError> {
        let mut place: Option<Held<'_>> = None;
        loop {
            let (admission, waiter) = match place.take() {
                None => self.with(|machine, now| {
                    let admission = machine.admit_for(now, patience.principal.key());
                    let waiter = match &admission {
                        Admission::Wait(place) => Some(self.waiters.add(place.number)),
                        Admission::Go(_) | Admission::Refuse(_) => None,
                    };
                    (admission, waiter)
                }),
                Some(held) => held.ask_again(),
            };
            let place_taken = match admission {
                Admission::Go(ticket) => return Ok(OpenTicket::new(self, ticket)),
                Admission::Refuse(refusal) => return Err(self.refused(&refusal, patience)),
                Admission::Wait(place) => place,
            };
            let held = place.insert(Held { upstream: self, place: Some(place_taken), waiter });
            let wait_for = held.wait_for();
            let until = patience.until(wait_for);
            has_to_wait();
            tokio::select! {
                () = held.woken() => {}
                () = tokio::time::sleep_until(self.clock.instant(until)) => {
                    return Err(self.waited_in_vain(wait_for, patience));
                }
            }
        }
    }

    /// The link went the moment somebody was admitted to it. Whoever has it replaced gets a turn, and the caller's time
    /// goes on.
    pub(super) async fn in_passing(&self, patience: &Patience<'_>) -> Result<(), CallError> {
        if self.clock.mono() >= patience.deadline {
            return Err(self.waited_in_vain(WaitFor::Link, patience));
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn send(
        &self,
        live: &Arc<Live>,
        order: &Order,
        mark: &Arc<SentMark>,
        ticket: &OpenTicket<'_>,
        now: Mono,
        patience: &mut Patience<'_>,
    ) -> Result<Reply, Box<Trouble>> {
        let watch = Arc::new(CallWatch::new(self.clock, live, order.listener.clone()));
        let request = self.outgoing(live, order, mark, &watch)?;
        let ear: Arc<dyn CallEar> = Arc::clone(&watch) as Arc<dyn CallEar>;
        let under_way =
            live.underway.enter(request.id, order.caller.clone(), &order.principal, ear, Arc::clone(mark));
        let waits = || self.waits_for_input(ticket, &order.principal, &order.caller);
        let answering =
            self.answered(live, request, under_way, mark, &watch, (now, patience.deadline), waits);
        let answered = answering.await;
        // Time that somebody else spent over a question is not the next attempt's either.
        patience.deadline = patience.deadline + watch.spent_on_questions();
        answered
    }

    #[expect(clippy::too_many_arguments, reason = "all that one attempt is made of")]
    async fn answered<'a>(
        &'a self,
        live: &Live,
        request: Outgoing,
        under_way: Entered,
        mark: &SentMark,
        watch: &CallWatch,
        (begun, deadline): (Mono, Mono),
        waits_for_input: impl Fn() -> InputWait<'a>,
    ) -> Result<Reply, Box<Trouble>> {
        let mut now = begun;
        // While a person thinks, others may use the slot.
        let mut input_wait: Option<InputWait<'_>> = None;
        let limits = self.settings().supervision.timeouts;
        let mut answer = live.link.request(&live.session, request);
        let observed = loop {
            match (watch.is_asking(), &input_wait) {
                (true, None) => input_wait = Some(waits_for_input()),
                (false, Some(_)) => input_wait = None,
                (true, Some(_)) | (false, None) => {}
            }
            if watch.is_over() {
                let leaving = self.is_leaving.load(Ordering::Acquire);
                let why = if leaving { "the gateway is shutting down" } else { "the server was stopped" };
                break Observed::Closed(why.to_owned());
            }
            // Time that somebody else spends over a question is not the server's.
            let end = deadline + watch.spent_on_questions();
            // Silence is only timed once the server has shown that it reports progress.
            let silent_at = watch.last_heard(now).map(|heard| heard + limits.progress);
            let silent = silent_at.is_some_and(|at| at <= now);
            if silent || end <= now {
                let waited = if silent { limits.progress } else { now - begun };
                break Observed::Silence(waited);
            }
            let due = silent_at.map_or(end, |at| at.min(end));
            tokio::select! {
                biased;
                answer = &mut answer => {
                    let is_lost = |trouble: &Trouble| {
                        !matches!(trouble.evidence.observed, Observed::NoMemory { .. })
                    };
                    if answer.as_ref().is_err_and(|trouble| is_lost(trouble)) {
                        live.underway.note_loss();
                    }
                    under_way.answered();
                    return answer;
                }
                () = watch.news() => self.tell(Input::Heard { epoch: live.epoch }),
                () = tokio::time::sleep_until(self.clock.instant(due)), if !watch.is_asking() => {}
            }
            now = self.clock.mono();
        };
        // Withdrawn first: until then it may still be begun.
        drop(answer);
        Err(Evidence { during: During::Call, sent: mark.sent(), observed }.into())
    }

    fn outgoing(
        &self,
        live: &Live,
        order: &Order,
        mark: &Arc<SentMark>,
        watch: &Arc<CallWatch>,
    ) -> Result<Outgoing, Box<Trouble>> {
        let unusable = |error: &dyn std::fmt::Display| -> Box<Trouble> {
            let said = RpcError { code: gripfast_wire::codes::INVALID_PARAMS, message: error.to_string() };
            let observed = Observed::Rpc { error: said, had_session: false };
            let id = RequestId::from(0);
            let answer = envelope::error_response(
                Some(id.as_id()),
                gripfast_wire::codes::INVALID_PARAMS,
                &error.to_string(),
                None,
            );
            Box::new(Trouble {
                evidence: Evidence::unsent(During::Call, observed),
                answer: Some(answer.into()),
            })
        };
        let id = self.mint_id();
        let params = order.params.as_deref();
        let members = params.filter(|params| may_have_meta(params)).and_then(|said| Object::parse(said).ok());
        let said = members.as_ref().and_then(|members| members.object("_meta"));
        let mut patch = match live.session.era {
            Era::Modern => modern_context(live, order, said.as_ref()),
            Era::Legacy => {
                if brings_state(members.as_ref(), said.as_ref()) {
                    return Err(unusable(&"the `requestState` was not given out by this server"));
                }
                without_modern_context(said.as_ref())
            }
        };
        // Tokens are the callers' own and may collide; ours is the id, which does not.
        if let Some(token) = said.as_ref().and_then(|said| said.get(meta::PROGRESS_TOKEN)) {
            watch.restore(token.to_owned());
            patch = patch.set_owned(meta::PROGRESS_TOKEN, number(id));
        }
        let patched = if patch.is_empty() {
            None
        } else {
            Some(patch_payload(params, &Patch::new(), &patch).map_err(|error| unusable(&error))?)
        };
        let params = patched.as_deref().or(params);
        let (name, mut headers) = match live.session.era {
            Era::Modern => {
                let standard =
                    headers::standard_headers(&order.method, params).map_err(|error| unusable(&error))?;
                (standard.name.map(Into::into), self.param_headers(order))
            }
            Era::Legacy => (None, Vec::new()),
        };
        // Whatever traces requests on the way, or at the server, need not know MCP.
        if let Some(TraceContext { parent, state }) = said.as_ref().and_then(TraceContext::in_meta) {
            headers.push((meta::TRACEPARENT.to_owned(), parent.into_owned()));
            headers.extend(state.map(|state| (meta::TRACESTATE.to_owned(), state.into_owned())));
        }
        Ok(Outgoing {
            id,
            method: order.method.clone(),
            message: envelope::request(id, &order.method, params),
            name,
            headers,
            during: During::Call,
            safety: order.safety,
            sent: Arc::clone(mark),
            listener: Some(Arc::clone(watch) as Arc<dyn Listener>),
            memory: order.memory.clone(),
        })
    }

    /// The `Mcp-Param-*` headers of the modern era, as the last listing wants them.
    fn param_headers(&self, order: &Order) -> Vec<(String, String)> {
        let wanted = Arc::clone(&self.listing.borrow().param_headers);
        let Some(headers) = order.tool.as_ref().and_then(|tool| wanted.get(tool)) else { return Vec::new() };
        let params = order.params.as_deref().and_then(|params| Object::parse(params).ok());
        let arguments = params.and_then(|params| params.get("arguments"));
        headers.for_arguments(arguments).unwrap_or_default()
    }

    fn refused(&self, refusal: &Refusal, patience: &Patience<'_>) -> CallError {
        let name = &*self.name;
        let known = |cause: &Option<String>| {
            let cause = cause.as_deref().map(|cause| patience.shown(cause));
            cause.map(|cause| format!(" ({cause})")).unwrap_or_default()
        };
        let hint =
            format!("`gripfast status {name}` shows the last error; `gripfast reconnect {name}` tries now");
        let error = match &refusal.reason {
            Reason::CircuitOpen { failures } => CallError::new(
                Code::Unreachable,
                name,
                Fate::NotSent,
                format!("upstream `{name}` is unreachable ({failures} failed calls)"),
            )
            .hint(hint),
            Reason::Reconnecting { cause } => CallError::new(
                Code::Reconnecting,
                name,
                Fate::NotSent,
                format!("upstream `{name}` is being reconnected{}", known(cause)),
            )
            .hint(hint),
            Reason::Parked { cause } => CallError::new(
                Code::Unreachable,
                name,
                Fate::NotSent,
                format!("upstream `{name}` is unreachable{} and is tried only now and then", known(cause)),
            )
            .hint(hint),
            Reason::Blocked(cause) => CallError::blocked(name, cause, Fate::NotSent),
            Reason::Stopped if self.is_leaving.load(Ordering::Acquire) => {
                let text = "the gateway is shutting down and takes no further calls";
                CallError::new(Code::Stopped, name, Fate::NotSent, text)
            }
            Reason::Stopped => self.stopped(),
            Reason::Crashed { deaths, within } => {
                let within = text::duration(*within);
                CallError::new(
                    Code::Unreachable,
                    name,
                    Fate::NotSent,
                    format!(
                        "server `{name}` died {deaths} times within {within} while only calls of this client were \
                         in flight, so its calls are not sent for a while"
                    ),
                )
                .hint(format!("find the call that ends the server; the operator sees why in `gripfast logs {name}`"))
            }
            Reason::MadeRoom => CallError::new(
                Code::Overloaded,
                name,
                Fate::NotSent,
                format!(
                    "server `{name}` has too many calls waiting, most of them of this client; its newest one made \
                     room for another client"
                ),
            )
            .hint("send fewer calls at a time, or raise `max_in_flight` if the server can do more at once"),
            Reason::Overloaded => CallError::new(
                Code::Overloaded,
                name,
                Fate::NotSent,
                format!("upstream `{name}` has too many calls waiting already"),
            )
            .hint("raise `max_in_flight` if the server can do more at once"),
        };
        error.retry_after(refusal.retry_after)
    }

    fn waited_in_vain(&self, wait_for: WaitFor, patience: &Patience<'_>) -> CallError {
        let name = &*self.name;
        let status = self.with(|machine, now| machine.status(now));
        match wait_for {
            WaitFor::Link => {
                let cause = status.cause.as_deref().map(|cause| patience.shown(cause));
                let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
                CallError::new(
                    Code::Reconnecting,
                    name,
                    Fate::NotSent,
                    format!(
                        "upstream `{name}` is still being reconnected{cause}; the call was held and not sent"
                    ),
                )
                .retry_after(status.next_attempt)
                .hint(format!("`gripfast status {name}` shows the last error"))
            }
            WaitFor::Slot => {
                let waited = text::duration(patience.spent());
                CallError::new(
                    Code::Overloaded,
                    name,
                    Fate::NotSent,
                    format!(
                        "upstream `{name}` is busy with {} calls; none ended within {waited}, so the call was not sent",
                        status.in_flight
                    ),
                )
                .retry_after(Some(Duration::from_secs(1)))
                .hint("raise `max_in_flight` if the server can do more at once")
            }
        }
    }
}

/// A call that is turned away at its second attempt may have been carried out at the first.
fn after_an_attempt(mut error: CallError, attempted: Option<Fate>) -> CallError {
    let outcome = recovery::final_outcome(error.outcome, attempted);
    if outcome == Fate::Unknown && error.outcome != Fate::Unknown {
        error.text.push_str("; an earlier attempt was sent, and whether it was carried out is unknown");
    }
    error.outcome = outcome;
    error
}

/// Whether the result or the error in a response is nested more than `limit` levels deep. The envelope is a level too.
pub(super) fn is_response_too_deep(message: &[u8], limit: usize) -> bool {
    nesting::exceeds(message, limit.saturating_add(1))
}

/// Whether a member of the parameters of a server's request or notification is nested more than `limit` levels deep.
pub(super) fn is_request_too_deep(message: &[u8], limit: usize) -> bool {
    nesting::exceeds(message, limit.saturating_add(2))
}

/// The error for an answer that arrived and is nested too deeply. The link is well.
fn too_deep(server: &str, limit: usize, outcome: Fate) -> CallError {
    let text = format!(
        "server `{server}` answered with a result that is nested more than {limit} levels deep, so it is not passed on"
    );
    CallError::new(Code::UpstreamProtocol, server, outcome, text).hint(
        "raise `gateway.limits.nesting` if the result is meant to be so deep; check the effect before you repeat the call",
    )
}

/// The error for an answer that there is no memory for. The link is well.
pub(crate) fn no_memory(server: &str, why: &str, outcome: Fate) -> CallError {
    let text = format!("server `{server}` answered, and there is no memory for the answer: {why}");
    CallError::new(Code::Overloaded, server, outcome, text).hint(
        "read the answers that wait, and ask for less at a time; check the effect before you repeat the call",
    )
}

/// A reply that is an error may still mean that the session is gone; only the classifier can tell.
pub(super) fn judge(reply: Reply, live: &Live) -> Result<Answer, Box<Trouble>> {
    let (era, memory) = (live.session.era, reply.memory);
    let Ok(Message::Response(response)) = Message::parse(&reply.message) else {
        let observed = Observed::Garbled(not_a_response(&reply.message));
        return Err(Evidence::sent(During::Call, observed).into());
    };
    let said = match response.outcome {
        outcome @ Outcome::Result(_) => return Ok(Answer::of(&outcome, era).counted(memory)),
        // Where there is no session none can be gone: whatever it says of sessions, it says of its own.
        outcome @ Outcome::Error(_) if !live.has_session() => {
            return Ok(Answer::of(&outcome, era).counted(memory));
        }
        Outcome::Error(error) => RpcError { code: error.code, message: error.message.into_owned() },
    };
    let evidence = Evidence::sent(During::Call, Observed::Rpc { error: said, had_session: true });
    Err(Box::new(Trouble { evidence, answer: Some(reply.message) }))
}

/// The context that a modern server wants in each request. What the caller says about itself stands; what
/// it does not say is said for us.
fn modern_context<'a>(live: &'a Live, order: &'a Order, said: Option<&Object<'_>>) -> Patch<'a> {
    let unsaid = |key| said.is_none_or(|said| !said.has(key));
    let context = &live.context;
    let mut patch = Patch::new().set_text(meta::PROTOCOL_VERSION, context.version.as_str());
    if unsaid(meta::CLIENT_CAPABILITIES) {
        let capabilities = order.capabilities.as_deref().unwrap_or(&context.capabilities);
        patch = patch.set(meta::CLIENT_CAPABILITIES, capabilities);
    }
    if let Some(level) = order.log_level.filter(|_| unsaid(meta::LOG_LEVEL)) {
        patch = patch.set_text(meta::LOG_LEVEL, level.name());
    }
    match &context.client_info {
        Some(info) if unsaid(meta::CLIENT_INFO) => patch.set(meta::CLIENT_INFO, info),
        Some(_) | None => patch,
    }
}

/// A caller of the modern era says in each request what a legacy server was told in the handshake, and
/// some servers take it for a contradiction.
fn without_modern_context(said: Option<&Object<'_>>) -> Patch<'static> {
    let Some(said) = said else { return Patch::new() };
    let modern = [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL];
    let present = modern.into_iter().filter(|key| said.has(key));
    present.fold(Patch::new(), |patch, key| patch.remove(key))
}

/// Whether a modern request goes on with something that its server is to have begun. A legacy server begins
/// nothing of the kind, so it is somebody else's, or was tampered with.
fn brings_state(params: Option<&Object<'_>>, said: Option<&Object<'_>>) -> bool {
    let is_modern = said.is_some_and(|said| said.has(meta::PROTOCOL_VERSION));
    is_modern && params.is_some_and(|params| params.has("requestState"))
}

fn number(id: u64) -> Box<RawValue> {
    RawValue::from_string(id.to_string()).expect("a number is JSON")
}

/// How long one call may be held and may take.
pub(super) struct Patience<'a> {
    upstream: &'a Upstream,
    principal: Principal,
    begun: Mono,
    /// When it ends in any case, with all its waits and attempts: the caller's own deadline, or ours.
    deadline: Mono,
    /// How much of the time for holding was spent on earlier attempts.
    held: Duration,
    /// Since when it waits for a link.
    held_since: Option<Mono>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(upstream: &'a Upstream, principal: &Principal, deadline: Option<Mono>) -> Self {
        upstream.served().note(principal);
        let begun = upstream.clock.mono();
        let ours = begun + upstream.settings().supervision.timeouts.call;
        let deadline = deadline.map_or(ours, |theirs| theirs.min(ours));
        Self {
            upstream,
            principal: principal.clone(),
            begun,
            deadline,
            held: Duration::ZERO,
            held_since: None,
        }
    }

    /// The cause of an outage, as the caller may see it: what the server wrote to stderr may be about the calls of
    /// others, if it ever had any.
    fn shown<'c>(&self, cause: &'c str) -> &'c str {
        match self.upstream.served().is_only(&self.principal) {
            true => cause,
            false => without_last_words(cause),
        }
    }

    /// The time since the call began.
    fn spent(&self) -> Duration {
        self.since(self.begun)
    }

    fn since(&self, then: Mono) -> Duration {
        self.upstream.clock.mono() - then
    }

    /// A caller whose whole time is up is told that time: it does not know when its turn began.
    fn as_told(&self, failure: Failure) -> Failure {
        match failure {
            Failure::TimedOut(_) if self.upstream.clock.mono() >= self.deadline => {
                Failure::TimedOut(self.deadline - self.begun)
            }
            failure => failure,
        }
    }

    fn until(&mut self, wait_for: WaitFor) -> Mono {
        match wait_for {
            WaitFor::Link => {
                let limits = self.upstream.settings().supervision.timeouts;
                let since = *self.held_since.get_or_insert(self.upstream.clock.mono());
                self.deadline.min(since + limits.reconnect_wait.saturating_sub(self.held))
            }
            WaitFor::Slot => {
                self.has_link();
                self.deadline
            }
        }
    }

    /// There is a link: from now on its time is not spent on waiting for one.
    pub(super) fn has_link(&mut self) {
        if let Some(since) = self.held_since.take() {
            self.held += self.since(since);
        }
    }

    /// Waits as a busy server asked for, if the caller has that much time.
    async fn rest(&self, pause: Duration) -> bool {
        let limits = self.upstream.settings().supervision.timeouts;
        let wake = self.upstream.clock.mono() + pause;
        let affordable = pause <= limits.reconnect_wait && wake < self.deadline;
        if affordable {
            tokio::time::sleep(pause).await;
        }
        affordable
    }
}

/// A ticket that is given back however the call ends.
pub(super) struct OpenTicket<'a> {
    upstream: &'a Upstream,
    ticket: Option<Ticket>,
    /// Something may have been sent with it.
    used: bool,
}

impl<'a> OpenTicket<'a> {
    fn new(upstream: &'a Upstream, ticket: Ticket) -> Self {
        Self { upstream, ticket: Some(ticket), used: false }
    }
}

impl OpenTicket<'_> {
    pub(super) fn epoch(&self) -> Epoch {
        self.ticket().epoch()
    }

    pub(super) fn ticket(&self) -> &Ticket {
        self.ticket.as_ref().expect("a ticket is taken only at its end")
    }

    fn end(mut self, end: CallEnd) {
        if let Some(ticket) = self.ticket.take() {
            self.upstream.with(|machine, now| machine.end(now, ticket, end));
        }
    }
}

impl Drop for OpenTicket<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let end = if self.used { CallEnd::Abandoned } else { CallEnd::Unused };
            self.upstream.with(|machine, now| machine.end(now, ticket, end));
        }
    }
}

/// A place in the queue that is left however the wait ends.
struct Held<'a> {
    upstream: &'a Upstream,
    place: Option<Place>,
    waiter: Option<Waiter<'a>>,
}

impl<'a> Held<'a> {
    fn wait_for(&self) -> WaitFor {
        self.place.as_ref().map_or(WaitFor::Link, |place| place.wait_for)
    }

    /// Ends when it is to ask again.
    async fn woken(&self) {
        match &self.waiter {
            Some(waiter) => waiter.woken().await,
            None => std::future::pending().await,
        }
    }

    fn ask_again(mut self) -> (Admission, Option<Waiter<'a>>) {
        let place = self.place.take().expect("a place is taken only to ask again");
        let admission = self.upstream.with(|machine, now| machine.readmit(now, place));
        (admission, self.waiter.take())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.upstream.with(|machine, now| machine.leave(now, place));
        }
    }
}
