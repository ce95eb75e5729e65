//! One request to one upstream: wait for admission, send, wait for the answer, classify a failure and perhaps replay.
//! The only place where a call waits.

use super::answer::Answer;
use super::call_watch::CallWatch;
use super::input_waits::InputWait;
use super::listing::may_need_headers;
use super::waiters::Waiter;
use super::{Connection, ListingOrigin, Upstream};
use crate::client::Principal;
use crate::large_message;
use crate::memory::AnswerMemory;
use crate::records::ledger::OpenRow;
use crate::transport::{
    CallListener, InFlightCall, Listener, Outgoing, Reply, SendError, SentFlag, not_a_response,
};
use gripfast_core::failure::classify::{doubts_session, without_stderr};
use gripfast_core::failure::crashes::{Crashes, ReplayVerdict};
use gripfast_core::failure::recovery::{self, NextStep, Replays, Safety};
use gripfast_core::failure::{
    CallError, CallOutcome, Code, During, Evidence, Failure, Observed, RpcError, Sent,
};
use gripfast_core::ids::Epoch;
use gripfast_core::isolation::Caller;
use gripfast_core::json::Digest;
use gripfast_core::supervise::upstream::{
    Admission, CallEnd, Input, LinkKind, QueuePlace, Refusal, RefusalReason, Ticket, WaitFor,
};
use gripfast_core::text;
use gripfast_core::time::Mono;
use gripfast_wire::envelope::Message;
use gripfast_wire::era::{may_have_meta, meta};
use gripfast_wire::log::LogLevel;
use gripfast_wire::patch::{NotAnObject, Object, Patch, patch_payload};
use gripfast_wire::trace::TraceContext;
use gripfast_wire::{Era, Json, JsonText, Outcome, RequestId, envelope, headers, nesting};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A request to one upstream.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a Json>,
    /// Decides whether the request may be replayed.
    pub(crate) safety: Safety,
    /// The caller's deadline, if it is before the upstream's own.
    pub(crate) deadline: Option<Mono>,
    /// Receives progress and answers server requests.
    pub(crate) listener: Option<&'a Arc<dyn Listener>>,
    /// The client of the request.
    pub(crate) caller: &'a Caller,
    /// The principal of the request.
    pub(crate) principal: &'a Principal,
    /// Client capabilities of the caller; default: those of the host.
    pub(crate) capabilities: Option<&'a Json>,
    /// Lowest severity of log messages that the caller wants.
    pub(crate) log_level: Option<LogLevel>,
    /// The called tool, by the server's own name.
    pub(crate) tool: Option<Cow<'a, str>>,
    /// Memory budget of the answer.
    pub(crate) memory: Option<&'a Arc<dyn AnswerMemory>>,
}

impl UpstreamRequest<'_> {
    /// Digest of principal, method and parameters without `_meta`, which differs between attempts.
    fn identity(&self) -> Digest {
        let params = self.params.and_then(|params| Object::parse(params).ok());
        let bare = params.map(|params| Patch::new().remove("_meta").apply(&params));
        let params_text = bare.as_deref().or(self.params).map_or("", Json::get);
        let principal = self.principal.name();
        Digest::of(format!("{principal}\n{}\n{params_text}", self.method).as_bytes())
    }
}

