//! Settings of a replica: the table `cluster` with its references expanded and its values checked.

use gripfast::ReplicaName;
use gripfast::config::{ClusterConfig, ExpandError, Lookup, StoreLoss, Template};
use gripfast::placement::address::{AddressError, ReplicaAddress};
use gripfast::placement::term::LeaseSpec;
use gripfast_cluster::keys::{ClusterKeys, KeyError};
use gripfast_cluster::store_url::{StoreUrl, StoreUrlError};
use gripfast_cluster::{Namespace, NamespaceError, StoreError};
use std::net::SocketAddr;

/// Settings of this replica.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    pub(super) name: ReplicaName,
    pub(super) listen: SocketAddr,
    /// `None` stands for the address of the listener.
    pub(super) advertise: Option<ReplicaAddress>,
    pub(super) store: StoreUrl,
    pub(super) namespace: Namespace,
    pub(super) keys: ClusterKeys,
    pub(super) lease: LeaseSpec,
    pub(super) required: bool,
    pub(super) on_store_loss: StoreLoss,
    /// Digest of the config, to compare the replicas.
    pub(super) config_hash: String,
}

/// Mistake in the table `cluster`.
#[derive(Debug, thiserror::Error)]
pub enum ClusterSettingsError {
    /// The build cannot use a store.
    #[error("this build has no support for replicas (feature `cluster` is off)")]
    NotSupported,
    /// A reference cannot be expanded.
    #[error("`cluster.{key}`: {error}")]
    Reference {
        /// The key.
        key: &'static str,
        /// The reason.
        error: ExpandError,
    },
    /// The URL of the store.
    #[error("`cluster.store`: {0}")]
    Store(#[from] StoreUrlError),
    /// The secret.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The name of the service.
    #[error("`cluster.namespace`: {0}")]
    Namespace(#[from] NamespaceError),
    /// The host name cannot be the name of a replica.
    #[error("the host name `{0}` cannot be the name of a replica")]
    HostName(String),
    /// No connection to the store is possible at all.
    #[error("`cluster.store`: {0}")]
    Connection(#[from] StoreError),
    /// The address of the listener cannot be the address for other replicas.
    #[error("`cluster.listen` cannot be the address for the other replicas: {0}")]
    Listen(AddressError),
    /// The expanded address for other replicas.
    #[error("`cluster.advertise`: `{text}` is not an address of a replica: {error}")]
    Advertise {
        /// The address.
        text: String,
        /// The reason.
        error: AddressError,
    },
}

impl ClusterSettingsError {
    /// The next step for the operator.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotSupported => "remove the table `cluster`, or use a build with that feature",
            Self::Reference { .. } => {
                "set the variable, or create the file, for the user who runs the gateway"
            }
            Self::Store(_) | Self::Connection(_) => {
                "for example \"redis://127.0.0.1:6379/0\"; `rediss` uses TLS"
            }
            Self::Key(_) => "`openssl rand -hex 32` makes a key; all replicas need the same one",
            Self::Namespace(_) => "for example \"gripfast\"",
            Self::HostName(_) => "set `cluster.name`: letters, digits, `-` and `_`, at most 63",
            Self::Advertise { .. } => {
                "write scheme, host and port, such as \"http://10.0.0.7:7332\"; check the variables in it"
            }
            Self::Listen(_) => "set `cluster.advertise` to the URL under which the other replicas reach it",
        }
    }
}

impl ClusterSettings {
    /// Expands and checks the table.
    ///
    /// # Errors
    /// See [`ClusterSettingsError`].
    pub fn from_config(
        config: &ClusterConfig,
        config_hash: String,
        lookup: &dyn Lookup,
    ) -> Result<Self, ClusterSettingsError> {
        if !gripfast_cluster::IS_SUPPORTED {
            return Err(ClusterSettingsError::NotSupported);
        }
        let expand = |key, template: &Template| {
            let expanded = template.expand(lookup);
            expanded
                .map(gripfast::config::Expanded::into_revealed)
                .map_err(|error| ClusterSettingsError::Reference { key, error })
        };
        let keys: Vec<String> = config.key.iter().map(|key| expand("key", key)).collect::<Result<_, _>>()?;
        let name = match &config.name {
            Some(name) => name.clone(),
            None => {
                let host = host_name();
                // The name of a machine in a domain: the first part is enough.
                let first = host.split('.').next().unwrap_or_default();
                ReplicaName::new(first).ok_or_else(|| ClusterSettingsError::HostName(host.clone()))?
            }
        };
        let advertise = match &config.advertise {
            Some(template) => {
                let text = expand("advertise", template)?;
                let address = ReplicaAddress::parse(text.trim());
                Some(address.map_err(|error| ClusterSettingsError::Advertise { text, error })?)
            }
            None => None,
        };
        let has_port = config.listen.port() != 0;
        if advertise.is_none() && has_port {
            advertised(config.listen)?;
        }
        Ok(Self {
            name,
            listen: config.listen,
            advertise,
            store: StoreUrl::parse(&expand("store", &config.store)?)?,
            namespace: Namespace::new(&config.namespace)?,
            keys: ClusterKeys::new(keys.iter().map(|key| key.trim()))?,
            lease: LeaseSpec { lease: config.lease },
            required: config.required,
            on_store_loss: config.on_store_loss,
            config_hash,
        })
    }

