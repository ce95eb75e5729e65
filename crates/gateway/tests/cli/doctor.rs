//! `gripfast doctor`: causes and steps, with a gateway and without one. What each piece of evidence means is
//! shown beside the code that decides it.

use crate::running::Running;
use crate::sandbox::{ALONE, NOBODY, Sandbox, stdio, url};
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
        &url("away", NOBODY),
        &url("wrong", &not_mcp.url.replace("/mcp", "/other")),
        "[servers.node]\ncommand = 'npx'\nenv = { PATH = '/nowhere' }\n",
        "[servers.unset]\ncommand = 'sh'\nenv = { TOKEN = '${env:MY_TOKEN}' }\n",
        "[servers.mistyped]\ncomand = 'sh'\n",
        "[servers.off]\ncommand = 'sh'\ndisabled = true\n",
    ];
    let sandbox = sandbox.file("gripfast.toml", &config.concat());
    let filters = vec![(r"\(os error \d+\)", "([OS])")];
    insta::with_settings!({ filters => filters }, {
        assert_snapshot!(sandbox.run(&["doctor", ALONE, "--wait", "2s"]), @"
        exit 1
        --- stdout
        ✓ good      ready, 9 tools
        ✗ dying     exited with code 7; it last said: demo server: exiting at start, as told
                    do: start its command by hand in a terminal to see more
                    | demo server: exiting at start, as told
        ✗ away      nobody listens at 127.0.0.1:[PORT] (Connection refused ([OS]))
                    do: start the server, or correct host and port in `url`
                    | connection refused
        ✗ wrong     no MCP server at this URL: HTTP 404
                    do: compare `url` with the server's documentation: somebody answers there
        ✗ node      command `npx` is not on the PATH
                    do: install it, or correct `command`
                    | command `npx` was not found on the PATH of its environment
        ✗ unset     environment variable `MY_TOKEN` is not set
                    do: set it for the gripfast process, or write a default: `${env:MY_TOKEN:-…}`
        ✗ mistyped  servers.mistyped.comand: unknown key `comand` (did you mean `command`?)
                    do: `gripfast check` shows the place in the config
        ✓ off       disabled in the config
        ");
    });
}

/// Answers every request like this, until the end of the test.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            std::thread::spawn(move || {
                // Whoever hangs up has seen enough.
                let _ = connection.read(&mut [0; 4096]).and_then(|_| connection.write_all(answer.as_bytes()));
            });
        }
    });
    format!("http://{address}/mcp")
}

#[test]
fn whoever_answers_otherwise_is_told_from_whoever_does_not() {
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
        assert_snapshot!(sandbox.run(&["doctor", ALONE, "--wait", "2s"]), @"
        exit 1
        --- stdout
        ✗ page    does not speak MCP: it answered with `text/html` instead of JSON or an event stream
                  do: compare `url` with the server's documentation: somebody answers there
        ✗ broken  HTTP 500: oops
                  do: compare `url` with the server's documentation: somebody answers there
        ✗ plain   TLS failed: received corrupt message of type InvalidContentType
                  do: name its authority in `ca_file`, or a certificate of yours in `client_cert`, or correct `url`: it may not speak TLS
        ✗ slow    it has been starting for [N] s
                  do: give it longer, it may be installing itself: `gripfast doctor slow --wait 1m`
        ");
    });
}

#[test]
fn a_gateway_is_asked_what_it_saw() {
    let sandbox = Sandbox::empty();
    let config = stdio("demo", &[]) + &stdio("halted", &[]) + "lazy = true\n";
    let running = Running::with(&sandbox, &config);
    running.until("demo", "ready");
    running.host.stop("halted").unwrap();
    running.until("halted", "stopped");
    assert_snapshot!(sandbox.run(&["doctor", "--url", &running.url]), @"
    exit 1
    --- stdout
    ✓ demo    ready, 9 tools
    ✗ halted  somebody stopped it
              do: `gripfast start halted` brings it back
    ");
    assert_snapshot!(sandbox.run(&["doctor", "halted", "-o", "json", "--url", &running.url]), @r#"
    exit 1
    --- stdout
    {"schema_version":1,"gateway":"http://127.0.0.1:[PORT]","servers":[{"server":"halted","ok":false,"cause":"somebody stopped it","do":"`gripfast start halted` brings it back","evidence":[]}]}
    "#);
    assert_snapshot!(sandbox.run(&["doctor", "hlated", "--url", &running.url]), @"
    exit 1
    --- stderr
    error: there is no server named `hlated`
      hint: did you mean `halted`?
    ");
}

#[test]
fn a_port_that_somebody_else_has() {
    let sandbox = Sandbox::empty();
    let stranger = sandbox.serve_http(&[]);
    let address = stranger.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let config = format!("[gateway]\nlisten = {address:?}\n{}", stdio("demo", &[]));
    let sandbox = sandbox.file("gripfast.toml", &config);
    let output = sandbox.command(&["doctor"]).env_remove("GRIPFAST_URL").output().unwrap();
    assert_snapshot!(sandbox.ran(output), @"
    exit 1
    --- stdout
    ✗ (gateway)  what listens at http://127.0.0.1:[PORT] is not a gripfast gateway (HTTP 404)
                 do: let `gateway.listen` name another port, or end what listens there
    ✓ demo       ready, 9 tools
    ");
}

#[test]
fn neither_a_gateway_nor_a_config() {
    assert_snapshot!(Sandbox::empty().run(&["doctor"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `gripfast.toml`
      hint: name one with `--config FILE` or $GRIPFAST_CONFIG; TOML, and the JSON or YAML of other MCP clients, are understood
    ");
}
