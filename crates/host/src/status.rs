//! Status of one server, as `gripfast status` and the admin API show it.

use crate::cache::CacheUse;
use crate::config::{Target, UrlTransport};
use crate::host::HostEntry;
use crate::instances::Instances;
use crate::observe::{CallEnds, CallStats, UpstreamEvent};
use crate::pins::PinCounts;
use crate::transport::Route;
use gripfast_core::catalog::merge::{MergedCatalog, Renamed};
use gripfast_core::session_state::Restored;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::status::{Attempt, NextAction, State, UpstreamStatus};
use gripfast_wire::Era;
use std::collections::BTreeMap;
use std::time::Duration;

/// A running attempt to start a server or to connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectAttempt {
    /// Time since the attempt began.
    pub elapsed: Duration,
    /// Time limit of the attempt.
    pub limit: Duration,
    /// The last stderr line of the server since the attempt began.
    pub last_line: Option<String>,
    /// Package runner that may be downloading the server (`npx`, `uvx`, `pipx`, `bunx` or `docker`), while the server
    /// has never been up.
    pub may_download: Option<&'static str>,
}

impl ConnectAttempt {
    /// Describes the attempt in one line for people.
    pub fn text(&self) -> String {
        let [elapsed, limit] = [self.elapsed, self.limit].map(gripfast_core::text::duration);
        let download = self.may_download.map(|runner| format!("; the first run of `{runner}` may download"));
        let last_line = self.last_line.as_ref().map(|line| format!("; stderr: {line}"));
        format!(
            "no handshake yet after {elapsed} of {limit}{}{}",
            download.unwrap_or_default(),
            last_line.unwrap_or_default()
        )
    }
}

/// Status of one server at one moment.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// The server's name.
    pub name: String,
    /// Supervision: state, cause, next attempt, circuit, restarts.
    pub supervision: UpstreamStatus,
    /// The running connection attempt.
    pub attempt: Option<ConnectAttempt>,
    /// Transport: `stdio`, `http`, `sse`; `auto` while it has to be detected and the server was never reached. `None`
    /// if the config is unusable.
    pub transport: Option<&'static str>,
    /// Protocol era: `legacy` or `modern`.
    pub era: Option<&'static str>,
    /// Protocol version of the session.
    pub protocol_version: Option<String>,
    /// Process id of the child process.
    pub pid: Option<u32>,
    /// URL of the server, without secrets.
    pub url: Option<String>,
    /// Replica that runs a singleton server, as far as this one knows. `None` for any other server.
    pub holder: Option<String>,
    /// Name and version that the server declares.
    pub server_info: Option<String>,
    /// Instructions of the server, as far as they are approved.
    pub instructions: Option<String>,
    /// Age of the present session.
    pub session_age: Option<Duration>,
    /// Restore status of the present session (calls marked `restore`, log level, subscriptions); `None` without a
    /// session, or while it is being restored.
    pub restored: Option<Restored>,
    /// Number of tools that the server's policy does not hide.
    pub tools: usize,
    /// Tools and prompts that were renamed because an earlier server has the same names.
    pub renamed: Vec<Renamed>,
    /// Counts of pinned and changed items.
    pub pins: PinCounts,
    /// Cache hits and misses.
    pub cache: CacheUse,
    /// Dedicated instances. The other fields describe the shared instance, except restarts and calls, which are sums
    /// over all instances.
    pub instances: DedicatedStatus,
    /// Call counts and durations.
    pub calls: CallStats,
    /// Outcomes of all calls, including those that a policy refused or the caller cancelled.
    pub ends: CallEnds,
    /// Event counts, by event kind.
    pub event_counts: BTreeMap<&'static str, u64>,
    /// The last events.
    pub events: Vec<UpstreamEvent>,
    /// The last stderr lines.
    pub stderr: Vec<String>,
    /// Number of those lines that came after the server's last answer. Only these can explain a present failure.
    pub stderr_since_answer: usize,
}

/// Summary of the dedicated instances of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DedicatedStatus {
    /// True if clients get dedicated instances at present.
    pub enabled: bool,
    /// Maximum number of instances (`max_instances`).
    pub max: usize,
    /// Number of instances in each state.
    pub states: Vec<(State, usize)>,
    /// Cause of one instance that is not ready.
    pub cause: Option<String>,
}

