//! Name conflicts between servers: the owner keeps a name, also after a restart.

use crate::memory_server::*;
use gripfast::store::{MemoryStore, Store};
use gripfast::{Host, State};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::Arc;

fn tools(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } })).collect()
}

fn unprefixed(host: &Host, name: &str, server: &MemoryServer) {
    let mut spec = spec();
    spec.prefix = Some(String::new());
    add(host, name, spec, server);
}

async fn listed(host: &Host, name: &str) {
    let mut events = host.subscribe_events();
    while host.server_status(name).unwrap().supervision.state != State::Ready {
        let _ = events.recv().await;
    }
}

fn owner(host: &Host, tool: &str) -> Option<String> {
    host.catalog_snapshot().merged.tool(tool).map(|(to, _)| to.server.to_owned())
}

/// Regression: an earlier server in the config could take over a tool of a running server.
#[tokio::test(start_paused = true)]
async fn g01_an_earlier_server_cannot_take_over_a_name_later() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (one, two) = (MemoryServer::new(LinkKind::Process), MemoryServer::new(LinkKind::Process));
    one.set_tools(tools(&["a"]));
    two.set_tools(tools(&["x"]));
    let host = host_on(&store);
    unprefixed(&host, "one", &one);
    unprefixed(&host, "two", &two);
    listed(&host, "one").await;
    listed(&host, "two").await;
    assert_eq!(owner(&host, "x").as_deref(), Some("two"));

    one.set_tools(tools(&["a", "x", "two__x"]));
    let before = one.received("tools/list");
    host.reconnect("one").unwrap();
    let mut events = host.subscribe_events();
    while one.received("tools/list") == before {
        let _ = events.recv().await;
    }
    run_ready_tasks().await;
    assert_eq!(owner(&host, "x").as_deref(), Some("two"));
    assert_eq!(owner(&host, "two__x"), None);
    assert_eq!(owner(&host, "one__x").as_deref(), Some("one"));
    let told = host.server_status("one").unwrap().events;
    assert!(told.iter().any(|told| told.event.kind() == "name_conflicts"), "{told:?}");
    host.shutdown().await;

    // Also while the owner is away or switched off.
    two.fail_connects_with(refused());
    let again = host_on(&store);
    unprefixed(&again, "one", &one);
    let mut off = spec();
    (off.prefix, off.disabled) = (Some(String::new()), true);
    add(&again, "two", off, &two);
    listed(&again, "one").await;
    assert_eq!((owner(&again, "x"), owner(&again, "one__x").as_deref()), (None, Some("one")));
}

/// At the first listing config order decides, although the later server is up sooner.
#[tokio::test(start_paused = true)]
async fn config_order_decides_while_an_earlier_server_is_being_started() {
    let (one, two) = (MemoryServer::new(LinkKind::Process), MemoryServer::new(LinkKind::Process));
    one.set_tools(tools(&["x"]));
    two.set_tools(tools(&["x"]));
    one.set_list_delay(Some(std::time::Duration::from_secs(20)));
    let host = Host::builder().build();
    unprefixed(&host, "one", &one);
    unprefixed(&host, "two", &two);
    listed(&host, "two").await;
    assert_eq!(owner(&host, "x").as_deref(), Some("two"), "for now");
    listed(&host, "one").await;
    assert_eq!(owner(&host, "x").as_deref(), Some("one"));
    assert_eq!(owner(&host, "two__x").as_deref(), Some("two"));
}
