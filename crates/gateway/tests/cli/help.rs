//! `--help` texts. They document the interface, so a change of them is a change of the interface.

#[cfg(unix)]
use crate::gateway_process::GatewayProcess;
use crate::sandbox::Sandbox;
use insta::assert_snapshot;

fn help(words: &[&str]) -> String {
    let ran = Sandbox::empty().run(&[words, &["--help"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "help is data");
    ran.stdout
}

#[test]
fn overview() {
    assert_snapshot!(help(&[]), @"
    The MCP host that never loses a server

    Usage: gripfast [OPTIONS] <COMMAND>

    Commands:
      serve        Serve all configured servers at one MCP endpoint over HTTP
      service      Run the gateway as a systemd service: install, remove and inspect it
      stdio        Serve all configured servers as one stdio MCP server
      status       Show the state of all servers of a running gateway, or of one [alias: ls]
      reconnect    Reconnect a server of a running gateway now [alias: restart]
      reload       Apply the changed config to a running gateway, or reset and reconnect one server
      stop         Stop a server of a running gateway until `gripfast start`
      start        Start a stopped server of a running gateway
      logs         Show the stderr of a server of a running gateway
      events       Show the events of a running gateway and its servers
      dashboard    Open the dashboard of a running gateway in a browser, signed in
      doctor       Diagnose servers and suggest what to do
      check        Validate a config without starting anything
      trust        Trust ./gripfast.toml as it is now, so that other commands use it
      import       Import the servers of other MCP clients on this machine
      connect      Connect another MCP client on this machine to gripfast
      add          Add a server to the config
      remove       Remove a server from the config
      enable       Enable a disabled server in the config
      disable      Disable a server in the config without removing it
      tools        List the tools of the servers
      resources    List the resources of the servers, or read one
      prompts      List the prompts of the servers, or get one
      call         Call one tool of one server
      calls        Show the outcomes of tool calls, including calls in flight when a gateway died
      pins         Show, compare and approve pinned tool descriptions
      policy       Test the allow and deny lists of the config
      replicas     List the gateways that act as one service with this one
      keys         Create, list and remove the API keys of clients
      audit        Verify the audit log
      token        Replace the admin token of a state directory
      login        Log in to a server with a browser (OAuth)
      logout       Log out of a server
      completions  Generate shell completions
      man          Write man pages into a directory
      schema       Print the JSON Schema of the config, for editors
      version      Print the version
      demo-server  Run the built-in sample MCP server, with optional faults
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    Watch servers crash and recover, without any config:
      gripfast serve --demo

    Or with a server of your own, here the built-in sample:
      gripfast add demo -- gripfast demo-server    write ./gripfast.toml
      gripfast check                               validate the config
      gripfast serve                               start the gateway; in another terminal:
      gripfast status                              show the state of all servers
      gripfast tools                               list their tools
      gripfast call demo add a=1 b=2               call a tool: prints 3

    Config: --config, else $GRIPFAST_CONFIG, else ./gripfast.toml, else gripfast/gripfast.toml in the
    platform's config directory. A ./gripfast.toml that gripfast did not write itself has to be trusted
    first (`gripfast trust`). The format is TOML; `mcpServers` JSON and `mcp_servers` YAML of other
    clients work as well.

    Data goes to stdout, messages go to stderr. Exit codes:
      0  ok                             3  login needed                     6  denied
      1  other error, or wrong usage    4  unreachable, or no answer
      2  config invalid                 5  the tool or its server reported an error

    $GRIPFAST_LOG (error, warn, info, debug, trace) sets the log level on stderr, $GRIPFAST_LOG_FORMAT
    (text, json) the log format. $NO_COLOR turns colours off. $GRIPFAST_CA names a PEM file with
    certificates to trust, for gateways that use https.

    Commands reach a gateway on this machine through a socket in its state directory, and send its admin
    token nowhere else. To a gateway on another machine they send $GRIPFAST_TOKEN, its admin token, over
    https. `tools` and `call` send $GRIPFAST_KEY, a client key, to the gateway that --url or
    $GRIPFAST_URL names. If that is another machine, they need https, or the host and port of the
    gateway in $GRIPFAST_CLEARTEXT.
    ");
}

#[test]
fn calls() {
    assert_snapshot!(help(&["calls"]), @r#"
    Show the outcomes of tool calls, including calls in flight when a gateway died

    Usage: gripfast calls [OPTIONS]

    Options:
          --unknown           Only calls with an unknown outcome
          --server <NAME>     Only calls to this server
          --since <DURATION>  Only calls started within this duration
          --limit <NUMBER>    Number of newest calls to show, up to 1000 [default: 50]
      -o, --output <FORMAT>   Output format; docs/reference/json.md describes `json` [default: text]
                              [possible values: text, json]
          --url <URL>         URL of the gateway [default: $GRIPFAST_URL, `gateway.listen`,
                              http://127.0.0.1:7331]
      -h, --help              Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    Outcomes: done, failed (the server answered with an error), refused (the server rejected the call
    before acting), not sent (the server never received it), unknown (it was sent, and it is not known
    whether the server acted), in flight.

    Asks the running gateway. If none listens at the default address, or with --state-dir alone, the
    command reads the ledger in the state directory; calls that were in flight when their gateway was
    killed are `unknown` there. Arguments are recorded as a SHA-256 digest of the caller's text, unless
    `gateway.ledger` says otherwise.

    Exit codes: 0 the calls are shown, even if there are none; 4 there is no gateway at --url.

    Examples:
      gripfast calls
      gripfast calls --unknown --since 1h
      gripfast calls --server github -o json | jq -r '.calls[] | select(.outcome == "unknown") | .id'
    "#);
}

#[test]
fn status() {
    assert_snapshot!(help(&["status"]), @r#"
    Show the state of all servers of a running gateway, or of one

    Usage: gripfast status [OPTIONS] [NAME]

    Arguments:
      [NAME]  Only this server, with its last events and its stderr

    Options:
      -o, --output <FORMAT>  Output format; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
      -w, --watch            Refresh until Ctrl-C
          --url <URL>        URL of the gateway [default: $GRIPFAST_URL, `gateway.listen`,
                             http://127.0.0.1:7331]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    States: ● ready, ○ idle (starts on first use), ◐ starting, ◍ degraded, ↻ reconnecting, ✗ parked
    (retried slowly) or config error, ! needs login, ‖ needs approval, ■ stopped, ⊘ disabled. A number
    of tools with a star is from the last time the server was listed. CALLS, ERR and RESTARTS count
    since the gateway started.

    Exit codes: 0 the gateway answered, whatever the state of its servers; 1 it has no server of that
    name; 4 there is no gateway. With --watch the page is redrawn every second; in a file or a pipe,
    each change is written as one line.

    Examples:
      gripfast status
      gripfast status github --watch
      gripfast status -o json | jq -r '.upstreams[] | select(.state != "ready") | .name'
    "#);
}

#[test]
fn operating() {
    assert_snapshot!(help(&["stop"]), @"
    Stop a server of a running gateway until `gripfast start`

    Usage: gripfast stop [OPTIONS] <NAME>

    Arguments:
      <NAME>  The server, by its name in the config

    Options:
      -o, --output <FORMAT>  Output format; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
          --url <URL>        URL of the gateway [default: $GRIPFAST_URL, `gateway.listen`,
                             http://127.0.0.1:7331]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    The command does not wait until the action is complete; `gripfast status NAME --watch` shows the
    progress. It reaches the gateway through the socket in the state directory and sends the admin token
    from there. If the gateway uses another config than this command, name its state directory with
    --state-dir.

    Exit codes: 0 the gateway accepted the command, 1 it has no such server, 4 there is no gateway, or
    none with this state directory, 6 the admin token is wrong.
    ");
}

#[test]
fn check() {
    assert_snapshot!(help(&["check"]), @"
    Validate a config without starting anything

    Usage: gripfast check [OPTIONS] [FILE]

    Arguments:
      [FILE]  The config file; the same as --config FILE

    Options:
      -o, --output <FORMAT>  Output format; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    Errors make the config, or one server in it, unusable: exit code 2. Warnings are about the
    environment as it is now: an unset variable, or a command that is not on the PATH. Such a server
    would be in state `config_error`; the others work. Nothing is started and no connection is made.

    Examples:
      gripfast check
      gripfast check ~/.cursor/mcp.json
      gripfast check -o json | jq '.findings[] | .message'
    ");
}

#[test]
fn tools() {
    assert_snapshot!(help(&["tools"]), @"
    List the tools of the servers

    Usage: gripfast tools [OPTIONS] [SERVER] [TOOL]

    Arguments:
      [SERVER]  Only this server
      [TOOL]    Only this tool, with its full description and the schema of its arguments

    Options:
      -o, --output <FORMAT>  Output format; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
          --wait <DURATION>  Time limit for a server to start and to list its tools; with --config
                             [default: 15s]
          --url <URL>        URL of the gateway [default: $GRIPFAST_URL, `gateway.listen`,
                             http://127.0.0.1:7331]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    Asks the running gateway. With --config no gateway is needed: the servers of that file are started,
    listed, and stopped again. A server that fails becomes an error row, and the others are still
    listed. The exit code is 0 unless every server failed; 4 if there is no gateway.

    Examples:
      gripfast tools
      gripfast tools github
      gripfast tools github create_issue
      gripfast tools --config gripfast.toml
      gripfast tools -o json | jq -r '.servers[].tools[]?.name'
    ");
}

#[test]
fn call() {
    assert_snapshot!(help(&["call"]), @r#"
    Call one tool of one server

    Usage: gripfast call [OPTIONS] <SERVER> <TOOL> [ARGUMENT]...

    Arguments:
      <SERVER>       The server, by its name in the config
      <TOOL>         The tool, by the server's own name
      [ARGUMENT]...  Arguments: KEY=VALUE words, a JSON object, `@FILE`, or `-` for stdin [default:
                     none]

    Options:
          --accept-defaults  Accept forms that the server sends, with their default values; with
                             --config
          --wait <DURATION>  Time limit for the server to become ready; with --config [default: its
                             `timeouts.reconnect_wait`]
      -o, --output <FORMAT>  Output format; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
          --url <URL>        URL of the gateway [default: $GRIPFAST_URL, `gateway.listen`,
                             http://127.0.0.1:7331]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    Asks the running gateway. With --config no gateway is needed: the server of that file is started,
    called, and stopped again. Text is printed as it is; other content is described in one line. With
    `-o json` the result is printed as it came, byte for byte, and a failure as
    {"error":{"code":…,"text":…}}.

    Exit codes: 0 the tool answered, 5 it answered with an error, 4 the server or the gateway was
    unreachable or did not answer in time, 3 a login is needed, 6 the config denies the call.

    In KEY=VALUE, a value that is valid JSON is sent as JSON, and any other value as text. An argument
    that the tool's schema declares as a string is always sent as text. `gripfast tools SERVER TOOL`
    shows the schema.

    At a terminal, gripfast prompts for each field of a form that the server sends (elicitation).
    Without a terminal, the server learns that forms cannot be answered.

    A call that was sent but not answered is repeated once, and only if that is safe: the tool is
    read-only or idempotent, or the config lists it in `replay.safe`. Any other call is never sent
    twice.

    Examples:
      gripfast call demo add a=1 b=2
      gripfast call demo echo '{"text": "hello"}'
      gripfast call demo echo @arguments.json
      gripfast call --config gripfast.toml demo echo '{"text": "hello"}'
      jq -n '{text: "hello"}' | gripfast call demo echo - -o json
    "#);
}

#[test]
fn demo_server() {
    assert_snapshot!(help(&["demo-server"]), @"
    Run the built-in sample MCP server, with optional faults

    Usage: gripfast demo-server [OPTIONS]

    Options:
          --http <ADDR:PORT>       Serve HTTP at this address; port 0 picks a free port
          --name <NAME>            Server name in `serverInfo` [default: gripfast-demo]
          --era <ERA>              Supported protocol eras: both, legacy or modern [default: both]
          --legacy-version <DATE>  Newest protocol revision that `initialize` accepts [default:
                                   2025-11-25]
          --page-size <N>          Items per page of a list; 0 puts everything on one page [default: 50]
          --tools <N>              Offer this many additional tools: extra_1, extra_2, … [default: 0]
          --param-headers          Offer the tool `route`, one argument of which modern clients mirror
                                   in a header
          --showcase               Offer examples of less common features: list output, apps, tasks, URL
                                   elicitation
          --changed-schema         Offer `echo` with another description and schema, as an upgraded
                                   server would
          --sse-answers            Answer every POST with an event stream
          --sessionless            Issue no session ids
          --sse-only               Serve legacy HTTP+SSE only, nothing at /mcp
          --counter-file <FILE>    Append a line `KEY VALUE PID` for every `counter` call
          --pid-file <FILE>        Write the process id to this file
          --starts-file <FILE>     Append a line `UNIX_MILLIS PID` at every start
      -h, --help                   Print help

    Faults:
          --answer-delay <DURATION>
              Wait before every answer
          --never-answer-initialize
              Never answer `initialize` nor `server/discover`
          --ignore-discover
              Never answer `server/discover`
          --no-ping
              Answer `ping` with -32601
          --exit-after <N>
              Exit after answering this many calls
          --exit-in-call <N>
              Exit in the middle of this call, counted from 1
          --start-delay <DURATION>
              Wait before reading or listening
          --exit-at-start <WHEN>
              Exit at start: always, the first 3 times (3x), or within a time of the first start (60s);
              the latter two count in --starts-file
          --live-for <DURATION>
              Exit after this time, busy or not
          --exit-code <CODE>
              Exit code for all of these exits [default: 1]
          --fill-stderr <BYTES>
              Write this much to stderr at start [default: 0]
          --fork-grandchild
              Leave a child process behind that holds the pipes open
          --ignore-sigterm
              Ignore SIGTERM
          --ignore-stdin-close
              Keep running when stdin closes
          --junk-on-stdout
              Write lines that are not JSON between the messages
          --exit-on-discover
              Exit on any request before `initialize`
          --session-expiry-form <FORM>
              Answer to an expired session: 404, 404-text, 400-no-id, 400-server-error, 400-plain or
              200-error [default: 404]
          --session-ttl <DURATION>
              Expire sessions at this age
          --session-requests <N>
              Expire sessions after this many requests
          --status-for-a-while <STATUS[:HOW_LONG]>
              Refuse requests with a status: always (503), for a time (503:2s), a number of times
              (503:3x)
          --retry-after <DURATION>
              The `Retry-After` of these refusals, in whole seconds
          --require-bearer <TOKEN>
              Refuse every request without this bearer token with 401
          --no-challenge
              Leave `WWW-Authenticate` off the 401
          --drop-after-accept
              Close every connection right after accepting it
          --sse-endpoint <FORM>
              The form of the `endpoint` event: relative, absolute, query or foreign [default: relative]
          --silent-dead-sse-post
              Never answer a POST to an expired HTTP+SSE session

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Directory for catalogs, logins, keys and the ledger [default:
                             `gateway.state_dir`, the platform's state directory]

    Without --http, it speaks MCP on stdin and stdout until stdin closes. With --http, it prints its URL
    to stdout once it listens: Streamable HTTP at /mcp, legacy HTTP+SSE at /sse. Tools: echo, add,
    sleep, counter, fail, reject, ask, crash, misbehave; resources and a prompt as well.

    Durations are written 1500ms, 2s, 1m30s.

    Examples:
      gripfast demo-server --http 127.0.0.1:0
      gripfast demo-server --exit-after 3                      exits after every third call
      gripfast demo-server --http 127.0.0.1:8080 --session-ttl 5s --session-expiry-form 400-no-id
    ");
}

#[test]
fn version() {
    for word in ["--version", "version"] {
        let ran = Sandbox::empty().run(&[word]);
        assert_eq!((ran.code, ran.stdout), (Some(0), format!("gripfast {}\n", env!("CARGO_PKG_VERSION"))));
    }
}

#[cfg(unix)]
#[test]
fn the_example_of_the_overview_works() {
    let text = help(&[]);
    let adds =
        text.lines().find_map(|line| line.trim().strip_prefix("gripfast add ")).expect("the first step");
    let adds = adds.split("  ").next().expect("what is typed").replace("gripfast", crate::sandbox::GRIPFAST);
    let words: Vec<&str> = ["add"].into_iter().chain(adds.split(' ')).collect();
    // A config that gripfast wrote itself is trusted.
    let sandbox = Sandbox::empty().wary();
    assert_eq!(sandbox.run(&words).code, Some(0), "{words:?}");
    assert_eq!(sandbox.run(&["check"]).code, Some(0));
    let serving = GatewayProcess::start(&sandbox, &[]);
    let asked = |words: &[&str]| sandbox.run_with(words, &[("GRIPFAST_URL", &serving.url)]);
    assert_eq!(asked(&["status"]).code, Some(0));
    assert!(asked(&["tools"]).stdout.contains("Adds two numbers."));
    let call = asked(&["call", "demo", "add", r#"{"a": 1, "b": 2}"#]);
    assert_eq!((call.code, call.stdout.as_str()), (Some(0), "3\n"), "{call}");
}
