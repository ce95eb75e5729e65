//! The table of one server.

use super::oauth::{OAuthSpec, OptionalOAuth};
use super::policy::{ServerListKeys, policy_of_server};
use super::restore::RestoreCall;
use super::supervision::{KeepaliveInterval, Spare, default_supervision};
use super::target::{Target, TransportChoice, target};
use crate::cache::CacheSpec;
use crate::config::ServerEntry;
use crate::config::diagnostic::Diagnostic;
use crate::config::fields::{Field, Fields, FileDialect, Problems};
use crate::config::keys::{Section, ValueKind, Words, impl_codec, keys, table, words};
use crate::config::node::{KeyNode, Node};
use crate::config::units::AT_LEAST_100_MS;
use crate::pins::PinMode;
use crate::policy::Policy;
use gripfast_core::exposure::Exposure;
use gripfast_core::isolation::Isolation;
use gripfast_core::supervise::spec::{
    CircuitSpec, RecycleSpec, RestartSpec, SupervisionSpec, TimeoutSpec, WhenDown,
};
use std::time::Duration;

keys! {
    /// One server, with a `command` or a `url`. Strings may contain references: `${env:NAME}`, `${env:NAME:-default}`,
    /// `${file:PATH}`, `${cmd:PROGRAM ARGUMENTS}`. A mistake in this table, or a variable that is not set, blocks only
    /// this server.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ServerSpec {
        /// Program or URL of the server.
        field pub target: Target = Target::command("server");
        /// Program to start: a path, or a name to look up in `PATH`. It never goes through a shell.
        key command: ValueKind::Text;
        /// Arguments of `command`.
        key args: ValueKind::Templates;
        /// Environment variables to set for the program. Of gripfast's own environment it gets `PATH`, `HOME`, `USER`,
        /// `LOGNAME`, `LANG`, `TERM`, `SHELL`, `TMPDIR`, `LC_*`, `XDG_*` and those of `network_env`, and no others.
        key env: ValueKind::map(ValueKind::Text);
        /// More variables of gripfast's own environment to pass to the program.
        key inherit_env: ValueKind::TextList;
        /// Pass the variables for certificate authorities and proxies from gripfast's own environment: `SSL_CERT_FILE`,
        /// `SSL_CERT_DIR`, `NODE_EXTRA_CA_CERTS`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`, `HTTP_PROXY`, `HTTPS_PROXY`,
        /// `ALL_PROXY`, `NO_PROXY` and the proxies in lower case. Set `false` for a server that must not see a proxy
        /// password. Without them a server behind a company proxy cannot reach the network.
        key network_env: ValueKind::Flag => "true";
        /// Working directory of the program.
        key cwd: ValueKind::Text, "gripfast's working directory";
        /// URL of the server's MCP endpoint, `http` or `https`.
        key url: ValueKind::Text;
        /// Transport of the server: `http` is Streamable HTTP, `sse` the older HTTP+SSE. `auto` detects it and
        /// remembers the result.
        key transport: ValueKind::Choice(TransportChoice::words()) => "auto";
        /// HTTP headers to send with every request.
        key headers: ValueKind::map(ValueKind::Text);
        /// Other origins that the server may redirect to, such as `"https://eu.example.com"`. Redirects within its own
        /// origin, and from http to https on its own host, are always followed. `headers` and tokens are not sent to
        /// another origin.
        key redirects: ValueKind::TextList;
        /// PEM file with certificates to trust besides those of the system: of certificate authorities, or of the
        /// server itself.
        key ca_file: ValueKind::Text;
        /// PEM file with the client certificate to present to the server. Requires `client_key`.
        key client_cert: ValueKind::Text;
        /// PEM file with the private key of `client_cert`.
        key client_key: ValueKind::Text;
        /// OAuth settings, for a server that requires a token and whose own metadata is not enough. For servers without
        /// an `Authorization` in `headers`.
        pub oauth: Option<OAuthSpec> as OptionalOAuth = None;
        /// Generation of MCP: `legacy` has the `initialize` handshake (until 2025-11-25), `modern` has none. `auto`
        /// detects it and remembers the result.
        pub protocol: ProtocolChoice = ProtocolChoice::Auto;
        /// Largest message that the server may send. A larger one ends its call, or the connection if its call cannot
        /// be identified. Too small: large results fail. Too large: one message can use that much memory.
        pub max_message: usize [1 << 10..=1 << 30] = 16 << 20;
        /// Keep the server in the config without using it.
        pub disabled: bool = false;
        /// The opposite of `disabled`; set only one of them.
        key enabled: ValueKind::Flag;
        /// Supervision: keepalive, restarts, timeouts and queue limits.
        field pub supervision: SupervisionSpec = SupervisionSpec::default();
        /// Start the server on first use instead of at once. Its tools are listed from the stored catalog, so the
        /// server must have run once.
        lazy => supervision.lazy: bool;
        /// Time without use after which a lazy server, or a dedicated instance, is stopped. Too short: calls wait for
        /// its start. Too long: it uses memory for nothing.
        idle_timeout => supervision.idle_timeout: Duration [AT_LEAST_100_MS];
        /// Listing of tools while their server is down: `keep` leaves them listed byte for byte, and a call waits or
        /// gets an error at once; `withdraw` removes them from the list while the server is parked.
        when_down => supervision.when_down: WhenDown;
        /// Silence after which an idle server is probed. Too long: a call is the first to notice that the server is
        /// gone. Too short: needless probes.
        keepalive_interval => supervision.keepalive.interval: KeepaliveInterval;
        /// Time limit for the answer to a probe; after it the connection is replaced. Too short: a busy server is
        /// restarted. Too long: calls wait for a server that hangs.
        keepalive_timeout => supervision.keepalive.timeout: Duration [AT_LEAST_100_MS];
        /// Circuit breaker: when to stop sending calls over a failing connection.
        circuit => supervision.circuit: CircuitSpec;
        /// Restart policy for a lost server: pauses between attempts, and when it is parked.
        restart => supervision.restart: RestartSpec;
        /// 1 keeps a second child process ready, which takes over when the first one dies. Costs a second process. For
        /// servers with a `command`.
        spare => supervision.spare: Spare;
        /// Replacement of a connection that still works, for servers that leak. The new connection is made first.
        recycle => supervision.recycle: RecycleSpec;
        /// Time limits of connection attempts and calls.
        timeouts => supervision.timeouts: TimeoutSpec;
        /// Requests in flight to the server at once; more wait. Too small: calls queue behind slow ones. Too large: the
        /// server may be overloaded.
        max_in_flight => supervision.max_in_flight: u32 [1..=65_536];
        /// Requests that may wait, for a slot or for the connection. More are refused as overloaded. Too small: short
        /// bursts are refused. Too large: more memory, and long waits.
        max_waiting => supervision.max_waiting: u32 [0..=1_000_000];
        /// Prefix of the names of its tools and prompts, before `__`. With an empty prefix the names stay as they are;
        /// if two of them collide, the server that has the name first keeps it, and the other name gets its server's
        /// name as prefix.
        pub prefix: Option<String> as Option<Prefix> = None, "the server's name";
        /// Tools, resources, prompts and methods to offer.
        field pub policy: Policy = Policy::default();
        /// Tools to offer. Besides names, entries may be `@read_only`, `@destructive` and `@idempotent`, which match
        /// the annotations of tools.
        key tools: ValueKind::Table(table::<ServerListKeys>);
        /// Resources to offer, by URI.
        key resources: ValueKind::Table(table::<ServerListKeys>);
        /// Prompts to offer.
        key prompts: ValueKind::Table(table::<ServerListKeys>);
        /// Methods that MCP does not define and that clients may call, by patterns such as `skills/*`. Without this key
        /// all of them are allowed, unless `tools`, `resources` or `prompts` has an `allow` list: then none is, because
        /// gripfast cannot know what they access.
        key methods: ValueKind::TextList;
        /// Handling of a tool whose definition has changed since it was first seen: `enforce` blocks it until `gripfast
        /// pins approve` and shows its earlier definition; `strict` blocks new tools too; `warn` reports the change and
        /// uses the tool; `off` compares nothing. Set `warn` for a server whose descriptions change by themselves, with
        /// dates or counts in them.
        pub pins: PinMode = PinMode::Enforce;
        /// Largest number of tools that are pinned and offered, and of prompts and resource templates each. Beyond it
        /// new ones are hidden, with an event; approved ones stay. Too small: new tools of a large server are missing.
        /// Too large: a server can fill the context of its clients and the state directory.
        pub max_tools: u32 [1..=100_000] = 2_000;
        /// Exposure of its tools to clients: `all`, `search` or `auto`, as in the table `gateway`.
        pub exposure: Option<Exposure> = None, "`exposure` of the table `gateway`";
        /// Tools that are always in the list of clients, whatever `exposure` is: patterns over the server's own names.
        /// Too few: clients have to search for tools that they need all the time. Too many: their definitions fill the
        /// context of the model.
        pub always: Vec<String> = Vec::new();
        /// Sharing of instances between clients. An instance is one child process or session. `auto` shares one
        /// instance until the server sends a request, or logs while several principals share it, and the client that it
        /// is meant for cannot be determined. Set `per_client` for a server that keeps state per session; with `shared`
        /// its clients see each other's state.
        pub isolation: Isolation = Isolation::Auto;
        /// Largest number of clients with an instance of their own at a time. Too small: with `per_client` calls of
        /// further clients are refused as overloaded (with `auto` they share). Too large: as many child processes run.
        pub max_instances: u32 [1..=10_000] = 64;
        /// Replicas of a service that run the server: `each`, or only `one`, whose name `status` shows; the others reach
        /// it through that one. For a server that must not run twice, such as one that writes a file. With `one`, clients
        /// share one instance unless `isolation` is `per_client`. Without the table `cluster` both mean the same.
        pub placement: Placement = Placement::Each;
        /// Tools that may be called again if the connection is lost before the answer.
        pub replay: ReplayRules = ReplayRules::default();
        /// Calls to make in every new session before all others, in this order: a login, the choice of a workspace. A
        /// failed call is shown in `status` and blocks no client. Together they have half of `timeouts.connect`; each
        /// costs a round trip before the server can be used. At most 32.
        pub restore: Vec<RestoreCall> = Vec::new();
        /// Answers of the server that may be cached.
        pub cache: CacheSpec = CacheSpec::default();
    }
}

