//! `gripfast check`: validates a config and what it refers to outside the file. Starts nothing.

use super::args::{CheckArgs, GlobalArgs, OutputFormat};
use super::config;
use super::config_trust;
use super::error::CommandError;
use super::exit::Exit;
use super::preflight;
use super::render::{Screen, plural};
use gripfast::config::{
    Config, ConfigError, ConfigText, Diagnostic, Position, ProcessEnvironment, ServerEntry, ServerSpec,
    SettingFrom, Severity, Target, UrlTransport,
};
use gripfast::private_files::{self, StrictModes, UnsafeFile};
use gripfast::transport::Environment;
use gripfast_gateway::cluster::{ClusterSettings, ClusterSettingsError};
use gripfast_gateway::server::tls;
use gripfast_gateway::server::tls::CertificateProblem;
use serde::Serialize;
use std::error::Error;
use std::path::Path;

/// The findings, in the shape of `-o json`.
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
    /// `None` if the server's table is invalid.
    transport: Option<&'static str>,
    disabled: bool,
    ok: bool,
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: &'static str,
    /// `None` for a finding about the file as a whole.
    server: Option<String>,
    key: String,
    line: usize,
    column: usize,
    message: String,
    hint: Option<String>,
    #[serde(skip)]
    rendered: String,
}

