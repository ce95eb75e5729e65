//! The decoded config: the gateway's own settings and one spec per server. All values are checked and have their
//! defaults; only templates are expanded later, when a server is connected.

use super::access::AccessConfig;
use super::restore::RestoreCall;
use super::template::Template;
pub use crate::cache::{CacheLimits, CacheSpec};
pub use crate::pins::PinMode;
use crate::policy::Policy;
use crate::private_files::StrictModes;
use crate::records::audit::AuditOptions;
use crate::records::ledger::LedgerOptions;
pub use gripfast_core::isolation::Isolation;
use gripfast_core::supervise::spec::SupervisionSpec;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The table `gateway`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Address of the listener. An address other than loopback lets other machines connect and requires `auth`.
    /// Default `127.0.0.1:7331`; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Directory for tokens, pins and catalogs. Default: the platform's state directory.
    pub state_dir: Option<PathBuf>,
    /// Time that a first list request waits for servers without a stored catalog. Too short: a client that lists only
    /// once misses their tools. Too long: one slow server delays every client. Default 2 s.
    pub startup_wait: Duration,
    /// Time that a legacy client's session lives without a request or an open stream; after that it is unknown, and
    /// the client must initialize again. Too short: clients that pause lose their sessions, which some handle badly.
    /// Too long: sessions of clients that have left stay in memory, up to `limits.sessions`. Default 1 h.
    pub session_idle_timeout: Duration,
    /// Time limit from SIGTERM to the end of the process. Calls in flight get four ninths of it, the servers the rest.
    /// Too short: calls are cut off shortly before their end. Too long: the process manager kills the gateway first.
    /// Default 9 s.
    pub shutdown_timeout: Duration,
    /// Time that a gateway started by `gripfast stdio --background` keeps running after its last client has left. Too
    /// short: the servers start again for the next client. Too long: the servers run unused. Default 5 min.
    pub linger: Duration,
    /// Limits on what clients may use at the same time.
    pub limits: ClientLimits,
    /// Record of tool calls: the keys `ledger` and `ledger_size`.
    ///
    /// `ledger`: `digest` (the default) records the client, the server, the tool, the time, the outcome and a digest
    /// of the arguments; `arguments` also records the arguments, up to 16 KiB of each call; `off` records nothing, so
    /// that after a crash it is unknown which calls were in flight.
    ///
    /// `ledger_size`: the largest size on disk, for each process; from 64 KiB to 1 GiB, by default 16 MiB, which hold
    /// about thirty thousand calls. Too small: the calls of yesterday are lost. Too large: reading it takes seconds.
    pub ledger: LedgerOptions,
    /// Access to the gateway: the keys `public_url`, `allowed_origins`, `auth`, `tls` and `strict_modes`.
    pub access: AccessConfig,
    /// Limits of cached answers: the keys `cache_size` (bytes in total, from 0 to 4 GiB, by default 64 MiB) and
    /// `cache_per_tool` (answers of one tool or resource, by default 64). Too small: servers are asked again. Too
    /// large: more memory.
    pub cache: CacheLimits,
    /// Audit log: the keys `audit`, `audit_size` and `audit_fail_closed`.
    ///
    /// `audit`: `off` (the default), `digest`, which writes one line for every request and decision with a digest of
    /// its arguments, or `arguments`, which also writes the arguments, without values that look like secrets.
    ///
    /// `audit_size`: the largest size on disk, from 64 KiB to 64 GiB, by default 64 MiB.
    ///
    /// `audit_fail_closed`: refuse requests while the audit log cannot be written. Default false: requests go on, and
    /// `status` counts the missing lines.
    pub audit: AuditOptions,
    /// Location of the key that encrypts stored logins.
    pub login_key: LoginKey,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// Offer clients the tool `gripfast_status`.
    pub status_tool: bool,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7331)),
            state_dir: None,
            startup_wait: Duration::from_secs(2),
            session_idle_timeout: Duration::from_secs(3600),
            shutdown_timeout: Duration::from_secs(9),
            linger: Duration::from_secs(300),
            limits: ClientLimits::default(),
            ledger: LedgerOptions::default(),
            access: AccessConfig::default(),
            cache: CacheLimits::default(),
            audit: AuditOptions::default(),
            login_key: LoginKey::default(),
            log_format: LogFormat::default(),
            status_tool: false,
        }
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
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Text, Self::Json];

    /// The word in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

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
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::File, Self::Keyring];

    /// The word in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Keyring => "keyring",
        }
    }
}

