//! `gripfast trust`, and the decision whether a `gripfast.toml` that lies in the current directory is used: it may have come
//! with a repository or an archive, and it names programs to run.

use super::args::{Cli, Global, TrustArgs, Verb};
use super::exit::Exit;
use super::render::Screen;
use super::stop::{Failure, Stop};
use super::{audited, config};
use gripfast::config::{Config, ConfigFile, ConfigOrigin, ConfigText, OAuthSpec, Reference, Target};
use gripfast::{SecurityEvent, TrustDecision, redact, text};
use gripfast_gateway::trust_list::{Standing, TrustList};
use std::io;
use std::path::{Path, PathBuf};

/// The list of the user who runs this process. It is in the platform's state directory whatever `--state-dir` says, and a
/// config has no say in it. `None` without a home.
pub(crate) fn list() -> Option<TrustList> {
    config::platform_state_dir().map(TrustList::in_directory)
}

/// Refuses a file of the current directory that is not trusted for what it says.
pub(crate) fn require(file: &ConfigFile, text: &ConfigText) -> Result<(), Failure> {
    match standing(file, text)? {
        Standing::Trusted => Ok(()),
        missing @ (Standing::Changed | Standing::Unknown) => Err(refusal(&file.path, missing)),
    }
}

/// Whether a file may be used. One that was named, or that is in the platform's config directory, may.
fn standing(file: &ConfigFile, text: &ConfigText) -> Result<Standing, Failure> {
    match file.origin {
        ConfigOrigin::Named | ConfigOrigin::PlatformDirectory => Ok(Standing::Trusted),
        ConfigOrigin::CurrentDirectory => match list() {
            Some(list) => list.standing(&file.path, text.bytes()).map_err(|error| no_list(&error)),
            None => Ok(Standing::Unknown),
        },
    }
}

fn refusal(path: &Path, standing: Standing) -> Failure {
    let path = path.display();
    let why = match standing {
        Standing::Changed => "has changed since it was trusted",
        Standing::Trusted | Standing::Unknown => "is not trusted",
    };
    let text = format!("`{path}` {why}, and it names programs to run");
    Failure::new(Exit::ConfigInvalid, text).with_hint(format!(
        "look at it, and then `gripfast trust {path}`; `--config FILE` names another, and one that is named needs no trust"
    ))
}

fn no_list(error: &io::Error) -> Failure {
    Failure::new(Exit::ConfigInvalid, format!("the list of trusted files cannot be used: {error}"))
        .with_hint("a file that `--config FILE` names needs no trust")
}

fn no_home() -> Failure {
    Failure::new(Exit::General, "there is no home directory to keep the list of trusted files in")
        .with_hint("a file that `--config FILE` names needs no trust")
}

/// Asks the person at the terminal, once, before a verb that would refuse the file. Where there is no terminal nothing is
/// asked, and the verb refuses it.
pub(crate) fn ask(cli: &Cli, screen: &mut Screen) -> Result<(), Stop> {
    if !screen.can_ask() || !wants_config(&cli.verb) {
        return Ok(());
    }
    let Ok(file) = config::locate(cli.global.config.as_deref()) else { return Ok(()) };
    let Ok(text) = ConfigText::read(&file.path) else { return Ok(()) };
    let Ok(config) = text.config(file.origin) else { return Ok(()) };
    let missing = match standing(&file, &text)? {
        Standing::Trusted => return Ok(()),
        // Asking for it to be taken is trust.
        Standing::Changed if matches!(&cli.verb, Verb::Reload(args) if args.name.is_none()) => return Ok(()),
        missing @ (Standing::Changed | Standing::Unknown) => missing,
    };
    let path = file.path.display();
    screen.talk(&match missing {
        Standing::Changed => {
            format!("`{path}` has changed since it was trusted. It would run or connect to:")
        }
        Standing::Trusted | Standing::Unknown => {
            format!("`{path}` is in this directory and was not trusted yet. It would run or connect to:")
        }
    })?;
    show(&config, screen)?;
    if !screen.confirm("Trust it as it is now?")? {
        return Err(refusal(&file.path, missing).into());
    }
    let list = list().ok_or_else(no_home)?;
    list.trust(&file.path, text.bytes()).map_err(|error| no_list(&error))?;
    record(&cli.global, TrustDecision::Trusted, &file.path, &config, screen)?;
    Ok(())
}

