//! The answer of a server to a request. It is parsed once, when it arrives.

use crate::memory::{AnswerMemory, OutOfMemory, Reservation};
use crate::transport::{Members, ReadResult, Secrets};
use bytes::Bytes;
use gripfast_core::failure::CallOutcome;
use gripfast_core::failure::recovery::final_outcome;
use gripfast_core::json_text::SharedJson;
use gripfast_wire::envelope::{ErrorObject, Message};
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::{Era, Json, JsonText, Outcome};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The answer of a server: a result or a JSON-RPC error. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Answer {
    body: AnswerBody,
    era: Era,
    shared: bool,
    /// The answer comes from the cache.
    from_cache: bool,
    /// An earlier attempt of the same request was sent and not answered.
    may_have_run_before: bool,
    /// The memory reservation of the answer.
    memory: Option<Arc<dyn Reservation>>,
}

#[derive(Debug, Clone)]
enum AnswerBody {
    Result(ReadResult),
    Error(SharedJson),
}

impl Answer {
    /// Parses a message; `None` if it is not a response.
    pub(crate) fn parse(message: &Bytes, era: Era) -> Option<Self> {
        let Ok((Message::Response(response), result)) = Message::parse_with_result(message) else {
            return None;
        };
        Some(Self::from_outcome(&response.outcome, result.as_ref(), era))
    }

    /// Builds an answer from a parsed outcome, and the members of its result if that is an object.
    pub(crate) fn from_outcome(outcome: &Outcome<'_>, members: Option<&Object<'_>>, era: Era) -> Self {
        let body = match outcome {
            Outcome::Result(result) => AnswerBody::Result(ReadResult::new(result, members)),
            Outcome::Error(error) => AnswerBody::Error(error.raw.into()),
        };
        Self::from_body(body, era)
    }

    /// Builds an answer from a result that its transport has read.
    pub(crate) fn from_result(result: ReadResult, era: Era) -> Self {
        Self::from_body(AnswerBody::Result(result), era)
    }

    fn from_body(body: AnswerBody, era: Era) -> Self {
        Self { body, era, shared: true, from_cache: false, may_have_run_before: false, memory: None }
    }

    /// Attaches a memory reservation.
    pub(crate) fn with_reservation(self, memory: Option<Arc<dyn Reservation>>) -> Self {
        Self { memory, ..self }
    }

    /// A copy without the caller's memory reservation, for the cache.
    pub(crate) fn without_reservation(&self) -> Self {
        Self { memory: None, ..self.clone() }
    }

    /// Reserves memory for the answer, unless it has a reservation.
    pub(crate) fn reserve(self, memory: Option<&dyn AnswerMemory>) -> Result<Self, OutOfMemory> {
        match memory.filter(|_| self.memory.is_none()) {
            Some(memory) => {
                let reservation = memory.reserve(self.size())?;
                Ok(self.with_reservation(Some(reservation)))
            }
            None => Ok(self),
        }
    }

    /// Returns true if memory is reserved for the answer. It is released with the last clone.
    pub fn has_reservation(&self) -> bool {
        self.memory.is_some()
    }

    /// Notes the outcome of earlier attempts of the same request.
    pub(crate) fn after_attempt(mut self, earlier: Option<CallOutcome>) -> Self {
        self.may_have_run_before = earlier == Some(CallOutcome::Unknown);
        self
    }

    /// The outcome of the request for ledger and errors.
    pub(crate) fn call_outcome(&self) -> CallOutcome {
        let body = if self.is_error() { CallOutcome::Failed } else { CallOutcome::Done };
        final_outcome(body, self.may_have_run_before.then_some(CallOutcome::Unknown))
    }

    /// Masks the server's secrets in an error: servers repeat credentials when they refuse them. A result is left
    /// unchanged.
    pub(crate) fn redacted(self, secrets: &Secrets) -> Self {
        let AnswerBody::Error(error) = &self.body else { return self };
        if !secrets.occurs_in(error.get()) {
            return self;
        }
        let masked = serde_json::from_str(error.get()).ok().and_then(|mut value| {
            secrets.mask_json(&mut value);
            JsonText::of(&value).ok()
        });
        // The error is nested too deeply to be parsed.
        let hidden = || {
            let code = ErrorObject::read(error).code;
            let message = "the server's error repeats a secret and is not shown";
            JsonText::of(&json!({ "code": code, "message": message })).expect("a value is JSON")
        };
        let shown: JsonText = masked.unwrap_or_else(hidden);
        Self { body: AnswerBody::Error((&*shown).into()), ..self }
    }

