//! Calls marked `restore` in the config, made in every new session before it is used. Their results are part of the
//! restore status of the session.

use crate::config::{ExpandError, ProcessEnvironment, RestoreCall, ServerSpec};
use crate::records::ledger::OpenRow;
use crate::records::request_summary::RequestSummary;
use crate::transport::{Reply, Secrets, SendError};
use crate::upstream::answer::Answer;
use crate::upstream::call::classify_reply;
use crate::upstream::{Connection, Upstream};
use gripfast_core::failure::recovery::attempt_outcome;
use gripfast_core::failure::{BlockCause, CallError, CallOutcome, Code, Failure};
use gripfast_core::ledger::ledger_entry::LedgerCaller;
use gripfast_core::session_state::SyncVerdict;
use gripfast_wire::headers::ParamHeaders;
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::results::{CallResult, ResultType};
use gripfast_wire::{Json, JsonText, Outcome};

/// The restore calls with all references filled in: the tool and the parameters of its call.
pub(crate) type RestoreCalls = Vec<(String, JsonText)>;

/// Fills in the references of the restore calls.
pub(crate) async fn resolve_restore_calls(spec: &ServerSpec) -> Result<RestoreCalls, Failure> {
    if spec.restore.is_empty() {
        return Ok(Vec::new());
    }
    // Reading referenced files or commands may block.
    let calls = spec.restore.clone();
    let filled_in = tokio::task::spawn_blocking(move || fill_in_secrets(&calls)).await;
    filled_in.unwrap_or_else(|error| Err(Failure::Blocked(BlockCause::BadConfig(error.to_string()))))
}

fn fill_in_secrets(calls: &[RestoreCall]) -> Result<RestoreCalls, Failure> {
    let filled_in = calls.iter().map(|call| {
        let arguments = call.arguments.expand(&ProcessEnvironment).map_err(|error| match error {
            ExpandError::LacksResources { what } => Failure::OutOfResources(what.to_owned()),
            ExpandError::Unset { name } => Failure::Blocked(BlockCause::UnsetVariable(name)),
            ExpandError::NotText { .. }
            | ExpandError::FileUnreadable { .. }
            | ExpandError::CommandFailed { .. } => Failure::Blocked(BlockCause::BadConfig(error.to_string())),
        })?;
        let arguments = JsonText::parse(arguments.to_string()).expect("a JSON value prints as JSON");
        let params = Patch::new().set_text("name", &call.tool).set_owned("arguments", arguments);
        Ok((call.tool.clone(), params.to_object()))
    });
    filled_in.collect()
}

impl Upstream {
    /// Makes the restore calls one after another. Together they get half of the connect timeout: a session without
    /// some of them is better than none.
    pub(crate) async fn restore(
        &self,
        connection: &Connection,
        restore_calls: &RestoreCalls,
    ) -> Vec<(String, SyncVerdict)> {
        let until = self.clock.mono() + self.spec().supervision.timeouts.connect / 2;
        let until = self.clock.instant(until);
        let mut made = Vec::with_capacity(restore_calls.len());
        if restore_calls.is_empty() {
            return made;
        }
        let wanted =
            tokio::time::timeout_at(until, self.fetch_param_headers(connection)).await.unwrap_or_default();
        let caller = LedgerCaller { principal: "", client: Self::RESTORES };
        for (tool, params) in restore_calls {
            let headers = wanted.get(tool).map(|wanted| headers_of(wanted, params)).unwrap_or_default();
            // The arguments may contain secrets, so not even their digest is recorded.
            let row = self.ledger.row(&caller, &self.name, tool, &RequestSummary::new(None));
            row.record_sent();
            let calling = self.internal_call(connection, params, headers);
            let answered = match tokio::time::timeout_at(until, calling).await {
                Ok(Ok(message)) => classify_reply(Reply::new(message), connection),
                Ok(Err(send_error)) => Err(send_error),
                Err(_) => {
                    row.settle(CallOutcome::Unknown, Some(Code::Timeout));
                    made.push((tool.clone(), SyncVerdict::Failed("no answer in time".to_owned())));
                    continue;
                }
            };
            made.push((tool.clone(), self.settle(row, answered)));
        }
        made
    }

    /// Client name of these calls in the ledger.
    const RESTORES: &str = "gripfast (restore)";

    /// Records the outcome of a restore call in the ledger and returns its verdict.
    fn settle(&self, row: OpenRow<'_>, answered: Result<Answer, Box<SendError>>) -> SyncVerdict {
        match answered {
            Ok(answer) => {
                let verdict = verdict(answer.outcome(), &self.secrets);
                row.settle(
                    if verdict == SyncVerdict::Done { CallOutcome::Done } else { CallOutcome::Failed },
                    None,
                );
                verdict
            }
            Err(send_error) => {
                let failure = self.secrets.classify(&send_error.evidence);
                let outcome =
                    attempt_outcome(&failure, send_error.evidence.sent).unwrap_or(CallOutcome::NotSent);
                let error = CallError::from_failure(&self.name, &failure, outcome);
                row.settle(outcome, Some(error.code));
                SyncVerdict::Failed(failure.to_string())
            }
        }
    }
}

/// The headers that repeat arguments of a call.
fn headers_of(wanted: &ParamHeaders, params: &Json) -> Vec<(String, String)> {
    let params = Object::parse(params).ok();
    wanted.for_arguments(params.and_then(|params| params.get("arguments"))).unwrap_or_default()
}

fn verdict(outcome: Outcome<'_>, secrets: &Secrets) -> SyncVerdict {
    match outcome {
        Outcome::Error(error) => {
            SyncVerdict::Declined(format!("{} ({})", secrets.redact_text(&error.message), error.code))
        }
        Outcome::Result(result) => match CallResult::read(result) {
            Ok(result) if result.is_error => SyncVerdict::Declined("the tool reported an error".to_owned()),
            Ok(CallResult { result_type: ResultType::InputRequired, .. }) => {
                SyncVerdict::Declined("the tool requires input, which is not available here".to_owned())
            }
            Ok(_) | Err(_) => SyncVerdict::Done,
        },
    }
}
