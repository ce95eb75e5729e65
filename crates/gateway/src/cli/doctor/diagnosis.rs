//! Diagnosis of one server: derives the cause and the next step from collected evidence and the local environment.
//! Starts nothing and connects to nothing.

use super::reachability::Reachability;
use crate::cli::error::FailureReport;
use crate::cli::import::absolute;
use crate::cli::preflight;
use crate::cli::render::plural;
use gripfast::config::{Lookup, ServerEntry, ServerSpec, Target, Template};
use gripfast::symptoms::{Symptom, symptom};
use gripfast::{ServerStatus, State};
use gripfast_gateway::api::types::{DetailView, EmbeddingsView, ExposureView, UpstreamView};
use gripfast_gateway::cluster::{ClusterFinding, ClusterSettingsError};
use serde::Serialize;
use std::path::Path;

/// A start that takes longer than this downloads something or waits for something.
const SLOW_MS: u64 = 10_000;
/// Event kind for lines on stdout that are not MCP messages.
const JUNK_SKIPPED: &str = "junk_skipped";
/// Shown in place of the server name for diagnoses of the gateway itself.
const GATEWAY: &str = "(gateway)";
/// The same for tool search and its embeddings endpoint.
const SEARCH: &str = "(search)";
const EMBEDDINGS: &str = "(embeddings)";
/// Number of last stderr lines that are shown as evidence.
const EVIDENCE_LINES: usize = 5;

/// The evidence about one server.
pub(super) struct ServerEvidence<'c> {
    pub(super) name: &'c str,
    /// The config entry, if the config in use is readable and has the server.
    pub(super) entry: Option<&'c ServerEntry>,
    /// The observed behaviour, if there is any.
    pub(super) observed: Option<&'c DetailView>,
    /// True if the gateway made the observation, in its own environment.
    pub(super) by_gateway: bool,
    pub(super) reachability: Reachability,
}

/// The diagnosis of one server, in the shape of `-o json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Diagnosis {
    pub(super) server: String,
    pub(super) ok: bool,
    pub(super) cause: String,
    #[serde(rename = "do")]
    pub(super) step: Option<String>,
    pub(super) evidence: Vec<String>,
}

/// The observation after a start. A listed server counts as ready, even if its status is still `starting`.
pub(super) fn from_start(status: &ServerStatus, listed: bool) -> DetailView {
    let mut upstream = UpstreamView::from(status);
    if listed && status.supervision.state == State::Starting {
        upstream.state = State::Ready.as_str().into();
    }
    DetailView::of(status, upstream)
}

/// The stderr lines since the last answer. Older lines belong to earlier problems.
fn last_lines(seen: &DetailView) -> &[String] {
    let count = seen.stderr_since_answer.min(seen.stderr.len());
    &seen.stderr[seen.stderr.len() - count..]
}

impl Diagnosis {
    /// Another program uses the port of the gateway.
    pub(super) fn port_taken(failure: &FailureReport) -> Self {
        Self {
            server: GATEWAY.to_owned(),
            ok: false,
            cause: failure.text.clone(),
            step: Some(
                "set another port in `gateway.listen`, or stop the program that listens there".to_owned(),
            ),
            evidence: Vec::new(),
        }
    }

    /// The table `cluster` of the config has a mistake.
    pub(super) fn bad_cluster(error: &ClusterSettingsError) -> Self {
        Self {
            server: GATEWAY.to_owned(),
            ok: false,
            cause: error.to_string(),
            step: Some(error.hint().to_owned()),
            evidence: Vec::new(),
        }
    }

    /// No gateway is running, which is no problem for the diagnosis of servers.
    pub(super) fn no_gateway(address: &str) -> Self {
        Self {
            server: GATEWAY.to_owned(),
            ok: true,
            cause: format!(
                "not running: nothing listens at {address}; the servers were started for a moment"
            ),
            step: Some("`gripfast serve` starts it".to_owned()),
            evidence: Vec::new(),
        }
    }

    /// The gateway uses another config than the one found here. That is a problem if the latter has servers that the
    /// gateway does not have.
    pub(super) fn other_config(used: &Path, unused: Option<(&Path, usize)>) -> Self {
        let used = used.display();
        let (ok, cause, step) = match unused {
            None | Some((_, 0)) => (true, format!("runs with `{used}`"), None),
            Some((here, _)) => {
                let here = absolute(here);
                let step =
                    format!("edit `{used}`, or stop the gateway and run `gripfast serve --config {here}`");
                (false, format!("runs with `{used}`, so `{here}` is not in use"), Some(step))
            }
        };
        Self { server: GATEWAY.to_owned(), ok, cause, step, evidence: Vec::new() }
    }