impl ServerSpec {
    /// A spec with every default, for a server that is reached at `target`.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { supervision: default_supervision(Some(&target)), target, ..Self::defaults() }
    }
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

/// Replicas of a service that run a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// All of them.
    #[default]
    Each,
    /// One at a time.
    One,
}

words!(Placement { Each = "each", One = "one" });
words!(ProtocolChoice { Auto = "auto", Legacy = "legacy", Modern = "modern" });
words!(Exposure { All = "all", Search = "search", Auto = "auto" });
words!(Isolation { Auto = "auto", Shared = "shared", PerClient = "per_client" });
words!(PinMode { Enforce = "enforce", Strict = "strict", Warn = "warn", Off = "off" });

keys! {
    /// Tools that may be called again if the connection is lost before the answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReplayRules: Default {
        /// Tools that may be called twice, whatever the server says about them: patterns over its own names.
        pub safe: Vec<String> = Vec::new();
        /// Tools that are never called twice, whatever the server says about them. Takes precedence over `safe`.
        pub never: Vec<String> = Vec::new();
    }
}

/// Decodes one server. Its errors are kept in the entry; its warnings are added to those of the file.
pub(in crate::config) fn entry(
    key: &KeyNode,
    node: &Node,
    root: &str,
    origin: FileDialect,
    warnings: &mut Vec<Diagnostic>,
) -> ServerEntry {
    let mut problems = Problems::default();
    let path = format!("{root}.{}", key.name);
    if let Err(message) = check_name(&key.name) {
        let hint = suggested_name(&key.name).map(|name| format!("use `{name}`"));
        problems.error(Diagnostic::error(&path, key.at, message).with_any_hint(hint));
    }
    let field = Field { path, key_at: key.at, node, dialect: origin };
    let spec = Fields::open(&field, ServerSpec::rows, &mut problems)
        .and_then(|fields| spec(fields, key, &mut problems));
    warnings.append(&mut problems.warnings);
    let spec = match spec {
        Some(spec) if problems.errors.is_empty() => Ok(spec),
        _ => Err(problems.errors),
    };
    ServerEntry { name: key.name.clone(), position: key.at, spec }
}

