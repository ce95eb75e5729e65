//! `gripfast serve`: the gateway in the foreground, until somebody says stop.

use super::args::Global;
#[cfg(unix)]
use super::background::{self, Bridge};
use super::config;
use super::config_trust;
use super::demo;
use super::exit::Exit;
use super::fleet::{Hangups, Signals, runtime};
use super::log;
use super::render::{Screen, plural};
use super::stop::{Failure, Stop};
use clap::Args;
use gripfast::Host;
use gripfast::auth::Logins;
use gripfast::config::{ClientLimits, Config, ConfigFile, GatewayConfig, Isolation, Target};
use gripfast::file_limit::{self, Needs};
use gripfast::private_files::StrictModes;
use gripfast_gateway::downstream::Terms;
use gripfast_gateway::reload::Reloader;
use gripfast_gateway::server::{CannotListen, Server, Settings};
use gripfast_gateway::telemetry::Telemetry;
use gripfast_gateway::tls::BadCertificate;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line with its addresses when it listens, and then serves until Ctrl-C or a TERM signal. Clients \
connect to /mcp (Streamable HTTP, both protocol eras) or /sse (legacy HTTP+SSE).

A config that changes is taken within seconds, at once on `gripfast reload`, and after a HUP signal as soon as the file stays the same for a second; only servers that \
it says something else about are touched, and what they are doing is done first. A mistake in \
the table of a server concerns that server only, which goes on as it was: `gripfast status` says why.

Examples:
  gripfast serve --demo                      no config needed: watch servers crash and come back
  gripfast serve --config gripfast.toml
  gripfast serve --listen 127.0.0.1:0        picks a port and prints it")]
pub(crate) struct ServeArgs {
    /// Where to listen; without `gateway.auth` only loopback addresses [default: `gateway.listen`, 127.0.0.1:7331]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Serve built-in sample servers that crash and forget, instead of a config
    #[arg(long)]
    pub(crate) demo: bool,

    /// Started by `gripfast stdio --background`: leaves its terminal, takes a free port if the configured one is taken,
    /// and ends `gateway.linger` after its last client
    #[arg(long, hide = true, conflicts_with = "demo")]
    background: bool,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port such as 127.0.0.1:7331")
}

pub(crate) fn run(global: &Global, args: &ServeArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let plan = if args.demo { Plan::demo(global)? } else { Plan::from_config(global, screen)? };
    plan.require_safe_keys()?;
    #[cfg(unix)]
    if args.background {
        background::detach();
    }
    let runtime = runtime()?;
    let served = runtime.block_on(serve(plan, args, screen));
    runtime.shutdown_timeout(super::fleet::LEFTOVERS);
    served
}

/// What to serve.
pub(crate) struct Plan {
    gateway: GatewayConfig,
    state_dir: Option<PathBuf>,
    /// With the file that it came from; `None` for the demo.
    config: Option<(ConfigFile, Config)>,
    /// Where state is kept, if that was typed.
    typed_state_dir: Option<(&'static str, String)>,
    /// Where the demo keeps its state; gone with the plan.
    _scratch: Option<tempfile::TempDir>,
}

impl Plan {
    /// The demo keeps nothing beyond its end, unless it is told where. Meanwhile it has a ledger and a token like
    /// any other.
    fn demo(global: &Global) -> Result<Self, Failure> {
        let scratch = match &global.state_dir {
            Some(_) => None,
            // Without it the demo has neither, and still shows its point.
            None => tempfile::Builder::new().prefix("gripfast-demo-").tempdir().ok(),
        };
        let state_dir = scratch.as_ref().map(|scratch| scratch.path().to_owned());
        Ok(Self {
            gateway: GatewayConfig::default(),
            state_dir: config::judged(state_dir.or_else(|| global.state_dir.clone()), StrictModes::default)?,
            config: None,
            typed_state_dir: None,
            _scratch: scratch,
        })
    }

