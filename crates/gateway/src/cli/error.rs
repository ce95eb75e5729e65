//! Why a verb stopped before its end, and how the person who typed it is told.

use super::args::Form;
use super::exit::Exit;
use super::render::Screen;
use gripfast::{CallError, Code, Fate};
use serde_json::{Value, json};
use std::io;

/// Why a verb stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something failed and nobody has been told.
    Failed(Box<Failure>),
    /// Everything has been said.
    Told(Exit),
    /// What was to be said could not be written.
    Output(io::Error),
}

/// One failure in the words of C01: a text, what to do about it, and a part for machines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
    /// `None` for what went wrong before any server was concerned.
    machine: Option<Value>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), hint: None, machine: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        if let Some(machine) = &mut self.machine {
            machine["hint"] = hint.as_str().into();
        }
        self.hint = Some(hint);
        self
    }

    /// A failure that is known before the host is asked, in the shape that the host's own have.
    pub(crate) fn about(server: &str, code: Code, text: String, hint: Option<String>) -> Self {
        let error = CallError::new(code, server, Fate::NotSent, text);
        Self::from(CallError { hint, ..error })
    }

    /// What a gateway said failed, with its part for machines.
    pub(crate) fn passed_on(text: &str, part: &Value) -> Self {
        let code = Code::ALL.into_iter().find(|code| part["code"] == code.word());
        Self {
            exit: code.map_or(Exit::General, Exit::from),
            text: text.to_owned(),
            hint: part["hint"].as_str().map(str::to_owned),
            machine: Some(part.clone()),
        }
    }

    /// The same with another exit code, where more is known than the code of C02 can say.
    pub(crate) fn exiting(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The machine part with the text in it.
    pub(crate) fn as_json(&self) -> Option<Value> {
        let mut part = self.machine.clone()?;
        part["text"] = self.text.as_str().into();
        Some(part)
    }

    /// The same for what concerned no server.
    fn in_any_case_as_json(&self) -> Value {
        self.as_json().unwrap_or_else(|| json!({ "code": null, "text": self.text, "hint": self.hint }))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self {
            exit: error.code.into(),
            machine: Some(error.machine_part()),
            // Without the time of the next try: this process is gone by then.
            text: error.text,
            hint: error.hint,
        }
    }
}

impl Stop {
    /// Says what is left to say, and how the process ends. A program that wants JSON gets some.
    pub(crate) fn tell(self, form: Form, screen: &mut Screen) -> Exit {
        match self {
            Self::Failed(failure) => {
                if form == Form::Json && !screen.has_data() {
                    let _ = screen.json(&json!({ "error": failure.in_any_case_as_json() }));
                }
                // Where stderr cannot be written the exit code says it alone.
                let _ = screen.failure(&failure).and_then(|()| screen.flush());
                failure.exit
            }
            Self::Told(exit) => {
                let _ = screen.flush();
                exit
            }
            // `gripfast tools | head -1`: the reader has what it wanted.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Output(error) => {
                let _ =
                    screen.failure(&Failure::new(Exit::General, format!("cannot write the output: {error}")));
                Exit::General
            }
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
