//! Input that a tool needs from the client.
//!
//! A legacy client gets a request and answers it during the call. A modern client gets an input-required result and
//! sends the same request again with the answers; earlier answers travel in a signed state. A tool does not see the
//! difference: it runs from the start each time and stops where an answer is missing.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::caller::Caller;
use crate::rpc::{INVALID_PARAMS, Request, RpcError};
use crate::state::{Era, ServerState};

/// Reason why a tool did not finish.
pub(crate) enum Stop {
    Error(RpcError),
    /// A legacy client lacks the capability, or answered with an error.
    RequestFailed(String),
    InputRequired {
        requests: Map<String, Value>,
        state: Option<String>,
    },
}

impl From<RpcError> for Stop {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// A request for input, with its key.
pub(crate) struct Question {
    pub(crate) key: &'static str,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

/// Presence of a state in a request for input that has no earlier answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    Always,
    Never,
}

/// Answers that came with a request, and access to more.
pub(crate) struct Inputs<'a> {
    shared: &'a ServerState,
    caller: &'a Caller,
    /// Name of the tool or prompt that the state is bound to.
    name: &'a str,
    given: Map<String, Value>,
    state: RequestState,
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(
        shared: &'a ServerState,
        caller: &'a Caller,
        request: &'a Request,
        state: RequestState,
    ) -> Result<Self, RpcError> {
        let name = request.text("name")?;
        let mut inputs = Self { shared, caller, name, given: Map::new(), state };
        if caller.era() == Era::Modern {
            match &request.params["requestState"] {
                Value::Null => {}
                said => inputs.given = inputs.verify_state(said.as_str().unwrap_or_default())?,
            }
            match request.params.get("inputResponses") {
                None => {}
                Some(Value::Object(responses)) => {
                    // Responses that are not objects count as missing.
                    let answers = responses.iter().filter(|(_, response)| response.is_object());
                    inputs.given.extend(answers.map(|(key, response)| (key.clone(), response.clone())));
                }
                Some(_) => {
                    return Err(RpcError::new(INVALID_PARAMS, "`inputResponses` is not an object"));
                }
            }
        }
        Ok(inputs)
    }

    /// Answer to one request for input.
    pub(crate) async fn ask(
        &self,
        key: &'static str,
        method: &'static str,
        params: Value,
    ) -> Result<Value, Stop> {
        let mut answers = self.ask_all(vec![Question { key, method, params }]).await?;
        Ok(answers.remove(0))
    }

    /// Answers to several requests for input, sent together.
    pub(crate) async fn ask_all(&self, questions: Vec<Question>) -> Result<Vec<Value>, Stop> {
        let lacking = questions.iter().find(|question| !self.can_ask(question.method));
        match (self.caller.era(), lacking) {
            (Era::Legacy, None) => {
                let asked = questions.iter().map(|each| self.caller.request(each.method, &each.params));
                return try_join_all(asked).await.map_err(|error| Stop::RequestFailed(error.message));
            }
            (Era::Legacy, Some(question)) => {
                return Err(Stop::RequestFailed(format!("the client does not know {}", question.method)));
            }
            (Era::Modern, Some(question)) => {
                let lacking = json!({ capability_for(question.method): {} });
                return Err(RpcError::missing_capability(lacking).into());
            }
            (Era::Modern, None) => {}
        }
        let wanted: Map<String, Value> = questions
            .iter()
            .filter(|question| !self.given.contains_key(question.key))
            .map(|question| {
                let request = json!({ "method": question.method, "params": question.params });
                (question.key.to_owned(), request)
            })
            .collect();
        if wanted.is_empty() {
            return Ok(questions.iter().map(|question| self.given[question.key].clone()).collect());
        }
        let state = match self.state {
            RequestState::Always => Some(self.sign_state()),
            RequestState::Never => None,
        };
        Err(Stop::InputRequired { requests: wanted, state })
    }

    pub(crate) fn can_ask(&self, method: &str) -> bool {
        self.caller.capabilities()[capability_for(method)].is_object()
    }

    fn sign_state(&self) -> String {
        let payload = json!({ "for": self.name, "given": self.given }).to_string();
        format!("{}.{}", BASE64.encode(&payload), self.signature(&payload))
    }

    fn verify_state(&self, state: &str) -> Result<Map<String, Value>, RpcError> {
        let opened = || {
            let (payload, signature) = state.split_once('.')?;
            let payload = String::from_utf8(BASE64.decode(payload).ok()?).ok()?;
            if self.signature(&payload) != signature {
                return None;
            }
            let mut payload: Value = serde_json::from_str(&payload).ok()?;
            if payload["for"] != self.name {
                return None;
            }
            payload["given"].as_object_mut().map(std::mem::take)
        };
        opened().ok_or_else(|| RpcError::new(INVALID_PARAMS, "`requestState` is not one of ours"))
    }

    fn signature(&self, payload: &str) -> String {
        hex(&Sha256::digest(format!("{}:{payload}:{}", self.shared.secret, self.shared.secret)))
    }
}

fn capability_for(method: &str) -> &'static str {
    match method {
        "sampling/createMessage" => "sampling",
        "roots/list" => "roots",
        _ => "elicitation",
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