/// Writes a decision about a file to the audit log that this file names.
fn record(
    global: &Global,
    decision: TrustDecision,
    path: &Path,
    config: &Config,
    screen: &mut Screen,
) -> io::Result<()> {
    let chosen = global.state_dir.clone().or_else(|| config.gateway.state_dir.clone());
    let strict_modes = || config.gateway.access.strict_modes;
    let judged = config::judged(chosen.or_else(config::platform_state_dir), strict_modes);
    // Nothing is written where another user could change it.
    let state_dir = judged.ok().flatten();
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let event = SecurityEvent::TrustChanged { decision, path, actor: audited::actor() };
    audited::record(state_dir.as_deref(), &config.gateway, &event, screen)
}

/// Whether a verb uses a config that nobody has named.
fn wants_config(verb: &Verb) -> bool {
    match verb {
        // stdin is for MCP.
        Verb::Stdio(_) => false,
        // Nobody is asked while a shell completes a word.
        Verb::Complete(_) => false,
        Verb::Check(_)
        | Verb::Trust(_)
        | Verb::Completions(_)
        | Verb::Schema
        | Verb::Version
        | Verb::DemoServer(_) => false,
        Verb::Serve(args) => !args.demo,
        Verb::Status(_)
        | Verb::Reconnect(_)
        | Verb::Reload(_)
        | Verb::Stop(_)
        | Verb::Start(_)
        | Verb::Logs(_)
        | Verb::Events(_)
        | Verb::Dashboard(_)
        | Verb::Doctor(_)
        | Verb::Import(_)
        | Verb::Connect(_)
        | Verb::Add(_)
        | Verb::Remove(_)
        | Verb::Enable(_)
        | Verb::Disable(_)
        | Verb::Tools(_)
        | Verb::Resources(_)
        | Verb::Prompts(_)
        | Verb::Call(_)
        | Verb::Calls(_)
        | Verb::Pins(_)
        | Verb::Policy(_)
        | Verb::Keys(_)
        | Verb::Audit(_)
        | Verb::Token(_)
        | Verb::Login(_)
        | Verb::Logout(_) => true,
    }
}

/// The programs that a config starts and the addresses that it connects to, a line for each.
fn show(config: &Config, screen: &mut Screen) -> io::Result<()> {
    let lines = shown(config);
    if lines.is_empty() {
        return screen.talk("  nothing");
    }
    lines.iter().try_for_each(|line| screen.talk(&format!("  {line}")))
}

fn shown(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in &config.servers {
        let Ok(spec) = &entry.spec else {
            lines.push(format!("{}: cannot be used, see `gripfast check`", entry.name));
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
                    // What decides which code runs is shown; a token is not.
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
    // A line break would begin a line that says something else, and an invisible letter would hide one.
    lines.iter().map(|line| text::escaped(line).into_owned()).collect()
}

/// Whether a variable of this name decides which code a program runs.
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

/// The file of the current directory, if it was trusted and says something else now. Whoever asks a running gateway to take
/// it vouches for it.
pub(crate) fn changed(global: &Global) -> Result<Option<PathBuf>, Failure> {
    let Ok(file) = config::locate(global.config.as_deref()) else { return Ok(None) };
    let Ok(text) = ConfigText::read(&file.path) else { return Ok(None) };
    Ok((standing(&file, &text)? == Standing::Changed).then_some(file.path))
}

/// A config that gripfast is about to write.
pub(crate) struct Editing {
    pub(crate) path: PathBuf,
    /// What is in it; `None` if it is not there yet.
    pub(crate) before: Option<String>,
    /// Whether it is trusted once it is written: everything else in it was.
    vouches: bool,
}

impl Editing {
    /// The config that is meant, or a new one in the current directory.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        let Ok(file) = config::locate(global.config.as_deref()) else {
            return Ok(Self { path: PathBuf::from(Config::FILE_NAME), before: None, vouches: true });
        };
        let is_looked_for = file.path.file_name().is_some_and(|name| name == Config::FILE_NAME)
            && file.origin != ConfigOrigin::PlatformDirectory;
        if !file.path.exists() {
            return Ok(Self { path: file.path, before: None, vouches: is_looked_for });
        }
        let text = ConfigText::read(&file.path).map_err(|error| config::unusable(&error))?;
        require(&file, &text)?;
        if let (Some(_), Err(error)) = (text.problem(), text.config(file.origin)) {
            return Err(config::unusable(&error));
        }
        let listed = || list().and_then(|list| list.standing(&file.path, text.bytes()).ok());
        let vouches = is_looked_for && listed() == Some(Standing::Trusted);
        let before = String::from_utf8(text.bytes().to_vec()).map_err(|_| {
            Failure::new(Exit::ConfigInvalid, format!("`{}` is not UTF-8 text", file.path.display()))
        })?;
        Ok(Self { path: file.path, before: Some(before), vouches })
    }

    /// The same, of which a part came with the directory: a person has to look at what is written before it is used.
    pub(crate) fn unvouched(self) -> Self {
        Self { vouches: false, ..self }
    }

    /// Writes it. What gripfast has written itself needs no other trust.
    pub(crate) fn write(&self, global: &Global, text: &str, screen: &mut Screen) -> Result<(), Stop> {
        super::edit::write(&self.path, text)?;
        if !self.vouches {
            return Ok(());
        }
        match list().map(|list| list.trust(&self.path, text.as_bytes())) {
            Some(Ok(())) => {
                if let Ok(config) = Config::parse(text, &self.path) {
                    record(global, TrustDecision::Trusted, &self.path, &config, screen)?;
                }
            }
            Some(Err(error)) => screen.warning(&no_list(&error).text)?,
            None => {}
        }
        Ok(())
    }
}

