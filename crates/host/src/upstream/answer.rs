//! What a server answered to a request. It is read once, when it comes; whoever handles it afterwards asks here.

use crate::memory::{AnswerMemory, OutOfMemory, Reservation};
use crate::transport::Secrets;
use bytes::Bytes;
use gripfast_core::failure::Outcome as Fate;
use gripfast_core::failure::recovery::final_outcome;
use gripfast_wire::envelope::{ErrorObject, Message};
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::results::ResultType;
use gripfast_wire::{Era, Outcome, RawValue};
use serde_json::json;
use serde_json::value::to_raw_value;
use std::sync::Arc;
use std::time::Duration;

/// What a server answered: a result, or an error of its own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Answer {
    said: Arc<Said>,
    era: Era,
    shared: bool,
    /// It was kept, and is given again.
    given_before: bool,
    /// An earlier attempt at the same request was sent and not answered.
    may_have_run_before: bool,
    /// The memory that is reserved for it.
    memory: Option<Arc<dyn Reservation>>,
}

#[derive(Debug)]
enum Said {
    Result(Box<RawValue>, Members),
    Error(Box<RawValue>),
}

/// Which members a result has, of those that something is decided on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Members {
    /// `isError`, and it is true: a tool says that it failed.
    pub is_error: bool,
    /// `resultType`, and it says that input is required first.
    pub input_required: bool,
    /// `resultType`, whatever it says.
    pub result_type: bool,
    /// `ttlMs` or `cacheScope`.
    pub freshness: bool,
    /// `structuredContent`.
    pub structured_content: bool,
}

impl Answer {
    /// The answer in a message, if it is one.
    pub(crate) fn read(message: &Bytes, era: Era) -> Option<Self> {
        let Ok(Message::Response(response)) = Message::parse(message) else { return None };
        Some(Self::of(&response.outcome, era))
    }

    /// An answer that was read already.
    pub(crate) fn of(outcome: &Outcome<'_>, era: Era) -> Self {
        let said = match outcome {
            Outcome::Result(result) => Said::Result((*result).to_owned(), Members::of(result)),
            Outcome::Error(error) => Said::Error(error.raw.to_owned()),
        };
        Self {
            said: Arc::new(said),
            era,
            shared: true,
            given_before: false,
            may_have_run_before: false,
            memory: None,
        }
    }

    /// The same with the memory that is reserved for it.
    pub(crate) fn counted(self, memory: Option<Box<dyn Reservation>>) -> Self {
        Self { memory: memory.map(Arc::from), ..self }
    }

    /// The same without the memory that its caller has reserved: it is kept for others.
    pub(crate) fn uncounted(&self) -> Self {
        Self { memory: None, ..self.clone() }
    }

    /// Reserves memory for it, unless that is done already.
    pub(crate) fn reserved(self, memory: Option<&dyn AnswerMemory>) -> Result<Self, OutOfMemory> {
        match memory.filter(|_| self.memory.is_none()) {
            Some(memory) => {
                let reservation = memory.reserve(self.size())?;
                Ok(self.counted(Some(reservation)))
            }
            None => Ok(self),
        }
    }

    /// Whether memory is reserved for it. It is given back with the last clone of this.
    pub fn is_counted(&self) -> bool {
        self.memory.is_some()
    }

    /// The same answer, given to a later attempt than the first; this is what is known of the earlier ones.
    pub(crate) fn after(mut self, earlier: Option<Fate>) -> Self {
        self.may_have_run_before = earlier == Some(Fate::Unknown);
        self
    }

    /// The fate of the request that it answers.
    pub(crate) fn fate(&self) -> Fate {
        let said = if self.is_error() { Fate::Failed } else { Fate::Done };
        final_outcome(said, self.may_have_run_before.then_some(Fate::Unknown))
    }

    /// The same without the secrets of its server, if it is an error: servers repeat credentials while they refuse
    /// them. A result is the client's.
    pub(crate) fn redacted(self, secrets: &Secrets) -> Self {
        let Said::Error(error) = &*self.said else { return self };
        if !secrets.is_in(error.get()) {
            return self;
        }
        let masked = serde_json::from_str(error.get()).ok().and_then(|mut value| {
            secrets.mask_json(&mut value);
            to_raw_value(&value).ok()
        });
        // It is nested too deeply to be read.
        let hidden = || {
            let code = ErrorObject::read(error).code;
            let message = "the error of the server repeats a secret and is not shown";
            to_raw_value(&json!({ "code": code, "message": message })).expect("a value is JSON")
        };
        Self { said: Arc::new(Said::Error(masked.unwrap_or_else(hidden))), ..self }
    }