/// The table `gateway.limits`: limits on what clients may use at the same time. The defaults are far above the needs of
/// well-behaved clients and far below what would harm the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Legacy sessions in memory. Beyond it the sessions that were unused for longest are removed from memory: their
    /// ids remain valid, but their resumable streams are lost. Too small: this happens to clients that are still
    /// there. Too large: more memory (about 2 KB each). Default 20 000.
    pub sessions: u32,
    /// Share of `sessions` for one client: all sessions with the same credential, or without `auth` all sessions of
    /// this machine. Beyond it the client's own sessions are removed, not those of other clients. Default 10 000.
    pub sessions_per_client: u32,
    /// Requests without an answer yet. More are refused with 503. Too small: busy clients are refused. Too large: more
    /// memory for requests and answers. Default 8192.
    pub in_flight: u32,
    /// Share of `in_flight` for one client, over all its sessions. More are refused with 429. Too small: a busy client
    /// is refused. Too large: one client can keep every server busy. Default 4096.
    pub in_flight_per_client: u32,
    /// Open connections. An HTTP connection carries one request or one stream at a time, so this limits both. A quarter
    /// is reserved for connections that have authenticated (without `auth`: that have sent a complete request). Of the
    /// others, the oldest is closed to make room for a new one; if there is none, the new one gets 503 and is closed.
    /// The value is lowered at the start if the limit of open files is too low. Default 8192.
    pub connections: u32,
    /// Share of `connections` for one client, which is an IPv4 address or an IPv6 network of 64 bits. A quarter is
    /// reserved in the same way. Default 4096.
    pub connections_per_client: u32,
    /// Memory for request bodies and answers, in bytes. A request beyond it is refused with 503; an answer beyond it
    /// ends its call with `overloaded`, outcome `done`. Too small: large answers are lost. Too large: clients that do
    /// not read can fill the machine's memory. Default 512 MiB.
    pub memory: u64,
    /// Share of `memory` for one client. A request beyond it is refused with 429; an answer beyond it ends its call in
    /// the same way. Default 256 MiB.
    pub memory_per_client: u64,
    /// Levels of nested arrays and objects in the arguments of a request and in a result. A deeper request is refused;
    /// a deeper result ends its call with an error. Too small: valid structured data is refused. Too large: clients and
    /// servers that parse recursively crash on it. Default 128.
    pub nesting: u32,
    /// Calls of modern clients that wait until their client comes back with input. Beyond it the oldest one of the
    /// client with the most is cancelled. Default 2000.
    pub suspended_calls: u32,
    /// Share of `suspended_calls` for one client. Beyond it the client's oldest call is cancelled. Default 1000.
    pub suspended_calls_per_client: u32,
    /// Requests of servers that clients have not answered. Beyond it the oldest one of the client with the most is
    /// cancelled, and the server gets an error or a cancellation. Default 2000.
    pub questions: u32,
    /// Share of `questions` for one client, over all its sessions. Beyond it the client's oldest one is cancelled.
    /// Default 1000.
    pub questions_per_client: u32,
    /// Time that a connection that has not authenticated (without `auth`: that has sent no complete request) may take
    /// for the head of a request. Too short: clients with slow connections are cut off. Too long: connections that send
    /// nothing take up room. Default 5 s.
    pub first_request_timeout: Duration,
    /// Requests per second for each principal, and for each address for requests without a valid credential. A burst
    /// may be as large. More are refused with 429. `None`: 1000 with `auth`, no limit without, because all clients are
    /// then programs of this machine. Zero: no limit.
    pub requests: Option<u32>,
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

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            sessions: 20_000,
            sessions_per_client: 10_000,
            in_flight: 8192,
            in_flight_per_client: 4096,
            connections: 8192,
            connections_per_client: 4096,
            memory: 512 << 20,
            memory_per_client: 256 << 20,
            nesting: 128,
            suspended_calls: 2000,
            suspended_calls_per_client: 1000,
            questions: 2000,
            questions_per_client: 1000,
            first_request_timeout: Duration::from_secs(5),
            requests: None,
        }
    }
}

