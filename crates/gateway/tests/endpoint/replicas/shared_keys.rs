//! API keys of a service: one table for all replicas.

use super::service::{KEY, Replica, Service};
use crate::client::{LEGACY, initialize};
use gripfast_gateway::auth::keys;
use gripfast_testkit::wait::until_async;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) const KEYS: &str = "[gateway]\nauth = { keys = true }\n";

/// Status of a request with this key.
async fn status(replica: &Replica, key: &str) -> u16 {
    let shown = format!("Bearer {}", key.trim());
    replica.http.post(&[("authorization", &shown)], initialize(LEGACY).to_string()).await.status
}

pub(super) async fn until_status(replica: &Replica, key: &str, wanted: u16) {
    let what = format!("{} answers {wanted}", replica.name);
    until_async(&what, async || status(replica, key).await == wanted).await;
}

pub(super) fn add(replica: &Replica, name: &str) -> String {
    let (code, key, said) = replica.local_command(&["keys", "add", name]);
    assert_eq!(code, Some(0), "{said}");
    key.trim().to_owned()
}

/// Reply of the store to a command.
fn ask(service: &Service, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", service.store.port())).unwrap();
    write!(stream, "{command}\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Empties the store.
fn flush(service: &Service) {
    assert!(ask(service, "FLUSHALL").starts_with("+OK"));
}

#[tokio::test]
async fn a_key_is_valid_at_all_replicas_and_a_removed_one_at_none() {
    let Some(mut service) = Service::start_with(&["a", "b"], KEYS) else { return };
    let key = add(service.at("a"), "laptop");
    let other = add(service.at("b"), "ci");
    for name in ["a", "b"] {
        until_status(service.at(name), &key, 200).await;
        until_status(service.at(name), &other, 200).await;
    }
    let (code, _, said) = service.at("b").local_command(&["keys", "add", "laptop"]);
    assert!(code == Some(1) && said.contains("a key named `laptop` already exists"), "{said}");
    let (code, _, said) = service.at("b").local_command(&["keys", "rm", "laptop"]);
    assert!(code == Some(0) && said.contains("all replicas refuse it at once"), "{said}");
    for name in ["a", "b"] {
        until_status(service.at(name), &key, 401).await;
    }
    let (_, listed, _) = service.at("a").local_command(&["keys", "ls", "-o", "json"]);
    assert!(listed.contains("\"ci\"") && !listed.contains("laptop"), "{listed}");
    // The store loses its data, and a replica that was away since before the removal comes back first.
    service.store.kill();
    service.kill("b");
    service.store.start_process();
    let again = service.replica("b", KEYS);
    until_status(&again, &other, 200).await;
    for replica in [&again, service.at("a")] {
        assert_eq!(status(replica, &key).await, 401, "a removed key stays removed: {}", replica.name);
    }
    // Another loss while both run.
    flush(&service);
    let third = service.replica("c", KEYS);
    until_status(&third, &other, 200).await;
    assert_eq!(status(&third, &key).await, 401);
}

#[tokio::test]
async fn a_replica_with_an_old_copy_lets_no_removed_key_in_after_the_store_was_emptied() {
    let Some(mut service) = Service::start_with(&["a", "b"], KEYS) else { return };
    let key = add(service.at("a"), "laptop");
    let other = add(service.at("a"), "ci");
    until_status(service.at("b"), &key, 200).await;
    until_status(service.at("b"), &other, 200).await;
    // Its copy has the key, and misses the removal.
    service.kill("b");
    let (code, _, said) = service.at("a").local_command(&["keys", "rm", "laptop"]);
    assert_eq!(code, Some(0), "{said}");
    until_status(service.at("a"), &key, 401).await;
    flush(&service);
    let again = service.replica("b", KEYS);
    until_async("it knows what the service knows", async || {
        assert_ne!(status(&again, &key).await, 200, "the removed key was let in");
        status(&again, &other).await == 200
    })
    .await;
    assert_eq!(status(&again, &key).await, 401);
}

#[tokio::test]
async fn keys_go_on_without_the_store_and_are_not_changed() {
    let Some(mut service) = Service::start_with(&["a"], KEYS) else { return };
    let key = add(service.at("a"), "laptop");
    until_status(service.at("a"), &key, 200).await;
    service.store.kill();
    until_async("the replica notices", async || {
        service.at("a").status().await["cluster"]["store"] == "unreachable"
    })
    .await;
    assert_eq!(status(service.at("a"), &key).await, 200);
    for words in [["keys", "add", "other"], ["keys", "rm", "laptop"]] {
        let (code, _, said) = service.at("a").local_command(&words);
        assert_eq!(code, Some(4), "{said}");
        assert!(said.contains("the store is unreachable") && said.contains("gripfast doctor"), "{said}");
    }
    // A restart without the store: the copy in the state directory is used.
    service.kill("a");
    let again = service.replica("a", KEYS);
    assert_eq!(status(&again, &key).await, 200);
    let copy = std::fs::read_to_string(again.state.join("cluster/api_keys.sealed")).unwrap();
    assert!(copy.starts_with("1:") && !copy.contains("laptop"), "{copy}");
}

#[tokio::test]
async fn keys_of_a_single_gateway_come_along_when_it_joins_an_empty_service() {
    let Some(service) = Service::without_replicas() else { return };
    let [first, late] = ["a", "b"].map(|name| {
        let directory = service.state_dir(name);
        (keys::add(&directory, &format!("of-{name}")).unwrap(), name)
    });
    let a = service.replica(first.1, KEYS);
    until_status(&a, &first.0, 200).await;
    let b = service.replica(late.1, KEYS);
    until_status(&b, &first.0, 200).await;
    assert_eq!(status(&b, &late.0).await, 401, "the service has keys already");
    assert!(b.log().contains("are not used: of-b"), "{}", b.log());
}

#[tokio::test]
async fn keys_of_the_service_survive_the_replacement_of_the_cluster_key() {
    let Some(mut service) = Service::start_with(&["a"], KEYS) else { return };
    let key = add(service.at("a"), "laptop");
    let sealed = ask(&service, "HGET {gripfast}:table:api_keys laptop");
    assert!(sealed.contains("\n1:") && !sealed.contains("sha256"), "it is sealed: {sealed}");
    let new = "another secret of at least thirty-two characters";
    service.kill("a");
    service.key = format!("['{new}', '{KEY}']");
    let second = service.replica("a", KEYS);
    until_status(&second, &key, 200).await;
    until_async("the table is sealed with the new key", async || {
        ask(&service, "HGET {gripfast}:table:api_keys laptop") != sealed
    })
    .await;
    drop(second);
    std::fs::remove_dir_all(service.state_dir("a").join("cluster")).unwrap();
    service.key = format!("'{new}'");
    let third = service.replica("a", KEYS);
    until_status(&third, &key, 200).await;
}

/// A lease of five minutes: the next heartbeat comes after a minute.
#[tokio::test]
async fn a_changed_key_is_seen_before_the_next_heartbeat() {
    let Some(mut service) = Service::start_with(&["a", "b"], KEYS) else { return };
    let key = add(service.at("a"), "laptop");
    until_status(service.at("b"), &key, 200).await;
    service.lease = "5m";
    let started = Instant::now();
    for name in ["a", "b"] {
        service.kill(name);
        let replica = service.replica(name, KEYS);
        service.replicas.push(replica);
    }
    let until_subscribed = async || {
        until_async("both replicas have subscribed", async || {
            ask(&service, "PUBSUB NUMSUB {gripfast}:changes").contains(":2")
        })
        .await;
    };
    until_subscribed().await;
    until_status(service.at("b"), &key, 200).await;
    let (code, _, said) = service.at("a").local_command(&["keys", "rm", "laptop"]);
    assert_eq!(code, Some(0), "{said}");
    for name in ["a", "b"] {
        until_status(service.at(name), &key, 401).await;
    }
    // They subscribe again after their connections were lost.
    assert!(ask(&service, "CLIENT KILL TYPE pubsub").starts_with(":2"));
    until_subscribed().await;
    let other = add(service.at("b"), "ci");
    for name in ["a", "b"] {
        until_status(service.at(name), &other, 200).await;
    }
    assert!(
        started.elapsed() < Duration::from_secs(55),
        "no heartbeat has told them: {:?}",
        started.elapsed()
    );
}
