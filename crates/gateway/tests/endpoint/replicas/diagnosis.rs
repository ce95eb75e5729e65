//! Mistakes in the settings of a service: each has its own error and next step. `gripfast doctor` finds them too.

use super::service::{KEY, Service};
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use gripfast_testkit::wait::until_async;
use std::process::Command;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Output of a gateway that refuses to start with this table `cluster`.
fn refusal(table: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gripfast.toml");
    std::fs::write(&file, format!("[cluster]\n{table}\nlisten = '127.0.0.1:0'\nrequired = true\n")).unwrap();
    let mut command = Command::new(GRIPFAST);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    let said = command.arg("--state-dir").arg(dir.path().join("state")).output().unwrap();
    assert!(!said.status.success(), "{said:?}");
    String::from_utf8(said.stderr).unwrap()
}

#[tokio::test]
async fn each_mistake_in_the_settings_of_a_service_has_its_error_and_next_step() {
    let Some(service) = Service::start(&["a"]) else { return };
    let evicting = RunningStore::start_with(StoreServer::Valkey, &["--maxmemory-policy", "allkeys-lru"]);
    let unused = gripfast_testkit::peers::free_port();
    let (url, key) = (service.store.url(), format!("key = '{KEY}'"));
    let other_key = "key = 'another secret of at least thirty-two characters'";
    for (table, error, step) in [
        (
            format!("store = 'http://127.0.0.1'\n{key}"),
            "the scheme of the store URL",
            "redis://127.0.0.1:6379/0",
        ),
        (
            format!("store = 'redis://127.0.0.1:{unused}/0'\n{key}"),
            "the store is unreachable",
            "start the store",
        ),
        (format!("store = '{url}'\nkey = 'short'"), "has 5 characters", "openssl rand -hex 32"),
        (format!("store = '{url}'"), "expected `store` and `key`", "at least 32 characters"),
        (format!("store = '{url}'\n{other_key}"), "belongs to another service", "`cluster.namespace`"),
        (
            format!("store = '{}'\n{key}", evicting.url()),
            "the store evicts keys (maxmemory-policy allkeys-lru)",
            "change the settings of the store",
        ),
    ] {
        let said = refusal(&table);
        assert!(said.contains(error) && said.contains(step), "{table}: {said}");
    }
}

#[tokio::test]
async fn a_replica_that_does_not_reach_itself_says_so() {
    let Some(service) = Service::start(&["a"]) else { return };
    let unused = gripfast_testkit::peers::free_port();
    let lost = service.replica_with_cluster("b", &format!("advertise = 'http://127.0.0.1:{unused}'\n"));
    until_async("it warns", async || lost.log().contains("does not reach itself")).await;
    assert!(
        lost.log().contains("the connection is refused; the other replicas answer 503"),
        "{}",
        lost.log()
    );
    let port = service.at("a").port;
    let wrong = service.replica_with_cluster("c", &format!("advertise = 'http://127.0.0.1:{port}'\n"));
    until_async("it warns", async || wrong.log().contains("another replica answers there")).await;
    assert!(!service.at("a").log().contains("does not reach itself"));
}

#[tokio::test]
async fn doctor_examines_the_store_and_the_replicas() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let (code, said, errors) = service.at("a").local_command(&["doctor"]);
    for line in [
        "valkey ",
        "keeps all keys, has no append-only file",
        "its clock agrees with the one of this machine",
        "(replica a)  answers at http://127.0.0.1:",
        "(replica b)  answers at http://127.0.0.1:",
    ] {
        assert!(said.contains(line), "{line}: {said}{errors}");
    }
    assert_eq!(code, Some(0), "{said}{errors}");
    let different = service.replica("c", "[servers.more]\nurl = 'http://127.0.0.1:9/mcp'\n");
    service.kill("b");
    let (code, said, _) = service.at("a").local_command(&["doctor"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("from this machine: the connection is refused"), "{said}");
    assert!(said.contains("differ from those of this config"), "{said}");
    drop(different);
    service.store.kill();
    let (code, said, _) = service.at("a").local_command(&["doctor"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the store is unreachable") && said.contains("do: start the store"), "{said}");
}
