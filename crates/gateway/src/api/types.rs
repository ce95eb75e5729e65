//! JSON types of the status and of events. The fields of a server up to `last_ok_ms`, their names and their order are a
//! stable contract; fields after them may be added. Durations are in milliseconds: `next_attempt_ms` is the time until
//! the attempt; `last_ok_ms`, `since_ms` and `session_age_ms` are times that have passed.

use super::enums;
use super::handlers::calls::LedgerView;
use crate::reload::Reloader;
use crate::server::tls::Tls;
use gripfast::transport::StderrLines;
use gripfast::{
    AuditStatus, BudgetUse, CacheCounts, ConnectAttempt, Event, NextAction, Principal, Restored,
    SecurityEvent, ServerStatus, SpareState, State, UpstreamEvent,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Status of the gateway and of all servers.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Fleet")]
pub(super) struct FleetView {
    pub(super) version: &'static str,
    pub(super) uptime_ms: u64,
    pub(super) upstreams: Vec<UpstreamView>,
    pub(super) ledger: LedgerView,
    /// Present if the gateway serves clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<ClientsView>,
    /// Present if the gateway uses a config file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<ConfigFileView>,
    /// Present if the listener uses TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<TlsView>,
    /// Damaged files of the state directory that gripfast moved aside and replaced. They stay until the operator
    /// removes them.
    pub(super) set_aside: Vec<String>,
    pub(super) cache: CacheView,
    /// Recent events that belong to no server. If clients must authenticate, they are shown only with the admin token.
    pub(super) events: Vec<EventView>,
    pub(super) budgets: Vec<BudgetView>,
    pub(super) audit: AuditView,
}

/// State of the audit log.
#[derive(Serialize, JsonSchema)]
pub(super) struct AuditView {
    keeps: &'static str,
    lines: u64,
    lost: u64,
    cause: Option<String>,
}

impl From<AuditStatus> for AuditView {
    fn from(status: AuditStatus) -> Self {
        let AuditStatus { detail: keeps, lines, lost, cause } = status;
        Self { keeps: keeps.word(), lines, lost, cause }
    }
}

/// Config file of the gateway.
#[derive(Serialize, JsonSchema)]
pub(super) struct ConfigFileView {
    /// Absolute path.
    path: String,
    /// Reason why the current content of the file is not in use.
    error: Option<String>,
}

impl ConfigFileView {
    pub(super) fn of(reloader: &Reloader) -> Self {
        let path = std::path::absolute(reloader.path()).unwrap_or_else(|_| reloader.path().to_owned());
        Self { path: path.display().to_string(), error: reloader.last_error() }
    }
}

/// TLS certificate of the listener.
#[derive(Serialize, JsonSchema)]
pub(super) struct TlsView {
    cert: String,
    /// Reason why the current content of the files is not in use.
    error: Option<String>,
}

impl TlsView {
    pub(super) fn of(tls: &Tls) -> Self {
        Self { cert: tls.cert().display().to_string(), error: tls.refused() }
    }
}

/// Result cache.
#[derive(Serialize, JsonSchema)]
pub(super) struct CacheView {
    entries: usize,
    bytes: usize,
    hits: u64,
    misses: u64,
}

/// Use of a call budget, for one combination of client, server and tool that the budget distinguishes.
#[derive(Serialize, JsonSchema)]
pub(super) struct BudgetView {
    budget: String,
    client: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    calls: u32,
    most_calls: Option<u32>,
    reset_ms: Option<u64>,
    in_flight: u32,
    most_in_flight: Option<u32>,
}

impl From<CacheCounts> for CacheView {
    fn from(counts: CacheCounts) -> Self {
        let CacheCounts { entries, bytes, hits, misses } = counts;
        Self { entries, bytes, hits, misses }
    }
}

impl From<BudgetUse> for BudgetView {
    fn from(spent: BudgetUse) -> Self {
        Self {
            budget: spent.budget,
            client: spent.client,
            server: spent.server,
            tool: spent.tool,
            calls: spent.calls,
            most_calls: spent.max_calls,
            reset_ms: spent.reset_after.map(millis),
            in_flight: spent.in_flight,
            most_in_flight: spent.max_in_flight,
        }
    }
}

/// Resources that clients use at this moment; `docs/bounds.md` lists the limits.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Clients")]
pub(crate) struct ClientsView {
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    pub(crate) in_flight: usize,
    /// Memory of request bodies and answers.
    pub(crate) memory_bytes: usize,
}

/// Status of one server.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Upstream")]
pub(super) struct UpstreamView {
    name: String,
    #[schemars(schema_with = "enums::states")]
    state: &'static str,
    #[schemars(schema_with = "enums::circuits")]
    circuit: &'static str,
    cause: Option<String>,
    next_attempt_ms: Option<u64>,
    /// Connect attempt in progress.
    attempt: Option<AttemptView>,
    transport: Option<&'static str>,
    era: Option<&'static str>,
    protocol_version: Option<String>,
    pid: Option<u32>,
    tools: usize,
    restarts: u64,
    consecutive_failures: u32,
    in_flight: u32,
    calls: u64,
    errors: u64,
    tool_errors: u64,
    /// Calls refused because the server is stopped; not included in `calls` and `errors`.
    refused: u64,
    last_ok_ms: Option<u64>,
    since_ms: u64,
    next_action: Option<&'static str>,
    hint: Option<String>,
    url: Option<String>,
    server_info: Option<String>,
    session_age_ms: Option<u64>,
    /// Session state after the last reconnect: `restored`, `partly` or `nothing_to_restore`.
    restored: Option<&'static str>,
    /// Session state that could not be restored.
    not_restored: Vec<String>,
    restarts_in_window: u32,
    waiting: u32,
    replacing: bool,
    outdated: bool,
    spare: Option<&'static str>,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    /// Isolation in effect: `shared` or `per_client`.
    isolation: &'static str,
    /// Number of dedicated instances, each of one client.
    instances: usize,
    /// Number of dedicated instances in each state.
    instance_states: BTreeMap<&'static str, usize>,
    instance_cause: Option<String>,
    max_instances: usize,
    /// Number of pinned tools.
    pinned: usize,
    /// Number of pinned tools whose definition differs from the approved one.
    changed: usize,
    /// Requests answered from the cache.
    cache_hits: u64,
    /// Cacheable requests that were not answered from the cache.
    cache_misses: u64,
    /// Tools and prompts renamed because an earlier server uses their name.
    renamed: Vec<RenamedView>,
}

/// Attempt in progress to start a server or to connect to it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Attempt")]
struct AttemptView {
    elapsed_ms: u64,
    limit_ms: u64,
    /// Last line that the server wrote to stderr during the attempt.
    last_line: Option<String>,
    /// Program that may be downloading the server.
    may_download: Option<&'static str>,
    /// Description of the attempt.
    text: String,
}

impl From<&ConnectAttempt> for AttemptView {
    fn from(attempt: &ConnectAttempt) -> Self {
        Self {
            elapsed_ms: millis(attempt.elapsed),
            limit_ms: millis(attempt.limit),
            last_line: attempt.last_line.clone(),
            may_download: attempt.may_download,
            text: attempt.text(),
        }
    }
}

/// Renamed tool or prompt.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Renamed")]
struct RenamedView {
    wanted: String,
    public: String,
}

/// Status of one server with its recent events and stderr.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "UpstreamDetail")]
pub(super) struct DetailView {
    #[serde(flatten)]
    upstream: UpstreamView,
    events: Vec<EventView>,
    stderr: Vec<String>,
    /// Number of lines at the end of `stderr` that were written after the last answer of the server.
    stderr_since_answer: usize,
}

/// Lines of a server's stderr, numbered from zero.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Log")]
pub(super) struct LogView<'n> {
    server: &'n str,
    /// Number of the first of these lines.
    first: u64,
    /// Number of the line after the last of these lines.
    next: u64,
    lines: Vec<String>,
}

