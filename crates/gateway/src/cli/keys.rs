//! `gripfast keys`: API keys of clients. A key is shown once, when it is created; only its digest is stored.

use super::args::{GlobalArgs, KeysArgs, KeysVerb, OutputFormat};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::key_store::{KeyStore, not_changed};
use super::render::{Screen, Table, ago, now_ms};
use super::status::short_duration;
use super::{audit_line, config};
use gripfast::{KeyChange, SecurityEvent};
use gripfast_gateway::auth::keys::{Key, KeyError};
use serde_json::json;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Creates, lists or removes keys in the state directory, or those of a service of several replicas. Running gateways
/// notice changes by themselves.
pub(crate) fn run(global: &GlobalArgs, args: &KeysArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let store = KeyStore::open(global)?.ok_or_else(|| config::no_state_dir(" for keys"))?;
    match &args.verb {
        KeysVerb::Add { name, expires } => {
            add(&store, name, *expires, screen)?;
            record(global, store.directory(), KeyChange::Added, name, screen)?;
        }
        KeysVerb::Ls { output } => list(&store, output.form, screen)?,
        KeysVerb::Rm { name } => {
            remove(&store, name, screen)?;
            record(global, store.directory(), KeyChange::Removed, name, screen)?;
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
    store: &KeyStore,
    name: &str,
    expires: Option<Duration>,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let key = store.add(name, expires).map_err(|error| match &error {
        KeyError::BadName(_) => FailureReport::new(Exit::General, error.to_string()).with_hint(
            "a name has up to 64 letters, digits, `.`, `_`, `@` and `-`; `local` is reserved for clients of this machine without \
             a key, and `admin` for the holder of the admin token",
        ),
        KeyError::NameTaken(name) => FailureReport::new(Exit::General, error.to_string())
            .with_hint(format!("`gripfast keys rm {name}` removes it")),
        KeyError::TooMany => FailureReport::new(Exit::General, error.to_string()),
        KeyError::Io(cause) => store.unusable(cause),
        KeyError::Shared(error) => not_changed(error),
    })?;
    screen.line(&key)?;
    screen.message(&format!(
        "this is the key of `{name}`; it is not shown again. Clients send it as `Authorization: Bearer KEY`. The gateway \
         asks for keys if the config has `auth = {{ keys = true }}` in the table `gateway`"
    ))?;
    Ok(())
}

fn list(store: &KeyStore, output: OutputFormat, screen: &mut Screen) -> Result<(), CommandError> {
    let keys = store.list()?;
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

fn remove(store: &KeyStore, name: &str, screen: &mut Screen) -> Result<(), CommandError> {
    if store.remove(name)? {
        screen.message(&match store.is_shared() {
            true => format!(
                "removed the key of `{name}`; all replicas refuse it at once, or after their next heartbeat"
            ),
            false => format!("removed the key of `{name}`; it is no longer valid"),
        })?;
        return Ok(());
    }
    let known = store.list()?;
    let hint = config::did_you_mean(name, known.iter().map(|key| key.name.as_str()))
        .unwrap_or_else(|| "`gripfast keys ls` lists the keys".to_owned());
    Err(FailureReport::new(Exit::General, format!("there is no key `{name}`")).with_hint(hint).into())
}