    /// Tokens that clients list under the exposure of the gateway.
    pub(super) fn exposure(exposure: &ExposureView) -> Self {
        let ExposureView { mode, tools, tokens, listed_tools, listed_tokens, .. } = exposure;
        let cause = format!(
            "exposure {mode}: clients list {listed_tools} of {}, about {listed_tokens} of {tokens} tokens",
            plural(*tools, "tool")
        );
        Self { server: SEARCH.to_owned(), ok: true, cause, step: None, evidence: Vec::new() }
    }

    /// The embeddings endpoint as the gateway sees it.
    pub(super) fn embeddings(embeddings: &EmbeddingsView) -> Self {
        let EmbeddingsView { state, model, embedded, cause } = embeddings;
        match cause {
            Some(cause) => Self::no_embeddings(cause.clone()),
            None => Self {
                server: EMBEDDINGS.to_owned(),
                ok: true,
                cause: format!("{state}: {} with a vector of `{model}`", plural(*embedded, "tool")),
                step: None,
                evidence: Vec::new(),
            },
        }
    }

    /// The embeddings endpoint of the config, asked from here.
    pub(super) fn checked_embeddings(model: &str, checked: Result<usize, String>) -> Self {
        match checked {
            Err(cause) => Self::no_embeddings(cause),
            Ok(dimension) => Self {
                server: EMBEDDINGS.to_owned(),
                ok: true,
                cause: format!("`{model}` answers with vectors of {dimension} numbers"),
                step: None,
                evidence: Vec::new(),
            },
        }
    }

    fn no_embeddings(cause: String) -> Self {
        let step = "correct the table `gateway.search.embeddings`, or start its endpoint; until then tools are found \
                    by their words alone";
        Self {
            server: EMBEDDINGS.to_owned(),
            ok: false,
            cause,
            step: Some(step.to_owned()),
            evidence: Vec::new(),
        }
    }
}

impl From<ClusterFinding> for Diagnosis {
    fn from(finding: ClusterFinding) -> Self {
        let ClusterFinding { subject, is_ok, text, next_step } = finding;
        Self { server: subject, ok: is_ok, cause: text, step: next_step, evidence: Vec::new() }
    }
}

