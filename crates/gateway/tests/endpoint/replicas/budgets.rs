//! Call budgets of the whole service: the store counts the calls of all replicas.

use super::service::{Replica, Service};
use crate::client::{HttpClient, ModernClient, call};
use gripfast_testkit::proc;
use gripfast_testkit::wait::until_async;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

fn budget(limits: &str) -> String {
    format!("[budgets.few]\n{limits}\n")
}

/// The failure of a call, if it was refused; else null.
async fn failure(replica: &Replica, tool: &str) -> Value {
    let answer = ModernClient::new(&replica.http).request("tools/call", call(tool, json!({}))).await;
    match &answer["result"] {
        Value::Null => json!({ "code": "no result", "answer": answer }),
        result => result["_meta"]["gripfast/failure"].clone(),
    }
}

async fn code(replica: &Replica, tool: &str) -> Value {
    failure(replica, tool).await["code"].clone()
}

async fn budget_row(replica: &Replica) -> Value {
    replica.status().await["budgets"][0].clone()
}

/// Starts a call that does not end. Its response would begin after 15 s, so nothing waits for that.
pub(super) fn hold(replica: &Replica, tool: &str) -> AbortOnDropHandle<()> {
    let (http, params) = (HttpClient::at(&replica.http.address), call(tool, json!({ "ms": 600_000 })));
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut stream = ModernClient::new(&http).start_request("held", "tools/call", params).await;
        while stream.next().await.is_some() {}
    }))
}

#[tokio::test]
async fn g03_a_budget_spent_from_three_replicas_at_once_is_never_exceeded() {
    let Some(service) = Service::start_with(&["a", "b", "c"], &budget("calls = 20\nwithin = '1h'")) else {
        return;
    };
    service.until_complete().await;
    let spend = async |name: &str| {
        let mut made = 0;
        for _ in 0..12 {
            match failure(service.at(name), "demo__counter").await {
                Value::Null => made += 1,
                refused => assert_eq!(refused["code"], "budget_exceeded", "{refused}"),
            }
        }
        made
    };
    let made = tokio::join!(spend("a"), spend("b"), spend("c"));
    assert_eq!(made.0 + made.1 + made.2, 20, "{made:?}");
    let refused = failure(service.at("a"), "demo__counter").await;
    let wait = refused["retry_after_ms"].as_u64().unwrap();
    assert!((3_540_000..=3_660_000).contains(&wait), "{refused}");
    for name in ["a", "b", "c"] {
        let row = budget_row(service.at(name)).await;
        assert_eq!(
            (&row["budget"], &row["calls"], &row["most_calls"]),
            (&json!("few"), &json!(20), &json!(20))
        );
        assert_eq!(row["in_flight"], 0, "{row}");
    }
}

#[tokio::test]
async fn g03_calls_in_flight_of_a_killed_replica_are_free_again() {
    let Some(mut service) = Service::start_with(&["a", "b", "c"], &budget("in_flight = 2")) else { return };
    service.until_complete().await;
    let held_at_a = hold(service.at("a"), "demo__sleep");
    let held_at_b = hold(service.at("b"), "demo__sleep");
    until_async("both calls are in flight", async || budget_row(service.at("c")).await["in_flight"] == 2)
        .await;
    let refused = failure(service.at("c"), "demo__counter").await;
    assert_eq!((&refused["code"], &refused["retry_after_ms"]), (&json!("budget_exceeded"), &Value::Null));
    service.kill("a");
    drop(held_at_a);
    until_async("the unit of the killed replica is free", async || {
        code(service.at("c"), "demo__counter").await == Value::Null
    })
    .await;
    assert_eq!(budget_row(service.at("c")).await["in_flight"], 1, "the other one is held");
    // The client cancels: the unit is given back although no call waits for that.
    drop(held_at_b);
    until_async("no call is in flight", async || budget_row(service.at("c")).await == Value::Null).await;
}

// The start of a replica blocks its thread, and the proxy must serve meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g03_a_reservation_whose_reply_is_lost_counts_once() {
    let Some(mut service) = Service::without_replicas() else { return };
    let proxy = LossyProxy::start(service.store.port()).await;
    service.start_through(proxy.url.clone(), &["a"], &budget("calls = 5\nwithin = '1h'\nin_flight = 3"));
    service.until_complete().await;
    assert_eq!(code(service.at("a"), "demo__counter").await, Value::Null);
    proxy.lose_reply.store(true, Ordering::SeqCst);
    assert_eq!(code(service.at("a"), "demo__counter").await, Value::Null);
    assert!(!proxy.lose_reply.load(Ordering::SeqCst), "a reply was lost");
    until_async("two calls are counted, and none is in flight", async || {
        let row = budget_row(service.at("a")).await;
        assert!(row["calls"].as_u64().is_none_or(|calls| calls <= 2), "{row}");
        (&row["calls"], &row["in_flight"]) == (&json!(2), &json!(0))
    })
    .await;
}

