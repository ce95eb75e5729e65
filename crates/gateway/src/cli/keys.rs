//! `gripfast keys`: API keys of clients. A key is shown once, when it is created; only its digest is stored.

use super::args::{GlobalArgs, KeysArgs, KeysVerb, OutputFormat};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, Table, ago, now_ms};
use super::status::short_duration;
use super::{audit_line, config};
use gripfast::{KeyChange, SecurityEvent};
use gripfast_gateway::auth::keys::{self, Key, KeyError};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Creates, lists or removes keys in the state directory. A running gateway notices changes by itself.
pub(crate) fn run(global: &GlobalArgs, args: &KeysArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let directory = config::gateway_state_dir(global)?.ok_or_else(|| config::no_state_dir(" for keys"))?;
    match &args.verb {
        KeysVerb::Add { name, expires } => {
            add(&directory, name, *expires, screen)?;
            record(global, &directory, KeyChange::Added, name, screen)?;
        }
        KeysVerb::Ls { output } => list(&directory, output.form, screen)?,
        KeysVerb::Rm { name } => {
            remove(&directory, name, screen)?;
            record(global, &directory, KeyChange::Removed, name, screen)?;
        }
    }
    Ok(Exit::Ok)
}

/// Writes the change to the audit log.
fn record(
    global: &GlobalArgs,
    directory: &Path,
    change: KeyChange,
    name: &str,
    screen: &mut Screen,
) -> io::Result<()> {
    let names = vec![name.to_owned()];
    let event = SecurityEvent::KeysChanged { change, names, actor: audit_line::actor() };
    audit_line::record(Some(directory), &config::gateway_settings(global), &event, screen)
}

fn add(
    directory: &Path,
    name: &str,
    expires: Option<Duration>,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let key = keys::add_with_lifetime(directory, name, expires).map_err(|error| match &error {
        KeyError::BadName(_) => FailureReport::new(Exit::General, error.to_string()).with_hint(
            "a name has up to 64 letters, digits, `.`, `_`, `@` and `-`; `local` is reserved for clients of this machine without \
             a key, and `admin` for the holder of the admin token",
        ),
        KeyError::NameTaken(name) => FailureReport::new(Exit::General, error.to_string())
            .with_hint(format!("`gripfast keys rm {name}` removes it")),
        KeyError::TooMany => FailureReport::new(Exit::General, error.to_string()),
        KeyError::Io(cause) => unusable(directory, cause),
    })?;
    screen.line(&key)?;
    screen.message(&format!(
        "this is the key of `{name}`; it is not shown again. Clients send it as `Authorization: Bearer KEY`. The gateway \
         asks for keys if the config has `auth = {{ keys = true }}` in the table `gateway`"
    ))?;
    Ok(())
}

fn list(directory: &Path, output: OutputFormat, screen: &mut Screen) -> Result<(), CommandError> {
    let keys = keys::list(directory).map_err(|error| unusable(directory, &error))?;
    match output {
        OutputFormat::Json => {
            let millis = |at: Option<u64>| at.map(|at| at.saturating_mul(1000));
            let shown = |key: &Key| {
                json!({
                    "name": key.name,
                    "created_ms": key.created * 1000,
                    "expires_ms": millis(key.expires),
                    "last_used_ms": millis(key.last_used),
                })
            };
            screen.json(&json!({ "keys": keys.iter().map(shown).collect::<Vec<_>>() }))?;
        }
        OutputFormat::Text if keys.is_empty() => {
            screen.message("no keys; `gripfast keys add NAME` creates one")?
        }
        OutputFormat::Text => {
            let now = Duration::from_millis(now_ms());
            let ago = |at: u64| ago(at.saturating_mul(1000));
            let mut table = Table::new(["NAME", "CREATED", "EXPIRES", "LAST USED"]);
            for key in &keys {
                let expires = match key.expires {
                    None => "never".to_owned(),
                    Some(at) if key.is_valid(now) => {
                        format!(
                            "in {}",
                            short_duration(at.saturating_sub(now.as_secs()).saturating_mul(1000))
                        )
                    }
                    Some(at) => ago(at),
                };
                let used = key.last_used.map_or_else(|| "never".to_owned(), ago);
                table.row([&key.name, &ago(key.created), &expires, &used]);
            }
            screen.table(table)?;
        }
    }
    Ok(())
}

fn remove(directory: &Path, name: &str, screen: &mut Screen) -> Result<(), CommandError> {
    if keys::remove(directory, name).map_err(|error| unusable(directory, &error))? {
        screen.message(&format!("removed the key of `{name}`; it is no longer valid"))?;
        return Ok(());
    }
    let known = keys::list(directory).map_err(|error| unusable(directory, &error))?;
    let hint = config::did_you_mean(name, known.iter().map(|key| key.name.as_str()))
        .unwrap_or_else(|| "`gripfast keys ls` lists the keys".to_owned());
    Err(FailureReport::new(Exit::General, format!("there is no key `{name}`")).with_hint(hint).into())
}

fn unusable(directory: &Path, cause: &io::Error) -> FailureReport {
    let path: PathBuf = directory.join(keys::KEYS_FILE);
    FailureReport::new(Exit::General, format!("`{}` cannot be used: {cause}", path.display()))
        .with_hint("`--state-dir` names another directory")
}
