//! `gripfast serve`: runs the gateway in the foreground until a signal stops it.

use super::args::GlobalArgs;
#[cfg(unix)]
use super::background::{self, Bridge};
use super::config;
use super::config_trust;
use super::demo;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::{Hangups, Signals, runtime_with_threads};
use super::log;
use super::render::{Screen, plural};
#[cfg(unix)]
use super::service_manager;
use super::shared_tables;
use clap::Args;
use gripfast::Host;
use gripfast::auth::Logins;
use gripfast::config::{ClientLimits, Config, ConfigFile, GatewayConfig, Isolation, Target};
use gripfast::file_limit::{self, DescriptorNeeds};
use gripfast::private_files::StrictModes;
use gripfast::shared_state::SharedState;
use gripfast_gateway::cluster::{ClusterSettings, SharedTables};
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::reload::Reloader;
use gripfast_gateway::server::tls::CertificateProblem;
use gripfast_gateway::server::{ListenError, Server, ServerSettings};
use gripfast_gateway::telemetry::Telemetry;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

#[derive(Debug, Args)]
#[command(after_help = "\
Prints its addresses when it listens, and then serves until Ctrl-C or SIGTERM. Clients connect to /mcp (Streamable \
HTTP, both protocol eras) or /sse (legacy HTTP+SSE).

A changed config is applied within seconds; at once on `gripfast reload`; and on SIGHUP as soon as the file has not \
changed for a second. Only servers whose settings changed are replaced, after their running calls. An error in the \
table of a server affects only that server, which keeps its previous settings: `gripfast status` shows the error.

Examples:
  gripfast serve --demo                      no config needed: watch servers crash and recover
  gripfast serve --config gripfast.toml
  gripfast serve --listen 127.0.0.1:0        picks a port and prints it")]
pub(crate) struct ServeArgs {
    /// Address to listen on; without `gateway.auth` only loopback addresses [default: `gateway.listen`, 127.0.0.1:7331]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Serve built-in sample servers that crash and lose sessions, instead of a config
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

pub(crate) fn run(global: &GlobalArgs, args: &ServeArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let plan = if args.demo { ServePlan::demo(global)? } else { ServePlan::from_config(global, screen)? };
    plan.require_safe_keys()?;
    #[cfg(unix)]
    if args.background {
        background::detach();
    }
    #[cfg(unix)]
    let socket = service_manager::take_socket()?;
    #[cfg(not(unix))]
    let socket = None;
    let runtime = plan.runtime()?;
    let served = runtime.block_on(serve(plan, args, socket, screen));
    runtime.shutdown_timeout(super::local_host::SHUTDOWN_TIMEOUT);
    served
}

/// The servers and settings to serve.
pub(crate) struct ServePlan {
    gateway: GatewayConfig,
    state_dir: Option<PathBuf>,
    /// The config and its file; `None` for the demo.
    config: Option<(ConfigFile, Config)>,
    /// The typed state directory, as key and value of the setting that it overrides.
    typed_state_dir: Option<(&'static str, String)>,
    /// The state directory of the demo; removed with the plan.
    _scratch: Option<tempfile::TempDir>,
}

impl ServePlan {
    /// The plan of the demo. Its state directory is temporary, unless `--state-dir` names one.
    fn demo(global: &GlobalArgs) -> Result<Self, FailureReport> {
        let scratch = match &global.state_dir {
            Some(_) => None,
            // Without a temporary directory the demo has no ledger and no admin token, and still works.
            None => tempfile::Builder::new().prefix("gripfast-demo-").tempdir().ok(),
        };
        let state_dir = scratch.as_ref().map(|scratch| scratch.path().to_owned());
        Ok(Self {
            gateway: GatewayConfig::default(),
            state_dir: config::require_safe_dir(
                state_dir.or_else(|| global.state_dir.clone()),
                StrictModes::default,
            )?,
            config: None,
            typed_state_dir: None,
            _scratch: scratch,
        })
    }

    /// The runtime of the gateway.
    pub(crate) fn runtime(&self) -> Result<Runtime, FailureReport> {
        runtime_with_threads(self.gateway.threads)
    }

