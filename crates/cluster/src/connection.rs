//! Connection to the store, by the crate `redis`. It is made on first use, and again after it was lost; with Sentinels
//! the primary is looked up each time. Commands of several tasks share it. They also share an attempt to connect and its
//! failure: a store that does not answer delays none of them by more than one attempt.

use crate::StoreError;
use crate::store_url::{StoreSecurity, StoreUrl};
use futures_util::Stream as _;
use futures_util::future::{FutureExt as _, Shared, WeakShared};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ScriptInvocation, TlsMode,
};
pub(crate) use redis::{Script, cmd};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;

pub(crate) struct Connection {
    target: Arc<Target>,
    timeout: Duration,
    state: std::sync::Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    /// Number of the last attempt to connect. A connection has the number of its attempt.
    attempts: u64,
    /// Connections up to this number are lost.
    lost: u64,
    /// The attempt in flight. It ends when no command waits for it any more.
    connecting: Option<WeakShared<Connecting>>,
    live: Option<NumberedConnection>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<NumberedConnection, StoreError>> + Send>>;

#[derive(Clone)]
struct NumberedConnection {
    number: u64,
    connection: MultiplexedConnection,
}

/// One connection to the store. Commands that must not be split between two connections use the same one.
pub(crate) struct LiveConnection<'a> {
    shared: &'a Connection,
    numbered: NumberedConnection,
}

enum Target {
    Server(Client),
    Sentinels(Mutex<SentinelClient>),
}

