//! The table `gateway` and its table `limits`.

use super::access::{AccessConfig, ClientUrl, JwtConfig, ListenerTls, Origins};
use super::search::SearchConfig;
use crate::cache::CacheLimits;
use crate::config::fields::{Field, Problems};
use crate::config::keys::{Section, ValueKind, Words, impl_codec, keys, words};
use crate::config::node::Value;
use crate::config::units::{self, AT_LEAST_1_S, DurationRange};
use crate::private_files::StrictModes;
use crate::records::RecordDetail;
use crate::records::audit::AuditOptions;
use crate::records::ledger::LedgerOptions;
use gripfast_core::exposure::{Exposure, ExposureSettings};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

keys! {
    /// The gateway itself. Changes take effect at the next start, except where a key says otherwise.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GatewayConfig: Default, check drain_before_end {
        /// IP address and port of the listener. Port 0 picks a free port. An address other than loopback lets other
        /// machines connect and requires `auth`.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7331));
        /// Access to the gateway.
        field pub access: AccessConfig = AccessConfig::default();
        /// URL that clients use for the gateway, if it differs from `listen`: behind a proxy, or with a host name. The
        /// gateway accepts its host in `Host` and `Origin`, and names this URL to clients that look for the
        /// authorization server. Required with `auth.jwt` if `listen` is every address (0.0.0.0). If it is wrong,
        /// clients are refused, or get tokens for another service.
        public_url => access.public_url: Option<ClientUrl>;
        /// Origins whose web pages may send requests to the gateway, besides its own pages: `"http://localhost:6274"`.
        /// Another port on this machine is another origin. List only programs that may use all servers. A program in a
        /// browser that is not listed is refused because of its Origin header.
        allowed_origins => access.allowed_origins: Origins;
        /// Client authentication.
        auth => access: AccessConfig;
        /// Certificate of the listener. With it clients must use https, without it http.
        tls => access.tls: Option<ListenerTls>;
        /// Time that a first list request waits for servers without a stored catalog. Too short: a client that lists
        /// only once misses their tools. Too long: one slow server delays every client.
        pub startup_wait: Duration [DurationRange::between(Duration::ZERO, Duration::from_secs(600))] =
            Duration::from_secs(2);
        /// Time limit from SIGTERM to the end of the process. Calls in flight get four ninths of it, the servers the
        /// rest. A second signal ends the process at once. Too short: calls are cut off shortly before their end. Too
        /// long: the process manager kills the gateway first (Docker after 10s, Kubernetes after 30s).
        pub shutdown_timeout: Duration [AT_LEAST_1_S] = Duration::from_secs(9);
        /// Time after SIGTERM in which the gateway serves as before, while `/readyz` answers 503 and every answer closes
        /// its connection. It is a part of `shutdown_timeout`. Set it behind a load balancer, to the time in which that
        /// notices the 503. Too short: the load balancer still sends requests to a closed port, and a client that uses an
        /// idle connection in the moment of its end loses the request. Too long: less time for calls in flight. With the socket of a service manager, new connections wait for the next process meanwhile.
        pub drain_wait: Option<Duration> [DurationRange::at_least(Duration::ZERO)] = None,
            "`0s`; in a cluster a third of `shutdown_timeout`, at most `3s`; with the socket of a service manager a ninth of it";
        /// Time that a gateway started by `gripfast stdio --background` keeps running after its last client has left.
        /// Too short: the servers start again for the next client. Too long: the servers run unused. A gateway started
        /// with `gripfast serve` does not stop by itself.
        pub linger: Duration [AT_LEAST_1_S] = Duration::from_secs(300);
        /// Time that a legacy client's session lives without a request or an open stream; after that the client must
        /// initialize again. Too short: clients that pause lose their sessions, which some handle badly. Too long:
        /// sessions of clients that have left stay in memory, up to `limits.sessions`.
        pub session_idle_timeout: Duration [AT_LEAST_1_S] = Duration::from_secs(3600);
        /// Limits on what clients may use at the same time.
        pub limits: ClientLimits = ClientLimits::default();
        /// Threads that serve clients and servers. Each can use one processor. Too few: calls wait although processors
        /// are idle. Too many: threads wake each other, which costs processor time.
        pub threads: Option<u32> [1..=1024] = None,
            "one for each processor";
        /// Directory for logins, pins, catalogs, the ledger, the admin token and the control sockets. `--state-dir`
        /// overrides it. Commands find a running gateway by the socket in this directory, so they need the same value.
        pub state_dir: Option<PathBuf> as Option<Directory> = None, "the platform's state directory";
        /// Refuse a config, key file or state directory that another user could have changed: one that is owned neither
        /// by the user who runs gripfast nor by root, or that its group or others can write. `false` makes this a
        /// warning, for container volumes whose owner and modes cannot be set; then every user who can write these
        /// files can make the gateway run programs and admit clients. For the config file itself the key has an effect
        /// only if the file was named (`--config`, `$GRIPFAST_CONFIG`) or trusted, not for the file in the platform's
        /// config directory.
        strict_modes => access.strict_modes: StrictModes;
        /// Options of the ledger.
        field pub ledger: LedgerOptions = LedgerOptions::default();
        /// Record of tool calls. `digest` records the client, the server, the tool, the time, the outcome and a digest
        /// of the arguments. `arguments` also records up to 16 KiB of the arguments. `off` records nothing; after a
        /// crash of the gateway it is then unknown which calls were in flight.
        ledger => ledger.detail: RecordDetail;
        /// Largest size of the ledger on disk, for each process; 16 MiB hold about thirty thousand calls. Too small:
        /// the calls of yesterday are lost. Too large: reading the ledger takes seconds.
        ledger_size => ledger.size: u64 [64 << 10..=1 << 30];
        /// Options of the audit log.
        field pub audit: AuditOptions = AuditOptions::default();
        /// Audit log. `digest` writes a line for every request and decision, with a digest of the arguments.
        /// `arguments` also writes the arguments, without values that look like secrets. `off` writes nothing.
        audit => audit.detail: RecordDetail;
        /// Largest size of the audit log on disk. Beyond it the oldest lines are deleted. Too small: lines are deleted
        /// before they are read. Too large: more disk space.
        audit_size => audit.size: u64 [64 << 10..=64 << 30];
        /// Refuse requests while the audit log cannot be written. With `false` requests go on, and `status` counts the
        /// missing lines.
        audit_fail_closed => audit.fail_closed: bool;
        /// Offer clients the tool `gripfast_status`, so that a model can find out why tools are missing and tell its
        /// user. It lists the servers that the client may use and their state; if clients do not have to authenticate,
        /// also the cause.
        pub status_tool: bool = false;
        /// Exposure settings.
        field pub exposure: ExposureSettings = ExposureSettings::default();
        /// Exposure of tools to clients. `all` lists all tools. `search` lists the tools `search_tools`,
        /// `describe_tools`, `call_read_only_tool` and `call_tool` instead, through which a model finds and calls all
        /// others. `auto` is `search` for a client whose list would have more than `exposure_limit` tokens, and `all`
        /// for others. A server may have its own `exposure`. Applied without a restart.
        exposure => exposure.exposure: Exposure;
        /// Tokens of a client's list above which `auto` uses search. They are estimated from the names, descriptions
        /// and argument schemas of the tools, within 10 % of a tokenizer. Too small: a model has to search although the
        /// tools would fit. Too large: tool definitions fill its context. Applied without a restart.
        exposure_limit => exposure.limit: u32 [0..=100_000_000];
        /// Tools that are always in the list, whatever `exposure` is: patterns over the names that clients see, such as
        /// `"github__get_*"`. Too few: clients have to search for tools that they need all the time. Too many: their
        /// definitions fill the context of the model. Applied without a restart.
        always => exposure.always: Vec<String>;
        /// Add the tools that a legacy client has found by `search_tools` or `describe_tools` to its list, and notify it
        /// that the list has changed. At most 32 tools per session; the tools that were found or called longest ago are
        /// removed first. Set it for clients that read the list again after a notification: they can then call a found
        /// tool by its own name, with its own schema. Applied without a restart.
        load => exposure.load: bool;
        /// Search over tools.
        pub search: SearchConfig = SearchConfig::default();
        /// Format of log lines on stderr: `text` for people, `json` for log collectors, with one object per line.
        /// `$GRIPFAST_LOG_FORMAT` overrides it. `$GRIPFAST_LOG` sets the log level.
        pub log_format: LogFormat = LogFormat::default();
        /// Location of the key that encrypts stored logins: a `file` beside them, or the system's `keyring`, which a
        /// service or a container cannot use.
        pub login_key: LoginKey = LoginKey::default();
        /// Limits of cached answers.
        field pub cache: CacheLimits = CacheLimits::default();
        /// Memory for cached answers, in total. 0 disables the cache. Too small: servers are asked again. Too large:
        /// the gateway uses more memory.
        cache_size => cache.bytes: usize [0..=4 << 30];
        /// Largest number of cached answers of one tool, or of one resource. 0 disables the cache. Too small: servers
        /// are asked again. Too large: the answers of one tool can displace those of others.
        cache_per_tool => cache.per_topic: u32 [0..=100_000];
    }
}

