//! What a config says, once it has been understood: the gateway's own settings and one spec per server.
//! Everything here is checked and has its defaults filled in; only templates wait until a server is connected.

use super::access::AccessConfig;
use super::restore::RestoreCall;
use super::template::Template;
use crate::audit::AuditOptions;
pub use crate::cache::{CacheLimits, CacheSpec};
use crate::ledger::LedgerOptions;
pub use crate::pins::PinMode;
use crate::policy::Policy;
use crate::private_files::StrictModes;
pub use gripfast_core::isolation::Isolation;
use gripfast_core::supervise::spec::SupervisionSpec;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The table `gateway`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Where the gateway listens. Anything but a loopback address lets other machines in, and needs `auth`.
    /// Default `127.0.0.1:7331`; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where tokens, pins and catalogs are kept. Default: the platform's state directory.
    pub state_dir: Option<PathBuf>,
    /// How long a first list waits for servers without a stored catalog. Too short, and a client that lists
    /// only once misses their tools; too long, and one slow server delays every client. Default 2 s.
    pub startup_wait: Duration,
    /// How long a legacy client's session lives without a request or an open stream; after that it is
    /// unknown, and the client has to shake hands again. Too short, and clients that pause lose their
    /// sessions, which some of them take badly; too long, and sessions of clients that just went away stay
    /// in memory, up to `limits.sessions`. Default 1 h.
    pub session_idle_timeout: Duration,
    /// How long everything may take from SIGTERM to the end of the process: calls in flight have four ninths of it, the
    /// servers the rest. Too short, and calls are cut that were about to end; too long, and a supervisor kills the
    /// process first. Default 9 s.
    pub shutdown_timeout: Duration,
    /// How long a gateway that `gripfast stdio --background` started goes on after its last client has left. Too short,
    /// and the servers start again for the next client; too long, and they run for nobody. Default 5 min.
    pub linger: Duration,
    /// How much clients may have at a time.
    pub limits: ClientLimits,
    /// What is noted down of tool calls, in the keys `ledger` and `ledger_size`.
    ///
    /// `ledger`: `digest` (the default) keeps who called which tool of which server, when, what became of it,
    /// and a digest of the arguments; `arguments` keeps the arguments too, up to 16 KiB of each call, for
    /// whoever has to find out what exactly was done; `off` keeps nothing, and nobody can tell then what was
    /// under way when the gateway died.
    ///
    /// `ledger_size`: what it takes on disk at the most, for each process; from 64 KiB to 1 GiB, by default
    /// 16 MiB, which are about thirty thousand calls. Too small, and yesterday's calls are gone; too large,
    /// and reading it takes seconds.
    pub ledger: LedgerOptions,
    /// Who may use it and by which way, in the keys `public_url`, `allowed_origins`, `auth`, `tls` and `strict_modes`.
    pub access: AccessConfig,
    /// How many answers are kept to be given again, in the keys `cache_size` (bytes in all, from 0 to 4 GiB, by
    /// default 64 MiB) and `cache_per_tool` (answers of one tool or about one resource, by default 64). Too small, and
    /// servers are asked again; too large, and memory.
    pub cache: CacheLimits,
    /// The audit log, in the keys `audit`, `audit_size` and `audit_fail_closed`.
    ///
    /// `audit`: `off` (the default), `digest`, which writes one line for every request and decision with a digest of
    /// its arguments, or `arguments`, which writes those too, without what looks like a secret.
    ///
    /// `audit_size`: bytes on disk at the most, from 64 KiB to 64 GiB, by default 64 MiB.
    ///
    /// `audit_fail_closed`: whether requests are refused while they cannot be written down. Default false: they go
    /// on, and status counts what is missing.
    pub audit: AuditOptions,
    /// What logins are sealed with before they are kept.
    pub login_key: LoginKey,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// Whether clients are offered the tool `gripfast_status`.
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

    /// The format as it is written in a config.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// The key `login_key` of the table `gateway`: where the key is with which logins are sealed. All processes that share
/// logins have to find the same, so none of them chooses by itself what it happens to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoginKey {
    /// `file` (the default): beside the logins, readable by its owner only. Works everywhere; whoever has all of the
    /// state directory has the logins.
    #[default]
    File,
    /// `keyring`: in the system's keyring, asked by `secret-tool` or, on macOS, `security`. A copy of the disk is
    /// worthless without it; a process outside the desktop's session, such as a service or a container, cannot ask it,
    /// and its servers wait for the keyring instead of starting.
    Keyring,
}