impl Connection {
    /// A connection that is not made yet. `timeout` limits connecting and each reply.
    pub(crate) fn new(url: &StoreUrl, timeout: Duration) -> Result<Self, StoreError> {
        Ok(Self { target: Arc::new(Target::new(url)?), timeout, state: std::sync::Mutex::default() })
    }

    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        self.live().await?.run(script).await
    }

    /// Sends a script without running it.
    pub(crate) async fn load(&self, script: &Script) -> Result<(), StoreError> {
        let mut live = self.live().await?;
        let result = script.load_async(&mut live.numbered.connection).await;
        live.keep_or_drop(result.map(drop))
    }

    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.live().await?.query(command).await
    }

    /// Subscribes to a channel, over a connection of its own.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<Messages, StoreError> {
        let subscribe = async {
            let mut messages = match &*self.target {
                Target::Server(client) => client.get_async_pubsub().await?,
                Target::Sentinels(client) => {
                    client.lock().await.async_get_client().await?.get_async_pubsub().await?
                }
            };
            messages.subscribe(channel).await?;
            Ok(Messages(messages))
        };
        let subscribed = tokio::time::timeout(self.timeout, subscribe).await;
        subscribed.map_err(|_| StoreError::Unreachable("no connection in time".to_owned()))?
    }

    /// Closes the connection; the next command makes a new one.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        let last = state.attempts;
        state.lose(last);
    }

    /// The present connection, or a new one.
    pub(crate) async fn live(&self) -> Result<LiveConnection<'_>, StoreError> {
        let connecting = {
            let mut state = self.state();
            if let Some(numbered) = &state.live {
                return Ok(LiveConnection { shared: self, numbered: numbered.clone() });
            }
            let in_flight = state.connecting.as_ref().and_then(WeakShared::upgrade);
            in_flight.unwrap_or_else(|| self.start_connecting(&mut state))
        };
        let connected = connecting.clone().await;
        let mut state = self.state();
        let is_current = |state: &ConnectionState| {
            state.connecting.as_ref().and_then(WeakShared::upgrade).is_some_and(|now| now.ptr_eq(&connecting))
        };
        if is_current(&state) {
            // The next command after a failure tries again.
            state.connecting = None;
        }
        let numbered = connected?;
        if numbered.number > state.lost && state.live.is_none() {
            state.live = Some(numbered.clone());
        }
        Ok(LiveConnection { shared: self, numbered })
    }

    fn start_connecting(&self, state: &mut ConnectionState) -> Shared<Connecting> {
        state.attempts += 1;
        let (number, target, timeout) = (state.attempts, Arc::clone(&self.target), self.timeout);
        let connecting: Connecting = Box::pin(async move {
            let connection = target.connect(timeout).await?;
            Ok(NumberedConnection { number, connection })
        });
        let connecting = connecting.shared();
        state.connecting = connecting.downgrade();
        connecting
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionState {
    /// Forgets the connections up to a number. A newer one stays: the command that failed used another.
    fn lose(&mut self, number: u64) {
        self.lost = self.lost.max(number);
        let lost = self.lost;
        self.live.take_if(|live| live.number <= lost);
    }
}

impl LiveConnection<'_> {
    pub(crate) async fn run<T: FromRedisValue>(
        &mut self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let result = script.invoke_async(&mut self.numbered.connection).await;
        self.keep_or_drop(result)
    }

    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let result = command.query_async(&mut self.numbered.connection).await;
        self.keep_or_drop(result)
    }

    /// After a timeout or a lost connection the next command makes a new one.
    fn keep_or_drop<T>(&self, result: Result<T, RedisError>) -> Result<T, StoreError> {
        let result = result.map_err(StoreError::from);
        if result.as_ref().is_err_and(|error| !keeps_connection(error)) {
            self.shared.state().lose(self.numbered.number);
        }
        result
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Target {
    fn new(url: &StoreUrl) -> Result<Self, StoreError> {
        let address = |(host, port): &(String, u16)| match url.security {
            StoreSecurity::Plain => ConnectionAddr::Tcp(host.clone(), *port),
            StoreSecurity::Tls => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        let addresses: Vec<ConnectionAddr> = url.hosts.iter().map(address).collect();
        let Some(service) = &url.service else {
            let mut settings = RedisConnectionInfo::default().set_db(url.database);
            if let Some(user) = &url.user {
                settings = settings.set_username(user);
            }
            if let Some(password) = &url.password {
                settings = settings.set_password(password);
            }
            let info = addresses[0].clone().into_connection_info()?.set_redis_settings(settings);
            return Ok(Self::Server(Client::open(info)?));
        };
        let mut builder = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?
            .set_client_to_redis_db(url.database);
        if url.security == StoreSecurity::Tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(user) = &url.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &url.password {
            builder = builder.set_client_to_redis_password(password);
        }
        Ok(Self::Sentinels(Mutex::new(builder.build()?)))
    }

    /// Makes a connection. `timeout` limits this and each reply.
    async fn connect(&self, timeout: Duration) -> Result<MultiplexedConnection, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let connect = async {
            match self {
                Self::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
                Self::Sentinels(client) => {
                    client.lock().await.get_async_connection_with_config(&config).await
                }
            }
        };
        // The lookup at the Sentinels has no limit of its own.
        let connected = tokio::time::timeout(timeout, connect).await;
        Ok(connected.map_err(|_| StoreError::Unreachable("no connection in time".to_owned()))??)
    }
}

/// Messages of a channel.
pub(crate) struct Messages(PubSub);

impl Messages {
    /// The next one; `None` if the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let mut messages = std::pin::pin!(self.0.on_message());
        let message = std::future::poll_fn(|context| messages.as_mut().poll_next(context)).await?;
        Some(message.get_payload().unwrap_or_default())
    }
}

/// Returns whether the connection can be used further: the store answered, and only this operation failed.
fn keeps_connection(error: &StoreError) -> bool {
    match error {
        StoreError::Unreachable(_) | StoreError::Unauthorized(_) => false,
        StoreError::Refused(_)
        | StoreError::NewerFormat { .. }
        | StoreError::Malformed(_)
        | StoreError::ForeignService
        | StoreError::NotReplicated => true,
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        let code = error.code().unwrap_or_default();
        // A script reports a newer format in this form: `NEWERFORMAT found known`.
        if code == "NEWERFORMAT" {
            let mut numbers =
                error.detail().unwrap_or_default().split(' ').map(|text| text.parse().unwrap_or(0));
            let (found, known) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            return Self::NewerFormat { found, known };
        }
        if code == "FOREIGNSERVICE" {
            return Self::ForeignService;
        }
        if error.kind() == ErrorKind::AuthenticationFailed || matches!(code, "NOAUTH" | "WRONGPASS") {
            return Self::Unauthorized(error.to_string());
        }
        // Answers of a store that cannot serve now: it loads its data, is a replica after a failover, or lost its disk.
        let is_away =
            matches!(code, "LOADING" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY");
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension if !is_away => Self::Refused(error.to_string()),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}
