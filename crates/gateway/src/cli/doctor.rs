//! `gripfast doctor`: for each server the cause of its failure and the next step, from evidence. Asks a running gateway
//! for its observations and its config; without one, starts the servers for a moment. Then checks what the config
//! refers to and probes the addresses from this process.

mod diagnosis;
pub(crate) mod reachability;

use super::address::GatewayUrl;
use super::admin_client::{AdminClient, upstream_path};
use super::args::{GatewayTarget, GlobalArgs, OutputArgs, OutputFormat};
use super::config::{self, LoadedConfig};
use super::doctor::diagnosis::{Diagnosis, ServerEvidence};
use super::duration;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::import::absolute;
use super::local_host::{HostOptions, runtime, with_host};
use super::render::{Screen, plural, with_progress};
use clap::Args;
use gripfast::config::{ProcessEnvironment, ServerEntry, ServerSpec};
use gripfast_gateway::api::types::{DetailView, ExposureView, FleetView};
use gripfast_gateway::cluster::ClusterSettings;
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(mut_arg("url", |url| url.conflicts_with("config")))]
#[command(after_help = "\
Asks the running gateway for the state of its servers and its config, checks what that config refers to (commands, \
variables, files), tries the addresses of servers, and shows how many tokens clients list if tools are found by search. Without a gateway, or with --config, the servers are started for \
a moment and stopped again. Nothing is changed. If the cause is not known, the output says so.

Exit codes: 0 no problem found, 1 a problem found, 2 the config cannot be read.

Examples:
  gripfast doctor
  gripfast doctor github
  gripfast doctor -o json | jq -r '.servers[] | select(.ok | not) | .server + \": \" + .do'")]
pub(crate) struct DoctorArgs {
    /// Only this server
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    /// Time limit for a server to start, if no gateway is running
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15s")]
    wait: Duration,

    #[command(flatten)]
    gateway: GatewayTarget,
}

/// The shape of `-o json`.
#[derive(Serialize)]
struct Report<'r> {
    /// The gateway that was asked.
    gateway: Option<String>,
    /// The config that the gateway uses, or that was read without a gateway.
    config: Option<String>,
    servers: &'r [Diagnosis],
}

/// Source of the facts about the servers.
enum FactSource {
    /// A running gateway.
    Gateway(AnsweredGateway),
    /// The servers themselves: no gateway runs at this address, or none was wanted.
    Servers(Option<GatewayUrl>),
    /// Another program listens at the gateway's address.
    OtherProgram(FailureReport),
}

/// A gateway that has answered.
struct AnsweredGateway {
    url: GatewayUrl,
    /// The config that it uses.
    config: Option<PathBuf>,
    /// True if it belongs to this user, so that the config that it names may be read.
    is_own: bool,
    exposure: Option<ExposureView>,
}

