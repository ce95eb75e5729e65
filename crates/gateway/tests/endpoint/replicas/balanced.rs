//! Three replicas behind real load balancers, with the configs of `deploy/` and the official clients.

use super::service::{Replica, Service};
use crate::client::{HttpClient, LegacyClient, ModernClient};
use gripfast_testkit::balancer::{Balancer, REPLICAS, RunningBalancer};
use gripfast_testkit::clients::{Client, Mode};
use gripfast_testkit::peers::Transport;
use gripfast_testkit::wait::within;
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Names that the configs do not map to a server: every request goes round robin.
const UNKNOWN: [&str; 3] = ["x", "y", "z"];
/// Names of the configs.
const KNOWN: [&str; 3] = ["gateway-0", "gateway-1", "gateway-2"];

struct BalancedService {
    service: Service,
    _balancer: RunningBalancer,
    http: HttpClient,
}

async fn balanced(balancer: Balancer, names: [&str; 3]) -> Option<BalancedService> {
    if !balancer.require() {
        return None;
    }
    let mut service = Service::start(&[])?;
    for (name, address) in names.into_iter().zip(REPLICAS) {
        let replica = service.replica_at(name, address, &public_url(balancer));
        service.replicas.push(replica);
    }
    service.until_complete().await;
    let http = HttpClient::at(balancer.address());
    Some(BalancedService { service, _balancer: RunningBalancer::start(balancer), http })
}

/// Config for a gateway behind this balancer.
fn public_url(balancer: Balancer) -> String {
    format!("[gateway]\npublic_url = 'http://{}'\n", balancer.address())
}

async fn official_clients_work_through(balancer: Balancer) {
    let Some(balanced) = balanced(balancer, UNKNOWN).await else { return };
    let url = vec![format!("http://{}/mcp", balancer.address())];
    for client in [Client::PythonV2, Client::TypeScriptV2] {
        if !client.require() {
            continue;
        }
        for mode in [Mode::Legacy, Mode::Modern] {
            let mut driven = client.start(mode, Transport::Http, &url);
            driven.run(json!({ "do": "meet" })).await;
            for number in 0..6 {
                let text = format!("{number}");
                let echo = json!({ "do": "call", "tool": "demo__echo", "arguments": { "text": text } });
                assert_eq!(driven.run(echo).await["text"], text, "{driven}");
            }
            let ask = json!({ "do": "call", "tool": "demo__ask", "arguments": { "question": "Sure?" } });
            let asked = driven.run(ask).await;
            assert_eq!(asked["text"], "the answer was yes", "{driven}: {asked}");
            driven.close().await;
        }
    }
    drop(balanced);
}

#[tokio::test]
async fn official_clients_work_through_haproxy() {
    official_clients_work_through(Balancer::Haproxy).await;
}

#[tokio::test]
async fn official_clients_work_through_nginx() {
    official_clients_work_through(Balancer::Nginx).await;
}

/// Restarts the replicas one after the other while clients of both eras call without a pause.
async fn a_rolling_restart_fails_no_call(balancer: Balancer, names: [&str; 3]) {
    let Some(mut balanced) = balanced(balancer, names).await else { return };
    let (calls, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..4 {
        // Each with connections of its own, which the balancer keeps open.
        let http = HttpClient::at(&balanced.http.address);
        let (calls, ended) = (Arc::clone(&calls), Arc::clone(&ended));
        clients.spawn(async move {
            let legacy = LegacyClient::connect(&http).await;
            let modern = ModernClient::new(&http);
            while !ended.load(Ordering::Relaxed) {
                let answer = match number % 2 {
                    0 => legacy.call_tool("demo__echo", json!({ "text": "x" })).await,
                    _ => modern.call_tool("demo__echo", json!({ "text": "x" })).await,
                };
                assert_eq!(answer, "x");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for (at, (name, address)) in names.into_iter().zip(REPLICAS).enumerate() {
        let before = calls.load(Ordering::Relaxed);
        balanced.service.replicas[at].signal(Signal::TERM);
        let mut old: Replica = balanced.service.replicas.remove(at);
        within("the end of a replica", tokio::task::spawn_blocking(move || old.wait())).await.unwrap();
        let again = balanced.service.replica_at(name, address, &public_url(balancer));
        again.until_it_knows(3).await;
        balanced.service.replicas.insert(at, again);
        assert!(calls.load(Ordering::Relaxed) > before, "clients call meanwhile");
    }
    ended.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_behind_haproxy_fails_no_call() {
    a_rolling_restart_fails_no_call(Balancer::Haproxy, UNKNOWN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_behind_nginx_that_knows_the_owners_fails_no_call() {
    a_rolling_restart_fails_no_call(Balancer::Nginx, KNOWN).await;
}
