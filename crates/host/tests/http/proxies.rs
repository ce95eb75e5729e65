//! Proxies that the environment names. The environment belongs to the whole process, so each story runs one
//! test of this binary once more, in an environment of its own.

use crate::script::{Heard, join, read_request};
use crate::stage::{NAME, anywhere, echo, host, legacy, ready_host, serve, spec, until_state, with_tls};
use crate::tls::{Clients, Papers};
use gripfast::State;
use gripfast::config::{Template, TlsSpec};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// A proxy through which every name leads to the same server.
struct Proxy {
    addr: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(anywhere()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<Heard>>>::default();
        let notes = Arc::clone(&heard);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let notes = Arc::clone(&notes);
                tokio::spawn(async move { pass(stream, server, &notes).await });
            }
        });
        Self { addr, heard, accepting }
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut stream: TcpStream, server: SocketAddr, notes: &Mutex<Vec<Heard>>) {
    let Some(heard) = read_request(&mut stream).await else { return };
    notes.lock().unwrap().push(heard.clone());
    if heard.method == "CONNECT" {
        let _ = stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
        return join(stream, server).await;
    }
    let path = heard.target.splitn(4, '/').nth(3).unwrap_or_default();
    crate::script::pass_on(&mut stream, &heard, &format!("/{path}"), server).await;
}