    pub(crate) fn from_config(global: &GlobalArgs, screen: &mut Screen) -> Result<Self, CommandError> {
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

    /// Refuses key files of the gateway that another user could have changed.
    fn require_safe_keys(&self) -> Result<(), FailureReport> {
        let unsafe_keys = self.config.iter().flat_map(|(_, config)| config::unsafe_keys(config));
        match (unsafe_keys.into_iter().next(), self.gateway.access.strict_modes) {
            (Some((key, found)), StrictModes::On) => {
                let text = format!("`{key}` is refused: {found}");
                Err(FailureReport::new(Exit::ConfigInvalid, text).with_hint(config::remedy(&found)))
            }
            (Some(_), StrictModes::Off) | (None, _) => Ok(()),
        }
    }

    /// A host with the settings of the plan, without servers.
    pub(crate) fn host(&self, shared: Option<Arc<SharedTables>>) -> Host {
        let builder = Host::builder()
            .client_info("gripfast", env!("CARGO_PKG_VERSION"))
            .capabilities(gripfast_gateway::mcp::client_capabilities());
        let logins = Logins::new(self.state_dir.as_deref(), self.gateway.login_key);
        let logins = match &shared {
            Some(tables) => logins.with_shared_state(Arc::clone(tables) as Arc<dyn SharedState>),
            None => logins,
        };
        let budgets = self.config.as_ref().map(|(_, config)| config.budgets.clone()).unwrap_or_default();
        let clients = self.config.as_ref().map(|(_, config)| config.clients.clone()).unwrap_or_default();
        builder
            .state_dir(self.state_dir.clone())
            .strict_modes(self.gateway.access.strict_modes)
            .logins(Some(logins))
            .shared_state(shared.map(|tables| tables as Arc<dyn SharedState>))
            .ledger(self.gateway.ledger)
            .client_policies(clients)
            .budgets(budgets)
            .cache(self.gateway.cache)
            .exposure(self.gateway.exposure.clone())
            .embeddings(self.gateway.search.embeddings.clone())
            .audit(self.gateway.audit)
            .max_nesting(self.gateway.limits.nesting as usize)
            .place_singletons(self.config.as_ref().is_some_and(|(_, config)| config.cluster.is_some()))
            .build()
    }

    /// Adds every server of the plan to `host`. A server with an invalid config is listed with its error; the others
    /// start.
    pub(crate) fn start_servers(&self, host: &Host) -> Result<(), FailureReport> {
        for entry in self.config.iter().flat_map(|(_, config)| &config.servers) {
            let spawned = match &entry.spec {
                Ok(spec) => host.spawn(&entry.name, spec.clone()),
                Err(findings) => {
                    let causes: Vec<String> = findings.iter().map(ToString::to_string).collect();
                    host.spawn_broken(&entry.name, &causes.join("; "))
                }
            };
            spawned.map_err(|error| FailureReport::new(Exit::ConfigInvalid, error.to_string()))?;
        }
        Ok(())
    }

    /// The reloader that applies changes of the config file to `host`.
    pub(crate) fn reloader(&self, host: &Host) -> Option<Arc<Reloader>> {
        let (file, config) = self.config.clone()?;
        let reloader = Reloader::new(host.clone(), file.path, config);
        Some(Arc::new(reloader.with_origin(file.origin, config_trust::trust_list())))
    }

    /// The config file, the config and the state directory; `None` if one of them is missing.
    #[cfg(unix)]
    pub(crate) fn paths(&self) -> Option<(&ConfigFile, &Config, &Path)> {
        let (file, config) = self.config.as_ref()?;
        Some((file, config, self.state_dir.as_deref()?))
    }

    /// Raises the limit of open files, and lowers the connection limit to what then fits.
    fn fit_into_file_limit(&self, limits: &mut ClientLimits) {
        let Some(limit) = file_limit::raise() else { return };
        let mut needs = DescriptorNeeds::default();
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
                 open files is {limit}, and servers and state files need the rest; `LimitNOFILE=` or `ulimit -n` raises it"
            );
            limits.lower_connections(fitting);
        }
    }

    pub(crate) fn settings(&self, listen: Option<SocketAddr>) -> ServerSettings {
        ServerSettings {
            listen: listen.unwrap_or(self.gateway.listen),
            state_dir: self.state_dir.clone(),
            limits: Limits::from(&self.gateway),
            access: self.gateway.access.clone(),
            cluster: None,
        }
    }

