//! `gripfast doctor`: for each server the cause of its trouble and one thing to do, from evidence. A running
//! gateway is asked what it saw and which config it uses; without one the servers are started for a moment. What that
//! config refers to is looked up, and addresses are tried, from here.

mod case;
pub(crate) mod reach;

use super::address::GatewayUrl;
use super::args::{Form, Global, Meant, Output};
use super::config::{self, Opened};
use super::duration;
use super::exit::Exit;
use super::fleet::{Means, runtime, with_host};
use super::gateway::{Gateway, piece};
use super::import::absolute;
use super::render::{Screen, plural, with_progress};
use super::status::Fleet;
use super::stop::{Failure, Stop};
use case::{Case, Diagnosis, Seen};
use clap::Args;
use gripfast::config::{ProcessEnvironment, ServerEntry, ServerSpec};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the running gateway what it saw and which config it uses, looks up what that config refers to (commands, \
variables, files), and tries the addresses of servers. Without a gateway, or with --config, the servers are started \
for a moment and stopped again. Nothing is changed. Where the reason is not known, it says so.

Exit codes: 0 nothing is wrong, 1 something is, 2 the config cannot be read.

Examples:
  gripfast doctor
  gripfast doctor github
  gripfast doctor -o json | jq -r '.servers[] | select(.ok | not) | .server + \": \" + .do'")]
pub(crate) struct DoctorArgs {
    /// Only this server
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    output: Output,

    /// How long a server may take to start, where no gateway runs
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    wait: Duration,

    #[command(flatten)]
    gateway: Meant,
}

/// The shape of `-o json`.
#[derive(Serialize)]
struct Report<'r> {
    /// The one that was asked.
    gateway: Option<String>,
    /// The config that it uses, or that was read without one.
    config: Option<String>,
    servers: &'r [Diagnosis],
}

/// Where the facts about the servers come from.
enum Witness {
    /// A running gateway.
    Gateway(Asked),
    /// The servers themselves: no gateway runs there, or none was wanted.
    Servers(Option<GatewayUrl>),
    /// Something else listens where the gateway should be.
    Stranger(Failure),
}

/// A gateway that has answered.
struct Asked {
    url: GatewayUrl,
    /// The config that it uses.
    config: Option<PathBuf>,
    /// Whether it is this user's, so that the file which it names can be read.
    is_own: bool,
}

pub(crate) fn run(global: &Global, args: &DoctorArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let here = opened(global, screen)?;
    let witness = witness(global, args, screen)?;
    let seen = match &witness {
        Witness::Gateway(gateway) => {
            runtime()?.block_on(with_progress(screen, "the gateway", asked(global, &gateway.url)))?
        }
        Witness::Servers(_) | Witness::Stranger(_) => match &here {
            Ok(opened) => tried(opened, global, args, screen)?,
            Err(missing) => return Err(nothing(&witness, missing).into()),
        },
    };
    let here = here.ok();
    let mut found = Vec::new();
    let mut used = here.as_ref();
    let other;
    match &witness {
        Witness::Gateway(gateway) => {
            if let Some(path) = gateway.config.as_deref().filter(|path| !is_of(here.as_ref(), path)) {
                let unknown = here.iter().flat_map(|here| &here.config.servers);
                let unknown = unknown.filter(|entry| !seen.contains_key(&entry.name)).count();
                let unused = here.as_ref().map(|here| (here.path.as_path(), unknown));
                found.push(Diagnosis::of_another_config(path, unused));
                other = gateway.is_own.then(|| config::load(Some(path)).ok()).flatten();
                used = other.as_ref();
            }
        }
        Witness::Servers(Some(url)) => found.push(Diagnosis::of_no_gateway(url.authority())),
        Witness::Servers(None) => {}
        Witness::Stranger(failure) => found.push(Diagnosis::of_the_gateway(failure)),
    }
    let by_gateway = matches!(witness, Witness::Gateway(_));
    for name in names(here.as_ref(), used, &seen, args)? {
        let entry = used.and_then(|used| entry(used, &name));
        let reach = match entry.map(|entry| &entry.spec) {
            Some(Ok(spec)) => {
                let trying = reach::of(&spec.target, &ProcessEnvironment);
                runtime()?.block_on(with_progress(screen, &format!("the address of `{name}`"), trying))
            }
            Some(Err(_)) | None => reach::Reach::NotTried,
        };
        let case = Case { name: &name, entry, seen: seen.get(&name), by_gateway, reach };
        found.push(case.diagnosed(&ProcessEnvironment));
    }
    match args.output.form {
        Form::Json => {
            let (gateway, config) = match &witness {
                Witness::Gateway(gateway) => (Some(gateway.url.to_string()), gateway.config.clone()),
                Witness::Servers(_) | Witness::Stranger(_) => (None, here.map(|here| here.path)),
            };
            let config = config.as_deref().map(absolute);
            screen.json(&Report { gateway, config, servers: &found })?;
        }
        Form::Text => show(&found, screen)?,
    }
    Ok(if found.iter().all(|diagnosis| diagnosis.ok) { Exit::Ok } else { Exit::General })
}

/// Whether a config is the file at this path.
fn is_of(opened: Option<&Opened>, path: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    opened.is_some_and(|opened| real(&opened.path) == real(path))
}

/// The config, or that there is none.
fn opened(global: &Global, screen: &mut Screen) -> Result<Result<Opened, Failure>, Stop> {
    match config::find(global.config.as_deref()) {
        Ok(_) => config::open(global, screen).map(Ok),
        Err(missing) if global.config.is_none() => Ok(Err(missing)),
        Err(missing) => Err(missing.into()),
    }
}

