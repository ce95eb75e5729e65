//! `gripfast audit`: whether the audit log is as it was written.

use super::args::{AuditVerb, Form, Global};
use super::config;
use super::exit::Exit;
use super::render::{Screen, Table, plural};
use super::stop::{Failure, Stop};
use gripfast::{AuditFile, AuditFinding, verify_audit};
use serde_json::json;

/// Compares the audit log in the state directory with its hash chain.
pub(crate) fn run(global: &Global, verb: &AuditVerb, screen: &mut Screen) -> Result<Exit, Stop> {
    let AuditVerb::Verify { output } = verb;
    let directory = config::state_dir_of_gateway(global)?.ok_or_else(|| {
        Failure::new(Exit::General, "there is no state directory with an audit log")
            .with_hint("`--state-dir` names one")
    })?;
    let files = verify_audit(&directory).map_err(|error| {
        Failure::new(
            Exit::General,
            format!("the audit log in `{}` cannot be read: {error}", directory.display()),
        )
    })?;
    match output.form {
        Form::Json => {
            let shown: Vec<_> = files
                .iter()
                .map(|file| {
                    let (finding, lines, line) = words(&file.finding);
                    json!({ "path": file.path, "finding": finding, "lines": lines, "line": line })
                })
                .collect();
            screen.json(&json!({ "files": shown }))?;
        }
        Form::Text if files.is_empty() => {
            screen.talk("no audit log; `gateway.audit` in the config keeps one")?
        }
        Form::Text => {
            let mut table = Table::new(["FILE", "FINDING"]);
            for file in &files {
                let name = file.path.file_name().unwrap_or_default().to_string_lossy();
                table.row([&name, &sentence(&file.finding)]);
            }
            screen.table(table)?;
        }
    }
    match files.iter().find(|file| is_bad(file)) {
        None => Ok(Exit::Ok),
        Some(file) => {
            let text = format!("`{}`: {}", file.path.display(), sentence(&file.finding));
            Err(Failure::new(Exit::General, text)
                .with_hint("compare it with a copy of the log that is kept elsewhere")
                .into())
        }
    }
}

fn is_bad(file: &AuditFile) -> bool {
    match file.finding {
        AuditFinding::Whole { .. } | AuditFinding::Unchained => false,
        AuditFinding::Broken { .. } | AuditFinding::Detached => true,
    }
}

fn words(finding: &AuditFinding) -> (&'static str, Option<usize>, Option<usize>) {
    match finding {
        AuditFinding::Whole { lines } => ("whole", Some(*lines), None),
        AuditFinding::Unchained => ("unchained", None, None),
        AuditFinding::Broken { line } => ("broken", None, Some(*line)),
        AuditFinding::Detached => ("detached", None, Some(1)),
    }
}

fn sentence(finding: &AuditFinding) -> String {
    match finding {
        AuditFinding::Whole { lines } => format!("{} as written", plural(*lines, "line")),
        AuditFinding::Unchained => "no hash chain: written by an older version".to_owned(),
        AuditFinding::Broken { line } => {
            format!("line {line} was changed, or lines before it were taken out or put in")
        }
        AuditFinding::Detached => "lines are missing at the end of the file before it".to_owned(),
    }
}
