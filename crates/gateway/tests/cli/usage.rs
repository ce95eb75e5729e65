//! Usage errors: the message names the mistake and the correction. Exit code 1, nothing on stdout.

use crate::sandbox::{CommandOutput, Sandbox};
use insta::assert_snapshot;

fn refused(words: &[&str]) -> CommandOutput {
    let ran = Sandbox::empty().run(words);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    ran
}

#[test]
fn no_verb() {
    let ran = refused(&[]);
    assert_eq!(
        ran.stderr.lines().next(),
        Some("The MCP host that never loses a server"),
        "the help is shown"
    );
}

#[test]
fn unknown_verb() {
    assert_snapshot!(refused(&["doctr"]), @"
    exit 1
    --- stderr
    error: unrecognized subcommand 'doctr'

      tip: a similar subcommand exists: 'doctor'

    Usage: gripfast [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn verb_that_resembles_nothing() {
    assert_snapshot!(refused(&["frobnicate"]), @"
    exit 1
    --- stderr
    error: unrecognized subcommand 'frobnicate'

    Usage: gripfast [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn unknown_flag() {
    assert_snapshot!(refused(&["tools", "--confg", "x"]), @"
    exit 1
    --- stderr
    error: unexpected argument '--confg' found

      tip: a similar argument exists: '--config'

    Usage: gripfast tools --config <FILE> [SERVER] [TOOL]

    For more information, try '--help'.
    ");
}

#[test]
fn flag_without_its_value() {
    assert_snapshot!(refused(&["tools", "--config"]), @"
    exit 1
    --- stderr
    error: a value is required for '--config <FILE>' but none was supplied

    For more information, try '--help'.
    ");
}

#[test]
fn unknown_output_form() {
    assert_snapshot!(refused(&["tools", "-o", "yaml"]), @"
    exit 1
    --- stderr
    error: invalid value 'yaml' for '--output <FORMAT>'
      [possible values: text, json]

    For more information, try '--help'.
    ");
}

#[test]
fn bad_wait() {
    assert_snapshot!(refused(&["tools", "--wait", "5"]), @"
    exit 1
    --- stderr
    error: invalid value '5' for '--wait <DURATION>': expected a duration such as 1500ms, 2s or 1m30s

    For more information, try '--help'.
    ");
}

#[test]
fn call_without_a_tool() {
    assert_snapshot!(refused(&["call", "demo"]), @"
    exit 1
    --- stderr
    error: the following required arguments were not provided:
      <TOOL>

    Usage: gripfast call <SERVER> <TOOL> [ARGUMENT]...

    For more information, try '--help'.
    ");
}

#[test]
fn call_with_too_many_words() {
    assert_snapshot!(refused(&["call", "demo", "echo", "{}", "more"]), @"
    exit 1
    --- stderr
    error: `{}` is not an argument: expected KEY=VALUE
      hint: write KEY=VALUE for each argument, or all of them as one JSON object in single quotes
    ");
}

#[test]
fn two_configs() {
    assert_snapshot!(refused(&["check", "a.toml", "--config", "b.toml"]), @"
    exit 1
    --- stderr
    error: the argument '[FILE]' cannot be used with '--config <FILE>'

    Usage: gripfast check <FILE>

    For more information, try '--help'.
    ");
}

#[test]
fn bad_demo_server_address() {
    assert_snapshot!(refused(&["demo-server", "--http", "localhost"]), @"
    exit 1
    --- stderr
    error: invalid value 'localhost' for '--http <ADDR:PORT>': expected an IP address and a port such as 127.0.0.1:[PORT]

    For more information, try '--help'.
    ");
}

#[test]
fn bad_listen_address() {
    assert_snapshot!(refused(&["serve", "--listen", "foo"]), @"
    exit 1
    --- stderr
    error: invalid value 'foo' for '--listen <ADDR:PORT>': expected an IP address and a port such as 127.0.0.1:[PORT]

    For more information, try '--help'.
    ");
}

#[test]
fn bad_demo_server_words() {
    let flags = [
        ["--era", "medieval"],
        ["--page-size", "many"],
        ["--answer-delay", "soon"],
        ["--exit-at-start", "never"],
        ["--exit-code", "x"],
        ["--fill-stderr", "1MB"],
        ["--session-expiry-form", "410"],
        ["--status-for-a-while", "200"],
        ["--status-for-a-while", "503:soon"],
        ["--sse-endpoint", "sideways"],
    ];
    let first_line = |flag: [&str; 2]| {
        let ran = refused(&["demo-server", flag[0], flag[1]]);
        ran.stderr.lines().next().unwrap_or_default().to_owned()
    };
    assert_snapshot!(flags.map(first_line).join("\n"), @"
    error: invalid value 'medieval' for '--era <ERA>': `medieval` is not one of both, legacy, modern
    error: invalid value 'many' for '--page-size <N>': expected a whole number
    error: invalid value 'soon' for '--answer-delay <DURATION>': expected a duration such as 1500ms, 2s or 1m30s
    error: invalid value 'never' for '--exit-at-start <WHEN>': `never` is not one of always, a number of starts (3x), a time (60s)
    error: invalid value 'x' for '--exit-code <CODE>': expected a whole number
    error: invalid value '1MB' for '--fill-stderr <BYTES>': expected a whole number
    error: invalid value '410' for '--session-expiry-form <FORM>': `410` is not one of 404, 404-text, 400-no-id, 400-server-error, 400-plain, 200-error
    error: invalid value '200' for '--status-for-a-while <STATUS[:HOW_LONG]>': `200` is not one of the HTTP statuses 400 to 599
    error: invalid value '503:soon' for '--status-for-a-while <STATUS[:HOW_LONG]>': `soon` is not one of ever, a number of times (3x), a time (2s, 250ms)
    error: invalid value 'sideways' for '--sse-endpoint <FORM>': `sideways` is not one of relative, absolute, query, foreign
    ");
}

#[test]
fn a_log_level_or_format_that_does_not_exist_is_refused() {
    let sandbox = Sandbox::with("");
    assert_snapshot!(sandbox.run_with(&["check"], &[("GRIPFAST_LOG", "loud")]), @"
    exit 1
    --- stderr
    error: $GRIPFAST_LOG: `loud`: not a log level
      hint: use one of off, error, warn, info, debug, trace, or for one module: `gripfast::observe=debug`
    ");
    assert_snapshot!(sandbox.run_with(&["check"], &[("GRIPFAST_LOG_FORMAT", "xml")]), @"
    exit 1
    --- stderr
    error: $GRIPFAST_LOG_FORMAT: `xml` is not a log format
      hint: use `text` or `json`
    ");
}
