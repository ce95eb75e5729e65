//! The phases of one call: check access, resolve (with the pin check), look up the cache, reserve budgets, call the
//! upstream, store the answer, settle. Each phase has its own file. Only these wait: the upstream call, the cache
//! lookup while another call fetches the same answer, and a reservation of a budget that several hosts share.

mod budget;
mod budget_store;
mod cached;
mod permit;
mod pin_check;

use crate::call::cached::CacheResult;
pub(crate) use budget::CallBudgets;
pub use budget::{BudgetCounter, BudgetScope, BudgetSpec, BudgetUse, BudgetWindow, SettledAs};
pub use budget_store::{BudgetStore, StoreReply, StoredUse};
pub use gripfast_core::policy::budget::BudgetExceeded;

use crate::client::{Client, Principal};
use crate::config::suggest;
use crate::host::{Host, HostEntry};
use crate::memory::{AnswerMemory, OutOfMemory};
use crate::records::audit::AuditCaller;
use crate::records::ledger::OpenRow;
use crate::records::request_summary::RequestSummary;
use crate::transport::Listener;
use crate::upstream::{Answer, ListingOrigin, Upstream, UpstreamRequest, out_of_memory_error};
use gripfast_core::catalog::Catalog;
use gripfast_core::failure::recovery::Safety;
use gripfast_core::failure::{CallError, CallOutcome, Code, Failure};
use gripfast_core::isolation::Caller;
use gripfast_core::json_text::{Json, JsonText};
use gripfast_core::ledger::ledger_entry::LedgerCaller;
use gripfast_core::supervise::status::State;
use gripfast_core::time::Mono;
use gripfast_wire::era::meta;
use gripfast_wire::log::LogLevel;
use gripfast_wire::patch::{Object, Patch};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

const TOOL_CALL: &str = "tools/call";

/// Options of one request.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// Deadline of the whole call, including waits for a connection and for a free slot. The server's own timeouts
    /// apply as well.
    pub timeout: Option<Duration>,
    /// Receives progress, if the parameters carry a progress token, and answers server requests.
    pub listener: Option<Arc<dyn Listener>>,
    /// The client that the call is made for. `None`: no particular client, on the shared instance.
    pub client: Option<Client>,
    /// Client capabilities for servers that expect them in each request. Default: those in the parameters, or else
    /// those of the host.
    pub capabilities: Option<Arc<JsonText>>,
    /// Lowest severity of log messages that the caller wants. A modern server gets it with the request. A legacy
    /// server has one level per session, so it gets the lowest that any caller asked for.
    pub log_level: Option<LogLevel>,
    /// Uses the shared instance even if the client has a dedicated one by now, for work that the shared instance
    /// began.
    pub use_shared_instance: bool,
    /// Memory budget of the answer. An answer that exceeds it ends the call with [`Code::Overloaded`] and outcome
    /// [`Done`](CallOutcome::Done). `None`: unlimited.
    pub memory: Option<Arc<dyn AnswerMemory>>,
    /// Marks the call as made by an operator through the admin API. Ledger and audit log record it; no decision
    /// depends on it.
    pub by_operator: bool,
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A request with its upstream: the shared instance, which knows the catalog and counts the calls.
struct Resolved<'a> {
    upstream: &'a Arc<Upstream>,
    request: UpstreamRequest<'a>,
}

