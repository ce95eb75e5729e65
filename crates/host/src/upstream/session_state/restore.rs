//! The calls that the operator marked `restore`, made in every new session before it is put to use. What came of
//! them is told with everything else that the session is to know.

use super::answer::Answer;
use super::exchange::judge;
use super::{Live, Settings, Upstream};
use crate::config::{ExpandError, ProcessEnvironment, RestoreCall};
use crate::ledger::OpenRow;
use crate::said::Said;
use crate::transport::{Reply, Secrets, Trouble};
use gripfast_core::failure::recovery::fate_of;
use gripfast_core::failure::{BlockCause, CallError, Code, Failure, Outcome as Fate};
use gripfast_core::ledger::entry::LedgerCaller;
use gripfast_core::standing::Verdict;
use gripfast_wire::headers::ParamHeaders;
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::results::{CallResult, ResultType};
use gripfast_wire::{Outcome, RawValue};

/// The marked calls with all references filled in: the tool, and the parameters of its call.
pub(super) type Marked = Vec<(String, Box<RawValue>)>;

impl Settings {
    /// The marked calls as they are to be made now.
    pub(super) async fn marked(&self) -> Result<Marked, Failure> {
        if self.restore.is_empty() {
            return Ok(Vec::new());
        }
        // What they refer to may take its time.
        let calls = self.restore.clone();
        let filled_in = tokio::task::spawn_blocking(move || fill_in(&calls)).await;
        filled_in.unwrap_or_else(|error| Err(Failure::Blocked(BlockCause::BadConfig(error.to_string()))))
    }
}

fn fill_in(calls: &[RestoreCall]) -> Result<Marked, Failure> {
    let filled_in = calls.iter().map(|call| {
        let arguments = call.arguments.expand(&ProcessEnvironment).map_err(|error| match error {
            ExpandError::LacksResources { what } => Failure::LacksResources(what.to_owned()),
            ExpandError::Unset { name } => Failure::Blocked(BlockCause::UnsetVariable(name)),
            ExpandError::NotText { .. }
            | ExpandError::FileUnreadable { .. }
            | ExpandError::CommandFailed { .. } => Failure::Blocked(BlockCause::BadConfig(error.to_string())),
        })?;
        let arguments = RawValue::from_string(arguments.to_string()).expect("a JSON value prints as JSON");
        let params = Patch::new().set_text("name", &call.tool).set_owned("arguments", arguments);
        Ok((call.tool.clone(), params.to_object()))
    });
    filled_in.collect()
}

impl Upstream {
    /// Makes the marked calls, one after another. They have half the time of a dial together: a session that
    /// lacks some of them is better than none.
    pub(super) async fn restore(&self, live: &Live, marked: &Marked) -> Vec<(String, Verdict)> {
        let until = self.clock.mono() + self.settings().supervision.timeouts.connect / 2;
        let until = self.clock.instant(until);
        let mut made = Vec::with_capacity(marked.len());
        if marked.is_empty() {
            return made;
        }
        let wanted = tokio::time::timeout_at(until, self.wanted_headers(live)).await.unwrap_or_default();
        let caller = LedgerCaller { principal: "", client: Self::RESTORES };
        for (tool, params) in marked {
            let headers = wanted.get(tool).map(|wanted| headers_of(wanted, params)).unwrap_or_default();
            // Its arguments are likely to hold secrets, so not even a digest of them is kept.
            let row = self.ledger.row(&caller, &self.name, tool, &Said::in_params(None));
            row.goes();
            let calling = self.own_call(live, params, headers);
            let answered = match tokio::time::timeout_at(until, calling).await {
                Ok(Ok(message)) => judge(Reply::of(message), live),
                Ok(Err(trouble)) => Err(trouble),
                Err(_) => {
                    row.settle(Fate::Unknown, Some(Code::Timeout));
                    made.push((tool.clone(), Verdict::Missed("no answer in time".to_owned())));
                    continue;
                }
            };
            made.push((tool.clone(), self.settle(row, answered)));
        }
        made
    }

    /// Who makes these calls, in the ledger.
    const RESTORES: &str = "gripfast (restore)";

    /// Writes down what came of a marked call, and says it.
    fn settle(&self, row: OpenRow<'_>, answered: Result<Answer, Box<Trouble>>) -> Verdict {
        match answered {
            Ok(answer) => {
                let verdict = verdict(answer.outcome(), &self.secrets);
                row.settle(if verdict == Verdict::Done { Fate::Done } else { Fate::Failed }, None);
                verdict
            }
            Err(trouble) => {
                let failure = self.secrets.classify(&trouble.evidence);
                let fate = fate_of(&failure, trouble.evidence.sent).unwrap_or(Fate::NotSent);
                let error = CallError::from_failure(&self.name, &failure, fate);
                row.settle(fate, Some(error.code));
                Verdict::Missed(failure.to_string())
            }
        }
    }
}

/// The headers that repeat arguments of a call with these parameters.
fn headers_of(wanted: &ParamHeaders, params: &RawValue) -> Vec<(String, String)> {
    let params = Object::parse(params).ok();
    wanted.for_arguments(params.and_then(|params| params.get("arguments"))).unwrap_or_default()
}

fn verdict(outcome: Outcome<'_>, secrets: &Secrets) -> Verdict {
    match outcome {
        Outcome::Error(error) => {
            Verdict::Declined(format!("{} ({})", secrets.text(&error.message), error.code))
        }
        Outcome::Result(result) => match CallResult::read(result) {
            Ok(result) if result.is_error => Verdict::Declined("the tool says that it failed".to_owned()),
            Ok(CallResult { result_type: ResultType::InputRequired, .. }) => {
                Verdict::Declined("it asks for input, which nobody can give here".to_owned())
            }
            Ok(_) | Err(_) => Verdict::Done,
        },
    }
}