impl DedicatedStatus {
    /// Number of dedicated instances.
    pub fn count(&self) -> usize {
        self.states.iter().map(|(_, count)| count).sum()
    }
}

impl ServerStatus {
    /// Number of stderr lines in the status.
    const STDERR_LINES: usize = 20;

    pub(crate) fn of(instances: &Instances, entry: &HostEntry, merged: &MergedCatalog) -> Self {
        let upstream = instances.shared();
        let now = upstream.clock.now();
        let mut supervision = upstream.with_machine(|machine, now| machine.status(now));
        let pins = instances.pin_counts();
        let instances = instances.summary(&mut supervision);
        let connection = upstream.connection();
        let facts = connection.as_ref().map(|connection| connection.link.info()).unwrap_or_default();
        let session = connection.as_ref().map(|connection| &connection.session);
        let tools = entry.count_tools();
        let attempt = supervision.attempt.map(|Attempt { elapsed, limit }| ConnectAttempt {
            elapsed,
            limit,
            last_line: upstream.last_line_of_attempt(),
            may_download: entry
                .spec
                .as_ref()
                .and_then(|spec| spec.target.package_runner())
                .filter(|_| !upstream.was_ever_up()),
        });
        Self {
            name: upstream.name.to_string(),
            supervision,
            attempt,
            transport: Some(
                connection
                    .as_ref()
                    .map(|connection| connection.route)
                    .or_else(|| upstream.only_route())
                    .map_or(UrlTransport::Auto.as_str(), Route::as_str),
            ),
            era: session.map(|session| match session.era {
                Era::Legacy => "legacy",
                Era::Modern => "modern",
            }),
            protocol_version: session.and_then(|session| session.version.as_ref()).map(ToString::to_string),
            pid: facts.pid,
            url: facts.url,
            holder: upstream.deps().dialer.holder(),
            server_info: connection.as_ref().and_then(|connection| {
                let name = connection.server.name.as_deref()?;
                Some(
                    connection
                        .server
                        .version
                        .as_deref()
                        .map_or(name.to_owned(), |version| format!("{name} {version}")),
                )
                .map(|info| upstream.secrets.redact_text(&info))
            }),
            instructions: upstream.instructions().map(|text| upstream.secrets.mask(&text)),
            restored: upstream.restored(),
            session_age: connection.as_ref().map(|connection| now.mono - connection.since),
            tools,
            renamed: merged.renamed.iter().filter(|one| one.server == entry.name).cloned().collect(),
            pins,
            cache: upstream.cache_use(),
            instances,
            calls: upstream.stats.read(now.mono),
            ends: upstream.ends.read(),
            event_counts: upstream.observer.counts(),
            events: upstream.observer.recent(),
            stderr: upstream.stderr.last(Self::STDERR_LINES),
            stderr_since_answer: upstream.stderr.lines_since_answer().min(Self::STDERR_LINES),
        }
    }

    /// The status of a server without an upstream: disabled, or with an unusable config.
    pub(crate) fn idle(entry: &HostEntry, state: State, cause: Option<String>) -> Self {
        let next_action = (state == State::ConfigError).then_some(NextAction::Configure);
        Self {
            name: entry.name.clone(),
            attempt: None,
            supervision: UpstreamStatus {
                state,
                attempt: None,
                in_state_for: Duration::ZERO,
                cause,
                next_attempt: None,
                next_wake: None,
                next_action,
                circuit: CircuitView::Closed,
                consecutive_failures: 0,
                restarts: 0,
                restarts_in_window: 0,
                in_flight: 0,
                waiting: 0,
                epoch: 0,
                replacing: false,
                outdated: false,
                spare: None,
            },
            transport: entry.spec.as_ref().map(|spec| match &spec.target {
                Target::Stdio { .. } => Route::Stdio.as_str(),
                Target::Url { transport, .. } => transport.as_str(),
            }),
            era: None,
            protocol_version: None,
            pid: None,
            url: None,
            holder: None,
            server_info: None,
            instructions: None,
            restored: None,
            session_age: None,
            tools: 0,
            renamed: Vec::new(),
            pins: PinCounts::default(),
            cache: CacheUse::default(),
            instances: DedicatedStatus::default(),
            calls: CallStats::default(),
            ends: CallEnds::default(),
            event_counts: BTreeMap::new(),
            events: Vec::new(),
            stderr: Vec::new(),
            stderr_since_answer: 0,
        }
    }
}
