//! The target of a server: a command or a URL, never both, and the keys that belong to each.

use crate::config::diagnostic::{Diagnostic, quoted};
use crate::config::fields::{Field, Fields, FileDialect, Problems};
use crate::config::keys::{Words, words};
use crate::config::node::{KeyNode, Value};
use crate::config::template::Template;
use crate::private_files::StrictModes;
use gripfast_core::redact::secret_arguments;
use url::Url;

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

impl Target {
    /// A program without arguments.
    pub(super) fn command(program: &str) -> Self {
        Self::Stdio {
            command: Template::parse(program).expect("a word without references is a template"),
            args: Vec::new(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            network_env: true,
            cwd: None,
        }
    }

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

gripfast_core::word_enum! {
    /// HTTP transport of a server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum UrlTransport {
        /// Try Streamable HTTP, fall back to HTTP+SSE, remember the result.
        #[default]
        Auto = "auto",
        /// Streamable HTTP only.
        Http = "http",
        /// Legacy HTTP with SSE only.
        Sse = "sse",
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

/// Values of the key `transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransportChoice {
    Auto,
    Stdio,
    Http,
    Sse,
}

words!(TransportChoice { Auto = "auto", Stdio = "stdio", Http = "http", Sse = "sse" });

/// Names that other clients use for the transports. `remote` means only that there is a URL.
const TRANSPORT_ALIASES: &[(&str, TransportChoice)] = &[
    ("streamable-http", TransportChoice::Http),
    ("streamable_http", TransportChoice::Http),
    ("streamableHttp", TransportChoice::Http),
    ("streamablehttp", TransportChoice::Http),
    ("remote", TransportChoice::Auto),
    ("local", TransportChoice::Stdio),
];

/// Takes the keys of both kinds of target. Those of the other kind are reported, not silently dropped.
pub(super) fn target(fields: &mut Fields<'_>, key: &KeyNode, problems: &mut Problems) -> Option<Target> {
    let transport_field = fields.take_or_alias("transport", &["type", "transportType"], problems);
    let command = fields.take_or_alias("command", &["cmd"], problems);
    let url = fields.take_or_alias("url", &["serverUrl", "httpUrl", "server_url", "uri"], problems);
    let process = Process::take(fields, problems);
    let connection = Connection::take(fields, problems);

    let transport = transport_field.as_ref().and_then(|field| transport(field, problems));
    match (command, url) {
        (Some(command), None) => {
            if let (Some(field), Some(TransportChoice::Http | TransportChoice::Sse)) =
                (&transport_field, transport)
            {
                problems.error(field.error("this transport needs a `url`, but the server has a `command`"));
            }
            connection.misplaced("url", problems);
            process.target(&command, problems)
        }
        (None, Some(url)) => {
            if let (Some(field), Some(TransportChoice::Stdio)) = (&transport_field, transport) {
                problems.error(field.error("this transport needs a `command`, but the server has a `url`"));
            }
            process.misplaced("command", problems);
            connection.target(&url, transport.unwrap_or(TransportChoice::Auto), problems)
        }
        (Some(command), Some(url)) => {
            let (_, second) = if command.key_at < url.key_at { (command, url) } else { (url, command) };
            let message = "a server has a `command` or a `url`, not both";
            problems
                .error(Diagnostic::error(second.path, second.key_at, message).with_hint("keep one of them"));
            None
        }
        // The error "unknown key `comand`" is more helpful.
        (None, None) if fields.misspells(&["command", "url"]) => None,
        (None, None) => {
            let message = format!("server {} has neither a `command` nor a `url`", quoted(&key.name));
            problems.refuse(
                Diagnostic::error(&fields.path, key.at, message)
                    .with_hint("`command` starts a local server, `url` reaches a remote one"),
            )
        }
    }
}

fn transport(field: &Field<'_>, problems: &mut Problems) -> Option<TransportChoice> {
    if let Value::Str(text) = &field.node.value {
        if matches!(text.as_str(), "ws" | "wss" | "websocket") {
            return problems.refuse(
                field
                    .error("WebSocket is not an MCP transport, and gripfast does not support it")
                    .with_hint("look up the server's Streamable HTTP URL in its documentation"),
            );
        }
        let alias = TRANSPORT_ALIASES.iter().find(|(alias, _)| alias == text);
        if let Some((_, transport)) = alias {
            if field.dialect != FileDialect::Native {
                return Some(*transport);
            }
            let name = transport.word();
            return problems.refuse(
                field
                    .error(format!("`{text}` is not one of `auto`, `stdio`, `http`, `sse`"))
                    .with_hint(format!("write `{name}`")),
            );
        }
    }
    field.choice(TransportChoice::WORDS, problems)
}

/// The keys of a server with a `command`.
struct Process<'n> {
    args: Option<Field<'n>>,
    env: Option<Field<'n>>,
    inherit_env: Option<Field<'n>>,
    network_env: Option<Field<'n>>,
    cwd: Option<Field<'n>>,
}

impl<'n> Process<'n> {
    fn take(fields: &mut Fields<'n>, problems: &mut Problems) -> Self {
        Self {
            args: fields.take("args"),
            env: fields.take_or_alias("env", &["environment", "envs"], problems),
            inherit_env: fields.take_or_alias("inherit_env", &["env_keys", "env_vars"], problems),
            network_env: fields.take("network_env"),
            cwd: fields.take("cwd"),
        }
    }