impl Host {
    /// Calls a tool by the server's own name for it.
    ///
    /// Dropping the future cancels the call: the server is notified, the slot is free immediately, and no other call
    /// is affected.
    ///
    /// # Errors
    /// [`CallError`] if the call could not be served. An error of the tool itself is an answer.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Option<JsonText>,
    ) -> Result<Answer, CallError> {
        let params = call_params(tool, arguments);
        self.request_with(server, TOOL_CALL, Some(&params), CallOptions::default()).await
    }

    /// [`Host::call`] by an operator: ledger and audit log name [`Principal::ADMIN`].
    ///
    /// # Errors
    /// As [`Host::call`].
    pub async fn call_by_operator(
        &self,
        server: &str,
        tool: &str,
        arguments: Option<JsonText>,
    ) -> Result<Answer, CallError> {
        let options = CallOptions { by_operator: true, ..CallOptions::default() };
        self.request_with(server, TOOL_CALL, Some(&call_params(tool, arguments)), options).await
    }

    /// Sends any request, by the server's own names, and waits for its answer.
    ///
    /// # Errors
    /// [`CallError`] if the request could not be served. A JSON-RPC error of the server is an answer.
    pub async fn request(
        &self,
        server: &str,
        method: &str,
        params: Option<JsonText>,
    ) -> Result<Answer, CallError> {
        self.request_with(server, method, params.as_deref(), CallOptions::default()).await
    }

    /// [`Host::request`] with options.
    ///
    /// # Errors
    /// As [`Host::request`].
    pub async fn request_with(
        &self,
        server: &str,
        method: &str,
        params: Option<&Json>,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let entry = self.entry(server);
        let (line, tool, row) = {
            let upstream = entry.as_ref().ok().and_then(|entry| entry.upstream().ok());
            let secrets = upstream.map(|upstream| Arc::clone(&upstream.secrets));
            let summary = RequestSummary::new(params).with_secrets(secrets);
            let caller = audit_caller(&summary, &options);
            let line = self.inner.audit.begin(&caller, server, method, &summary)?;
            let (tool, row) = self.open_ledger_row(server, method, &summary, &caller);
            (line, tool, row)
        };
        let outcome = match entry {
            Ok(entry) => self.request_counted(&entry, method, params, tool, &options, &row).await,
            Err(unknown) => Err(unknown),
        };
        settle_row(row, &outcome);
        if let Some(line) = line {
            line.end(&outcome);
        }
        outcome
    }

    /// The tool name, if the parameters have one, and the ledger row of the call. The row is settled on every exit;
    /// if the future is dropped, it settles itself.
    fn open_ledger_row<'a>(
        &self,
        server: &str,
        method: &str,
        summary: &RequestSummary<'a>,
        caller: &AuditCaller<'_>,
    ) -> (Option<Cow<'a, str>>, OpenRow<'_>) {
        if method != TOOL_CALL {
            return (None, OpenRow::disabled());
        }
        let tool = summary.members().and_then(|members| members.text_strict("name").ok().flatten());
        let client = summary.redacted_name(caller.claimed_name.as_deref().unwrap_or_default());
        let caller = LedgerCaller { principal: caller.principal.unwrap_or_default(), client: &client };
        let name = summary.redacted_name(tool.as_deref().unwrap_or_default());
        let row = self.inner.ledger.row(&caller, server, &name, summary);
        (tool, row)
    }

    async fn request_counted(
        &self,
        entry: &HostEntry,
        method: &str,
        params: Option<&Json>,
        tool: Option<Cow<'_, str>>,
        options: &CallOptions,
        row: &OpenRow<'_>,
    ) -> Result<Answer, CallError> {
        let upstream = entry.upstream()?;
        let end = upstream.ends.open(self.inner.clock);
        let outcome = self.request_through_cache(entry, method, params, tool, options, row).await;
        let outcome = outcome.map(|answer| answer.redacted(&upstream.secrets));
        // Cached answers, and answers of transports that do not reserve memory, are counted here.
        let outcome = outcome.and_then(|answer| {
            let call_outcome = answer.call_outcome();
            let reserved = answer.reserve(options.memory.as_deref());
            reserved.map_err(|OutOfMemory(why)| out_of_memory_error(&entry.name, &why, call_outcome))
        });
        let outcome =
            outcome.map_err(|error| CallError { text: upstream.secrets.mask(&error.text), ..error });
        match &outcome {
            Ok(answer) => end.answered(answer.is_error()),
            Err(error) => end.failed(error),
        }
        outcome
    }

    async fn request_through_cache(
        &self,
        entry: &HostEntry,
        method: &str,
        params: Option<&Json>,
        tool: Option<Cow<'_, str>>,
        options: &CallOptions,
        row: &OpenRow<'_>,
    ) -> Result<Answer, CallError> {
        let client = options.client.as_ref();
        // The client whose dedicated instance is used, if it has one.
        let own = client.filter(|_| !options.use_shared_instance);
        let principal = client.map(Client::principal);
        self.check_access(entry, principal, method, params)?;
        let mut resolved = self.resolve(entry, method, params, tool, options)?;
        let cacheable = self.cacheable(entry, &resolved, principal, own);
        // Held until there is an answer: calls that ask for the same meanwhile wait for it.
        let mut _fill = None;
        if let Some(request) = &cacheable {
            // The deadline of the call includes the wait for an answer that another call fetches.
            let began = self.now();
            let ours = began + resolved.upstream.spec().supervision.timeouts.call;
            let deadline = resolved.request.deadline.map_or(ours, |theirs| theirs.min(ours));
            resolved.request.deadline = Some(deadline);
            match self.lookup_cached(request, deadline).await {
                CacheResult::Answer(answer) => return Ok(answer),
                CacheResult::Miss(_) if self.now() >= deadline => {
                    let failure = Failure::TimedOut(self.now() - began);
                    let error = CallError::from_failure(&entry.name, &failure, CallOutcome::NotSent);
                    return self.inner.cache.get_stale(request).ok_or(error);
                }
                CacheResult::Miss(fill) => _fill = fill,
            }
        }
        let tool = resolved.request.tool.as_deref();
        let reservation = if self.has_shared_budgets() {
            self.reserve_shared(principal, &entry.name, tool).await?
        } else {
            self.reserve(principal, &entry.name, tool)?
        };
        let started = self.now();
        let mut is_dedicated = false;
        let outcome = match entry.lease(own) {
            Ok(lease) => {
                is_dedicated = !lease.is_shared();
                let answer = lease.upstream().call(&resolved.request, row).await;
                answer.map(|answer| if lease.is_shared() { answer } else { answer.with_dedicated_origin() })
            }
            Err(full) => Err(full),
        };
        if let Some(reservation) = reservation {
            reservation.settle(&outcome);
        }
        // Clients may have been separated during this call: then its answer is not cached for others.
        if let (Some(request), Ok(answer)) = (&cacheable, &outcome)
            && request.is_dedicated == is_dedicated
        {
            self.inner.cache.insert(request, answer);
        }
        self.record_stats(&resolved, started, &outcome);
        match (&cacheable, outcome) {
            (Some(request), Err(error)) => self.inner.cache.get_stale(request).ok_or(error),
            (_, outcome) => outcome,
        }
    }

    /// Finds the tool of the call and decides whether the call may be replayed.
    fn resolve<'a>(
        &self,
        entry: &'a HostEntry,
        method: &'a str,
        params: Option<&'a Json>,
        tool: Option<Cow<'a, str>>,
        options: &'a CallOptions,
    ) -> Result<Resolved<'a>, CallError> {
        let upstream = entry.upstream()?;
        let deadline = options.timeout.map(|timeout| self.now() + timeout);
        let (caller, principal) = match &options.client {
            Some(client) => (&client.caller, &client.principal),
            None => (&Caller::Anonymous, Principal::local_ref()),
        };
        let mut request = UpstreamRequest {
            method,
            params,
            safety: Safety::of_method(method),
            deadline,
            listener: options.listener.as_ref(),
            caller,
            principal,
            capabilities: options.capabilities.as_deref().map(|capabilities| &**capabilities),
            log_level: options.log_level,
            tool: None,
            memory: options.memory.as_ref(),
        };
        if method == TOOL_CALL {
            let tool = tool.ok_or_else(|| missing_tool_name(&entry.name))?;
            entry.check_approved(&tool, options.client.as_ref().filter(|_| !options.use_shared_instance))?;
            request.safety = safety(entry, upstream, &tool)?;
            request.tool = Some(tool);
        }
        Ok(Resolved { upstream, request })
    }

    /// Counts the outcome, on every exit that has one.
    fn record_stats(&self, resolved: &Resolved<'_>, started: Mono, outcome: &Result<Answer, CallError>) {
        let now = self.now();
        match outcome {
            Ok(answer) => resolved.upstream.stats.answered(now, now - started, answer.is_tool_error()),
            Err(error) if error.code == Code::Stopped && error.outcome == CallOutcome::NotSent => {
                resolved.upstream.stats.refused();
            }
            Err(_) => resolved.upstream.stats.failed(),
        }
    }
}

