//! `gripfast tools`: tables and JSON, and servers that cannot be listed.

use crate::sandbox::{Sandbox, UNUSED_URL, WITHOUT_GATEWAY, stdio, url};
use insta::assert_snapshot;

#[test]
fn a_table_for_people() {
    assert_snapshot!(Sandbox::with_demo(&[]).run(&["tools", WITHOUT_GATEWAY]), @"
    exit 0
    --- stdout
    SERVER  TOOL       HINTS                  DESCRIPTION
    demo    echo       read-only, idempotent  Returns its text.
    demo    add        read-only, idempotent  Adds two numbers.
    demo    sleep      read-only, idempotent  Answers after the given time, with progress about every 100 ms if requested.
    demo    counter                           Adds to a counter and returns its value. Calling it twice counts twice.
    demo    fail       read-only, idempotent  Answers with a tool error (`isError`).
    demo    reject     read-only, idempotent  Answers with the JSON-RPC error -32602.
    demo    ask        read-only, idempotent  Asks the user of the client for a yes or no before it answers.
    demo    crash      destructive            Ends the server in the middle of this call.
    demo    misbehave  destructive            Shows a fault of real servers on purpose.
    ");
}

#[test]
fn json_has_each_tool_as_its_server_wrote_it() {
    let ran = Sandbox::with_demo(&["--page-size", "3"]).run(&["tools", WITHOUT_GATEWAY, "-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    let echo =
        r#"{"schema_version":1,"servers":[{"server":"demo","tools":[{"annotations":{"idempotentHint":true,"#;
    assert!(ran.stdout.starts_with(echo), "{ran}");
    assert_eq!(ran.stdout.lines().count(), 1);
    let names = ran.stdout.matches(r#""inputSchema""#).count();
    assert_eq!(names, 9, "all pages: {ran}");
}

#[test]
fn over_http() {
    let sandbox = Sandbox::empty();
    let server = sandbox.serve_http(&[]);
    let sandbox = sandbox.file("gripfast.toml", &url("web", &server.url));
    let ran = sandbox.run(&["tools", WITHOUT_GATEWAY, "web"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    assert_eq!(ran.stdout.lines().count(), 10, "{ran}");
}

#[test]
fn only_the_named_server_is_started() {
    let sandbox = Sandbox::empty();
    let pid_file = sandbox.path("pid");
    let config = [stdio("one", &[]), stdio("two", &["--pid-file", pid_file.to_str().unwrap()])].concat();
    let sandbox = sandbox.file("gripfast.toml", &config);
    let ran = sandbox.run(&["tools", WITHOUT_GATEWAY, "one"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(!ran.stdout.contains("\ntwo") && !pid_file.exists());
}

#[test]
fn b08_a_failing_server_is_a_row_and_the_others_still_show() {
    let config = [
        &stdio("good", &[]),
        "[servers.missing]\ncommand = 'no-such-program'\n",
        "[servers.wrong]\ncomand = 'npx'\n",
        "[servers.off]\ncommand = 'npx'\ndisabled = true\n",
    ];
    let ran = Sandbox::with(&config.concat()).run(&["tools", WITHOUT_GATEWAY]);
    let rows: Vec<&str> = ran.stdout.lines().filter(|line| !line.contains("good")).collect();
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_snapshot!(format!("{}\n---\n{}", rows.join("\n"), ran.stderr), @"
    SERVER   TOOL       HINTS                  DESCRIPTION
    missing  -          error                  server `missing` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
    wrong    -          error                  server `wrong` cannot work as configured: servers.wrong.comand: unknown key `comand` (did you mean `command`?)
    ---
      hint: install the command or correct `command` in the config
      hint: `gripfast check` explains the config of `wrong`
    ");
}

#[test]
fn a_failing_server_for_programs() {
    let config = "[servers.missing]\ncommand = 'no-such-program'\n[servers.wrong]\ncomand = 'npx'\n";
    assert_snapshot!(Sandbox::with(config).run(&["tools", WITHOUT_GATEWAY, "-o", "json"]), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"servers":[{"server":"missing","error":{"code":"unreachable","hint":"install the command or correct `command` in the config","outcome":"not_sent","retry_after_ms":[MS],"server":"missing","text":"server `missing` cannot work as configured: command `no-such-program` was not found on the PATH of its environment"}},{"server":"wrong","error":{"code":"unreachable","hint":"`gripfast check` explains the config of `wrong`","outcome":"not_sent","retry_after_ms":null,"server":"wrong","text":"server `wrong` cannot work as configured: servers.wrong.comand: unknown key `comand` (did you mean `command`?)"}}]}
    "#);
}

#[test]
fn all_failed() {
    let config = [&url("a", UNUSED_URL), "[servers.b]\ncommand = 'no-such-program'\n"].concat();
    assert_snapshot!(Sandbox::with(&config).run(&["tools", WITHOUT_GATEWAY, "--wait", "3s"]), @"
    exit 4
    --- stderr
    error: server `a` has not been listed yet: connection refused
      hint: `--wait 1m` gives it more time
    error: server `b` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
      hint: install the command or correct `command` in the config
    ");
}

#[test]
fn an_unset_variable() {
    let config = "[servers.a]\nurl = 'http://localhost/mcp'\nheaders = { Authorization = '${env:TOKEN}' }\n";
    assert_snapshot!(Sandbox::with(config).run(&["tools", WITHOUT_GATEWAY]), @"
    exit 4
    --- stderr
    error: server `a` cannot work as configured: variable `TOKEN` is not set
      hint: set the variable for the gripfast process, or correct the config
    ");
}

#[test]
fn a_server_that_wants_a_login() {
    let sandbox = Sandbox::empty();
    let server = sandbox.serve_http(&["--require-bearer", "secret"]);
    let sandbox = sandbox.file("gripfast.toml", &url("web", &server.url));
    assert_snapshot!(sandbox.run(&["tools", WITHOUT_GATEWAY]), @"
    exit 3
    --- stderr
    error: server `web` needs a login or another credential (not logged in: HTTP 401: unauthorized)
      hint: run `gripfast login web`, or correct its `headers`
    ");
}

#[test]
fn a_server_that_is_not_mcp() {
    let sandbox = Sandbox::empty();
    let server = sandbox.serve_http(&[]);
    let sandbox = sandbox.file("gripfast.toml", &url("web", &server.url.replace("/mcp", "/other")));
    assert_snapshot!(sandbox.run(&["tools", WITHOUT_GATEWAY, "--wait", "2s"]), @"
    exit 4
    --- stderr
    error: server `web` cannot work as configured: no MCP server at this URL: HTTP 404
      hint: check the `url` of `web` (many servers end in /mcp or /sse)
    ");
}

#[test]
fn a_server_that_exits_at_start() {
    // Time for one attempt on a loaded machine, and not enough attempts to park the server.
    let config =
        [&stdio("demo", &["--exit-at-start", "always", "--exit-code", "7"]), "restart = { max = 1000 }\n"];
    let sandbox = Sandbox::with(&config.concat());
    assert_snapshot!(sandbox.run(&["tools", WITHOUT_GATEWAY, "--wait", "3s"]), @"
    exit 4
    --- stderr
    error: server `demo` has not been listed yet: exited with code 7; stderr: demo server: exiting at start, as told
      hint: `--wait 1m` gives it more time
    ");
}

#[test]
fn a_server_that_never_answers() {
    let sandbox = Sandbox::with_demo(&["--never-answer-initialize"]);
    assert_snapshot!(sandbox.run(&["tools", WITHOUT_GATEWAY, "--wait", "300ms"]), @"
    exit 4
    --- stderr
    error: server `demo` has not been listed yet
      hint: `--wait 1m` gives it more time
    ");
}

#[test]
fn an_unknown_server() {
    assert_snapshot!(Sandbox::with_demo(&[]).run(&["tools", WITHOUT_GATEWAY, "dmeo"]), @"
    exit 1
    --- stderr
    error: no server `dmeo` in `gripfast.toml`
      hint: did you mean `demo`?
    ");
}

#[test]
fn an_unknown_server_for_programs() {
    assert_snapshot!(Sandbox::with_demo(&[]).run(&["tools", WITHOUT_GATEWAY, "dmeo", "-o", "json"]), @r#"
    exit 1
    --- stdout
    {"schema_version":1,"error":{"code":"unknown_server","hint":"did you mean `demo`?","outcome":"not_sent","retry_after_ms":null,"server":"dmeo","text":"no server `dmeo` in `gripfast.toml`"}}
    --- stderr
    error: no server `dmeo` in `gripfast.toml`
      hint: did you mean `demo`?
    "#);
}

#[test]
fn a_server_that_resembles_none() {
    let config = [url("github", UNUSED_URL), url("docs", UNUSED_URL)].concat();
    assert_snapshot!(Sandbox::with(&config).run(&["tools", WITHOUT_GATEWAY, "weather"]), @"
    exit 1
    --- stderr
    error: no server `weather` in `gripfast.toml`
      hint: its servers are `github`, `docs`
    ");
}

#[test]
fn a_disabled_server_by_name() {
    let config = "[servers.off]\ncommand = 'npx'\ndisabled = true\n";
    assert_snapshot!(Sandbox::with(config).run(&["tools", WITHOUT_GATEWAY, "off"]), @"
    exit 4
    --- stderr
    error: server `off` is disabled in the config
      hint: `gripfast enable off` enables it
    ");
}

#[test]
fn no_servers() {
    assert_snapshot!(Sandbox::with("").run(&["tools", WITHOUT_GATEWAY]), @"
    exit 0
    --- stderr
    no servers in `gripfast.toml`
    ");
    assert_eq!(
        Sandbox::with("").run(&["tools", WITHOUT_GATEWAY, "-o", "json"]).stdout,
        "{\"schema_version\":1,\"servers\":[]}\n"
    );
}

#[test]
fn no_config() {
    assert_snapshot!(Sandbox::empty().run(&["tools", "--config", "missing.toml"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `missing.toml`
      hint: `gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; `--config FILE` or $GRIPFAST_CONFIG names another file, which may be the JSON or YAML of another client
    ");
}

#[test]
fn an_invalid_config() {
    assert_snapshot!(Sandbox::with("[servers.a\n").run(&["tools", WITHOUT_GATEWAY]), @"
    exit 2
    --- stderr
    error: unclosed table, expected `]`
     --> gripfast.toml:1:11
      |
    1 | [servers.a
      |           ^
    ");
}