fn drain_before_end(gateway: &mut GatewayConfig, field: &Field<'_>, is_clean: bool, problems: &mut Problems) {
    let Some(drain) = gateway.drain_wait.filter(|drain| is_clean && *drain >= gateway.shutdown_timeout)
    else {
        return;
    };
    let [drain, end] = [drain, gateway.shutdown_timeout].map(units::format_duration);
    problems
        .error(field.error(format!("`drain_wait` ({drain}) is not shorter than `shutdown_timeout` ({end})")));
}

/// Range of the limits that are counts.
const COUNT_RANGE: RangeInclusive<u32> = 1..=1_000_000;

/// Range of the memory limits.
const MEMORY_RANGE: RangeInclusive<u64> = 1 << 20..=1 << 40;

keys! {
    /// Limits on what clients may use at the same time. The defaults are far above the needs of well-behaved clients
    /// and far below what would harm the machine.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClientLimits: Default {
        /// Legacy sessions in memory. Beyond it the sessions that were unused for longest are removed from memory:
        /// their ids remain valid, but their resumable streams are lost. Too small: this happens to clients that are
        /// still there. Too large: more memory (about 2 KB each).
        pub sessions: u32 [COUNT_RANGE] = 20_000;
        /// Share of `sessions` for one client: all sessions with the same credential, or without `auth` all sessions of
        /// this machine. Beyond it the client's own sessions are removed, not those of other clients. Too large: one
        /// client can displace the sessions of others.
        pub sessions_per_client: u32 [COUNT_RANGE] = 10_000;
        /// Requests without an answer yet. More are refused with 503. Too small: busy clients are refused. Too large:
        /// more memory for requests and answers.
        pub in_flight: u32 [COUNT_RANGE] = 8192;
        /// Share of `in_flight` for one client, over all its sessions. More are refused with 429. Too small: a busy
        /// client is refused. Too large: one client can keep every server busy.
        pub in_flight_per_client: u32 [COUNT_RANGE] = 4096;
        /// Open connections. A connection carries one request or one stream at a time, so this limits both. A quarter
        /// is reserved for connections that have authenticated, or without `auth` for connections that have sent a
        /// complete request. Of the others, the oldest is closed to make room for a new one; if there is none, the new
        /// one gets 503 and is closed. The value is lowered at the start if the limit of open files is too low.
        pub connections: u32 [COUNT_RANGE] = 8192;
        /// Share of `connections` for one client, which is an IPv4 address or an IPv6 network of 64 bits. A quarter is
        /// reserved in the same way. Too small: clients behind one address displace each other. Too large: one address
        /// can use up `connections`.
        pub connections_per_client: u32 [COUNT_RANGE] = 4096;
        /// Time that a connection may take for the head of a request before it has authenticated; then it is closed.
        /// Without `auth` this holds until the connection has sent a complete request. Too short: clients with slow
        /// connections are cut off. Too long: connections that send nothing take up room.
        pub first_request_timeout: Duration
            [DurationRange::between(Duration::from_millis(100), Duration::from_secs(60))] = Duration::from_secs(5);
        /// Requests per second for each principal, and for each address (IPv6: network of 64 bits) for requests without
        /// a valid credential; a burst may be as large. Each message of a batch counts. More are refused with 429.
        /// `/healthz`, `/readyz` and the control socket are exempt. 0 means no limit. Too small: busy clients are
        /// refused. Too large: one client can keep the gateway busy.
        pub requests: Option<u32> [0..=1_000_000] = None, "1000 with `auth`, no limit without";
        /// Memory for request bodies and answers. A request beyond it is refused with 503; an answer beyond it ends its
        /// call with `overloaded`, outcome `done`. Too small: large answers are lost. Too large: clients that do not
        /// read can fill the machine's memory.
        pub memory: u64 [MEMORY_RANGE] = 512 << 20;
        /// Share of `memory` for one client. A request beyond it is refused with 429; an answer beyond it ends its call
        /// in the same way. Too small: large answers are lost. Too large: one client can use up `memory`.
        pub memory_per_client: u64 [MEMORY_RANGE] = 256 << 20;
        /// Levels of nested arrays and objects in the arguments of a request and in a result. A deeper request is
        /// refused; a deeper result ends its call with an error. Too small: valid structured data is refused. Too
        /// large: clients and servers that parse recursively crash on it.
        pub nesting: u32 [16..=100_000] = 128;
        /// Calls of modern clients that wait until their client comes back with input. Beyond it the oldest one of the
        /// client with the most is cancelled: the server is notified, and the client must call again. Too small: people
        /// who take long to answer lose their calls. Too large: more memory.
        pub suspended_calls: u32 [COUNT_RANGE] = 2000;
        /// Share of `suspended_calls` for one client. Beyond it the client's own oldest call is cancelled, not one of
        /// another client.
        pub suspended_calls_per_client: u32 [COUNT_RANGE] = 1000;
        /// Requests of servers that clients have not answered. Beyond it the oldest one of the client with the most is
        /// cancelled, and the server gets an error or a cancellation. Too small: servers do not get the answers of
        /// people who take long. Too large: more memory.
        pub questions: u32 [COUNT_RANGE] = 2000;
        /// Share of `questions` for one client, over all its sessions. Beyond it the client's own oldest one is
        /// cancelled.
        pub questions_per_client: u32 [COUNT_RANGE] = 1000;
    }
}

