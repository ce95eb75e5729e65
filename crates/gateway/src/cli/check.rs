//! `gripfast check`: reads a config, looks at what it refers to, and says what is wrong. Starts nothing.

use super::args::{CheckArgs, Form, Global};
use super::config;
use super::config_trust;
use super::exit::Exit;
use super::render::{Screen, plural};
use super::stop::Stop;
use super::surroundings;
use gripfast::config::{
    Config, ConfigError, ConfigText, Diagnostic, Position, ProcessEnvironment, ServerEntry, ServerSpec,
    SettingFrom, Severity, Target, UrlTransport,
};
use gripfast::private_files::{self, StrictModes, UnsafeFile};
use gripfast::transport::Environment;
use gripfast_gateway::tls::{self, BadCertificate};
use serde::Serialize;
use std::error::Error;
use std::path::Path;

/// What was found, in the shape that `-o json` prints.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    ok: bool,
    servers: Vec<Server>,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Server {
    name: String,
    /// `None` when the config does not tell.
    transport: Option<&'static str>,
    disabled: bool,
    ok: bool,
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: &'static str,
    /// `None` for the file as a whole.
    server: Option<String>,
    key: String,
    line: usize,
    column: usize,
    message: String,
    hint: Option<String>,
    #[serde(skip)]
    rendered: String,
}

/// Checks the file and says what is wrong with it.
pub(crate) fn run(global: &Global, args: &CheckArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let located = config::locate(args.file.as_deref().or(global.config.as_deref()));
    let file = located.map_err(|error| config::unusable(&error))?;
    let text = ConfigText::read(&file.path).map_err(|error| config::unusable(&error))?;
    let path = &file.path;
    // Whether it is trusted does not matter: it is read, and nothing that it names is run.
    let mut report = match text.parse() {
        Ok(config) => Report::of(path, &config, global.state_dir.as_deref()),
        Err(ConfigError::Invalid { diagnostics }) => {
            let findings = diagnostics.iter().map(|found| Finding::of(found, None)).collect();
            Report::new(path, Vec::new(), findings)
        }
        Err(error) => return Err(config::unusable(&error).into()),
    };
    if let Some(found) = text.problem() {
        let accepted = text.config(file.origin).is_ok();
        report = report.with(Finding::of_unsafe(path, "", Position::START, "config file", found, accepted));
    }
    for finding in &report.findings {
        screen.finding(&finding.rendered)?;
    }
    match args.output.form {
        Form::Text => screen.line(&report.summary())?,
        Form::Json => screen.json(&report)?,
    }
    if let Err(untrusted) = config_trust::require(&file, &text) {
        screen.hint(&format!(
            "{}; `gripfast trust {}` lets other verbs use it",
            untrusted.text,
            path.display()
        ))?;
    }
    Ok(if report.ok { Exit::Ok } else { Exit::ConfigInvalid })
}

impl Report {
    fn new(path: &Path, servers: Vec<Server>, findings: Vec<Finding>) -> Self {
        let ok = findings.iter().all(|finding| finding.severity != "error");
        Self { file: path.display().to_string(), ok, servers, findings }
    }

    fn of(path: &Path, config: &Config, state_dir: Option<&Path>) -> Self {
        let mut findings: Vec<Finding> =
            config.warnings.iter().map(|found| Finding::of(found, None)).collect();
        findings.extend(certificate(path, config));
        findings.extend(unsafe_files(path, config, state_dir));
        for entry in &config.servers {
            match &entry.spec {
                Ok(spec) if spec.disabled => {}
                Ok(spec) => findings.extend(outside(path, entry, spec)),
                Err(found) => findings.extend(found.iter().map(|found| Finding::of(found, Some(entry)))),
            }
        }
        Self::new(path, config.servers.iter().map(Server::of).collect(), findings)
    }

    /// The same with one finding more, before the others.
    fn with(mut self, finding: Finding) -> Self {
        self.ok &= finding.severity != "error";
        self.findings.insert(0, finding);
        self
    }

    /// One line: the verdict, and what there is.
    fn summary(&self) -> String {
        let count = |severity: &str| self.findings.iter().filter(|found| found.severity == severity).count();
        let mut verdict =
            if self.ok { "ok".to_owned() } else { format!("invalid, {}", plural(count("error"), "error")) };
        if count("warning") > 0 {
            verdict += &format!(", {}", plural(count("warning"), "warning"));
        }
        if self.servers.is_empty() && !self.ok {
            return verdict;
        }
        let kinds = ["stdio", "http", "sse"].map(|kind| {
            let of_this_kind =
                self.servers.iter().filter(|server| server.works() && server.transport == Some(kind));
            (of_this_kind.count(), kind)
        });
        let states = [
            (self.servers.iter().filter(|server| !server.ok).count(), "unusable"),
            (self.servers.iter().filter(|server| server.disabled).count(), "disabled"),
        ];
        let parts = kinds.into_iter().chain(states).filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        let details = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        format!("{verdict}: {}{details}", plural(self.servers.len(), "server"))
    }
}