impl LoginKey {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::File, Self::Keyring];

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Keyring => "keyring",
        }
    }
}

/// The table `gateway.limits`: how much clients may have at a time. The defaults are far above what honest
/// clients need and far below what would hurt the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Legacy sessions in memory. Beyond it those that were unused for longest make room: their ids still
    /// open, but streams that could have been picked up again are lost. Too small, and that happens to
    /// clients that are still there; too large, and memory (about 2 KB each). Default 20 000.
    pub sessions: u32,
    /// Of these, sessions of one client: whoever showed the same key, or without `auth` all of this machine.
    /// Beyond it its own sessions make room, not those of others. Default 10 000.
    pub sessions_per_client: u32,
    /// Requests that are not answered yet. Beyond it they are refused with 503. Too small, and busy clients
    /// are refused; too large, and memory for questions and answers. Default 8192.
    pub in_flight: u32,
    /// Of these, requests of one client, over all its sessions. Beyond it they are refused with 429. Too
    /// small, and a busy client is refused; too large, and one client can keep every server busy. Default
    /// 4096.
    pub in_flight_per_client: u32,
    /// Open connections. An HTTP connection carries one request or one stream at a time, so this bounds both.
    /// A quarter is reserved for connections that have authenticated (without `auth`: that have sent a complete
    /// request). Of the others, the oldest is closed to make room for a new one; where there is none, the new one is
    /// told 503 and closed. It is lowered at the start if the limit of open files is too low for it. Default 8192.
    pub connections: u32,
    /// Of these, connections of one client, which is an IPv4 address or an IPv6 network of 64 bits; a quarter is
    /// reserved in the same way. Default 4096.
    pub connections_per_client: u32,
    /// The bytes of request bodies and answers in memory. A request beyond it is refused with 503; an answer beyond it ends
    /// its call with `overloaded`, outcome `done`. Too small, and large answers are lost; too large, and clients that do not
    /// read can fill the machine's memory. Default 512 MiB.
    pub memory: u64,
    /// Of these, the bytes of one client. Beyond it its requests are refused with 429, and its answers end their calls in the
    /// same way. Default 256 MiB.
    pub memory_per_client: u64,
    /// Levels of arrays and objects within the arguments of a request and within a result. A deeper request is refused,
    /// and a deeper result ends its call with an error. Too small, and honest structured data is refused; too
    /// large, and clients and servers that read recursively crash on it. Default 128.
    pub nesting: u32,
    /// Calls of modern clients that wait for their client to come back with input. Beyond it the client that has the
    /// most loses its oldest one. Default 2000.
    pub suspended_calls: u32,
    /// Of these, calls of one client. Beyond it its oldest one is given up. Default 1000.
    pub suspended_calls_per_client: u32,
    /// Questions of servers that clients have not answered. Beyond it the client that has the most loses its oldest one,
    /// and the server is told. Default 2000.
    pub questions: u32,
    /// Of these, questions to one client, over all its sessions. Beyond it its oldest one is given up. Default 1000.
    pub questions_per_client: u32,
    /// How long a connection that has not authenticated (without `auth`: that has sent no complete request) may take
    /// for the head of a request. Too short, and clients on slow lines are cut off; too long, and connections that
    /// send nothing take up room. Default 5 s.
    pub first_request_timeout: Duration,
    /// Requests per second: of each principal, and of each address for requests without a valid credential. As many
    /// may come in an instant. Beyond it they are refused with 429. `None`: 1000 with `auth`, no limit without, where
    /// all clients are programs of this machine. Zero: no limit.
    pub requests: Option<u32>,
}

impl ClientLimits {
    /// The default of `requests` where clients have to authenticate.
    pub const REQUESTS_WITH_AUTH: u32 = 1000;

    /// Lowers the number of connections, and in proportion what one client may have of them.
    pub fn lower_connections(&mut self, most: u32) {
        let each =
            u64::from(self.connections_per_client) * u64::from(most) / u64::from(self.connections.max(1));
        self.connections_per_client = u32::try_from(each).unwrap_or(u32::MAX).max(1);
        self.connections = most;
    }

