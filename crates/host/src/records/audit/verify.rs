//! Compares the files of an audit log with their hash chains.

use crate::private_files;
use gripfast_core::chain::{self, START, Verdict};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What was found of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFile {
    /// The file.
    pub path: PathBuf,
    /// What it shows.
    pub finding: AuditFinding,
}

/// What a file of the audit log shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditFinding {
    /// All its lines are as they were written.
    Whole {
        /// How many.
        lines: usize,
    },
    /// It has no chain: an older version wrote it.
    Unchained,
    /// This line, counted from 1, was changed, or lines before it were taken out or put in.
    Broken {
        /// Its number.
        line: usize,
    },
    /// Lines are missing at the end of the file before it.
    Detached,
}

/// The largest file that is read: the largest part, and a line.
const LARGEST: u64 = 9 << 30;

/// Compares the audit log in a state directory with its chains, the oldest file first. Lines that were taken off the end
/// of the newest file of a process cannot be missed.
///
/// # Errors
/// The files cannot be read.
pub fn verify_audit(state_dir: &Path) -> io::Result<Vec<AuditFile>> {
    let directory = state_dir.join("audit");
    let mut paths: Vec<PathBuf> = match fs::read_dir(&directory) {
        Ok(files) => files.map(|file| file.map(|file| file.path())).collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    paths.sort_unstable();
    // The last link of each process that is known, by its number in the names of its files.
    let mut lasts: Vec<(String, String)> = Vec::new();
    let mut found = Vec::new();
    for path in paths {
        let text = String::from_utf8_lossy(&private_files::read(&path, LARGEST)?).into_owned();
        let process = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('-').nth(1));
        let process = process.unwrap_or_default().to_owned();
        let finding = match chain::verify(&text) {
            Verdict::Unchained => AuditFinding::Unchained,
            Verdict::Broken { line } => AuditFinding::Broken { line },
            Verdict::Whole { lines, follows, last } => {
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
