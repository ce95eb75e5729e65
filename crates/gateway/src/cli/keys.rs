//! `gripfast keys`: who may use the gateway. A key is shown once, when it is made; what is kept are digests.

use super::args::{Form, Global, KeysArgs, KeysVerb};
use super::exit::Exit;
use super::render::{Screen, Table};
use super::status::span;
use super::stop::{Failure, Stop};
use super::{audited, config};
use gripfast::config::suggest;
use gripfast::{KeyChange, SecurityEvent};
use gripfast_gateway::auth::keys::{self, Key, NoKey};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Makes, lists or removes keys in the state directory, which a running gateway looks at by itself.
pub(crate) fn run(global: &Global, args: &KeysArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let directory = config::state_dir_of_gateway(global)?.ok_or_else(no_directory)?;
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
    global: &Global,
    directory: &Path,
    change: KeyChange,
    name: &str,
    screen: &mut Screen,
) -> io::Result<()> {
    let names = vec![name.to_owned()];
    let event = SecurityEvent::KeysChanged { change, names, actor: audited::actor() };
    audited::record(Some(directory), &config::gateway_settings(global), &event, screen)
}

fn add(directory: &Path, name: &str, expires: Option<Duration>, screen: &mut Screen) -> Result<(), Stop> {
    let key = keys::add_for(directory, name, expires).map_err(|error| match &error {
        NoKey::BadName(_) => Failure::new(Exit::General, error.to_string()).with_hint(
            "up to 64 letters, digits, `.`, `_`, `@` and `-`; `local` is everybody on this machine, and `admin` whoever has the admin token",
        ),
        NoKey::Taken(name) => Failure::new(Exit::General, error.to_string())
            .with_hint(format!("`gripfast keys rm {name}` removes it")),
        NoKey::TooMany => Failure::new(Exit::General, error.to_string()),
        NoKey::Io(cause) => unusable(directory, cause),
    })?;
    screen.line(&key)?;
    screen.talk(&format!(
        "This is the key of `{name}`; it is not shown again. Clients send it as `Authorization: Bearer`, and \
         `auth = {{ keys = true }}` in the table `gateway` of the config asks for one."
    ))?;
    Ok(())
}

fn list(directory: &Path, output: Form, screen: &mut Screen) -> Result<(), Stop> {
    let keys = keys::list(directory).map_err(|error| unusable(directory, &error))?;
    match output {
        Form::Json => {
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
        Form::Text if keys.is_empty() => screen.talk("no keys; `gripfast keys add NAME` makes one")?,
        Form::Text => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let ago = |at: u64| format!("{} ago", span(now.as_secs().saturating_sub(at) * 1000));
            let mut table = Table::new(["NAME", "MADE", "EXPIRES", "LAST USED"]);
            for key in &keys {
                let expires = match key.expires {
                    None => "never".to_owned(),
                    Some(at) if key.is_good(now) => {
                        format!("in {}", span(at.saturating_sub(now.as_secs()).saturating_mul(1000)))
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

fn remove(directory: &Path, name: &str, screen: &mut Screen) -> Result<(), Stop> {
    if keys::remove(directory, name).map_err(|error| unusable(directory, &error))? {
        screen.talk(&format!("the key of `{name}` is good for nothing from now on"))?;
        return Ok(());
    }
    let known = keys::list(directory).map_err(|error| unusable(directory, &error))?;
    let hint = match suggest::nearest(name, known.iter().map(|key| key.name.as_str())) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`gripfast keys ls` lists them".to_owned(),
    };
    Err(Failure::new(Exit::General, format!("there is no key `{name}`")).with_hint(hint).into())
}

fn unusable(directory: &Path, cause: &io::Error) -> Failure {
    let path: PathBuf = directory.join(keys::FILE);
    Failure::new(Exit::General, format!("`{}` cannot be used: {cause}", path.display()))
        .with_hint("`--state-dir` names another directory")
}

fn no_directory() -> Failure {
    Failure::new(Exit::General, "there is no state directory to keep keys in")
        .with_hint("`--state-dir` names one")
}
