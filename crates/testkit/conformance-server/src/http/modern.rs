//! Modern era: every POST is self-contained, its headers repeat its body, and closing the connection cancels the
//! request.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{empty, events, headers, json};
use crate::caller::{Caller, Outbound};
use crate::rpc::{self, METHOD_NOT_FOUND, Message, Request, RpcError};
use crate::state::ServerState;
use crate::subscription::Subscription;
use crate::{catalog, methods};

pub(super) fn router(shared: Arc<ServerState>) -> Router {
    Router::new().route("/mcp", post(receive)).with_state(shared)
}

async fn receive(State(shared): State<Arc<ServerState>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = match Message::read(&body) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification | Message::Response { .. }) => return empty(StatusCode::ACCEPTED),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &Value::Null, error),
    };
    if let Err(error) = headers::check(&headers, &request, &catalog::tools(&shared)) {
        return refuse(StatusCode::BAD_REQUEST, &request.id, error);
    }
    if request.method == "subscriptions/listen" {
        return subscribe(&shared, &request);
    }
    PendingAnswer::new(shared, request).respond().await
}

fn refuse(status: StatusCode, id: &Value, error: RpcError) -> Response {
    json(status, &rpc::response(id, Err(error)))
}

fn status_of(response: &Value) -> StatusCode {
    match response["error"]["code"].as_i64() {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(-32099..=-32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A request in progress. Dropping it cancels it.
struct PendingAnswer {
    outbound: mpsc::Receiver<Outbound>,
    answer: Option<BoxFuture<'static, Value>>,
}

impl PendingAnswer {
    fn new(shared: Arc<ServerState>, request: Request) -> Self {
        let (stream, said) = mpsc::channel(16);
        let answer = async move {
            let caller = Caller::modern(&request, stream);
            let outcome = methods::answer(&shared, &caller, &request).await;
            rpc::response(&request.id, outcome)
        };
        Self { outbound: said, answer: Some(Box::pin(answer)) }
    }

    /// Next message, and true if it is the answer.
    async fn next(&mut self) -> Option<(Value, bool)> {
        let answer = self.answer.as_mut()?;
        loop {
            tokio::select! {
                biased;
                Some(said) = self.outbound.recv() => match said {
                    Outbound::Message(message) => return Some((message, false)),
                    // A modern stream cannot be resumed, so it is not closed early.
                    Outbound::Close => {}
                },
                response = &mut *answer => {
                    self.answer = None;
                    return Some((response, true));
                }
            }
        }
    }

    /// One JSON body if there is only the answer, otherwise an event stream.
    async fn respond(mut self) -> Response {
        match self.next().await {
            Some((answer, true)) => json(status_of(&answer), &answer),
            first => events(stream::unfold((first, self), |(first, mut answering)| async move {
                let next = match first {
                    Some(first) => Some(first),
                    None => answering.next().await,
                };
                let (message, _) = next?;
                Some((format!("event: message\ndata: {message}\n\n"), (None, answering)))
            })),
        }
    }
}

fn subscribe(shared: &ServerState, request: &Request) -> Response {
    let subscription = Subscription::from_request(request);
    let hello = Some(subscription.acknowledged());
    let begin = (hello, shared.changes.subscribe(), subscription);
    events(stream::unfold(begin, |(hello, mut changes, subscription)| async move {
        let message = match hello {
            Some(hello) => hello,
            None => loop {
                let change = changes.recv().await.ok()?;
                if subscription.wants(&change) {
                    break change.to_message(Some(&subscription.meta));
                }
            },
        };
        Some((format!("event: message\ndata: {message}\n\n"), (None, changes, subscription)))
    }))
}