impl Upstream {
    /// Sends the request and waits for its answer. Dropping the future cancels it: the server is notified if it may
    /// have seen the request, and the slot is free immediately.
    pub(crate) async fn call(
        &self,
        request: &UpstreamRequest<'_>,
        row: &OpenRow<'_>,
    ) -> Result<Answer, CallError> {
        let mut replays = Replays::default();
        let mut deadlines = CallDeadlines::new(self, request.principal, request.deadline);
        // Outcome of earlier attempts, if any was sent.
        let mut attempted: Option<CallOutcome> = None;
        self.refuse_after_crashes(request)?;
        self.refuse_while_waiting(request.principal, request.caller)?;
        loop {
            let admitted = self.wait_for_admission(&mut deadlines, || row.record_waiting(attempted)).await;
            let mut ticket = admitted.map_err(|error| with_earlier_attempt(error, attempted))?;
            deadlines.link_acquired();
            let Some(connection) = self.connection().filter(|connection| connection.epoch == ticket.epoch())
            else {
                // The connection was lost between admission and now; nothing was sent.
                drop(ticket);
                self.yield_to_supervisor(&deadlines)
                    .await
                    .map_err(|error| with_earlier_attempt(error, attempted))?;
                continue;
            };
            self.request_log_level(&connection, request.log_level, deadlines.deadline).await;
            if request.tool.is_some() && self.needs_first_listing(&connection) {
                self.wait_for_listing(connection.epoch, deadlines.deadline).await;
            }
            if let Some(tool) = &request.tool {
                let approved = self.check_still_approved(tool, connection.epoch, deadlines.deadline).await;
                approved.map_err(|error| with_earlier_attempt(error, attempted))?;
            }
            let sent_flag = Arc::new(SentFlag::default());
            row.record_sent();
            ticket.may_be_sent = true;
            let sent_at = self.clock.mono();
            let nesting = self.deps().max_nesting;
            let send_error = match self
                .send(&connection, request, &sent_flag, &ticket, sent_at, &mut deadlines)
                .await
            {
                Ok(reply) => {
                    let (is_too_deep, judged) = large_message::process(reply.message.len(), || {
                        (is_response_too_deep(&reply.message, nesting), classify_reply(reply, &connection))
                    })
                    .await;
                    match judged {
                        Ok(answer) => {
                            ticket.end(CallEnd::Answered);
                            self.clear_crash_record(request);
                            let answer = answer.after_attempt(attempted);
                            return if is_too_deep {
                                Err(too_deep_error(&self.name, nesting, answer.call_outcome()))
                            } else {
                                Ok(answer)
                            };
                        }
                        Err(send_error) => send_error,
                    }
                }
                Err(send_error) => send_error,
            };
            if let Observed::NoMemory { why, is_answer } = &send_error.evidence.observed {
                ticket.end(CallEnd::Answered);
                self.clear_crash_record(request);
                let outcome = if *is_answer { CallOutcome::Done } else { CallOutcome::Unknown };
                return Err(out_of_memory_error(
                    &self.name,
                    why,
                    recovery::final_outcome(outcome, attempted),
                ));
            }
            let failure = self.secrets.classify(&send_error.evidence);
            if doubts_session(&send_error.evidence) {
                self.handle_input(Input::SessionDoubted { epoch: connection.epoch });
            }
            ticket.end(match (&failure, send_error.evidence.sent) {
                // The request could not be serialised: the server was not involved.
                (Failure::Declined(_), Sent::No) => CallEnd::Unused,
                // Most of the time was spent before the server got the request, so the timeout says nothing about the
                // server.
                (Failure::TimedOut(_), _) if deadlines.since(sent_at) < deadlines.elapsed() / 2 => {
                    CallEnd::Abandoned
                }
                _ => CallEnd::Failed(failure.clone()),
            });
            let answer =
                send_error.answer.and_then(|message| Answer::parse(&message, connection.session.era));
            if let (Failure::Declined(_), Some(answer)) = (&failure, &answer) {
                return Ok(answer.clone().after_attempt(attempted));
            }
            let failure = match connection.in_flight.served_only(request.principal) {
                true => failure,
                // The server's stderr may be about calls of other principals.
                false => failure.without_stderr(),
            };
            let fate = recovery::attempt_outcome(&failure, send_error.evidence.sent);
            let earlier = attempted;
            attempted = attempted.filter(|known| *known == CallOutcome::Unknown).or(fate);
            let safety =
                match self.may_replay_after_crash(request, &connection, &failure, send_error.evidence.sent) {
                    ReplayVerdict::Replay => request.safety,
                    ReplayVerdict::NoReplay | ReplayVerdict::Refused(_) => Safety::AtMostOnce,
                };
            let next = recovery::next_step(&failure, send_error.evidence.sent, safety, &mut replays);
            row.record_replays(replays.count());
            match next {
                NextStep::Retry => {}
                NextStep::RetryAfter(pause) => {
                    row.record_waiting(attempted);
                    if !deadlines.wait_retry_after(pause).await {
                        let fate = match &failure {
                            Failure::OutOfResources(_) => CallOutcome::NotSent,
                            _ => CallOutcome::Refused,
                        };
                        let refused = CallError::from_failure(&self.name, &failure, fate);
                        return Err(with_earlier_attempt(refused, earlier));
                    }
                }
                NextStep::RetryAfterListing => {
                    self.wait_for_listing(connection.epoch, deadlines.deadline).await
                }
                NextStep::GiveUp(fate) => {
                    return match (failure, answer) {
                        // The server's answer explains what is wrong with the request.
                        (Failure::HeaderMismatch(_), Some(answer)) => Ok(answer.after_attempt(earlier)),
                        (failure, _) => {
                            let failure = deadlines.with_caller_time(failure);
                            let error = CallError::from_failure(&self.name, &failure, fate);
                            Err(with_earlier_attempt(error, earlier))
                        }
                    };
                }
            }
        }
    }

