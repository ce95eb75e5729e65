//! Loopback listener for the OAuth redirect at the end of a login.

use gripfast::auth::state_parameter;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATH: &str = "/callback";
/// Limits for a request; those of a browser are smaller and faster.
const MAX_REQUEST: usize = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(5);

const DONE_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n\
                       Done. You can close this window and go back to gripfast.\n";
const NOT_FOUND_RESPONSE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

pub(super) struct Callback {
    listener: TcpListener,
    port: u16,
}

impl Callback {
    /// Port 0 picks a free one.
    pub(super) async fn listen(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// The redirect URL.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the browser that was sent to the URL `login`, and returns the address of its request. Any local
    /// process can connect, so requests without the `state` of the login are answered with 404.
    pub(super) async fn wait_for(&self, login: &str) -> String {
        let state = state_parameter(login);
        loop {
            let Ok((mut visitor, _)) = self.listener.accept().await else { continue };
            let target =
                tokio::time::timeout(TIMEOUT, read_request_target(&mut visitor)).await.ok().flatten();
            let came_back = target.filter(|target| {
                target.strip_prefix(PATH).is_some_and(|query| query.starts_with('?'))
                    && state.is_some()
                    && state_parameter(target) == state
            });
            let answer = if came_back.is_some() { DONE_RESPONSE } else { NOT_FOUND_RESPONSE };
            // A failed write does not matter: the code has arrived.
            let _ = tokio::time::timeout(TIMEOUT, visitor.write_all(answer.as_bytes())).await;
            let _ = visitor.shutdown().await;
            if let Some(came_back) = came_back {
                return format!("http://127.0.0.1:{}{came_back}", self.port);
            }
        }
    }
}

/// The path and query of a GET request.
async fn read_request_target(visitor: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut more = [0; 1024];
        match visitor.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&more[..count]),
        }
        if read.len() > MAX_REQUEST {
            return None;
        }
    }
    let request = String::from_utf8(read).ok()?;
    let target = request.lines().next()?.strip_prefix("GET ")?;
    Some(target.split(' ').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn visit(port: u16, path: &str) -> String {
        let mut browser = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        browser.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        browser.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_a_request_with_the_state_of_the_login_is_accepted() {
        let callback = Callback::listen(0).await.unwrap();
        let port = callback.port;
        let waiting = callback.wait_for("https://id.example.com/authorize?client_id=x&state=s3cret");
        let visiting = async {
            for stranger in
                ["/favicon.ico", "/callback?code=1&state=guessed", "/callback?code=1", "/callback"]
            {
                assert!(visit(port, stranger).await.starts_with("HTTP/1.1 404"), "{stranger}");
            }
            assert!(visit(port, "/callback?code=2&state=s3cret").await.starts_with("HTTP/1.1 200"));
        };
        let (came_back, ()) = tokio::join!(waiting, visiting);
        assert_eq!(came_back, format!("http://127.0.0.1:{port}/callback?code=2&state=s3cret"));
    }
}