/// Trusts a file, shows which are trusted, or takes one off the list.
pub(crate) fn run(global: &Global, args: &TrustArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let list = list().ok_or_else(no_home)?;
    if args.list {
        return listed(&list, screen);
    }
    let named = args.file.as_deref().or(global.config.as_deref());
    let path = named.map_or_else(|| PathBuf::from(".").join(Config::FILE_NAME), Path::to_owned);
    if args.remove {
        // What it says counts as long as it is trusted; a file that was changed has no say in where this is written.
        let trusted = ConfigText::read(&path).ok().filter(|text| {
            list.standing(&path, text.bytes()).is_ok_and(|standing| standing == Standing::Trusted)
        });
        let removed = list.remove(&path).map_err(|error| no_list(&error))?;
        let config = trusted.and_then(|text| text.config(ConfigOrigin::CurrentDirectory).ok());
        if let (true, Some(config)) = (removed, config) {
            record(global, TrustDecision::Untrusted, &path, &config, screen)?;
        }
        let path = path.display();
        screen.talk(&match removed {
            true => format!("`{path}` is not trusted any more"),
            false => format!("`{path}` was not trusted"),
        })?;
        return Ok(Exit::Ok);
    }
    let text = ConfigText::read(&path).map_err(|error| config::unusable(&error))?;
    let config = match text.config(ConfigOrigin::CurrentDirectory) {
        Ok(config) => config,
        Err(error) => return Err(config::told(&error, screen)),
    };
    screen.talk(&format!("`{}` runs or connects to:", path.display()))?;
    show(&config, screen)?;
    list.trust(&path, text.bytes()).map_err(|error| no_list(&error))?;
    screen.talk("it is trusted for what it says now; a change needs trust again")?;
    record(global, TrustDecision::Trusted, &path, &config, screen)?;
    Ok(Exit::Ok)
}

fn listed(list: &TrustList, screen: &mut Screen) -> Result<Exit, Stop> {
    let files = list.files().map_err(|error| no_list(&error))?;
    if files.is_empty() {
        screen.talk("no file is trusted; `gripfast trust` trusts ./gripfast.toml")?;
    }
    for file in files {
        let now = std::fs::read(&file).and_then(|content| list.standing(&file, &content));
        let word = match now {
            Ok(Standing::Trusted) => "",
            Ok(Standing::Changed | Standing::Unknown) => "  (changed since)",
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
    fn what_a_config_runs_is_shown_without_its_secrets_and_a_line_for_each() {
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
            shown(&config),
            [
                "a: npx -y server two\\nb: https://harmless.example",
                "a: in the directory /srv/\\u{202e}a",
                "a: with TOKEN=…",
                "a: with OTHER=…",
                "a: with NODE_OPTIONS=--require ./evil.js",
                "a: runs `pass show token` for a value",
                "b: https://[redacted]@h.example/mcp?key=[redacted]",
                "b: runs `touch /tmp/owned` for a value",
                "c: cannot be used, see `gripfast check`",
            ]
        );
    }
}
