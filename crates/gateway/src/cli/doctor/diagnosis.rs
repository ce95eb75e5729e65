//! From the evidence about one server to its cause and the one thing to do. Everything that was to be tried has
//! been tried.

use super::reach::Reach;
use crate::cli::import::absolute;
use crate::cli::stop::Failure;
use crate::cli::surroundings;
use gripfast::config::{Lookup, ServerEntry, ServerSpec, Target, Template};
use gripfast::symptoms::{Symptom, symptom};
use gripfast::{ServerStatus, State, UpstreamEvent};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Starting takes longer than this only when something is downloaded or waited for.
const SLOW_MS: u64 = 10_000;
/// The kind of event that tells of lines on stdout that are no messages.
const JUNK: &str = "junk_skipped";
/// Stands in the place of a server's name where something is said about the gateway itself.
const GATEWAY: &str = "(gateway)";
/// The last words of a server that are shown.
const LAST_WORDS: usize = 5;

/// What is known about one server.
pub(super) struct Case<'c> {
    pub(super) name: &'c str,
    /// What the config says, if there is one here and it knows the server.
    pub(super) entry: Option<&'c ServerEntry>,
    /// What it did, as far as somebody saw it.
    pub(super) seen: Option<&'c Seen>,
    /// Whether it was the gateway that saw it, in its own environment.
    pub(super) by_gateway: bool,
    pub(super) reach: Reach,
}

/// What a server did.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Seen {
    state: String,
    cause: Option<String>,
    #[serde(default)]
    since_ms: u64,
    #[serde(default)]
    tools: u64,
    #[serde(default)]
    stderr: Vec<String>,
    /// How many of the lines of `stderr` came after its last answer; an older gateway does not say.
    stderr_since_answer: Option<usize>,
    #[serde(default)]
    events: Vec<Happened>,
}

/// Something that happened to it.
#[derive(Debug, Deserialize)]
struct Happened {
    kind: String,
    text: String,
}

/// What is the matter with one server. The fields are the shape of `-o json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Diagnosis {
    pub(super) server: String,
    pub(super) ok: bool,
    pub(super) cause: String,
    #[serde(rename = "do")]
    pub(super) step: Option<String>,
    pub(super) evidence: Vec<String>,
}

impl Seen {
    /// What came of starting a server. One that has said what it offers works, also where its status is a moment
    /// behind.
    pub(super) fn of_start(status: &ServerStatus, listed: bool) -> Self {
        let state = match status.supervision.state {
            State::Starting if listed => State::Ready,
            state => state,
        };
        Self {
            state: state.word().to_owned(),
            cause: status.supervision.cause.clone(),
            since_ms: u64::try_from(status.supervision.for_how_long.as_millis()).unwrap_or(u64::MAX),
            tools: status.tools as u64,
            stderr: status.stderr.clone(),
            stderr_since_answer: Some(status.stderr_since_answer),
            events: status.events.iter().map(Happened::from).collect(),
        }
    }

    /// The lines that it wrote to stderr since its last answer. Older ones are about something else.
    fn last_lines(&self) -> &[String] {
        let count = self.stderr_since_answer.unwrap_or(self.stderr.len()).min(self.stderr.len());
        &self.stderr[self.stderr.len() - count..]
    }

    /// What it wrote where only messages may stand, as it was told.
    fn junk(&self) -> Option<&str> {
        let told = self.events.iter().rev().find(|happened| happened.kind == JUNK)?;
        Some(&told.text)
    }
}

impl From<&UpstreamEvent> for Happened {
    fn from(told: &UpstreamEvent) -> Self {
        Self { kind: told.event.word().to_owned(), text: told.event.to_string() }
    }
}

impl Diagnosis {
    /// Another program has the port of the gateway.
    pub(super) fn of_the_gateway(failure: &Failure) -> Self {
        Self {
            server: GATEWAY.to_owned(),
            ok: false,
            cause: failure.text.clone(),
            step: Some("let `gateway.listen` name another port, or end what listens there".to_owned()),
            evidence: Vec::new(),
        }
    }

    /// No gateway runs, which is fine while servers are looked at one by one.
    pub(super) fn of_no_gateway(address: &str) -> Self {
        Self {
            server: GATEWAY.to_owned(),
            ok: true,
            cause: format!(
                "does not run: nothing listens at {address}; the servers were started for a moment"
            ),
            step: Some("`gripfast serve` starts it".to_owned()),
            evidence: Vec::new(),
        }
    }