impl Server {
    fn of(entry: &ServerEntry) -> Self {
        let spec = entry.spec.as_ref().ok();
        Self {
            name: entry.name.clone(),
            transport: spec.map(transport),
            disabled: spec.is_some_and(|spec| spec.disabled),
            ok: spec.is_some(),
        }
    }

    fn works(&self) -> bool {
        self.ok && !self.disabled
    }
}

fn transport(spec: &ServerSpec) -> &'static str {
    match &spec.target {
        Target::Stdio { .. } => "stdio",
        Target::Url { transport: UrlTransport::Auto | UrlTransport::Http, .. } => "http",
        Target::Url { transport: UrlTransport::Sse, .. } => "sse",
    }
}

impl Finding {
    fn of(found: &Diagnostic, entry: Option<&ServerEntry>) -> Self {
        Self {
            severity: match found.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            server: entry.map(|entry| entry.name.clone()),
            key: found.path.clone(),
            line: found.at.line,
            column: found.at.column,
            message: found.message.clone(),
            hint: found.hint.clone(),
            rendered: found.render(),
        }
    }

    /// One that the config itself does not know, laid out as its own are.
    fn laid_out(
        path: &Path,
        severity: &'static str,
        key: &str,
        at: Position,
        message: &str,
        hint: &str,
    ) -> Self {
        let Position { line, column } = at;
        let margin = " ".repeat(line.to_string().len());
        let about = if key.is_empty() { String::new() } else { format!(" ({key})") };
        let place = format!("{margin}--> {}:{line}:{column}{about}", path.display());
        let rendered = format!("{severity}: {message}\n{place}\n{margin} hint: {hint}");
        let (key, message, hint) = (key.to_owned(), message.to_owned(), Some(hint.to_owned()));
        Self { severity, server: None, key, line, column, message, hint, rendered }
    }

    /// A file that another user could have changed.
    fn of_unsafe(
        path: &Path,
        key: &str,
        at: Position,
        what: &str,
        found: &UnsafeFile,
        accepted: bool,
    ) -> Self {
        let severity = if accepted { "warning" } else { "error" };
        let hint = if accepted { found.remedy() } else { config::remedy(found) };
        Self::laid_out(path, severity, key, at, &format!("{what} {found}"), &hint)
    }
}

/// Files that another user could have changed, beside the config itself: the listener's keys, the state directory, and
/// the keys that servers are shown. `gripfast serve` refuses them unless `strict_modes` is off.
fn unsafe_files(path: &Path, config: &Config, typed: Option<&Path>) -> Vec<Finding> {
    let accepted = config.gateway.access.strict_modes == StrictModes::Off;
    let finding = |key: &str, at: Position, what: &str, found: &UnsafeFile| {
        Finding::of_unsafe(path, key, at, what, found, accepted)
    };
    let mut findings: Vec<Finding> = config::unsafe_keys(config)
        .iter()
        .map(|(key, found)| finding(key, place_of(config, key), "key file", found))
        .collect();
    let state_dir = typed.map(Path::to_owned).or_else(|| config.gateway.state_dir.clone());
    let state_dir = state_dir.or_else(config::platform_state_dir);
    if let Some(Err(found)) = state_dir.as_deref().map(private_files::judge_state_directory) {
        let key = "gateway.state_dir";
        findings.push(finding(key, place_of(config, key), "state directory", &found));
    }
    for entry in &config.servers {
        let Ok(ServerSpec { target: Target::Url { tls, .. }, .. }) = &entry.spec else { continue };
        let key = tls.client_key.as_ref().or(tls.client_cert.as_ref());
        let Some(file) = key.and_then(|key| surroundings::filled_in(key, &ProcessEnvironment)) else {
            continue;
        };
        let Ok(metadata) = std::fs::metadata(&file) else { continue };
        if let Err(found) = private_files::judge(Path::new(&file), &metadata) {
            let mut finding = finding("client_key", entry.at, "key file", &found);
            finding.server = Some(entry.name.clone());
            findings.push(finding);
        }
    }
    findings
}

/// Where a setting stands in the file, or the beginning of the file if it does not.
fn place_of(config: &Config, key: &str) -> Position {
    let setting = config.settings().into_iter().find(|setting| setting.path == key);
    match setting.map(|setting| setting.from) {
        Some(SettingFrom::File(at)) => at,
        Some(SettingFrom::Default) | None => Position::START,
    }
}

