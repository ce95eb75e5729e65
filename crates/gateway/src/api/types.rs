//! What status looks like to programs. The fields up to `last_ok_ms`, their names and their order are the
//! contract; what follows them may grow. Spans are in milliseconds: `next_attempt_ms` counts from the moment
//! of asking, `last_ok_ms`, `since_ms` and `session_age_ms` back from it.

use super::calls::LedgerView;
use super::words;
use crate::reload::Reloader;
use crate::tls::Tls;
use gripfast::transport::StderrLines;
use gripfast::{
    AuditStatus, BudgetUse, CacheCounts, ConnectAttempt, Event, NextAction, Principal, Restored,
    SecurityEvent, ServerStatus, SpareState, State, UpstreamEvent,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The whole fleet.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Fleet")]
pub(super) struct FleetView {
    pub(super) version: &'static str,
    pub(super) uptime_ms: u64,
    pub(super) upstreams: Vec<UpstreamView>,
    pub(super) ledger: LedgerView,
    /// Where clients are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<ClientsView>,
    /// Where the gateway goes by a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<ConfigView>,
    /// Where clients speak https.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<TlsView>,
    /// Files of the state directory that were damaged and have been replaced. The damaged ones are there until a person
    /// removes them.
    pub(super) set_aside: Vec<String>,
    pub(super) cache: CacheView,
    /// The last events that belong to no server. Where clients have to authenticate, they are shown with the admin token.
    pub(super) events: Vec<EventView>,
    pub(super) budgets: Vec<BudgetView>,
    pub(super) audit: AuditView,
}

/// How the audit log does.
#[derive(Serialize, JsonSchema)]
pub(super) struct AuditView {
    keeps: &'static str,
    lines: u64,
    lost: u64,
    cause: Option<String>,
}

impl From<AuditStatus> for AuditView {
    fn from(status: AuditStatus) -> Self {
        let AuditStatus { keeps, lines, lost, cause } = status;
        Self { keeps: keeps.word(), lines, lost, cause }
    }
}

/// The config file that the gateway goes by.
#[derive(Serialize, JsonSchema)]
pub(super) struct ConfigView {
    /// Its absolute path.
    path: String,
    /// Why what is in the file at present is not what is in use.
    error: Option<String>,
}

impl ConfigView {
    pub(super) fn of(reloader: &Reloader) -> Self {
        let path = std::path::absolute(reloader.path()).unwrap_or_else(|_| reloader.path().to_owned());
        Self { path: path.display().to_string(), error: reloader.refused() }
    }
}

/// The certificate of the listener.
#[derive(Serialize, JsonSchema)]
pub(super) struct TlsView {
    cert: String,
    /// Why what is in the files at present is not what is in use.
    error: Option<String>,
}

impl TlsView {
    pub(super) fn of(tls: &Tls) -> Self {
        Self { cert: tls.cert().display().to_string(), error: tls.refused() }
    }
}

/// Answers that are kept to be given again.
#[derive(Serialize, JsonSchema)]
pub(super) struct CacheView {
    entries: usize,
    bytes: usize,
    hits: u64,
    misses: u64,
}

/// What is spent of a call budget, by whatever it tells apart.
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
            most_calls: spent.most_calls,
            reset_ms: spent.reset_after.map(millis),
            in_flight: spent.in_flight,
            most_in_flight: spent.most_in_flight,
        }
    }
}

/// What clients have at this moment; `docs/bounds.md` has the bounds.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Clients")]
pub(crate) struct ClientsView {
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    pub(crate) in_flight: usize,
    /// What request bodies and answers take in memory.
    pub(crate) memory_bytes: usize,
}

