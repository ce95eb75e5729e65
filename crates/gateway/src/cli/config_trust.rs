//! `gripfast trust`, and the check that a `gripfast.toml` in the current directory is trusted before it is used: it may
//! have come with a repository or an archive, and it names programs to run.

use super::args::{Cli, GlobalArgs, TrustArgs, Verb};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::Screen;
use super::service::ServiceVerb;
use super::{audit_line, config};
use gripfast::config::{Config, ConfigFile, ConfigOrigin, ConfigText, OAuthSpec, Reference, Target};
use gripfast::{SecurityEvent, TrustDecision, redact, text};
use gripfast_gateway::trust_list::{TrustList, TrustState};
use std::io;
use std::path::{Path, PathBuf};
use toml_edit::DocumentMut;

/// The trust list of the current user, in the platform's state directory. Neither `--state-dir` nor a config can move
/// it. `None` without a home directory.
pub(crate) fn trust_list() -> Option<TrustList> {
    config::platform_state_dir().map(TrustList::in_directory)
}

/// Refuses a file of the current directory whose content is not trusted.
pub(crate) fn require_trust(file: &ConfigFile, text: &ConfigText) -> Result<(), FailureReport> {
    match trust_state(file, text)? {
        TrustState::Trusted => Ok(()),
        missing @ (TrustState::Changed | TrustState::Unknown) => Err(untrusted(&file.path, missing)),
    }
}

/// The trust of a file. A file that was named, or is in the platform's config directory, is always trusted.
fn trust_state(file: &ConfigFile, text: &ConfigText) -> Result<TrustState, FailureReport> {
    match file.origin {
        ConfigOrigin::Named | ConfigOrigin::PlatformDirectory => Ok(TrustState::Trusted),
        ConfigOrigin::CurrentDirectory => match trust_list() {
            Some(list) => list.state_of(&file.path, text.bytes()).map_err(|error| list_failure(&error)),
            None => Ok(TrustState::Unknown),
        },
    }
}

fn untrusted(path: &Path, trust_state: TrustState) -> FailureReport {
    let path = path.display();
    let why = match trust_state {
        TrustState::Changed => "has changed since it was trusted",
        TrustState::Trusted | TrustState::Unknown => "is not trusted",
    };
    let text = format!("`{path}` {why}, and it names programs to run");
    FailureReport::new(Exit::ConfigInvalid, text).with_hint(format!(
        "read it, then run `gripfast trust {path}`; or name a file with `--config FILE`, which needs no trust"
    ))
}

fn list_failure(error: &io::Error) -> FailureReport {
    FailureReport::new(Exit::ConfigInvalid, format!("the list of trusted files cannot be used: {error}"))
        .with_hint("a file that `--config FILE` names needs no trust")
}

fn no_home() -> FailureReport {
    FailureReport::new(Exit::General, "there is no home directory for the list of trusted files")
        .with_hint("a file that `--config FILE` names needs no trust")
}

/// Asks the user at the terminal to trust the file, before a command that would refuse it. Without a terminal the
/// command refuses the file.
pub(crate) fn ask_for_trust(cli: &Cli, screen: &mut Screen) -> Result<(), CommandError> {
    if !screen.can_ask() || !uses_config(&cli.verb) {
        return Ok(());
    }
    let Ok(file) = config::locate(cli.global.config.as_deref()) else { return Ok(()) };
    let Ok(text) = ConfigText::read(&file.path) else { return Ok(()) };
    let Ok(config) = text.config(file.origin) else { return Ok(()) };
    let missing = match trust_state(&file, &text)? {
        TrustState::Trusted => return Ok(()),
        // `gripfast reload` implies trust.
        TrustState::Changed if matches!(&cli.verb, Verb::Reload(args) if args.name.is_none()) => {
            return Ok(());
        }
        missing @ (TrustState::Changed | TrustState::Unknown) => missing,
    };
    let path = file.path.display();
    screen.message(&match missing {
        TrustState::Changed => {
            format!("`{path}` has changed since it was trusted. It would run or connect to:")
        }
        TrustState::Trusted | TrustState::Unknown => {
            format!("`{path}` is in this directory and is not trusted yet. It would run or connect to:")
        }
    })?;
    print_targets(&config, screen)?;
    if !screen.confirm("Trust the file as it is now?")? {
        return Err(untrusted(&file.path, missing).into());
    }
    let list = trust_list().ok_or_else(no_home)?;
    list.trust(&file.path, text.bytes()).map_err(|error| list_failure(&error))?;
    record(&cli.global, TrustDecision::Trusted, &file.path, &config, screen)?;
    Ok(())
}

