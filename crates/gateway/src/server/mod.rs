//! The process around a gateway: it listens, serves until it is told to stop, and leaves in order.

use crate::admin::{Admin, ClientsView};
use crate::auth::Access;
use crate::client_count::ClientCount;
use crate::connection_table::ConnectionTable;
use crate::connections::Connections;
#[cfg(unix)]
use crate::connections::{serve_bridges, serve_socket};
#[cfg(unix)]
use crate::control_socket::ControlSocket;
use crate::dashboard;
use crate::downstream::{Census, Gateway, Guard, Seal, Terms};
use crate::front::{Front, Parts};
use crate::metrics::Meter;
use crate::reload::Reloader;
use crate::request_limits::RequestLimits;
use crate::telemetry::Telemetry;
use crate::tls::{BadCertificate, Tls};
use axum::middleware::from_fn_with_state;
use gripfast::Host;
use gripfast::config::AccessConfig;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What a gateway needs to know about itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where keys and tokens are kept; without it they live as long as the process.
    pub state_dir: Option<PathBuf>,
    /// The terms under which clients are served.
    pub terms: Terms,
    /// Who may use it.
    pub access: AccessConfig,
}

impl Settings {
    /// What its address begins with.
    pub fn scheme(&self) -> &'static str {
        if self.access.tls.is_some() { "https" } else { "http" }
    }

    /// How a listener on `bound` is reached: as clients call it if it listens on every address, or else on this machine.
    pub fn reached_at(&self, bound: SocketAddr) -> String {
        let own = match (bound.ip(), &self.access.public_url) {
            (ip, Some(url)) if ip.is_unspecified() => return url.as_str().trim_end_matches('/').to_owned(),
            (IpAddr::V4(ip), None) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(ip), None) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            (ip, _) => ip,
        };
        format!("{}://{}", self.scheme(), SocketAddr::new(own, bound.port()))
    }
}

/// A gateway that listens and does not serve yet.
pub struct Server {
    listener: TcpListener,
    /// The socket for the commands of its own user.
    #[cfg(unix)]
    control: Option<ControlSocket>,
    /// The socket to which `gripfast stdio` connects its clients.
    #[cfg(unix)]
    bridges: Option<ControlSocket>,
    clients: ClientCount,
    connections: Connections,
    tls: Option<Arc<Tls>>,
    gateway: Arc<Gateway>,
    admin: Arc<Admin>,
    meter: Arc<Meter>,
    access: Option<Arc<Access>>,
}

