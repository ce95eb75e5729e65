//! A request on its way to the server that it is for, and what came of it. A modern server that wants input first
//! is given it on behalf of a legacy client, by asking again.

use super::Gateway;
use super::ask::{Asked, Fault, Told};
use gripfast::input::{self, Collected};
use gripfast::wire::patch::NotAnObject;
use gripfast::wire::{Era, codes};
use gripfast::{Answer, CallOptions, RawValue};
use std::sync::Arc;

/// What a server answered, on its way to the client.
pub(crate) struct PassedOn {
    pub(super) answer: Answer,
    /// Who answered.
    pub(super) server: String,
    /// What the client was told about the output of the tool that it called.
    pub(super) output: Output,
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
        Self { answer, server, output: Output::AsItIs }
    }

    pub(super) fn with_wrapped_output(self) -> Self {
        Self { output: Output::Wrapped, ..self }
    }
}

impl Gateway {
    pub(super) async fn forward(
        &self,
        asked: &Asked<'_>,
        server: &str,
        params: Result<Box<RawValue>, NotAnObject>,
    ) -> Told {
        let mut params = match params {
            Ok(params) => params,
            Err(error) => return Fault::invalid(error.to_string()),
        };
        // A modern client has said in the request what it can be asked.
        let capabilities = match asked.era {
            Era::Modern => None,
            Era::Legacy => Some(asked.client.abilities.to_capabilities()),
        };
        let log_level = asked.client.level.said();
        for _ in 0..input::ROUNDS {
            let options = CallOptions {
                patience: None,
                listener: Some(Arc::clone(&asked.ear)),
                client: Some(asked.client.at_servers.clone()),
                capabilities: capabilities.clone(),
                log_level,
            };
            let answer =
                match self.host.request_with(server, asked.method, Some(params.clone()), options).await {
                    Ok(answer) => answer,
                    Err(error) => return Told::Failed(error),
                };
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
                Collected::Refused { code, text } => return Told::Fault(Fault::new(code, text)),
            };
        }
        Told::Fault(Fault::new(codes::INTERNAL_ERROR, "the server asks for input again and again"))
    }
}