    /// Requests per second of one client, where they are limited.
    pub fn request_rate(&self, with_auth: bool) -> Option<u32> {
        let usual = if with_auth { Self::REQUESTS_WITH_AUTH } else { 0 };
        Some(self.requests.unwrap_or(usual)).filter(|rate| *rate > 0)
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

/// Everything a config says about one server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// How it is reached.
    pub target: Target,
    /// Which generation of the protocol to speak. Default: what the server understands.
    pub protocol: ProtocolChoice,
    /// How a token for it is got, where it wants one; `None` leaves everything to what the server says. For servers
    /// with a `url`, and without an `Authorization` header.
    pub oauth: Option<OAuthSpec>,
    /// Kept in the config but not used.
    pub disabled: bool,
    /// How it is kept alive.
    pub supervision: SupervisionSpec,
    /// What its tools and prompts are prefixed with; `None` is the server's name, empty is no prefix.
    pub prefix: Option<String>,
    /// Whether clients share one instance of it, which is one child or session: `shared`, `per_client`, or
    /// `auto`, which shares until the server asks something and it cannot be known whom. Say `per_client` for
    /// a server that keeps state per session; with `shared` its clients meet each other's state. Default
    /// `auto`.
    pub isolation: Isolation,
    /// How many clients may have an instance of their own at a time. Too few, and with `per_client` calls of
    /// further clients are refused as overloaded (with `auto` they share); too many, and as many children run.
    /// Default 64.
    pub max_instances: u32,
    /// Which of its tools, resources and prompts are offered: the keys `tools`, `resources` and `prompts`, each
    /// with `allow` (default `["*"]`; an empty list offers nothing) and `deny` (default none; wins). Patterns match
    /// whole names of the server's own, or whole URIs; `*` stands for any number of characters, `?` for one. Tools
    /// may be named by what they say about themselves: `@read_only`, `@destructive`, `@idempotent`.
    pub policy: Policy,
    /// What is done about a tool that says something else than when it was first seen: `enforce` holds it back
    /// until `gripfast pins approve`, and shows it as it was; `strict` holds new tools back too; `warn` tells of it and
    /// uses it; `off` looks at nothing. Say `warn` for a server whose descriptions change by themselves, with dates or
    /// counts in them. Default `enforce`.
    pub pins: PinMode,
    /// How many tools of it are pinned and offered, and as many prompts and resource templates. Beyond it new ones are
    /// hidden; those that were approved stay. Default 2000.
    pub max_tools: u32,
    /// Which of its answers may be given again: `cache = { reads = true, tools = { "search_*" = "60s", "get_*" =
    /// "hinted" }, lists = "0s", stale_lists = "0s" }`. `"hinted"` is for as long as the server says.
    pub cache: CacheSpec,
    /// Which of its tools may be sent again after a lost link.
    pub replay: ReplayRules,
    /// Calls that are made in every new session before anybody else's, in this order: a login, the choice of a
    /// workspace. Each is a `tool` of the server's own and its `arguments`, whose texts may refer to variables and
    /// files. One that fails is named in status and keeps nobody out. They have half of `timeouts.connect` together;
    /// each costs a round trip before the server is used. At most 32. Default: none.
    pub restore: Vec<RestoreCall>,
    /// The largest message it may send, in bytes. A larger one ends the call, or the link where the call
    /// cannot be told. Default 16 MiB.
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

    /// What `max_instances` is unless the config says otherwise.
    pub const DEFAULT_MAX_INSTANCES: u32 = 64;

    /// What `max_tools` is unless the config says otherwise.
    pub const DEFAULT_MAX_TOOLS: u32 = 2_000;

    /// What `max_message` is unless the config says otherwise.
    pub const DEFAULT_MAX_MESSAGE: usize = 16 << 20;
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A process that speaks on its standard streams.
    Stdio {
        /// The executable: a path, or a name to look up in `PATH`. Never goes through a shell.
        command: Template,
        /// Its arguments.
        args: Vec<Template>,
        /// Variables to set. `Debug` shows references only.
        env: Vec<(String, Template)>,
        /// Variables to hand on from gripfast's own environment, besides the harmless few that every child
        /// gets.
        inherit_env: Vec<String>,
        /// Whether it gets the variables that say how to reach the network from here: the certificate authorities
        /// and proxies of gripfast's own environment.
        network_env: bool,
        /// The directory to start in. Default: gripfast's own.
        cwd: Option<Template>,
    },
    /// An HTTP endpoint.
    Url {
        /// Its address. When it has no references it has been checked with [`endpoint`].
        url: Template,
        /// Which HTTP transport it speaks.
        transport: UrlTransport,
        /// Headers to send with every request. `Debug` shows references only.
        headers: Vec<(String, Template)>,
        /// What to trust and what to show when connecting.
        tls: TlsSpec,
        /// Other origins that it may redirect requests to. Neither `headers` nor a token go there.
        redirects: Vec<String>,
    },
}

/// The supervision of a server whose config says nothing about it. A package runner may have to download a package
/// at its first start, so its first attempt has all the time that any attempt may have.
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