/// The decoded table of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// Program or URL of the server.
    pub target: Target,
    /// Generation of the protocol. Default: detected.
    pub protocol: ProtocolChoice,
    /// OAuth settings; `None` relies on the server's own metadata. For servers with a `url` and without an
    /// `Authorization` header.
    pub oauth: Option<OAuthSpec>,
    /// In the config, but not used.
    pub disabled: bool,
    /// Supervision: keepalive, restarts, timeouts and queue limits.
    pub supervision: SupervisionSpec,
    /// Prefix of the names of its tools and prompts; `None` is the server's name, empty is no prefix.
    pub prefix: Option<String>,
    /// Sharing of instances between clients. An instance is one child process or session. `auto` shares one instance
    /// until the server sends a request and the client that it is meant for cannot be determined. Set `per_client` for
    /// a server that keeps state per session; with `shared` its clients see each other's state. Default `auto`.
    pub isolation: Isolation,
    /// Largest number of clients with an instance of their own at a time. Too small: with `per_client` calls of further
    /// clients are refused as overloaded (with `auto` they share). Too large: as many child processes run. Default 64.
    pub max_instances: u32,
    /// Tools, resources and prompts to offer: the keys `tools`, `resources` and `prompts`, each with `allow` (default
    /// `["*"]`; an empty list offers nothing) and `deny` (default none; takes precedence). Patterns match whole names
    /// of the server's own, or whole URIs; `*` matches any number of characters, `?` exactly one. For tools, entries
    /// may be `@read_only`, `@destructive` and `@idempotent`, which match their annotations.
    pub policy: Policy,
    /// Handling of a tool whose definition has changed since it was first seen: `enforce` blocks it until `gripfast
    /// pins approve` and shows its earlier definition; `strict` blocks new tools too; `warn` reports the change and
    /// uses the tool; `off` compares nothing. Set `warn` for a server whose descriptions change by themselves, with
    /// dates or counts in them. Default `enforce`.
    pub pins: PinMode,
    /// Largest number of tools that are pinned and offered, and of prompts and resource templates each. Beyond it new
    /// ones are hidden; approved ones stay. Default 2000.
    pub max_tools: u32,
    /// Answers that may be cached: `cache = { reads = true, tools = { "search_*" = "60s", "get_*" = "hinted" },
    /// lists = "0s", stale_lists = "0s" }`. `"hinted"` means as long as the server states.
    pub cache: CacheSpec,
    /// Tools that may be called again after a lost link.
    pub replay: ReplayRules,
    /// Calls to make in every new session before all others, in this order: a login, the choice of a workspace. Each
    /// has a `tool`, by the server's own name, and `arguments`, whose strings may refer to variables and files. A
    /// failed call is shown in `status` and blocks no client. Together they have half of `timeouts.connect`; each costs
    /// a round trip before the server can be used. At most 32. Default: none.
    pub restore: Vec<RestoreCall>,
    /// Largest message that the server may send, in bytes. A larger one ends its call, or the link if its call cannot
    /// be identified. Default 16 MiB.
    pub max_message: usize,
}