impl ServerEvidence<'_> {
    /// The diagnosis. For a failing server, adds the variables that it seems to need and does not get.
    pub(super) fn diagnose(&self, lookup: &dyn Lookup) -> Diagnosis {
        let mut diagnosis = self.diagnose_state(lookup);
        let spec = self.entry.and_then(|entry| entry.spec.as_ref().ok()).filter(|_| !diagnosis.ok);
        let dropped = spec.and_then(|spec| preflight::dropped_variables(self.name, &spec.target, lookup));
        diagnosis.evidence.extend(dropped.map(|(message, hint)| format!("{message}; {hint}")));
        diagnosis
    }

    fn diagnose_state(&self, lookup: &dyn Lookup) -> Diagnosis {
        let spec = match self.entry.map(|entry| &entry.spec) {
            Some(Err(findings)) => {
                let cause = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                return self.unhealthy(cause, "`gripfast check` shows the position in the config");
            }
            Some(Ok(spec)) if spec.disabled => return self.healthy("disabled in the config"),
            Some(Ok(spec)) => Some(spec),
            None => None,
        };
        let missing = spec.map(|spec| preflight::missing(spec, lookup)).unwrap_or_default();
        let state = self.observed.map_or("", |seen| &*seen.upstream.state);
        match (state, missing.first()) {
            // The gateway may have what this shell lacks.
            ("ready", _) => self.ready(),
            ("idle", None) => self.healthy("idle, starts on first use"),
            (_, Some(first)) => {
                let causes: Vec<&str> = missing.iter().map(|missing| missing.message.as_str()).collect();
                // Its behaviour without them is a consequence.
                Diagnosis { evidence: Vec::new(), ..self.unhealthy(causes.join("; "), first.hint.clone()) }
            }
            ("needs_login", None) => self.needs_login(spec),
            ("needs_approval", None) => self.unhealthy(
                "tools have changed since they were approved",
                format!("`gripfast pins diff {}` shows the changes", self.name),
            ),
            ("stopped", None) => self.unhealthy(
                "stopped with `gripfast stop`",
                format!("`gripfast start {}` starts it", self.name),
            ),
            ("disabled", None) => self.healthy("disabled in the config of the gateway"),
            // A server that has failed before is not merely slow.
            ("starting", None) if self.observed.is_some_and(|seen| seen.upstream.cause.is_none()) => self.starting(),
            ("config_error", None) if self.by_gateway && self.is_command(spec) => {
                self.environment_differs(spec, lookup)
            }
            (_, None) if self.by_gateway && self.observed.is_none() => self.unhealthy(
                "the gateway's config does not contain this server",
                "`gripfast status` lists the gateway's servers; `gripfast doctor --config FILE` works without a gateway",
            ),
            (_, None) => self.diagnose_failure(),
        }
    }

    fn ready(&self) -> Diagnosis {
        self.healthy(match self.observed.map_or(0, |seen| seen.upstream.tools) {
            0 => "ready, no tools".to_owned(),
            tools => format!("ready, {}", plural(tools, "tool")),
        })
    }

    fn starting(&self) -> Diagnosis {
        let since = self.observed.map_or(0, |seen| seen.upstream.since_ms);
        let step = if !self.by_gateway {
            format!("it may be installing itself; allow more time: `gripfast doctor {} --wait 1m`", self.name)
        } else if since < SLOW_MS {
            "run `gripfast doctor` again in a few seconds".to_owned()
        } else {
            format!(
                "`gripfast logs {} -f` shows its stderr; if it only needs more time, raise its `timeouts.connect_max`",
                self.name
            )
        };
        match self.known_symptom().or_else(|| self.logs_to_stdout()) {
            Some((cause, step)) => self.unhealthy(cause, step),
            None => self.unhealthy(format!("it has been starting for {} s", since / 1000), step),
        }
    }

    /// The server could start in this environment, but not in that of the gateway.
    fn environment_differs(&self, spec: Option<&ServerSpec>, lookup: &dyn Lookup) -> Diagnosis {
        let cause = format!(
            "{}; this shell finds it, so the gateway has another environment",
            self.cause("the gateway cannot start it")
        );
        let lacks_command = self.observed.is_none_or(|seen| {
            seen.upstream.cause.as_deref().is_none_or(|cause| cause.starts_with("command "))
        });
        let place = spec.filter(|_| lacks_command).and_then(|spec| match &spec.target {
            Target::Stdio { command, .. } => preflight::find_executable(command, lookup),
            Target::Url { .. } => None,
        });
        self.unhealthy(
            cause,
            match place {
                Some(place) => {
                    format!(
                        "set `command = \"{}\"`, or start the gateway with the PATH of this shell",
                        place.display()
                    )
                }
                None => "start the gateway with the environment of this shell".to_owned(),
            },
        )
    }

    /// The server refused the credential, or got none.
    fn needs_login(&self, spec: Option<&ServerSpec>) -> Diagnosis {
        let sends_token = spec.is_some_and(|spec| match &spec.target {
            Target::Url { headers, .. } => {
                headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            }
            Target::Stdio { .. } => false,
        });
        let cause = self.cause("a login is needed");
        if sends_token {
            return self.unhealthy(
                format!("the server refuses the `Authorization` header of the config ({cause})"),
                "set a valid token in its `headers`",
            );
        }
        let step = format!("run `gripfast login {}`, or set a token in its `headers`", self.name);
        self.unhealthy(
            if cause.contains("HTTP 401") { "a login is needed (HTTP 401)".to_owned() } else { cause },
            step,
        )
    }

    /// The cause of a failure, from the network probe and the server's own output.
    fn diagnose_failure(&self) -> Diagnosis {
        let refused = match &self.reachability {
            Reachability::NoSuchName { host, why } => Some((
                format!("the host name `{host}` does not resolve ({why})"),
                "correct the host in `url`, or check this machine's DNS".to_owned(),
            )),
            Reachability::Closed { address, why } => Some((
                format!("cannot connect to {address} ({why})"),
                "start the server, or correct host and port in `url`".to_owned(),
            )),
            Reachability::NotTried | Reachability::Open => None,
        };
        if let Some((cause, step)) = refused {
            // The error of the connection is a consequence.
            return Diagnosis { evidence: Vec::new(), ..self.unhealthy(cause, step) };
        }
        let known = self.missing_file().or_else(|| self.known_symptom()).or_else(|| self.wrong_endpoint());
        if let Some((cause, step)) = known {
            return self.unhealthy(cause, step);
        }
        let has_stderr = self.observed.is_some_and(|seen| !last_lines(seen).is_empty());
        let step = if self.entry.is_none() {
            format!("unknown cause; `gripfast status {}` shows the details", self.name)
        } else if self.has_url() {
            "unknown cause; look at the log of the server".to_owned()
        } else if self.cause("").contains("(signal 9)") {
            "another process killed it; the kernel does that when memory runs out, and its log shows it"
                .to_owned()
        } else if !has_stderr {
            "unknown cause, and nothing on stderr; run its command by hand in a terminal".to_owned()
        } else if self.by_gateway {
            format!("unknown cause; `gripfast logs {}` shows its full stderr", self.name)
        } else {
            "unknown cause; run its command by hand in a terminal".to_owned()
        };
        self.unhealthy(self.cause("not ready"), step)
    }

    /// A program answers at the URL, but not as a working MCP server.
    fn wrong_endpoint(&self) -> Option<(String, String)> {
        let reported =
            self.observed?.upstream.cause.as_deref().filter(|_| self.has_url() || self.entry.is_none())?;
        let path = "correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`";
        let (cause, step) = if reported.starts_with("no MCP server at this URL: HTTP 404") {
            ("the path of its `url` does not exist (HTTP 404)".to_owned(), path)
        } else if reported.starts_with("no MCP server at this URL: HTTP 405") {
            ("its `url` does not accept MCP requests (HTTP 405)".to_owned(), path)
        } else if reported.starts_with("does not speak MCP") && reported.contains("`text/html`") {
            ("its `url` is a web page, not an MCP server".to_owned(), path)
        } else if reported.starts_with("no MCP server at this URL")
            || reported.starts_with("does not speak MCP")
        {
            (reported.to_owned(), "compare `url` with the server's documentation")
        } else if reported.starts_with("HTTP 5") {
            (
                format!("the server reports an internal error ({reported})"),
                "look at the log of the server, or try again later",
            )
        } else {
            return None;
        };
        Some((cause, step.to_owned()))
    }

    /// The server logs to stdout, which is reserved for MCP messages.
    fn logs_to_stdout(&self) -> Option<(String, String)> {
        let mut events = self.observed?.events.iter().rev();
        let text = &events.find(|event| event.kind == JUNK_SKIPPED)?.text;
        let step = "make it log to stderr, by a flag in `args` or a variable in `env`: stdout is for MCP messages only";
        Some((format!("it {text}"), step.to_owned()))
    }

    /// A file in the arguments that does not exist, if the server reports it or it is the script to run. The server may
    /// create other missing files itself.
    fn missing_file(&self) -> Option<(String, String)> {
        const INTERPRETERS: &[&str] = &["python", "python3", "node", "deno", "bun", "ruby", "sh", "bash"];
        let Target::Stdio { command, args, .. } = &self.entry?.spec.as_ref().ok()?.target else {
            return None;
        };
        let plain = |template: &'_ Template| template.references().next().is_none();
        let program = Path::new(command.source()).file_stem().and_then(|stem| stem.to_str());
        let runs_first = program.is_some_and(|program| INTERPRETERS.contains(&program));
        let seen = self.observed?;
        let lines = last_lines(seen).iter().chain(&seen.upstream.cause);
        let is_named = |path: &str| {
            lines.clone().any(|line| line.contains(path) && symptom(std::iter::once(line.as_str())).is_some())
        };
        let missing = args.iter().enumerate().find_map(|(at, arg)| {
            let path = arg.source();
            let is_gone = plain(arg) && Path::new(path).is_absolute() && !Path::new(path).exists();
            (is_gone && ((at == 0 && runs_first) || is_named(path))).then_some(path)
        })?;
        Some((
            format!("`{missing}` in its `args` does not exist"),
            "correct the path in `args`, or create the file".to_owned(),
        ))
    }

    /// A known symptom in the last stderr lines or in the observed cause.
    fn known_symptom(&self) -> Option<(String, String)> {
        let seen = self.observed?;
        let (stderr, cause) = (last_lines(seen), &seen.upstream.cause);
        let found = match symptom(stderr.iter().chain(cause).map(String::as_str))? {
            // A timeout is not a cause; stderr may name one.
            Symptom::Timeout => symptom(stderr.iter().map(String::as_str)).unwrap_or(Symptom::Timeout),
            found => found,
        };
        if found == Symptom::MissingModule
            && let Some(copy) = incomplete_npx_package(stderr)
        {
            let step = format!("remove `{copy}`; npx then downloads it again");
            return Some(("its package in the npx cache is incomplete".to_owned(), step));
        }
        let (cause, step) = match found {
            Symptom::Timeout => {
                return self.logs_to_stdout().or_else(|| {
                    let step = match self.installs_itself() {
                        true => "it may be installing itself: run its command once by hand, or raise its `timeouts.connect_max`",
                        false => "if it only needs more time to start, raise its `timeouts.connect_max`",
                    };
                    Some((self.cause("it does not answer in time"), step.to_owned()))
                });
            }
            Symptom::NotTls => {
                let step = "change `url` to `http://`, or correct its port";
                return Some((self.cause("it does not speak TLS"), step.to_owned()));
            }
            Symptom::ExpiredCertificate => {
                let step = "ask the operator of the server to renew it; if it is valid, correct the clock of this machine";
                return Some((self.cause("its certificate has expired"), step.to_owned()));
            }
            Symptom::ConnectionBroken => {
                let step = "change `url` to `https://` if the server uses TLS, or compare it with the server's documentation";
                return Some((self.cause("the server closed the connection"), step.to_owned()))
                    .filter(|_| self.has_url());
            }
            Symptom::NoDaemon => (
                "the Docker daemon is not running, or access is denied",
                "start Docker, or check the permissions of its socket",
            ),
            Symptom::Tls => {
                let step = "set `ca_file` to its certificate authority or certificate, set `client_cert` if it asks for a client \
                            certificate, or correct the host in `url`";
                return Some((self.cause("TLS failed"), step.to_owned()));
            }
            Symptom::MissingModule => (
                "a module that it needs is not installed",
                "install it where the command looks for it, or correct `args`",
            ),
            Symptom::NoSuchPackage => ("its package does not exist", "correct the package name in `args`"),
            Symptom::PortInUse => (
                "its port is already in use",
                "stop the program that uses it (an older instance?), or set another port in `args` or `env`",
            ),
            Symptom::PermissionDenied => {
                ("access to a file is denied", "check the permissions of the file that it names, and `cwd`")
            }
            Symptom::NoSuchFile => (
                "a file or directory that it needs does not exist",
                "correct the path that it names in `args`, `env` or `cwd`",
            ),
            Symptom::Credential => {
                ("a credential is missing or wrong", "set the variable that it names in its `env`")
            }
            Symptom::NoSuchHost if self.has_url() => {
                let step = "correct the host in `url`, or check this machine's DNS or proxy";
                return Some((self.cause("its host name does not resolve"), step.to_owned()));
            }
            Symptom::NoSuchHost => (
                "it cannot resolve a host name",
                "check this machine's network, and URLs in its `env` or `args`",
            ),
            Symptom::Certificate => (
                "it does not trust a certificate",
                "set your certificate authority in its `env`: NODE_EXTRA_CA_CERTS, SSL_CERT_FILE",
            ),
            Symptom::OldRuntime => ("its runtime is too old", "install a newer Node.js or Python"),
            Symptom::Usage => ("it needs other arguments", "compare `args` with its usage below"),
        };
        Some((cause.to_owned(), step.to_owned()))
    }

    /// Returns true if the command may download the server first.
    fn installs_itself(&self) -> bool {
        const INSTALLERS: &[&str] = &["npx", "uvx", "pipx", "bunx", "pnpm", "docker", "podman"];
        let target = self.entry.and_then(|entry| entry.spec.as_ref().ok()).map(|spec| &spec.target);
        match target {
            Some(Target::Stdio { command, .. }) => {
                let program = Path::new(command.source()).file_stem().and_then(|stem| stem.to_str());
                program.is_some_and(|program| INSTALLERS.contains(&program))
            }
            Some(Target::Url { .. }) | None => false,
        }
    }

    fn has_url(&self) -> bool {
        let spec = self.entry.and_then(|entry| entry.spec.as_ref().ok());
        spec.is_some_and(|spec| matches!(spec.target, Target::Url { .. }))
    }

    fn is_command(&self, spec: Option<&ServerSpec>) -> bool {
        spec.is_some_and(|spec| matches!(spec.target, Target::Stdio { .. }))
    }

    fn cause(&self, otherwise: &str) -> String {
        self.observed.and_then(|seen| seen.upstream.cause.clone()).unwrap_or_else(|| otherwise.to_owned())
    }

    fn healthy(&self, cause: impl Into<String>) -> Diagnosis {
        Diagnosis {
            server: self.name.to_owned(),
            ok: true,
            cause: cause.into(),
            step: None,
            evidence: Vec::new(),
        }
    }

    fn unhealthy(&self, cause: impl Into<String>, step: impl Into<String>) -> Diagnosis {
        let cause = cause.into();
        let seen = self.observed;
        let reported = seen
            .and_then(|seen| seen.upstream.cause.clone())
            .filter(|reported| !cause.contains(reported.as_str()));
        let words = seen.map(last_lines).unwrap_or_default();
        let words = last_attempt(&words[words.len().saturating_sub(EVIDENCE_LINES)..]);
        let quoted = format!("{cause}\n{}", reported.as_deref().unwrap_or_default());
        let is_new = |line: &&String| !line.trim().is_empty() && !quoted.contains(line.trim());
        let evidence = reported.into_iter().chain(words.iter().filter(is_new).cloned()).collect();
        Diagnosis { server: self.name.to_owned(), ok: false, cause, step: Some(step.into()), evidence }
    }
}

