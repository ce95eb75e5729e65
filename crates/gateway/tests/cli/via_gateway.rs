//! `gripfast tools` and `gripfast call` through a running gateway, and the selection of the gateway.

use crate::in_process_gateway::{InProcessGateway, ask, demo_gateway, gateway_with};
use crate::sandbox::{Sandbox, UNUSED_URL, stdio, url};
use insta::assert_snapshot;

#[test]
fn tools_are_listed_under_their_servers_own_names() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["tools"]), @"
    exit 0
    --- stdout
    SERVER  TOOL       CLIENT NAME      HINTS                  DESCRIPTION
    demo    echo       demo__echo       read-only, idempotent  Returns its text.
    demo    add        demo__add        read-only, idempotent  Adds two numbers.
    demo    sleep      demo__sleep      read-only, idempotent  Answers after the given time, with progress about every 100 ms if requested.
    demo    counter    demo__counter                           Adds to a counter and returns its value. Calling it twice counts twice.
    demo    fail       demo__fail       read-only, idempotent  Answers with a tool error (`isError`).
    demo    reject     demo__reject     read-only, idempotent  Answers with the JSON-RPC error -32602.
    demo    ask        demo__ask        read-only, idempotent  Asks the user of the client for a yes or no before it answers.
    demo    crash      demo__crash      destructive            Ends the server in the middle of this call.
    demo    misbehave  demo__misbehave  destructive            Shows a fault of real servers on purpose.
    ");
}