/// Writes a trust decision to the audit log of the state directory that the file configures.
fn record(
    global: &GlobalArgs,
    decision: TrustDecision,
    path: &Path,
    config: &Config,
    screen: &mut Screen,
) -> io::Result<()> {
    let chosen = global.state_dir.clone().or_else(|| config.gateway.state_dir.clone());
    let strict_modes = || config.gateway.access.strict_modes;
    let judged = config::require_safe_dir(chosen.or_else(config::platform_state_dir), strict_modes);
    // Nothing is written to a directory that another user could change.
    let state_dir = judged.ok().flatten();
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let event = SecurityEvent::TrustChanged { decision, path, actor: audit_line::actor() };
    audit_line::record(state_dir.as_deref(), &config.gateway, &event, screen)
}

/// Returns true if a command uses a config that was not named.
fn uses_config(verb: &Verb) -> bool {
    match verb {
        // stdin carries MCP, and a completing shell cannot show a question.
        Verb::Stdio(_) | Verb::Complete(_) => false,
        Verb::Check(_) | Verb::Trust(_) | Verb::Completions(_) => false,
        Verb::Man(_) | Verb::Schema | Verb::Version | Verb::DemoServer(_) => false,
        Verb::Service(verb) => matches!(verb, ServiceVerb::Install(_)),
        Verb::Serve(args) => !args.demo,
        // A command that is not named here asks rather than uses a file that is not trusted.
        _ => true,
    }
}

/// Prints the programs that a config starts and the addresses that it connects to, one per line.
fn print_targets(config: &Config, screen: &mut Screen) -> io::Result<()> {
    let lines = target_lines(config);
    if lines.is_empty() {
        return screen.message("  nothing");
    }
    lines.iter().try_for_each(|line| screen.message(&format!("  {line}")))
}

fn target_lines(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in &config.servers {
        let Ok(spec) = &entry.spec else {
            lines.push(format!("{}: invalid, see `gripfast check`", entry.name));
            continue;
        };
        let name = &entry.name;
        match &spec.target {
            Target::Stdio { command, args, env, cwd, .. } => {
                let words: Vec<String> =
                    std::iter::once(command).chain(args).map(ToString::to_string).collect();
                lines.push(format!("{name}: {}", words.join(" ")));
                lines.extend(cwd.as_ref().map(|cwd| format!("{name}: in the directory {cwd}")));
                lines.extend(env.iter().map(|(variable, value)| {
                    // Values that decide which code runs are shown; others may be secrets.
                    let value =
                        if loads_code(variable) { redact::text(value.as_written()) } else { "…".into() };
                    format!("{name}: with {variable}={value}")
                }));
            }
            Target::Url { url, .. } => lines.push(format!("{name}: {url}")),
        }
        let oauth = spec.oauth.iter().flat_map(|oauth| {
            let OAuthSpec { issuer, client_id, client_secret, private_key, .. } = oauth;
            [issuer, client_id, client_secret, private_key].into_iter().flatten()
        });
        let templates = spec.target.templates().into_iter().chain(oauth);
        lines.extend(templates.flat_map(|template| template.references()).filter_map(|reference| {
            match reference {
                Reference::Command { line } => {
                    Some(format!("{name}: runs `{}` for a value", redact::text(line)))
                }
                Reference::Variable { .. } | Reference::File { .. } => None,
            }
        }));
    }
    // A line break could fake another line, and an invisible character could hide text.
    lines.iter().map(|line| text::escaped(line).into_owned()).collect()
}