/// Why a gateway cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum CannotListen {
    /// Everybody on the network could use all servers.
    #[error("`{0}` is not a loopback address, and clients do not have to show who they are")]
    NotLoopback(SocketAddr),
    /// Clients have to log in, and cannot be told for what.
    #[error("`{0}` is no address that clients could log in for, and the config has no `public_url`")]
    NoPublicUrl(SocketAddr),
    /// The operating system refuses.
    #[error("cannot listen on `{address}`")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nobody could show who they are.
    #[error("clients cannot be told apart")]
    Access(#[source] io::Error),
    /// There is nothing to prove itself with.
    #[error("the listener has no certificate that can be used")]
    Tls(#[source] BadCertificate),
    /// Neither key nor token can be kept or made.
    #[error("the state directory cannot be used")]
    State(#[source] io::Error),
}

impl Server {
    /// Listens in front of `host`.
    ///
    /// # Errors
    /// See [`CannotListen`].
    pub async fn bind(host: Host, settings: &Settings) -> Result<Self, CannotListen> {
        let address = settings.listen;
        let state_dir = settings.state_dir.as_deref();
        if !settings.access.asks() && !address.ip().is_loopback() {
            return Err(CannotListen::NotLoopback(address));
        }
        let logs_in = settings.access.jwt.is_some();
        if logs_in && address.ip().is_unspecified() && settings.access.public_url.is_none() {
            return Err(CannotListen::NoPublicUrl(address));
        }
        let proves = |files| Tls::of(files, settings.access.strict_modes);
        let tls = settings.access.tls.as_ref().map(proves).transpose().map_err(CannotListen::Tls)?;
        let tls = tls.map(Arc::new);
        let refused = |source| CannotListen::Refused { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let base = settings
            .access
            .public_url
            .as_ref()
            .map_or_else(|| format!("{}://{bound}", settings.scheme()), ToString::to_string);
        let gateway = Gateway::new(host.clone(), seal(settings)?, &settings.terms);
        let limits = settings.terms.limits;
        let rate = limits.request_rate(settings.access.asks());
        let request_limits = rate.map(|rate| Arc::new(RequestLimits::new(rate)));
        let (limited, leaving) = (request_limits.clone(), gateway.leaving.clone());
        let access = Access::of(&settings.access, state_dir, &base, limited, &host, leaving)
            .map_err(CannotListen::Access)?;
        request_limits.iter().for_each(|limits| gateway.limit_requests(Arc::clone(limits)));
        let table = ConnectionTable::new(limits.connections_per_client as usize, limits.connections as usize);
        let admin = Admin::new(host.clone(), state_dir).map_err(CannotListen::State)?.counting({
            let (gateway, connections) = (Arc::clone(&gateway), table.clone());
            move || {
                let Census { sessions, in_flight, memory } = gateway.census();
                ClientsView { connections: connections.taken(), sessions, in_flight, memory_bytes: memory }
            }
        });
        let admin = admin.listing({
            let gateway = Arc::clone(&gateway);
            move |most| gateway.sessions.list(most)
        });
        let admin = admin.guarding_records(settings.access.asks());
        let admin = Arc::new(match &tls {
            Some(tls) => admin.proving(Arc::clone(tls)),
            None => admin,
        });
        let public = settings.access.public_url.as_ref();
        let mut origins = settings.access.allowed_origins.clone();
        origins.extend(public.map(|url| url.origin().ascii_serialization()));
        let guard = Guard::new(bound, public.and_then(|url| url.host_str()), origins, host.id());
        let endpoint = match &access {
            Some(access) => {
                let login = access.router();
                gateway.router().layer(from_fn_with_state(Arc::clone(access), Access::admit)).merge(login)
            }
            None => gateway.router(),
        };
        let meter = Arc::new(Meter::new(host, Arc::clone(&gateway)));
        let readable = Arc::clone(&admin).router().merge(Arc::clone(&meter).router());
        let router = readable
            .layer(from_fn_with_state(Arc::clone(&admin), Admin::let_read))
            .merge(dashboard::router())
            .merge(Arc::clone(&admin).login_router())
            .merge(endpoint);
        let clients = ClientCount::default();
        let front = Front::new(Parts {
            guard,
            access: access.clone(),
            admin: Arc::clone(&admin),
            limits: request_limits,
            gateway: Arc::clone(&gateway),
            others: router,
        });
        Ok(Self {
            listener,
            #[cfg(unix)]
            control: control_socket(state_dir, bound).await,
            #[cfg(unix)]
            bridges: None,
            clients: clients.clone(),
            connections: Connections {
                clients,
                front,
                table,
                tls: tls.clone(),
                first_request_timeout: limits.first_request_timeout,
            },
            tls,
            gateway,
            admin,
            meter,
            access,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves clients of `gripfast stdio` too, which look for the gateway of this name in `state_dir`.
    #[cfg(unix)]
    pub async fn bridge(&mut self, state_dir: &Path, name: &str) {
        match ControlSocket::bind_bridge(state_dir, name).await {
            Ok(socket) => self.bridges = Some(socket),
            Err(error) => {
                tracing::warn!(%error, "clients of `gripfast stdio` do not use this gateway: {error}")
            }
        }
    }

    /// The number of its clients, which goes on counting while it serves.
    pub fn clients(&self) -> ClientCount {
        self.clients.clone()
    }

    /// The host goes by a config file, which the admin API may be asked about.
    pub fn goes_by(&self, reloader: Arc<Reloader>) {
        self.admin.set_reloader(reloader);
    }

    /// What is served and measured is told to a collector.
    pub fn tells(&self, telemetry: Telemetry) {
        let telemetry = self.gateway.tell(telemetry);
        let meter = Arc::downgrade(&self.meter);
        telemetry.measure(move || Some(meter.upgrade()?.facts()));
    }

    /// These settings, each with its value, were typed and override the config.
    pub fn was_told(&self, typed: Vec<(&'static str, String)>) {
        self.admin.set_typed(typed);
    }

    /// Serves until `stop`, then leaves in order, within `shutdown_timeout`: no new connections, requests under way may
    /// finish for a while, then all servers are stopped.
    ///
    /// # Errors
    /// The listener breaks.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        // Whoever measures may ask to the very end.
        let Self { listener, connections, tls, gateway, admin, meter: _meter, access, .. } = self;
        admin.set_serving();
        let leaving = CancellationToken::new();
        #[cfg(unix)]
        let commands = {
            let front = connections.front.clone();
            let bridges = serve_bridges(self.bridges, front.clone(), self.clients, leaving.clone());
            let commands = serve_socket(self.control, front, leaving.clone());
            async { tokio::join!(commands, bridges) }
        };
        #[cfg(not(unix))]
        let commands = std::future::ready(());
        let clients = connections.serve(listener, leaving.clone());
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
                // Streams that only listen end now; they would outlast any patience.
                admin.set_leaving();
                gateway.leave();
                leaving.cancel();
                return gateway.shut_down(serving).await.unwrap_or(Ok(()));
            }
        };
        gateway.shut_down(std::future::ready(())).await;
        served
    }
}

/// Without it the gateway serves its clients all the same.
#[cfg(unix)]
async fn control_socket(state_dir: Option<&Path>, bound: SocketAddr) -> Option<ControlSocket> {
    match ControlSocket::bind(state_dir?, bound).await {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "there is no control socket; commands of this machine cannot operate this gateway");
            None
        }
    }
}

fn seal(settings: &Settings) -> Result<Seal, CannotListen> {
    let kept = match &settings.state_dir {
        Some(directory) => Seal::in_directory(directory),
        None => Seal::of_this_process(),
    };
    kept.or_else(|error| {
        tracing::warn!(%error, "session ids will not survive a restart");
        Seal::of_this_process()
    })
    .map_err(CannotListen::State)
}