    /// Refuses a request that was alone in flight each time the server process died recently.
    fn refuse_after_crashes(&self, request: &UpstreamRequest<'_>) -> Result<(), CallError> {
        if !self.has_crashes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let wait = match self.crashes.lock().verdict(self.clock.mono(), request.identity()) {
            ReplayVerdict::Replay | ReplayVerdict::NoReplay => return Ok(()),
            ReplayVerdict::Refused(wait) => wait,
        };
        let (name, deaths) = (&*self.name, Crashes::REFUSED_AT);
        let text = format!(
            "server `{name}` died {deaths} times within {} while this request was the only one in flight, \
             so the request is not sent",
            text::duration(Crashes::WINDOW),
        );
        Err(CallError::new(Code::Unreachable, name, CallOutcome::NotSent, text)
            .with_retry_after(Some(wait))
            .with_hint(format!("`gripfast logs {name}` shows what the server wrote before it died")))
    }

    /// Records the death of a server process with one request in flight, and decides whether that request may be
    /// replayed.
    fn may_replay_after_crash(
        &self,
        request: &UpstreamRequest<'_>,
        connection: &Connection,
        failure: &Failure,
        sent: Sent,
    ) -> ReplayVerdict {
        let died = matches!((failure, sent), (Failure::Lost(_), Sent::Yes));
        if !died || self.deps().dialer.kind() != LinkKind::Process {
            return ReplayVerdict::Replay;
        }
        let (now, identity) = (self.clock.mono(), request.identity());
        let mut crashes = self.crashes.lock();
        if connection.in_flight.was_alone_at_loss() {
            crashes.record_crash(now, identity);
            self.has_crashes.store(true, Ordering::Relaxed);
        }
        crashes.verdict(now, identity)
    }

    /// Clears the crash record of a request that was answered.
    fn clear_crash_record(&self, request: &UpstreamRequest<'_>) {
        if self.has_crashes.load(Ordering::Relaxed) {
            let mut crashes = self.crashes.lock();
            crashes.answered(self.clock.mono(), request.identity());
            self.has_crashes.store(!crashes.is_empty(), Ordering::Relaxed);
        }
    }

    /// Returns true if a first listing is needed to know which arguments this server wants in headers.
    fn needs_first_listing(&self, connection: &Connection) -> bool {
        may_need_headers(connection) && self.listing.borrow().origin == ListingOrigin::Nothing
    }

    /// Waits until the running listing has ended or failed.
    async fn wait_for_listing(&self, epoch: Epoch, deadline: Mono) {
        self.wait_while_listing(deadline, || self.with_machine(|machine, _| machine.is_listing(epoch))).await;
    }

    /// Checks that the tool is still approved. A server may have come back with other tools, so the tools of this
    /// connection are compared with the approved ones before a call. A renewed session keeps the comparison of the
    /// one before until it is listed. A server that cannot list its tools at present is called nevertheless: callers
    /// see its tools as they were approved.
    async fn check_still_approved(&self, tool: &str, epoch: Epoch, deadline: Mono) -> Result<(), CallError> {
        if self.pins.needs_comparison(epoch) {
            let is_awaited = || {
                self.pins.needs_comparison(epoch)
                    && self.with_machine(|machine, _| machine.has_catalog(epoch))
            };
            self.wait_while_listing(deadline, is_awaited).await;
        }
        if self.pins.is_held(tool) {
            // The tool may have been approved meanwhile, here or by another process.
            self.screen_again();
        }
        if self.pins.is_held(tool) { Err(self.pins.refusal(&self.name, tool)) } else { Ok(()) }
    }

