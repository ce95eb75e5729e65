//! `gripfast check`: reads a config, looks at what it refers to, and says what is wrong. Starts nothing.

use super::args::{CheckArgs, Form, Global};
use super::config;
use super::exit::Exit;
use super::render::{Screen, plural};
use super::stop::Stop;
use super::surroundings;
use gripfast::config::{
    Config, ConfigError, Diagnostic, Position, ProcessEnvironment, ServerEntry, ServerSpec, SettingFrom,
    Severity, Target, UrlTransport,
};
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
    let path = config::find(args.file.as_deref().or(global.config.as_deref()))?;
    let report = match Config::load(&path) {
        Ok(config) => Report::of(&path, &config),
        Err(ConfigError::Invalid { diagnostics }) => {
            let findings = diagnostics.iter().map(|found| Finding::of(found, None)).collect();
            Report::new(&path, Vec::new(), findings)
        }
        Err(error) => return Err(config::unusable(&error).into()),
    };
    for finding in &report.findings {
        screen.finding(&finding.rendered)?;
    }
    match args.output.form {
        Form::Text => screen.line(&report.summary())?,
        Form::Json => screen.json(&report)?,
    }
    Ok(if report.ok { Exit::Ok } else { Exit::ConfigInvalid })
}

impl Report {
    fn new(path: &Path, servers: Vec<Server>, findings: Vec<Finding>) -> Self {
        let ok = findings.iter().all(|finding| finding.severity != "error");
        Self { file: path.display().to_string(), ok, servers, findings }
    }

    fn of(path: &Path, config: &Config) -> Self {
        let mut findings: Vec<Finding> =
            config.warnings.iter().map(|found| Finding::of(found, None)).collect();
        findings.extend(certificate(path, config));
        for entry in &config.servers {
            match &entry.spec {
                Ok(spec) if spec.disabled => {}
                Ok(spec) => findings.extend(outside(path, entry, spec)),
                Err(found) => findings.extend(found.iter().map(|found| Finding::of(found, Some(entry)))),
            }
        }
        Self::new(path, config.servers.iter().map(Server::of).collect(), findings)
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
}

/// What is wrong with the certificate of the listener. One that is not there may be when the gateway starts; one that
/// is of no use is a mistake.
fn certificate(path: &Path, config: &Config) -> Option<Finding> {
    let bad = tls::check(config.gateway.access.tls.as_ref()?).err()?;
    let is_absent = matches!(bad, BadCertificate::Unreadable { .. });
    let key = match &bad {
        BadCertificate::Unreadable { path, .. } if *path != config.gateway.access.tls.as_ref()?.cert => "key",
        BadCertificate::NoKey { .. } | BadCertificate::DoNotMatch { .. } => "key",
        BadCertificate::Unreadable { .. } | BadCertificate::NoCertificate { .. } => "cert",
    };
    let key = format!("gateway.tls.{key}");
    let place = config.settings().into_iter().find(|setting| setting.path == key).map(|setting| setting.from);
    let Position { line, column } = match place {
        Some(SettingFrom::File(at)) => at,
        Some(SettingFrom::Default) | None => Position::START,
    };
    let severity = if is_absent { "warning" } else { "error" };
    let causes = std::iter::successors(bad.source(), |&cause| cause.source());
    let message = causes.fold(bad.to_string(), |text, cause| format!("{text}: {cause}"));
    let hint = "`gripfast serve` does not start without it".to_owned();
    let margin = " ".repeat(line.to_string().len());
    let place = format!("{margin}--> {}:{line}:{column} ({key})", path.display());
    let rendered = format!("{severity}: {message}\n{place}\n{margin} hint: {hint}");
    Some(Finding { severity, server: None, key, line, column, message, hint: Some(hint), rendered })
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
    surroundings::missing(spec, &ProcessEnvironment).into_iter().map(warn).collect()
}
