//! Streamable HTTP, both eras on one port. `/mcp?tools=50` is a server with fifty tools.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, TcpStream};

use super::{Answer, Form, answer};
use crate::http1::{Connection, header};

/// Serves on a free port until the process is killed. Passes the port to `ready`.
pub(crate) async fn serve(ready: impl FnOnce(u16)) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(listener.local_addr()?.port());
    let accepted = Arc::new(AtomicU64::new(0));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(connection(stream, Arc::clone(&accepted)));
    }
}

/// Path of the number of connections that were accepted so far.
pub(crate) const CONNECTIONS: &str = "/connections";

/// End of a chunked body.
const END: &[u8] = b"0\r\n\r\n";

async fn connection(stream: TcpStream, accepted: Arc<AtomicU64>) -> io::Result<()> {
    let mut connection = Connection::new(stream);
    while let Some(request) = connection.read().await? {
        let head = connection.head(&request);
        let mut words = head.split(|byte| *byte == b' ');
        let mut has_end = false;
        let response = match words.next() {
            Some(b"POST") => match answer(connection.body(&request), tools(head)) {
                Some(answer) => {
                    has_end = answer.form == Form::Sse;
                    respond(&answer)
                }
                None => "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
            },
            Some(b"GET") if words.next() == Some(CONNECTIONS.as_bytes()) => {
                let count = accepted.load(Ordering::Relaxed).to_string();
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{count}", count.len())
            }
            // Many servers keep an event stream open without sending anything on it.
            Some(b"GET") if header(head, "accept").is_some_and(|kinds| kinds.contains("event-stream")) => {
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                    .to_owned()
            }
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        connection.write(response.as_bytes()).await?;
        if has_end {
            // SDK servers end the stream after the event, in a write of its own, when other tasks have had their turn.
            tokio::task::yield_now().await;
            connection.write(END).await?;
        }
    }
    Ok(())
}

fn tools(head: &[u8]) -> usize {
    let line = head.split(|byte| *byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok());
    let query = line.and_then(|line| line.split(' ').nth(1)).and_then(|path| path.split_once("?tools="));
    query.and_then(|(_, tools)| tools.parse().ok()).unwrap_or(2)
}

fn respond(answer: &Answer) -> String {
    let Answer { form, starts_session: begins, message } = answer;
    let mut response = String::with_capacity(message.len() + 256);
    response.push_str("HTTP/1.1 200 OK\r\n");
    if *begins {
        response.push_str("mcp-session-id: 0123456789abcdef0123456789abcdef\r\n");
    }
    match form {
        Form::Json => {
            let length = message.len();
            let _ = write!(
                response,
                "content-type: application/json\r\ncontent-length: {length}\r\n\r\n{message}"
            );
        }
        Form::Sse => {
            let event = ["event: message\ndata: ", message, "\n\n"];
            let length: usize = event.iter().map(|part| part.len()).sum();
            response.push_str("content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
            let _ = write!(response, "{length:x}\r\n{}\r\n", event.concat());
        }
    }
    response
}