    /// Waits while `condition` holds, up to `deadline` and the connect timeout; a listing or its failure changes it.
    async fn wait_while_listing(&self, deadline: Mono, condition: impl Fn() -> bool) {
        let limit = self.clock.mono() + self.spec().supervision.timeouts.connect;
        let until = self.clock.instant(deadline.min(limit));
        loop {
            let turn = self.changed.notified();
            tokio::pin!(turn);
            turn.as_mut().enable();
            if !condition() {
                return;
            }
            tokio::select! {
                () = turn => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    pub(super) fn next_request_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until the supervision machine admits the call, up to its deadlines.
    pub(super) async fn wait_for_admission(
        &self,
        deadlines: &mut CallDeadlines<'_>,
        has_to_wait: impl Fn(),
    ) -> Result<OpenTicket<'_>, CallError> {
        let mut place: Option<WaitGuard<'_>> = None;
        loop {
            let (admission, waiter) = match place.take() {
                None => self.with_machine(|machine, now| {
                    let admission = machine.admit_for(now, deadlines.principal.key());
                    let waiter = match &admission {
                        Admission::Wait(place) => Some(self.waiters.add(place.number)),
                        Admission::Go(_) | Admission::Refuse(_) => None,
                    };
                    (admission, waiter)
                }),
                Some(held) => held.retry_admission(),
            };
            let place_taken = match admission {
                Admission::Go(ticket) => return Ok(OpenTicket::new(self, ticket)),
                Admission::Refuse(refusal) => return Err(self.refusal_error(&refusal, deadlines)),
                Admission::Wait(place) => place,
            };
            let held = place.insert(WaitGuard { upstream: self, queue_place: Some(place_taken), waiter });
            let wait_for = held.wait_for();
            let until = deadlines.wait_until(wait_for);
            has_to_wait();
            tokio::select! {
                () = held.woken() => {}
                () = tokio::time::sleep_until(self.clock.instant(until)) => {
                    return Err(self.wait_timeout_error(wait_for, deadlines));
                }
            }
        }
    }

    /// Yields after the connection was lost right after admission, so that the supervisor can replace it. The
    /// deadline of the call goes on.
    pub(super) async fn yield_to_supervisor(&self, deadlines: &CallDeadlines<'_>) -> Result<(), CallError> {
        if self.clock.mono() >= deadlines.deadline {
            return Err(self.wait_timeout_error(WaitFor::Link, deadlines));
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn send(
        &self,
        connection: &Arc<Connection>,
        request: &UpstreamRequest<'_>,
        sent_flag: &Arc<SentFlag>,
        ticket: &OpenTicket<'_>,
        now: Mono,
        deadlines: &mut CallDeadlines<'_>,
    ) -> Result<Reply, Box<SendError>> {
        let watch = CallWatch::new(self.clock, connection, request.listener.cloned());
        let outgoing = self.outgoing(connection, request, sent_flag, &watch)?;
        let call_listener: Arc<dyn CallListener> = Arc::clone(&watch) as Arc<dyn CallListener>;
        let in_flight = connection.in_flight.register(
            outgoing.id,
            request.caller.clone(),
            request.principal,
            call_listener,
            Arc::clone(sent_flag),
        );
        let waits = || self.wait_for_input(ticket, request.principal, request.caller);
        let answering = self.await_reply(
            connection,
            outgoing,
            in_flight,
            sent_flag,
            &watch,
            (now, deadlines.deadline),
            waits,
        );
        let answered = answering.await;
        // The time of answered server requests does not shorten the next attempt either.
        deadlines.deadline = deadlines.deadline + watch.question_time();
        answered
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one attempt")]
    async fn await_reply<'a>(
        &'a self,
        connection: &Connection,
        request: Outgoing<'_>,
        in_flight: InFlightCall,
        sent_flag: &SentFlag,
        watch: &CallWatch,
        (started, deadline): (Mono, Mono),
        waits_for_input: impl Fn() -> InputWait<'a>,
    ) -> Result<Reply, Box<SendError>> {
        let mut now = started;
        // While a server request waits for an answer, another call may use the slot.
        let mut input_wait: Option<InputWait<'_>> = None;
        let limits = self.spec().supervision.timeouts;
        let mut answer = connection.link.request(&connection.session, request);
        let observed = loop {
            match (watch.has_open_question(), &input_wait) {
                (true, None) => input_wait = Some(waits_for_input()),
                (false, Some(_)) => input_wait = None,
                (true, Some(_)) | (false, None) => {}
            }
            if watch.is_stopped() {
                let is_shutting_down = self.is_shutting_down.load(Ordering::Acquire);
                let why =
                    if is_shutting_down { "the gateway is shutting down" } else { "the server was stopped" };
                break Observed::Closed(why.to_owned());
            }
            // The time of open server requests does not count against the server.
            let end = deadline + watch.question_time();
            // The progress timeout applies only after the server has reported progress once.
            let silent_at = watch.last_activity(now).map(|last| last + limits.progress);
            let silent = silent_at.is_some_and(|at| at <= now);
            if silent || end <= now {
                let waited = if silent { limits.progress } else { now - started };
                break Observed::NoAnswer(waited);
            }
            let due = silent_at.map_or(end, |at| at.min(end));
            tokio::select! {
                biased;
                answer = &mut answer => {
                    let is_lost = |send_error: &SendError| {
                        !matches!(send_error.evidence.observed, Observed::NoMemory { .. })
                    };
                    if answer.as_ref().is_err_and(|send_error| is_lost(send_error)) {
                        connection.in_flight.note_loss();
                    }
                    in_flight.answered();
                    return answer;
                }
                () = watch.changed() => self.handle_input(Input::Received { epoch: connection.epoch }),
                () = tokio::time::sleep_until(self.clock.instant(due)), if !watch.has_open_question() => {}
            }
            now = self.clock.mono();
        };
        // Cancelled before the flag is read: until then the request may still be sent.
        drop(answer);
        Err(Evidence { during: During::Call, sent: sent_flag.sent(), observed }.into())
    }

    fn outgoing<'a>(
        &self,
        connection: &Connection,
        request: &'a UpstreamRequest<'_>,
        sent_flag: &Arc<SentFlag>,
        watch: &Arc<CallWatch>,
    ) -> Result<Outgoing<'a>, Box<SendError>> {
        let unusable = |error: &dyn std::fmt::Display| -> Box<SendError> {
            let rpc_error =
                RpcError { code: gripfast_wire::codes::INVALID_PARAMS, message: error.to_string() };
            let observed = Observed::Rpc { error: rpc_error, had_session: false };
            let id = RequestId::from(0);
            let answer = envelope::error_response(
                Some(id.as_id()),
                gripfast_wire::codes::INVALID_PARAMS,
                &error.to_string(),
                None,
            );
            Box::new(SendError {
                evidence: Evidence::unsent(During::Call, observed),
                answer: Some(answer.into()),
            })
        };
        let id = self.next_request_id();
        let (era, method, params) = (connection.session.era, request.method, request.params);
        let mut headers = match era {
            Era::Modern => self.param_headers(request),
            Era::Legacy => Vec::new(),
        };
        let message = match params.filter(|params| may_have_meta(params)) {
            Some(params) => {
                let members = Object::parse(params).ok();
                let caller_meta = members.as_ref().and_then(|members| members.object("_meta"));
                let mut patch = match era {
                    Era::Modern => with_modern_context(connection, request, caller_meta.as_ref()),
                    Era::Legacy if resumes_input_request(members.as_ref(), caller_meta.as_ref()) => {
                        return Err(unusable(&"`requestState` was not issued by this server"));
                    }
                    Era::Legacy => without_modern_context(caller_meta.as_ref()),
                };
                // Progress tokens of different callers may collide, so the request id is sent instead.
                if let Some(token) = caller_meta.as_ref().and_then(|meta| meta.get(meta::PROGRESS_TOKEN)) {
                    watch.set_caller_token(token.to_owned());
                    patch = patch.set_owned(meta::PROGRESS_TOKEN, id_value(id));
                }
                // Proxies and servers that trace requests need not know MCP.
                if let Some(TraceContext { parent, state }) =
                    caller_meta.as_ref().and_then(TraceContext::from_meta)
                {
                    headers.push((meta::TRACEPARENT.to_owned(), parent.into_owned()));
                    headers.extend(state.map(|state| (meta::TRACESTATE.to_owned(), state.into_owned())));
                }
                if patch.is_empty() {
                    envelope::request(id, method, Some(params))
                } else {
                    let patched = patch_payload(Some(params), &Patch::new(), &patch);
                    envelope::request(id, method, Some(&patched.map_err(|error| unusable(&error))?))
                }
            }
            None => match era {
                Era::Modern => {
                    envelope::request_with_meta(id, method, params, modern_context(connection, request))
                        .ok_or_else(|| unusable(&NotAnObject::OtherValue))?
                }
                Era::Legacy => envelope::request(id, method, params),
            },
        };
        let name = match (era, &request.tool) {
            (Era::Modern, Some(tool)) => Some(headers::encode_value(tool)),
            (Era::Modern, None) => {
                let standard = headers::standard_headers(method, params).map_err(|error| unusable(&error))?;
                standard.name
            }
            (Era::Legacy, _) => None,
        };
        Ok(Outgoing {
            id,
            method,
            message,
            name,
            headers,
            during: During::Call,
            principal: Some(request.principal.clone()),
            safety: request.safety,
            sent: Arc::clone(sent_flag),
            listener: Some(Arc::clone(watch) as Arc<dyn Listener>),
            memory: request.memory.cloned(),
        })
    }

    /// The `Mcp-Param-*` headers of the modern era, according to the last listing.
    fn param_headers(&self, request: &UpstreamRequest<'_>) -> Vec<(String, String)> {
        let wanted = Arc::clone(&self.listing.borrow().param_headers);
        let Some(headers) = request.tool.as_ref().and_then(|tool| wanted.get(&**tool)) else {
            return Vec::new();
        };
        let params = request.params.and_then(|params| Object::parse(params).ok());
        let arguments = params.and_then(|params| params.get("arguments"));
        headers.for_arguments(arguments).unwrap_or_default()
    }

    fn refusal_error(&self, refusal: &Refusal, deadlines: &CallDeadlines<'_>) -> CallError {
        let name = &*self.name;
        let known = |cause: &Option<String>| {
            let cause = cause.as_deref().map(|cause| deadlines.visible_cause(cause));
            cause.map(|cause| format!(" ({cause})")).unwrap_or_default()
        };
        let hint =
            format!("`gripfast status {name}` shows the last error; `gripfast reconnect {name}` retries now");
        let error = match &refusal.reason {
            RefusalReason::CircuitOpen { failures } => CallError::new(
                Code::Unreachable,
                name,
                CallOutcome::NotSent,
                format!("server `{name}` is unreachable: calls are refused after {failures} failed calls"),
            )
            .with_hint(hint),
            RefusalReason::Reconnecting { cause } => CallError::new(
                Code::Reconnecting,
                name,
                CallOutcome::NotSent,
                format!("server `{name}` is being reconnected{}", known(cause)),
            )
            .with_hint(hint),
            RefusalReason::Parked { cause } => CallError::new(
                Code::Unreachable,
                name,
                CallOutcome::NotSent,
                format!("server `{name}` is unreachable{} and is retried at long intervals", known(cause)),
            )
            .with_hint(hint),
            RefusalReason::Blocked(cause) => CallError::blocked(name, cause, CallOutcome::NotSent),
            RefusalReason::Stopped if self.is_shutting_down.load(Ordering::Acquire) => {
                let text = "the gateway is shutting down and takes no further calls";
                CallError::new(Code::Stopped, name, CallOutcome::NotSent, text)
            }
            RefusalReason::Stopped => self.stopped_error(),
            RefusalReason::Crashed { deaths, within } => {
                let within = text::duration(*within);
                CallError::new(
                    Code::Unreachable,
                    name,
                    CallOutcome::NotSent,
                    format!(
                        "server `{name}` died {deaths} times within {within} while only calls of this client were \
                         in flight; calls of this client are refused for a while"
                    ),
                )
                .with_hint(format!(
                    "find the call that crashes the server; the operator sees the reason in `gripfast logs {name}`"
                ))
            }
            RefusalReason::Displaced => CallError::new(
                Code::Overloaded,
                name,
                CallOutcome::NotSent,
                format!(
                    "server `{name}` has too many waiting calls, most of them from this client; the newest one \
                     was refused in favour of another client"
                ),
            )
            .with_hint("send fewer calls at a time, or raise `max_in_flight` if the server can do more at once"),
            RefusalReason::Overloaded => CallError::new(
                Code::Overloaded,
                name,
                CallOutcome::NotSent,
                format!("server `{name}` already has too many waiting calls"),
            )
            .with_hint("raise `max_in_flight` if the server can do more at once"),
        };
        error.with_retry_after(refusal.retry_after)
    }

    fn wait_timeout_error(&self, wait_for: WaitFor, deadlines: &CallDeadlines<'_>) -> CallError {
        let name = &*self.name;
        let status = self.with_machine(|machine, now| machine.status(now));
        match wait_for {
            WaitFor::Link => {
                let cause = status.cause.as_deref().map(|cause| deadlines.visible_cause(cause));
                let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
                CallError::new(
                    Code::Reconnecting,
                    name,
                    CallOutcome::NotSent,
                    format!(
                        "server `{name}` is still being reconnected{cause}; the call was held and not sent"
                    ),
                )
                .with_retry_after(status.next_attempt)
                .with_hint(format!("`gripfast status {name}` shows the last error"))
            }
            WaitFor::Slot => {
                let waited = text::duration(deadlines.elapsed());
                CallError::new(
                    Code::Overloaded,
                    name,
                    CallOutcome::NotSent,
                    format!(
                        "server `{name}` is busy with {} calls; none ended within {waited}, so the call was not sent",
                        status.in_flight
                    ),
                )
                .with_retry_after(Some(Duration::from_secs(1)))
                .with_hint("raise `max_in_flight` if the server can do more at once")
            }
        }
    }
}

/// Adjusts the error of a refused later attempt: an earlier one may have been carried out.
fn with_earlier_attempt(mut error: CallError, attempted: Option<CallOutcome>) -> CallError {
    let outcome = recovery::final_outcome(error.outcome, attempted);
    if outcome == CallOutcome::Unknown && error.outcome != CallOutcome::Unknown {
        error.text.push_str("; an earlier attempt was sent, and its outcome is unknown");
    }
    error.outcome = outcome;
    error
}

/// Returns true if the result or error is nested more than `limit` levels deep. The envelope adds one level.
pub(super) fn is_response_too_deep(message: &[u8], limit: usize) -> bool {
    nesting::exceeds(message, limit.saturating_add(1))
}

/// Returns true if a member of the parameters is nested more than `limit` levels deep.
pub(super) fn is_request_too_deep(message: &[u8], limit: usize) -> bool {
    nesting::exceeds(message, limit.saturating_add(2))
}

/// The error for an answer that is nested too deeply. The connection is fine.
fn too_deep_error(server: &str, limit: usize, outcome: CallOutcome) -> CallError {
    let text = format!(
        "server `{server}` answered with a result that is nested more than {limit} levels deep, so it is not forwarded"
    );
    CallError::new(Code::UpstreamProtocol, server, outcome, text).with_hint(
        "raise `gateway.limits.nesting` if the server needs deeper results; check the effect before repeating the call",
    )
}

/// The error for an answer that exceeds its memory budget. The connection is fine.
pub(crate) fn out_of_memory_error(server: &str, why: &str, outcome: CallOutcome) -> CallError {
    let text = format!("server `{server}` answered, but there is no memory left for the answer: {why}");
    CallError::new(Code::Overloaded, server, outcome, text).with_hint(
        "read the pending answers and request less at a time; check the effect before you repeat the call",
    )
}

/// Separates answers from failures: an error response may mean that the session is lost, which only the classifier
/// can tell.
pub(super) fn classify_reply(reply: Reply, connection: &Connection) -> Result<Answer, Box<SendError>> {
    let (era, memory) = (connection.session.era, reply.memory);
    if let Some(result) = reply.result {
        return Ok(Answer::from_result(result, era).with_reservation(memory));
    }
    let Ok((Message::Response(response), result)) = Message::parse_with_result(&reply.message) else {
        let observed = Observed::Malformed(not_a_response(&reply.message));
        return Err(Evidence::sent(During::Call, observed).into());
    };
    let rpc_error = match response.outcome {
        outcome @ Outcome::Result(_) => {
            return Ok(Answer::from_outcome(&outcome, result.as_ref(), era).with_reservation(memory));
        }
        // Without a session none can be lost: the error is about something else.
        outcome @ Outcome::Error(_) if !connection.has_session() => {
            return Ok(Answer::from_outcome(&outcome, result.as_ref(), era).with_reservation(memory));
        }
        Outcome::Error(error) => RpcError { code: error.code, message: error.message.into_owned() },
    };
    let evidence = Evidence::sent(During::Call, Observed::Rpc { error: rpc_error, had_session: true });
    Err(Box::new(SendError { evidence, answer: Some(reply.message.clone()) }))
}

/// The `_meta` context that a modern server expects in each request.
fn modern_context<'a>(
    connection: &'a Connection,
    request: &'a UpstreamRequest<'_>,
) -> impl Iterator<Item = (&'static str, &'a Json)> + Clone {
    let context = &connection.context;
    let capabilities = request.capabilities.unwrap_or(&context.capabilities);
    let level = request.log_level.map(|level| (meta::LOG_LEVEL, level.to_json()));
    let info = context.client_info.as_deref().map(|info| (meta::CLIENT_INFO, info));
    [(meta::PROTOCOL_VERSION, &*connection.version_json), (meta::CLIENT_CAPABILITIES, capabilities)]
        .into_iter()
        .chain(level)
        .chain(info)
}

/// Adds the context to the `_meta` of the caller, whose values are kept, except the protocol version.
fn with_modern_context<'a>(
    connection: &'a Connection,
    request: &'a UpstreamRequest<'_>,
    caller_meta: Option<&Object<'_>>,
) -> Patch<'a> {
    let is_kept = |key| key != meta::PROTOCOL_VERSION && caller_meta.is_some_and(|meta| meta.has(key));
    let added = modern_context(connection, request).filter(|(key, _)| !is_kept(key));
    added.fold(Patch::new(), |patch, (key, value)| patch.set(key, value))
}