/// The parameters of `tools/call`.
fn call_params(tool: &str, arguments: Option<JsonText>) -> JsonText {
    let mut params = Patch::new().set_text("name", tool);
    if let Some(arguments) = arguments {
        params = params.set_owned("arguments", arguments);
    }
    params.to_object()
}

/// The caller for the audit log: its principal and its client name.
fn audit_caller<'a>(summary: &RequestSummary<'_>, options: &'a CallOptions) -> AuditCaller<'a> {
    let name = options.client.as_ref().and_then(|client| client.name.as_deref()).map(Cow::Borrowed);
    let principal = options.client.as_ref().map(|client| client.principal.name());
    AuditCaller {
        principal: principal.or(options.by_operator.then_some(Principal::ADMIN)),
        claimed_name: name.or_else(|| summary.members().and_then(client_name_in).map(Cow::Owned)),
    }
}

/// The client name in the `_meta` of a modern request.
fn client_name_in(params: &Object<'_>) -> Option<String> {
    let info = params.object("_meta")?.object(meta::CLIENT_INFO)?;
    let name = info.text("name")?;
    Some(info.text("version").map_or_else(|| name.to_string(), |version| format!("{name} {version}")))
}

/// Writes the outcome to the ledger.
fn settle_row(row: OpenRow<'_>, outcome: &Result<Answer, CallError>) {
    match outcome {
        Ok(answer) => row.settle(answer.call_outcome(), None),
        Err(error) => row.settle(error.outcome, Some(error.code)),
    }
}

