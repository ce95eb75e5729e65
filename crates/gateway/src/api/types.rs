//! JSON types of the admin API. The gateway writes them, the command line reads them, and the OpenAPI document describes
//! them. `convert` makes them from the host's types.
//!
//! The fields of a server up to `last_ok_ms`, their names and their order are a stable contract; fields after them may
//! be added. A gateway of another version may send more or fewer fields: unknown fields are skipped, and missing ones
//! have defaults. Durations are in milliseconds: `next_attempt_ms` is the time until the attempt; `last_ok_ms`,
//! `since_ms` and `session_age_ms` are times that have passed.

#![expect(missing_docs, reason = "the name of a field says what it is; the OpenAPI document shows the rest")]

use super::enums;
use gripfast::{Difference, JsonText, Suspicion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A word of a closed set. It is text, because a gateway of a later version may send a word that this version lacks.
pub type Word = Cow<'static, str>;

/// Status of the gateway and of all servers.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Fleet")]
pub struct FleetView {
    pub version: Word,
    pub uptime_ms: u64,
    pub upstreams: Vec<UpstreamView>,
    #[serde(default)]
    pub ledger: LedgerView,
    /// Present if the gateway serves clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsView>,
    /// Present if the gateway uses a config file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigFileView>,
    /// Present if the listener uses TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsView>,
    /// Damaged files of the state directory that gripfast moved aside and replaced. They stay until the operator
    /// removes them.
    #[serde(default)]
    pub set_aside: Vec<String>,
    #[serde(default)]
    pub cache: CacheView,
    /// Recent events that belong to no server. If clients must authenticate, they are shown only with the admin token.
    #[serde(default)]
    pub events: Vec<EventView>,
    #[serde(default)]
    pub budgets: Vec<BudgetView>,
    #[serde(default)]
    pub audit: AuditView,
    /// Present if the gateway is a replica of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterView>,
    /// Present if the tools of a server may be found by search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposure: Option<ExposureView>,
}

impl FleetView {
    /// The names of the servers, in the order of the config.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().map(|upstream| upstream.name.as_str())
    }
}

/// The service that the gateway is a replica of.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Cluster")]
pub struct ClusterView {
    /// Name of this replica.
    pub replica: String,
    /// `ok` or `unreachable`.
    pub store: Word,
    /// Live replicas, this one included, as far as it knows.
    pub replicas: usize,
    /// Time since the last heartbeat that reached the store; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_ms: Option<u64>,
    /// Reason why the store is unreachable, or why the gateway has not joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// One replica of the service, with the figures of its last heartbeat.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Replica")]
pub struct ReplicaView {
    pub name: String,
    /// `live`; `lost` if its heartbeats ended and it had not left; `unknown` while the store is unreachable.
    #[serde(default)]
    pub state: Word,
    /// Time since it was found to be lost; null for others.
    #[serde(default)]
    pub lost_ms: Option<u64>,
    /// URL for requests of other replicas.
    pub advertise: String,
    pub version: String,
    /// Digest of servers, clients and budgets in its config.
    pub config_hash: String,
    /// Legacy sessions that it owns.
    pub sessions: u64,
    /// Requests that it forwards to other replicas.
    #[serde(default)]
    pub forwards_per_second: f64,
    /// Round trip of its heartbeat to the store; null until it is known.
    #[serde(default)]
    pub store_latency_ms: Option<f64>,
    /// True for the replica that answers.
    #[serde(rename = "self")]
    pub is_self: bool,
}

/// Tools in the list of a client to which no policy applies.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExposureView {
    /// `exposure` of the gateway: `all`, `search` or `auto`.
    pub mode: Word,
    /// `exposure_limit` of the gateway.
    pub limit: u32,
    /// Number of all tools, and their estimated tokens.
    pub tools: usize,
    pub tokens: u64,
    /// Number of tools of servers in the list, and the estimated tokens of the list with the search tools.
    pub listed_tools: usize,
    pub listed_tokens: u64,
    /// Ranking by embeddings; absent if it is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<EmbeddingsView>,
}

/// State of the embeddings endpoint.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct EmbeddingsView {
    /// `ready`; `building` while vectors of tools are missing; `failing` while tools are found by their words alone.
    pub state: Word,
    /// Name of the model.
    pub model: String,
    /// Tools that have a vector.
    pub embedded: usize,
    /// Cause of the failure.
    pub cause: Option<String>,
}

/// State of the audit log.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AuditView {
    pub keeps: Word,
    pub lines: u64,
    pub lost: u64,
    pub cause: Option<String>,
}

/// Config file of the gateway.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConfigFileView {
    /// Absolute path.
    pub path: String,
    /// Reason why the current content of the file is not in use.
    pub error: Option<String>,
}

/// TLS certificate of the listener.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TlsView {
    pub cert: String,
    /// Reason why the current content of the files is not in use.
    pub error: Option<String>,
}

/// Result cache.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheView {
    pub entries: usize,
    pub bytes: usize,
    pub hits: u64,
    pub misses: u64,
}