/// Removes modern `_meta` members for a legacy server, which got them in the handshake; some servers reject the
/// repetition.
fn without_modern_context(caller_meta: Option<&Object<'_>>) -> Patch<'static> {
    let Some(caller_meta) = caller_meta else { return Patch::new() };
    let modern = [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL];
    let present = modern.into_iter().filter(|key| caller_meta.has(key));
    present.fold(Patch::new(), |patch, key| patch.remove(key))
}

/// Returns true if a modern request continues with a `requestState`. A legacy server never issues one, so it belongs
/// to another server or was tampered with.
fn resumes_input_request(params: Option<&Object<'_>>, caller_meta: Option<&Object<'_>>) -> bool {
    let is_modern = caller_meta.is_some_and(|caller_meta| caller_meta.has(meta::PROTOCOL_VERSION));
    is_modern && params.is_some_and(|params| params.has("requestState"))
}

fn id_value(id: u64) -> JsonText {
    JsonText::parse(id.to_string()).expect("a number is JSON")
}

/// Deadlines of one call.
pub(super) struct CallDeadlines<'a> {
    upstream: &'a Upstream,
    principal: &'a Principal,
    started: Mono,
    /// Final deadline with all waits and attempts: the caller's or the configured one.
    deadline: Mono,
    /// Time that earlier attempts waited for a connection.
    held: Duration,
    /// Start of the present wait for a connection.
    held_since: Option<Mono>,
}

