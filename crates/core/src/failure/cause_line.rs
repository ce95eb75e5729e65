//! Selection of the stderr line that most probably explains why a process ended. Runtimes and package managers write
//! the cause first, and hints, stack frames and notes after it, so the last line often explains least.

use super::symptoms::{Symptom, symptom_of_line};

/// Weight of a line. Of several lines with the same weight, the last one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// Blank, or only brackets and carets.
    Empty,
    /// A hint, a warning, a stack frame, progress, or a continuation of the line above.
    Detail,
    /// An unclassified line.
    Plain,
    /// An error message, or part of a chain of causes.
    Error,
}

/// Context of a line within a text whose lines belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    /// After `Traceback (most recent call last):`: the next line that is not indented is the error.
    Traceback,
    /// After `Caused by:` alone on its line: indented lines are causes.
    Causes,
    /// After `thread 'main' panicked at …:`: the next line is the message.
    Panic,
}

/// Starts of lines that follow the cause or only summarise it, in lower case.
const DETAILS: &[&str] = &[
    "hint:",
    "note:",
    "help:",
    "tip:",
    "warn:",
    "warn ",
    "warning:",
    "warning ",
    "info:",
    "info ",
    "debug:",
    "debug ",
    "(node:",
    "npm warn",
    "npm notice",
    "npm error a complete log",
    "npm error 404 note ",
    "npm error 404 tarball,",
    "npm error code ",
    "npm error errno ",
    "npm error syscall ",
    "npm error path ",
    "npm error network in most cases",
    "npm error network if you are",
    "npm error network 'proxy'",
    "npm err! a complete log",
    "npm err! code ",
    "npm err! errno ",
    "npm err! syscall ",
    "npm err! path ",
    "node.js v",
    "node:internal/",
    "see 'docker ",
    "see \"docker ",
    "run 'docker ",
    "for more information",
    "try '",
    "at ",
    "error: could not compile",
    "error: aborting due to",
    "some errors have detailed explanations",
    "during handling of the above exception",
    "the above exception was",
];

/// Lines that only introduce the next ones.
const TRACEBACK: &str = "traceback (most recent call last)";
const CAUSED_BY: &str = "caused by:";

/// Words of a line that reports a failure, in lower case.
const FAILURES: &[&str] = &[
    "not found",
    "no such ",
    "cannot ",
    "can't ",
    "could not ",
    "couldn't ",
    "unable to ",
    "failed",
    "failure",
    "denied",
    "refused",
    "missing",
    "is required",
    "are required",
    "must be ",
    "must have ",
    "not in this registry",
    "not set",
    "invalid ",
    "unknown ",
    "unexpected ",
];

/// The line that most probably explains why a process ended, without indentation and marks. `None` if it wrote nothing.
pub fn cause_line<'l>(lines: impl Iterator<Item = &'l str>) -> Option<&'l str> {
    let mut within = Within::Nothing;
    let mut best: Option<(Weight, &str)> = None;
    for line in lines {
        let (weight, text, next) = weighed(line, within);
        within = next;
        if weight > Weight::Empty && best.is_none_or(|(known, _)| weight >= known) {
            best = Some((weight, text));
        }
    }
    best.map(|(_, text)| text)
}

