//! Attacks on the listener for other replicas.

use super::service::Service;
use crate::client::{HttpClient, LegacyClient, request};
use http::Method;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

#[tokio::test]
async fn a_request_without_a_valid_seal_is_refused_before_its_body_is_read() {
    let Some(service) = Service::start(&["a"]) else { return };
    let address = format!("127.0.0.1:{}", service.at("a").port);
    let client = LegacyClient::connect(&service.at("a").http).await;
    let http = HttpClient::at(&address);
    let ping = request(1, "ping", &json!({})).to_string();
    let forged = "1:0000000000000001:0000000000000002:0:1:00:00";
    for seal in [None, Some("nonsense"), Some(forged)] {
        let mut headers = vec![("mcp-session-id", &*client.session), ("gripfast-principal", "local")];
        headers.extend(seal.map(|seal| ("gripfast-forward", seal)));
        for path in ["/mcp", "/message?sessionId=x", "/sse", "/api/v1/status"] {
            let refused = http.send(Method::POST, path, &headers, ping.clone()).await;
            assert_eq!(refused.status, 403, "{path} {refused:?}");
        }
    }
    // The answer comes although the body never does.
    let mut connection = TcpStream::connect(&address).unwrap();
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n", 16 << 20);
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 403");
    assert!(service.at("a").log().contains("a request to `cluster.listen` is refused"));
}