fn witness(global: &Global, args: &DoctorArgs, screen: &mut Screen) -> Result<Witness, Stop> {
    if global.config.is_some() {
        return Ok(Witness::Servers(None));
    }
    let url = args.gateway.address(global)?;
    let asking = async {
        let gateway = Gateway::at(global, &url).await?;
        let answered = async { gateway.read::<Fleet>(&gateway.get("/api/v1/status").await?) }.await;
        Ok(match answered {
            Ok(fleet) => Witness::Gateway(Asked {
                url: url.clone(),
                config: fleet.config_path().map(Path::to_owned),
                is_own: gateway.is_own(),
            }),
            // It is a gateway, which says no: nothing is started beside it.
            Err(failure) if args.gateway.url.is_some() || failure.exit == Exit::Denied => {
                return Err(failure.into());
            }
            Err(failure) if reach::is_open(url.authority()).await => Witness::Stranger(failure),
            Err(_) => Witness::Servers(Some(url.clone())),
        })
    };
    runtime()?.block_on(with_progress(screen, "the gateway", asking))
}

/// What the gateway saw of its servers.
async fn asked(global: &Global, url: &GatewayUrl) -> Result<HashMap<String, Seen>, Failure> {
    let gateway = Gateway::at(global, url).await?;
    let fleet: Fleet = gateway.read(&gateway.get("/api/v1/status").await?)?;
    let mut seen = HashMap::new();
    for name in fleet.names() {
        let reply = gateway.get(&format!("/api/v1/upstreams/{}", piece(name))).await?;
        seen.insert(name.to_owned(), gateway.read(&reply)?);
    }
    Ok(seen)
}

/// What is seen of the servers that could start when they are started.
fn tried(
    opened: &Opened,
    global: &Global,
    args: &DoctorArgs,
    screen: &mut Screen,
) -> Result<HashMap<String, Seen>, Stop> {
    let wanted = |entry: &&ServerEntry| args.name.as_deref().is_none_or(|name| name == entry.name);
    let usable = opened.config.servers.iter().filter(wanted).filter_map(|entry| {
        let spec = entry.spec.as_ref().ok().filter(|spec| !spec.disabled)?;
        Some((entry.name.as_str(), spec))
    });
    let usable: Vec<(&str, &ServerSpec)> = usable.collect();
    if usable.is_empty() {
        return Ok(HashMap::new());
    }
    let what = plural(usable.len(), "server");
    let means = Means { logins: Some(opened.logins(global)?), ..Means::default() };
    with_host(means, &usable, async |host| {
        let found = with_progress(screen, &what, host.discover(args.wait)).await;
        let listed = |name: &str| found.iter().any(|row| row.server == name && row.catalog.is_ok());
        let seen = host.status().into_iter().map(|status| {
            let seen = Seen::of_start(&status, listed(&status.name));
            (status.name, seen)
        });
        seen.collect()
    })
}

/// The servers to look at, in the order of the config in use. One that only the config here has is looked at if it is
/// asked for.
fn names(
    here: Option<&Opened>,
    used: Option<&Opened>,
    seen: &HashMap<String, Seen>,
    args: &DoctorArgs,
) -> Result<Vec<String>, Failure> {
    let named = |opened: Option<&Opened>| -> Vec<String> {
        opened.iter().flat_map(|opened| &opened.config.servers).map(|entry| entry.name.clone()).collect()
    };
    let configured = named(used);
    let mut others: Vec<String> = seen.keys().filter(|name| !configured.contains(name)).cloned().collect();
    others.sort();
    let all: Vec<String> = configured.into_iter().chain(others).collect();
    match &args.name {
        None => Ok(all),
        Some(name) if all.contains(name) || named(here).contains(name) => Ok(vec![name.clone()]),
        Some(name) => {
            let failure = Failure::new(Exit::General, format!("there is no server named `{name}`"));
            Err(match gripfast::config::suggest::nearest(name, all.iter().map(String::as_str)) {
                Some(near) => failure.with_hint(format!("did you mean `{near}`?")),
                None => failure,
            })
        }
    }
}

fn entry<'o>(opened: &'o Opened, name: &str) -> Option<&'o ServerEntry> {
    opened.config.servers.iter().find(|entry| entry.name == name)
}

/// There is neither a gateway nor a config.
fn nothing(witness: &Witness, no_config: &Failure) -> Failure {
    match witness {
        Witness::Stranger(failure) => failure.clone(),
        Witness::Gateway(_) | Witness::Servers(_) => no_config.clone(),
    }
}

fn show(found: &[Diagnosis], screen: &mut Screen) -> Result<(), Stop> {
    let width = found.iter().map(|diagnosis| diagnosis.server.chars().count()).max().unwrap_or(0);
    for diagnosis in found {
        let Diagnosis { server, ok, cause, step, evidence } = diagnosis;
        let glyph = if *ok { '✓' } else { '✗' };
        screen.signs(&format!("{glyph} {server:width$}  {cause}"))?;
        let margin = " ".repeat(width + 4);
        if let Some(step) = step {
            screen.line(&format!("{margin}do: {step}"))?;
        }
        for line in evidence {
            screen.line(&format!("{margin}| {line}"))?;
        }
    }
    if found.is_empty() {
        screen.talk("there are no servers")?;
    }
    Ok(())
}