    /// Name of this replica.
    pub(crate) fn name(&self) -> &ReplicaName {
        &self.name
    }

    /// Address of the listener for other replicas.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Keys of the service.
    pub(crate) fn keys(&self) -> &ClusterKeys {
        &self.keys
    }
}

/// The address for other replicas, of a listener without `advertise`.
pub(super) fn advertised(listen: SocketAddr) -> Result<ReplicaAddress, ClusterSettingsError> {
    ReplicaAddress::parse(&format!("http://{listen}")).map_err(ClusterSettingsError::Listen)
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::config::{Config, ProcessEnvironment};

    fn settings(text: &str) -> Result<ClusterSettings, ClusterSettingsError> {
        let config = Config::parse(&format!("[cluster]\n{text}"), "gripfast.toml".as_ref()).unwrap();
        ClusterSettings::from_config(&config.cluster.unwrap(), String::new(), &ProcessEnvironment)
    }

    #[test]
    fn each_mistake_in_the_cluster_table_has_its_own_error() {
        const KEY: &str = "key = 'a secret of at least 32 characters'";
        let good = format!("store = 'redis://127.0.0.1:6379/0'\n{KEY}\n");
        assert!(settings(&good).is_ok());
        for (text, expected) in [
            (format!("store = 'http://127.0.0.1'\n{KEY}"), "`cluster.store`: the scheme of the store URL"),
            ("store = 'redis://a'\nkey = 'short'".to_owned(), "`cluster.key` number 1 has 5 characters"),
            ("store = 'redis://a'\nkey = []".to_owned(), "`cluster.key` is missing"),
            (format!("{good}namespace = 'a b'"), "`cluster.namespace`: `a b` is not a namespace"),
            (format!("{good}listen = '0.0.0.0:7332'"), "`cluster.listen` cannot be the address"),
            (format!("store = '${{env:GRIPFAST_NO_SUCH_VARIABLE}}'\n{KEY}"), "`cluster.store`: "),
            (
                format!("{good}advertise = 'http://${{env:GRIPFAST_NO_SUCH_VARIABLE}}:7332'"),
                "`cluster.advertise`: environment variable",
            ),
            (
                format!("{good}advertise = '${{env:GRIPFAST_NO_SUCH_VARIABLE:-https://a:7332}}'"),
                "`cluster.advertise`: `https://a:7332` is not an address of a replica: its scheme is https",
            ),
        ] {
            let error = settings(&text).expect_err(&text);
            assert!(error.to_string().starts_with(expected), "{text}: {error}");
            assert!(!error.hint().is_empty());
        }
        let listen = "listen = '0.0.0.0:7332'\n";
        for address in ["http://10.0.0.7:7332", "http://${env:GRIPFAST_NO_SUCH_VARIABLE:-10.0.0.7}:7332"] {
            let settings = settings(&format!("{good}{listen}advertise = '{address}'")).unwrap();
            assert_eq!(settings.advertise.unwrap().as_str(), "http://10.0.0.7:7332");
        }
    }

    #[test]
    fn no_message_shows_the_secrets_of_a_cluster() {
        let text = "store = 'redis://:hunter22@a/0'\nkey = 'hunter22'";
        let error = settings(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter22"), "{error:?}");
        let text = "store = 'redis://:hunter22@a/0'\nkey = ['a hunter22 of at least 32 characters']";
        assert!(!format!("{:?}", settings(text).unwrap()).contains("hunter22"));
    }
}