/// Checks the file and prints the findings.
pub(crate) fn run(global: &GlobalArgs, args: &CheckArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let located = config::locate(args.file.as_deref().or(global.config.as_deref()));
    let file = located.map_err(|error| config::config_failure(&error))?;
    let text = ConfigText::read(&file.path).map_err(|error| config::config_failure(&error))?;
    let path = &file.path;
    // The file need not be trusted: it is read, and nothing that it names is run.
    let mut report = match text.parse() {
        Ok(config) => Report::from_config(path, &config, global.state_dir.as_deref()),
        Err(ConfigError::Invalid { diagnostics }) => {
            let findings = diagnostics.iter().map(|found| Finding::from_diagnostic(found, None)).collect();
            Report::new(path, Vec::new(), findings)
        }
        Err(error) => return Err(config::config_failure(&error).into()),
    };
    if let Some(found) = text.unsafe_file() {
        let accepted = text.config(file.origin).is_ok();
        report = report.with_finding(Finding::unsafe_file(
            path,
            "",
            Position::START,
            "config file",
            found,
            accepted,
        ));
    }
    for finding in &report.findings {
        screen.finding(&finding.rendered)?;
    }
    match args.output.form {
        OutputFormat::Text => screen.line(&report.summary())?,
        OutputFormat::Json => screen.json(&report)?,
    }
    if let Err(untrusted) = config_trust::require_trust(&file, &text) {
        screen.hint(&format!(
            "{}; `gripfast trust {}` lets other commands use it",
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

    fn from_config(path: &Path, config: &Config, state_dir: Option<&Path>) -> Self {
        let mut findings: Vec<Finding> =
            config.warnings.iter().map(|found| Finding::from_diagnostic(found, None)).collect();
        findings.extend(certificate(path, config));
        findings.extend(cluster(path, config));
        findings.extend(unsafe_files(path, config, state_dir));
        for entry in &config.servers {
            match &entry.spec {
                Ok(spec) if spec.disabled => {}
                Ok(spec) => findings.extend(missing_requirements(path, entry, spec)),
                Err(found) => {
                    findings.extend(found.iter().map(|found| Finding::from_diagnostic(found, Some(entry))))
                }
            }
        }
        Self::new(path, config.servers.iter().map(Server::from_entry).collect(), findings)
    }

    /// Adds a finding before the others.
    fn with_finding(mut self, finding: Finding) -> Self {
        self.ok &= finding.severity != "error";
        self.findings.insert(0, finding);
        self
    }

    /// One line: the verdict, and the servers by transport and state.
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
                self.servers.iter().filter(|server| server.is_usable() && server.transport == Some(kind));
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
    fn from_entry(entry: &ServerEntry) -> Self {
        let spec = entry.spec.as_ref().ok();
        Self {
            name: entry.name.clone(),
            transport: spec.map(transport),
            disabled: spec.is_some_and(|spec| spec.disabled),
            ok: spec.is_some(),
        }
    }

    fn is_usable(&self) -> bool {
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
    fn from_diagnostic(found: &Diagnostic, entry: Option<&ServerEntry>) -> Self {
        Self {
            severity: match found.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            server: entry.map(|entry| entry.name.clone()),
            key: found.path.clone(),
            line: found.position.line,
            column: found.position.column,
            message: found.message.clone(),
            hint: found.hint.clone(),
            rendered: found.render(),
        }
    }

    /// A finding from outside the config parser, in the layout of the parser's own.
    fn at_position(
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

    /// A finding about a file that another user could have changed.
    fn unsafe_file(
        path: &Path,
        key: &str,
        at: Position,
        what: &str,
        found: &UnsafeFile,
        accepted: bool,
    ) -> Self {
        let severity = if accepted { "warning" } else { "error" };
        let hint = if accepted { found.remedy() } else { config::remedy(found) };
        Self::at_position(path, severity, key, at, &format!("{what} {found}"), &hint)
    }
}

/// Files that another user could have changed, besides the config itself: the listener's keys, the state directory, and
/// the client keys for servers. `gripfast serve` refuses them unless `strict_modes` is off.
fn unsafe_files(path: &Path, config: &Config, typed: Option<&Path>) -> Vec<Finding> {
    let accepted = config.gateway.access.strict_modes == StrictModes::Off;
    let finding = |key: &str, at: Position, what: &str, found: &UnsafeFile| {
        Finding::unsafe_file(path, key, at, what, found, accepted)
    };
    let mut findings: Vec<Finding> = config::unsafe_keys(config)
        .iter()
        .map(|(key, found)| finding(key, position_of(config, key), "key file", found))
        .collect();
    let state_dir = typed.map(Path::to_owned).or_else(|| config.gateway.state_dir.clone());
    let state_dir = state_dir.or_else(config::platform_state_dir);
    if let Some(Err(found)) = state_dir.as_deref().map(private_files::check_state_directory) {
        let key = "gateway.state_dir";
        findings.push(finding(key, position_of(config, key), "state directory", &found));
    }
    for entry in &config.servers {
        let Ok(ServerSpec { target: Target::Url { tls, .. }, .. }) = &entry.spec else { continue };
        let key = tls.client_key.as_ref().or(tls.client_cert.as_ref());
        let Some(file) = key.and_then(|key| preflight::expand(key, &ProcessEnvironment)) else {
            continue;
        };
        let Ok(metadata) = std::fs::metadata(&file) else { continue };
        if let Err(found) = private_files::check(Path::new(&file), &metadata) {
            let mut finding = finding("client_key", entry.position, "key file", &found);
            finding.server = Some(entry.name.clone());
            findings.push(finding);
        }
    }
    findings
}

/// The position of a setting in the file, or the start of the file for a default.
fn position_of(config: &Config, key: &str) -> Position {
    let setting = config.settings().into_iter().find(|setting| setting.path == key);
    match setting.map(|setting| setting.from) {
        Some(SettingFrom::File(at)) => at,
        Some(SettingFrom::Default) | None => Position::START,
    }
}

/// Problem of the listener's certificate. A missing file is a warning, because it may be there when the gateway starts;
/// an invalid one is an error.
fn certificate(path: &Path, config: &Config) -> Option<Finding> {
    let access = &config.gateway.access;
    let bad = match tls::check(access.tls.as_ref()?, access.strict_modes) {
        // Reported by `unsafe_files`.
        Err(CertificateProblem::Unsafe(_)) => return None,
        Ok(Some(_)) if config::unsafe_keys(config).iter().any(|(key, _)| *key == "gateway.tls.key") => {
            return None;
        }
        Ok(None) => return None,
        Ok(Some(warning)) => {
            let key = "gateway.tls.key";
            let (message, hint) = warning.split_once("; ").unwrap_or((&warning, ""));
            return Some(Finding::at_position(path, "warning", key, position_of(config, key), message, hint));
        }
        Err(bad) => bad,
    };
    let is_absent = matches!(bad, CertificateProblem::Unreadable { .. });
    let key = match &bad {
        CertificateProblem::Unsafe(_) => "key",
        CertificateProblem::Unreadable { path, .. } if *path != config.gateway.access.tls.as_ref()?.cert => {
            "key"
        }
        CertificateProblem::NoKey { .. } | CertificateProblem::DoNotMatch { .. } => "key",
        CertificateProblem::Unreadable { .. } | CertificateProblem::NoCertificate { .. } => "cert",
    };
    let key = format!("gateway.tls.{key}");
    let severity = if is_absent { "warning" } else { "error" };
    let causes = std::iter::successors(bad.source(), |&cause| cause.source());
    let message = causes.fold(bad.to_string(), |text, cause| format!("{text}: {cause}"));
    let hint = "`gripfast serve` does not start without a valid certificate and key";
    Some(Finding::at_position(path, severity, &key, position_of(config, &key), &message, hint))
}

/// Problem of the table `cluster`. A missing variable or file is a warning, because it may be there when the gateway
/// starts.
fn cluster(path: &Path, config: &Config) -> Option<Finding> {
    let settings = ClusterSettings::from_config(config.cluster.as_ref()?, String::new(), &ProcessEnvironment);
    let error = settings.err()?;
    let is_absent = matches!(error, ClusterSettingsError::Reference { .. });
    let severity = if is_absent { "warning" } else { "error" };
    let at = position_of(config, "cluster.store");
    Some(Finding::at_position(path, severity, "cluster", at, &error.to_string(), error.hint()))
}

/// Requirements of a valid server that are missing outside the config, as warnings: they may be there when the gateway
/// starts.
fn missing_requirements(path: &Path, entry: &ServerEntry, spec: &ServerSpec) -> Vec<Finding> {
    let name = &entry.name;
    let warn = |missing: preflight::MissingRequirement| {
        let preflight::MissingRequirement { key, message, hint } = missing;
        let message = format!("server `{name}` cannot start: {message}");
        // The key is somewhere below the server's line.
        let shown = format!("`{key}` of `{name}`");
        let finding = Finding::at_position(path, "warning", &shown, entry.position, &message, &hint);
        Finding { server: Some(name.clone()), key, ..finding }
    };
    let missing = preflight::missing(spec, &ProcessEnvironment).into_iter().map(warn);
    missing.chain(dropped_variables(path, entry, spec)).chain(proxy_passwords(path, entry, spec)).collect()
}

/// Environment variables that the server seems to need and does not get.
fn dropped_variables(path: &Path, entry: &ServerEntry, spec: &ServerSpec) -> Option<Finding> {
    let (message, hint) = preflight::dropped_variables(&entry.name, &spec.target, &ProcessEnvironment)?;
    Some(Finding {
        server: Some(entry.name.clone()),
        ..Finding::at_position(path, "warning", "inherit_env", entry.position, &message, &hint)
    })
}

/// Proxy variables with a password that the server gets.
fn proxy_passwords(path: &Path, entry: &ServerEntry, spec: &ServerSpec) -> Vec<Finding> {
    let Target::Stdio { network_env: true, env, .. } = &spec.target else { return Vec::new() };
    let found = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut names: Vec<String> = found
        .filter(|(name, value)| Environment::is_proxy(name) && holds_password(value))
        .map(|(name, _)| name)
        .filter(|name| env.iter().all(|(own, _)| own != name))
        .collect();
    names.sort_unstable();
    let finding = |name: String| {
        let message = format!("server `{}` gets `{name}`, whose URL contains a password", entry.name);
        let hint = "`network_env = false` withholds proxy and certificate variables from this server";
        Finding {
            server: Some(entry.name.clone()),
            ..Finding::at_position(path, "warning", "network_env", entry.position, &message, hint)
        }
    };
    names.into_iter().map(finding).collect()
}

/// Returns true if a proxy URL contains a password. The scheme may be missing.
fn holds_password(proxy: &str) -> bool {
    let rest = proxy.split_once("://").map_or(proxy, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}