#[tokio::test]
async fn g03_without_the_store_each_replica_has_its_part_of_the_limit() {
    let Some(mut service) = Service::start_with(&["a", "b", "c"], &budget("calls = 7\nwithin = '1h'")) else {
        return;
    };
    service.until_complete().await;
    assert_eq!(code(service.at("a"), "demo__counter").await, Value::Null);
    service.store.kill();
    for (name, calls) in [("a", 1), ("b", 2), ("c", 2)] {
        for call in 0..calls {
            assert_eq!(code(service.at(name), "demo__counter").await, Value::Null, "{name} {call}");
        }
        assert_eq!(code(service.at(name), "demo__counter").await, "budget_exceeded", "{name}");
    }
    assert_eq!(budget_row(service.at("b")).await["calls"], 2, "its own calls, while the store is away");
    service.store.start_process();
    // The store is empty: it has no append-only file.
    until_async("the store counts again", async || {
        code(service.at("b"), "demo__counter").await == Value::Null
    })
    .await;
}

#[tokio::test]
async fn g03_a_store_that_hangs_delays_calls_for_a_moment_only() {
    let Some(service) = Service::start_with(&["a"], &budget("calls = 100\nwithin = '1h'")) else { return };
    service.until_complete().await;
    assert_eq!(code(service.at("a"), "demo__counter").await, Value::Null);
    let store = service.store.pid().unwrap();
    proc::signal(store, Signal::STOP);
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(code(service.at("a"), "demo__counter").await, Value::Null);
    }
    // Waiting for the store once for each would take 12 s and more.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    proc::signal(store, Signal::CONT);
    until_async("the store counts again, without what it was asked meanwhile", async || {
        code(service.at("a"), "demo__counter").await;
        let row = budget_row(service.at("a")).await;
        // Its own count has all calls; that of the store has not.
        row["calls"].as_u64().is_some_and(|calls| calls < 20) && row["in_flight"] == 0
    })
    .await;
}

#[tokio::test]
async fn g03_with_refuse_a_call_is_not_made_without_the_store() {
    let limits = "tool = 'counter'\ncalls = 7\nwithin = '1h'";
    let Some(mut service) = Service::start_cluster(&["a", "b"], "on_store_loss = 'refuse'", &budget(limits))
    else {
        return;
    };
    service.until_complete().await;
    assert_eq!(code(service.at("a"), "demo__counter").await, Value::Null);
    service.store.kill();
    for name in ["a", "b"] {
        let refused = failure(service.at(name), "demo__counter").await;
        assert_eq!((&refused["code"], &refused["outcome"]), (&json!("reconnecting"), &json!("not_sent")));
        let hint = refused["hint"].as_str().unwrap();
        assert!(hint.starts_with("restore the store") && hint.contains("cluster.on_store_loss"), "{hint}");
        assert!(refused["retry_after_ms"].is_u64(), "{refused}");
        let free =
            ModernClient::new(&service.at(name).http).call_tool("demo__echo", json!({ "text": "x" })).await;
        assert_eq!(free, "x", "no budget covers it");
    }
    service.store.start_process();
    until_async("calls are made again", async || code(service.at("a"), "demo__counter").await == Value::Null)
        .await;
}

/// A proxy before the store that loses one reply to a reservation, with its connection.
struct LossyProxy {
    url: String,
    /// Whether the next reply is lost.
    lose_reply: Arc<AtomicBool>,
}

impl LossyProxy {
    async fn start(store: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/0", listener.local_addr().unwrap());
        let lose_reply = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&lose_reply);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (client, to_client) = client.into_split();
                let (server, to_server) =
                    TcpStream::connect(("127.0.0.1", store)).await.unwrap().into_split();
                let loses = Arc::new(AtomicBool::new(false));
                tokio::spawn(requests(client, to_server, Arc::clone(&armed), Arc::clone(&loses)));
                tokio::spawn(replies(server, to_client, loses));
            }
        });
        Self { url, lose_reply }
    }
}

async fn requests(
    mut client: OwnedReadHalf,
    mut to_server: OwnedWriteHalf,
    armed: Arc<AtomicBool>,
    loses: Arc<AtomicBool>,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = client.read(&mut bytes).await {
        // Only a reservation has a window.
        let is_reservation = String::from_utf8_lossy(&bytes[..read]).contains("sliding");
        if is_reservation && armed.swap(false, Ordering::SeqCst) {
            loses.store(true, Ordering::SeqCst);
        }
        if to_server.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

async fn replies(mut server: OwnedReadHalf, mut to_client: OwnedWriteHalf, loses: Arc<AtomicBool>) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = server.read(&mut bytes).await {
        if loses.load(Ordering::SeqCst) || to_client.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