fn spec(mut fields: Fields<'_>, key: &KeyNode, problems: &mut Problems) -> Option<ServerSpec> {
    let target = target(&mut fields, key, problems);
    let mut spec = ServerSpec { supervision: default_supervision(target.as_ref()), ..ServerSpec::defaults() };
    let is_enabled = is_enabled(&mut fields, problems);
    spec.read_keys(&mut fields, problems);
    spec.disabled |= !is_enabled;
    spec.policy = policy_of_server(&mut fields, problems);
    fields.finish(problems);
    spec.target = target?;
    match spec.target {
        Target::Stdio { .. } if spec.oauth.is_some() => {
            let message = "`oauth` needs a server with a `url`; this one has a `command`";
            problems.error(Diagnostic::error(format!("servers.{}.oauth", key.name), key.at, message));
        }
        Target::Stdio { .. } if spec.placement == Placement::One && spec.supervision.spare => {
            let message = "`spare` starts a second process, and `placement = \"one\"` allows one";
            problems.error(
                Diagnostic::error(format!("servers.{}.spare", key.name), key.at, message)
                    .with_hint("remove one of them"),
            );
        }
        Target::Stdio { .. } => {}
        Target::Url { .. } => reject_child_only_keys(&spec.supervision, key, problems),
    }
    Some(spec)
}