    fn misplaced(self, needs: &str, problems: &mut Problems) {
        [self.args, self.env, self.inherit_env, self.network_env, self.cwd]
            .into_iter()
            .flatten()
            .for_each(|field| misplaced(&field, needs, problems));
    }

    fn target(self, command: &Field<'n>, problems: &mut Problems) -> Option<Target> {
        let mut args = Vec::new();
        let command = match (&command.node.value, command.dialect) {
            // opencode writes the command with its arguments as one list.
            (Value::List(_), FileDialect::Foreign | FileDialect::Hermes) => {
                let mut words = templates(command, problems).into_iter();
                let first = words.next();
                if first.is_none() {
                    problems.error(command.error("expected a command, found an empty list"));
                }
                args.extend(words);
                first
            }
            (Value::List(_), FileDialect::Native) => {
                let hint = "write `command = \"program\"` and `args = [\"…\"]`";
                problems.refuse(command.expected("a string").with_hint(hint))
            }
            _ => {
                let program = command.nonempty_template(problems);
                if let Some(program) = &program {
                    warn_about_whitespace(command, program, problems);
                }
                program
            }
        };
        if let Some(field) = self.args {
            args.extend(templates(&field, problems));
        }
        let env = self.env.map(|field| variables(&field, problems)).unwrap_or_default();
        let inherit_env = self.inherit_env.map(|field| inherited_names(&field, problems)).unwrap_or_default();
        let network_env = self.network_env.and_then(|field| field.flag(problems)).unwrap_or(true);
        let cwd = self.cwd.and_then(|field| field.nonempty_template(problems));
        let args = with_secrets(args);
        Some(Target::Stdio { command: command?, args, env, inherit_env, network_env, cwd })
    }
}

/// Marks the arguments that contain a secret.
fn with_secrets(args: Vec<Template>) -> Vec<Template> {
    let texts: Vec<&str> = args.iter().map(Template::source).collect();
    let hold: Vec<bool> = secret_arguments(&texts).iter().map(Option::is_some).collect();
    let marked = args.into_iter().zip(hold).map(|(arg, holds)| if holds { arg.into_secret() } else { arg });
    marked.collect()
}

/// The keys of a server with a `url`.
struct Connection<'n> {
    headers: Option<Field<'n>>,
    redirects: Option<Field<'n>>,
    env_headers: Option<Field<'n>>,
    bearer_variable: Option<Field<'n>>,
    ca_file: Option<Field<'n>>,
    client_cert: Option<Field<'n>>,
    client_key: Option<Field<'n>>,
}

