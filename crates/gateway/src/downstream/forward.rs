//! A request on its way to the server that it is for, and what came of it. A modern server that wants input first
//! is given it on behalf of a legacy client, by asking again.

use super::Gateway;
use super::ask::{Asked, Fault, Told};
use super::begun::Place;
use super::pages::Visit;
use gripfast::input::{self, Collected};
use gripfast::wire::Era;
use gripfast::wire::patch::NotAnObject;
use gripfast::{Answer, CallError, CallOptions, Code, Fate, RawValue};
use std::sync::Arc;

/// What a server answered, on its way to the client.
pub(crate) struct PassedOn {
    pub(crate) answer: Answer,
    /// Who answered.
    pub(super) server: String,
    /// What the client was told about the output of the tool that it called.
    pub(super) output: Output,
    /// The task that it is about: what its server calls it, and what the client does.
    pub(super) task: Option<(String, String)>,
    /// Whether it must not reach other clients, whatever its server says.
    pub(super) private: bool,
}

/// What a client was told about the output of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// What the server says itself.
    AsItIs,
    /// That it is the member `result` of an object.
    Wrapped,
}

impl PassedOn {
    pub(super) fn as_it_is(answer: Answer, server: String) -> Self {
        Self { answer, server, output: Output::AsItIs, task: None, private: false }
    }

    pub(super) fn with_wrapped_output(self) -> Self {
        Self { output: Output::Wrapped, ..self }
    }

    /// An answer that other clients may not be allowed to have.
    pub(super) fn for_this_client(self) -> Self {
        Self { private: true, ..self }
    }

    /// An answer about a task, which the client may know by another name than the server.
    pub(super) fn about_task(self, own: String, public: String) -> Self {
        let task = (own != public).then_some((own, public));
        Self { task, ..self }
    }
}

/// At which instance of a server a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// The client's own, if `isolation` gives it one.
    Own,
    /// The one that all share, since only that one can know what is asked.
    Shared,
}

impl At {
    /// Where something is that was begun earlier.
    pub(super) fn home(place: &Place) -> Self {
        if place.own.is_some() { Self::Own } else { Self::Shared }
    }
}

impl Gateway {
    pub(super) async fn forward(
        &self,
        asked: &Asked<'_>,
        server: &str,
        params: Result<Box<RawValue>, NotAnObject>,
    ) -> Told {
        self.forward_at(asked, server, params, At::Own).await
    }

    pub(super) async fn forward_at(
        &self,
        asked: &Asked<'_>,
        server: &str,
        params: Result<Box<RawValue>, NotAnObject>,
        at: At,
    ) -> Told {
        let mut params = match params {
            Ok(params) => params,
            Err(error) => return Fault::invalid(error.to_string()),
        };
        if asked.era == Era::Modern {
            match Visit::read(&params) {
                Visit::Unsaid => {}
                Visit::Accepted(rest) => params = rest,
                Visit::Declined => return Told::Failed(without_input(server, Code::Cancelled, NOT_VISITED)),
            }
        }
        let ear = self.ear_of(asked, server);
        let log_level = asked.client.level.said();
        for _ in 0..input::ROUNDS {
            let options = CallOptions {
                patience: None,
                listener: Some(Arc::clone(&ear)),
                client: Some(asked.client.at_servers.clone()),
                capabilities: asked.client.capabilities.as_deref().map(RawValue::to_owned),
                log_level,
                shared: at == At::Shared,
                memory: Some(Arc::clone(&asked.client.memory) as _),
                by_operator: false,
            };
            let answer = match self.send(server, asked.method, params.clone(), options).await {
                Ok(answer) => answer,
                Err(error) => return Told::Failed(error),
            };
            if let Some(told) = self.pages_required(asked, server, &answer) {
                return told;
            }
            let collected = match asked.era {
                // It is told what is wanted, and comes back by itself.
                Era::Modern => Collected::NothingWanted,
                Era::Legacy => input::collect(&*asked.ear, &params, &answer).await,
            };
            params = match collected {
                Collected::NothingWanted => {
                    return Told::Answer(PassedOn::as_it_is(answer, server.to_owned()));
                }
                Collected::Retry(params) => params,
                Collected::Refused(why) => {
                    let why = format!("the client refused to answer: {why}");
                    return Told::Failed(without_input(server, Code::Cancelled, &why));
                }
                Collected::NotAsked(why) => {
                    return Told::Failed(without_input(server, Code::InvalidRequest, &why));
                }
            };
        }
        let why = format!("it still asks after {} rounds", input::ROUNDS);
        Told::Failed(without_input(server, Code::UpstreamProtocol, &why))
    }

    /// One request to a server, and what came of it.
    async fn send(
        &self,
        server: &str,
        method: &str,
        params: Box<RawValue>,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let Some(telemetry) = self.telemetry.get() else {
            return self.host.request_with(server, method, Some(params), options).await;
        };
        let span = telemetry.sending(server, method, &params);
        let outcome = self.host.request_with(server, method, Some(span.marked(params)), options).await;
        span.sent(&outcome);
        outcome
    }
}

const NOT_VISITED: &str = "a page has to be visited, and the user declined";

/// A server that wants input before it goes on, and did not get it.
fn without_input(server: &str, code: Code, why: &str) -> CallError {
    let text = format!("upstream `{server}` wants input before it goes on, and did not get it: {why}");
    CallError::new(code, server, Fate::Refused, text)
}
