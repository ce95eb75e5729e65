//! The modern era: every POST stands alone, its headers repeat its body, and hanging up is cancelling.

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
use crate::caller::{Caller, Said};
use crate::rpc::{self, METHOD_NOT_FOUND, Message, Request, RpcError};
use crate::subscription::Subscription;
use crate::world::World;
use crate::{catalog, methods};

pub(super) fn router(world: Arc<World>) -> Router {
    Router::new().route("/mcp", post(receive)).with_state(world)
}

async fn receive(State(world): State<Arc<World>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = match Message::read(&body) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification | Message::Response { .. }) => return empty(StatusCode::ACCEPTED),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &Value::Null, error),
    };
    if let Err(error) = headers::check(&headers, &request, &catalog::tools(&world)) {
        return refuse(StatusCode::BAD_REQUEST, &request.id, error);
    }
    if request.method == "subscriptions/listen" {
        return subscribe(&world, &request);
    }
    Answering::begin(world, request).respond().await
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

/// A request that is being answered. Dropping it ends that.
struct Answering {
    said: mpsc::Receiver<Said>,
    answer: Option<BoxFuture<'static, Value>>,
}

impl Answering {
    fn begin(world: Arc<World>, request: Request) -> Self {
        let (stream, said) = mpsc::channel(16);
        let answer = async move {
            let caller = Caller::modern(&request, stream);
            let outcome = methods::answer(&world, &caller, &request).await;
            rpc::response(&request.id, outcome)
        };
        Self { said, answer: Some(Box::pin(answer)) }
    }

    /// What comes next, and whether it is the answer.
    async fn next(&mut self) -> Option<(Value, bool)> {
        let answer = self.answer.as_mut()?;
        loop {
            tokio::select! {
                biased;
                Some(said) = self.said.recv() => match said {
                    Said::Message(message) => return Some((message, false)),
                    // A stream of this era cannot be picked up again, so nobody hangs up.
                    Said::HangUp => {}
                },
                response = &mut *answer => {
                    self.answer = None;
                    return Some((response, true));
                }
            }
        }
    }

    /// One JSON body if there is nothing but the answer, otherwise a stream.
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

fn subscribe(world: &World, request: &Request) -> Response {
    let subscription = Subscription::of(request);
    let hello = Some(subscription.acknowledged());
    let begin = (hello, world.changes.subscribe(), subscription);
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