impl<'n> Connection<'n> {
    fn take(fields: &mut Fields<'n>, problems: &mut Problems) -> Self {
        // Codex has keys that name variables instead of references to variables.
        let [env_headers, bearer_variable] =
            ["env_http_headers", "bearer_token_env_var"].map(|name| fields.take_foreign(name));
        Self {
            headers: fields.take_or_alias("headers", &["http_headers"], problems),
            redirects: fields.take("redirects"),
            env_headers,
            bearer_variable,
            ca_file: fields.take("ca_file"),
            client_cert: fields.take("client_cert"),
            client_key: fields.take("client_key"),
        }
    }

    fn misplaced(self, needs: &str, problems: &mut Problems) {
        [
            self.headers,
            self.redirects,
            self.env_headers,
            self.bearer_variable,
            self.ca_file,
            self.client_cert,
            self.client_key,
        ]
        .into_iter()
        .flatten()
        .for_each(|field| misplaced(&field, needs, problems));
    }

    fn target(self, url: &Field<'n>, transport: TransportChoice, problems: &mut Problems) -> Option<Target> {
        let tls = self.tls(problems);
        let redirects = self.redirects(problems);
        let headers = self.headers(problems);
        let template = url.nonempty_template(problems)?.into_url();
        warn_about_whitespace(url, &template, problems);
        if let Some(literal) = template.literal()
            && let Err(error) = endpoint(literal)
        {
            problems.error(url.error(error.to_string()).with_hint("for example \"https://example.com/mcp\""));
        }
        let transport = match transport {
            // `stdio` has already been reported as an error.
            TransportChoice::Auto | TransportChoice::Stdio => UrlTransport::Auto,
            TransportChoice::Http => UrlTransport::Http,
            TransportChoice::Sse => UrlTransport::Sse,
        };
        Some(Target::Url { url: template, transport, headers, tls, redirects })
    }

    fn redirects(&self, problems: &mut Problems) -> Vec<String> {
        let mut origins = Vec::new();
        let elements = self.redirects.as_ref().and_then(|field| field.elements(problems));
        for element in elements.into_iter().flatten() {
            let Some(text) = element.text(problems) else { continue };
            match endpoint(text) {
                Ok(_) => origins.push(text.to_owned()),
                Err(error) => {
                    let hint = "for example \"https://eu.example.com\"";
                    problems.error(element.error(error.to_string()).with_hint(hint));
                }
            }
        }
        origins
    }

    fn tls(&self, problems: &mut Problems) -> TlsSpec {
        if let (Some(one), None) | (None, Some(one)) = (&self.client_cert, &self.client_key) {
            let message = "`client_cert` and `client_key` go together, but only one is set";
            problems.error(Diagnostic::error(&one.path, one.key_at, message));
        }
        let mut file = |field: &Option<Field<'n>>| field.as_ref()?.nonempty_template(problems);
        TlsSpec {
            ca_file: file(&self.ca_file),
            client_cert: file(&self.client_cert),
            client_key: file(&self.client_key),
            ..TlsSpec::default()
        }
    }