impl<'a> CallDeadlines<'a> {
    pub(super) fn new(upstream: &'a Upstream, principal: &'a Principal, deadline: Option<Mono>) -> Self {
        upstream.served_principals.lock().record(principal);
        let started = upstream.clock.mono();
        let ours = started + upstream.spec().supervision.timeouts.call;
        let deadline = deadline.map_or(ours, |theirs| theirs.min(ours));
        Self { upstream, principal, started, deadline, held: Duration::ZERO, held_since: None }
    }

    /// The cause of an outage without stderr lines if the server has served other principals, because these may be
    /// about their calls.
    fn visible_cause<'c>(&self, cause: &'c str) -> &'c str {
        match self.upstream.served_principals.lock().is_only(self.principal) {
            true => cause,
            false => without_stderr(cause),
        }
    }

    /// Time since the call began.
    fn elapsed(&self) -> Duration {
        self.since(self.started)
    }

    fn since(&self, then: Mono) -> Duration {
        self.upstream.clock.mono() - then
    }

    /// Reports the whole time of the call in a timeout at the final deadline: the caller does not know when its
    /// attempt began.
    fn with_caller_time(&self, failure: Failure) -> Failure {
        match failure {
            Failure::TimedOut(_) if self.upstream.clock.mono() >= self.deadline => {
                Failure::TimedOut(self.deadline - self.started)
            }
            failure => failure,
        }
    }

    fn wait_until(&mut self, wait_for: WaitFor) -> Mono {
        match wait_for {
            WaitFor::Link => {
                let limits = self.upstream.spec().supervision.timeouts;
                let since = *self.held_since.get_or_insert(self.upstream.clock.mono());
                self.deadline.min(since + limits.reconnect_wait.saturating_sub(self.held))
            }
            WaitFor::Slot => {
                self.link_acquired();
                self.deadline
            }
        }
    }

    /// Stops the clock that limits waits for a connection.
    pub(super) fn link_acquired(&mut self) {
        if let Some(since) = self.held_since.take() {
            self.held += self.since(since);
        }
    }

    /// Waits as long as a busy server asked for, if the deadlines allow it; returns false otherwise.
    async fn wait_retry_after(&self, pause: Duration) -> bool {
        let limits = self.upstream.spec().supervision.timeouts;
        let wake = self.upstream.clock.mono() + pause;
        let affordable = pause <= limits.reconnect_wait && wake < self.deadline;
        if affordable {
            tokio::time::sleep(pause).await;
        }
        affordable
    }
}

