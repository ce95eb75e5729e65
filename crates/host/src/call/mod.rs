//! The life of one call, phase by phase: permit, resolve (and look at its pin), recall, reserve, exchange, keep,
//! settle. Each phase is a file of its own; only the exchange waits, and a recall for an exchange of somebody else.

mod approved;
mod budget;
mod permit;
mod recall;

pub(crate) use budget::Purse;
pub use budget::{BudgetSpec, BudgetUse, Per, Window};
use recall::Recalled;

use crate::audit::AuditCaller;
use crate::client::{Client, Principal};
use crate::config::suggest;
use crate::host::{Entry, Host};
use crate::ledger::OpenRow;
use crate::memory::{AnswerMemory, OutOfMemory};
use crate::said::Said;
use crate::transport::{Listener, Secrets};
use crate::upstream::{Answer, Order, Origin, Upstream, no_memory};
use gripfast_core::catalog::Catalog;
use gripfast_core::failure::recovery::Safety;
use gripfast_core::failure::{CallError, Code, Failure, Outcome as Fate};
use gripfast_core::isolation::Caller;
use gripfast_core::ledger::entry::LedgerCaller;
use gripfast_core::supervise::status::State;
use gripfast_core::time::Mono;
use gripfast_wire::RawValue;
use gripfast_wire::era::meta;
use gripfast_wire::log::LogLevel;
use gripfast_wire::patch::{Object, Patch};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

const TOOL_CALL: &str = "tools/call";

/// What a caller may say about one call, besides what it wants.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// How long the caller waits at the most, holding and queueing included. The upstream's own limits
    /// hold as well.
    pub patience: Option<Duration>,
    /// Who hears of its progress. The server reports it if the parameters carry a progress token.
    pub listener: Option<Arc<dyn Listener>>,
    /// For which client it is made. `None`: for nobody in particular, by the instance that all share.
    pub client: Option<Client>,
    /// What the caller can be asked, as the capabilities of an MCP client, for servers that want to see it
    /// in each request. Unless said here or in the parameters, it is what the host can be asked.
    pub capabilities: Option<Box<RawValue>>,
    /// The least severe log message that the caller wants. A server of the modern era is told with the request; a
    /// legacy one serves all callers in one session and is told of the mildest level that any of them has asked for.
    pub log_level: Option<LogLevel>,
    /// By the instance that all clients share, although the client may have one of its own by now: for what that
    /// instance began.
    pub shared: bool,
    /// The memory that the answer is counted against. An answer that there is no memory for ends the call with
    /// [`Code::Overloaded`], outcome [`Done`](Fate::Done). `None`: it is not counted.
    pub memory: Option<Arc<dyn AnswerMemory>>,
    /// Whether it is made by an operator, through the admin API. Ledger and audit log say so; nothing is decided on it.
    pub by_operator: bool,
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOptions").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// A request that has found its upstream: the instance that knows the catalog and counts the calls.
struct Resolved<'a> {
    upstream: &'a Arc<Upstream>,
    order: Order,
}