    /// Settings of the service that the gateway is a replica of, if the config has one.
    fn cluster(&self) -> Result<Option<(ClusterSettings, Arc<SharedTables>)>, FailureReport> {
        let Some((_, config)) = &self.config else { return Ok(None) };
        shared_tables::open(config, self.state_dir.as_deref())
    }
}

async fn serve(
    plan: ServePlan,
    args: &ServeArgs,
    socket: Option<TcpListener>,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(super::local_host::runtime_failure)?;
    // Before the address is known to others: SIGHUP without a handler would end the process.
    let hangups = Hangups::listen();
    let mut settings = plan.settings(args.listen);
    plan.fit_into_file_limit(&mut settings.limits.client);
    settings.cluster = plan.cluster()?;
    let host = plan.host(settings.cluster.as_ref().map(|(_, tables)| Arc::clone(tables)));
    let bound = match socket {
        Some(socket) => Server::take(host.clone(), &settings, socket).await,
        None => Server::bind(host.clone(), &settings).await,
    };
    let server = match bound {
        // Clients of `gripfast stdio` do not need the configured port.
        Err(ListenError::Refused { source, .. })
            if args.background && source.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!("the address `{}` is in use; listening on a free port", settings.listen);
            settings.listen.set_port(0);
            Server::bind(host.clone(), &settings).await
        }
        bound => bound,
    };
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has bridges"))]
    let mut server = server.map_err(|error| listen_failure(&error))?;
    let address = server.address().map_err(|error| FailureReport::new(Exit::General, error.to_string()))?;
    if address.ip() != settings.listen.ip() || ![address.port(), 0].contains(&settings.listen.port()) {
        tracing::warn!(
            "the service manager listens on `{address}`, so `{}` is not used; `gripfast service install` changes the \
             address of its socket",
            settings.listen
        );
    }
    if let Some(telemetry) = telemetry() {
        server.set_telemetry(telemetry);
    }
    let base = settings.url(address);
    let reloader = plan.reloader(&host);
    if let Some(reloader) = &reloader {
        server.set_reloader(Arc::clone(reloader));
        let listen = args.listen.map(|address| ("gateway.listen", address.to_string()));
        server.set_overrides(plan.typed_state_dir.clone().into_iter().chain(listen).collect());
    }
    screen.line(&format!(
        "gripfast {} serves MCP at {base}/mcp (legacy SSE: {base}/sse, dashboard: {base}/, status: {base}/api/v1/status)",
        env!("CARGO_PKG_VERSION")
    ))?;
    if let Some(state) = &plan.state_dir {
        let token = state.join(gripfast_gateway::api::TOKEN_FILE);
        let mut command = String::from("gripfast dashboard");
        if args.demo {
            command.push_str(&format!(" --state-dir {}", state.display()));
        }
        if args.demo || args.listen.is_some() {
            command.push_str(&format!(" --url {base}"));
        }
        screen.line(&format!("  to sign in to the dashboard, run: {command}"))?;
        screen.line(&format!("  the admin token is in {}", token.display()))?;
    }
    screen.flush()?;
    // After the bind, so that a second gateway, started by mistake, does not start the servers twice.
    plan.start_servers(&host)?;
    let clients = server.clients();
    #[cfg(unix)]
    let bridge = Bridge::from_plan(&plan);
    #[cfg(unix)]
    if let Some(bridge) = &bridge {
        server.bind_bridge(bridge.state_dir(), bridge.name()).await;
    }
    let idle = async {
        if !args.background {
            std::future::pending::<()>().await;
        }
        clients.idle_for(plan.gateway.linger).await;
        tracing::info!(linger = ?plan.gateway.linger, "no client is connected: this gateway ends");
    };
    let keep_log_small = async {
        #[cfg(unix)]
        if let Some(bridge) = bridge.as_ref().filter(|_| args.background) {
            bridge.rotate_log().await;
        }
        std::future::pending::<()>().await;
    };
    #[cfg(unix)]
    service_manager::report_ready(&base);
    let watchdog = async {
        #[cfg(unix)]
        service_manager::feed_watchdog().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    };
    let demo = if args.demo { Some(demo::Demo::start(&host).await?) } else { None };
    let (say_stop, stop) = tokio::sync::oneshot::channel::<()>();
    let serving = server.serve(async {
        let _ = stop.await;
    });
    tokio::pin!(serving);
    let printing = async {
        match &demo {
            Some(demo) => demo.print_recoveries(screen).await,
            None => std::future::pending().await,
        }
    };
    let exit = tokio::select! {
        served = &mut serving => {
            let text = match served {
                Ok(()) => "the listener ended unexpectedly".to_owned(),
                Err(error) => format!("the listener failed: {error}"),
            };
            return Err(FailureReport::new(Exit::General, text).into());
        }
        printed = printing => return printed.map(|()| Exit::Ok),
        () = watch_config(reloader.as_ref(), hangups) => Exit::Ok,
        () = idle => Exit::Ok,
        () = keep_log_small => Exit::Ok,
        () = watchdog => Exit::Ok,
        exit = signals.next() => exit,
    };
    // The shutdown goes on if this cannot be written.
    let message = shutdown_message(&host.in_flight_calls(), settings.limits.shutdown_timeout);
    #[cfg(unix)]
    service_manager::report_stopping(&message);
    let _ = screen.message(&message);
    let _ = say_stop.send(());
    tokio::select! {
        _ = serving => {}
        // A second signal: remaining child processes end with this process.
        _ = signals.next() => {}
    }
    // A signal is the normal end of this command.
    Ok(match exit {
        Exit::Interrupted | Exit::Terminated => Exit::Ok,
        other => other,
    })
}