/// The weight of a line, the text to show, and the context of the next line.
fn weighed(line: &str, within: Within) -> (Weight, &str, Within) {
    let line = in_group(line);
    let text = line.trim();
    if !text.contains(char::is_alphanumeric) {
        // A blank line does not end a traceback or chain.
        return (Weight::Empty, text, within);
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains(TRACEBACK) {
        return (Weight::Detail, text, Within::Traceback);
    }
    if lower == CAUSED_BY {
        return (Weight::Detail, text, Within::Causes);
    }
    if lower.contains(" panicked at ") && lower.ends_with(':') {
        return (Weight::Plain, text, Within::Panic);
    }
    if let Some(cause) = link(text) {
        return (Weight::Error, cause, Within::Nothing);
    }
    let is_indented = line.starts_with(char::is_whitespace);
    match within {
        Within::Traceback if is_indented => return (Weight::Detail, text, within),
        Within::Causes if is_indented => return (Weight::Error, numbered(text), within),
        Within::Traceback | Within::Panic => return (Weight::Error, text, Within::Nothing),
        Within::Causes | Within::Nothing => {}
    }
    let weight = match level(text) {
        Some(weight) => weight,
        None if is_indented || is_detail(&lower) => Weight::Detail,
        None if is_failure(&lower) => Weight::Error,
        None => Weight::Plain,
    };
    (weight, text, Within::Nothing)
}

/// Strips the frame that Python draws around the exceptions of a group.
fn in_group(line: &str) -> &str {
    let trimmed = line.trim_start();
    match trimmed.strip_prefix('|') {
        Some(inside) => inside.strip_prefix(' ').unwrap_or(inside),
        None if trimmed.starts_with("+ ") && trimmed.to_ascii_lowercase().contains(TRACEBACK) => {
            &trimmed["+ ".len()..]
        }
        None => line,
    }
}

/// The cause in a line of a chain: `Caused by: …`, `╰─▶ …`, `[cause]: …`.
fn link(text: &str) -> Option<&str> {
    const MARKS: &[&str] = &["× ", "├─▶ ", "╰─▶ ", "└─▶ ", "[cause]: ", "cause: "];
    let marked = MARKS.iter().find_map(|mark| text.strip_prefix(mark));
    let caused = || {
        let (head, cause) = text.split_at_checked(CAUSED_BY.len())?;
        head.eq_ignore_ascii_case(CAUSED_BY).then_some(cause)
    };
    marked.or_else(caused).map(str::trim)
}

/// A numbered cause without its number: `1: connection refused`.
fn numbered(text: &str) -> &str {
    match text.split_once(": ") {
        Some((number, cause)) if number.bytes().all(|byte| byte.is_ascii_digit()) => cause,
        Some(_) | None => text,
    }
}

/// The weight by the level of a log line: `2026-01-01 12:00:00 ERROR …`, `[warn] …`.
fn level(text: &str) -> Option<Weight> {
    const WORDS: usize = 6;
    let words = text.split([' ', '\t', '[', ']', '|']).filter(|word| !word.is_empty()).take(WORDS);
    for (at, word) in words.enumerate() {
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_first = at == 0 && text.starts_with('[');
        match word {
            "ERROR" | "FATAL" | "CRITICAL" | "PANIC" => return Some(Weight::Error),
            "WARN" | "WARNING" | "INFO" | "DEBUG" | "TRACE" | "NOTICE" => return Some(Weight::Detail),
            "error" | "fatal" | "critical" if is_first => return Some(Weight::Error),
            "warn" | "warning" | "info" | "debug" | "trace" if is_first => return Some(Weight::Detail),
            _ => {}
        }
    }
    None
}

fn is_detail(lower: &str) -> bool {
    lower == "npm error 404"
        || lower == "npm error network"
        || DETAILS.iter().any(|beginning| lower.starts_with(beginning))
}

fn is_failure(lower: &str) -> bool {
    let is_symptom = match symptom_of_line(lower) {
        // A usage line follows the error that explains it.
        Some(Symptom::Usage) | None => false,
        Some(_) => true,
    };
    // `error: …`, `error[E0432]: …`, `ValueError: …`, `server: error: …`, `docker: Error response …`
    let names_error = lower
        .split([' ', ':', '[', '('])
        .take(6)
        .any(|word| ["error", "exception", "fatal", "panic"].iter().any(|end| word.ends_with(end)));
    let is_npm = lower.starts_with("npm err");
    is_symptom || (names_error && !is_npm) || FAILURES.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(text: &str) -> &str {
        cause_line(text.lines()).unwrap_or("nothing")
    }

    #[test]
    fn the_cause_line_of_uv_is_the_deepest_cause_and_not_the_hint() {
        let chain = "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `https://index.example/time/`\n  \
                     Caused by: client error (Connect)\n  Caused by: invalid peer certificate: UnknownIssuer\n  \
                     hint: Consider enabling use of system TLS certificates with `--system-certs`";
        assert_eq!(cause(chain), "invalid peer certificate: UnknownIssuer");
        let drawn = "  × Failed to fetch: `https://index.example/time/`\n  ├─▶ Request failed after 3 retries\n  \
                     ╰─▶ invalid peer certificate: UnknownIssuer\nhint: Consider `--system-certs`\n";
        assert_eq!(cause(drawn), "invalid peer certificate: UnknownIssuer");
        let unsolvable = "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because no-such was not found in the \
                          package registry and you require no-such,\n      we can conclude that your requirements are unsatisfiable.";
        let newer = "error: No solution found when resolving tool dependencies\n  cause: Because no-such was not found in the \
                     package registry and you require no-such, we can conclude that your requirements are unsatisfiable.\n";
        assert!(cause(newer).starts_with("Because no-such was not found"), "{}", cause(newer));
        assert_eq!(
            cause(unsolvable),
            "Because no-such was not found in the package registry and you require no-such,"
        );
    }

    #[test]
    fn the_cause_line_of_npm_is_the_error_and_not_the_notes() {
        let unknown = "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/no-such\nnpm error 404\n\
                       npm error 404  'no-such@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that you can also \
                       install from a\nnpm error 404 tarball, folder, http url, or git url.\nnpm error A complete log of this run";
        assert_eq!(cause(unknown), "npm error 404  'no-such@*' is not in this registry.");
        let offline = "npm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno ENOTFOUND\n\
                       npm error network request to https://registry.example/a failed, reason: getaddrinfo ENOTFOUND registry.example\n\
                       npm error network This is a problem related to network connectivity.\n\
                       npm error network In most cases you are behind a proxy or have bad network settings.\nnpm error network\n\
                       npm error network If you are behind a proxy, please make sure that the\n\
                       npm error network 'proxy' config is set properly.  See: 'npm help config'\nnpm error A complete log of this";
        assert!(cause(offline).starts_with("npm error network request to"), "{}", cause(offline));
        let old = "npm ERR! code EACCES\nnpm ERR! syscall mkdir\nnpm ERR! Error: EACCES: permission denied, mkdir '/x'\n\
                   npm ERR!     at async mkdir (node:fs:1:2)\nnpm ERR! A complete log of this run can be found in:";
        assert_eq!(cause(old), "npm ERR! Error: EACCES: permission denied, mkdir '/x'");
    }

    #[test]
    fn the_cause_line_of_node_is_the_error_and_not_the_frames() {
        let module = "node:internal/modules/cjs/loader:1215\n  throw err;\n  ^\n\nError: Cannot find module '/app/index.js'\n    \
                      at Module._load (node:internal:1:2) {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.1.0";
        assert_eq!(cause(module), "Error: Cannot find module '/app/index.js'");
        let fetch = "TypeError: fetch failed\n    at node:internal/deps/undici:1:2 {\n  \
                     [cause]: Error: getaddrinfo ENOTFOUND api.example\n      at GetAddrInfo (node:dns:1:2) {\n    \
                     errno: -3008,\n  }\n}\n\nNode.js v22.0.0";
        assert_eq!(cause(fetch), "Error: getaddrinfo ENOTFOUND api.example");
        let warned =
            "TOKEN is required\n(node:12) ExperimentalWarning: it may change\n(Use `node --trace` to show)";
        assert_eq!(cause(warned), "TOKEN is required");
    }

    #[test]
    fn the_cause_line_of_python_is_the_last_line_of_a_traceback() {
        let plain = "INFO starting\nTraceback (most recent call last):\n  File \"/a.py\", line 1, in <module>\n    \
                     raise Shutdown('no key')\nserver.Shutdown: no key\n";
        assert_eq!(cause(plain), "server.Shutdown: no key");
        let chained = "Traceback (most recent call last):\n  File \"/a.py\", line 1\n    a['KEY']\nKeyError: 'KEY'\n\n\
                       During handling of the above exception, another exception occurred:\n\n\
                       Traceback (most recent call last):\n  File \"/a.py\", line 3\nRuntimeError: set KEY first\n";
        assert_eq!(cause(chained), "RuntimeError: set KEY first");
        let group = "  + Exception Group Traceback (most recent call last):\n  |   File \"/a.py\", line 9, in run\n  |     await x\n  \
                     | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n    \
                     | Traceback (most recent call last):\n    |   File \"/b.py\", line 10, in x\n    |     raise ValueError\n    \
                     | ValueError: no such city\n    +------------------------------------\n";
        assert_eq!(cause(group), "ValueError: no such city");
        let argparse = "usage: server [-h] path\nserver: error: the following arguments are required: path\n";
        assert_eq!(cause(argparse), "server: error: the following arguments are required: path");
    }

    #[test]
    fn cause_lines_of_docker_cargo_and_rust_are_found() {
        let docker = "Unable to find image 'mcp/none:latest' locally\ndocker: Error response from daemon: pull access denied for \
                      mcp/none, repository does not exist.\n\nRun 'docker run --help' for more information\n";
        assert!(cause(docker).starts_with("docker: Error response from daemon"), "{}", cause(docker));
        let cargo = "   Compiling server v0.1.0\nerror[E0432]: unresolved import `foo`\n --> src/main.rs:1:5\n  |\n1 | use foo::Bar;\n  \
                     |     ^^^ use of unresolved module\n\nFor more information about this error, try `rustc --explain E0432`.\n\
                     error: could not compile `server` (bin \"server\") due to 1 previous error\n";
        assert_eq!(cause(cargo), "error[E0432]: unresolved import `foo`");
        let panic = "thread 'main' panicked at src/main.rs:2:5:\nno token\nnote: run with `RUST_BACKTRACE=1` environment variable";
        assert_eq!(cause(panic), "no token");
        let report = "Error: cannot start\n\nCaused by:\n    0: connecting to the database\n    1: Connection refused (os error 111)\n";
        assert_eq!(cause(report), "Connection refused (os error 111)");
        let clap = "error: unexpected argument '--x' found\n\nUsage: server [OPTIONS]\n\nFor more information, try '--help'.\n";
        assert_eq!(cause(clap), "error: unexpected argument '--x' found");
    }

    #[test]
    fn levels_of_log_lines_count_and_the_last_of_equal_lines_wins() {
        let logged = "2026-11-17 06:00:00,123 - server - ERROR - the key has expired\n2026-11-17 06:00:00,124 - server - INFO - bye";
        assert!(cause(logged).ends_with("the key has expired"), "{}", cause(logged));
        assert_eq!(cause("[error] first\n[error] second\n[info] bye\n"), "[error] second");
        assert_eq!(cause("listening\nthe end is near\n"), "the end is near");
        assert_eq!(cause("  all of it\n  is indented\n\n"), "is indented");
        assert_eq!(cause("Node.js v20.1.0"), "Node.js v20.1.0");
        assert_eq!(cause_line("\n \n}\n".lines()), None);
    }
}