impl Host {
    /// Calls a tool by the server's own name for it.
    ///
    /// Dropping the future cancels the call: the server is told, the slot is free at once, and no other
    /// call is affected.
    ///
    /// # Errors
    /// [`CallError`] if the call could not be served. An error of the tool's own is an answer.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Option<Box<RawValue>>,
    ) -> Result<Answer, CallError> {
        self.request_with(server, TOOL_CALL, Some(call_params(tool, arguments)), CallOptions::default()).await
    }

    /// [`Host::call`] by an operator: ledger and audit log name [`Principal::ADMIN`].
    ///
    /// # Errors
    /// As [`Host::call`].
    pub async fn call_by_operator(
        &self,
        server: &str,
        tool: &str,
        arguments: Option<Box<RawValue>>,
    ) -> Result<Answer, CallError> {
        let options = CallOptions { by_operator: true, ..CallOptions::default() };
        self.request_with(server, TOOL_CALL, Some(call_params(tool, arguments)), options).await
    }

    /// Sends any request, by the server's own names, and waits for its answer.
    ///
    /// # Errors
    /// [`CallError`] if it could not be served. A JSON-RPC error of the server is an answer.
    pub async fn request(
        &self,
        server: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Result<Answer, CallError> {
        self.request_with(server, method, params, CallOptions::default()).await
    }

    /// [`Host::request`] with options.
    ///
    /// # Errors
    /// As [`Host::request`].
    pub async fn request_with(
        &self,
        server: &str,
        method: &str,
        params: Option<Box<RawValue>>,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let (line, tool, row) = {
            let said = Said::in_params(params.as_deref()).knowing(self.secrets_of(server));
            let caller = caller(&said, &options);
            let line = self.audit().begin(&caller, server, method, &said)?;
            let (tool, row) = self.row(server, method, &said, &caller);
            (line, tool, row)
        };
        let outcome = self.carry_out(server, method, params, tool, options, &row).await;
        settle(row, &outcome);
        if let Some(line) = line {
            line.end(&outcome);
        }
        outcome
    }

    /// What was filled in for a server.
    fn secrets_of(&self, server: &str) -> Option<Arc<Secrets>> {
        let entry = self.entry(server).ok()?;
        entry.upstream().ok().map(|upstream| Arc::clone(&upstream.secrets))
    }

    /// The tool that is called, if the parameters name one, and the row of its call, which is settled on every way
    /// out of here; if its future is dropped, by itself.
    fn row(
        &self,
        server: &str,
        method: &str,
        said: &Said<'_>,
        caller: &AuditCaller<'_>,
    ) -> (Option<String>, OpenRow<'_>) {
        if method != TOOL_CALL {
            return (None, OpenRow::nowhere());
        }
        let tool = said.text("name");
        let client = said.redacted_name(caller.says_it_is.as_deref().unwrap_or_default());
        let caller = LedgerCaller { principal: caller.principal.unwrap_or_default(), client: &client };
        let name = said.redacted_name(tool.as_deref().unwrap_or_default());
        let row = self.ledger().row(&caller, server, &name, said);
        (tool.map(Cow::into_owned), row)
    }

    async fn carry_out(
        &self,
        server: &str,
        method: &str,
        params: Option<Box<RawValue>>,
        tool: Option<String>,
        options: CallOptions,
        row: &OpenRow<'_>,
    ) -> Result<Answer, CallError> {
        let entry = self.entry(server)?;
        let upstream = entry.upstream()?;
        let end = upstream.ends.open(self.clock());
        let memory = options.memory.clone();
        let outcome = self.go(&entry, method, params, tool, options, row).await;
        let outcome = outcome.map(|answer| answer.redacted(&upstream.secrets));
        // One that was kept, or came by a transport that does not count, is counted here.
        let outcome = outcome.and_then(|answer| {
            let fate = answer.fate();
            let reserved = answer.reserved(memory.as_deref());
            reserved.map_err(|OutOfMemory(why)| no_memory(&entry.name, &why, fate))
        });
        let outcome =
            outcome.map_err(|error| CallError { text: upstream.secrets.mask(&error.text), ..error });
        match &outcome {
            Ok(answer) => end.answered(answer.is_error()),
            Err(error) => end.failed(error),
        }
        outcome
    }

    async fn go(
        &self,
        entry: &Entry,
        method: &str,
        params: Option<Box<RawValue>>,
        tool: Option<String>,
        options: CallOptions,
        row: &OpenRow<'_>,
    ) -> Result<Answer, CallError> {
        let (client, shared) = (options.client.clone(), options.shared);
        let principal = client.as_ref().map(Client::principal);
        self.permit(entry, principal, method, params.as_deref())?;
        let mut resolved = self.resolve(entry, method, params, tool, options)?;
        let cacheable = self.cacheable(entry, &resolved, principal, client.as_ref().filter(|_| !shared));
        // Held until there is an answer: whoever asks the same meanwhile waits for it.
        let mut _flight = None;
        if let Some(request) = &cacheable {
            // Waiting for somebody else's answer is part of the call.
            let began = self.now();
            let ours = began + resolved.upstream.settings().supervision.timeouts.call;
            let deadline = resolved.order.deadline.map_or(ours, |theirs| theirs.min(ours));
            resolved.order.deadline = Some(deadline);
            match self.recall(request, deadline).await {
                Recalled::Answer(answer) => return Ok(answer),
                Recalled::Nothing(_) if self.now() >= deadline => {
                    let failure = Failure::TimedOut(self.now() - began);
                    let error = CallError::from_failure(&entry.name, &failure, Fate::NotSent);
                    return self.cache().look_for_stale(request).ok_or(error);
                }
                Recalled::Nothing(made_for_all) => _flight = made_for_all,
            }
        }
        let spend = self.reserve(principal, &entry.name, resolved.order.tool.as_deref())?;
        let begun = self.now();
        let mut is_apart = false;
        let outcome = match entry.lease(client.as_ref().filter(|_| !shared)) {
            Ok(lease) => {
                is_apart = !lease.is_shared();
                let answer = lease.upstream().exchange(&resolved.order, row).await;
                answer.map(|answer| if lease.is_shared() { answer } else { answer.by_own_instance() })
            }
            Err(full) => Err(full),
        };
        if let Some(spend) = spend {
            spend.settle(&outcome);
        }
        // Clients may be told apart from this very call on: then nobody else is given what came of it.
        if let (Some(request), Ok(answer)) = (&cacheable, &outcome)
            && request.is_apart == is_apart
        {
            self.cache().keep(request, answer);
        }
        self.count(&resolved, begun, &outcome);
        match (&cacheable, outcome) {
            (Some(request), Err(error)) => self.cache().look_for_stale(request).ok_or(error),
            (_, outcome) => outcome,
        }
    }

    /// Which tool this is, and whether it may be replayed.
    fn resolve<'a>(
        &self,
        entry: &'a Entry,
        method: &str,
        params: Option<Box<RawValue>>,
        tool: Option<String>,
        options: CallOptions,
    ) -> Result<Resolved<'a>, CallError> {
        let upstream = entry.upstream()?;
        let deadline = options.patience.map(|patience| self.now() + patience);
        let mut order = Order {
            method: method.to_owned(),
            params,
            safety: Safety::of_method(method),
            deadline,
            listener: options.listener,
            caller: options.client.as_ref().map_or(Caller::Unnamed, |client| client.caller.clone()),
            principal: options
                .client
                .as_ref()
                .map_or_else(Principal::local, |client| client.principal.clone()),
            capabilities: options.capabilities,
            log_level: options.log_level,
            tool: None,
            memory: options.memory,
        };
        if method == TOOL_CALL {
            let tool = tool.ok_or_else(|| nameless(&entry.name))?;
            entry.is_approved(&tool, options.client.as_ref().filter(|_| !options.shared))?;
            order.safety = safety(entry, upstream, &tool)?;
            order.tool = Some(tool);
        }
        Ok(Resolved { upstream, order })
    }

    /// Counts what came of it, on every exit that has an outcome.
    fn count(&self, resolved: &Resolved<'_>, begun: Mono, outcome: &Result<Answer, CallError>) {
        let now = self.now();
        match outcome {
            Ok(answer) => resolved.upstream.stats.answered(now, now - begun, answer.is_tool_error()),
            Err(error) if error.code == Code::Stopped && error.outcome == Fate::NotSent => {
                resolved.upstream.stats.refused();
            }
            Err(_) => resolved.upstream.stats.failed(),
        }
    }
}

