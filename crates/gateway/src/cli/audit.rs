//! `gripfast audit`: verifies the audit log.

use super::args::{AuditVerb, GlobalArgs, OutputFormat};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, Table, plural};
use gripfast::{AuditFile, AuditFinding, verify_audit};
use serde_json::json;

/// Checks the audit log in the state directory against its hash chain.
pub(crate) fn run(global: &GlobalArgs, verb: &AuditVerb, screen: &mut Screen) -> Result<Exit, CommandError> {
    let AuditVerb::Verify { output } = verb;
    let directory = config::gateway_state_dir(global)?.ok_or_else(|| config::no_state_dir(""))?;
    let files = verify_audit(&directory).map_err(|error| {
        FailureReport::new(
            Exit::General,
            format!("the audit log in `{}` cannot be read: {error}", directory.display()),
        )
    })?;
    match output.form {
        OutputFormat::Json => {
            let shown: Vec<_> = files
                .iter()
                .map(|file| {
                    let (finding, lines, line) = json_fields(&file.finding);
                    json!({ "path": file.path, "finding": finding, "lines": lines, "line": line })
                })
                .collect();
            screen.json(&json!({ "files": shown }))?;
        }
        OutputFormat::Text if files.is_empty() => {
            screen.message("no audit log; `gateway.audit` in the config turns it on")?
        }
        OutputFormat::Text => {
            let mut table = Table::new(["FILE", "FINDING"]);
            for file in &files {
                let name = file.path.file_name().unwrap_or_default().to_string_lossy();
                table.row([&name, &finding_text(&file.finding)]);
            }
            screen.table(table)?;
        }
    }
    match files.iter().find(|file| is_bad(file)) {
        None => Ok(Exit::Ok),
        Some(file) => {
            let text = format!("`{}`: {}", file.path.display(), finding_text(&file.finding));
            Err(FailureReport::new(Exit::General, text)
                .with_hint("compare the file with a copy of the log from elsewhere")
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

fn json_fields(finding: &AuditFinding) -> (&'static str, Option<usize>, Option<usize>) {
    match finding {
        AuditFinding::Whole { lines } => ("whole", Some(*lines), None),
        AuditFinding::Unchained => ("unchained", None, None),
        AuditFinding::Broken { line } => ("broken", None, Some(*line)),
        AuditFinding::Detached => ("detached", None, Some(1)),
    }
}

fn finding_text(finding: &AuditFinding) -> String {
    match finding {
        AuditFinding::Whole { lines } => format!("{} unchanged", plural(*lines, "line")),
        AuditFinding::Unchained => "no hash chain: written by an older version".to_owned(),
        AuditFinding::Broken { line } => {
            format!("line {line} was changed, or lines before it were removed or inserted")
        }
        AuditFinding::Detached => "lines are missing at the end of the previous file".to_owned(),
    }
}
