//! `gripfast doctor`: causes and next steps, with a gateway and without one. The meaning of each piece of evidence is
//! tested next to the code that decides it.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::{InProcessGateway, gateway_with};
use crate::sandbox::{Sandbox, UNUSED_URL, WITHOUT_GATEWAY, stdio, url};
#[cfg(unix)]
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;
use std::io::{Read, Write};
use std::net::TcpListener;

#[test]
fn without_a_gateway_the_servers_are_tried() {
    let sandbox = Sandbox::empty();
    let not_mcp = sandbox.serve_http(&[]);
    let config = [
        &stdio("good", &[]),
        &(stdio("dying", &["--exit-at-start", "always", "--exit-code", "7"])),
        &url("away", UNUSED_URL),
        &url("wrong", &not_mcp.url.replace("/mcp", "/other")),
        "[servers.path]\ncommand = 'sh'\nenv = { PATH = '/nowhere' }\n",
        "[servers.typo]\ncommand = 'no-such-program'\n",
        "[servers.unset]\ncommand = 'sh'\nenv = { TOKEN = '${env:MY_TOKEN}' }\n",
        "[servers.mistyped]\ncomand = 'sh'\n",
        "[servers.off]\ncommand = 'sh'\ndisabled = true\n",
    ];
    let sandbox = sandbox.file("gripfast.toml", &config.concat());
    let filters = vec![(r"\(os error \d+\)", "([OS])"), (r#""[a-z/]*/sh""#, r#""[BIN]/sh""#)];
    insta::with_settings!({ filters => filters }, {
        assert_snapshot!(sandbox.run(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"]), @r#"
        exit 1
        --- stdout
        ✓ good      ready, 9 tools
        ✗ dying     exited with code 7; stderr: demo server: exiting at start, as told
                    do: unknown cause; run its command by hand in a terminal
        ✗ away      cannot connect to 127.0.0.1:[PORT] (connection refused)
                    do: start the server, or correct host and port in `url`
        ✗ wrong     the path of its `url` does not exist (HTTP 404)
                    do: correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`
                    | no MCP server at this URL: HTTP 404
        ✗ path      command `sh` is not on the PATH
                    do: its `env` sets a PATH without it; set `command = "[BIN]/sh"`
        ✗ typo      command `no-such-program` is not on the PATH
                    do: install it, or correct `command`
        ✗ unset     environment variable `MY_TOKEN` is not set
                    do: set it for the gripfast process, or write a default: `${env:MY_TOKEN:-…}`
        ✗ mistyped  servers.mistyped.comand: unknown key `comand` (did you mean `command`?)
                    do: `gripfast check` shows the position in the config
        ✓ off       disabled in the config
        "#);
    });
}

/// Config table of a shell script.
#[cfg(unix)]
fn script(name: &str, script: &str) -> String {
    format!(
        "[servers.{name}]\ncommand = '/bin/sh'\nargs = ['-c', '{script}']\nenv = {{ PATH = '/bin:/usr/bin' }}\n"
    )
}

/// Broken setups of new users, and the first line that each gets. Other tests check the lines after it.
#[cfg(unix)]
#[test]
fn every_broken_setup_has_the_right_first_line() {
    let status = |line: &str| {
        let text = format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        answering(Box::leak(text.into_boxed_str()))
    };
    let page =
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    let traceback = r#"printf "Traceback (most recent call last):\n  File \"/a.py\", line 1\nKeyError: no city\n" >&2; exit 1"#;
    let uv = r#"printf "error: Request failed\n  Caused by: invalid peer certificate: UnknownIssuer\nhint: try x\n" >&2; exit 2"#;
    let cases = [
        (
            "absent",
            "[servers.absent]\ncommand = 'no-such-program'\n".to_owned(),
            "command `no-such-program` is not on the PATH",
        ),
        (
            "typo",
            "[servers.typo]\ncommand = 'npxx'\nargs = ['-y', 'x']\n".to_owned(),
            "command `npxx` is not on the PATH",
        ),
        ("launcher", "[servers.launcher]\ncommand = 'uvx'\n".to_owned(), "command `uvx` is not on the PATH"),
        (
            "line",
            "[servers.line]\ncommand = 'npx -y x'\n".to_owned(),
            "command `npx -y x` is not on the PATH",
        ),
        (
            "unset",
            format!("{}[servers.unset.headers]\nA = '${{env:MY_TOKEN}}'\n", url("unset", UNUSED_URL)),
            "environment variable `MY_TOKEN` is not set",
        ),
        (
            "cwd",
            "[servers.cwd]\ncommand = '/bin/sh'\ncwd = '/no/such/place'\n".to_owned(),
            "`/no/such/place` is not a directory",
        ),
        (
            "script",
            "[servers.script]\ncommand = '/bin/sh'\nargs = ['/no/such/server.sh']\n".to_owned(),
            "`/no/such/server.sh` in its `args` does not exist",
        ),
        (
            "database",
            script("database", "echo out of cheese >&2; exit 1")
                .replace("']\n", "', '--db', '/no/such/file.db']\n"),
            "exited with code 1; stderr: out of cheese",
        ),
        ("python", script("python", traceback), "exited with code 1; stderr: KeyError: no city"),
        ("certificate", script("certificate", uv), "it does not trust a certificate"),
        (
            "port",
            script("port", "echo listen EADDRINUSE: address already in use >&2; exit 1"),
            "its port is already in use",
        ),
        (
            "banner",
            script("banner", "echo Welcome; exec sleep 60"),
            "it writes lines to stdout that are not MCP (1 so far): Welcome",
        ),
        ("slow", script("slow", "exec sleep 60"), "it has been starting for [N] s"),
        ("login", url("login", &status("401 Unauthorized")), "a login is needed (HTTP 401)"),
        ("path", url("path", &status("404 Not Found")), "the path of its `url` does not exist (HTTP 404)"),
        (
            "method",
            url("method", &status("405 Method Not Allowed")),
            "its `url` does not accept MCP requests (HTTP 405)",
        ),
        ("page", url("page", &answering(page)), "its `url` is a web page, not an MCP server"),
        ("failing", url("failing", &status("500 Oh")), "the server reports an internal error (HTTP 500)"),
        ("down", url("down", UNUSED_URL), "cannot connect to 127.0.0.1:1 (connection refused)"),
        (
            "tls",
            url("tls", &answering(page).replace("http:", "https:")),
            "TLS failed: the peer does not speak TLS",
        ),
    ];
    let config: String = cases.iter().map(|(_, table, _)| table.as_str()).collect();
    let told = Sandbox::with(&config)
        .run_with(&["doctor", WITHOUT_GATEWAY, "--wait", "5s"], &[("PATH", "/nowhere")]);
    let lines: Vec<String> =
        told.stdout.lines().filter_map(|line| line.strip_prefix("✗ ")).map(str::to_owned).collect();
    let seconds = |line: &str| match line.strip_prefix("it has been starting for ") {
        Some(rest) => format!(
            "it has been starting for [N]{}",
            rest.trim_start_matches(|letter: char| letter.is_ascii_digit())
        ),
        None => line.to_owned(),
    };
    let told_of = |name: &str| {
        let line = lines.iter().find(|line| line.split_whitespace().next() == Some(name));
        line.map(|line| seconds(line[name.len()..].trim_start()))
    };
    for (name, _, expected) in &cases {
        assert_eq!(told_of(name).as_deref(), Some(*expected), "{name}: {told}");
    }
    assert_eq!(lines.len(), cases.len(), "{told}");
}

#[cfg(unix)]
#[test]
fn a_gateway_that_does_not_run_is_reported_first() {
    let sandbox = Sandbox::with(&stdio("demo", &[]));
    assert_snapshot!(sandbox.run(&["doctor"]), @"
    exit 0
    --- stdout
    ✓ (gateway)  not running: nothing listens at 127.0.0.1:[PORT]; the servers were started for a moment
                 do: `gripfast serve` starts it
    ✓ demo       ready, 9 tools
    ");
}

#[cfg(unix)]
#[test]
fn a_gateway_with_another_config_is_reported_first() {
    let sandbox = Sandbox::with(&(stdio("demo", &[]) + &stdio("mine", &[])));
    let sandbox =
        sandbox.file("other.toml", &(stdio("demo", &[]) + "[servers.gone]\ncommand = 'no-such-program'\n"));
    let gateway = GatewayProcess::start(&sandbox, &["--config", "other.toml"]);
    until_some("both were tried", || {
        let status = sandbox.run(&["status", "-o", "json", "--url", &gateway.url]).stdout;
        (status.contains("config_error") && status.contains("ready")).then_some(())
    });
    assert_snapshot!(sandbox.run(&["doctor", "--url", &gateway.url]), @"
    exit 1
    --- stdout
    ✗ (gateway)  runs with `[DIR]/other.toml`, so `[DIR]/gripfast.toml` is not in use
                 do: edit `[DIR]/other.toml`, or stop the gateway and run `gripfast serve --config [DIR]/gripfast.toml`
    ✓ demo       ready, 9 tools
    ✗ gone       command `no-such-program` is not on the PATH
                 do: install it, or correct `command`
    ");
    assert_snapshot!(sandbox.run(&["doctor", "mine", "--url", &gateway.url]), @"
    exit 1
    --- stdout
    ✗ (gateway)  runs with `[DIR]/other.toml`, so `[DIR]/gripfast.toml` is not in use
                 do: edit `[DIR]/other.toml`, or stop the gateway and run `gripfast serve --config [DIR]/gripfast.toml`
    ✗ mine       the gateway's config does not contain this server
                 do: `gripfast status` lists the gateway's servers; `gripfast doctor --config FILE` works without a gateway
    ");
}

/// Answers every request like this, until the end of the test.
pub(crate) fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            std::thread::spawn(move || {
                // The client may have disconnected.
                let _ = connection.read(&mut [0; 4096]).and_then(|_| connection.write_all(answer.as_bytes()));
            });
        }
    });
    format!("http://{address}/mcp")
}

#[test]
fn wrong_answers_are_distinguished_from_no_answer() {
    let page = answering(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
    );
    let broken = answering(
        "HTTP/1.1 500 Oh\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nconnection: close\r\n\r\noops",
    );
    let config = [
        &url("page", &page),
        &url("broken", &broken),
        &url("plain", &page.replace("http:", "https:")),
        "[servers.slow]\ncommand = 'sleep'\nargs = ['60']\n",
    ];
    let sandbox = Sandbox::with(&config.concat());
    let filters = vec![(r"for \d+ s", "for [N] s")];
    insta::with_settings!({ filters => filters }, {
        assert_snapshot!(sandbox.run(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"]), @"
        exit 1
        --- stdout
        ✗ page    its `url` is a web page, not an MCP server
                  do: correct the path of `url`: MCP endpoints often end in `/mcp` or `/sse`
                  | does not speak MCP: it answered with `text/html` instead of JSON or an event stream
        ✗ broken  the server reports an internal error (HTTP 500: oops)
                  do: look at the log of the server, or try again later
        ✗ plain   TLS failed: the peer does not speak TLS
                  do: change `url` to `http://`, or correct its port
        ✗ slow    it has been starting for [N] s
                  do: it may be installing itself; allow more time: `gripfast doctor slow --wait 1m`
        ");
    });
}

#[test]
fn a_running_gateway_is_asked_for_its_evidence() {
    let sandbox = Sandbox::empty();
    let config = stdio("demo", &[]) + &stdio("halted", &[]) + "lazy = true\n";
    let running = InProcessGateway::with(&sandbox, &config);
    running.until("demo", "ready");
    running.host.stop("halted").unwrap();
    running.until("halted", "stopped");
    assert_snapshot!(sandbox.run(&["doctor", "--url", &running.url]), @"
    exit 1
    --- stdout
    ✓ demo    ready, 9 tools
    ✗ halted  stopped with `gripfast stop`
              do: `gripfast start halted` starts it
    ");
    assert_snapshot!(sandbox.run(&["doctor", "halted", "-o", "json", "--url", &running.url]), @r#"
    exit 1
    --- stdout
    {"schema_version":1,"gateway":"http://127.0.0.1:[PORT]","config":null,"servers":[{"server":"halted","ok":false,"cause":"stopped with `gripfast stop`","do":"`gripfast start halted` starts it","evidence":[]}]}
    "#);
    assert_snapshot!(sandbox.run(&["doctor", "hlated", "--url", &running.url]), @"
    exit 1
    --- stderr
    error: there is no server named `hlated`
      hint: did you mean `halted`?
    ");
}

#[test]
fn a_port_in_use_by_another_program() {
    let sandbox = Sandbox::empty();
    let stranger = sandbox.serve_http(&[]);
    let address = stranger.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let config = format!("[gateway]\nlisten = {address:?}\n{}", stdio("demo", &[]));
    let sandbox = sandbox.file("gripfast.toml", &config);
    let output = sandbox.command(&["doctor"]).env_remove("GRIPFAST_URL").output().unwrap();
    assert_snapshot!(sandbox.ran(output), @"
    exit 1
    --- stdout
    ✗ (gateway)  the program at http://127.0.0.1:[PORT] is not a gripfast gateway (HTTP 404)
                 do: set another port in `gateway.listen`, or stop the program that listens there
    ✓ demo       ready, 9 tools
    ");
}

#[test]
fn neither_a_gateway_nor_a_config() {
    assert_snapshot!(Sandbox::empty().run(&["doctor"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `./gripfast.toml`, `[DIR]/home/.config/gripfast/gripfast.toml`
      hint: `gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; `--config FILE` or $GRIPFAST_CONFIG names another file, which may be the JSON or YAML of another client
    ");
}

#[test]
fn a_runtime_that_is_not_installed() {
    let config =
        "[servers.node]\ncommand = 'npx'\nargs = ['-y', 'a-server']\n\n[servers.python]\ncommand = 'uvx'\n";
    let sandbox = Sandbox::with(config);
    assert_snapshot!(sandbox.run_with(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"], &[("PATH", "/nowhere")]), @"
    exit 1
    --- stdout
    ✗ node    command `npx` is not on the PATH
              do: install Node.js, which brings `npx`, or write the full path as `command`
    ✗ python  command `uvx` is not on the PATH
              do: install uv, which brings `uvx`, or write the full path as `command`
    ");
}

/// Server that prints this to stderr and exits.
#[cfg(unix)]
fn dying(name: &str, words: &str) -> String {
    format!(
        "[servers.{name}]\ncommand = 'sh'\nargs = ['-c', 'echo \"$WORDS\" >&2; exit 3']\nenv = {{ WORDS = {words:?} }}\n"
    )
}

#[cfg(unix)]
#[test]
fn the_last_stderr_lines_of_a_server_name_the_cause() {
    let config = [
        dying("port", "Error: listen EADDRINUSE: address already in use 127.0.0.1:3000"),
        dying("module", "ModuleNotFoundError: No module named 'mcp'"),
        dying("package", "npm error code E404"),
        dying("token", "Error: GITHUB_TOKEN environment variable is required"),
        dying("riddle", "what a day"),
    ];
    let sandbox = Sandbox::with(&config.concat());
    assert_snapshot!(sandbox.run(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"]), @"
    exit 1
    --- stdout
    ✗ port     its port is already in use
               do: stop the program that uses it (an older instance?), or set another port in `args` or `env`
               | exited with code 3; stderr: Error: listen EADDRINUSE: address already in use 127.0.0.1:[PORT]
    ✗ module   a module that it needs is not installed
               do: install it where the command looks for it, or correct `args`
               | exited with code 3; stderr: ModuleNotFoundError: No module named 'mcp'
    ✗ package  its package does not exist
               do: correct the package name in `args`
               | exited with code 3; stderr: npm error code E404
    ✗ token    a credential is missing or wrong
               do: set the variable that it names in its `env`
               | exited with code 3; stderr: Error: GITHUB_TOKEN environment variable is required
    ✗ riddle   exited with code 3; stderr: what a day
               do: unknown cause; run its command by hand in a terminal
    ");
}

#[cfg(unix)]
#[test]
fn a_gateway_with_another_path_than_this_shell() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::with("[servers.tool]\ncommand = 'only-here'\n");
    let bin = sandbox.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let sandbox = sandbox.file("bin/only-here", "#!/bin/sh\n");
    std::fs::set_permissions(bin.join("only-here"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let serving =
        GatewayProcess::of(sandbox.command(&["serve", "--listen", "127.0.0.1:0"]).env("PATH", "/nowhere"));
    until_some("it is looked for", || {
        let status = sandbox.run(&["status", "tool", "-o", "json", "--url", &serving.url]);
        status.stdout.contains("config_error").then_some(())
    });
    let told = sandbox.run_with(&["doctor", "--url", &serving.url], &[("PATH", bin.to_str().unwrap())]);
    assert_snapshot!(told, @r#"
    exit 1
    --- stdout
    ✗ tool  command `only-here` was not found on the PATH of its environment; this shell finds it, so the gateway has another environment
            do: set `command = "[DIR]/bin/only-here"`, or start the gateway with the PATH of this shell
    "#);
}

#[test]
fn a_host_name_that_does_not_resolve() {
    // Names under `.invalid` never resolve.
    let sandbox = Sandbox::with(&url("lost", "http://no-such-host.invalid/mcp"));
    let told = sandbox.run(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"]);
    // The exact reason is a message of this operating system.
    assert!(
        told.stdout.starts_with("✗ lost  the host name `no-such-host.invalid` does not resolve ("),
        "{told}"
    );
    assert!(
        told.stdout.contains("\n        do: correct the host in `url`, or check this machine's DNS\n"),
        "{told}"
    );
}

#[cfg(unix)]
#[test]
fn a_certificate_of_an_unknown_authority() {
    let key = rcgen::KeyPair::generate().unwrap();
    let cert =
        rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let config = "[gateway]\ntls = { cert = 'cert.pem', key = 'key.pem' }\n";
    let server = Sandbox::with(config).file("cert.pem", &cert.pem()).file("key.pem", &key.serialize_pem());
    let serving = GatewayProcess::start(&server, &[]);
    let own = url("own", &format!("{}/mcp", serving.url));
    assert_snapshot!(Sandbox::with(&own).run(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"]), @"
    exit 1
    --- stdout
    ✗ own  TLS failed: its certificate was not issued by an authority that this machine trusts
           do: set `ca_file` to its certificate authority or certificate, set `client_cert` if it asks for a client certificate, or correct the host in `url`
    ");
}

/// Self-signed certificate as common tools make it: marked as a CA certificate, which is not valid for a server.
#[cfg(unix)]
#[test]
fn a_self_signed_certificate_is_accepted_once_it_is_configured() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key).unwrap();
    let config = "[gateway]\ntls = { cert = 'cert.pem', key = 'key.pem' }\n";
    let server = Sandbox::with(config).file("cert.pem", &cert.pem()).file("key.pem", &key.serialize_pem());
    let serving = GatewayProcess::start(&server, &[]);
    let own = url("own", &format!("{}/mcp", serving.url));
    let unnamed = until_some("it is refused", || {
        let unnamed = Sandbox::with(&own).run(&["doctor", WITHOUT_GATEWAY, "--wait", "2s"]);
        unnamed.stdout.contains("it may be self-signed").then_some(unnamed)
    });
    assert!(
        unnamed.stdout.contains("set `ca_file` to its certificate authority or certificate"),
        "{unnamed}"
    );
    let named = format!("{own}ca_file = {:?}\n", server.path("cert.pem"));
    let believed = Sandbox::with(&named).run(&["doctor", WITHOUT_GATEWAY, "--wait", "30s"]);
    assert!(believed.code == Some(0) && believed.stdout.starts_with("✓ own"), "{believed}");
}

/// The server never answers and logs the reason to stdout.
#[cfg(unix)]
#[test]
fn a_server_that_logs_to_stdout_is_distinguished_from_a_slow_one() {
    let sandbox =
        Sandbox::with("[servers.chatty]\ncommand = 'sh'\nargs = ['-c', 'echo listening; sleep 600']\n");
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let told = until_some("its words are heard", || {
        let told = sandbox.run(&["doctor", "--url", &gateway.url]);
        told.stdout.contains("stdout").then_some(told)
    });
    assert_snapshot!(told, @"
    exit 1
    --- stdout
    ✗ chatty  it writes lines to stdout that are not MCP (1 so far): listening
              do: make it log to stderr, by a flag in `args` or a variable in `env`: stdout is for MCP messages only
    ");
    let status = sandbox.run(&["status", "chatty", "--url", &gateway.url]);
    assert!(
        status.stdout.contains("writes lines to stdout that are not MCP (1 so far): listening"),
        "{status}"
    );
}

#[test]
fn a_gateway_whose_status_needs_a_token_is_recognised() {
    let refusal = r#"{"error":{"code":"unauthorized","text":"the admin token is needed"}}"#;
    let head = "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let answer = format!("{head}content-length: {}\r\n\r\n{refusal}", refusal.len());
    let gateway = answering(Box::leak(answer.into_boxed_str()));
    let address = gateway.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let config = format!("[gateway]\nlisten = {address:?}\n{}", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config);
    for verb in ["doctor", "tools", "status", "events"] {
        let output = sandbox.command(&[verb]).env_remove("GRIPFAST_URL").output().unwrap();
        let ran = sandbox.ran(output);
        assert!(!ran.to_string().contains("not a gripfast gateway"), "{verb}: {ran}");
        assert!(ran.stdout.is_empty() && ran.code != Some(0), "{verb} does nothing else: {ran}");
    }
}

#[test]
fn h08_doctor_and_status_show_tokens_and_an_embeddings_endpoint_that_fails() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let embeddings =
        format!("[gateway.search.embeddings]\nurl = \"http://{closed}/v1/embeddings\"\nmodel = \"small\"\n");
    let config = format!("[gateway]\nexposure = \"search\"\n{embeddings}{}", stdio("demo", &[]));
    let (sandbox, running) = gateway_with(&config);
    until_some("the failure is known", || running.host.embeddings_status().unwrap().cause);
    let doctor = sandbox.run(&["doctor", "--url", &running.url]);
    assert!(doctor.to_string().starts_with("exit 1"), "{doctor}");
    let line = |text: &str, begin: &str| {
        let found = text.lines().find(|line| line.contains(begin));
        found.unwrap_or_else(|| panic!("{begin}: {text}")).to_owned()
    };
    let tokens = line(&doctor.stdout, "(search)");
    let tokens = tokens.split("exposure search: clients list 0 of 9 tools, about ").nth(1).unwrap();
    let tokens: Vec<u64> = tokens.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(tokens.len() == 2 && (200..2000).contains(&tokens[0]), "with the search tools: {doctor}");
    let endpoint = format!("`http://{closed}/v1/embeddings`");
    assert!(line(&doctor.stdout, "✗ (embeddings)").contains(&endpoint), "{doctor}");
    assert!(doctor.stdout.contains("found by their words alone"), "{doctor}");
    let status = sandbox.run(&["status", "--url", &running.url]);
    assert!(line(&status.stdout, "embeddings failing").contains(&endpoint), "{status}");
    let sandbox = Sandbox::with(&config);
    let alone = sandbox.run(&["doctor", WITHOUT_GATEWAY, "--wait", "30s"]);
    assert!(line(&alone.stdout, "✗ (embeddings)").contains(&endpoint), "{alone}");
}