pub(crate) fn run(global: &GlobalArgs, args: &DoctorArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let here = open_config(global, screen)?;
    let source = find_fact_source(global, args, screen)?;
    let seen = match &source {
        FactSource::Gateway(gateway) => {
            runtime()?.block_on(with_progress(screen, "the gateway", fetch_observed(global, &gateway.url)))?
        }
        FactSource::Servers(_) | FactSource::OtherProgram(_) => match &here {
            Ok(opened) => start_and_observe(opened, global, args, screen)?,
            Err(missing) => return Err(no_facts(&source, missing).into()),
        },
    };
    let here = here.ok();
    let mut found = Vec::new();
    let mut used = here.as_ref();
    let other;
    match &source {
        FactSource::Gateway(gateway) => {
            if let Some(path) = gateway.config.as_deref().filter(|path| !is_same_file(here.as_ref(), path)) {
                let unknown = here.iter().flat_map(|here| &here.config.servers);
                let unknown = unknown.filter(|entry| !seen.contains_key(&entry.name)).count();
                let unused = here.as_ref().map(|here| (here.path.as_path(), unknown));
                found.push(Diagnosis::other_config(path, unused));
                other = gateway.is_own.then(|| config::load(Some(path)).ok()).flatten();
                used = other.as_ref();
            }
        }
        FactSource::Servers(Some(url)) => found.push(Diagnosis::no_gateway(url.authority())),
        FactSource::Servers(None) => {}
        FactSource::OtherProgram(failure) => found.push(Diagnosis::port_taken(failure)),
    }
    let by_gateway = matches!(source, FactSource::Gateway(_));
    for name in server_names(here.as_ref(), used, &seen, args)? {
        let entry = used.and_then(|used| entry(used, &name));
        let reach = match entry.map(|entry| &entry.spec) {
            Some(Ok(spec)) => {
                let trying = reachability::probe(&spec.target, &ProcessEnvironment);
                runtime()?.block_on(with_progress(screen, &format!("a reply from `{name}`"), trying))
            }
            Some(Err(_)) | None => reachability::Reachability::NotTried,
        };
        let case =
            ServerEvidence { name: &name, entry, observed: seen.get(&name), by_gateway, reachability: reach };
        found.push(case.diagnose(&ProcessEnvironment));
    }
    if args.name.is_none() {
        found.extend(diagnose_search(&source, here.as_ref(), screen)?);
    }
    if args.name.is_none()
        && let Some(used) = used
    {
        found.extend(examine_cluster(used, screen)?);
    }
    match args.output.form {
        OutputFormat::Json => {
            let (gateway, config) = match &source {
                FactSource::Gateway(gateway) => (Some(gateway.url.to_string()), gateway.config.clone()),
                FactSource::Servers(_) | FactSource::OtherProgram(_) => (None, here.map(|here| here.path)),
            };
            let config = config.as_deref().map(absolute);
            screen.json(&Report { gateway, config, servers: &found })?;
        }
        OutputFormat::Text => show(&found, screen)?,
    }
    Ok(if found.iter().all(|diagnosis| diagnosis.ok) { Exit::Ok } else { Exit::General })
}

/// Diagnoses tool search, where the gateway or the config uses it.
fn diagnose_search(
    source: &FactSource,
    here: Option<&LoadedConfig>,
    screen: &mut Screen,
) -> Result<Vec<Diagnosis>, CommandError> {
    if let FactSource::Gateway(gateway) = source {
        let Some(exposure) = &gateway.exposure else { return Ok(Vec::new()) };
        let embeddings = exposure.embeddings.as_ref().map(Diagnosis::embeddings);
        return Ok([Diagnosis::exposure(exposure)].into_iter().chain(embeddings).collect());
    }
    let Some(endpoint) = here.and_then(|here| here.config.gateway.search.embeddings.as_ref()) else {
        return Ok(Vec::new());
    };
    let checking = with_progress(screen, "the embeddings endpoint", gripfast::check_embeddings(endpoint));
    let checked = runtime()?.block_on(checking);
    Ok(vec![Diagnosis::checked_embeddings(&endpoint.model, checked)])
}

/// Examines the service that the config makes the gateway a replica of.
fn examine_cluster(used: &LoadedConfig, screen: &mut Screen) -> Result<Vec<Diagnosis>, CommandError> {
    let Some(cluster) = &used.config.cluster else { return Ok(Vec::new()) };
    let digest = used.config.shared_digest();
    let settings = match ClusterSettings::from_config(cluster, digest, &ProcessEnvironment) {
        Ok(settings) => settings,
        Err(error) => return Ok(vec![Diagnosis::bad_cluster(&error)]),
    };
    let examining = gripfast_gateway::cluster::examine(&settings);
    let found = runtime()?.block_on(with_progress(screen, "the store and the replicas", examining));
    Ok(found.into_iter().map(Diagnosis::from).collect())
}

/// Returns true if a config is the file at this path.
fn is_same_file(opened: Option<&LoadedConfig>, path: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    opened.is_some_and(|opened| real(&opened.path) == real(path))
}

/// Opens the config. A missing config that was not named is the inner error.
fn open_config(
    global: &GlobalArgs,
    screen: &mut Screen,
) -> Result<Result<LoadedConfig, FailureReport>, CommandError> {
    match config::find(global.config.as_deref()) {
        Ok(_) => config::open(global, screen).map(Ok),
        Err(missing) if global.config.is_none() => Ok(Err(missing)),
        Err(missing) => Err(missing.into()),
    }
}