impl ClientLimits {
    /// Default of `requests` if clients must authenticate.
    pub const REQUESTS_WITH_AUTH: u32 = 1000;

    /// Lowers the number of connections, and in proportion the share of one client.
    pub fn lower_connections(&mut self, most: u32) {
        let each =
            u64::from(self.connections_per_client) * u64::from(most) / u64::from(self.connections.max(1));
        self.connections_per_client = u32::try_from(each).unwrap_or(u32::MAX).max(1);
        self.connections = most;
    }

    /// Requests per second of one client; `None` if they are not limited.
    pub fn request_rate(&self, with_auth: bool) -> Option<u32> {
        let default = if with_auth { Self::REQUESTS_WITH_AUTH } else { 0 };
        Some(self.requests.unwrap_or(default)).filter(|rate| *rate > 0)
    }
}

/// The key `log_format` of the table `gateway`: the format of log lines on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// `text` (the default): one line for people.
    #[default]
    Text,
    /// `json`: one JSON object per line.
    Json,
}

impl LogFormat {
    /// The format with this word in the config.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, format)| *format)
    }

    /// The word in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.word()
    }
}

words!(LogFormat { Text = "text", Json = "json" });

/// The key `login_key` of the table `gateway`: location of the key that encrypts stored logins. All processes that
/// share logins must use the same key, so none of them chooses a location by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoginKey {
    /// `file` (the default): beside the logins, readable by its owner only. Works everywhere, but a copy of the state
    /// directory contains the logins.
    #[default]
    File,
    /// `keyring`: in the system's keyring, read with `secret-tool` or, on macOS, `security`. A copy of the disk is
    /// useless without it. A process outside the desktop session, such as a service or a container, cannot read it, and
    /// its servers wait for the keyring instead of starting.
    Keyring,
}

