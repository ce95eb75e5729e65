//! Connection to the store. It is made on first use, and again after it was lost; with Sentinels the primary is looked
//! up each time. Commands of several tasks share it.

use crate::StoreError;
use crate::store_url::{StoreSecurity, StoreUrl};
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, Script, ScriptInvocation, TlsMode,
};
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

    /// Closes the connection; the next command makes a new one.
    pub(crate) async fn close(&self) {
        *self.live.lock().await = None;
    }

    /// After a timeout or a lost connection the next command makes a new one.
    async fn keep_or_drop<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.as_ref().is_err_and(|error| !error.keeps_connection()) {
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
