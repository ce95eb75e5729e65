//! `gripfast tools` and `gripfast call` through a running gateway, and which gateway is meant.

use crate::running::{Running, ask, scene, scene_of};
use crate::sandbox::{NOBODY, Sandbox, stdio, url};
use insta::assert_snapshot;

#[test]
fn tools_are_listed_under_their_servers_own_names() {
    let (sandbox, running) = scene();
    assert_snapshot!(ask(&sandbox, &running, &["tools"]), @"
    exit 0
    --- stdout
    SERVER  TOOL       CLIENT NAME      HINTS                  DESCRIPTION
    demo    echo       demo__echo       read-only, idempotent  Says what it was told.
    demo    add        demo__add        read-only, idempotent  Adds two numbers.
    demo    sleep      demo__sleep      read-only, idempotent  Answers after a while, with progress about every 100 ms for those who ask for it.
    demo    counter    demo__counter                           Counts, and says how far it got. Calling it twice counts twice.
    demo    fail       demo__fail       read-only, idempotent  Answers with a tool error (`isError`).
    demo    reject     demo__reject     read-only, idempotent  Answers with the JSON-RPC error -32602.
    demo    ask        demo__ask        read-only, idempotent  Asks the person behind the client for a yes or no before it answers.
    demo    crash      demo__crash      destructive            Ends the server in the middle of this call.
    demo    misbehave  demo__misbehave  destructive            Does on purpose what servers do by accident.
    ");
}

#[test]
fn json_has_each_tool_as_its_server_wrote_it() {
    let (sandbox, running) = scene();
    let through = ask(&sandbox, &running, &["tools", "-o", "json"]);
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &[]));
    let alone = sandbox.run(&["tools", "-o", "json", crate::sandbox::ALONE]);
    let (listed, names) = through.stdout.split_once(r#","client_names":"#).unwrap();
    assert_eq!(format!("{listed}}}]}}\n"), alone.stdout);
    assert!(names.contains(r#""echo":"demo__echo""#), "{names}");
}

#[test]
fn b08_a_server_that_cannot_be_listed_is_a_row() {
    let config = [
        &stdio("demo", &[]),
        &(stdio("asleep", &[]) + "lazy = true\n"),
        "[servers.missing]\ncommand = 'no-such-program'\n",
        "[servers.off]\ncommand = 'npx'\ndisabled = true\n",
    ];
    let (sandbox, running) = scene_of(&config.concat());
    running.until("missing", "config_error");
    let ran = ask(&sandbox, &running, &["tools"]);
    let rows: Vec<&str> = ran.stdout.lines().filter(|line| !line.starts_with("demo ")).collect();
    assert_snapshot!(format!("exit {:?}\n{}\n---\n{}", ran.code, rows.join("\n"), ran.stderr), @"
    exit Some(0)
    SERVER   TOOL       CLIENT NAME      HINTS                  DESCRIPTION
    asleep   -                           error                  upstream `asleep` was never started
    missing  -                           error                  upstream `missing` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
    ---
      hint: a call starts it
      hint: `gripfast doctor missing` says what to correct
    ");
    assert_snapshot!(ask(&sandbox, &running, &["tools", "missing"]), @"
    exit 4
    --- stderr
    error: upstream `missing` cannot work as configured: command `no-such-program` was not found on the PATH of its environment
      hint: `gripfast doctor missing` says what to correct
    ");
    assert_snapshot!(ask(&sandbox, &running, &["tools", "off"]), @"
    exit 4
    --- stderr
    error: upstream `off` is disabled in the config
      hint: `gripfast enable off` takes `disabled` out of its table
    ");
}

#[test]
fn a_call_prints_what_the_tool_says() {
    let (sandbox, running) = scene();
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "add", r#"{"a": 1, "b": 2}"#]), @"
    exit 0
    --- stdout
    3
    ");
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "echo", r#"{"text": "x"}"#, "-o", "json"]), @r#"
    exit 0
    --- stdout
    {"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"gripfast-demo","title":"gripfast sample server","version":"0.1.0"}},"content":[{"text":"x","type":"text"}],"resultType":"complete","structuredContent":{"text":"x"}}
    "#);
}

#[cfg(unix)]
#[test]
fn a_person_at_a_terminal_answers_what_the_server_asks() {
    use crate::trust::at_a_terminal;
    for flags in [&["--era", "legacy"][..], &["--era", "modern"]] {
        let sandbox = Sandbox::with_demo(flags);
        let serving = crate::serving::Serving::start(&sandbox, &[]);
        let through = ["call", "demo", "ask", "question=Really?", "--url", &serving.url];
        let alone = ["call", crate::sandbox::ALONE, "demo", "ask", "question=Really?"];
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

/// The script of bash, run by bash where there is one.
#[cfg(unix)]
#[test]
fn a_shell_completes_the_names_of_servers_and_tools() {
    let (sandbox, running) = scene_of(&(stdio("demo", &[]) + &stdio("other", &[]) + "lazy = true\n"));
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
    let (sandbox, running) = scene();
    let ran = ask(&sandbox, &running, &["call", "demo", "add", "a=1", "b=2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "3\n"), "{ran}");
    // The schema of `echo` wants text.
    let ran = ask(&sandbox, &running, &["call", "demo", "echo", "text=7", "-o", "json"]);
    assert!(ran.code == Some(0) && ran.stdout.contains(r#""text":"7""#), "{ran}");
}

#[test]
fn a_tool_is_shown_with_its_names_and_its_schema() {
    let (sandbox, running) = scene();
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
    error: upstream `demo` has no tool named `ad`
      hint: did you mean `add`?
    ");
}

#[test]
fn resources_are_listed_and_read() {
    let (sandbox, running) = scene_of(&(stdio("demo", &[]) + &stdio("off", &[]) + "disabled = true\n"));
    assert_snapshot!(ask(&sandbox, &running, &["resources"]), @"
    exit 0
    --- stdout
    SERVER  URI                 NAME      DESCRIPTION
    demo    demo://greeting     greeting  A friendly word.
    demo    demo://counter      counter   How far the counter got; changes with every `counter` call.
    demo    demo://echo/{text}  echo      A resource that says its own name.
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
    let alone = sandbox.run(&["resources", crate::sandbox::ALONE, "demo", uri]);
    assert_eq!((alone.code, &alone.stdout), (Some(0), &read.stdout), "{alone}");
}

#[test]
fn prompts_are_listed_and_got() {
    let (sandbox, running) = scene();
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
    error: upstream `demo` has no prompt named `great`
      hint: did you mean `greet`?
    ");
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &[]));
    let alone = sandbox.run(&["prompts", crate::sandbox::ALONE, "demo", "greet", "name=Ann"]);
    assert_eq!((alone.code, &alone.stdout), (Some(0), &got.stdout), "{alone}");
    let listed = sandbox.run(&["prompts", crate::sandbox::ALONE, "-o", "json"]);
    assert!(listed.stdout.contains(r#"{"server":"demo","prompts":[{"#), "{listed}");
}

#[test]
fn a_prefix_of_the_config_is_no_concern_of_whoever_calls() {
    let (sandbox, running) = scene_of(&(stdio("demo", &[]) + "prefix = 'other'\n"));
    let ran = ask(&sandbox, &running, &["call", "demo", "echo", r#"{"text": "x"}"#]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "x\n"), "{ran}");
}

#[test]
fn a_lazy_server_is_started_by_a_call() {
    let config = stdio("demo", &[]) + &stdio("asleep", &[]) + "lazy = true\n";
    let (sandbox, running) = scene_of(&config);
    let ran = ask(&sandbox, &running, &["call", "asleep", "echo", r#"{"text": "awake"}"#]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "awake\n"), "{ran}");
}

#[test]
fn exit_codes_are_those_of_the_contract() {
    let sandbox = Sandbox::empty();
    let locked = sandbox.serve_http(&["--require-bearer", "secret"]);
    let config = [
        stdio("demo", &[]) + "tools = { deny = ['counter'] }\n",
        url("locked", &locked.url),
        url("away", NOBODY) + "timeouts = { reconnect_wait = '300ms' }\n",
    ];
    let running = Running::with(&sandbox, &config.concat());
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
    let filters = vec![(r"; next try in [\d.]+ m?s", "")];
    insta::with_settings!({ filters => filters }, { assert_snapshot!(told.join("\n"), @"
    demo fail: exit 5
    --- stdout
    told to fail
    --- stderr
    error: tool `fail` of `demo` answered that it failed

    demo reject: exit 5
    --- stderr
    error: server `demo` answered with an error: told to reject (-32602)

    demo ehco: exit 1
    --- stderr
    error: upstream `demo` has no tool named `ehco`
      hint: did you mean `echo`?

    demo counter: exit 6
    --- stderr
    error: tool `counter` of upstream `demo` may not be called: denied by `counter` in servers.demo.tools.deny
      hint: `gripfast policy test local demo counter` explains it

    dmeo echo: exit 1
    --- stderr
    error: the gateway at http://127.0.0.1:[PORT] has no server `dmeo`
      hint: did you mean `demo`?

    locked echo: exit 3
    --- stderr
    error: upstream `locked` needs a login or another credential (nobody has logged in: HTTP 401: unauthorized)
      hint: run `gripfast login locked`, or correct its `headers`

    away echo: exit 4
    --- stderr
    error: upstream `away` has not said yet what it offers: connection refused
      hint: it is tried again by itself
    ") });
}

#[test]
fn a_tool_of_a_server_that_shows_none_is_denied_by_the_config_and_not_by_the_server() {
    let (sandbox, running) = scene_of(&(stdio("demo", &[]) + "tools = { deny = ['*'] }\n"));
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "echo"]), @"
    exit 6
    --- stderr
    error: tool `echo` of upstream `demo` may not be called: denied by `*` in servers.demo.tools.deny
      hint: `gripfast policy test local demo echo` explains it
    ");
}

#[test]
fn a_failure_for_programs_is_the_gateways() {
    let (sandbox, running) = scene();
    assert_snapshot!(ask(&sandbox, &running, &["call", "demo", "crash", "-o", "json"]), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":"outcome_unknown","hint":"check the effect before you repeat the call","outcome":"unknown","retry_after_ms":null,"server":"demo","text":"upstream `demo` was lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again"}}
    --- stderr
    error: upstream `demo` was lost after the request was sent (exited with code 1); whether it was carried out is unknown, so it is not sent again
      hint: check the effect before you repeat the call
    "#);
}

#[test]
fn without_a_gateway_it_is_said_what_to_do() {
    let sandbox = Sandbox::with_demo(&[]);
    assert_snapshot!(sandbox.run(&["tools"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another; `--config ./gripfast.toml` does without a gateway
    ");
    assert_snapshot!(sandbox.run(&["call", "demo", "echo", "-o", "json"]), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":null,"hint":"`--url` names another; `--config ./gripfast.toml` does without a gateway","text":"no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`"}}
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another; `--config ./gripfast.toml` does without a gateway
    "#);
    assert_snapshot!(Sandbox::empty().run(&["tools"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another; `--config FILE` does without a gateway
    ");
    assert_snapshot!(Sandbox::empty().run(&["tools", "--url", "127.0.0.1:1"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another
    ");
}

#[test]
fn the_gateway_of_the_config_is_found() {
    let (sandbox, running) = scene();
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

/// As the help of `--url` says: `$GRIPFAST_URL`, then `gateway.listen`, of whichever config.
#[test]
fn the_variable_that_names_a_gateway_wins_over_a_config_that_was_named() {
    let (sandbox, running) = scene();
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
fn a_config_that_picks_its_port_cannot_say_where_the_gateway_is() {
    let sandbox = Sandbox::with("[gateway]\nlisten = '127.0.0.1:0'\n");
    let nowhere = [("GRIPFAST_URL", "")];
    assert_snapshot!(sandbox.run_with(&["status", "--config", "gripfast.toml"], &nowhere), @"
    exit 1
    --- stderr
    error: `gateway.listen` picks a new port at every start
      hint: `--url` names the one that `gripfast serve` has printed
    ");
}

#[test]
fn a_variable_that_names_nothing() {
    assert_snapshot!(Sandbox::empty().run_with(&["tools"], &[("GRIPFAST_URL", "ftp://x")]), @"
    exit 1
    --- stderr
    error: $GRIPFAST_URL is `ftp://x`: expected http://ADDR:PORT or https://NAME
    ");
}
