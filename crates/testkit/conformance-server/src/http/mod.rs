//! Streamable HTTP at `/mcp`, in the era that was chosen at the start.

mod headers;
mod legacy;
mod modern;

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::state::{Era, ServerState};

#[expect(clippy::print_stdout, reason = "the parent process waits for this line")]
pub(crate) async fn serve(shared: Arc<ServerState>, address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let router = match shared.era {
        Era::Legacy => legacy::router(shared),
        Era::Modern => modern::router(shared),
    };
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, router.layer(middleware::from_fn(require_local))).await
}

/// Refuses requests from other origins: a browser page on this machine could send requests here, but cannot hide its
/// origin.
async fn require_local(request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).map(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        is_local(origin.split_once("://").map_or("", |(_, authority)| authority))
    });
    let host = header(request.headers(), HOST.as_str()).is_some_and(is_local);
    if host && origin.unwrap_or(true) { next.run(request).await } else { empty(StatusCode::FORBIDDEN) }
}

fn is_local(authority: &str) -> bool {
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => authority,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn json(status: StatusCode, message: &Value) -> Response {
    let mut response = Response::new(Body::from(message.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn events(events: impl futures_util::Stream<Item = String> + Send + 'static) -> Response {
    use futures_util::StreamExt;
    let mut response = Response::new(Body::from_stream(events.map(Ok::<_, std::convert::Infallible>)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}