impl ServerSpec {
    /// A spec with every default, for a server that is reached at `target`.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            protocol: ProtocolChoice::Auto,
            oauth: None,
            disabled: false,
            supervision: default_supervision(Some(&target)),
            target,
            prefix: None,
            isolation: Isolation::Auto,
            max_instances: Self::DEFAULT_MAX_INSTANCES,
            policy: Policy::default(),
            pins: PinMode::Enforce,
            max_tools: Self::DEFAULT_MAX_TOOLS,
            cache: CacheSpec::default(),
            replay: ReplayRules::default(),
            restore: Vec::new(),
            max_message: Self::DEFAULT_MAX_MESSAGE,
        }
    }

    /// Default of `max_instances`.
    pub const DEFAULT_MAX_INSTANCES: u32 = 64;

    /// Default of `max_tools`.
    pub const DEFAULT_MAX_TOOLS: u32 = 2_000;

    /// Default of `max_message`.
    pub const DEFAULT_MAX_MESSAGE: usize = 16 << 20;
}

/// Program or URL of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A child process with MCP over stdio.
    Stdio {
        /// The executable: a path, or a name to look up in `PATH`. Never goes through a shell.
        command: Template,
        /// Its arguments.
        args: Vec<Template>,
        /// Variables to set. `Debug` shows references only.
        env: Vec<(String, Template)>,
        /// Variables to pass from gripfast's own environment, besides those that every child process gets.
        inherit_env: Vec<String>,
        /// Pass the variables for certificate authorities and proxies from gripfast's own environment.
        network_env: bool,
        /// Working directory. Default: gripfast's working directory.
        cwd: Option<Template>,
    },
    /// An HTTP endpoint.
    Url {
        /// URL of the endpoint. Without references it has been checked with [`endpoint`].
        url: Template,
        /// HTTP transport of the server.
        transport: UrlTransport,
        /// Headers to send with every request. `Debug` shows references only.
        headers: Vec<(String, Template)>,
        /// Certificates to trust and to present.
        tls: TlsSpec,
        /// Other origins that it may redirect requests to. `headers` and tokens are not sent there.
        redirects: Vec<String>,
    },
}

/// Default supervision of a server. A package runner may have to download a package at its first start, so its first
/// attempt has the longest time limit.
pub(super) fn default_supervision(target: Option<&Target>) -> SupervisionSpec {
    let mut spec = SupervisionSpec::default();
    if target.is_some_and(|target| target.package_runner().is_some()) {
        spec.timeouts.connect = spec.timeouts.connect_max;
    }
    spec
}

impl Target {
    /// Programs that may download what they run.
    const PACKAGE_RUNNERS: [&str; 5] = ["npx", "uvx", "pipx", "bunx", "docker"];

    /// The name of the program, if it is one that may download the server first.
    #[must_use]
    pub fn package_runner(&self) -> Option<&'static str> {
        match self {
            Self::Stdio { command, .. } => {
                let file = command.source().rsplit(['/', '\\']).next().unwrap_or_default();
                let name = file.strip_suffix(".cmd").or_else(|| file.strip_suffix(".exe")).unwrap_or(file);
                Self::PACKAGE_RUNNERS.into_iter().find(|runner| *runner == name)
            }
            Self::Url { .. } => None,
        }
    }

    /// All strings that may refer to the environment.
    #[must_use]
    pub fn templates(&self) -> Vec<&Template> {
        let mut all = Vec::new();
        match self {
            Self::Stdio { command, args, env, cwd, inherit_env: _, network_env: _ } => {
                all.push(command);
                all.extend(args);
                all.extend(env.iter().map(|(_, value)| value));
                all.extend(cwd);
            }
            Self::Url { url, headers, tls, transport: _, redirects: _ } => {
                let TlsSpec { ca_file, client_cert, client_key, strict_modes: _ } = tls;
                all.push(url);
                all.extend(headers.iter().map(|(_, value)| value));
                all.extend([ca_file, client_cert, client_key].into_iter().flatten());
            }
        }
        all
    }
}

/// HTTP transport of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UrlTransport {
    /// Try Streamable HTTP, fall back to HTTP+SSE, remember the result.
    #[default]
    Auto,
    /// Streamable HTTP only.
    Http,
    /// Legacy HTTP with SSE only.
    Sse,
}

impl UrlTransport {
    /// The word in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Http => "http",
            Self::Sse => "sse",
        }
    }
}

