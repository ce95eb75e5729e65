//! Sessions that a restarted server no longer knows. Each server reports this in its own way; the refused call is sent
//! once more in a new session.

use crate::peer_host::PeerHost;
use gripfast::{Event, State};
use gripfast_testkit::peers::{Peer, Transport, require};
use serde_json::{Value, json};

/// Restarts the server without the host noticing.
async fn forgets(peer: Peer) -> PeerHost {
    let mut peer_host = PeerHost::behind_relay(peer).await;
    peer_host.echoes("legacy", "before").await;
    peer_host.kill();
    peer_host.start_again();
    assert_eq!(peer_host.status("legacy").supervision.state, State::Ready, "it has not heard of it");
    peer_host
}

async fn renews_in_place(peer: Peer, refusal: &str) -> Option<PeerHost> {
    if !require(peer) {
        return None;
    }
    let mut peer_host = forgets(peer).await;
    let (lists, link) = (listings(&peer_host), peer_host.status("legacy").supervision.restarts);
    if let Peer::ServerEverything(_) = peer {
        peer_host.echoes("legacy", "after").await;
    } else {
        peer_host.text_of("legacy", "counter", json!({})).await;
        assert_eq!(peer_host.count(), 1, "refused once, carried out once");
    }
    let relay = peer_host.relay.as_ref().unwrap();
    assert!(relay.answered(refusal) > 0, "the session was not refused like this: {refusal}");
    peer_host.until_event("legacy", |event| *event == Event::SessionRenewed).await;
    peer_host.until_ready().await;
    assert!(listings(&peer_host) > lists, "its tools were not listed again");
    assert_eq!(peer_host.status("legacy").supervision.restarts, link, "a new session needs no new link");
    Some(peer_host)
}

fn listings(peer_host: &PeerHost) -> usize {
    peer_host.relay.as_ref().unwrap().asked("\"tools/list\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_server_everything_says_400_with_an_error_without_id() {
    let refusal = "HTTP/1.1 400 Bad Request";
    let Some(peer_host) = renews_in_place(Peer::ServerEverything(Transport::Http), refusal).await else {
        return;
    };
    let relay = peer_host.relay.as_ref().unwrap();
    let said = relay.answer_from(refusal).unwrap();
    // The body of the first one; others may follow it.
    let mut body = serde_json::Deserializer::from_str(said.split_once("\r\n\r\n").unwrap().1).into_iter();
    let error: Value = body.next().unwrap().unwrap();
    assert_eq!(error["error"]["message"], json!("Bad Request: No valid session ID provided"));
    assert_eq!(error.get("id"), None, "{error}");
    peer_host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v1_says_404() {
    if let Some(peer_host) = renews_in_place(Peer::PythonV1(Transport::Http), "HTTP/1.1 404 Not Found").await
    {
        peer_host.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v2_says_404() {
    if let Some(peer_host) = renews_in_place(Peer::PythonV2(Transport::Http), "HTTP/1.1 404 Not Found").await
    {
        peer_host.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_rmcp_says_404_in_plain_text() {
    if let Some(peer_host) = renews_in_place(Peer::Rmcp(Transport::Http), "HTTP/1.1 404 Not Found").await {
        peer_host.end().await;
    }
}

/// Over HTTP+SSE the stream is the session, so a new session is a new link.
async fn dials_anew(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = forgets(peer).await;
    peer_host.text_of("legacy", "counter", json!({})).await;
    assert_eq!(peer_host.count(), 1, "refused once, carried out once");
    assert!(peer_host.relay.as_ref().unwrap().answered("HTTP/1.1 404 Not Found") > 0);
    peer_host.until_event("legacy", |event| matches!(event, Event::Revived { .. })).await;
    peer_host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v1_on_sse_says_404_to_a_post() {
    dials_anew(Peer::PythonV1(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v2_on_sse_says_404_to_a_post() {
    dials_anew(Peer::PythonV2(Transport::Sse)).await;
}