/// Use of a call budget, for one combination of client, server and tool that the budget distinguishes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    pub budget: String,
    pub client: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub calls: u32,
    pub most_calls: Option<u32>,
    pub reset_ms: Option<u64>,
    pub in_flight: u32,
    pub most_in_flight: Option<u32>,
}

/// Resources that clients use at this moment; `docs/bounds.md` lists the limits.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Clients")]
pub struct ClientsView {
    pub connections: usize,
    pub sessions: usize,
    pub in_flight: usize,
    /// Memory of request bodies and answers.
    pub memory_bytes: usize,
}

/// Status of one server.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Upstream")]
pub struct UpstreamView {
    pub name: String,
    #[schemars(schema_with = "enums::states")]
    pub state: Word,
    #[serde(default)]
    #[schemars(schema_with = "enums::circuits")]
    pub circuit: Word,
    pub cause: Option<String>,
    pub next_attempt_ms: Option<u64>,
    /// Connect attempt in progress.
    pub attempt: Option<AttemptView>,
    pub transport: Option<Word>,
    pub era: Option<Word>,
    pub protocol_version: Option<String>,
    pub pid: Option<u32>,
    /// Replica that runs the server, if only one does (`placement = "one"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    #[serde(default)]
    pub tools: usize,
    /// Exposure of its tools to clients: `all`, `search` or `auto`.
    #[serde(default)]
    pub exposure: Word,
    #[serde(default)]
    pub restarts: u64,
    #[serde(default)]
    pub consecutive_failures: u32,
    #[serde(default)]
    pub in_flight: u32,
    #[serde(default)]
    pub calls: u64,
    #[serde(default)]
    pub errors: u64,
    #[serde(default)]
    pub tool_errors: u64,
    /// Calls refused because the server is stopped; not included in `calls` and `errors`.
    #[serde(default)]
    pub refused: u64,
    pub last_ok_ms: Option<u64>,
    #[serde(default)]
    pub since_ms: u64,
    pub next_action: Option<Word>,
    pub hint: Option<String>,
    pub url: Option<String>,
    pub server_info: Option<String>,
    pub session_age_ms: Option<u64>,
    /// Session state after the last reconnect: `restored`, `partly` or `nothing_to_restore`.
    pub restored: Option<Word>,
    /// Session state that could not be restored.
    #[serde(default)]
    pub not_restored: Vec<String>,
    #[serde(default)]
    pub restarts_in_window: u32,
    #[serde(default)]
    pub waiting: u32,
    #[serde(default)]
    pub replacing: bool,
    #[serde(default)]
    pub outdated: bool,
    pub spare: Option<Word>,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    /// Isolation in effect: `shared` or `per_client`.
    #[serde(default)]
    pub isolation: Word,
    /// Number of dedicated instances, each of one client.
    #[serde(default)]
    pub instances: usize,
    /// Number of dedicated instances in each state.
    #[serde(default)]
    pub instance_states: BTreeMap<Word, usize>,
    pub instance_cause: Option<String>,
    #[serde(default)]
    pub max_instances: usize,
    /// Number of pinned tools.
    #[serde(default)]
    pub pinned: usize,
    /// Number of pinned tools whose definition differs from the approved one.
    #[serde(default)]
    pub changed: usize,
    /// Requests answered from the cache.
    #[serde(default)]
    pub cache_hits: u64,
    /// Cacheable requests that were not answered from the cache.
    #[serde(default)]
    pub cache_misses: u64,
    /// Tools and prompts renamed because an earlier server uses their name.
    #[serde(default)]
    pub renamed: Vec<RenamedView>,
}

/// Attempt in progress to start a server or to connect to it.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Attempt")]
pub struct AttemptView {
    pub elapsed_ms: u64,
    pub limit_ms: u64,
    /// Last line that the server wrote to stderr during the attempt.
    pub last_line: Option<String>,
    /// Program that may be downloading the server.
    pub may_download: Option<Word>,
    /// Description of the attempt.
    pub text: String,
}

/// Renamed tool or prompt.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Renamed")]
pub struct RenamedView {
    pub wanted: String,
    pub public: String,
}

/// Status of one server with its recent events and stderr.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "UpstreamDetail")]
pub struct DetailView {
    #[serde(flatten)]
    pub upstream: UpstreamView,
    #[serde(default)]
    pub events: Vec<EventView>,
    #[serde(default)]
    pub stderr: Vec<String>,
    /// Number of lines at the end of `stderr` that were written after the last answer of the server.
    #[serde(default = "all_lines")]
    pub stderr_since_answer: usize,
}

/// Every line may be recent, if the gateway does not report which ones are.
fn all_lines() -> usize {
    usize::MAX
}

/// Lines of a server's stderr, numbered from zero.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Log")]
pub struct LogView {
    #[serde(default)]
    pub server: String,
    /// Number of the first of these lines.
    pub first: u64,
    /// Number of the line after the last of these lines.
    pub next: u64,
    pub lines: Vec<String>,
}