/// One upstream in a line.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Upstream")]
pub(super) struct UpstreamView {
    name: String,
    #[schemars(schema_with = "words::states")]
    state: &'static str,
    #[schemars(schema_with = "words::circuits")]
    circuit: &'static str,
    cause: Option<String>,
    next_attempt_ms: Option<u64>,
    /// The attempt to connect that is running.
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
    /// Calls that were refused because the server is stopped; `calls` and `errors` do not count them.
    refused: u64,
    last_ok_ms: Option<u64>,
    since_ms: u64,
    next_action: Option<&'static str>,
    hint: Option<String>,
    url: Option<String>,
    server_info: Option<String>,
    session_age_ms: Option<u64>,
    /// Whether the session knows what it is to know: `restored`, `partly`, `nothing_to_restore`.
    restored: Option<&'static str>,
    /// What it lacks.
    not_restored: Vec<String>,
    restarts_in_window: u32,
    waiting: u32,
    replacing: bool,
    outdated: bool,
    spare: Option<&'static str>,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    /// Whether clients share it, as things are: `shared` or `per_client`.
    isolation: &'static str,
    /// How many instances belong to one client each, and how many are in which state.
    instances: usize,
    instance_states: BTreeMap<&'static str, usize>,
    instance_cause: Option<String>,
    max_instances: usize,
    /// Tools that are pinned, and those that say something else by now.
    pinned: usize,
    changed: usize,
    /// Requests that were answered from the cache, and those that could have been.
    cache_hits: u64,
    cache_misses: u64,
    /// Tools and prompts that go by another name, for an earlier server has theirs.
    renamed: Vec<RenamedView>,
}

/// An attempt to start a server or to connect to it that is running.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Attempt")]
struct AttemptView {
    elapsed_ms: u64,
    limit_ms: u64,
    /// The last line that the server has written to stderr since the attempt began.
    last_line: Option<String>,
    /// The program that may be downloading the server.
    may_download: Option<&'static str>,
    /// The attempt in a sentence.
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

/// A name that had to give way.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Renamed")]
struct RenamedView {
    wanted: String,
    public: String,
}

/// One upstream with its recent past.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "UpstreamDetail")]
pub(super) struct DetailView {
    #[serde(flatten)]
    upstream: UpstreamView,
    events: Vec<EventView>,
    stderr: Vec<String>,
    /// How many of the lines of `stderr`, counted from the last one, came after its last answer.
    stderr_since_answer: usize,
}

/// Lines that a server wrote to stderr, numbered from zero.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Log")]
pub(super) struct LogView<'n> {
    server: &'n str,
    /// The number of the first of these lines.
    first: u64,
    /// The number that the line after these has, or will have.
    next: u64,
    lines: Vec<String>,
}

impl<'n> LogView<'n> {
    pub(super) fn of(server: &'n str, log: StderrLines) -> Self {
        Self { server, first: log.first, next: log.next(), lines: log.lines }
    }
}

/// Something that happened.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Event")]
pub(super) struct EventView {
    /// Milliseconds since the Unix epoch.
    at: u64,
    /// `null` for what belongs to no server: failed authentications, admin actions, changes of keys and trust.
    server: Option<String>,
    /// The number of the instance, if it is one that belongs to a single client.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<u64>,
    kind: &'static str,
    text: String,
    #[serde(flatten)]
    facts: Facts,
}

/// What a kind of event carries besides its text.
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

