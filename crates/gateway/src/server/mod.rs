//! Server process around a gateway: binds the listener, serves until it is stopped, and shuts down in order.

pub mod client_count;
pub(crate) mod connection_table;
#[cfg(unix)]
pub mod control_socket;
pub(crate) mod dispatcher;
pub(crate) mod listener;
pub(crate) mod memory;
pub(crate) mod quota;
pub(crate) mod request_rate;
pub(crate) mod runtime;
pub mod tls;
pub(crate) mod tracked_body;

use crate::api::Admin;
use crate::api::types::ClientsView;
use crate::auth::Authenticator;
use crate::auth::keys::KeySource;
use crate::cluster::listener::ForwardListener;
use crate::cluster::{ClusterSettings, ClusterSettingsError, Member, ServiceJoinError, SharedTables};
use crate::dashboard;
use crate::mcp::{ClientCounts, Gateway, Limits, OriginCheck, TokenCipher};
use crate::metrics::Meter;
use crate::reload::Reloader;
use crate::server::client_count::ClientCount;
use crate::server::connection_table::ConnectionTable;
#[cfg(unix)]
use crate::server::control_socket::ControlSocket;
use crate::server::dispatcher::{Dispatcher, DispatcherParts};
use crate::server::listener::{ConnectionServer, QueueEnd, ShutdownSteps};
#[cfg(unix)]
use crate::server::listener::{serve_bridges, serve_socket};
use crate::server::request_rate::RequestRates;
use crate::server::tls::{CertificateProblem, Tls};
use crate::telemetry::Telemetry;
use axum::middleware::from_fn_with_state;
use gripfast::Host;
use gripfast::config::AccessConfig;
use gripfast_cluster::keys::KeyUse;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time for other replicas to read the last answers.
const ANSWERS_TIMEOUT: Duration = Duration::from_millis(200);

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Listen address.
    pub listen: SocketAddr,
    /// Directory for keys and tokens; without it they live as long as the process.
    pub state_dir: Option<PathBuf>,
    /// Timeouts and limits for clients.
    pub limits: Limits,
    /// Authentication, TLS and allowed origins.
    pub access: AccessConfig,
    /// The service that the gateway is a replica of, if there is one, and the tables that it shares.
    pub cluster: Option<(ClusterSettings, Arc<SharedTables>)>,
}

impl ServerSettings {
    /// URL scheme of the listener.
    pub fn scheme(&self) -> &'static str {
        if self.access.tls.is_some() { "https" } else { "http" }
    }

    /// URL of a listener on `bound`: `public_url` if it listens on every address, otherwise the local address.
    pub fn url(&self, bound: SocketAddr) -> String {
        let own = match (bound.ip(), &self.access.public_url) {
            (ip, Some(url)) if ip.is_unspecified() => return url.as_str().trim_end_matches('/').to_owned(),
            (IpAddr::V4(ip), None) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(ip), None) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            (ip, _) => ip,
        };
        format!("{}://{}", self.scheme(), SocketAddr::new(own, bound.port()))
    }
}

/// Gateway that listens but does not serve yet.
pub struct Server {
    listener: TcpListener,
    /// Time limit of a shutdown.
    shutdown_timeout: Duration,
    /// Part of that time in which requests are still served, and connections are closed after their next answer.
    drain_wait: Duration,
    socket_owner: SocketOwner,
    /// Socket for CLI commands of the same user.
    #[cfg(unix)]
    control: Option<ControlSocket>,
    /// Socket for clients of `gripfast stdio`.
    #[cfg(unix)]
    bridges: Option<ControlSocket>,
    clients: ClientCount,
    connections: ConnectionServer,
    tls: Option<Arc<Tls>>,
    gateway: Arc<Gateway>,
    admin: Arc<Admin>,
    meter: Arc<Meter>,
    access: Option<Arc<Authenticator>>,
    replica: Option<ForwardListener>,
}

