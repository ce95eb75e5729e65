//! Verifies the files of an audit log by their hash chains.

use crate::private_files;
use crate::records::journal;
use gripfast_core::hash_chain;
use gripfast_core::hash_chain::{ChainVerdict, START};
use std::io;
use std::path::{Path, PathBuf};

/// Finding for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Finding for this file.
    pub finding: AuditFinding,
}

/// Finding for a file of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditFinding {
    /// All lines are as they were written.
    Whole {
        /// Number of lines.
        lines: usize,
    },
    /// The file has no chain: an older version wrote it.
    Unchained,
    /// This line, counted from 1, was changed, or lines before it were removed or inserted.
    Broken {
        /// Line number.
        line: usize,
    },
    /// Lines are missing at the end of the previous file.
    Detached,
}

/// Maximum size of a file: the largest part, and a line.
const MAX_FILE_BYTES: u64 = 9 << 30;

/// Verifies the audit log in a state directory, the oldest file first. Lines that were removed from the end of the
/// newest file of a process cannot be detected.
///
/// # Errors
/// The files cannot be read.
pub fn verify_audit(state_dir: &Path) -> io::Result<Vec<AuditFile>> {
    let directory = state_dir.join("audit");
    // Last known link of each process, by the process id in its file names.
    let mut lasts: Vec<(String, String)> = Vec::new();
    let mut found = Vec::new();
    for path in journal::segments(&directory)? {
        let text = String::from_utf8_lossy(&private_files::read(&path, MAX_FILE_BYTES)?).into_owned();
        let process = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('-').nth(1));
        let process = process.unwrap_or_default().to_owned();
        let finding = match hash_chain::verify(&text) {
            ChainVerdict::Unchained => AuditFinding::Unchained,
            ChainVerdict::Broken { line } => AuditFinding::Broken { line },
            ChainVerdict::Intact { lines, previous: follows, last } => {
                let before = lasts.iter_mut().find(|(known, _)| *known == process);
                let is_detached =
                    follows != START && before.as_ref().is_some_and(|(_, last)| *last != follows);
                match before {
                    Some((_, known)) => *known = last,
                    None => lasts.push((process, last)),
                }
                if is_detached { AuditFinding::Detached } else { AuditFinding::Whole { lines } }
            }
        };
        found.push(AuditFile { path, finding });
    }
    Ok(found)
}