impl<'n> LogView<'n> {
    pub(super) fn of(server: &'n str, log: StderrLines) -> Self {
        Self { server, first: log.first, next: log.next(), lines: log.lines }
    }
}

/// Event of a server or of the gateway.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Event")]
pub(super) struct EventView {
    /// Milliseconds since the Unix epoch.
    at: u64,
    /// `null` for events of the gateway: failed authentications, admin actions, changes of keys and trust.
    server: Option<String>,
    /// Number of the dedicated instance, if the event is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<u64>,
    kind: &'static str,
    text: String,
    #[serde(flatten)]
    facts: Facts,
}

/// Fields that depend on the kind of the event.
#[derive(JsonSchema, Serialize, Default)]
struct Facts {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restarts_in_window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    away_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cooldown_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<u64>,
    #[serde(flatten)]
    security: Option<SecurityFacts>,
}

/// Fields of security events.
#[derive(JsonSchema, Serialize, Default)]
struct SecurityFacts {
    /// Address of a client, or `control socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Admin, user or request that caused the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    /// Target of the failed authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Principal of the refused credential, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    /// Server that the action was applied to.
    #[serde(skip_serializing_if = "Option::is_none")]
    acted_on: Option<String>,
    /// HTTP status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    /// Names of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    /// Path of a config file.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl From<&SecurityEvent> for SecurityFacts {
    fn from(event: &SecurityEvent) -> Self {
        let none = Self::default();
        match event {
            SecurityEvent::AuthFailed(failed) => Self {
                source: Some(failed.source.to_string()),
                target: Some(failed.target.as_str()),
                reason: Some(failed.reason.as_str()),
                client: failed.principal.clone(),
                count: Some(failed.count),
                ..none
            },
            SecurityEvent::AdminAction { action, server, tool: _, source, status } => Self {
                source: Some(source.to_string()),
                actor: Some(Principal::ADMIN.to_owned()),
                action: Some(action.as_str()),
                acted_on: server.clone(),
                status: *status,
                ..none
            },
            SecurityEvent::KeysChanged { change, names, actor } => Self {
                actor: actor.clone(),
                change: Some(change.as_str()),
                names: Some(names.clone()),
                ..none
            },
            SecurityEvent::TrustChanged { decision, path, actor } => Self {
                actor: actor.clone(),
                decision: Some(decision.as_str()),
                path: Some(path.clone()),
                ..none
            },
        }
    }
}