    pub(crate) fn from_config(global: &Global, screen: &mut Screen) -> Result<Self, Stop> {
        let opened = config::open(global, screen)?;
        log::use_format(opened.config.gateway.log_format);
        for finding in opened.config.diagnostics() {
            screen.finding(&finding.render())?;
        }
        let state_dir = opened.state_dir(global)?;
        let file = ConfigFile { path: opened.path, origin: opened.origin };
        Ok(Self {
            gateway: opened.config.gateway.clone(),
            state_dir,
            config: Some((file, opened.config)),
            typed_state_dir: global
                .state_dir
                .as_ref()
                .map(|path| ("gateway.state_dir", path.display().to_string())),
            _scratch: None,
        })
    }

    /// Refuses keys of the listener that another user could have changed.
    fn require_safe_keys(&self) -> Result<(), Failure> {
        let unsafe_keys = self.config.iter().flat_map(|(_, config)| config::unsafe_keys(config));
        match (unsafe_keys.into_iter().next(), self.gateway.access.strict_modes) {
            (Some((key, found)), StrictModes::On) => {
                let text = format!("`{key}` is refused: {found}");
                Err(Failure::new(Exit::ConfigInvalid, text).with_hint(config::remedy(&found)))
            }
            (Some(_), StrictModes::Off) | (None, _) => Ok(()),
        }
    }

    /// A host by the rules of the plan, which keeps no server yet.
    pub(crate) fn host(&self) -> Host {
        let builder = Host::builder()
            .client_info("gripfast", env!("CARGO_PKG_VERSION"))
            .capabilities(gripfast_gateway::downstream::client_capabilities());
        let budgets = self.config.as_ref().map(|(_, config)| config.budgets.clone()).unwrap_or_default();
        let clients = self.config.as_ref().map(|(_, config)| config.clients.clone()).unwrap_or_default();
        builder
            .state_dir(self.state_dir.clone())
            .strict_modes(self.gateway.access.strict_modes)
            .logins(Some(Logins::of(self.state_dir.as_deref(), self.gateway.login_key)))
            .ledger(self.gateway.ledger)
            .clients(clients)
            .budgets(budgets)
            .cache(self.gateway.cache)
            .audit(self.gateway.audit)
            .nesting(self.gateway.limits.nesting as usize)
            .build()
    }

    /// Has `host` keep every server of the plan. A server whose config is unusable is listed with its cause; the
    /// others start.
    pub(crate) fn start_servers(&self, host: &Host) -> Result<(), Failure> {
        for entry in self.config.iter().flat_map(|(_, config)| &config.servers) {
            let spawned = match &entry.spec {
                Ok(spec) => host.spawn(&entry.name, spec.clone()),
                Err(findings) => {
                    let causes: Vec<String> = findings.iter().map(ToString::to_string).collect();
                    host.spawn_broken(&entry.name, &causes.join("; "))
                }
            };
            spawned.map_err(|error| Failure::new(Exit::ConfigInvalid, error.to_string()))?;
        }
        Ok(())
    }

    /// Keeps this host in step with the file of the plan.
    pub(crate) fn reloader(&self, host: &Host) -> Option<Arc<Reloader>> {
        let (file, config) = self.config.clone()?;
        let reloader = Reloader::new(host.clone(), file.path, config);
        Some(Arc::new(reloader.chosen_by(file.origin, config_trust::list())))
    }

    /// The config and its file, and the state directory; `None` if there is no such thing.
    #[cfg(unix)]
    pub(crate) fn places(&self) -> Option<(&ConfigFile, &Config, &Path)> {
        let (file, config) = self.config.as_ref()?;
        Some((file, config, self.state_dir.as_deref()?))
    }