/// PEM files with certificates to trust, besides the platform's trust store, and to present in TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSpec {
    /// Additional certificate authorities.
    pub ca_file: Option<Template>,
    /// The client certificate; requires `client_key`.
    pub client_cert: Option<Template>,
    /// The key of `client_cert`.
    pub client_key: Option<Template>,
    /// Refuse a key that another user could have changed: a copy of `gateway.strict_modes`.
    pub strict_modes: StrictModes,
}

/// The table `oauth` of a server: settings of the OAuth client for its authorization server. Most servers need none:
/// `gripfast login` registers a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OAuthSpec {
    /// Address of the authorization server (`https`, or on this machine). Tokens are requested at its own endpoints,
    /// whatever the server names. Required with a `client_secret` or a `private_key`, which are sent to no other
    /// authorization server.
    pub issuer: Option<Template>,
    /// Id of a client that is already registered. Default: gripfast registers a client.
    pub client_id: Option<Template>,
    /// Secret of `client_id`, if it has one.
    pub client_secret: Option<Template>,
    /// PEM key (PKCS #8; P-256, P-384, Ed25519 or RSA) with which the client signs instead of sending a secret
    /// (`private_key_jwt`); for the grant `client_credentials`. Usually a reference: `"${file:/run/secrets/key}"`.
    pub private_key: Option<Template>,
    /// Id of `private_key` at the authorization server (`kid`). Default: not sent, which is enough if the client has
    /// one key.
    pub private_key_id: Option<String>,
    /// The `https` address of a client metadata document, for authorization servers that identify clients by such
    /// documents. Used if there is no `client_id`. Default: none.
    pub client_metadata_url: Option<String>,
    /// Scopes to request. Default: the scopes that the server asks for.
    pub scopes: Vec<String>,
    /// OAuth grant: with `authorization_code` (the default) a person logs in by `gripfast login`; with
    /// `client_credentials` the client uses `client_id` and `client_secret` or `private_key`, without a person.
    pub grant: Grant,
    /// Port on which `gripfast login` waits for the browser. Default: any free port. Set it if the client was
    /// registered with a fixed port.
    pub callback_port: u16,
}

impl OAuthSpec {
    /// Returns whether there is a secret, which must be sent only to the configured authorization server.
    pub fn has_secret(&self) -> bool {
        self.client_secret.is_some() || self.private_key.is_some()
    }
}

/// OAuth grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// A person logs in with a browser.
    #[default]
    AuthorizationCode,
    /// The client authenticates with its own secret or signature.
    ClientCredentials,
}

/// Generation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProtocolChoice {
    /// Detect it.
    #[default]
    Auto,
    /// With the `initialize` handshake.
    Legacy,
    /// Without it.
    Modern,
}

/// Tools that may be called again if the link is lost before the answer: patterns as in [`ServerSpec::policy`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayRules {
    /// Tools that may be called twice, whatever the server says about them.
    pub safe: Vec<String>,
    /// Tools that are never called twice, whatever the server says about them. Takes precedence over `safe`.
    pub never: Vec<String>,
}

/// Reason why a text is not the URL of an MCP endpoint. Does not repeat the text, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL at all.
    #[error("not a URL: {0}")]
    NotAUrl(String),
    /// A URL of another kind.
    #[error("the scheme is `{0}`, expected `http` or `https`")]
    Scheme(String),
    /// Without a host to connect to.
    #[error("the URL has no host")]
    NoHost,
}

/// Parses the URL of an MCP endpoint. Used at load time if the config has the whole URL, and at connect time if
/// references had to be expanded first.
///
/// # Errors
/// Anything but `http://HOST…` or `https://HOST…`.
pub fn endpoint(text: &str) -> Result<Url, EndpointError> {
    let url = Url::parse(text.trim()).map_err(|error| EndpointError::NotAUrl(error.to_string()))?;
    match url.scheme() {
        "http" | "https" if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(url),
        "http" | "https" => Err(EndpointError::NoHost),
        other => Err(EndpointError::Scheme(other.to_owned())),
    }
}