/// Runs the test below in a process whose environment has these variables.
async fn in_environment(url: &str, variables: &[(&str, String)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "proxies::a_call_goes_the_way_that_the_environment_names", "--nocapture"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        child.env_remove(name).env_remove(name.to_lowercase());
    }
    child.env("TEST_URL", url).envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    let output = crate::stage::promptly(child.kill_on_drop(true).output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// By itself, the story of a server that is reached without any proxy.
#[tokio::test]
async fn a_call_goes_the_way_that_the_environment_names() {
    let server = serve(legacy()).await;
    let mut spec = spec(&std::env::var("TEST_URL").unwrap_or_else(|_| server.url()));
    if std::env::var("TEST_EXPECTS").as_deref() == Ok("config_error") {
        let cause = until_state(&host(spec), State::ConfigError).await.supervision.cause.unwrap();
        return assert!(cause.contains("proxy"), "{cause}");
    }
    if let Ok(expected) = std::env::var("TEST_CAUSE") {
        let host = host(spec);
        let mut events = host.events();
        loop {
            let status = host.status_of(NAME).unwrap().supervision;
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
async fn b09_a_proxy_of_a_kind_that_is_not_spoken_is_a_config_error() {
    let variables =
        [("ALL_PROXY", "socks5://127.0.0.1:9".to_owned()), ("TEST_EXPECTS", "config_error".to_owned())];
    in_environment("http://mcp.example.invalid/mcp", &variables).await;
}

#[tokio::test]
async fn plain_http_goes_through_the_proxy_with_the_whole_address() {
    let server = serve(legacy()).await;
    let proxy = Proxy::to(server.addr()).await;
    let address = format!("http://me:pw@{}", proxy.addr);
    in_environment("http://mcp.example.invalid/mcp", &[("HTTP_PROXY", address)]).await;
    let heard = proxy.heard();
    assert!(heard.iter().any(|heard| heard.rpc() == "tools/call"));
    for heard in heard {
        assert_eq!(heard.target, "http://mcp.example.invalid/mcp");
        assert_eq!(heard.header("host"), Some("mcp.example.invalid"));
        assert_eq!(heard.header("proxy-authorization"), Some("Basic bWU6cHc="), "me:pw");
    }
}

#[tokio::test]
async fn https_goes_through_a_tunnel_in_which_the_proxy_reads_nothing() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::Anybody).await;
    let proxy = Proxy::to(front.addr()).await;
    let variables = [
        ("HTTPS_PROXY", format!("http://me:pw@{}", proxy.addr)),
        ("TEST_CA_FILE", papers.file("ca.pem").source().to_owned()),
    ];
    in_environment("https://mcp.example.invalid/mcp", &variables).await;
    let heard = proxy.heard();
    assert!(!heard.is_empty());
    for heard in heard {
        assert_eq!((heard.method.as_str(), heard.target.as_str()), ("CONNECT", "mcp.example.invalid:443"));
        assert_eq!(heard.header("proxy-authorization"), Some("Basic bWU6cHc="), "me:pw");
    }
    assert_eq!(server.calls(), 1);
}

/// What is said in clear on this machine, tokens included, does not leave it.
#[tokio::test]
async fn e04_nothing_on_this_machine_is_reached_through_a_proxy() {
    let server = serve(legacy()).await;
    let proxy = Proxy::to(server.addr()).await;
    in_environment(&server.url(), &[("HTTP_PROXY", format!("http://{}", proxy.addr))]).await;
    assert!(proxy.heard().is_empty());
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn what_no_proxy_names_is_reached_directly() {
    let server = serve(legacy()).await;
    let proxy = Proxy::to(server.addr()).await;
    let variables =
        [("HTTP_PROXY", format!("http://{}", proxy.addr)), ("NO_PROXY", "example.org,127.0.0.1".to_owned())];
    in_environment(&server.url(), &variables).await;
    assert!(proxy.heard().is_empty());
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn a_redirect_through_the_proxy_to_https_is_not_readable_for_the_proxy() {
    let (server, papers) = (serve(legacy()).await, Papers::new());
    let front = papers.front(server.addr(), Clients::Anybody).await;
    let plain =
        crate::script::Script::new(|_| crate::script::redirect(308, "https://mcp.example.invalid/mcp")).await;
    let (forward, tunnel) = (Proxy::to(plain.addr()).await, Proxy::to(front.addr()).await);
    let variables = [
        ("HTTP_PROXY", format!("http://{}", forward.addr)),
        ("HTTPS_PROXY", format!("http://{}", tunnel.addr)),
        ("TEST_CA_FILE", papers.file("ca.pem").source().to_owned()),
    ];
    in_environment("http://mcp.example.invalid/mcp", &variables).await;
    assert!(tunnel.heard().iter().all(|heard| heard.method == "CONNECT"));
    assert_eq!(server.calls(), 1);
}

/// A proxy that answers everybody like this.
async fn answering(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind(anywhere()).await.unwrap();
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

/// B09: a proxy's trouble is not taken for the server's.
#[tokio::test]
async fn b09_a_proxy_that_fails_is_named_with_what_it_said() {
    let tunnelled: [(&[u8], &str); 6] = [
        (
            b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
            "does not pass on to mcp.example.invalid:443: it answers `502 Bad Gateway`",
        ),
        (
            b"HTTP/1.1 403 Forbidden\r\n\r\nno",
            "does not pass on to mcp.example.invalid:443: it answers `403 Forbidden`",
        ),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "wants a user and a password (407)"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\njunk", "does not answer in HTTP"),
        (b"", "closed the connection instead of passing it on to mcp.example.invalid:443"),
    ];
    for (answer, cause) in tunnelled {
        let proxy = answering(answer).await;
        let variables = [
            ("HTTPS_PROXY", format!("http://me:pw@{proxy}")),
            ("TEST_CAUSE", format!("the proxy `http://{proxy}` {cause}")),
        ];
        in_environment("https://mcp.example.invalid/mcp", &variables).await;
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
        in_environment("http://mcp.example.invalid/mcp", &variables).await;
    }
    // Nobody listens there.
    let gone = TcpListener::bind(anywhere()).await.unwrap().local_addr().unwrap();
    for (variable, url) in
        [("HTTP_PROXY", "http://mcp.example.invalid/mcp"), ("HTTPS_PROXY", "https://mcp.example.invalid/mcp")]
    {
        let cause = format!("the proxy `http://{gone}` cannot be reached: Connection refused");
        in_environment(url, &[(variable, format!("http://{gone}")), ("TEST_CAUSE", cause)]).await;
    }
}
