//! Proxies from environment variables. The environment belongs to the whole process, so each test runs another test
//! of this binary as a process with its own environment.

use crate::http_host::{
    NAME, any_local_port, echo, host, legacy, ready_host, serve, spec, wait_for_state, with_tls,
};
use crate::scripted_server::{HttpRequest, join, read_request};
use crate::tls::{Clients, TestCertificates};
use gripfast::State;
use gripfast::config::{Template, TlsSpec};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// A proxy that connects every name to the same server.
struct Proxy {
    addr: SocketAddr,
    requests: Arc<Mutex<Vec<HttpRequest>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_local_port()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<HttpRequest>>>::default();
        let notes = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let notes = Arc::clone(&notes);
                tokio::spawn(async move { handle_connection(stream, server, &notes).await });
            }
        });
        Self { addr, requests, accepting }
    }

    fn requests(&self) -> Vec<HttpRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn handle_connection(mut stream: TcpStream, server: SocketAddr, notes: &Mutex<Vec<HttpRequest>>) {
    let Some(request) = read_request(&mut stream).await else { return };
    notes.lock().unwrap().push(request.clone());
    if request.method == "CONNECT" {
        let _ = stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
        return join(stream, server).await;
    }
    let path = request.target.splitn(4, '/').nth(3).unwrap_or_default();
    crate::scripted_server::forward(&mut stream, &request, &format!("/{path}"), server).await;
}

/// Runs the test below in a process with these environment variables.
async fn run_with_environment(url: &str, variables: &[(&str, String)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "proxies::a_call_uses_the_proxy_of_the_environment", "--nocapture"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        child.env_remove(name).env_remove(name.to_lowercase());
    }
    child.env("TEST_URL", url).envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    let output = crate::http_host::within_timeout(child.kill_on_drop(true).output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Run directly, it covers a server that is reached without a proxy.
#[tokio::test]
async fn a_call_uses_the_proxy_of_the_environment() {
    let server = serve(legacy()).await;
    let mut spec = spec(&std::env::var("TEST_URL").unwrap_or_else(|_| server.url()));
    if std::env::var("TEST_EXPECTS").as_deref() == Ok("config_error") {
        let cause = wait_for_state(&host(spec), State::ConfigError).await.supervision.cause.unwrap();
        return assert!(cause.contains("proxy"), "{cause}");
    }
    if let Ok(expected) = std::env::var("TEST_CAUSE") {
        let host = host(spec);
        let mut events = host.subscribe_events();
        loop {
            let status = host.server_status(NAME).unwrap().supervision;
            match status.cause {
                Some(cause) if cause.contains(&expected) => return,
                Some(cause) if status.state == State::ConfigError => panic!("{cause}"),
                Some(_) | None => {}
            }
            let _ = tokio::time::timeout(std::time::Duration::from_millis(20), events.recv()).await;
        }
    }
    if let Ok(ca_file) = std::env::var("TEST_CA_FILE") {
        let ca_file = Some(Template::parse(&ca_file).unwrap());
        spec = with_tls(spec, TlsSpec { ca_file, ..TlsSpec::default() });
    }
    let host = ready_host(spec).await;
    assert_eq!(echo(&host, "through").await.as_deref(), Ok("through"));
}

#[tokio::test]
async fn b09_an_unsupported_proxy_scheme_is_a_config_error() {
    let variables =
        [("ALL_PROXY", "socks5://127.0.0.1:9".to_owned()), ("TEST_EXPECTS", "config_error".to_owned())];
    run_with_environment("http://mcp.example.invalid/mcp", &variables).await;
}

#[tokio::test]
async fn plain_http_uses_the_proxy_with_an_absolute_url() {
    let server = serve(legacy()).await;
    let proxy = Proxy::start(server.addr()).await;
    let address = format!("http://me:pw@{}", proxy.addr);
    run_with_environment("http://mcp.example.invalid/mcp", &[("HTTP_PROXY", address)]).await;
    let requests = proxy.requests();
    assert!(requests.iter().any(|request| request.rpc() == "tools/call"));
    for request in requests {
        assert_eq!(request.target, "http://mcp.example.invalid/mcp");
        assert_eq!(request.header("host"), Some("mcp.example.invalid"));
        assert_eq!(request.header("proxy-authorization"), Some("Basic bWU6cHc="), "me:pw");
    }
}

#[tokio::test]
async fn https_uses_a_tunnel_that_the_proxy_cannot_read() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::Any).await;
    let proxy = Proxy::start(tls_server.addr()).await;
    let variables = [
        ("HTTPS_PROXY", format!("http://me:pw@{}", proxy.addr)),
        ("TEST_CA_FILE", certificates.file("ca.pem").source().to_owned()),
    ];
    run_with_environment("https://mcp.example.invalid/mcp", &variables).await;
    let requests = proxy.requests();
    assert!(!requests.is_empty());
    for request in requests {
        assert_eq!(
            (request.method.as_str(), request.target.as_str()),
            ("CONNECT", "mcp.example.invalid:443")
        );
        assert_eq!(request.header("proxy-authorization"), Some("Basic bWU6cHc="), "me:pw");
    }
    assert_eq!(server.calls(), 1);
}