    /// Raises the limit of open files, and lowers the number of connections to what it leaves.
    fn fit_into_file_limit(&self, limits: &mut ClientLimits) {
        let Some(limit) = file_limit::raise() else { return };
        let mut needs = Needs::default();
        for spec in self.config.iter().flat_map(|(_, config)| &config.servers).flat_map(|entry| &entry.spec) {
            match (&spec.target, spec.isolation) {
                (Target::Stdio { .. }, Isolation::PerClient) => needs.processes += spec.max_instances,
                (Target::Stdio { .. }, Isolation::Auto | Isolation::Shared) => needs.processes += 1,
                (_, _) => needs.remotes += 1,
            }
        }
        let (wanted, fitting) = (limits.connections, needs.connections_within(limit, limits.connections));
        if fitting < wanted {
            tracing::warn!(
                "connections are limited to {fitting} instead of {wanted} (`gateway.limits.connections`): the limit of \
                 open files is {limit}, and servers and state need the rest; `LimitNOFILE=` or `ulimit -n` raises it"
            );
            limits.lower_connections(fitting);
        }
    }

    pub(crate) fn settings(&self, listen: Option<SocketAddr>) -> Settings {
        Settings {
            listen: listen.unwrap_or(self.gateway.listen),
            state_dir: self.state_dir.clone(),
            terms: Terms::from(&self.gateway),
            access: self.gateway.access.clone(),
        }
    }
}

async fn serve(plan: Plan, args: &ServeArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let mut signals = Signals::listen().map_err(super::fleet::no_runtime)?;
    // Before anybody knows of us: an unheard hangup would end the process.
    let hangups = Hangups::listen();
    let host = plan.host();
    let mut settings = plan.settings(args.listen);
    plan.fit_into_file_limit(&mut settings.terms.limits);
    let server = match Server::bind(host.clone(), &settings).await {
        // Clients of `gripfast stdio` do not need that port.
        Err(CannotListen::Refused { source, .. })
            if args.background && source.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!("`{}` is taken; listening on a free port", settings.listen);
            settings.listen.set_port(0);
            Server::bind(host.clone(), &settings).await
        }
        bound => bound,
    };
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has bridges"))]
    let mut server = server.map_err(|error| cannot(&error))?;
    let address = server.address().map_err(|error| Failure::new(Exit::General, error.to_string()))?;
    if let Some(telemetry) = telemetry() {
        server.tells(telemetry);
    }
    let base = settings.reached_at(address);
    let reloader = plan.reloader(&host);
    if let Some(reloader) = &reloader {
        server.goes_by(Arc::clone(reloader));
        let listen = args.listen.map(|address| ("gateway.listen", address.to_string()));
        server.was_told(plan.typed_state_dir.clone().into_iter().chain(listen).collect());
    }
    screen.line(&format!(
        "gripfast {} serves MCP at {base}/mcp (legacy SSE: {base}/sse, dashboard: {base}/, status: {base}/api/v1/status)",
        env!("CARGO_PKG_VERSION")
    ))?;
    if let Some(state) = &plan.state_dir {
        let token = state.join(gripfast_gateway::admin::TOKEN_FILE);
        let mut command = String::from("gripfast dashboard");
        if args.demo {
            command.push_str(&format!(" --state-dir {}", state.display()));
        }
        if args.demo || args.listen.is_some() {
            command.push_str(&format!(" --url {base}"));
        }
        screen.line(&format!("  to act in the dashboard, open it with: {command}"))?;
        screen.line(&format!("  the admin token is in {}", token.display()))?;
    }
    screen.flush()?;
    // Once the address is ours: a second gateway by mistake starts nothing twice.
    plan.start_servers(&host)?;
    let clients = server.clients();
    #[cfg(unix)]
    let bridge = Bridge::of(&plan);
    #[cfg(unix)]
    if let Some(bridge) = &bridge {
        server.bridge(bridge.state_dir(), bridge.name()).await;
    }
    let idle = async {
        if !args.background {
            std::future::pending::<()>().await;
        }
        clients.idle_for(plan.gateway.linger).await;
        tracing::info!(linger = ?plan.gateway.linger, "no client is connected any more: this gateway ends");
    };
    let keep_log_small = async {
        #[cfg(unix)]
        if let Some(bridge) = bridge.as_ref().filter(|_| args.background) {
            bridge.keep_log_small().await;
        }
        std::future::pending::<()>().await;
    };
    let demo = if args.demo { Some(demo::Demo::start(&host).await?) } else { None };
    let (say_stop, stop) = tokio::sync::oneshot::channel::<()>();
    let serving = server.serve(async {
        let _ = stop.await;
    });
    tokio::pin!(serving);
    let told = async {
        match &demo {
            Some(demo) => demo.tell(screen).await,
            None => std::future::pending().await,
        }
    };
    let exit = tokio::select! {
        served = &mut serving => {
            return Err(Failure::new(Exit::General, format!("the listener broke: {served:?}")).into());
        }
        told = told => return told.map(|()| Exit::Ok),
        () = keep_up(reloader.as_ref(), hangups) => Exit::Ok,
        () = idle => Exit::Ok,
        () = keep_log_small => Exit::Ok,
        exit = signals.next() => exit,
    };
    // The gateway leaves in any case, also where nobody reads this.
    let _ = screen.talk(&farewell(&host.in_flight(), settings.terms.shutdown_timeout));
    let _ = say_stop.send(());
    tokio::select! {
        _ = serving => {}
        // Somebody insists. What is left of the children ends with us.
        _ = signals.next() => {}
    }
    // Being told to stop is how this verb ends well.
    Ok(match exit {
        Exit::Interrupted | Exit::Terminated => Exit::Ok,
        other => other,
    })
}