/// The directory of an incomplete package in the npx cache.
fn incomplete_npx_package(lines: &[String]) -> Option<String> {
    const CACHE: &str = "/.npm/_npx/";
    let line = lines.iter().find(|line| line.contains("Cannot find") && line.contains(CACHE))?;
    let at = line.find(CACHE)?;
    let begin = line[..at].rfind([' ', '\'', '"', '(']).map_or(0, |space| space + 1);
    let name = line[at + CACHE.len()..].split('/').next()?;
    // The user may remove this directory, and the path comes from the server, so it must look like a cache entry.
    let is_hash = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| format!("{}{CACHE}{name}", &line[begin..at]))
}

/// The lines of the last attempt: a server that is restarted ends with the same line each time.
fn last_attempt(lines: &[String]) -> &[String] {
    let Some((last, earlier)) = lines.split_last() else { return lines };
    let before = earlier.iter().rposition(|line| line == last).map_or(0, |at| at + 1);
    &lines[before..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::config::Config;
    use gripfast_gateway::api::types::EventView;
    use serde_json::json;
    use std::ffi::OsString;

    /// An environment with nothing in it but a PATH.
    struct OnlyPath(&'static str);

    impl Lookup for OnlyPath {
        fn variable(&self, name: &str) -> Option<OsString> {
            (name == "PATH").then(|| self.0.into())
        }

        fn file(&self, _path: &Path) -> std::io::Result<String> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }

    fn entry(table: &str) -> ServerEntry {
        let text = format!("[servers.a]\n{table}\n");
        Config::parse(&text, "gripfast.toml".as_ref()).unwrap().servers.remove(0)
    }

    fn seen(state: &str, cause: &str, stderr: &[&str]) -> DetailView {
        let cause = Some(cause).filter(|cause| !cause.is_empty());
        let sent = json!({ "name": "a", "state": state, "cause": cause, "since_ms": 30_000, "tools": 2, "stderr": stderr });
        serde_json::from_value(sent).unwrap()
    }

    fn talking(state: &str, cause: &str) -> DetailView {
        let text = "writes lines to stdout that are not MCP (1 so far): Listening".to_owned();
        let event = EventView { kind: JUNK_SKIPPED.into(), text, ..EventView::default() };
        DetailView { events: vec![event], ..seen(state, cause, &[]) }
    }

    fn diagnosis(
        table: &str,
        seen: &DetailView,
        by_gateway: bool,
        reach: Reachability,
        path: &'static str,
    ) -> String {
        let entry = entry(table);
        let case = ServerEvidence {
            name: "a",
            entry: Some(&entry),
            observed: Some(seen),
            by_gateway,
            reachability: reach,
        };
        let Diagnosis { ok, cause, step, evidence, .. } = case.diagnose(&OnlyPath(path));
        let step = step.unwrap_or_else(|| "nothing".to_owned());
        format!(
            "{}: {cause}\ndo: {step}\nseen: {}",
            if ok { "healthy" } else { "failing" },
            evidence.join(" / ")
        )
    }

    #[test]
    fn a_server_that_the_gateways_config_lacks_has_its_own_diagnosis() {
        let entry = entry("command = 'sh'");
        let case = ServerEvidence {
            name: "a",
            entry: Some(&entry),
            observed: None,
            by_gateway: true,
            reachability: Reachability::NotTried,
        };
        let Diagnosis { ok, cause, .. } = case.diagnose(&OnlyPath("/bin:/usr/bin"));
        assert!(!ok);
        assert_eq!(cause, "the gateway's config does not contain this server");
    }

    #[test]
    fn known_causes_have_their_own_diagnosis() {
        let command = "command = 'sh'";
        let url = "url = 'https://example.com/mcp'";
        let here = "/bin:/usr/bin";
        let no_name = Reachability::NoSuchName { host: "example.com".to_owned(), why: "unknown".to_owned() };
        let closed =
            Reachability::Closed { address: "example.com:443".to_owned(), why: "refused".to_owned() };
        let exited = "exited with code 1";
        let cases = [
            diagnosis(command, &seen("ready", "", &[]), true, Reachability::NotTried, ""),
            diagnosis(
                "command = 'npx'",
                &seen("config_error", "not found", &[]),
                true,
                Reachability::NotTried,
                "/nowhere",
            ),
            diagnosis(
                "command = 'uvx'",
                &seen("config_error", "", &[]),
                false,
                Reachability::NotTried,
                "/nowhere",
            ),
            diagnosis(
                "command = 'sh'\nenv = { T = '${env:T}' }",
                &seen("config_error", "", &[]),
                false,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                command,
                &seen("config_error", "command `sh` was not found", &[]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                command,
                &seen("parked", exited, &["Error: Cannot find module 'x'"]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                command,
                &seen("reconnecting", exited, &["listen EADDRINUSE :::3000"]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(command, &seen("parked", exited, &["what a day"]), true, Reachability::NotTried, here),
            diagnosis(command, &seen("starting", "", &["downloading"]), true, Reachability::NotTried, here),
            diagnosis(url, &seen("reconnecting", "no answer", &[]), true, no_name, here),
            diagnosis(url, &seen("reconnecting", "connection refused", &[]), true, closed.clone(), here),
            // An attempt is in progress.
            diagnosis(url, &seen("starting", "connection refused", &[]), true, closed, here),
            diagnosis(
                command,
                &seen("starting", exited, &["what a day"]),
                true,
                Reachability::NotTried,
                here,
            ),
            // Reached through a proxy, so it was not probed.
            diagnosis(
                url,
                &seen("starting", "its name does not resolve: Name or service not known", &[]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                url,
                &seen("config_error", "no MCP server at this URL: HTTP 404", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                url,
                &seen("reconnecting", "TLS failed: its certificate is for another name", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                url,
                &seen("reconnecting", "TLS failed: the peer does not speak TLS", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                url,
                &seen("reconnecting", "TLS failed: its certificate has expired", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                "url = 'http://example.com/mcp'",
                &seen("reconnecting", "the connection broke: reset", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                command,
                &seen("parked", exited, &["docker: Cannot connect to the Docker daemon at unix:///x."]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                "command = 'sh'\nargs = ['/nowhere/server.py']",
                &seen("parked", exited, &["what a day"]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                command,
                &seen("reconnecting", "no answer within 30 s", &[]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                command,
                &seen("reconnecting", "no answer within 30 s", &["listen EADDRINUSE :::3000"]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(command, &talking("starting", ""), true, Reachability::NotTried, here),
            diagnosis(
                command,
                &talking("reconnecting", "no answer within 30 s"),
                true,
                Reachability::NotTried,
                here,
            ),
            // It logs to stdout, and then something else fails.
            diagnosis(command, &talking("parked", exited), true, Reachability::NotTried, here),
            diagnosis(command, &seen("parked", "exited (code 0)", &[]), true, Reachability::NotTried, here),
            diagnosis(url, &seen("needs_login", "HTTP 401", &[]), true, Reachability::Open, here),
            diagnosis(
                url,
                &seen("needs_login", "the login has expired", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                command,
                &seen("parked", exited, &["npm error code E404"]),
                false,
                Reachability::NotTried,
                here,
            ),
            diagnosis(command, &seen("stopped", "", &[]), true, Reachability::NotTried, here),
            diagnosis(
                command,
                &seen(
                    "parked",
                    exited,
                    &[
                        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/me/.npm/_npx/a32/node_modules/x/i.js",
                    ],
                ),
                true,
                Reachability::NotTried,
                here,
            ),
            // The server creates this file itself.
            diagnosis(
                "command = 'env'\nargs = ['-y', 'memory', '--db', '/nowhere/memory.db']",
                &seen("parked", exited, &["what a day"]),
                true,
                Reachability::NotTried,
                "/bin:/usr/bin",
            ),
            diagnosis(
                "command = 'sh'\nargs = ['-c', 'x', '/nowhere/in.db']",
                &seen("parked", exited, &["Error: ENOENT: no such file or directory, open '/nowhere/in.db'"]),
                true,
                Reachability::NotTried,
                here,
            ),
            diagnosis(
                url,
                &seen("config_error", "no MCP server at this URL: HTTP 405", &[]),
                true,
                Reachability::Open,
                here,
            ),
            diagnosis(
                url,
                &seen("reconnecting", "HTTP 502: bad gateway", &[]),
                true,
                Reachability::Open,
                here,
            ),
            // Reached through a proxy, and the cause is unknown.
            diagnosis(url, &seen("reconnecting", "it hung up", &[]), true, Reachability::NotTried, here),
            diagnosis(
                "url = 'https://example.com/mcp'\nheaders = { Authorization = 'Bearer ${HOME:-x}' }",
                &seen("needs_login", "HTTP 401", &[]),
                true,
                Reachability::Open,
                here,
            ),
            // It wrote this before its last answer.
            diagnosis(
                command,
                &DetailView {
                    stderr_since_answer: 0,
                    ..seen("parked", "was killed (signal 9)", &["listen EADDRINUSE :::3000"])
                },
                true,
                Reachability::NotTried,
                here,
            ),
        ];
        insta::assert_snapshot!(cases.join("\n\n"), @r#"
        healthy: ready, 2 tools
        do: nothing
        seen: 

        failing: command `npx` is not on the PATH
        do: install Node.js, which brings `npx`, or write the full path as `command`
        seen: 

        failing: command `uvx` is not on the PATH
        do: install uv, which brings `uvx`, or write the full path as `command`
        seen: 

        failing: environment variable `T` is not set
        do: set it for the gripfast process, or write a default: `${env:T:-…}`
        seen: 

        failing: command `sh` was not found; this shell finds it, so the gateway has another environment
        do: set `command = "/bin/sh"`, or start the gateway with the PATH of this shell
        seen: 

        failing: a module that it needs is not installed
        do: install it where the command looks for it, or correct `args`
        seen: exited with code 1 / Error: Cannot find module 'x'

        failing: its port is already in use
        do: stop the program that uses it (an older instance?), or set another port in `args` or `env`
        seen: exited with code 1 / listen EADDRINUSE :::3000

        failing: exited with code 1
        do: unknown cause; `gripfast logs a` shows its full stderr
        seen: what a day

        failing: it has been starting for 30 s
        do: `gripfast logs a -f` shows its stderr; if it only needs more time, raise its `timeouts.connect_max`
        seen: downloading

        failing: the host name `example.com` does not resolve (unknown)
        do: correct the host in `url`, or check this machine's DNS
        seen: 

        failing: cannot connect to example.com:443 (refused)
        do: start the server, or correct host and port in `url`
        seen: 

        failing: cannot connect to example.com:443 (refused)
        do: start the server, or correct host and port in `url`
        seen: 

        failing: exited with code 1
        do: unknown cause; `gripfast logs a` shows its full stderr
        seen: what a day

        failing: its name does not resolve: Name or service not known
        do: correct the host in `url`, or check this machine's DNS or proxy
        seen: 

        failing: the path of its `url` does not exist (HTTP 404)
        do: correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`
        seen: no MCP server at this URL: HTTP 404

        failing: TLS failed: its certificate is for another name
        do: set `ca_file` to its certificate authority or certificate, set `client_cert` if it asks for a client certificate, or correct the host in `url`
        seen: 

        failing: TLS failed: the peer does not speak TLS
        do: change `url` to `http://`, or correct its port
        seen: 

        failing: TLS failed: its certificate has expired
        do: ask the operator of the server to renew it; if it is valid, correct the clock of this machine
        seen: 

        failing: the connection broke: reset
        do: change `url` to `https://` if the server uses TLS, or compare it with the server's documentation
        seen: 

        failing: the Docker daemon is not running, or access is denied
        do: start Docker, or check the permissions of its socket
        seen: exited with code 1 / docker: Cannot connect to the Docker daemon at unix:///x.

        failing: `/nowhere/server.py` in its `args` does not exist
        do: correct the path in `args`, or create the file
        seen: exited with code 1 / what a day

        failing: no answer within 30 s
        do: if it only needs more time to start, raise its `timeouts.connect_max`
        seen: 

        failing: its port is already in use
        do: stop the program that uses it (an older instance?), or set another port in `args` or `env`
        seen: no answer within 30 s / listen EADDRINUSE :::3000

        failing: it writes lines to stdout that are not MCP (1 so far): Listening
        do: make it log to stderr, by a flag in `args` or a variable in `env`: stdout is for MCP messages only
        seen: 

        failing: it writes lines to stdout that are not MCP (1 so far): Listening
        do: make it log to stderr, by a flag in `args` or a variable in `env`: stdout is for MCP messages only
        seen: no answer within 30 s

        failing: exited with code 1
        do: unknown cause, and nothing on stderr; run its command by hand in a terminal
        seen: 

        failing: exited (code 0)
        do: unknown cause, and nothing on stderr; run its command by hand in a terminal
        seen: 

        failing: a login is needed (HTTP 401)
        do: run `gripfast login a`, or set a token in its `headers`
        seen: 

        failing: the login has expired
        do: run `gripfast login a`, or set a token in its `headers`
        seen: 

        failing: its package does not exist
        do: correct the package name in `args`
        seen: exited with code 1 / npm error code E404

        failing: stopped with `gripfast stop`
        do: `gripfast start a` starts it
        seen: 

        failing: its package in the npx cache is incomplete
        do: remove `/home/me/.npm/_npx/a32`; npx then downloads it again
        seen: exited with code 1 / Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/me/.npm/_npx/a32/node_modules/x/i.js

        failing: exited with code 1
        do: unknown cause; `gripfast logs a` shows its full stderr
        seen: what a day

        failing: `/nowhere/in.db` in its `args` does not exist
        do: correct the path in `args`, or create the file
        seen: exited with code 1 / Error: ENOENT: no such file or directory, open '/nowhere/in.db'

        failing: its `url` does not accept MCP requests (HTTP 405)
        do: correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`
        seen: no MCP server at this URL: HTTP 405

        failing: the server reports an internal error (HTTP 502: bad gateway)
        do: look at the log of the server, or try again later
        seen: 

        failing: it hung up
        do: unknown cause; look at the log of the server
        seen: 

        failing: the server refuses the `Authorization` header of the config (HTTP 401)
        do: set a valid token in its `headers`
        seen: 

        failing: was killed (signal 9)
        do: another process killed it; the kernel does that when memory runs out, and its log shows it
        seen:
        "#);
    }
}