/// What an event about security carries.
#[derive(JsonSchema, Serialize, Default)]
struct SecurityFacts {
    /// The address of a client, or `control socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The admin, the user or the request that did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    /// What a request failed to authenticate for.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The principal of the credential that was refused, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    /// The server that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    acted_on: Option<String>,
    /// The HTTP status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    /// The names of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    /// A config file.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl From<&SecurityEvent> for SecurityFacts {
    fn from(event: &SecurityEvent) -> Self {
        let none = Self::default();
        match event {
            SecurityEvent::AuthFailed(failed) => Self {
                source: Some(failed.source.to_string()),
                target: Some(failed.target.word()),
                reason: Some(failed.reason.word()),
                client: failed.principal.clone(),
                count: Some(failed.count),
                ..none
            },
            SecurityEvent::AdminAction { action, server, tool: _, source, status } => Self {
                source: Some(source.to_string()),
                actor: Some(Principal::ADMIN.to_owned()),
                action: Some(action.word()),
                acted_on: server.clone(),
                status: *status,
                ..none
            },
            SecurityEvent::KeysChanged { change, names, actor } => {
                Self { actor: actor.clone(), change: Some(change.word()), names: Some(names.clone()), ..none }
            }
            SecurityEvent::TrustChanged { decision, path, actor } => Self {
                actor: actor.clone(),
                decision: Some(decision.word()),
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
            state: supervision.state.word(),
            circuit: supervision.circuit.word(),
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
            since_ms: millis(supervision.for_how_long),
            next_action: supervision.next_action.map(NextAction::word),
            hint: supervision.next_action.map(|action| next_step(action, &status.name)),
            url: status.url.clone(),
            server_info: status.server_info.clone(),
            session_age_ms: status.session_age.map(millis),
            restored: status.restored.as_ref().map(Restored::word),
            not_restored: match &status.restored {
                Some(Restored::Partly { missing }) => missing.clone(),
                Some(Restored::Nothing | Restored::Everything) | None => Vec::new(),
            },
            restarts_in_window: supervision.restarts_in_window,
            waiting: supervision.waiting,
            replacing: supervision.replacing,
            outdated: supervision.outdated,
            spare: supervision.spare.map(SpareState::word),
            p50_ms: calls.p50.map(fine_millis),
            p95_ms: calls.p95.map(fine_millis),
            isolation: if status.instances.are_apart { "per_client" } else { "shared" },
            instances: status.instances.count(),
            instance_states: status.instances.states.iter().map(|(state, n)| (state.word(), *n)).collect(),
            instance_cause: status.instances.cause.clone(),
            max_instances: status.instances.most,
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
    /// A server whose table cannot be used is tried again when the file has changed, which is looked at so often.
    pub(super) fn looked_at_every(mut self, span: Duration) -> Self {
        if self.state == State::ConfigError.word() {
            self.next_attempt_ms.get_or_insert(millis(span));
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
    fn from(told: &UpstreamEvent) -> Self {
        Self {
            at: millis(told.at.since_epoch()),
            server: told.server.as_deref().map(str::to_owned),
            instance: told.instance,
            kind: told.event.word(),
            text: told.event.to_string(),
            facts: Facts::from(&told.event),
        }
    }
}

impl From<&Event> for Facts {
    fn from(event: &Event) -> Self {
        let none = Self::default();
        match event {
            Event::StateChanged { from, to, cause } => {
                Self { from: Some(from.word()), to: Some(to.word()), cause: cause.clone(), ..none }
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
            | Event::NamesGaveWay { names: tools }
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
            | Event::ClientsSeparated
            | Event::Slept
            | Event::Replacing { .. }
            | Event::Replaced
            | Event::SpareReady
            | Event::SpareUsed => none,
        }
    }
}

/// The one thing that a person can do about a server.
pub(crate) fn next_step(action: NextAction, name: &str) -> String {
    match action {
        NextAction::Reconnect => format!("`gripfast reconnect {name}` tries now"),
        NextAction::Doctor => format!("`gripfast doctor {name}` looks into it"),
        NextAction::Login => format!("run `gripfast login {name}`, or correct its `headers`"),
        // `check` knows what is wrong with the file, and nothing of what a server answered.
        NextAction::Configure => format!("`gripfast doctor {name}` says what to correct"),
        NextAction::Approve => {
            format!(
                "`gripfast pins diff {name}` shows what changed, `gripfast pins approve {name}` accepts it"
            )
        }
        NextAction::Start => format!("`gripfast start {name}` brings it back"),
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds to a tenth: local servers answer in less than one.
pub(super) fn fine_millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::Host;

    #[tokio::test]
    async fn b01_a_server_with_a_mistake_in_its_table_is_next_tried_when_its_file_is_looked_at() {
        let host = Host::builder().build();
        host.spawn_broken("mistyped", "unknown key `comand`").unwrap();
        let status = host.status_of("mistyped").unwrap();
        let shown = UpstreamView::from(&status).looked_at_every(Duration::from_secs(1));
        assert_eq!((shown.state, shown.next_attempt_ms), ("config_error", Some(1000)));
        assert_eq!(UpstreamView::from(&status).next_attempt_ms, None, "there is no file to look at");
    }
}
