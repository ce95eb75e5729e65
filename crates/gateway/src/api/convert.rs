//! Makes the JSON types of the admin API from the host's types.

use super::types::{
    AttemptView, AuditView, BudgetView, CacheView, CallView, CallsView, ConfigFileView, DecisionView,
    DetailView, EmbeddingsView, EventView, ExposureView, Facts, LedgerView, LogView, PinView, PinsView,
    RenamedView, SecurityFacts, ServerPinsView, TlsView, UpstreamView, Word,
};
use crate::mcp::tool_search;
use crate::reload::Reloader;
use crate::server::tls::Tls;
use gripfast::ledger::{Calls, LedgerStatus, Row, RowEnd};
use gripfast::transport::StderrLines;
use gripfast::wire::Era;
use gripfast::{
    AuditStatus, BudgetUse, CacheCounts, CallError, ConnectAttempt, EmbeddingsStatus, Event, Host, JsonText,
    NextAction, PinnedTool, PolicyDecision, Principal, Restored, SecurityEvent, ServerStatus, State,
    UpstreamEvent,
};
use std::time::Duration;

impl ExposureView {
    /// Exposure of the tools of `host`; `None` if all tools are always listed.
    pub(super) fn of(host: &Host) -> Option<Self> {
        if !host.is_searchable() {
            return None;
        }
        let (settings, catalog) = (host.exposure(), host.catalog_snapshot());
        let (tokens, of_servers) = catalog.estimated_tokens();
        let listed_tokens = of_servers + tool_search::definitions(&catalog, Era::Modern).estimated_tokens();
        Some(Self {
            mode: settings.exposure.as_str().into(),
            limit: settings.limit,
            tools: catalog.tools.len(),
            tokens,
            listed_tools: catalog.listed_tools(Era::Modern).len(),
            listed_tokens,
            embeddings: host.embeddings_status().map(EmbeddingsView::from),
        })
    }
}

impl From<EmbeddingsStatus> for EmbeddingsView {
    fn from(status: EmbeddingsStatus) -> Self {
        let EmbeddingsStatus { model, tools, embedded, cause } = status;
        let state = match &cause {
            Some(_) => "failing",
            None if embedded < tools => "building",
            None => "ready",
        };
        Self { state: state.into(), model, embedded, cause }
    }
}

impl From<AuditStatus> for AuditView {
    fn from(status: AuditStatus) -> Self {
        let AuditStatus { detail: keeps, lines, lost, cause } = status;
        Self { keeps: keeps.word().into(), lines, lost, cause }
    }
}

impl From<&Reloader> for ConfigFileView {
    fn from(reloader: &Reloader) -> Self {
        let path = std::path::absolute(reloader.path()).unwrap_or_else(|_| reloader.path().to_owned());
        Self { path: path.display().to_string(), error: reloader.last_error() }
    }
}

