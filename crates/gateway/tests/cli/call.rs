//! `gripfast call`: results as text and as JSON, and its errors.

use crate::sandbox::{CommandOutput, Sandbox, UNUSED_URL, WITHOUT_GATEWAY, url};
use insta::assert_snapshot;

fn call(words: &[&str]) -> CommandOutput {
    Sandbox::with_demo(&[]).run(&[&["call", WITHOUT_GATEWAY, "demo"], words].concat())
}

#[test]
fn text_is_printed_as_it_is() {
    assert_snapshot!(call(&["echo", r#"{"text": "two\nlines"}"#]), @"
    exit 0
    --- stdout
    two
    lines
    ");
}

#[test]
fn without_arguments() {
    assert_snapshot!(call(&["counter"]), @"
    exit 0
    --- stdout
    1
    ");
}

#[test]
fn json_is_the_result_as_the_server_sent_it() {
    assert_snapshot!(call(&["add", r#"{"a": 1, "b": 2}"#, "-o", "json"]), @r#"
    exit 0
    --- stdout
    {"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"gripfast-demo","title":"gripfast sample server","version":"0.2.0"}},"content":[{"text":"3","type":"text"}],"resultType":"complete","structuredContent":{"sum":3}}
    "#);
}

#[test]
fn arguments_from_stdin_and_from_a_file() {
    let sandbox = Sandbox::with_demo(&[]).file("arguments.json", "{\"text\":\n\"from a file\"}\n");
    let ran =
        sandbox.run_on_stdin(&["call", WITHOUT_GATEWAY, "demo", "echo", "-"], r#"{"text": "from stdin"}"#);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "from stdin\n"), "{ran}");
    let ran = sandbox.run(&["call", WITHOUT_GATEWAY, "demo", "echo", "@arguments.json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "from a file\n"), "{ran}");
}

#[test]
fn g07_escape_sequences_are_escaped_in_a_pipe_and_exact_in_json() {
    let ran = call(&["echo", r#"{"text": "\u001b[1mbold\u001b[0m"}"#]);
    assert_eq!(ran.stdout, "\\u{1b}[1mbold\\u{1b}[0m\n");
    let ran = call(&["echo", r#"{"text": "\u001b[1mbold\u009b"}"#, "-o", "json"]);
    assert!(!ran.stdout.contains(|letter: char| letter.is_control() && letter != '\n'), "{ran}");
    assert!(ran.stdout.contains(r"\u001b[1mbold\u009b"), "{ran}");
}

#[test]
fn over_http_in_either_era_and_over_sse() {
    let sandbox = Sandbox::empty();
    for flags in [&["--era", "legacy"][..], &["--era", "modern"], &["--sse-only"]] {
        let server = sandbox.serve_http(flags);
        std::fs::write(sandbox.path("gripfast.toml"), url("web", &server.url)).unwrap();
        let ran = sandbox.run(&["call", WITHOUT_GATEWAY, "web", "add", r#"{"a": 20, "b": 22}"#]);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "42\n", ""), "{flags:?}");
    }
}

#[test]
fn junk_on_the_servers_stdout_stays_out_of_ours() {
    let ran = Sandbox::with_demo(&["--junk-on-stdout"]).run(&[
        "call",
        WITHOUT_GATEWAY,
        "demo",
        "echo",
        r#"{"text":"x"}"#,
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "x\n"), "{ran}");
}

#[test]
fn a_tool_error() {
    assert_snapshot!(call(&["fail", r#"{"message": "out of paper"}"#]), @"
    exit 5
    --- stdout
    out of paper
    --- stderr
    error: tool `fail` of server `demo` returned an error
    ");
}

#[test]
fn a_tool_error_for_programs() {
    assert_snapshot!(call(&["fail", "-o", "json"]), @r#"
    exit 5
    --- stdout
    {"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"gripfast-demo","title":"gripfast sample server","version":"0.2.0"}},"content":[{"text":"told to fail","type":"text"}],"isError":true,"resultType":"complete"}
    --- stderr
    error: tool `fail` of server `demo` returned an error
    "#);
}

#[test]
fn an_error_of_the_server() {
    assert_snapshot!(call(&["reject"]), @"
    exit 5
    --- stderr
    error: server `demo` answered with an error: told to reject (-32602)
    ");
}

#[test]
fn an_error_of_the_server_for_programs() {
    assert_snapshot!(call(&["reject", "-o", "json"]), @r#"
    exit 5
    --- stdout
    {"schema_version":1,"error":{"code":-32602,"message":"told to reject"}}
    --- stderr
    error: server `demo` answered with an error: told to reject (-32602)
    "#);
}

#[test]
fn c05_a_server_that_dies_in_the_call() {
    assert_snapshot!(call(&["crash"]), @"
    exit 4
    --- stderr
    error: connection to server `demo` lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again
      hint: check the effect before you repeat the call
    ");
}

#[test]
fn c01_a_failure_has_a_part_for_programs() {
    assert_snapshot!(call(&["crash", "-o", "json"]), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":"outcome_unknown","hint":"check the effect before you repeat the call","outcome":"unknown","retry_after_ms":null,"server":"demo","text":"connection to server `demo` lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again"}}
    --- stderr
    error: connection to server `demo` lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again
      hint: check the effect before you repeat the call
    "#);
}

#[test]
fn an_unknown_tool() {
    assert_snapshot!(call(&["ecko"]), @"
    exit 1
    --- stderr
    error: server `demo` has no tool named `ecko`
      hint: did you mean `echo`?
    ");
}

#[test]
fn an_unknown_tool_for_programs() {
    assert_snapshot!(call(&["ecko", "-o", "json"]), @r#"
    exit 1
    --- stdout
    {"schema_version":1,"error":{"code":"unknown_tool","hint":"did you mean `echo`?","outcome":"refused","retry_after_ms":null,"server":"demo","text":"server `demo` has no tool named `ecko`"}}
    --- stderr
    error: server `demo` has no tool named `ecko`
      hint: did you mean `echo`?
    "#);
}

#[test]
fn an_unknown_server() {
    assert_snapshot!(Sandbox::with_demo(&[]).run(&["call", WITHOUT_GATEWAY, "dem", "echo"]), @"
    exit 1
    --- stderr
    error: no server `dem` in `gripfast.toml`
      hint: did you mean `demo`?
    ");
}

#[test]
fn a_server_of_an_empty_config() {
    assert_snapshot!(Sandbox::with("").run(&["call", WITHOUT_GATEWAY, "demo", "echo"]), @"
    exit 1
    --- stderr
    error: no server `demo` in `gripfast.toml`
      hint: the file has no servers
    ");
}

#[test]
fn broken_json() {
    assert_snapshot!(call(&["echo", r#"{"text" "hello"}"#]), @r#"
    exit 1
    --- stderr
    error: the arguments are not JSON: line 1, column 9
      |
    1 | {"text" "hello"}
      |         ^
      hint: pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin
    "#);
}

#[test]
fn json_that_ends_too_soon() {
    assert_snapshot!(call(&["echo", r#"{"text": "hello""#]), @r#"
    exit 1
    --- stderr
    error: the arguments end too soon: line 1, column 17
      |
    1 | {"text": "hello"
      |                 ^
      hint: pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin
    "#);
}

#[test]
fn json_that_the_shell_has_eaten() {
    assert_snapshot!(call(&["echo", "{text: hello}"]), @r#"
    exit 1
    --- stderr
    error: the arguments are not JSON: line 1, column 2
      |
    1 | {text: hello}
      |  ^
      hint: pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin
    "#);
}

#[test]
fn a_bare_word() {
    assert_snapshot!(call(&["echo", "hello"]), @r#"
    exit 1
    --- stderr
    error: the arguments are not JSON: line 1, column 1
      |
    1 | hello
      | ^
      hint: pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin
    "#);
}

#[test]
fn an_empty_word() {
    assert_snapshot!(call(&["echo", ""]), @r#"
    exit 1
    --- stderr
    error: the arguments end too soon: line 1, column 1
      hint: pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin
    "#);
}

#[test]
fn broken_json_in_the_middle_of_a_long_line() {
    let long = format!(r#"{{"é": "{}", oops, "b": "{}"}}"#, "a".repeat(200), "b".repeat(200));
    assert_snapshot!(call(&["echo", &long]), @r#"
    exit 1
    --- stderr
    error: the arguments are not JSON: line 1, column 211
      |
    1 | aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", oops, "b": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbb
      |                                        ^
      hint: pass a JSON object in single quotes, such as '{"text": "hello"}', KEY=VALUE words, `@FILE`, or `-` for stdin
    "#);
}

#[test]
fn broken_json_on_a_later_line_of_stdin() {
    let sandbox = Sandbox::with_demo(&[]);
    assert_snapshot!(sandbox.run_on_stdin(&["call", WITHOUT_GATEWAY, "demo", "echo", "-"], "{\n  \"text\": tru\n}\n"), @r#"
    exit 1
    --- stderr
    error: the arguments on stdin are not JSON: line 2, column 14
      |
    2 |   "text": tru
      |              ^
    "#);
}

#[test]
fn json_that_is_no_object() {
    for (typed, found) in [("[1]", "a list"), ("7", "a number"), (r#""x""#, "a string"), ("null", "null")] {
        let ran = call(&["echo", typed]);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains(&format!("must be a JSON object, found {found}\n")), "{ran}");
    }
    assert_snapshot!(call(&["echo", "true"]), @r#"
    exit 1
    --- stderr
    error: the arguments must be a JSON object, found a boolean
      hint: name each argument: '{"text": "hello"}'
    "#);
}

#[test]
fn a_missing_argument_file() {
    assert_snapshot!(call(&["echo", "@missing.json"]), @"
    exit 1
    --- stderr
    error: cannot read the arguments in `missing.json`: No such file or directory (os error 2)
    ");
}

#[test]
fn an_argument_file_that_is_no_json() {
    let sandbox = Sandbox::with_demo(&[]).file("a.json", "text = 'toml'\n");
    assert_snapshot!(sandbox.run(&["call", WITHOUT_GATEWAY, "demo", "echo", "@a.json"]), @"
    exit 1
    --- stderr
    error: the arguments in `a.json` are not JSON: line 1, column 2
      |
    1 | text = 'toml'
      |  ^
    ");
}

#[test]
fn stdin_that_is_no_text() {
    use std::io::Write;
    let sandbox = Sandbox::with_demo(&[]);
    let mut child = sandbox
        .command(&["call", WITHOUT_GATEWAY, "demo", "echo", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\xff\xfe").unwrap();
    assert_snapshot!(sandbox.ran(child.wait_with_output().unwrap()), @"
    exit 1
    --- stderr
    error: cannot read the arguments on stdin: stream did not contain valid UTF-8
    ");
}

#[test]
fn an_unreachable_url() {
    let config = url("web", UNUSED_URL) + "timeouts = { reconnect_wait = '300ms' }\n";
    assert_snapshot!(Sandbox::with(&config).run(&["call", WITHOUT_GATEWAY, "web", "echo"]), @"
    exit 4
    --- stderr
    error: server `web` is still being reconnected (connection refused); the call was held and not sent
      hint: `--wait 1m` gives it more time
    ");
}

#[test]
fn a_missing_executable() {
    let config = "[servers.gone]\ncommand = 'no-such-program'\n";
    assert_snapshot!(Sandbox::with(config).run(&["call", WITHOUT_GATEWAY, "gone", "echo"]), @"
    exit 4
    --- stderr
    error: server `gone` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
      hint: install the command or correct `command` in the config
    ");
}

#[test]
fn an_unset_variable() {
    let config = "[servers.a]\ncommand = 'sh'\nenv = { TOKEN = '${env:MY_TOKEN}' }\n";
    assert_snapshot!(Sandbox::with(config).run(&["call", WITHOUT_GATEWAY, "a", "echo"]), @"
    exit 4
    --- stderr
    error: server `a` cannot work as configured: variable `MY_TOKEN` is not set
      hint: set the variable for the gripfast process, or correct the config
    ");
}

#[test]
fn a_badly_configured_server() {
    let config = "[servers.a]\ncommand = 'sh'\ntimeouts = { call = 'soon' }\n";
    assert_snapshot!(Sandbox::with(config).run(&["call", WITHOUT_GATEWAY, "a", "echo"]), @r#"
    exit 2
    --- stderr
    error: server `a` cannot work as configured: servers.a.timeouts.call: `soon` is not a duration (write whole numbers with units: "100ms", "30s", "5m", "1h30m")
      hint: `gripfast check` explains the config of `a`
    "#);
}

#[test]
fn a_login_is_needed() {
    let sandbox = Sandbox::empty();
    let server = sandbox.serve_http(&["--require-bearer", "secret"]);
    let sandbox = sandbox.file("gripfast.toml", &url("web", &server.url));
    assert_snapshot!(sandbox.run(&["call", WITHOUT_GATEWAY, "web", "echo", "-o", "json"]), @r#"
    exit 3
    --- stdout
    {"schema_version":1,"error":{"code":"needs_login","hint":"run `gripfast login web`, or correct its `headers`","needs_reauth":true,"outcome":"not_sent","retry_after_ms":[MS],"server":"web","text":"server `web` needs a login or another credential (not logged in: HTTP 401: unauthorized)"}}
    --- stderr
    error: server `web` needs a login or another credential (not logged in: HTTP 401: unauthorized)
      hint: run `gripfast login web`, or correct its `headers`
    "#);
}

#[test]
fn arguments_are_also_words_with_a_key_and_a_value() {
    let ran = call(&["add", "a=1", "b=2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "3\n"), "{ran}");
    let ran = call(&["echo", "text=7"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "7\n"), "{ran}");
}

#[test]
fn a_call_waits_for_a_ready_server_as_long_as_wait_says() {
    let config = crate::sandbox::stdio("demo", &["--start-delay", "1500ms"])
        + "timeouts = { reconnect_wait = '100ms' }\n";
    let sandbox = Sandbox::with(&config);
    let ran = sandbox.run(&["call", WITHOUT_GATEWAY, "demo", "counter"]);
    assert_eq!(ran.code, Some(4), "{ran}");
    let ran = sandbox.run(&["call", WITHOUT_GATEWAY, "demo", "counter", "--wait", "1m"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "1\n"), "{ran}");
}

#[test]
fn without_a_gateway_no_advice_needs_one() {
    let config = url("away", UNUSED_URL) + "timeouts = { reconnect_wait = '300ms' }\n";
    let ran = Sandbox::with(&config).run(&["call", WITHOUT_GATEWAY, "away", "echo", "-o", "json"]);
    assert_snapshot!(ran, @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":"reconnecting","hint":"`--wait 1m` gives it more time","outcome":"not_sent","retry_after_ms":[MS],"server":"away","text":"server `away` is still being reconnected (connection refused); the call was held and not sent"}}
    --- stderr
    error: server `away` is still being reconnected (connection refused); the call was held and not sent
      hint: `--wait 1m` gives it more time
    "#);
}

#[test]
fn a_call_that_takes_too_long() {
    let config = crate::sandbox::stdio("demo", &[]) + "timeouts = { call = '1s', progress = '1s' }\n";
    assert_snapshot!(Sandbox::with(&config).run(&["call", WITHOUT_GATEWAY, "demo", "sleep", r#"{"ms": 60000}"#]), @"
    exit 4
    --- stderr
    error: server `demo` gave no answer within 1 s; the connection is being checked
      hint: raise `timeouts.call` if the tool needs longer; check the effect before you repeat the call
    ");
}

#[test]
fn the_demo_server_can_keep_its_counter_across_calls() {
    let sandbox = Sandbox::empty();
    let count = sandbox.path("count");
    let flags = ["--counter-file", count.to_str().unwrap()];
    let sandbox = sandbox.file("gripfast.toml", &crate::sandbox::stdio("demo", &flags));
    for expected in ["1\n", "2\n"] {
        assert_eq!(sandbox.run(&["call", WITHOUT_GATEWAY, "demo", "counter"]).stdout, expected);
    }
}

#[test]
fn state_is_kept_in_the_named_state_directory() {
    let words = ["call", WITHOUT_GATEWAY, "demo", "echo", r#"{"text":"x"}"#];
    let sandbox = Sandbox::with_demo(&[]).wary();
    assert_eq!(sandbox.run(&[&words[..], &["--state-dir", "typed"]].concat()).code, Some(0));
    assert!(sandbox.path("typed").is_dir() && !sandbox.path("home/.local").exists());
    assert_eq!(sandbox.run(&words).code, Some(0));
    assert!(sandbox.path("home/.local/state/gripfast").is_dir(), "the platform's, without a wish");
}

#[test]
fn an_unusable_state_directory_is_a_warning_and_the_call_works() {
    let sandbox = Sandbox::with_demo(&[]).file("taken", "a file");
    let ran = sandbox.run(&[
        "call",
        WITHOUT_GATEWAY,
        "demo",
        "echo",
        r#"{"text":"x"}"#,
        "--state-dir",
        "taken/state",
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "x\n"), "{ran}");
    assert!(ran.stderr.contains("state is kept in memory only and is lost at exit"), "{ran}");
}