/// Plaintext traffic on this machine, tokens included, does not leave it.
#[tokio::test]
async fn e04_nothing_on_this_machine_is_reached_through_a_proxy() {
    let server = serve(legacy()).await;
    let proxy = Proxy::start(server.addr()).await;
    run_with_environment(&server.url(), &[("HTTP_PROXY", format!("http://{}", proxy.addr))]).await;
    assert!(proxy.requests().is_empty());
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn no_proxy_hosts_are_reached_directly() {
    let server = serve(legacy()).await;
    let proxy = Proxy::start(server.addr()).await;
    let variables =
        [("HTTP_PROXY", format!("http://{}", proxy.addr)), ("NO_PROXY", "example.org,127.0.0.1".to_owned())];
    run_with_environment(&server.url(), &variables).await;
    assert!(proxy.requests().is_empty());
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn a_redirect_to_https_is_not_readable_for_the_proxy() {
    let (server, certificates) = (serve(legacy()).await, TestCertificates::new());
    let tls_server = certificates.serve(server.addr(), Clients::Any).await;
    let plain = crate::scripted_server::ScriptedServer::new(|_| {
        crate::scripted_server::redirect(308, "https://mcp.example.invalid/mcp")
    })
    .await;
    let (forward, tunnel) = (Proxy::start(plain.addr()).await, Proxy::start(tls_server.addr()).await);
    let variables = [
        ("HTTP_PROXY", format!("http://{}", forward.addr)),
        ("HTTPS_PROXY", format!("http://{}", tunnel.addr)),
        ("TEST_CA_FILE", certificates.file("ca.pem").source().to_owned()),
    ];
    run_with_environment("http://mcp.example.invalid/mcp", &variables).await;
    assert!(tunnel.requests().iter().all(|request| request.method == "CONNECT"));
    assert_eq!(server.calls(), 1);
}

/// A proxy that answers every request with these bytes.
async fn answering(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind(any_local_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = read_request(&mut stream).await;
                let _ = stream.write_all(answer).await;
            });
        }
    });
    address
}

/// B09: errors of a proxy are not attributed to the server.
#[tokio::test]
async fn b09_a_failing_proxy_is_named_with_its_error() {
    let tunnelled: [(&[u8], &str); 6] = [
        (
            b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
            "refuses a tunnel to mcp.example.invalid:443: it answers `502 Bad Gateway`",
        ),
        (
            b"HTTP/1.1 403 Forbidden\r\n\r\nno",
            "refuses a tunnel to mcp.example.invalid:443: it answers `403 Forbidden`",
        ),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "wants a user and a password (407)"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\njunk", "does not answer in HTTP"),
        (b"", "closed the connection instead of opening a tunnel to mcp.example.invalid:443"),
    ];
    for (answer, cause) in tunnelled {
        let proxy = answering(answer).await;
        let variables = [
            ("HTTPS_PROXY", format!("http://me:pw@{proxy}")),
            ("TEST_CAUSE", format!("the proxy `http://{proxy}` {cause}")),
        ];
        run_with_environment("https://mcp.example.invalid/mcp", &variables).await;
    }
    let forwarded: [(&[u8], &str); 3] = [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
            "wants a user and a password (407)",
        ),
        (
            b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
            "HTTP 502 through the proxy `http://127.0.0.1",
        ),
        (b"junk\r\n\r\n", "(through the proxy `http://127.0.0.1"),
    ];
    for (answer, cause) in forwarded {
        let proxy = answering(answer).await;
        let variables = [("HTTP_PROXY", format!("http://me:pw@{proxy}")), ("TEST_CAUSE", cause.to_owned())];
        run_with_environment("http://mcp.example.invalid/mcp", &variables).await;
    }
    // An address without a listener.
    let gone = TcpListener::bind(any_local_port()).await.unwrap().local_addr().unwrap();
    for (variable, url) in
        [("HTTP_PROXY", "http://mcp.example.invalid/mcp"), ("HTTPS_PROXY", "https://mcp.example.invalid/mcp")]
    {
        let cause = format!("the proxy `http://{gone}` cannot be reached: Connection refused");
        run_with_environment(url, &[(variable, format!("http://{gone}")), ("TEST_CAUSE", cause)]).await;
    }
}