    /// The gateway uses another config than the one that is found here, which may have servers that it lacks.
    pub(super) fn of_another_config(used: &Path, unused: Option<(&Path, usize)>) -> Self {
        let used = used.display();
        let (ok, cause, step) = match unused {
            None | Some((_, 0)) => (true, format!("runs with `{used}`"), None),
            Some((here, _)) => {
                let here = absolute(here);
                let step =
                    format!("edit `{used}`, or end the gateway and run `gripfast serve --config {here}`");
                (false, format!("runs with `{used}`, so `{here}` is not in use"), Some(step))
            }
        };
        Self { server: GATEWAY.to_owned(), ok, cause, step, evidence: Vec::new() }
    }
}

impl Case<'_> {
    /// The diagnosis, with the variables that an ill server does not get and looks as if it needed.
    pub(super) fn diagnosed(&self, lookup: &dyn Lookup) -> Diagnosis {
        let mut diagnosis = self.diagnosed_by_state(lookup);
        let spec = self.entry.and_then(|entry| entry.spec.as_ref().ok()).filter(|_| !diagnosis.ok);
        let dropped = spec.and_then(|spec| surroundings::dropped(self.name, &spec.target, lookup));
        diagnosis.evidence.extend(dropped.map(|(message, hint)| format!("{message}; {hint}")));
        diagnosis
    }

    fn diagnosed_by_state(&self, lookup: &dyn Lookup) -> Diagnosis {
        let spec = match self.entry.map(|entry| &entry.spec) {
            Some(Err(findings)) => {
                let cause = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                return self.ill(cause, "`gripfast check` shows the place in the config");
            }
            Some(Ok(spec)) if spec.disabled => return self.well("disabled in the config"),
            Some(Ok(spec)) => Some(spec),
            None => None,
        };
        let missing = spec.map(|spec| surroundings::missing(spec, lookup)).unwrap_or_default();
        let state = self.seen.map_or("", |seen| seen.state.as_str());
        match (state, missing.first()) {
            // The gateway may have what this shell lacks.
            ("ready", _) => self.ready(),
            ("idle", None) => self.well("idle, starts on first use"),
            (_, Some(first)) => {
                let causes: Vec<&str> = missing.iter().map(|missing| missing.message.as_str()).collect();
                // What it did without them is a consequence.
                Diagnosis { evidence: Vec::new(), ..self.ill(causes.join("; "), first.hint.clone()) }
            }
            ("needs_login", None) => self.without_login(spec),
            ("needs_approval", None) => self.ill(
                "tools have changed since they were approved",
                format!("`gripfast pins diff {}` shows how", self.name),
            ),
            ("stopped", None) => self.ill(
                "it was stopped by `gripfast stop`",
                format!("`gripfast start {}` brings it back", self.name),
            ),
            ("disabled", None) => self.well("disabled in the config of the gateway"),
            // One that has failed before is more than slow.
            ("starting", None) if self.seen.is_some_and(|seen| seen.cause.is_none()) => self.starting(),
            ("config_error", None) if self.by_gateway && self.is_command(spec) => {
                self.elsewhere(spec, lookup)
            }
            (_, None) if self.by_gateway && self.seen.is_none() => self.ill(
                "the config that the gateway uses does not have it",
                "`gripfast status` shows what the gateway has; with `--config`, doctor does without it",
            ),
            (_, None) => self.outside(),
        }
    }

    fn ready(&self) -> Diagnosis {
        let tools = self.seen.map_or(0, |seen| seen.tools);
        self.well(match tools {
            0 => "ready, and offers no tools".to_owned(),
            1 => "ready, 1 tool".to_owned(),
            tools => format!("ready, {tools} tools"),
        })
    }

    fn starting(&self) -> Diagnosis {
        let since = self.seen.map_or(0, |seen| seen.since_ms);
        let step = if !self.by_gateway {
            format!("give it longer, it may be installing itself: `gripfast doctor {} --wait 1m`", self.name)
        } else if since < SLOW_MS {
            "look again in a few seconds".to_owned()
        } else {
            format!(
                "`gripfast logs {} -f` shows what it does; if it only needs longer, raise its `timeouts.connect_max`",
                self.name
            )
        };
        match self.named().or_else(|| self.talks_on_stdout()) {
            Some((cause, step)) => self.ill(cause, step),
            None => self.ill(format!("it has been starting for {} s", since / 1000), step),
        }
    }

    /// It is configured rightly as seen from here, and wrongly as the gateway sees it.
    fn elsewhere(&self, spec: Option<&ServerSpec>, lookup: &dyn Lookup) -> Diagnosis {
        let cause = format!(
            "{}; it is there for this shell, so their environments differ",
            self.cause("the gateway cannot start it")
        );
        let lacks_command = self
            .seen
            .is_none_or(|seen| seen.cause.as_deref().is_none_or(|cause| cause.starts_with("command ")));
        let place = spec.filter(|_| lacks_command).and_then(|spec| match &spec.target {
            Target::Stdio { command, .. } => surroundings::place_of(command, lookup),
            Target::Url { .. } => None,
        });
        self.ill(
            cause,
            match place {
                Some(place) => {
                    format!(
                        "write `command = \"{}\"`, or start the gateway with the PATH of this shell",
                        place.display()
                    )
                }
                None => "start the gateway with the environment of this shell".to_owned(),
            },
        )
    }

    /// The server refuses the credential, or has got none.
    fn without_login(&self, spec: Option<&ServerSpec>) -> Diagnosis {
        let sends_token = spec.is_some_and(|spec| match &spec.target {
            Target::Url { headers, .. } => {
                headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            }
            Target::Stdio { .. } => false,
        });
        let said = self.cause("it wants a login");
        if sends_token {
            return self.ill(
                format!("the server refuses the `Authorization` of its `headers` ({said})"),
                "write a token there that the server takes",
            );
        }
        let step = format!("run `gripfast login {}`, or write a token into its `headers`", self.name);
        self.ill(
            if said.contains("HTTP 401") { "it wants a login (HTTP 401)".to_owned() } else { said },
            step,
        )
    }

    /// What the network and the server itself say.
    fn outside(&self) -> Diagnosis {
        let refused = match &self.reach {
            Reach::NoSuchName { host, why } => Some((
                format!("the name `{host}` is not known ({why})"),
                "correct the host in `url`, or the machine's DNS".to_owned(),
            )),
            Reach::Closed { address, why } => Some((
                format!("nothing listens at {address} ({why})"),
                "start the server, or correct host and port in `url`".to_owned(),
            )),
            Reach::NotTried | Reach::Open => None,
        };
        if let Some((cause, step)) = refused {
            // What the server's link says about it is a consequence.
            return Diagnosis { evidence: Vec::new(), ..self.ill(cause, step) };
        }
        let known = self.without_its_file().or_else(|| self.named()).or_else(|| self.answers_otherwise());
        if let Some((cause, step)) = known {
            return self.ill(cause, step);
        }
        let said_something = self.seen.is_some_and(|seen| !seen.last_lines().is_empty());
        let step = if self.entry.is_none() {
            format!("the reason is not known; `gripfast status {}` shows what is", self.name)
        } else if self.has_address() {
            "the reason is not known; the log of the server may have it".to_owned()
        } else if self.cause("").contains("(signal 9)") {
            "another program ended it; the kernel does that when memory runs out, and its log says so"
                .to_owned()
        } else if !said_something {
            "the reason is not known, and it wrote nothing to stderr: start its command by hand in a terminal"
                .to_owned()
        } else if self.by_gateway {
            format!("it says no more about the reason; `gripfast logs {}` shows all that it wrote", self.name)
        } else {
            "it says no more about the reason; start its command by hand in a terminal".to_owned()
        };
        self.ill(self.cause("it is not ready"), step)
    }

    /// Something answers at its URL, and not as an MCP server that works.
    fn answers_otherwise(&self) -> Option<(String, String)> {
        let said = self.seen?.cause.as_deref().filter(|_| self.has_address() || self.entry.is_none())?;
        let path = "correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`";
        let (cause, step) = if said.starts_with("no MCP server at this URL: HTTP 404") {
            ("nothing is at the path of its `url` (HTTP 404)".to_owned(), path)
        } else if said.starts_with("no MCP server at this URL: HTTP 405") {
            ("what is at its `url` takes no MCP requests (HTTP 405)".to_owned(), path)
        } else if said.starts_with("does not speak MCP") && said.contains("`text/html`") {
            ("a web page is at its `url`, and no MCP server".to_owned(), path)
        } else if said.starts_with("no MCP server at this URL") || said.starts_with("does not speak MCP") {
            (said.to_owned(), "compare `url` with the server's documentation")
        } else if said.starts_with("HTTP 5") {
            (format!("the server itself fails ({said})"), "look at the log of the server, or try again later")
        } else {
            return None;
        };
        Some((cause, step.to_owned()))
    }

    /// A server that logs to stdout is not understood for as long as it does nothing else there.
    fn talks_on_stdout(&self) -> Option<(String, String)> {
        let told = self.seen?.junk()?;
        let step = "have it write its log to stderr, by a flag in `args` or a variable in `env`: stdout is for messages \
                    alone";
        Some((format!("it {told}"), step.to_owned()))
    }

    /// A file that its arguments name and that is not there, if the server says so or it is the program to run. Another
    /// path may be one that the server makes itself.
    fn without_its_file(&self) -> Option<(String, String)> {
        const INTERPRETERS: &[&str] = &["python", "python3", "node", "deno", "bun", "ruby", "sh", "bash"];
        let Target::Stdio { command, args, .. } = &self.entry?.spec.as_ref().ok()?.target else {
            return None;
        };
        let plain = |template: &'_ Template| template.references().next().is_none();
        let program = Path::new(command.source()).file_stem().and_then(|stem| stem.to_str());
        let runs_first = program.is_some_and(|program| INTERPRETERS.contains(&program));
        let seen = self.seen?;
        let said = seen.last_lines().iter().chain(&seen.cause);
        let is_named = |path: &str| {
            said.clone().any(|line| line.contains(path) && symptom(std::iter::once(line.as_str())).is_some())
        };
        let missing = args.iter().enumerate().find_map(|(at, arg)| {
            let path = arg.source();
            let is_gone = plain(arg) && Path::new(path).is_absolute() && !Path::new(path).exists();
            (is_gone && ((at == 0 && runs_first) || is_named(path))).then_some(path)
        })?;
        Some((
            format!("`{missing}`, which its `args` name, does not exist"),
            "correct the path in `args`, or put there what belongs there".to_owned(),
        ))
    }

    /// A cause that the server's own last words name, or what was noticed about it.
    fn named(&self) -> Option<(String, String)> {
        let seen = self.seen?;
        let (stderr, cause) = (seen.last_lines(), &seen.cause);
        let said = match symptom(stderr.iter().chain(cause).map(String::as_str))? {
            // That it took too long is no reason; it may have given one.
            Symptom::Slow => symptom(stderr.iter().map(String::as_str)).unwrap_or(Symptom::Slow),
            said => said,
        };
        if said == Symptom::MissingModule
            && let Some(copy) = npx_copy(stderr)
        {
            let step = format!("remove `{copy}`, and npx downloads it again");
            return Some(("the copy of it that npx has downloaded is incomplete".to_owned(), step));
        }
        let (cause, step) = match said {
            Symptom::Slow => {
                return self.talks_on_stdout().or_else(|| {
                    let step = match self.installs_itself() {
                        true => "it may be installing itself: run its command once by hand, or raise its `timeouts.connect_max`",
                        false => "raise its `timeouts.connect_max` if it only needs longer to start",
                    };
                    Some((self.cause("it does not answer in time"), step.to_owned()))
                });
            }
            Symptom::NotTls => {
                let step = "begin `url` with `http://`, or correct its port";
                return Some((self.cause("it does not speak TLS"), step.to_owned()));
            }
            Symptom::ExpiredCertificate => {
                let step = "have whoever runs the server renew it; if it is good, the clock of this machine is wrong";
                return Some((self.cause("its certificate has expired"), step.to_owned()));
            }
            Symptom::BrokeOff => {
                let step = "begin `url` with `https://` if it speaks TLS, or compare it with the server's documentation: \
                            somebody hangs up there";
                return Some((self.cause("it hangs up"), step.to_owned())).filter(|_| self.has_address());
            }
            Symptom::NoDaemon => (
                "the Docker daemon does not run, or may not be used",
                "start Docker, or look at the rights of its socket",
            ),
            Symptom::Tls => {
                let step = "name its authority, or the certificate itself, in `ca_file`; a certificate of yours in \
                            `client_cert` if it wants one; or correct the host in `url`";
                return Some((self.cause("TLS failed"), step.to_owned()));
            }
            Symptom::MissingModule => (
                "something that it needs is not installed",
                "install it where the command looks for it, or correct `args`",
            ),
            Symptom::NoSuchPackage => {
                ("the package that it should run does not exist", "correct the package's name in `args`")
            }
            Symptom::PortTaken => (
                "it wants a port that is taken",
                "end what listens there (an older instance?), or give it another port in `args` or `env`",
            ),
            Symptom::NotAllowed => (
                "it may not use a file that it wants to use",
                "look at the rights of the file that it names, or at `cwd`",
            ),
            Symptom::NoSuchFile => (
                "a file or directory that it wants to use does not exist",
                "correct the path that it names, in `args`, `env` or `cwd`",
            ),
            Symptom::Credential => {
                ("it misses a credential, or has a wrong one", "set the variable that it names in its `env`")
            }
            Symptom::NoSuchHost if self.has_address() => {
                let step = "correct the host in `url`, or look at this machine's DNS or proxy";
                return Some((self.cause("its name is not known"), step.to_owned()));
            }
            Symptom::NoSuchHost => (
                "it cannot find a host by its name",
                "look at this machine's network, or at a URL in its `env` or `args`",
            ),
            Symptom::Certificate => (
                "it does not trust a certificate",
                "name your certificate authority in its `env`: NODE_EXTRA_CA_CERTS, SSL_CERT_FILE",
            ),
            Symptom::OldRuntime => ("its runtime is too old", "install a newer Node.js or Python"),
            Symptom::Usage => ("it wants other arguments", "compare `args` with its usage below"),
        };
        Some((cause.to_owned(), step.to_owned()))
    }

    /// Whether its command may download the server first.
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

    fn has_address(&self) -> bool {
        let spec = self.entry.and_then(|entry| entry.spec.as_ref().ok());
        spec.is_some_and(|spec| matches!(spec.target, Target::Url { .. }))
    }

    fn is_command(&self, spec: Option<&ServerSpec>) -> bool {
        spec.is_some_and(|spec| matches!(spec.target, Target::Stdio { .. }))
    }

    fn cause(&self, otherwise: &str) -> String {
        self.seen.and_then(|seen| seen.cause.clone()).unwrap_or_else(|| otherwise.to_owned())
    }

    fn well(&self, cause: impl Into<String>) -> Diagnosis {
        Diagnosis {
            server: self.name.to_owned(),
            ok: true,
            cause: cause.into(),
            step: None,
            evidence: Vec::new(),
        }
    }

    fn ill(&self, cause: impl Into<String>, step: impl Into<String>) -> Diagnosis {
        let cause = cause.into();
        let seen = self.seen;
        let said = seen.and_then(|seen| seen.cause.clone()).filter(|said| !cause.contains(said.as_str()));
        let words = seen.map(Seen::last_lines).unwrap_or_default();
        let words = last_attempt(&words[words.len().saturating_sub(LAST_WORDS)..]);
        let quoted = format!("{cause}\n{}", said.as_deref().unwrap_or_default());
        let is_new = |line: &&String| !line.trim().is_empty() && !quoted.contains(line.trim());
        let evidence = said.into_iter().chain(words.iter().filter(is_new).cloned()).collect();
        Diagnosis { server: self.name.to_owned(), ok: false, cause, step: Some(step.into()), evidence }
    }
}