    /// The outcome in the server's own bytes.
    pub fn outcome(&self) -> Outcome<'_> {
        match &self.body {
            AnswerBody::Result(result) => Outcome::Result(&result.json),
            AnswerBody::Error(error) => Outcome::Error(ErrorObject::read(error)),
        }
    }

    /// The result, or the server's error as its code and message.
    ///
    /// # Errors
    /// The JSON-RPC error that the server answered with.
    pub fn result(&self) -> Result<&Json, (i64, String)> {
        match self.outcome() {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err((error.code, error.message.into_owned())),
        }
    }

    /// The members of the result that the gateway acts on; none for an error.
    pub fn members(&self) -> Members {
        match &self.body {
            AnswerBody::Result(result) => result.members,
            AnswerBody::Error(_) => Members::default(),
        }
    }

    /// The era of the server.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.body {
            AnswerBody::Result(result) => result.json.get().len(),
            AnswerBody::Error(error) => error.get().len(),
        }
    }

    /// A copy for a cache hit with the remaining TTL, which replaces `ttlMs` if the server sent one.
    pub(crate) fn with_ttl(&self, ttl: Duration) -> Self {
        let again = Self { from_cache: true, ..self.clone() };
        let AnswerBody::Result(ReadResult { json, members }) = &self.body else { return again };
        let result = Object::parse(json).ok().filter(|result| result.has("ttlMs"));
        let Some(result) = result else { return again };
        let left = JsonText::parse(ttl.as_millis().to_string()).expect("a number is JSON");
        let json = (&*Patch::new().set("ttlMs", &left).apply(&result)).into();
        Self { body: AnswerBody::Result(ReadResult { json, members: *members }), ..again }
    }

    /// Returns true if the answer comes from the cache.
    pub fn is_cached(&self) -> bool {
        self.from_cache
    }

    /// Returns true if the shared instance answered.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Marks the answer as given by a dedicated instance.
    pub(crate) fn with_dedicated_origin(self) -> Self {
        Self { shared: false, ..self }
    }

    /// Returns true for a JSON-RPC error and for a tool result with `isError`.
    pub fn is_error(&self) -> bool {
        matches!(&self.body, AnswerBody::Error(_)) || self.is_tool_error()
    }

    /// Returns true for a tool result with `isError`.
    pub fn is_tool_error(&self) -> bool {
        self.members().is_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_server_error_are_masked() {
        let secrets = Secrets::default();
        secrets.set_for_link(["correct-horse", "123456789012", "ends in \\"].into_iter().collect());
        let deep = format!("{}\"correct-horse\"{}", "[".repeat(500), "]".repeat(500));
        let texts = [
            r#"{"code":-32000,"message":"refused correct-horse","data":{"account":123456789012}}"#.to_owned(),
            r#"{"code":-32000,"message":"ends in \\","data":"correct%2Dhorse"}"#.to_owned(),
            format!(r#"{{"code":-32000,"message":"x","data":{deep}}}"#),
        ];
        for text in texts {
            let message = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{text}}}"#));
            let answer = Answer::parse(&message, Era::Legacy).unwrap().redacted(&secrets);
            let Outcome::Error(error) = answer.outcome() else { panic!("{text}") };
            assert_eq!(error.code, -32000);
            let shown = error.raw.get();
            assert!(
                !["horse", "123456789012", "ends in"].iter().any(|secret| shown.contains(secret)),
                "{shown}"
            );
        }
    }

    fn read(message: &'static str) -> Answer {
        Answer::parse(&Bytes::from_static(message.as_bytes()), Era::Legacy).expect("it is a response")
    }

    #[test]
    fn an_answer_exposes_its_outcome_and_members() {
        let answer =
            read(r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"n":1.0,"structured\u0043ontent":1}}"#);
        assert_eq!(answer.result().unwrap().get(), r#"{"isError":true,"n":1.0,"structured\u0043ontent":1}"#);
        assert!(answer.is_tool_error() && answer.is_error());
        let members = Members { is_error: true, structured_content: true, ..Members::default() };
        assert_eq!(answer.members(), members);
        let asking = read(r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","ttlMs":1}}"#);
        assert!(asking.members().input_required && asking.members().freshness && !asking.is_error());
        let complete = read(r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}"#);
        assert_eq!(complete.members().only_modern_part, Some((1, 25)));
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"result":[1]}"#).members(), Members::default());
    }

    #[test]
    fn an_error_keeps_its_code_its_text_and_all_its_bytes() {
        let answer = read(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-3,"message":"no","x":[1e2]}}"#);
        assert_eq!(answer.result().unwrap_err(), (-3, "no".to_owned()));
        assert!(answer.is_error() && !answer.is_tool_error());
        let Outcome::Error(error) = answer.outcome() else { panic!("{answer:?}") };
        assert_eq!(error.raw.get(), r#"{"code":-3,"message":"no","x":[1e2]}"#);
        assert!(Answer::parse(&Bytes::from_static(b"{}"), Era::Legacy).is_none());
    }
}