impl From<&Tls> for TlsView {
    fn from(tls: &Tls) -> Self {
        Self { cert: tls.cert().display().to_string(), error: tls.refused() }
    }
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

impl From<&ConnectAttempt> for AttemptView {
    fn from(attempt: &ConnectAttempt) -> Self {
        Self {
            elapsed_ms: millis(attempt.elapsed),
            limit_ms: millis(attempt.limit),
            last_line: attempt.last_line.clone(),
            may_download: attempt.may_download.map(Into::into),
            text: attempt.text(),
        }
    }
}

impl LogView {
    pub(super) fn of(server: &str, log: StderrLines) -> Self {
        Self { server: server.to_owned(), first: log.first, next: log.next(), lines: log.lines }
    }
}

impl From<&SecurityEvent> for SecurityFacts {
    fn from(event: &SecurityEvent) -> Self {
        let none = Self::default();
        match event {
            SecurityEvent::AuthFailed(failed) => Self {
                source: Some(failed.source.to_string()),
                target: Some(failed.target.as_str().into()),
                reason: Some(failed.reason.as_str().into()),
                client: failed.principal.clone(),
                count: Some(failed.count),
                ..none
            },
            SecurityEvent::AdminAction { action, server, tool: _, source, status } => Self {
                source: Some(source.to_string()),
                actor: Some(Principal::ADMIN.to_owned()),
                action: Some(action.as_str().into()),
                acted_on: server.clone(),
                status: *status,
                ..none
            },
            SecurityEvent::KeysChanged { change, names, actor } => Self {
                actor: actor.clone(),
                change: Some(change.as_str().into()),
                names: Some(names.clone()),
                ..none
            },
            SecurityEvent::TrustChanged { decision, path, actor } => Self {
                actor: actor.clone(),
                decision: Some(decision.as_str().into()),
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
            state: supervision.state.as_str().into(),
            circuit: supervision.circuit.as_str().into(),
            cause: supervision.cause.clone(),
            next_attempt_ms: supervision.next_attempt.map(millis),
            attempt: status.attempt.as_ref().map(Into::into),
            transport: status.transport.map(Into::into),
            era: status.era.map(Into::into),
            protocol_version: status.protocol_version.clone(),
            pid: status.pid,
            holder: status.holder.clone(),
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
            next_action: supervision.next_action.map(|action| action.as_str().into()),
            hint: supervision.next_action.map(|action| next_step(action, &status.name)),
            url: status.url.clone(),
            server_info: status.server_info.clone(),
            session_age_ms: status.session_age.map(millis),
            restored: status.restored.as_ref().map(|restored| restored.as_str().into()),
            not_restored: match &status.restored {
                Some(Restored::Partly { missing }) => missing.clone(),
                Some(Restored::Nothing | Restored::Everything) | None => Vec::new(),
            },
            restarts_in_window: supervision.restarts_in_window,
            waiting: supervision.waiting,
            replacing: supervision.replacing,
            outdated: supervision.outdated,
            spare: supervision.spare.map(|spare| spare.as_str().into()),
            p50_ms: calls.p50.map(fractional_millis),
            p95_ms: calls.p95.map(fractional_millis),
            // Set by the caller, who knows the exposure of the gateway.
            exposure: Word::default(),
            isolation: if status.instances.enabled { "per_client" } else { "shared" }.into(),
            instances: status.instances.count(),
            instance_states: status
                .instances
                .states
                .iter()
                .map(|(state, n)| (state.as_str().into(), *n))
                .collect(),
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
    /// The detail of a server whose status is `upstream`.
    pub fn of(status: &ServerStatus, upstream: UpstreamView) -> Self {
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
            kind: event.event.kind().into(),
            text: event.event.to_string(),
            facts: Facts::from(&event.event),
            security: match &event.event {
                Event::Security(event) => event.into(),
                _ => SecurityFacts::default(),
            },
        }
    }
}

impl From<&Event> for Facts {
    fn from(event: &Event) -> Self {
        let none = Self::default();
        match event {
            Event::StateChanged { from, to, cause } => Self {
                from: Some(from.as_str().into()),
                to: Some(to.as_str().into()),
                cause: cause.clone(),
                ..none
            },
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
            Event::Security(_)
            | Event::SessionRenewed
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

impl From<Calls> for CallsView {
    fn from(calls: Calls) -> Self {
        let Calls { rows, left_out } = calls;
        let calls = rows.into_iter().map(CallView::from).collect();
        Self { ledger: None, calls, left_out, lost_replicas: None }
    }
}

impl CallView {
    /// A call of a replica that is gone.
    pub(super) fn of_lost_replica(replica: String, row: Row) -> Self {
        let text = format!("replica {replica} was lost before the answer came").into();
        Self { text, replica: Some(replica), ..Self::from(row) }
    }
}

impl From<&LedgerStatus> for LedgerView {
    fn from(status: &LedgerStatus) -> Self {
        let LedgerStatus { detail: keeps, calls, failed_writes, cause } = status;
        Self {
            keeps: keeps.word().into(),
            calls: *calls,
            failed_writes: *failed_writes,
            cause: cause.clone(),
        }
    }
}

impl From<Row> for CallView {
    fn from(row: Row) -> Self {
        let settled = match &row.end {
            RowEnd::Settled(settled) => Some(*settled),
            RowEnd::InFlight | RowEnd::Orphaned(_) => None,
        };
        Self {
            id: row.id.to_string(),
            started_ms: millis(row.started.since_epoch()),
            ended_ms: settled.map(|settled| millis(settled.ended.since_epoch())),
            took_ms: settled.map(|settled| fractional_millis(settled.took)),
            outcome: row.outcome().map(|outcome| outcome.as_str().into()),
            code: row.code().map(|code| code.as_str().into()),
            attempts: settled.map(|settled| settled.attempts),
            replays: settled.map(|settled| settled.replays),
            text: row.summary().into(),
            hint: row.hint(),
            principal: Some(row.subject.principal).filter(|principal| !principal.is_empty()),
            client: Some(row.subject.client).filter(|client| !client.is_empty()),
            server: row.subject.server,
            tool: row.subject.tool,
            sha256: row.subject.digest,
            arguments: row.subject.arguments.and_then(|arguments| JsonText::parse(arguments).ok()),
            replica: None,
        }
    }
}

impl PinsView {
    /// Pins of one server, or of all servers.
    ///
    /// # Errors
    /// There is no server with this name, or its config is invalid.
    pub fn of(host: &Host, server: Option<&str>) -> Result<Self, CallError> {
        let servers = match server {
            Some(server) => vec![ServerPinsView { tools: pins(host, server)?, server: server.to_owned() }],
            None => {
                let usable = host.server_names().into_iter();
                usable
                    .filter_map(|server| Some(ServerPinsView { tools: pins(host, &server).ok()?, server }))
                    .collect()
            }
        };
        Ok(Self { servers })
    }
}

fn pins(host: &Host, server: &str) -> Result<Vec<PinView>, CallError> {
    let redact = |text: &str| host.redact(server, text).unwrap_or_default();
    Ok(host.pins(server)?.into_iter().map(|pin| PinView::of(pin, redact)).collect())
}

impl PinView {
    /// `redact` removes the secrets of the server from its texts.
    fn of(pin: PinnedTool, redact: impl Fn(&str) -> String) -> Self {
        let mut view = Self {
            kind: pin.kind.as_str().into(),
            tool: redact(&pin.tool),
            state: "approved".into(),
            sha256: pin.digest,
            first_seen_ms: millis(pin.first_seen.since_epoch()),
            approved_ms: pin.approved.map(|at| millis(at.since_epoch())),
            renamed_to: None,
            differences: Vec::new(),
            suspicions: pin.suspicions,
        };
        if let Some(change) = pin.change {
            view.state = if change.is_new { "new" } else { "changed" }.into();
            view.renamed_to = change.renamed_to.as_deref().map(&redact);
            view.differences = change.differences;
            view.suspicions = change.suspicions;
        }
        for difference in &mut view.differences {
            difference.before = difference.before.as_deref().map(&redact);
            difference.after = difference.after.as_deref().map(&redact);
        }
        for suspicion in &mut view.suspicions {
            suspicion.what = redact(&suspicion.what);
        }
        view
    }
}

impl DecisionView {
    /// The decision about a call of this tool by this client.
    pub fn of(client: &str, server: &str, tool: &str, decision: PolicyDecision) -> Self {
        let [client, server, tool] = [client, server, tool].map(str::to_owned);
        Self { client, server, tool, allowed: decision.allowed, reason: decision.reason }
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
        assert_eq!((&*shown.state, shown.next_attempt_ms), ("config_error", Some(1000)));
        assert_eq!(UpstreamView::from(&status).next_attempt_ms, None, "there is no file to check");
    }
}