/// The message after the first signal: what the gateway waits for, and for how long.
fn shutdown_message(in_flight: &[(String, u32)], limit: Duration) -> String {
    let calls: u32 = in_flight.iter().map(|(_, calls)| calls).sum();
    let waits = if calls == 0 {
        "no calls in flight; servers are being stopped".to_owned()
    } else {
        let each: Vec<String> =
            in_flight.iter().map(|(server, calls)| format!("{server}: {calls}")).collect();
        format!("waiting for {} in flight ({})", plural(calls as usize, "call"), each.join(", "))
    };
    format!(
        "stopping: {waits}, for at most {}; a second signal stops at once",
        gripfast::text::duration(limit)
    )
}

/// The OTLP exporter, if the environment configures one. An error is logged, and the gateway runs without it.
pub(crate) fn telemetry() -> Option<Telemetry> {
    Telemetry::from_env().unwrap_or_else(|error| {
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(cause, "no telemetry is sent: {error}: {cause}");
        None
    })
}

/// Applies the config file when it changes, and on SIGHUP. Never returns.
pub(crate) async fn watch_config(reloader: Option<&Arc<Reloader>>, mut hangups: Hangups) {
    let Some(reloader) = reloader else { return std::future::pending().await };
    let on_signal = async {
        loop {
            hangups.next().await;
            // The log and `gripfast status` report the result.
            let _ = reloader.reload_on_signal().await;
        }
    };
    tokio::select! {
        () = reloader.watch() => {}
        () = on_signal => {}
    }
}

fn listen_failure(error: &ListenError) -> FailureReport {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    let failure = FailureReport::new(Exit::General, text);
    match error {
        ListenError::NotLoopback(_) => failure.with_hint(
            "require keys with `auth = { keys = true }` in the table `gateway`, and create one with `gripfast keys add NAME`; \
             or listen on 127.0.0.1 or [::1]",
        ),
        ListenError::NoPublicUrl(_) => failure.with_hint(
            "set `public_url` in the table `gateway` to the URL that clients use, for example \"https://mcp.example.com\"",
        ),
        ListenError::Tls(CertificateProblem::Unsafe(found)) => {
            failure.with_exit(Exit::ConfigInvalid).with_hint(config::remedy(found))
        }
        ListenError::Tls(_) => failure.with_hint("see `tls` in the table `gateway` of the config"),
        ListenError::Access(_) => failure.with_hint("see `auth` in the table `gateway` of the config"),
        ListenError::Refused { .. } => failure.with_hint(
            "another gateway may be running: `gripfast status` shows it; `--listen` sets another port",
        ),
        ListenError::State(_) => failure.with_hint("`--state-dir` names another directory"),
        ListenError::ReplicaListener { .. } => {
            failure.with_hint("set `cluster.listen` to an address of this machine and a free port")
        }
        ListenError::Cluster(error) => failure.with_exit(Exit::ConfigInvalid).with_hint(error.hint()),
        ListenError::Join(error) => failure.with_hint(error.hint()),
    }
}