/// A ticket that is returned however the call ends.
pub(super) struct OpenTicket<'a> {
    upstream: &'a Upstream,
    ticket: Option<Ticket>,
    /// The request may have been sent.
    may_be_sent: bool,
}

impl<'a> OpenTicket<'a> {
    fn new(upstream: &'a Upstream, ticket: Ticket) -> Self {
        Self { upstream, ticket: Some(ticket), may_be_sent: false }
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
            self.upstream.with_machine(|machine, now| machine.end_call(now, ticket, end));
        }
    }
}

impl Drop for OpenTicket<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let end = if self.may_be_sent { CallEnd::Abandoned } else { CallEnd::Unused };
            self.upstream.with_machine(|machine, now| machine.end_call(now, ticket, end));
        }
    }
}

/// A queue place that is released however the wait ends.
struct WaitGuard<'a> {
    upstream: &'a Upstream,
    queue_place: Option<QueuePlace>,
    waiter: Option<Waiter<'a>>,
}

impl<'a> WaitGuard<'a> {
    fn wait_for(&self) -> WaitFor {
        self.queue_place.as_ref().map_or(WaitFor::Link, |place| place.wait_for)
    }

    /// Waits until admission should be tried again.
    async fn woken(&self) {
        match &self.waiter {
            Some(waiter) => waiter.woken().await,
            None => std::future::pending().await,
        }
    }

    fn retry_admission(mut self) -> (Admission, Option<Waiter<'a>>) {
        let place = self.queue_place.take().expect("a place is taken only to ask again");
        let admission = self.upstream.with_machine(|machine, now| machine.readmit(now, place));
        (admission, self.waiter.take())
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.queue_place.take() {
            self.upstream.with_machine(|machine, now| machine.leave_queue(now, place));
        }
    }
}
