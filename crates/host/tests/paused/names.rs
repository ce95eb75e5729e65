//! Names that two servers want: the holder keeps them, here and after a restart.

use crate::world::*;
use gripfast::store::{MemoryStore, Store};
use gripfast::{Host, State};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::Arc;

fn tools(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } })).collect()
}

fn unprefixed(host: &Host, name: &str, server: &Server) {
    let mut spec = spec();
    spec.prefix = Some(String::new());
    add(host, name, spec, server);
}

async fn listed(host: &Host, name: &str) {
    let mut events = host.events();
    while host.status_of(name).unwrap().supervision.state != State::Ready {
        let _ = events.recv().await;
    }
}

fn owner(host: &Host, tool: &str) -> Option<String> {
    host.menu().menu.tool(tool).map(|(to, _)| to.server.to_owned())
}

/// An earlier server in the config could take over the tool of another one while both were running.
#[tokio::test(start_paused = true)]
async fn g01_an_earlier_server_takes_no_name_at_run_time_or_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (one, two) = (Server::new(LinkKind::Process), Server::new(LinkKind::Process));
    one.offer_tools(tools(&["a"]));
    two.offer_tools(tools(&["x"]));
    let host = host_on(&store);
    unprefixed(&host, "one", &one);
    unprefixed(&host, "two", &two);
    listed(&host, "one").await;
    listed(&host, "two").await;
    assert_eq!(owner(&host, "x").as_deref(), Some("two"));

    one.offer_tools(tools(&["a", "x", "two__x"]));
    let before = one.received("tools/list");
    host.reconnect("one").unwrap();
    let mut events = host.events();
    while one.received("tools/list") == before {
        let _ = events.recv().await;
    }
    settle().await;
    assert_eq!(owner(&host, "x").as_deref(), Some("two"));
    assert_eq!(owner(&host, "two__x"), None);
    assert_eq!(owner(&host, "one__x").as_deref(), Some("one"));
    let told = host.status_of("one").unwrap().events;
    assert!(told.iter().any(|told| told.event.word() == "names_gave_way"), "{told:?}");
    host.shutdown().await;

    // Also while the holder is away, or switched off.
    two.shut(refused());
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
    let (one, two) = (Server::new(LinkKind::Process), Server::new(LinkKind::Process));
    one.offer_tools(tools(&["x"]));
    two.offer_tools(tools(&["x"]));
    one.list_within(Some(std::time::Duration::from_secs(20)));
    let host = Host::builder().build();
    unprefixed(&host, "one", &one);
    unprefixed(&host, "two", &two);
    listed(&host, "two").await;
    assert_eq!(owner(&host, "x").as_deref(), Some("two"), "for now");
    listed(&host, "one").await;
    assert_eq!(owner(&host, "x").as_deref(), Some("one"));
    assert_eq!(owner(&host, "two__x").as_deref(), Some("two"));
}