    fn headers(self, problems: &mut Problems) -> Vec<(String, Template)> {
        let mut headers = Vec::new();
        let given = self.headers.iter().flat_map(|field| field.pairs(problems)).collect::<Vec<_>>();
        for (key, field) in given {
            let Some(value) = field.template(problems) else { continue };
            if value.source().contains(|letter: char| letter.is_control() && letter != '\t') {
                problems
                    .error(field.error("a header cannot contain line breaks or other control characters"));
            }
            warn_about_whitespace(&field, &value, problems);
            headers.push((key, field, value.into_secret()));
        }
        let named = self.env_headers.iter().flat_map(|field| field.pairs(problems)).collect::<Vec<_>>();
        for (key, field) in named {
            headers.extend(variable("", &field, problems).map(|value| (key, field, value)));
        }
        for (key, field, _) in &headers {
            if !is_header_name(&key.name) {
                let message = format!("{} cannot be the name of a header", quoted(&key.name));
                problems.error(Diagnostic::error(&field.path, key.at, message));
            }
        }
        let bearer = self.bearer_variable.and_then(|field| variable("Bearer ", &field, problems));
        let mut headers: Vec<_> =
            headers.into_iter().map(|(key, _, value)| (key.name.clone(), value)).collect();
        headers.extend(bearer.map(|value| ("Authorization".to_owned(), value)));
        headers
    }
}

/// A template of the text `before` and a reference to the variable that the field names.
fn variable(before: &str, field: &Field<'_>, problems: &mut Problems) -> Option<Template> {
    let name = field.text(problems)?;
    match Template::parse(&format!("{before}${{env:{name}}}")) {
        Ok(template) => Some(template.into_secret()),
        Err(_) => problems.refuse(field.error("expected the name of an environment variable")),
    }
}

/// Reports a key that belongs to the other kind of target. In files of other clients it may be a leftover.
fn misplaced(field: &Field<'_>, needs: &str, problems: &mut Problems) {
    let name = field.path.rsplit('.').next().unwrap_or_default();
    let message = format!("`{name}` requires `{needs}`, which this server does not have");
    match field.dialect {
        FileDialect::Native => problems.error(Diagnostic::error(&field.path, field.key_at, message)),
        FileDialect::Foreign | FileDialect::Hermes => problems
            .warning(Diagnostic::warning(&field.path, field.key_at, message).with_hint("it is ignored")),
    }
}

fn templates(field: &Field<'_>, problems: &mut Problems) -> Vec<Template> {
    let elements = field.elements(problems).unwrap_or_default();
    elements.iter().filter_map(|element| element.template(problems)).collect()
}

fn variables(field: &Field<'_>, problems: &mut Problems) -> Vec<(String, Template)> {
    let mut variables = Vec::new();
    for (key, field) in field.pairs(problems) {
        if !is_variable_name(&key.name) {
            let message = format!("{} cannot be the name of a variable", quoted(&key.name));
            problems.error(Diagnostic::error(&field.path, key.at, message));
        }
        let Some(value) = field.template(problems) else { continue };
        if value.source().contains('\0') {
            problems.error(field.error("a variable cannot contain a NUL character"));
        }
        warn_about_whitespace(&field, &value, problems);
        variables.push((key.name.clone(), value.into_secret()));
    }
    variables
}

/// Names of variables; Codex also writes `{ name = "…" }`.
fn inherited_names(field: &Field<'_>, problems: &mut Problems) -> Vec<String> {
    let mut names = Vec::new();
    for element in field.elements(problems).unwrap_or_default() {
        let name = match (&element.node.value, element.dialect) {
            (Value::Table(entries), FileDialect::Foreign | FileDialect::Hermes) => {
                entries.iter().find(|(key, _)| key.name == "name").and_then(|(_, node)| match &node.value {
                    Value::Str(name) => Some(name.as_str()),
                    _ => None,
                })
            }
            _ => element.text(problems),
        };
        match name {
            Some(name) if is_variable_name(name) => names.push(name.to_owned()),
            Some(_) | None if matches!(element.node.value, Value::Str(_) | Value::Table(_)) => {
                problems.error(element.error("expected the name of an environment variable"));
            }
            _ => {}
        }
    }
    names
}

/// Warns about white space around a value: it is nearly always pasted by accident, and invisible in later errors.
fn warn_about_whitespace(field: &Field<'_>, value: &Template, problems: &mut Problems) {
    if value.source().trim() != value.source() {
        problems.warning(field.warning("the value begins or ends with white space"));
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// A token of RFC 9110.
fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