    /// The program that starts the server, if it is one that may download the server first.
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

    /// Every text that may refer to the environment, for those who want to know before connecting.
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

/// Which HTTP transport a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UrlTransport {
    /// Try Streamable HTTP, fall back to SSE, remember the answer.
    #[default]
    Auto,
    /// Streamable HTTP only.
    Http,
    /// Legacy HTTP with SSE only.
    Sse,
}

impl UrlTransport {
    /// As the config writes it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Http => "http",
            Self::Sse => "sse",
        }
    }
}

/// What to trust and what to show in TLS, beyond the platform's own trust store. Paths of PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSpec {
    /// Additional certificate authorities.
    pub ca_file: Option<Template>,
    /// The client certificate; goes with `client_key`.
    pub client_cert: Option<Template>,
    /// The key of `client_cert`.
    pub client_key: Option<Template>,
    /// Whether a key that another user could have changed is refused, as `gateway.strict_modes` says.
    pub strict_modes: StrictModes,
}

/// The table `oauth` of a server: who we are to its authorization server. Most servers need none of it: `gripfast login`
/// registers by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OAuthSpec {
    /// The authorization server, where the config names it (`https`, or on this machine): tokens are asked for at its own
    /// endpoints, whatever the server says. Needed with a `client_secret` or a `private_key`, which go to nobody else.
    pub issuer: Option<Template>,
    /// The client that somebody has registered for us. Default: we register ourselves.
    pub client_id: Option<Template>,
    /// The secret that goes with `client_id`, if it has one.
    pub client_secret: Option<Template>,
    /// The private key by which the client signs, instead of a secret (`private_key_jwt`): PEM, in PKCS #8 form, of kind
    /// P-256, P-384, Ed25519 or RSA; for the grant `client_credentials`. Mostly a reference: `"${file:/run/secrets/key}"`.
    pub private_key: Option<Template>,
    /// What the authorization server calls that key (`kid`). Default: it is not said, which is enough where the client
    /// has one key.
    pub private_key_id: Option<String>,
    /// The `https` address of a document that says who we are, for authorization servers that know clients by such
    /// documents; used where there is no `client_id`. Default: none.
    pub client_metadata_url: Option<String>,
    /// What to ask for. Default: what the server says it wants.
    pub scopes: Vec<String>,
    /// Who gives the grant: a person by `gripfast login` (`authorization_code`, the default), or the client itself
    /// (`client_credentials`, with `client_id` and `client_secret` or `private_key`), which needs nobody.
    pub grant: Grant,
    /// The port on which `gripfast login` waits for the browser to come back. Default: any that is free. Say one if
    /// the client was registered with it.
    pub callback_port: u16,
}

impl OAuthSpec {
    /// Whether it has a secret that must reach the right authorization server only.
    pub fn has_secret(&self) -> bool {
        self.client_secret.is_some() || self.private_key.is_some()
    }
}

/// Who grants a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// A person, in a browser.
    #[default]
    AuthorizationCode,
    /// The client, by its own secret or signature.
    ClientCredentials,
}

/// Which generation of the protocol to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProtocolChoice {
    /// Find out.
    #[default]
    Auto,
    /// With the `initialize` handshake.
    Legacy,
    /// Without it.
    Modern,
}

/// Which tools may be sent again when the link is lost before the answer: patterns as in [`ServerSpec::policy`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayRules {
    /// Safe to send twice, whatever the server says about them.
    pub safe: Vec<String>,
    /// Never sent twice, whatever the server says about them. Wins over `safe`.
    pub never: Vec<String>,
}

/// Why a text is not the address of an MCP endpoint. Does not repeat the text, which may hold a password.
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

/// Reads the address of an MCP endpoint. Used at load time where the config has the whole address, and at
/// connect time where references had to be filled in first.
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