/// Owner of the listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketOwner {
    /// This process. While it drains, it accepts connections that a load balancer still sends.
    Gateway,
    /// The service manager. While this process drains, new connections wait in the queue for the next process.
    ServiceManager,
}

impl SocketOwner {
    /// Drain time if the config sets none. Clients of an own socket lose their address anyway; the socket of a service
    /// manager is there for restarts without a failed call.
    fn default_drain(self, shutdown_timeout: Duration, is_replica: bool) -> Duration {
        match self {
            // The load balancer needs time to notice.
            Self::Gateway if is_replica => (shutdown_timeout / 3).min(Duration::from_secs(3)),
            Self::Gateway => Duration::ZERO,
            Self::ServiceManager => shutdown_timeout / 9,
        }
    }
}

/// Reason why a gateway cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Without authentication, everyone on the network could use all servers.
    #[error("`{0}` is not a loopback address, and client authentication is off")]
    NotLoopback(SocketAddr),
    /// Clients must log in, and there is no URL to log in for.
    #[error("clients cannot log in at `{0}`, because the config has no `public_url`")]
    NoPublicUrl(SocketAddr),
    /// The operating system refuses.
    #[error("cannot listen on `{address}`")]
    Refused {
        /// The listen address.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Client authentication cannot be set up.
    #[error("cannot set up client authentication")]
    Access(#[source] io::Error),
    /// The certificate cannot be used.
    #[error("the TLS certificate of the listener cannot be used")]
    Tls(#[source] CertificateProblem),
    /// The listener for other replicas cannot be bound.
    #[error("cannot listen on `{address}` for the other replicas (`cluster.listen`)")]
    ReplicaListener {
        /// The listen address.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A setting of the cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterSettingsError),
    /// `cluster.required` is set, and the gateway cannot join.
    #[error("the gateway cannot join its service")]
    Join(#[source] ServiceJoinError),
    /// The session key or the admin token can be neither read nor created.
    #[error("the state directory cannot be used")]
    State(#[source] io::Error),
}

impl Server {
    /// Binds the listener for `host`.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub async fn bind(host: Host, settings: &ServerSettings) -> Result<Self, ListenError> {
        Self::bind_or_take(host, settings, None).await
    }

    /// Takes over the socket of a service manager instead of `settings.listen`. The socket outlives this process, so
    /// connections that arrive during a restart wait in its queue.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub async fn take(
        host: Host,
        settings: &ServerSettings,
        socket: std::net::TcpListener,
    ) -> Result<Self, ListenError> {
        Self::bind_or_take(host, settings, Some(socket)).await
    }

    async fn bind_or_take(
        host: Host,
        settings: &ServerSettings,
        socket: Option<std::net::TcpListener>,
    ) -> Result<Self, ListenError> {
        let refused = |source| ListenError::Refused { address: settings.listen, source };
        let address = match &socket {
            Some(socket) => socket.local_addr().map_err(refused)?,
            None => settings.listen,
        };
        let socket_owner = if socket.is_some() { SocketOwner::ServiceManager } else { SocketOwner::Gateway };
        let Limits { shutdown_timeout, drain_wait, .. } = settings.limits;
        let drain_wait = drain_wait
            .unwrap_or_else(|| socket_owner.default_drain(shutdown_timeout, settings.cluster.is_some()));
        let state_dir = settings.state_dir.as_deref();
        if !settings.access.requires_auth() && !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let logs_in = settings.access.jwt.is_some();
        if logs_in && address.ip().is_unspecified() && settings.access.public_url.is_none() {
            return Err(ListenError::NoPublicUrl(address));
        }
        let load_tls = |files| Tls::load(files, settings.access.strict_modes);
        let tls = settings.access.tls.as_ref().map(load_tls).transpose().map_err(ListenError::Tls)?;
        let tls = tls.map(Arc::new);
        let listener = match socket {
            Some(socket) => socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket)),
            None => TcpListener::bind(address).await,
        };
        let listener = listener.map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let base = settings
            .access
            .public_url
            .as_ref()
            .map_or_else(|| format!("{}://{bound}", settings.scheme()), ToString::to_string);
        let gateway = Gateway::new(host.clone(), token_cipher(settings)?, &settings.limits);
        let joined = match &settings.cluster {
            Some((cluster, tables)) => {
                Some(join(cluster, Arc::clone(tables), &gateway, &settings.limits).await?)
            }
            None => None,
        };
        let limits = settings.limits.client;
        let rate = limits.request_rate(settings.access.requires_auth());
        let request_limits = rate.map(|rate| Arc::new(RequestRates::new(rate)));
        let (limited, shutdown) = (request_limits.clone(), gateway.shutting_down.clone());
        let key_source = match (&settings.cluster, state_dir) {
            (Some((_, tables)), directory) => {
                Some(KeySource::Shared(Arc::clone(tables), directory.map(Into::into)))
            }
            (None, directory) => directory.map(|directory| KeySource::Directory(directory.to_owned())),
        };
        let access =
            Authenticator::from_config(&settings.access, key_source, &base, limited, &host, shutdown)
                .map_err(ListenError::Access)?;
        request_limits.iter().for_each(|limits| gateway.limit_requests(Arc::clone(limits)));
        let table = ConnectionTable::new(limits.connections_per_client as usize, limits.connections as usize);
        let admin = Admin::new(host.clone(), state_dir).map_err(ListenError::State)?.with_client_counts({
            let (gateway, connections) = (Arc::clone(&gateway), table.clone());
            move || {
                let ClientCounts { sessions, in_flight, memory } = gateway.client_counts();
                ClientsView { connections: connections.len(), sessions, in_flight, memory_bytes: memory }
            }
        });
        let admin = admin.with_sessions({
            let gateway = Arc::clone(&gateway);
            move |most| gateway.sessions.list(most)
        });
        let admin = admin.with_protected_records(settings.access.requires_auth());
        let admin = match &joined {
            Some((_, member)) => admin.with_cluster(Arc::clone(member)),
            None => admin,
        };
        let admin = Arc::new(match &tls {
            Some(tls) => admin.with_tls(Arc::clone(tls)),
            None => admin,
        });
        let public = settings.access.public_url.as_ref();
        let mut origins = settings.access.allowed_origins.clone();
        origins.extend(public.map(|url| url.origin().ascii_serialization()));
        let origin_check = OriginCheck::new(bound, public.and_then(|url| url.host_str()), origins, host.id());
        let routes = gateway.router();
        let replica = joined.map(|(listener, member)| ForwardListener {
            listener,
            member,
            gateway: Arc::clone(&gateway),
            routes: routes.clone(),
            access: access.clone(),
            max_connections: limits.connections as usize,
        });
        let endpoint = match &access {
            Some(access) => {
                let login = access.router();
                routes.layer(from_fn_with_state(Arc::clone(access), Authenticator::admit)).merge(login)
            }
            None => routes,
        };
        let meter = Arc::new(Meter::new(host, Arc::clone(&gateway)));
        let readable = Arc::clone(&admin).router().merge(Arc::clone(&meter).router());
        let router = readable
            .layer(from_fn_with_state(Arc::clone(&admin), Admin::authorize_read))
            .merge(dashboard::router())
            .merge(Arc::clone(&admin).login_router())
            .merge(endpoint);
        let clients = ClientCount::default();
        let dispatcher = Dispatcher::new(DispatcherParts {
            origin_check,
            access: access.clone(),
            admin: Arc::clone(&admin),
            limits: request_limits,
            gateway: Arc::clone(&gateway),
            other_routes: router,
        });
        Ok(Self {
            listener,
            shutdown_timeout,
            drain_wait,
            socket_owner,
            #[cfg(unix)]
            control: control_socket(state_dir, bound).await,
            #[cfg(unix)]
            bridges: None,
            clients: clients.clone(),
            connections: ConnectionServer {
                clients,
                dispatcher,
                table,
                tls: tls.clone(),
                first_request_timeout: limits.first_request_timeout,
            },
            tls,
            gateway,
            admin,
            meter,
            access,
            replica,
        })
    }

    /// Bound address.
    ///
    /// # Errors
    /// The operating system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Also serves clients of `gripfast stdio`, which look for the gateway with this name in `state_dir`.
    #[cfg(unix)]
    pub async fn bind_bridge(&mut self, state_dir: &Path, name: &str) {
        match ControlSocket::bind_bridge(state_dir, name).await {
            Ok(socket) => self.bridges = Some(socket),
            Err(error) => {
                tracing::warn!(%error, "clients of `gripfast stdio` cannot use this gateway: {error}")
            }
        }
    }

    /// Live count of connected clients.
    pub fn clients(&self) -> ClientCount {
        self.clients.clone()
    }

    /// Sets the reloader of the config file, for the admin API.
    pub fn set_reloader(&self, reloader: Arc<Reloader>) {
        self.admin.set_reloader(reloader);
    }

    /// Exports traces and metrics of this server.
    pub fn set_telemetry(&self, telemetry: Telemetry) {
        let telemetry = self.gateway.install_telemetry(telemetry);
        let meter = Arc::downgrade(&self.meter);
        telemetry.export_metrics(move || Some(meter.upgrade()?.facts()));
    }

    /// Sets the settings from the command line that override the config, each with its value.
    pub fn set_overrides(&self, typed: Vec<(&'static str, String)>) {
        self.admin.set_command_line(typed);
    }

    /// Serves until `stop`, then shuts down within `shutdown_timeout`: it drains the connections for `drain_wait` and
    /// closes the listener, requests in flight may finish for a while, then all servers are stopped.
    ///
    /// # Errors
    /// The listener breaks.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        // The meter must live until the end, because the exporter holds it weakly.
        let Self { listener, connections, tls, gateway, admin, meter: _meter, access, replica, .. } = self;
        let open_clients = self.clients.clone();
        admin.set_serving();
        let (drain, shutdown) = (CancellationToken::new(), CancellationToken::new());
        #[cfg(unix)]
        let commands = {
            let dispatcher = connections.dispatcher.clone();
            let bridges = serve_bridges(self.bridges, dispatcher.clone(), self.clients, shutdown.clone());
            let commands = serve_socket(self.control, dispatcher, shutdown.clone());
            async { tokio::join!(commands, bridges) }
        };
        #[cfg(not(unix))]
        let commands = std::future::ready(());
        let stop_accepting = match self.socket_owner {
            SocketOwner::Gateway => shutdown.clone(),
            SocketOwner::ServiceManager => drain.clone(),
        };
        let queue = match self.socket_owner {
            SocketOwner::Gateway => QueueEnd::Accepted,
            SocketOwner::ServiceManager => QueueEnd::Left,
        };
        let steps = ShutdownSteps { drain: drain.clone(), stop_accepting, queue, close: shutdown.clone() };
        let clients = connections.serve(listener, steps);
        let member = replica.as_ref().map(|replica| Arc::clone(&replica.member));
        let replicas_close = CancellationToken::new();
        let forwarded = tokio::spawn(serve_replicas(replica, replicas_close.clone()));
        let mut serving = pin!(async { tokio::join!(clients, commands).0 });
        let keep_certificate = async {
            match &tls {
                Some(tls) => tls.watch().await,
                None => std::future::pending().await,
            }
        };
        let end_credentials = async {
            match &access {
                Some(access) => access.watch(&gateway).await,
                None => std::future::pending().await,
            }
        };
        let served = tokio::select! {
            served = &mut serving => served,
            () = keep_certificate => Ok(()),
            () = end_credentials => Ok(()),
            () = stop => {
                let begun = Instant::now();
                admin.set_shutting_down();
                drain.cancel();
                let drained = tokio::select! {
                    served = &mut serving => Some(served),
                    // Without connections nothing can arrive, unless this process still accepts new ones.
                    () = open_clients.idle_for(Duration::ZERO),
                        if self.socket_owner == SocketOwner::ServiceManager => None,
                    () = tokio::time::sleep(self.drain_wait) => None,
                };
                // Streams that only listen end now; waiting for them would always take the whole timeout.
                gateway.begin_shutdown();
                shutdown.cancel();
                let drained = match (drained, &member) {
                    // Connections that were accepted last still bring their requests.
                    (None, Some(member)) => {
                        let ended = tokio::time::timeout(Member::LAST_ARRIVALS, &mut serving).await;
                        member.release();
                        ended.ok()
                    }
                    (drained, _) => drained,
                };
                let limit = self.shutdown_timeout.saturating_sub(begun.elapsed());
                let finishing = async {
                    match drained {
                        Some(served) => served,
                        None => serving.await,
                    }
                };
                let served = gateway.shut_down_within(limit, finishing).await.unwrap_or(Ok(()));
                if let Some(member) = member {
                    let limit = self.shutdown_timeout.saturating_sub(begun.elapsed());
                    // The servers have ended: other replicas may start those of which there is one.
                    let _ = tokio::time::timeout(limit, member.release_singletons()).await;
                    let limit = self.shutdown_timeout.saturating_sub(begun.elapsed());
                    let _ = tokio::time::timeout(limit, member.leave()).await;
                    replicas_close.cancel();
                    let _ = tokio::time::timeout(ANSWERS_TIMEOUT, forwarded).await;
                }
                return served;
            }
        };
        gateway.shut_down(std::future::ready(())).await;
        served
    }
}

/// Binds the listener for other replicas, and joins the service.
async fn join(
    settings: &ClusterSettings,
    tables: Arc<SharedTables>,
    gateway: &Arc<Gateway>,
    limits: &Limits,
) -> Result<(TcpListener, Arc<Member>), ListenError> {
    let address = settings.listen();
    let refused = |source| ListenError::ReplicaListener { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    let boot = gateway.tokens.boot();
    let member = Member::new(settings.clone(), boot, bound, limits.session_idle_timeout, tables)?;
    member.attach(gateway);
    gateway.sessions.join(Arc::clone(&member));
    member.share_calls(gateway);
    member.join().await.map_err(ListenError::Join)?;
    member.run_singletons(&gateway.host, limits);
    Ok((listener, member))
}

/// Serves requests of other replicas until `close`.
async fn serve_replicas(replica: Option<ForwardListener>, close: CancellationToken) {
    if let Some(replica) = replica {
        replica.serve(close).await;
    }
}

/// Binds the control socket. Without it the gateway still serves its clients.
#[cfg(unix)]
async fn control_socket(state_dir: Option<&Path>, bound: SocketAddr) -> Option<ControlSocket> {
    match ControlSocket::bind(state_dir?, bound).await {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "cannot open the control socket; commands on this machine cannot use it");
            None
        }
    }
}

fn token_cipher(settings: &ServerSettings) -> Result<TokenCipher, ListenError> {
    let cipher = match &settings.state_dir {
        Some(directory) => TokenCipher::load_or_create(directory),
        None => TokenCipher::ephemeral(),
    };
    let cipher = cipher.or_else(|error| {
        tracing::warn!(%error, "session ids will not survive a restart");
        TokenCipher::ephemeral()
    });
    let cipher = match &settings.cluster {
        Some((cluster, _)) => cipher.and_then(|cipher| {
            let keys = cluster.keys().derive_all(KeyUse::ClientIds);
            cipher.with_name(cluster.name().clone()).with_shared_keys(&keys)
        }),
        None => cipher,
    };
    cipher.map_err(ListenError::State)
}
