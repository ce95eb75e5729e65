//! Errors of commands, and their report to the user: text, hint and JSON.

use super::args::OutputFormat;
use super::exit::Exit;
use super::render::Screen;
use gripfast::{CallError, CallOutcome, Code};
use gripfast_gateway::api::types::ErrorView;
use serde_json::{Value, json};
use std::io;

/// The reason for which a command stopped.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// A failure that has not been reported yet.
    Failed(Box<FailureReport>),
    /// Everything has been reported already.
    Reported(Exit),
    /// The output could not be written.
    Output(io::Error),
}

/// One failure in the shape of C01: a text, a hint and a part for machines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailureReport {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
    /// The part for machines; `None` for a failure that concerns no server.
    json: Option<Value>,
}

impl FailureReport {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), hint: None, json: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        if let Some(machine) = &mut self.json {
            machine["hint"] = hint.as_str().into();
        }
        self.hint = Some(hint);
        self
    }

    pub(crate) fn with_hint_if_any(self, hint: Option<String>) -> Self {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// A failure of `server` that is known before the host is asked, in the shape of the host's own failures.
    pub(crate) fn for_server(server: &str, code: Code, text: String, hint: Option<String>) -> Self {
        let error = CallError::new(code, server, CallOutcome::NotSent, text);
        Self::from(CallError { hint, ..error })
    }

    /// A failure that a gateway reported, with its part for machines.
    pub(crate) fn from_gateway(text: &str, part: &Value) -> Self {
        Self {
            exit: part["code"].as_str().map_or(Exit::General, Exit::from_code),
            text: text.to_owned(),
            hint: part["hint"].as_str().map(str::to_owned),
            json: Some(part.clone()),
        }
    }

    /// The same failure with another exit code, where more is known than the code of C02 can express.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The part for machines with the text in it.
    pub(crate) fn as_json(&self) -> Option<Value> {
        let mut part = self.json.clone()?;
        part["text"] = self.text.as_str().into();
        Some(part)
    }

    /// The same, also for a failure that concerns no server.
    fn to_json(&self) -> Value {
        self.as_json().unwrap_or_else(|| json!({ "code": null, "text": self.text, "hint": self.hint }))
    }
}

impl From<CallError> for FailureReport {
    fn from(error: CallError) -> Self {
        Self {
            exit: error.code.into(),
            json: Some(error.to_json()),
            // Without the time of the next attempt: this process has ended by then.
            text: error.text,
            hint: error.hint,
        }
    }
}

impl From<ErrorView> for FailureReport {
    fn from(refusal: ErrorView) -> Self {
        Self::from_gateway(&refusal.text, &json!(refusal))
    }
}

impl CommandError {
    /// Reports what has not been reported yet, as JSON too if that is the output format, and returns the exit code.
    pub(crate) fn report(self, form: OutputFormat, screen: &mut Screen) -> Exit {
        match self {
            Self::Failed(failure) => {
                if form == OutputFormat::Json && !screen.has_data() {
                    let _ = screen.json(&json!({ "error": failure.to_json() }));
                }
                // If stderr cannot be written, the exit code has to do.
                let _ = screen.failure(&failure).and_then(|()| screen.flush());
                failure.exit
            }
            Self::Reported(exit) => {
                let _ = screen.flush();
                exit
            }
            // `gripfast tools | head -1`: the reader has closed the pipe on purpose.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Output(error) => {
                let _ = screen
                    .failure(&FailureReport::new(Exit::General, format!("cannot write the output: {error}")));
                Exit::General
            }
        }
    }
}

impl From<FailureReport> for CommandError {
    fn from(failure: FailureReport) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