impl From<&ServerStatus> for UpstreamView {
    fn from(status: &ServerStatus) -> Self {
        let ServerStatus { supervision, calls, .. } = status;
        Self {
            name: status.name.clone(),
            state: supervision.state.as_str(),
            circuit: supervision.circuit.as_str(),
            cause: supervision.cause.clone(),
            next_attempt_ms: supervision.next_attempt.map(millis),
            attempt: status.attempt.as_ref().map(Into::into),
            transport: status.transport,
            era: status.era,
            protocol_version: status.protocol_version.clone(),
            pid: status.pid,
            tools: status.tools,
            restarts: supervision.restarts,
            consecutive_failures: supervision.consecutive_failures,
            in_flight: supervision.in_flight,
            calls: calls.calls,
            errors: calls.errors,
            tool_errors: calls.tool_errors,
            refused: calls.refused,
            last_ok_ms: calls.last_ok.map(millis),
            since_ms: millis(supervision.in_state_for),
            next_action: supervision.next_action.map(NextAction::as_str),
            hint: supervision.next_action.map(|action| next_step(action, &status.name)),
            url: status.url.clone(),
            server_info: status.server_info.clone(),
            session_age_ms: status.session_age.map(millis),
            restored: status.restored.as_ref().map(Restored::as_str),
            not_restored: match &status.restored {
                Some(Restored::Partly { missing }) => missing.clone(),
                Some(Restored::Nothing | Restored::Everything) | None => Vec::new(),
            },
            restarts_in_window: supervision.restarts_in_window,
            waiting: supervision.waiting,
            replacing: supervision.replacing,
            outdated: supervision.outdated,
            spare: supervision.spare.map(SpareState::as_str),
            p50_ms: calls.p50.map(fractional_millis),
            p95_ms: calls.p95.map(fractional_millis),
            isolation: if status.instances.enabled { "per_client" } else { "shared" },
            instances: status.instances.count(),
            instance_states: status.instances.states.iter().map(|(state, n)| (state.as_str(), *n)).collect(),
            instance_cause: status.instances.cause.clone(),
            max_instances: status.instances.max,
            pinned: status.pins.pinned,
            changed: status.pins.changed,
            cache_hits: status.cache.hits,
            cache_misses: status.cache.misses,
            renamed: status
                .renamed
                .iter()
                .map(|one| RenamedView { wanted: one.wanted.clone(), public: one.public.clone() })
                .collect(),
        }
    }
}

impl UpstreamView {
    /// Sets the next attempt of a server with an invalid config to the next check of the config file.
    pub(super) fn with_config_check_interval(mut self, interval: Duration) -> Self {
        if self.state == State::ConfigError.as_str() {
            self.next_attempt_ms.get_or_insert(millis(interval));
        }
        self
    }
}

