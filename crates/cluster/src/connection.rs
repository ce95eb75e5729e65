//! Connection to the store, by the crate `redis`. It is made on first use, and again after it was lost; with Sentinels
//! the primary is looked up each time. Commands of several tasks share it.

use crate::StoreError;
use crate::store_url::{StoreSecurity, StoreUrl};
use futures_util::Stream as _;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ScriptInvocation, TlsMode,
};
pub(crate) use redis::{Script, cmd};
use std::fmt;
use std::time::Duration;
use tokio::sync::Mutex;

pub(crate) struct Connection {
    target: Target,
    timeout: Duration,
    live: Mutex<Option<MultiplexedConnection>>,
}

enum Target {
    Server(Client),
    Sentinels(Mutex<SentinelClient>),
}

impl Connection {
    /// A connection that is not made yet. `timeout` limits connecting and each reply.
    pub(crate) fn new(url: &StoreUrl, timeout: Duration) -> Result<Self, StoreError> {
        Ok(Self { target: Target::new(url)?, timeout, live: Mutex::new(None) })
    }

    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let mut live = self.live().await?;
        let result = script.invoke_async(&mut live).await.map_err(StoreError::from);
        self.keep_or_drop(result).await
    }

    /// Sends a script without running it.
    pub(crate) async fn load(&self, script: &Script) -> Result<(), StoreError> {
        let mut live = self.live().await?;
        let result = script.load_async(&mut live).await.map(drop).map_err(StoreError::from);
        self.keep_or_drop(result).await
    }

    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let mut live = self.live().await?;
        let result = command.query_async(&mut live).await.map_err(StoreError::from);
        self.keep_or_drop(result).await
    }

    /// Subscribes to a channel, over a connection of its own.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<Messages, StoreError> {
        let subscribe = async {
            let mut messages = match &self.target {
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
    pub(crate) async fn close(&self) {
        *self.live.lock().await = None;
    }

    /// After a timeout or a lost connection the next command makes a new one.
    async fn keep_or_drop<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.as_ref().is_err_and(|error| !keeps_connection(error)) {
            *self.live.lock().await = None;
        }
        result
    }

    async fn live(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut live = self.live.lock().await;
        if let Some(live) = &*live {
            return Ok(live.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let connect = async {
            match &self.target {
                Target::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
                Target::Sentinels(client) => {
                    client.lock().await.get_async_connection_with_config(&config).await
                }
            }
        };
        // The lookup at the Sentinels has no limit of its own.
        let connected = tokio::time::timeout(self.timeout, connect).await;
        let connected =
            connected.map_err(|_| StoreError::Unreachable("no connection in time".to_owned()))??;
        Ok(live.insert(connected).clone())
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