    /// The outcome in the server's own bytes.
    pub fn outcome(&self) -> Outcome<'_> {
        match &*self.said {
            Said::Result(result, _) => Outcome::Result(result),
            Said::Error(error) => Outcome::Error(ErrorObject::read(error)),
        }
    }

    /// The result, or the server's error as its code and message.
    ///
    /// # Errors
    /// The JSON-RPC error that the server answered with.
    pub fn result(&self) -> Result<&RawValue, (i64, String)> {
        match self.outcome() {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err((error.code, error.message.into_owned())),
        }
    }

    /// Which members the result has, of those that something is decided on; none if it is an error.
    pub fn members(&self) -> Members {
        match &*self.said {
            Said::Result(_, members) => *members,
            Said::Error(_) => Members::default(),
        }
    }

    /// The era of the server that gave it.
    pub fn era(&self) -> Era {
        self.era
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> usize {
        match &*self.said {
            Said::Result(said, _) | Said::Error(said) => said.get().len(),
        }
    }

    /// The same answer, given again when it is good for this much longer. It says so itself, if it said how
    /// long at first.
    pub(crate) fn with_ttl(&self, ttl: Duration) -> Self {
        let again = Self { given_before: true, ..self.clone() };
        let Said::Result(result, members) = &*self.said else { return again };
        let result = Object::parse(result).ok().filter(|result| result.has("ttlMs"));
        let Some(result) = result else { return again };
        let left = RawValue::from_string(ttl.as_millis().to_string()).expect("a number is JSON");
        let said = Said::Result(Patch::new().set("ttlMs", &left).apply(&result), *members);
        Self { said: Arc::new(said), ..again }
    }

    /// Whether it was made for an earlier request, and no server had a part in this one.
    pub fn was_given_before(&self) -> bool {
        self.given_before
    }

    /// Whether the instance gave it that all clients share.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The same, given by the instance of one client.
    pub(crate) fn by_own_instance(self) -> Self {
        Self { shared: false, ..self }
    }

    /// Whether the server says that it failed: with an error, or with the result of a tool that says so.
    pub fn is_error(&self) -> bool {
        matches!(&*self.said, Said::Error(_)) || self.is_tool_error()
    }

    /// Whether it is the result of a tool that says it failed.
    pub fn is_tool_error(&self) -> bool {
        self.members().is_error
    }
}

impl Members {
    fn of(result: &RawValue) -> Self {
        let Ok(result) = Object::parse(result) else { return Self::default() };
        let has = |member| result.has(member);
        Self {
            is_error: result.flag("isError"),
            input_required: matches!(ResultType::read(&result), ResultType::InputRequired),
            result_type: has("resultType"),
            freshness: has("ttlMs") || has("cacheScope"),
            structured_content: has("structuredContent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_repeats_a_secret_is_never_passed_on_with_it() {
        let secrets = Secrets::default();
        secrets.filled_in(["correct-horse", "123456789012", "ends in \\"].into_iter().collect());
        let deep = format!("{}\"correct-horse\"{}", "[".repeat(500), "]".repeat(500));
        let texts = [
            r#"{"code":-32000,"message":"refused correct-horse","data":{"account":123456789012}}"#.to_owned(),
            r#"{"code":-32000,"message":"ends in \\","data":"correct%2Dhorse"}"#.to_owned(),
            format!(r#"{{"code":-32000,"message":"x","data":{deep}}}"#),
        ];
        for text in texts {
            let message = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{text}}}"#));
            let answer = Answer::read(&message, Era::Legacy).unwrap().redacted(&secrets);
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
        Answer::read(&Bytes::from_static(message.as_bytes()), Era::Legacy).expect("it is a response")
    }

    #[test]
    fn an_answer_says_what_the_server_said_and_what_is_in_it() {
        let answer =
            read(r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"n":1.0,"structured\u0043ontent":1}}"#);
        assert_eq!(answer.result().unwrap().get(), r#"{"isError":true,"n":1.0,"structured\u0043ontent":1}"#);
        assert!(answer.is_tool_error() && answer.is_error());
        let members = Members { is_error: true, structured_content: true, ..Members::default() };
        assert_eq!(answer.members(), members);
        let asking = read(r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","ttlMs":1}}"#);
        assert!(asking.members().input_required && asking.members().freshness && !asking.is_error());
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"result":[1]}"#).members(), Members::default());
    }

    #[test]
    fn an_error_keeps_its_code_its_text_and_all_its_bytes() {
        let answer = read(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-3,"message":"no","x":[1e2]}}"#);
        assert_eq!(answer.result().unwrap_err(), (-3, "no".to_owned()));
        assert!(answer.is_error() && !answer.is_tool_error());
        let Outcome::Error(error) = answer.outcome() else { panic!("{answer:?}") };
        assert_eq!(error.raw.get(), r#"{"code":-3,"message":"no","x":[1e2]}"#);
        assert!(Answer::read(&Bytes::from_static(b"{}"), Era::Legacy).is_none());
    }
}