impl DetailView {
    pub(super) fn of(status: &ServerStatus, upstream: UpstreamView) -> Self {
        Self {
            upstream,
            events: status.events.iter().map(EventView::from).collect(),
            stderr: status.stderr.clone(),
            stderr_since_answer: status.stderr_since_answer.min(status.stderr.len()),
        }
    }
}

impl From<&UpstreamEvent> for EventView {
    fn from(event: &UpstreamEvent) -> Self {
        Self {
            at: millis(event.at.since_epoch()),
            server: event.server.as_deref().map(str::to_owned),
            instance: event.instance,
            kind: event.event.kind(),
            text: event.event.to_string(),
            facts: Facts::from(&event.event),
        }
    }
}

impl From<&Event> for Facts {
    fn from(event: &Event) -> Self {
        let none = Self::default();
        match event {
            Event::StateChanged { from, to, cause } => {
                Self { from: Some(from.as_str()), to: Some(to.as_str()), cause: cause.clone(), ..none }
            }
            Event::Restarting { in_window } => Self { restarts_in_window: Some(*in_window), ..none },
            Event::Revived { away } => Self { away_ms: Some(millis(*away)), ..none },
            Event::CircuitOpened { failures, cooldown } => {
                Self { failures: Some(*failures), cooldown_ms: Some(millis(*cooldown)), ..none }
            }
            Event::ProbeFailed { cause }
            | Event::CatalogFailed { cause }
            | Event::ReplacementFailed { cause }
            | Event::SpareLost { cause } => Self { cause: Some(cause.clone()), ..none },
            Event::CatalogChanged { added, removed, changed } => {
                Self { added: Some(*added), removed: Some(*removed), changed: Some(*changed), ..none }
            }
            Event::ToolsChanged { tools, .. }
            | Event::ToolsApproved { tools }
            | Event::NameConflicts { names: tools }
            | Event::NewTools { tools, .. }
            | Event::TextsChanged { items: tools, .. }
            | Event::ToolsSuspicious { tools } => Self { tools: Some(tools.clone()), ..none },
            Event::TooManyTools { .. } => Self { cause: Some(event.to_string()), ..none },
            Event::PrincipalRefused { wait, .. } => Self { cooldown_ms: Some(millis(*wait)), ..none },
            Event::MessagesDropped { dropped: lines } | Event::JunkSkipped { lines, sample: _ } => {
                Self { lines: Some(*lines), ..none }
            }
            Event::Security(event) => Self { security: Some(event.into()), ..none },
            Event::SessionRenewed
            | Event::SessionRestored { .. }
            | Event::CredentialRenewed
            | Event::CircuitClosed
            | Event::ClientsIsolated
            | Event::MachineSlept
            | Event::Replacing { .. }
            | Event::Replaced
            | Event::SpareReady
            | Event::SpareUsed => none,
        }
    }
}

/// Hint for the operator: the next action for a server.
pub(crate) fn next_step(action: NextAction, name: &str) -> String {
    match action {
        NextAction::Reconnect => format!("`gripfast reconnect {name}` retries now"),
        NextAction::Doctor => format!("`gripfast doctor {name}` diagnoses it"),
        NextAction::Login => format!("run `gripfast login {name}`, or correct its `headers`"),
        // `check` finds mistakes in the file, but not the reason why a server refused to work.
        NextAction::Configure => format!("`gripfast doctor {name}` shows what to correct"),
        NextAction::Approve => {
            format!(
                "`gripfast pins diff {name}` shows what changed, `gripfast pins approve {name}` accepts it"
            )
        }
        NextAction::Start => format!("`gripfast start {name}` starts it again"),
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds with one decimal: local servers answer in less than one millisecond.
pub(super) fn fractional_millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::Host;

    #[tokio::test]
    async fn b01_a_server_with_a_config_mistake_is_retried_at_the_next_check_of_the_file() {
        let host = Host::builder().build();
        host.spawn_broken("mistyped", "unknown key `comand`").unwrap();
        let status = host.server_status("mistyped").unwrap();
        let shown = UpstreamView::from(&status).with_config_check_interval(Duration::from_secs(1));
        assert_eq!((shown.state, shown.next_attempt_ms), ("config_error", Some(1000)));
        assert_eq!(UpstreamView::from(&status).next_attempt_ms, None, "there is no file to check");
    }
}