/// The directory in which npx has a package from which something is missing.
fn npx_copy(lines: &[String]) -> Option<String> {
    const CACHE: &str = "/.npm/_npx/";
    let line = lines.iter().find(|line| line.contains("Cannot find") && line.contains(CACHE))?;
    let at = line.find(CACHE)?;
    let begin = line[..at].rfind([' ', '\'', '"', '(']).map_or(0, |space| space + 1);
    let name = line[at + CACHE.len()..].split('/').next()?;
    // A person may remove what is named here, and a server wrote it.
    let is_hash = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| format!("{}{CACHE}{name}", &line[begin..at]))
}

/// The lines of the last attempt: a server that is started again ends with the same line again.
fn last_attempt(lines: &[String]) -> &[String] {
    let Some((last, earlier)) = lines.split_last() else { return lines };
    let before = earlier.iter().rposition(|line| line == last).map_or(0, |at| at + 1);
    &lines[before..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::config::Config;
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

    fn seen(state: &str, cause: &str, stderr: &[&str]) -> Seen {
        Seen {
            state: state.to_owned(),
            cause: Some(cause.to_owned()).filter(|cause| !cause.is_empty()),
            since_ms: 30_000,
            tools: 2,
            stderr: stderr.iter().map(|line| (*line).to_owned()).collect(),
            stderr_since_answer: None,
            events: Vec::new(),
        }
    }

    fn talking(state: &str, cause: &str) -> Seen {
        let text = "writes lines to stdout that are not MCP (1 so far): Listening".to_owned();
        Seen { events: vec![Happened { kind: JUNK.to_owned(), text }], ..seen(state, cause, &[]) }
    }

    fn told(table: &str, seen: &Seen, by_gateway: bool, reach: Reach, path: &'static str) -> String {
        let entry = entry(table);
        let case = Case { name: "a", entry: Some(&entry), seen: Some(seen), by_gateway, reach };
        let Diagnosis { ok, cause, step, evidence, .. } = case.diagnosed(&OnlyPath(path));
        let step = step.unwrap_or_else(|| "nothing".to_owned());
        format!("{}: {cause}\ndo: {step}\nseen: {}", if ok { "well" } else { "ill" }, evidence.join(" / "))
    }

    #[test]
    fn a_gateway_that_goes_by_another_config_is_told_from_a_server_that_fails() {
        let entry = entry("command = 'sh'");
        let case =
            Case { name: "a", entry: Some(&entry), seen: None, by_gateway: true, reach: Reach::NotTried };
        let Diagnosis { ok, cause, .. } = case.diagnosed(&OnlyPath("/bin:/usr/bin"));
        assert!(!ok);
        assert_eq!(cause, "the config that the gateway uses does not have it");
    }

    #[test]
    fn known_causes_have_their_own_words() {
        let command = "command = 'sh'";
        let url = "url = 'https://example.com/mcp'";
        let here = "/bin:/usr/bin";
        let no_name = Reach::NoSuchName { host: "example.com".to_owned(), why: "unknown".to_owned() };
        let closed = Reach::Closed { address: "example.com:443".to_owned(), why: "refused".to_owned() };
        let exited = "exited with code 1";
        let cases = [
            told(command, &seen("ready", "", &[]), true, Reach::NotTried, ""),
            told(
                "command = 'npx'",
                &seen("config_error", "not found", &[]),
                true,
                Reach::NotTried,
                "/nowhere",
            ),
            told("command = 'uvx'", &seen("config_error", "", &[]), false, Reach::NotTried, "/nowhere"),
            told(
                "command = 'sh'\nenv = { T = '${env:T}' }",
                &seen("config_error", "", &[]),
                false,
                Reach::NotTried,
                here,
            ),
            told(
                command,
                &seen("config_error", "command `sh` was not found", &[]),
                true,
                Reach::NotTried,
                here,
            ),
            told(
                command,
                &seen("parked", exited, &["Error: Cannot find module 'x'"]),
                true,
                Reach::NotTried,
                here,
            ),
            told(
                command,
                &seen("reconnecting", exited, &["listen EADDRINUSE :::3000"]),
                true,
                Reach::NotTried,
                here,
            ),
            told(command, &seen("parked", exited, &["what a day"]), true, Reach::NotTried, here),
            told(command, &seen("starting", "", &["downloading"]), true, Reach::NotTried, here),
            told(url, &seen("reconnecting", "no answer", &[]), true, no_name, here),
            told(url, &seen("reconnecting", "connection refused", &[]), true, closed.clone(), here),
            // It is being tried again at this very moment.
            told(url, &seen("starting", "connection refused", &[]), true, closed, here),
            told(command, &seen("starting", exited, &["what a day"]), true, Reach::NotTried, here),
            // A proxy leads there, so nobody tried from here.
            told(
                url,
                &seen("starting", "its name does not resolve: Name or service not known", &[]),
                true,
                Reach::NotTried,
                here,
            ),
            told(
                url,
                &seen("config_error", "no MCP server at this URL: HTTP 404", &[]),
                true,
                Reach::Open,
                here,
            ),
            told(
                url,
                &seen("reconnecting", "TLS failed: its certificate is for another name", &[]),
                true,
                Reach::Open,
                here,
            ),
            told(
                url,
                &seen("reconnecting", "TLS failed: what answers there does not speak TLS", &[]),
                true,
                Reach::Open,
                here,
            ),
            told(
                url,
                &seen("reconnecting", "TLS failed: its certificate has expired", &[]),
                true,
                Reach::Open,
                here,
            ),
            told(
                "url = 'http://example.com/mcp'",
                &seen("reconnecting", "the connection broke: reset", &[]),
                true,
                Reach::Open,
                here,
            ),
            told(
                command,
                &seen("parked", exited, &["docker: Cannot connect to the Docker daemon at unix:///x."]),
                true,
                Reach::NotTried,
                here,
            ),
            told(
                "command = 'sh'\nargs = ['/nowhere/server.py']",
                &seen("parked", exited, &["what a day"]),
                true,
                Reach::NotTried,
                here,
            ),
            told(command, &seen("reconnecting", "no answer within 30 s", &[]), true, Reach::NotTried, here),
            told(
                command,
                &seen("reconnecting", "no answer within 30 s", &["listen EADDRINUSE :::3000"]),
                true,
                Reach::NotTried,
                here,
            ),
            told(command, &talking("starting", ""), true, Reach::NotTried, here),
            told(command, &talking("reconnecting", "no answer within 30 s"), true, Reach::NotTried, here),
            // It greets, and then something else goes wrong.
            told(command, &talking("parked", exited), true, Reach::NotTried, here),
            told(command, &seen("parked", "exited (code 0)", &[]), true, Reach::NotTried, here),
            told(url, &seen("needs_login", "HTTP 401", &[]), true, Reach::Open, here),
            told(url, &seen("needs_login", "the login has expired", &[]), true, Reach::Open, here),
            told(command, &seen("parked", exited, &["npm error code E404"]), false, Reach::NotTried, here),
            told(command, &seen("stopped", "", &[]), true, Reach::NotTried, here),
            told(
                command,
                &seen(
                    "parked",
                    exited,
                    &[
                        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/me/.npm/_npx/a32/node_modules/x/i.js",
                    ],
                ),
                true,
                Reach::NotTried,
                here,
            ),
            // The server makes this file itself.
            told(
                "command = 'env'\nargs = ['-y', 'memory', '--db', '/nowhere/memory.db']",
                &seen("parked", exited, &["what a day"]),
                true,
                Reach::NotTried,
                "/bin:/usr/bin",
            ),
            told(
                "command = 'sh'\nargs = ['-c', 'x', '/nowhere/in.db']",
                &seen("parked", exited, &["Error: ENOENT: no such file or directory, open '/nowhere/in.db'"]),
                true,
                Reach::NotTried,
                here,
            ),
            told(
                url,
                &seen("config_error", "no MCP server at this URL: HTTP 405", &[]),
                true,
                Reach::Open,
                here,
            ),
            told(url, &seen("reconnecting", "HTTP 502: bad gateway", &[]), true, Reach::Open, here),
            // A proxy leads there, and nothing is known.
            told(url, &seen("reconnecting", "it hung up", &[]), true, Reach::NotTried, here),
            told(
                "url = 'https://example.com/mcp'\nheaders = { Authorization = 'Bearer ${HOME:-x}' }",
                &seen("needs_login", "HTTP 401", &[]),
                true,
                Reach::Open,
                here,
            ),
            // It wrote this before its last answer.
            told(
                command,
                &Seen {
                    stderr_since_answer: Some(0),
                    ..seen("parked", "was killed (signal 9)", &["listen EADDRINUSE :::3000"])
                },
                true,
                Reach::NotTried,
                here,
            ),
        ];
        insta::assert_snapshot!(cases.join("\n\n"), @r#"
        well: ready, 2 tools
        do: nothing
        seen: 

        ill: command `npx` is not on the PATH
        do: install Node.js, which brings `npx`, or write the full path as `command`
        seen: 

        ill: command `uvx` is not on the PATH
        do: install uv, which brings `uvx`, or write the full path as `command`
        seen: 

        ill: environment variable `T` is not set
        do: set it for the gripfast process, or write a default: `${env:T:-…}`
        seen: 

        ill: command `sh` was not found; it is there for this shell, so their environments differ
        do: write `command = "/bin/sh"`, or start the gateway with the PATH of this shell
        seen: 

        ill: something that it needs is not installed
        do: install it where the command looks for it, or correct `args`
        seen: exited with code 1 / Error: Cannot find module 'x'

        ill: it wants a port that is taken
        do: end what listens there (an older instance?), or give it another port in `args` or `env`
        seen: exited with code 1 / listen EADDRINUSE :::3000

        ill: exited with code 1
        do: it says no more about the reason; `gripfast logs a` shows all that it wrote
        seen: what a day

        ill: it has been starting for 30 s
        do: `gripfast logs a -f` shows what it does; if it only needs longer, raise its `timeouts.connect_max`
        seen: downloading

        ill: the name `example.com` is not known (unknown)
        do: correct the host in `url`, or the machine's DNS
        seen: 

        ill: nothing listens at example.com:443 (refused)
        do: start the server, or correct host and port in `url`
        seen: 

        ill: nothing listens at example.com:443 (refused)
        do: start the server, or correct host and port in `url`
        seen: 

        ill: exited with code 1
        do: it says no more about the reason; `gripfast logs a` shows all that it wrote
        seen: what a day

        ill: its name does not resolve: Name or service not known
        do: correct the host in `url`, or look at this machine's DNS or proxy
        seen: 

        ill: nothing is at the path of its `url` (HTTP 404)
        do: correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`
        seen: no MCP server at this URL: HTTP 404

        ill: TLS failed: its certificate is for another name
        do: name its authority, or the certificate itself, in `ca_file`; a certificate of yours in `client_cert` if it wants one; or correct the host in `url`
        seen: 

        ill: TLS failed: what answers there does not speak TLS
        do: begin `url` with `http://`, or correct its port
        seen: 

        ill: TLS failed: its certificate has expired
        do: have whoever runs the server renew it; if it is good, the clock of this machine is wrong
        seen: 

        ill: the connection broke: reset
        do: begin `url` with `https://` if it speaks TLS, or compare it with the server's documentation: somebody hangs up there
        seen: 

        ill: the Docker daemon does not run, or may not be used
        do: start Docker, or look at the rights of its socket
        seen: exited with code 1 / docker: Cannot connect to the Docker daemon at unix:///x.

        ill: `/nowhere/server.py`, which its `args` name, does not exist
        do: correct the path in `args`, or put there what belongs there
        seen: exited with code 1 / what a day

        ill: no answer within 30 s
        do: raise its `timeouts.connect_max` if it only needs longer to start
        seen: 

        ill: it wants a port that is taken
        do: end what listens there (an older instance?), or give it another port in `args` or `env`
        seen: no answer within 30 s / listen EADDRINUSE :::3000

        ill: it writes lines to stdout that are not MCP (1 so far): Listening
        do: have it write its log to stderr, by a flag in `args` or a variable in `env`: stdout is for messages alone
        seen: 

        ill: it writes lines to stdout that are not MCP (1 so far): Listening
        do: have it write its log to stderr, by a flag in `args` or a variable in `env`: stdout is for messages alone
        seen: no answer within 30 s

        ill: exited with code 1
        do: the reason is not known, and it wrote nothing to stderr: start its command by hand in a terminal
        seen: 

        ill: exited (code 0)
        do: the reason is not known, and it wrote nothing to stderr: start its command by hand in a terminal
        seen: 

        ill: it wants a login (HTTP 401)
        do: run `gripfast login a`, or write a token into its `headers`
        seen: 

        ill: the login has expired
        do: run `gripfast login a`, or write a token into its `headers`
        seen: 

        ill: the package that it should run does not exist
        do: correct the package's name in `args`
        seen: exited with code 1 / npm error code E404

        ill: it was stopped by `gripfast stop`
        do: `gripfast start a` brings it back
        seen: 

        ill: the copy of it that npx has downloaded is incomplete
        do: remove `/home/me/.npm/_npx/a32`, and npx downloads it again
        seen: exited with code 1 / Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/me/.npm/_npx/a32/node_modules/x/i.js

        ill: exited with code 1
        do: it says no more about the reason; `gripfast logs a` shows all that it wrote
        seen: what a day

        ill: `/nowhere/in.db`, which its `args` name, does not exist
        do: correct the path in `args`, or put there what belongs there
        seen: exited with code 1 / Error: ENOENT: no such file or directory, open '/nowhere/in.db'

        ill: what is at its `url` takes no MCP requests (HTTP 405)
        do: correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`
        seen: no MCP server at this URL: HTTP 405

        ill: the server itself fails (HTTP 502: bad gateway)
        do: look at the log of the server, or try again later
        seen: 

        ill: it hung up
        do: the reason is not known; the log of the server may have it
        seen: 

        ill: the server refuses the `Authorization` of its `headers` (HTTP 401)
        do: write a token there that the server takes
        seen: 

        ill: was killed (signal 9)
        do: another program ended it; the kernel does that when memory runs out, and its log says so
        seen:
        "#);
    }
}