/// Returns true if a variable of this name decides which code a program runs.
fn loads_code(variable: &str) -> bool {
    const PREFIXES: &[&str] = &["LD_", "DYLD_", "PYTHON", "GIT_", "NPM_CONFIG_", "UV_", "PIP_"];
    const NAMES: &[&str] = &[
        "PATH",
        "NODE_OPTIONS",
        "NODE_PATH",
        "BASH_ENV",
        "ENV",
        "SHELL",
        "PERL5LIB",
        "PERL5OPT",
        "RUBYLIB",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
    ];
    let variable = variable.to_ascii_uppercase();
    NAMES.contains(&variable.as_str()) || PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

/// The file of the current directory, if it was trusted and has changed since. `gripfast reload` trusts it.
pub(crate) fn changed_since_trusted(global: &GlobalArgs) -> Result<Option<PathBuf>, FailureReport> {
    let Ok(file) = config::locate(global.config.as_deref()) else { return Ok(None) };
    let Ok(text) = ConfigText::read(&file.path) else { return Ok(None) };
    Ok((trust_state(&file, &text)? == TrustState::Changed).then_some(file.path))
}

/// A config that gripfast is about to write.
pub(crate) struct Editing {
    pub(crate) path: PathBuf,
    /// The present content; `None` if the file does not exist yet.
    pub(crate) before: Option<String>,
    /// True if the written file becomes trusted, because its previous content was.
    trust_on_write: bool,
}

impl Editing {
    /// Opens the config that would be used, or a new one in the current directory.
    pub(crate) fn open(global: &GlobalArgs) -> Result<Self, FailureReport> {
        let Ok(file) = config::locate(global.config.as_deref()) else {
            return Ok(Self { path: PathBuf::from(Config::FILE_NAME), before: None, trust_on_write: true });
        };
        let is_looked_for = file.path.file_name().is_some_and(|name| name == Config::FILE_NAME)
            && file.origin != ConfigOrigin::PlatformDirectory;
        if !file.path.exists() {
            return Ok(Self { path: file.path, before: None, trust_on_write: is_looked_for });
        }
        let text = ConfigText::read(&file.path).map_err(|error| config::config_failure(&error))?;
        require_trust(&file, &text)?;
        if let (Some(_), Err(error)) = (text.unsafe_file(), text.config(file.origin)) {
            return Err(config::config_failure(&error));
        }
        let listed = || trust_list().and_then(|list| list.state_of(&file.path, text.bytes()).ok());
        let trust_on_write = is_looked_for && listed() == Some(TrustState::Trusted);
        let before = String::from_utf8(text.bytes().to_vec()).map_err(|_| {
            FailureReport::new(Exit::ConfigInvalid, format!("`{}` is not UTF-8 text", file.path.display()))
        })?;
        Ok(Self { path: file.path, before: Some(before), trust_on_write })
    }

    /// The present content as TOML. Only TOML is edited: other formats usually belong to other programs, and `otherwise`
    /// is the hint for them.
    pub(crate) fn toml(&self, otherwise: &str) -> Result<DocumentMut, FailureReport> {
        let path = self.path.display();
        if self.path.extension().is_some_and(|ending| !ending.eq_ignore_ascii_case("toml")) {
            let text = format!("`{path}` is not TOML, and gripfast edits only TOML");
            return Err(FailureReport::new(Exit::General, text).with_hint(otherwise));
        }
        self.before.as_deref().unwrap_or_default().parse().map_err(|_| {
            FailureReport::new(Exit::ConfigInvalid, format!("`{path}` is not valid TOML"))
                .with_hint("`gripfast check` explains what is wrong")
        })
    }

    /// The same without trust after the write: a part of it came with the directory, so the user has to look at it
    /// first.
    pub(crate) fn without_trust(self) -> Self {
        Self { trust_on_write: false, ..self }
    }

    /// Writes the file, and trusts it if its previous content was trusted.
    pub(crate) fn write(
        &self,
        global: &GlobalArgs,
        text: &str,
        screen: &mut Screen,
    ) -> Result<(), CommandError> {
        super::write_file::write(&self.path, text)?;
        if !self.trust_on_write {
            return Ok(());
        }
        match trust_list().map(|list| list.trust(&self.path, text.as_bytes())) {
            Some(Ok(())) => {
                if let Ok(config) = Config::parse(text, &self.path) {
                    record(global, TrustDecision::Trusted, &self.path, &config, screen)?;
                }
            }
            Some(Err(error)) => screen.warning(&list_failure(&error).text)?,
            None => {}
        }
        Ok(())
    }
}

/// Trusts a file, lists the trusted files, or removes one from the list.
pub(crate) fn run(global: &GlobalArgs, args: &TrustArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let list = trust_list().ok_or_else(no_home)?;
    if args.list {
        return print_list(&list, screen);
    }
    let named = args.file.as_deref().or(global.config.as_deref());
    let path = named.map_or_else(|| PathBuf::from(".").join(Config::FILE_NAME), Path::to_owned);
    if args.remove {
        // A changed file is not trusted, so its settings do not decide where the audit line is written.
        let trusted = ConfigText::read(&path).ok().filter(|text| {
            list.state_of(&path, text.bytes()).is_ok_and(|trust_state| trust_state == TrustState::Trusted)
        });
        let removed = list.remove(&path).map_err(|error| list_failure(&error))?;
        let config = trusted.and_then(|text| text.config(ConfigOrigin::CurrentDirectory).ok());
        if let (true, Some(config)) = (removed, config) {
            record(global, TrustDecision::Untrusted, &path, &config, screen)?;
        }
        let path = path.display();
        screen.message(&match removed {
            true => format!("`{path}` is no longer trusted"),
            false => format!("`{path}` was not trusted"),
        })?;
        return Ok(Exit::Ok);
    }
    let text = ConfigText::read(&path).map_err(|error| config::config_failure(&error))?;
    let config = match text.config(ConfigOrigin::CurrentDirectory) {
        Ok(config) => config,
        Err(error) => return Err(config::report_invalid(&error, screen)),
    };
    screen.message(&format!("`{}` runs or connects to:", path.display()))?;
    print_targets(&config, screen)?;
    list.trust(&path, text.bytes()).map_err(|error| list_failure(&error))?;
    screen.message("the file is now trusted with this content; after a change it has to be trusted again")?;
    record(global, TrustDecision::Trusted, &path, &config, screen)?;
    Ok(Exit::Ok)
}

fn print_list(list: &TrustList, screen: &mut Screen) -> Result<Exit, CommandError> {
    let files = list.files().map_err(|error| list_failure(&error))?;
    if files.is_empty() {
        screen.message("no file is trusted; `gripfast trust` trusts ./gripfast.toml")?;
    }
    for file in files {
        let now = std::fs::read(&file).and_then(|content| list.state_of(&file, &content));
        let word = match now {
            Ok(TrustState::Trusted) => "",
            Ok(TrustState::Changed | TrustState::Unknown) => "  (changed since it was trusted)",
            Err(_) => "  (cannot be read)",
        };
        screen.line(&format!("{}{word}", file.display()))?;
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_of_a_config_are_listed_one_per_line_without_secrets() {
        let text = r#"
            [servers.a]
            command = "npx"
            args = ["-y", "server", "two\nb: https://harmless.example"]
            env = { TOKEN = "${cmd:pass show token}", OTHER = "hunter22", NODE_OPTIONS = "--require ./evil.js" }
            cwd = "/srv/\u202Ea"
            [servers.b]
            url = "https://me:hunter22@h.example/mcp?key=hunter22"
            oauth = { issuer = "https://id.example", client_id = "x", client_secret = "${cmd:touch /tmp/owned}", grant = "client_credentials" }
            [servers.c]
            comand = "x"
        "#;
        let config = Config::parse(text, Config::FILE_NAME.as_ref()).unwrap();
        assert_eq!(
            target_lines(&config),
            [
                "a: npx -y server two\\nb: https://harmless.example",
                "a: in the directory /srv/\\u{202e}a",
                "a: with TOKEN=…",
                "a: with OTHER=…",
                "a: with NODE_OPTIONS=--require ./evil.js",
                "a: runs `pass show token` for a value",
                "b: https://[redacted]@h.example/mcp?key=[redacted]",
                "b: runs `touch /tmp/owned` for a value",
                "c: invalid, see `gripfast check`",
            ]
        );
    }
}
