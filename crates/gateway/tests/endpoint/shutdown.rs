//! Shutdown behind a load balancer: the gateway serves on until the load balancer has noticed.

use crate::client::{LEGACY, LegacyClient};
use crate::test_gateway::{TestGateway, at, demo, file_of, pass};
use gripfast_testkit::wait::within;
use http::Method;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpStream;

/// Longer than the test may take, so that only the paused clock ends it.
const DRAIN: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_draining_gateway_serves_new_connections_until_drain_wait_is_over() {
    let demo = demo().await;
    let config = file_of(&at("demo", &demo.url(), "legacy", &[]));
    let config = config.replace("[gateway]", "[gateway]\ndrain_wait = \"600s\"\nshutdown_timeout = \"900s\"");
    let mut gateway = TestGateway::with(&config).await;
    let http = gateway.http.clone();
    let client = LegacyClient::connect(&http).await;
    let mut listening = client.open_stream(None).await;
    gateway.shut_down();
    within("a 503 of /readyz", async {
        while http.send(Method::GET, "/readyz", &[], "").await.status != 503 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Every answer closes its connection, so each of these needs a new one.
    for number in 0..3 {
        let hello = http.initialize(LEGACY).await;
        assert_eq!((hello.status, &hello.headers["connection"]), (200, &"close".parse().unwrap()));
        let text = format!("call {number}");
        assert_eq!(client.call_tool("demo__echo", json!({ "text": text })).await, text);
    }
    assert!(listening.is_silent().await, "streams go on too");
    pass(DRAIN).await;
    assert!(within("the end of the stream", listening.next()).await.is_none());
    gateway.ended().await;
    assert!(TcpStream::connect(&http.address).await.is_err(), "the listener is closed");
}
