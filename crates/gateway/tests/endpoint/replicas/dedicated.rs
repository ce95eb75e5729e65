//! Servers with `isolation = "per_client"` and clients without a session: one replica runs the instance of a client.

use super::service::Service;
use crate::client::{ModernClient, call};
use rustix::process::Signal;
use serde_json::json;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// The table of the server `own`; `more` are further keys.
fn config(more: &str) -> String {
    format!(
        "[servers.own]\ncommand = '{GRIPFAST}'\nargs = ['demo-server']\nisolation = 'per_client'\n\
         timeouts = {{ reconnect_wait = '30s' }}\n{more}\n"
    )
}

async fn count(service: &Service, replica: &str) -> String {
    ModernClient::new(&service.at(replica).http).call_tool("own__counter", json!({})).await
}

/// The replicas with an instance of a client.
async fn homes(service: &Service) -> Vec<String> {
    let mut homes = Vec::new();
    for replica in &service.replicas {
        let status = replica.status().await;
        let servers = status["upstreams"].as_array().unwrap();
        let own = servers.iter().find(|server| server["name"] == "own").unwrap_or_else(|| panic!("{status}"));
        if own["instances"] != 0 {
            homes.push(replica.name.clone());
        }
    }
    homes
}

#[tokio::test]
async fn a_client_without_a_session_has_one_instance_in_all_replicas() {
    let Some(service) = Service::start_with(&["a", "b", "c"], &config("")) else { return };
    service.until_complete().await;
    for (number, replica) in ["a", "b", "c", "b", "a"].into_iter().enumerate() {
        assert_eq!(count(&service, replica).await, (number + 1).to_string(), "through {replica}");
    }
    assert_eq!(homes(&service).await.len(), 1);
    for replica in ["a", "b", "c"] {
        let client = ModernClient::new(&service.at(replica).http);
        let list = client.request("resources/list", json!({})).await;
        let resources = list["result"]["resources"].as_array().unwrap();
        let origin = json!({ "server": "own", "uri": "demo://counter" });
        let own = resources.iter().find(|resource| resource["_meta"]["gripfast/origin"] == origin);
        let uri = &own.unwrap_or_else(|| panic!("{list}"))["uri"];
        let read = client.request("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["result"]["contents"][0]["text"], "5", "through {replica}: {read}");
    }
}

/// The tools of the search call other tools.
#[tokio::test]
async fn a_tool_that_is_called_through_the_search_has_the_same_instance() {
    let Some(service) = Service::start_with(&["a", "b", "c"], &config("exposure = 'search'")) else { return };
    service.until_complete().await;
    for (number, replica) in ["a", "b", "c"].into_iter().enumerate() {
        let client = ModernClient::new(&service.at(replica).http);
        let found = call("call_tool", json!({ "name": "own__counter", "arguments": {} }));
        let answer = client.request("tools/call", found).await;
        assert_eq!(crate::client::text_of(&answer), (number + 1).to_string(), "through {replica}: {answer}");
    }
}

#[tokio::test]
async fn after_the_loss_of_its_replica_a_client_has_one_instance_at_another_one() {
    let Some(mut service) = Service::start_with(&["a", "b", "c"], &config("")) else { return };
    service.until_complete().await;
    assert_eq!(count(&service, "a").await, "1");
    let [home] = homes(&service).await.try_into().unwrap();
    service.kill(&home);
    let left: Vec<String> = service.replicas.iter().map(|replica| replica.name.clone()).collect();
    for (number, replica) in left.iter().chain(&left).enumerate() {
        assert_eq!(count(&service, replica).await, (number + 1).to_string(), "through {replica}");
    }
    assert_eq!(homes(&service).await.len(), 1);
}

#[tokio::test]
async fn no_call_fails_while_the_replica_with_the_instance_shuts_down() {
    let Some(service) = Service::start_with(&["a", "b", "c"], &config("")) else { return };
    service.until_complete().await;
    assert_eq!(count(&service, "a").await, "1");
    let [home] = homes(&service).await.try_into().unwrap();
    service.at(&home).signal(Signal::TERM);
    let other = service.replicas.iter().find(|replica| replica.name != home).unwrap();
    let (mut last, mut moves) = (1, 0);
    while other.status().await["cluster"]["replicas"] == 3 || moves == 0 {
        let now: u64 = count(&service, &other.name).await.parse().expect("a number");
        if now == 1 {
            moves += 1;
        } else {
            assert_eq!(now, last + 1);
        }
        last = now;
    }
    assert_eq!(moves, 1);
}
