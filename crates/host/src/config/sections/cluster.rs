//! Several gateways as one service: the table `cluster`. A mistake here is an error of the file, because a gateway that
//! runs alone by mistake would not know the keys, pins and budgets of its service.

use crate::config::fields::{Field, Problems};
use crate::config::keys::{NonEmpty, Section, ValueKind, impl_codec, keys, words};
use crate::config::node::Value;
use crate::config::template::Template;
use crate::config::units::DurationRange;
use gripfast_core::placement::address::ReplicaAddress;
use gripfast_core::placement::place::ReplicaName;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const LEASE_RANGE: DurationRange = DurationRange::between(Duration::from_secs(2), Duration::from_secs(300));

keys! {
    /// Several gateways that act as one service behind a load balancer. They share a store: Valkey 8 or Redis 7, or
    /// newer. Without this table the gateway runs alone. Changes take effect at the next start.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClusterConfig, check require_store {
        /// URL of the store: `"redis://HOST:PORT/0"`, `"rediss://…"` with TLS, or
        /// `"redis+sentinel://HOST:PORT,HOST:PORT/SERVICE"`. `${env:NAME}` and `${file:PATH}` keep its password out of
        /// this file. The store must keep all keys (`maxmemory-policy noeviction`) and should have an append-only file.
        pub store: Template as StoreTemplate = Template::default(), required;
        /// Secret of the service, at least 32 characters, the same at all replicas. To replace it, write a list: the
        /// first one is used, all are accepted. `openssl rand -hex 32` makes one.
        pub key: Vec<Template> as SecretList = Vec::new(), required;
        /// Name of the service in the store. Two services need two names.
        pub namespace: String as NonEmpty = "gripfast".to_owned();
        /// Name of this replica, the same after a restart: letters, digits, `-` and `_`, at most 63. It is readable in
        /// session ids, so that a load balancer can use it.
        pub name: Option<ReplicaName> = None, "the host name";
        /// IP address and port for requests that other replicas forward. Clients must not reach it, so it is not behind
        /// the load balancer.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7332));
        /// URL under which the other replicas reach `listen`: `"http://10.0.0.7:7332"`, or `"http://${env:POD_IP}:7332"`.
        /// It has the scheme `http`, a host and a port: forwarded requests are authenticated, not encrypted.
        pub advertise: Option<Template> as Option<AdvertisedAddress> = None, "`listen`";
        /// Time after which a replica without a heartbeat counts as lost. It sends five in that time. Too short: a
        /// slow store or a busy machine makes a replica look lost. Too long: its singleton servers are away for longer.
        pub lease: Duration [LEASE_RANGE] = Duration::from_secs(10);
        /// Refuse to start if the gateway cannot join the service. With `false` it serves alone until it can.
        pub required: bool = false;
        /// Calls that a budget covers, while the store that counts them is unreachable. `local`: each replica decides
        /// alone, with the limit divided by the last known number of replicas, and at least 1. `refuse`: they are not
        /// made.
        pub on_store_loss: StoreLoss = StoreLoss::Local;
    }
}

/// Values of the key `on_store_loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreLoss {
    /// Each replica decides alone, with its part of each limit.
    Local,
    /// Calls that a budget covers are refused.
    Refuse,
}

words!(StoreLoss { Local = "local", Refuse = "refuse" });

fn require_store(_: &mut ClusterConfig, field: &Field<'_>, _is_clean: bool, problems: &mut Problems) {
    if field.get("store").is_none() || field.get("key").is_none() {
        let hint = "the URL of the store, such as \"redis://127.0.0.1:6379/0\", and a secret of at least 32 characters";
        problems.error(field.error("expected `store` and `key`").with_hint(hint));
    }
}

/// Decodes the table `cluster`.
pub(in crate::config) fn cluster(field: &Field<'_>, problems: &mut Problems) -> ClusterConfig {
    let mut cluster = ClusterConfig::defaults();
    cluster.read_section(field, problems);
    cluster
}

/// Codec of one secret, or of a list of secrets.
struct SecretList;

impl_codec!(SecretList => Vec<Template>, ValueKind::TemplateOrList, read_secrets);

fn read_secrets(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<Template>> {
    match &field.node.value {
        Value::List(_) => {
            let elements = field.elements(problems)?;
            elements.iter().map(|element| secret(element, problems)).collect()
        }
        _ => Some(vec![secret(field, problems)?]),
    }
}

fn secret(field: &Field<'_>, problems: &mut Problems) -> Option<Template> {
    field.nonempty_template(problems).map(Template::into_secret)
}

/// Codec of `store`, whose password is not shown.
struct StoreTemplate;

impl_codec!(
    StoreTemplate => Template,
    ValueKind::Text,
    |field, problems| field.nonempty_template(problems).map(Template::into_url)
);

impl_codec!(ReplicaName => ReplicaName, ValueKind::Text, read_name, |name| name.to_string());

fn read_name(field: &Field<'_>, problems: &mut Problems) -> Option<ReplicaName> {
    let text = field.text(problems)?;
    ReplicaName::new(text).or_else(|| {
        let expected = "expected at most 63 letters, digits, `-` and `_`";
        problems.refuse(field.error(expected))
    })
}

/// Codec of `advertise`. An address without references is checked at once.
struct AdvertisedAddress;

impl_codec!(AdvertisedAddress => Template, ValueKind::Text, read_address);

fn read_address(field: &Field<'_>, problems: &mut Problems) -> Option<Template> {
    let template = field.nonempty_template(problems)?;
    match template.literal().map(ReplicaAddress::parse) {
        None | Some(Ok(_)) => Some(template),
        Some(Err(error)) => {
            let hint =
                "the URL under which the other replicas reach this one, such as \"http://10.0.0.7:7332\"";
            problems.refuse(field.error(format!("not an address of a replica: {error}")).with_hint(hint))
        }
    }
}