/// Reports keys that are allowed only for a process that gripfast starts itself.
fn reject_child_only_keys(supervision: &SupervisionSpec, key: &KeyNode, problems: &mut Problems) {
    let keys = [("spare", supervision.spare), ("recycle.max_rss", supervision.recycle.max_rss.is_some())];
    for (name, _) in keys.into_iter().filter(|(_, is_set)| *is_set) {
        let message = format!("`{name}` needs a server with a `command`; this one has a `url`");
        problems.error(Diagnostic::error(format!("servers.{}.{name}", key.name), key.at, message));
    }
}

/// Checks a server name. Clients see `server__tool`, in letters that every client accepts; a server name with `__` in
/// it, or with `_` at its end, would make that name ambiguous.
fn check_name(name: &str) -> Result<(), String> {
    let strange = |letter: &char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    if name.is_empty() {
        return Err("expected a name, found an empty string".to_owned());
    }
    if let Some(letter) = name.chars().find(strange) {
        let letter = if letter == ' ' { "a space".to_owned() } else { format!("`{letter}`") };
        return Err(format!("{letter} is not allowed in a name; allowed: letters, digits, `_` and `-`"));
    }
    if name.len() > MAX_NAME_LENGTH {
        return Err(format!(
            "a name of {} characters is too long; allowed: 1 to {MAX_NAME_LENGTH}",
            name.len()
        ));
    }
    if name.contains("__") {
        return Err("`__` is not allowed in a name, because it separates server and tool".to_owned());
    }
    if name.ends_with('_') {
        return Err("a name cannot end in `_`, because `__` separates server and tool".to_owned());
    }
    Ok(())
}

const MAX_NAME_LENGTH: usize = 64;

/// The nearest valid name, if there is one.
fn suggested_name(name: &str) -> Option<String> {
    let mut usable = String::new();
    for letter in name.chars().take(MAX_NAME_LENGTH) {
        match letter {
            '_' if !usable.ends_with('_') => usable.push('_'),
            '_' => {}
            letter if letter.is_ascii_alphanumeric() => usable.push(letter),
            _ if !usable.ends_with('-') => usable.push('-'),
            _ => {}
        }
    }
    let usable = usable.trim_matches(['-', '_']);
    (!usable.is_empty()).then(|| usable.to_owned())
}

/// Takes the key `enabled`, the opposite of `disabled`.
fn is_enabled(fields: &mut Fields<'_>, problems: &mut Problems) -> bool {
    let Some(enabled) = fields.take("enabled") else { return true };
    if fields.has("disabled") {
        let message = "`enabled` and `disabled` are both set";
        problems
            .error(Diagnostic::error(&enabled.path, enabled.key_at, message).with_hint("keep one of them"));
    }
    enabled.flag(problems).unwrap_or(true)
}

/// Codec of `prefix`.
struct Prefix;

impl_codec!(Prefix => String, ValueKind::Text, read_prefix);

fn read_prefix(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let prefix = field.text(problems)?;
    if !prefix.is_empty()
        && let Err(message) = check_name(prefix)
    {
        return problems.refuse(field.error(message).with_hint("`prefix = \"\"` leaves the names unchanged"));
    }
    Some(prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_suggested_name_is_valid(name in ".{0,80}") {
            if let Some(usable) = suggested_name(&name) {
                prop_assert_eq!(check_name(&usable), Ok(()), "{}", usable);
            }
        }
    }
}