/// The words after the first signal: what the gateway waits for, and for how long.
fn farewell(in_flight: &[(String, u32)], limit: Duration) -> String {
    let calls: u32 = in_flight.iter().map(|(_, calls)| calls).sum();
    let waits = if calls == 0 {
        "no call is in flight; servers are stopped".to_owned()
    } else {
        let each: Vec<String> =
            in_flight.iter().map(|(server, calls)| format!("{server}: {calls}")).collect();
        format!("waiting for {} in flight ({})", plural(calls as usize, "call"), each.join(", "))
    };
    format!("stopping: {waits}, within {}; a second signal ends at once", gripfast::text::duration(limit))
}

/// Who is told of what is served, if the environment names somebody. Without it everything else works.
pub(crate) fn telemetry() -> Option<Telemetry> {
    Telemetry::from_env().unwrap_or_else(|error| {
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(cause, "no telemetry is sent: {error}: {cause}");
        None
    })
}

/// Takes what the config file says when it changes, and on SIGHUP. Never ends by itself.
pub(crate) async fn keep_up(reloader: Option<&Arc<Reloader>>, mut hangups: Hangups) {
    let Some(reloader) = reloader else { return std::future::pending().await };
    let told = async {
        loop {
            hangups.next().await;
            // Whatever comes of it is told by the log and by status.
            let _ = reloader.reload_on_signal().await;
        }
    };
    tokio::select! {
        () = reloader.watch() => {}
        () = told => {}
    }
}

fn cannot(error: &CannotListen) -> Failure {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    let failure = Failure::new(Exit::General, text);
    match error {
        CannotListen::NotLoopback(_) => failure.with_hint(
            "`gripfast keys add NAME` makes a key, and `auth = { keys = true }` in the table `gateway` asks for one; \
             or listen on 127.0.0.1 or [::1]",
        ),
        CannotListen::NoPublicUrl(_) => failure.with_hint(
            "`public_url` in the table `gateway` says what clients call it, for example \"https://mcp.example.com\"",
        ),
        CannotListen::Tls(BadCertificate::Unsafe(found)) => {
            failure.exiting(Exit::ConfigInvalid).with_hint(config::remedy(found))
        }
        CannotListen::Tls(_) => failure.with_hint("see `tls` in the table `gateway` of the config"),
        CannotListen::Access(_) => failure.with_hint("see `auth` in the table `gateway` of the config"),
        CannotListen::Refused { .. } => failure.with_hint(
            "another gateway may listen there: `gripfast status` asks it; `--listen` takes another port",
        ),
        CannotListen::State(_) => failure.with_hint("`--state-dir` names another directory"),
    }
}