/// Decides whether a call of the tool may be replayed. Fails if the server is known not to have the tool.
fn safety(entry: &HostEntry, upstream: &Upstream, tool: &str) -> Result<Safety, CallError> {
    let (hints, origin) = {
        let listing = upstream.listing.borrow();
        (listing.catalog.tool(tool).map(|tool| tool.hints), listing.origin)
    };
    if hints.is_none() && origin == ListingOrigin::Server && is_settled(upstream.state()) {
        let catalog = Arc::clone(&upstream.listing.borrow().catalog);
        return Err(unknown_tool(entry, catalog, tool));
    }
    Ok(Safety::of_tool(hints.unwrap_or_default(), entry.replay.rule_for(tool)))
}

/// Returns true if the listed catalog is current.
fn is_settled(state: State) -> bool {
    matches!(state, State::Ready | State::NeedsApproval)
}

/// The error for a tool that is not in the current catalog.
fn unknown_tool(entry: &HostEntry, catalog: Arc<Catalog>, tool: &str) -> CallError {
    let text = format!("server `{}` has no tool named `{tool}`", entry.name);
    let error = CallError::new(Code::UnknownTool, &entry.name, CallOutcome::NotSent, text);
    let visible = entry.visible_catalog(catalog);
    match suggest::nearest(tool, visible.tools.iter().map(|tool| tool.key.as_str())) {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error.with_hint(format!("`gripfast tools {}` lists its tools", entry.name)),
    }
}

fn missing_tool_name(server: &str) -> CallError {
    let text = "`tools/call` needs parameters with the `name` of a tool";
    CallError::new(Code::InvalidRequest, server, CallOutcome::NotSent, text)
}