impl LoginKey {
    /// The word in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.word()
    }
}

words!(LoginKey { File = "file", Keyring = "keyring" });
words!(RecordDetail { Nothing = "off", Digest = "digest", Arguments = "arguments" });

// The address of the listener.
impl_codec!(SocketAddr => SocketAddr, ValueKind::Text, read_socket_addr, |address| address.to_string());

fn read_socket_addr(field: &Field<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    let address = match &field.node.value {
        Value::Str(text) => text.parse().map_err(|_| field.error("expected an IP address and a port")),
        _ => Err(field.expected("an IP address and a port")),
    };
    let hint = "for example \"127.0.0.1:7331\", or \"0.0.0.0:7331\" to let other machines in";
    address.map_err(|error| problems.error(error.with_hint(hint))).ok()
}

/// Codec of `state_dir`.
struct Directory;

impl_codec!(Directory => PathBuf, ValueKind::Text, read_directory, |path| path.display().to_string());

fn read_directory(field: &Field<'_>, problems: &mut Problems) -> Option<PathBuf> {
    let text = field.text(problems)?;
    if text.trim().is_empty() {
        problems.error(field.error("expected the path of a directory, found an empty string"));
    }
    Some(PathBuf::from(text))
}

// `true` for [`StrictModes::On`].
impl_codec!(
    StrictModes => StrictModes,
    ValueKind::Flag,
    |field, problems| field.flag(problems).map(|is_on| if is_on { Self::On } else { Self::Off }),
    |modes| (*modes == Self::On).to_string()
);

/// Decodes the table `gateway`. It belongs to gripfast in every format, so an unknown key is always an error.
pub(in crate::config) fn gateway(field: &Field<'_>, problems: &mut Problems) -> GatewayConfig {
    let mut gateway = GatewayConfig::default();
    gateway.read_section(field, problems);
    let has_name = field.get("public_url").is_some() || !gateway.listen.ip().is_unspecified();
    if let Some(jwt) = field.get("auth").and_then(|auth| auth.get("jwt"))
        && gateway.access.jwt.as_ref().is_some_and(JwtConfig::is_complete)
        && !has_name
    {
        let hint = "set `public_url` in the table `gateway` to the URL that clients use, for example \"https://mcp.example.com\"";
        problems.error(
            jwt.error("`auth.jwt` requires `public_url`, because `listen` is every address").with_hint(hint),
        );
    }
    gateway
}
