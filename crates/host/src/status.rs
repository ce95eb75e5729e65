//! The facts about one server, as status shows them.

use crate::cache::CacheUse;
use crate::config::{Target, UrlTransport};
use crate::host::Entry;
use crate::instances::Instances;
use crate::observe::{CallEnds, CallStats, UpstreamEvent};
use crate::pins::PinCounts;
use crate::transport::Route;
use gripfast_core::catalog::merge::{Menu, Renamed};
use gripfast_core::standing::Restored;
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::status::{Attempt, NextAction, State, UpstreamStatus};
use gripfast_wire::Era;
use std::collections::BTreeMap;
use std::time::Duration;

/// An attempt to start a server or to connect to it that is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectAttempt {
    /// The time since it began.
    pub elapsed: Duration,
    /// The time that it has in all.
    pub limit: Duration,
    /// The last line that the server has written to stderr since it began.
    pub last_line: Option<String>,
    /// The program that may be downloading the server: one of `npx`, `uvx`, `pipx`, `bunx` and `docker`, while the
    /// server has never been up.
    pub may_download: Option<&'static str>,
}

impl ConnectAttempt {
    /// The attempt in a sentence, for people.
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

/// The facts about one server at one moment.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Its supervision: state, cause, next attempt, circuit, restarts.
    pub supervision: UpstreamStatus,
    /// The attempt to connect that is running.
    pub attempt: Option<ConnectAttempt>,
    /// The way it is reached: `stdio`, `http`, `sse`; `auto` until it was reached once, if that has to be found out.
    /// Unknown of a server whose config cannot be used.
    pub transport: Option<&'static str>,
    /// The era it speaks: `legacy` or `modern`.
    pub era: Option<&'static str>,
    /// The protocol version it speaks.
    pub protocol_version: Option<String>,
    /// The child's process id.
    pub pid: Option<u32>,
    /// Its address, without anything secret.
    pub url: Option<String>,
    /// What it calls itself.
    pub server_info: Option<String>,
    /// What it tells its users.
    pub instructions: Option<String>,
    /// How long the present session has lasted.
    pub session_age: Option<Duration>,
    /// How much of what its session is to know (calls marked `restore`, log level, followed resources) the present
    /// one knows; unknown without a session, or while it is being told.
    pub restored: Option<Restored>,
    /// How many tools it offers, as far as they may be seen.
    pub tools: usize,
    /// Its tools and prompts that go by another name, for an earlier server has theirs.
    pub renamed: Vec<Renamed>,
    /// Its pinned tools.
    pub pins: PinCounts,
    /// How often its answers were given again.
    pub cache: CacheUse,
    /// Its instances that belong to one client each. What else is said here is said of the one that all share,
    /// but for restarts and calls, which are counted together.
    pub instances: OwnInstances,
    /// Its calls.
    pub calls: CallStats,
    /// How its calls ended, those included that a rule turned away and those that their callers gave up.
    pub ends: CallEnds,
    /// How often each kind of event happened to it, by the event's word.
    pub event_counts: BTreeMap<&'static str, u64>,
    /// The last things that happened to it.
    pub events: Vec<UpstreamEvent>,
    /// The last lines it wrote to stderr.
    pub stderr: Vec<String>,
    /// How many of them came after its last answer. Only these can say why it fails now.
    pub stderr_since_answer: usize,
}

/// The instances of a server that belong to one client each, in summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnInstances {
    /// Whether clients get instances of their own, as things are.
    pub are_apart: bool,
    /// How many there may be.
    pub most: usize,
    /// How many are in which state.
    pub states: Vec<(State, usize)>,
    /// Why one of them is not ready.
    pub cause: Option<String>,
}

impl OwnInstances {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.states.iter().map(|(_, count)| count).sum()
    }
}

impl ServerStatus {
    /// The stderr lines that status shows.
    const STDERR_LINES: usize = 20;

    pub(crate) fn of(instances: &Instances, entry: &Entry, menu: &Menu) -> Self {
        let upstream = instances.base();
        let now = upstream.clock.now();
        let mut supervision = upstream.with(|machine, now| machine.status(now));
        let pins = instances.pin_counts();
        let instances = instances.summary(&mut supervision);
        let live = upstream.live();
        let facts = live.as_ref().map(|live| live.link.facts()).unwrap_or_default();
        let session = live.as_ref().map(|live| &live.session);
        let tools = entry.count_tools();
        let attempt = supervision.attempt.map(|Attempt { elapsed, limit }| ConnectAttempt {
            elapsed,
            limit,
            last_line: upstream.last_line_of_attempt(),
            may_download: entry
                .spec
                .as_ref()
                .and_then(|spec| spec.target.package_runner())
                .filter(|_| !upstream.was_up_before()),
        });
        Self {
            name: upstream.name.to_string(),
            supervision,
            attempt,
            transport: Some(
                live.as_ref()
                    .map(|live| live.route)
                    .or_else(|| upstream.only_route())
                    .map_or(UrlTransport::Auto.word(), Route::word),
            ),
            era: session.map(|session| match session.era {
                Era::Legacy => "legacy",
                Era::Modern => "modern",
            }),
            protocol_version: session.and_then(|session| session.version.as_ref()).map(ToString::to_string),
            pid: facts.pid,
            url: facts.url,
            server_info: live.as_ref().and_then(|live| {
                let name = live.server.name.as_deref()?;
                Some(
                    live.server
                        .version
                        .as_deref()
                        .map_or(name.to_owned(), |version| format!("{name} {version}")),
                )
                .map(|info| upstream.secrets.text(&info))
            }),
            instructions: upstream.instructions().map(|text| upstream.secrets.mask(&text)),
            restored: upstream.restored(),
            session_age: live.as_ref().map(|live| now.mono - live.since),
            tools,
            renamed: menu.renamed.iter().filter(|one| one.server == entry.name).cloned().collect(),
            pins,
            cache: upstream.cache_use(),
            instances,
            calls: upstream.stats.read(now.mono),
            ends: upstream.ends.read(),
            event_counts: upstream.observer.counts(),
            events: upstream.observer.recent(),
            stderr: upstream.stderr.last(Self::STDERR_LINES),
            stderr_since_answer: upstream.stderr.since_answer().min(Self::STDERR_LINES),
        }
    }

    /// The status of a server that has no upstream.
    pub(crate) fn idle(entry: &Entry, state: State, cause: Option<String>) -> Self {
        let next_action = (state == State::ConfigError).then_some(NextAction::Configure);
        Self {
            name: entry.name.clone(),
            attempt: None,
            supervision: UpstreamStatus {
                state,
                attempt: None,
                for_how_long: Duration::ZERO,
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
                Target::Stdio { .. } => Route::Stdio.word(),
                Target::Url { transport, .. } => transport.word(),
            }),
            era: None,
            protocol_version: None,
            pid: None,
            url: None,
            server_info: None,
            instructions: None,
            restored: None,
            session_age: None,
            tools: 0,
            renamed: Vec::new(),
            pins: PinCounts::default(),
            cache: CacheUse::default(),
            instances: OwnInstances::default(),
            calls: CallStats::default(),
            ends: CallEnds::default(),
            event_counts: BTreeMap::new(),
            events: Vec::new(),
            stderr: Vec::new(),
            stderr_since_answer: 0,
        }
    }
}