fn find_fact_source(
    global: &GlobalArgs,
    args: &DoctorArgs,
    screen: &mut Screen,
) -> Result<FactSource, CommandError> {
    if global.config.is_some() {
        return Ok(FactSource::Servers(None));
    }
    let url = args.gateway.resolve(global)?;
    let asking = async {
        let gateway = AdminClient::connect(global, &url).await?;
        Ok(match gateway.get::<FleetView>("/status").await {
            Ok(reply) => FactSource::Gateway(AnsweredGateway {
                url: url.clone(),
                config: reply.value.config.map(|config| config.path.into()),
                is_own: gateway.is_own(),
                exposure: reply.value.exposure,
            }),
            // A gateway that refuses the request is still a gateway: no servers are started beside it.
            Err(failure) if args.gateway.url.is_some() || failure.exit == Exit::Denied => {
                return Err(failure.into());
            }
            Err(failure) if reachability::is_open(url.authority()).await => FactSource::OtherProgram(failure),
            Err(_) => FactSource::Servers(Some(url.clone())),
        })
    };
    runtime()?.block_on(with_progress(screen, "the gateway", asking))
}

/// Fetches the gateway's observations of its servers.
async fn fetch_observed(
    global: &GlobalArgs,
    url: &GatewayUrl,
) -> Result<HashMap<String, DetailView>, FailureReport> {
    let gateway = AdminClient::connect(global, url).await?;
    let fleet: FleetView = gateway.get("/status").await?.value;
    let mut seen = HashMap::new();
    for name in fleet.names() {
        seen.insert(name.to_owned(), gateway.get(&upstream_path(name, "")).await?.value);
    }
    Ok(seen)
}

/// Starts the usable servers and observes them.
fn start_and_observe(
    opened: &LoadedConfig,
    global: &GlobalArgs,
    args: &DoctorArgs,
    screen: &mut Screen,
) -> Result<HashMap<String, DetailView>, CommandError> {
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
    let host_options = HostOptions { logins: Some(opened.logins(global)?), ..HostOptions::default() };
    with_host(host_options, &usable, async |host| {
        let found = with_progress(screen, &what, host.discover(args.wait)).await;
        let listed = |name: &str| found.iter().any(|row| row.server == name && row.catalog.is_ok());
        let seen = host.status().into_iter().map(|status| {
            let seen = diagnosis::from_start(&status, listed(&status.name));
            (status.name, seen)
        });
        seen.collect()
    })
}

/// The servers to diagnose, in the order of the config in use. A server that only the local config has is included if
/// it is named.
fn server_names(
    here: Option<&LoadedConfig>,
    used: Option<&LoadedConfig>,
    seen: &HashMap<String, DetailView>,
    args: &DoctorArgs,
) -> Result<Vec<String>, FailureReport> {
    let named = |opened: Option<&LoadedConfig>| -> Vec<String> {
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
            let failure = FailureReport::new(Exit::General, format!("there is no server named `{name}`"));
            Err(failure.with_hint_if_any(config::did_you_mean(name, all.iter().map(String::as_str))))
        }
    }
}

fn entry<'o>(opened: &'o LoadedConfig, name: &str) -> Option<&'o ServerEntry> {
    opened.config.servers.iter().find(|entry| entry.name == name)
}

/// The failure if there is neither a gateway nor a config.
fn no_facts(source: &FactSource, no_config: &FailureReport) -> FailureReport {
    match source {
        FactSource::OtherProgram(failure) => failure.clone(),
        FactSource::Gateway(_) | FactSource::Servers(_) => no_config.clone(),
    }
}

fn show(found: &[Diagnosis], screen: &mut Screen) -> Result<(), CommandError> {
    let width = found.iter().map(|diagnosis| diagnosis.server.chars().count()).max().unwrap_or(0);
    for diagnosis in found {
        let Diagnosis { server, ok, cause, step, evidence } = diagnosis;
        let glyph = if *ok { '✓' } else { '✗' };
        screen.line_with_symbols(&format!("{glyph} {server:width$}  {cause}"))?;
        let margin = " ".repeat(width + 4);
        if let Some(step) = step {
            screen.line(&format!("{margin}do: {step}"))?;
        }
        for line in evidence {
            screen.line(&format!("{margin}| {line}"))?;
        }
    }
    if found.is_empty() {
        screen.message("no servers")?;
    }
    Ok(())
}