/// The parameters of `tools/call`.
fn call_params(tool: &str, arguments: Option<Box<RawValue>>) -> Box<RawValue> {
    let mut params = Patch::new().set_text("name", tool);
    if let Some(arguments) = arguments {
        params = params.set_owned("arguments", arguments);
    }
    params.to_object()
}

/// Who makes a call: the principal, and what the client calls itself.
fn caller<'a>(said: &Said<'_>, options: &'a CallOptions) -> AuditCaller<'a> {
    let named = options.client.as_ref().and_then(|client| client.name.as_deref()).map(Cow::Borrowed);
    let principal = options.client.as_ref().map(|client| client.principal.name());
    AuditCaller {
        principal: principal.or(options.by_operator.then_some(Principal::ADMIN)),
        says_it_is: named.or_else(|| said.members().and_then(client_in).map(Cow::Owned)),
    }
}

/// The client that the parameters of a modern request name.
fn client_in(params: &Object<'_>) -> Option<String> {
    let info = params.object("_meta")?.object(meta::CLIENT_INFO)?;
    let name = info.text("name")?;
    Some(info.text("version").map_or_else(|| name.to_string(), |version| format!("{name} {version}")))
}

/// Writes down what came of it.
fn settle(row: OpenRow<'_>, outcome: &Result<Answer, CallError>) {
    match outcome {
        Ok(answer) => row.settle(answer.fate(), None),
        Err(error) => row.settle(error.outcome, Some(error.code)),
    }
}

/// Whether calling the tool twice does harm. A tool that its server is known not to have is unknown.
fn safety(entry: &Entry, upstream: &Upstream, tool: &str) -> Result<Safety, CallError> {
    let (hints, origin) = {
        let listing = upstream.listing.borrow();
        (listing.catalog.tool(tool).map(|tool| tool.hints), listing.origin)
    };
    if hints.is_none() && origin == Origin::Server && is_settled(upstream.state()) {
        let catalog = Arc::clone(&upstream.listing.borrow().catalog);
        return Err(unknown_tool(entry, catalog, tool));
    }
    Ok(Safety::of_tool(hints.unwrap_or_default(), entry.replay.rule_for(tool)))
}

/// Whether what is listed is what there is.
fn is_settled(state: State) -> bool {
    matches!(state, State::Ready | State::NeedsApproval)
}

/// The server has just said what it offers, and this is not among it.
fn unknown_tool(entry: &Entry, catalog: Arc<Catalog>, tool: &str) -> CallError {
    let text = format!("upstream `{}` has no tool named `{tool}`", entry.name);
    let error = CallError::new(Code::UnknownTool, &entry.name, Fate::NotSent, text);
    let visible = entry.visible(catalog);
    match suggest::nearest(tool, visible.tools.iter().map(|tool| tool.key.as_str())) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("`gripfast tools {}` lists its tools", entry.name)),
    }
}

fn nameless(server: &str) -> CallError {
    let text = "`tools/call` needs parameters with the `name` of a tool";
    CallError::new(Code::InvalidRequest, server, Fate::NotSent, text)
}