#[test]
fn h01_tools_and_calls_of_the_command_line_do_not_depend_on_the_exposure() {
    let (sandbox, running) = demo_gateway();
    let all = ask(&sandbox, &running, &["tools"]);
    let (sandbox, running) =
        gateway_with(&(stdio("demo", &[]) + "exposure = \"search\"\nalways = [\"add\"]\n"));
    running.until("demo", "ready");
    assert_eq!(ask(&sandbox, &running, &["tools"]).stdout, all.stdout);
    let echo = ask(&sandbox, &running, &["call", "demo", "echo", r#"{"text":"hi"}"#]);
    assert!(echo.stdout.contains("hi"), "{}", echo.stdout);
    let status = ask(&sandbox, &running, &["status"]).stdout;
    assert!(status.contains("exposure all: clients list 1 of 9 tools, about "), "{status}");
    let detail = ask(&sandbox, &running, &["status", "demo"]).stdout;
    assert!(detail.contains("clients find its tools by search"), "{detail}");
}

#[test]
fn json_has_each_tool_as_its_server_wrote_it() {
    let (sandbox, running) = demo_gateway();
    let through = ask(&sandbox, &running, &["tools", "-o", "json"]);
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &[]));
    let alone = sandbox.run(&["tools", "-o", "json", crate::sandbox::WITHOUT_GATEWAY]);
    let (listed, names) = through.stdout.split_once(r#","client_names":"#).unwrap();
    assert_eq!(format!("{listed}}}]}}\n"), alone.stdout);
    assert!(names.contains(r#""echo":"demo__echo""#), "{names}");
}

#[test]
fn b08_a_server_that_cannot_be_listed_is_a_row_of_the_table() {
    let config = [
        &stdio("demo", &[]),
        &(stdio("asleep", &[]) + "lazy = true\n"),
        "[servers.missing]\ncommand = 'no-such-program'\n",
        "[servers.off]\ncommand = 'npx'\ndisabled = true\n",
    ];
    let (sandbox, running) = gateway_with(&config.concat());
    running.until("missing", "config_error");
    let ran = ask(&sandbox, &running, &["tools"]);
    let rows: Vec<&str> = ran.stdout.lines().filter(|line| !line.starts_with("demo ")).collect();
    assert_snapshot!(format!("exit {:?}\n{}\n---\n{}", ran.code, rows.join("\n"), ran.stderr), @"
    exit Some(0)
    SERVER   TOOL       CLIENT NAME      HINTS                  DESCRIPTION
    asleep   -                           error                  server `asleep` has not been started yet
    missing  -                           error                  server `missing` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
    ---
      hint: a call starts it
      hint: `gripfast doctor missing` shows what to correct
    ");
    assert_snapshot!(ask(&sandbox, &running, &["tools", "missing"]), @"
    exit 4
    --- stderr
    error: server `missing` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
      hint: `gripfast doctor missing` shows what to correct
    ");
    assert_snapshot!(ask(&sandbox, &running, &["tools", "off"]), @"
    exit 4
    --- stderr
    error: server `off` is disabled in the config
      hint: `gripfast enable off` enables it
    ");
}

#[test]
fn a_call_prints_the_text_of_the_tool() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "add", r#"{"a": 1, "b": 2}"#]), @"
    exit 0
    --- stdout
    3
    ");
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "echo", r#"{"text": "x"}"#, "-o", "json"]), @r#"
    exit 0
    --- stdout
    {"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"gripfast-demo","title":"gripfast sample server","version":"0.2.0"}},"content":[{"text":"x","type":"text"}],"resultType":"complete","structuredContent":{"text":"x"}}
    "#);
}

#[cfg(unix)]
#[test]
fn a_person_at_a_terminal_answers_an_elicitation() {
    use crate::trust::at_a_terminal;
    for flags in [&["--era", "legacy"][..], &["--era", "modern"]] {
        let sandbox = Sandbox::with_demo(flags);
        let serving = crate::gateway_process::GatewayProcess::start(&sandbox, &[]);
        let through = ["call", "demo", "ask", "question=Really?", "--url", &serving.url];
        let alone = ["call", crate::sandbox::WITHOUT_GATEWAY, "demo", "ask", "question=Really?"];
        for words in [&through[..], &alone] {
            let (code, shown) = at_a_terminal(&sandbox, words, "perhaps\ny\n");
            assert!(code == Some(0) && shown.contains("server `demo` asks: Really?"), "{words:?}: {shown}");
            assert!(shown.contains("expected y or n"), "{words:?}: {shown}");
            assert!(shown.ends_with("the answer was yes\n"), "{words:?}: {shown}");
            let (code, shown) = at_a_terminal(&sandbox, words, "\u{4}");
            assert!(
                code == Some(0) && shown.ends_with("there was no answer: decline\n"),
                "{words:?}: {shown}"
            );
            let ran = sandbox.run(words);
            assert!(!ran.stderr.contains("asks") && !ran.stdout.contains("the answer was"), "{ran}");
        }
    }
}

/// Bash completion script, run by bash if it is installed.
#[cfg(unix)]
#[test]
fn a_shell_completes_the_names_of_servers_and_tools() {
    let (sandbox, running) = gateway_with(&(stdio("demo", &[]) + &stdio("other", &[]) + "lazy = true\n"));
    let there = [("GRIPFAST_URL", running.url.as_str())];
    let completed = |words: &[&str]| {
        let ran = sandbox.run_with(&[&["complete"], words].concat(), &there);
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{words:?}: {ran}");
        ran.stdout
    };
    assert_eq!(completed(&["call", ""]), "demo\nother\n");
    assert_eq!(completed(&["status", "-o", "json", "o"]), "other\n");
    assert_eq!(completed(&["call", "demo", "c"]), "counter\ncrash\n");
    assert_eq!(completed(&["serve", ""]), "");
    let sandbox = sandbox.file("gripfast.toml", &stdio("of-the-config", &[]));
    assert_eq!(sandbox.run(&["complete", "call", "of"]).stdout, "of-the-config\n");
    let script = "PATH=$1:$PATH; . <(gripfast completions bash)
        COMP_WORDS=(gripfast call demo ec); COMP_CWORD=3; _gripfast_names gripfast ec demo
        echo \"${COMPREPLY[*]}\"; COMP_WORDS=(gripfast stat); COMP_CWORD=1; _gripfast_names gripfast stat gripfast
        echo \"${COMPREPLY[*]}\"";
    let folder = std::path::Path::new(crate::sandbox::GRIPFAST).parent().unwrap();
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", script, "bash"]).arg(folder).env("GRIPFAST_URL", &running.url);
    bash.env("HOME", sandbox.path("home")).current_dir(sandbox.path("home"));
    if let Ok(output) = bash.output() {
        let ran = sandbox.ran(output);
        assert_eq!(ran.stdout, "echo\nstatus\n", "{ran}");
    }
}

#[test]
fn arguments_are_also_words_with_a_key_and_a_value() {
    let (sandbox, running) = demo_gateway();
    let ran = ask(&sandbox, &running, &["call", "demo", "add", "a=1", "b=2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "3\n"), "{ran}");
    // The schema of `echo` requires text.
    let ran = ask(&sandbox, &running, &["call", "demo", "echo", "text=7", "-o", "json"]);
    assert!(ran.code == Some(0) && ran.stdout.contains(r#""text":"7""#), "{ran}");
}

#[test]
fn a_tool_is_shown_with_its_names_and_its_schema() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["tools", "demo", "add"]), @r#"
    exit 0
    --- stdout
    add
    client name: demo__add
    hints: read-only, idempotent

    Adds two numbers.

    arguments (JSON Schema):
    {
      "additionalProperties": false,
      "properties": {
        "a": {
          "type": "number"
        },
        "b": {
          "type": "number"
        }
      },
      "required": [
        "a",
        "b"
      ],
      "type": "object"
    }

    structured result (JSON Schema):
    {
      "additionalProperties": false,
      "properties": {
        "sum": {
          "type": "number"
        }
      },
      "required": [
        "sum"
      ],
      "type": "object"
    }
    "#);
    assert_snapshot!(ask(&sandbox, &running, &["tools", "demo", "ad"]), @"
    exit 1
    --- stderr
    error: server `demo` has no tool named `ad`
      hint: did you mean `add`?
    ");
}

#[test]
fn resources_are_listed_and_read() {
    let (sandbox, running) = gateway_with(&(stdio("demo", &[]) + &stdio("off", &[]) + "disabled = true\n"));
    assert_snapshot!(ask(&sandbox, &running, &["resources"]), @"
    exit 0
    --- stdout
    SERVER  URI                 NAME      DESCRIPTION
    demo    demo://greeting     greeting  A friendly word.
    demo    demo://counter      counter   Value of the counter; changes with every `counter` call.
    demo    demo://echo/{text}  echo      A resource that contains its own name.
    ");
    let uri = "demo://greeting";
    let read = ask(&sandbox, &running, &["resources", "demo", uri]);
    let templated = ask(&sandbox, &running, &["resources", "demo", "demo://echo/hello"]);
    let missing = ask(&sandbox, &running, &["resources", "demo", "demo://nothing"]);
    assert_snapshot!(format!("{read}\n{templated}\n{missing}"), @"
    exit 0
    --- stdout
    Hello from the sample server.

    exit 0
    --- stdout
    hello

    exit 1
    --- stderr
    error: unknown resource: demo://nothing
      hint: `gripfast resources demo` lists its resources
    ");
    let json = ask(&sandbox, &running, &["resources", "demo", uri, "-o", "json"]);
    assert!(json.code == Some(0) && json.stdout.contains(r#""contents":[{"#), "{json}");
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &[]));
    let alone = sandbox.run(&["resources", crate::sandbox::WITHOUT_GATEWAY, "demo", uri]);
    assert_eq!((alone.code, &alone.stdout), (Some(0), &read.stdout), "{alone}");
}

#[test]
fn prompts_are_listed_and_got() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["prompts"]), @"
    exit 0
    --- stdout
    SERVER  PROMPT  CLIENT NAME  ARGUMENTS  DESCRIPTION
    demo    greet   demo__greet  name       Asks for a greeting.
    ");
    let got = ask(&sandbox, &running, &["prompts", "demo", "greet", "name=Ann"]);
    let unknown = ask(&sandbox, &running, &["prompts", "demo", "great"]);
    assert_snapshot!(format!("{got}\n{unknown}"), @"
    exit 0
    --- stdout
    user: Please greet Ann in one friendly sentence.

    exit 1
    --- stderr
    error: server `demo` has no prompt named `great`
      hint: did you mean `greet`?
    ");
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &[]));
    let alone = sandbox.run(&["prompts", crate::sandbox::WITHOUT_GATEWAY, "demo", "greet", "name=Ann"]);
    assert_eq!((alone.code, &alone.stdout), (Some(0), &got.stdout), "{alone}");
    let listed = sandbox.run(&["prompts", crate::sandbox::WITHOUT_GATEWAY, "-o", "json"]);
    assert!(listed.stdout.contains(r#"{"server":"demo","prompts":[{"#), "{listed}");
}

#[test]
fn a_call_does_not_need_the_prefix_of_the_config() {
    let (sandbox, running) = gateway_with(&(stdio("demo", &[]) + "prefix = 'other'\n"));
    let ran = ask(&sandbox, &running, &["call", "demo", "echo", r#"{"text": "x"}"#]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "x\n"), "{ran}");
}

#[test]
fn a_lazy_server_is_started_by_a_call() {
    let config = stdio("demo", &[]) + &stdio("asleep", &[]) + "lazy = true\n";
    let (sandbox, running) = gateway_with(&config);
    let ran = ask(&sandbox, &running, &["call", "asleep", "echo", r#"{"text": "awake"}"#]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "awake\n"), "{ran}");
}

#[test]
fn exit_codes_follow_the_contract() {
    let sandbox = Sandbox::empty();
    let locked = sandbox.serve_http(&["--require-bearer", "secret"]);
    let config = [
        stdio("demo", &[]) + "tools = { deny = ['counter'] }\n",
        url("locked", &locked.url),
        url("away", UNUSED_URL) + "timeouts = { reconnect_wait = '300ms' }\n",
    ];
    let running = InProcessGateway::with(&sandbox, &config.concat());
    running.until("demo", "ready");
    running.until("locked", "needs_login");
    let call = |server: &str, tool: &str| ask(&sandbox, &running, &["call", server, tool]);
    let told = [
        ("demo", "fail"),
        ("demo", "reject"),
        ("demo", "ehco"),
        ("demo", "counter"),
        ("dmeo", "echo"),
        ("locked", "echo"),
        ("away", "echo"),
    ]
    .map(|(server, tool)| format!("{server} {tool}: {}", call(server, tool)));
    let filters = vec![(r"; next attempt in [\d.]+ m?s", "")];
    insta::with_settings!({ filters => filters }, { assert_snapshot!(told.join("\n"), @"
    demo fail: exit 5
    --- stdout
    told to fail
    --- stderr
    error: tool `fail` of server `demo` returned an error

    demo reject: exit 5
    --- stderr
    error: server `demo` answered with an error: told to reject (-32602)

    demo ehco: exit 1
    --- stderr
    error: server `demo` has no tool named `ehco`
      hint: did you mean `echo`?

    demo counter: exit 6
    --- stderr
    error: tool `counter` of server `demo` may not be called: denied by `counter` in servers.demo.tools.deny
      hint: `gripfast policy test local demo counter` explains the decision

    dmeo echo: exit 1
    --- stderr
    error: the gateway at http://127.0.0.1:[PORT] has no server `dmeo`
      hint: did you mean `demo`?

    locked echo: exit 3
    --- stderr
    error: server `locked` needs a login or another credential (not logged in: HTTP 401: unauthorized)
      hint: run `gripfast login locked`, or correct its `headers`

    away echo: exit 4
    --- stderr
    error: server `away` has not been listed yet: connection refused
      hint: gripfast retries automatically
    ") });
}

#[test]
fn a_tool_denied_by_the_config_names_the_deny_rule() {
    let (sandbox, running) = gateway_with(&(stdio("demo", &[]) + "tools = { deny = ['*'] }\n"));
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "echo"]), @"
    exit 6
    --- stderr
    error: tool `echo` of server `demo` may not be called: denied by `*` in servers.demo.tools.deny
      hint: `gripfast policy test local demo echo` explains the decision
    ");
}

#[test]
fn a_failure_as_json_is_the_one_of_the_gateway() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "crash", "-o", "json"]), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":"outcome_unknown","hint":"check the effect before you repeat the call","outcome":"unknown","retry_after_ms":null,"server":"demo","text":"connection to server `demo` lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again"}}
    --- stderr
    error: connection to server `demo` lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again
      hint: check the effect before you repeat the call
    "#);
}

#[test]
fn without_a_gateway_the_next_step_is_printed() {
    let sandbox = Sandbox::with_demo(&[]);
    assert_snapshot!(sandbox.run(&["tools"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway; `--config ./gripfast.toml` works without a gateway
    ");
    assert_snapshot!(sandbox.run(&["call", "demo", "echo", "-o", "json"]), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":null,"hint":"`--url` names another gateway; `--config ./gripfast.toml` works without a gateway","text":"no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`"}}
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway; `--config ./gripfast.toml` works without a gateway
    "#);
    assert_snapshot!(Sandbox::empty().run(&["tools"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway; `--config FILE` works without a gateway
    ");
    assert_snapshot!(Sandbox::empty().run(&["tools", "--url", "127.0.0.1:1"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway
    ");
}

#[test]
fn the_gateway_of_the_config_is_found() {
    let (sandbox, running) = demo_gateway();
    let address = running.url.strip_prefix("http://").unwrap();
    let sandbox = sandbox.file("gripfast.toml", &format!("[gateway]\nlisten = {address:?}\n"));
    let asked = |words: &[&str]| {
        let output = sandbox.command(words).env_remove("GRIPFAST_URL").output().unwrap();
        sandbox.ran(output)
    };
    for words in [&["status"][..], &["tools"], &["call", "demo", "echo", r#"{"text":"x"}"#], &["calls"]] {
        let ran = asked(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran}");
    }
    assert!(asked(&["status"]).stdout.contains("demo"));
    assert_eq!(asked(&["reconnect", "demo"]).code, Some(0));
    assert_eq!(asked(&["status", "--config", "gripfast.toml"]).code, Some(0));
}

/// Order of the help of `--url`: `$GRIPFAST_URL`, then `gateway.listen` of the config.
#[test]
fn gripfast_url_wins_over_a_named_config() {
    let (sandbox, running) = demo_gateway();
    let sandbox = sandbox.file("other.toml", "[gateway]\nlisten = '127.0.0.1:1'\n");
    let there = [("GRIPFAST_URL", running.url.as_str())];
    let ran = sandbox.run_with(&["status", "--config", "other.toml"], &there);
    assert!(ran.code == Some(0) && ran.stdout.contains("demo"), "{ran}");
    let ran = sandbox.run_with(&["status", "--config", "other.toml"], &[("GRIPFAST_URL", "")]);
    assert_eq!(ran.code, Some(4), "{ran}");
    let words = ["status", "--config", "other.toml", "--url", "http://127.0.0.1:1"];
    assert_eq!(sandbox.run_with(&words, &there).code, Some(4), "what is typed wins over both");
}

#[test]
fn a_config_with_port_0_does_not_tell_the_gateways_address() {
    let sandbox = Sandbox::with("[gateway]\nlisten = '127.0.0.1:0'\n");
    let nowhere = [("GRIPFAST_URL", "")];
    assert_snapshot!(sandbox.run_with(&["status", "--config", "gripfast.toml"], &nowhere), @"
    exit 1
    --- stderr
    error: `gateway.listen` has port 0, so each start picks another port
      hint: pass the address that `gripfast serve` printed with `--url`
    ");
}

#[test]
fn an_invalid_gripfast_url() {
    assert_snapshot!(Sandbox::empty().run_with(&["tools"], &[("GRIPFAST_URL", "ftp://x")]), @"
    exit 1
    --- stderr
    error: $GRIPFAST_URL is `ftp://x`: expected http://ADDR:PORT or https://NAME
    ");
}