/// What is wrong with the certificate of the listener. One that is not there may be when the gateway starts; one that
/// is of no use is a mistake.
fn certificate(path: &Path, config: &Config) -> Option<Finding> {
    let access = &config.gateway.access;
    let bad = match tls::check(access.tls.as_ref()?, access.strict_modes) {
        // What others could have changed is told with all files of that kind.
        Err(BadCertificate::Unsafe(_)) => return None,
        Ok(Some(_)) if config::unsafe_keys(config).iter().any(|(key, _)| *key == "gateway.tls.key") => {
            return None;
        }
        Ok(None) => return None,
        Ok(Some(warning)) => {
            let key = "gateway.tls.key";
            let (message, hint) = warning.split_once("; ").unwrap_or((&warning, ""));
            return Some(Finding::laid_out(path, "warning", key, place_of(config, key), message, hint));
        }
        Err(bad) => bad,
    };
    let is_absent = matches!(bad, BadCertificate::Unreadable { .. });
    let key = match &bad {
        BadCertificate::Unsafe(_) => "key",
        BadCertificate::Unreadable { path, .. } if *path != config.gateway.access.tls.as_ref()?.cert => "key",
        BadCertificate::NoKey { .. } | BadCertificate::DoNotMatch { .. } => "key",
        BadCertificate::Unreadable { .. } | BadCertificate::NoCertificate { .. } => "cert",
    };
    let key = format!("gateway.tls.{key}");
    let severity = if is_absent { "warning" } else { "error" };
    let causes = std::iter::successors(bad.source(), |&cause| cause.source());
    let message = causes.fold(bad.to_string(), |text, cause| format!("{text}: {cause}"));
    let hint = "`gripfast serve` does not start without it";
    Some(Finding::laid_out(path, severity, &key, place_of(config, &key), &message, hint))
}

/// What a sound server misses outside the config, as warnings: it may be there when the gateway starts.
fn outside(path: &Path, entry: &ServerEntry, spec: &ServerSpec) -> Vec<Finding> {
    let Position { line, column } = entry.at;
    let name = &entry.name;
    let warn = |missing: surroundings::Missing| {
        let surroundings::Missing { key, message, hint } = missing;
        let message = format!("server `{name}` could not start: {message}");
        // Laid out as the config's own findings are; the key stands somewhere below the server's line.
        let margin = " ".repeat(line.to_string().len());
        let place = format!("{margin}--> {}:{line}:{column} (`{key}` of `{name}`)", path.display());
        let rendered = format!("warning: {message}\n{place}\n{margin} hint: {hint}");
        Finding {
            severity: "warning",
            server: Some(name.clone()),
            key,
            line,
            column,
            message,
            hint: Some(hint),
            rendered,
        }
    };
    let missing = surroundings::missing(spec, &ProcessEnvironment).into_iter().map(warn);
    missing.chain(dropped(path, entry, spec)).chain(proxy_passwords(path, entry, spec)).collect()
}

/// Variables that the server does not get and looks as if it needed.
fn dropped(path: &Path, entry: &ServerEntry, spec: &ServerSpec) -> Option<Finding> {
    let (message, hint) = surroundings::dropped(&entry.name, &spec.target, &ProcessEnvironment)?;
    Some(Finding {
        server: Some(entry.name.clone()),
        ..Finding::laid_out(path, "warning", "inherit_env", entry.at, &message, &hint)
    })
}

/// Proxies with a password that the server gets.
fn proxy_passwords(path: &Path, entry: &ServerEntry, spec: &ServerSpec) -> Vec<Finding> {
    let Target::Stdio { network_env: true, env, .. } = &spec.target else { return Vec::new() };
    let found = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut names: Vec<String> = found
        .filter(|(name, value)| Environment::names_proxy(name) && holds_password(value))
        .map(|(name, _)| name)
        .filter(|name| env.iter().all(|(own, _)| own != name))
        .collect();
    names.sort_unstable();
    let finding = |name: String| {
        let message = format!("server `{}` gets `{name}`, whose URL holds a password", entry.name);
        let hint = "`network_env = false` keeps proxy and certificate variables from this server";
        Finding {
            server: Some(entry.name.clone()),
            ..Finding::laid_out(path, "warning", "network_env", entry.at, &message, hint)
        }
    };
    names.into_iter().map(finding).collect()
}

/// Whether a proxy URL has a password in it. The scheme may be missing.
fn holds_password(proxy: &str) -> bool {
    let rest = proxy.split_once("://").map_or(proxy, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}