/// Event of a server or of the gateway.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Event")]
pub struct EventView {
    /// Milliseconds since the Unix epoch.
    pub at: u64,
    /// `null` for events of the gateway: failed authentications, admin actions, changes of keys and trust.
    pub server: Option<String>,
    /// Number of the dedicated instance, if the event is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u64>,
    pub kind: Word,
    pub text: String,
    #[serde(flatten)]
    pub facts: Facts,
    #[serde(flatten)]
    pub security: SecurityFacts,
}

/// Declares fields of an event that are left out where they do not apply.
macro_rules! event_fields {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$kind>,)*
        }
    };
}

event_fields! {
    /// Fields that depend on the kind of the event.
    Facts {
        from: Word,
        to: Word,
        cause: String,
        restarts_in_window: u32,
        away_ms: u64,
        failures: u32,
        cooldown_ms: u64,
        added: usize,
        removed: usize,
        changed: usize,
        tools: Vec<String>,
        lines: u64,
    }
}

event_fields! {
    /// Fields of security events.
    SecurityFacts {
        /// Address of a client, or `control socket`.
        source: String,
        /// Admin, user or request that caused the event.
        actor: String,
        /// Target of the failed authentication.
        target: Word,
        reason: Word,
        /// Principal of the refused credential, if known.
        client: String,
        count: u64,
        action: Word,
        /// Server that the action was applied to.
        acted_on: String,
        /// HTTP status of the response.
        status: u16,
        change: Word,
        /// Names of keys.
        names: Vec<String>,
        decision: Word,
        /// Path of a config file.
        path: String,
    }
}

/// Calls from the ledger.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Calls")]
pub struct CallsView {
    /// State of the gateway's ledger; null if the calls were read from disk.
    pub ledger: Option<LedgerView>,
    pub calls: Vec<CallView>,
    /// Number of older calls that were left out.
    #[serde(default)]
    pub left_out: u64,
    /// Reason why calls of lost replicas are missing; null if they are shown, or the gateway runs alone.
    #[serde(default)]
    pub lost_replicas: Option<String>,
}

/// State of the ledger.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
#[schemars(rename = "Ledger")]
pub struct LedgerView {
    pub keeps: Word,
    pub calls: u64,
    pub failed_writes: u64,
    pub cause: Option<String>,
}

/// One call. Times are milliseconds since the Unix epoch, durations are milliseconds. Unknown values are null, and so
/// is the outcome of a call in flight.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Call")]
pub struct CallView {
    #[serde(default)]
    pub id: String,
    /// Principal that made the call.
    pub principal: Option<String>,
    /// Name that the client gives itself.
    pub client: Option<String>,
    pub server: String,
    pub tool: String,
    pub sha256: Option<String>,
    #[schemars(schema_with = "enums::any_json")]
    pub arguments: Option<JsonText>,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    pub took_ms: Option<f64>,
    #[schemars(schema_with = "enums::outcomes")]
    pub outcome: Option<Word>,
    #[schemars(schema_with = "enums::codes")]
    pub code: Option<Word>,
    pub attempts: Option<u32>,
    pub replays: Option<u32>,
    pub text: Word,
    pub hint: Option<String>,
    /// Name of the lost replica that made the call; null for calls of this gateway.
    #[serde(default)]
    pub replica: Option<String>,
}

/// Pins of servers.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Pins")]
pub struct PinsView {
    pub servers: Vec<ServerPinsView>,
}

#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ServerPins")]
pub struct ServerPinsView {
    pub server: String,
    pub tools: Vec<PinView>,
}

/// One pinned item. Times are milliseconds since the Unix epoch.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Pin")]
pub struct PinView {
    /// `tool`, `prompt`, `template` or `instructions`.
    #[serde(default)]
    pub kind: Word,
    /// Name of the item, of any kind.
    pub tool: String,
    /// `approved`, `changed`, or `new` for a new tool that waits for approval.
    pub state: Word,
    pub sha256: String,
    pub first_seen_ms: u64,
    pub approved_ms: Option<u64>,
    pub renamed_to: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "enums::array_of_objects")]
    pub differences: Vec<Difference>,
    #[serde(default)]
    #[schemars(schema_with = "enums::array_of_objects")]
    pub suspicions: Vec<Suspicion>,
}

/// Approved items.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Approved")]
pub struct ApprovedView {
    #[serde(default)]
    pub server: String,
    pub approved: Vec<String>,
}

/// Policy decision for a client and a tool.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Decision")]
pub struct DecisionView {
    #[serde(default)]
    pub client: String,
    #[serde(default)]
    pub server: String,
    #[serde(default)]
    pub tool: String,
    pub allowed: bool,
    pub reason: String,
}

/// One-time sign-in code.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "SignInCode")]
pub struct SignInCodeView {
    /// Code for the fragment of a sign-in link. It can be used once.
    pub code: String,
    /// Validity in milliseconds.
    pub valid_ms: u64,
}

/// Body of an error response.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Refused")]
pub struct RefusalView {
    pub error: ErrorView,
}

#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Error")]
pub struct ErrorView {
    /// Error code for programs.
    pub code: Word,
    /// Message for people: what failed and what happens next.
    pub text: String,
    /// Suggested next step.
    pub hint: Option<String>,
}
