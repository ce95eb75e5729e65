//! Help that teaches: everything in it is a promise, so a change of it is a change of the interface.

use crate::sandbox::Sandbox;
#[cfg(unix)]
use crate::serving::Serving;
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
      serve        Serve all servers of the config behind one MCP endpoint
      stdio        Serve all servers of the config as one stdio MCP server
      status       Show the servers of a running gateway, or one of them [alias: ls]
      reconnect    Replace the link of a server of a running gateway now [alias: restart]
      reload       Have a running gateway take its changed config, or one server forget what went wrong
                   and connect anew
      stop         Stop a server of a running gateway until it is started
      start        Start a server of a running gateway that was stopped
      logs         Show what a server of a running gateway wrote to stderr
      events       Show what happened to the servers of a running gateway
      dashboard    Open the dashboard of a running gateway in a browser, signed in
      doctor       Find out what is wrong with servers, and what to do about it
      check        Validate a config without starting anything
      trust        Trust ./gripfast.toml for what it says now, so that other verbs use it
      import       Take over the servers that other MCP clients on this machine have
      connect      Point another MCP client on this machine at gripfast
      add          Add a server to the config
      remove       Take a server out of the config
      enable       Use a server of the config again that was disabled
      disable      Keep a server in the config without using it
      tools        List the tools of the servers
      resources    List the resources of the servers, or read one
      prompts      List the prompts of the servers, or get one
      call         Call one tool of one server
      calls        Show what became of tool calls, also of those under way when a gateway died
      pins         Show and approve what tools say about themselves
      policy       Ask what the allow and deny lists of the config say
      keys         Make, list and remove the keys by which clients get in
      audit        Check that the audit log is as it was written
      token        Replace the admin token of a state directory
      login        Let gripfast use a server in your name, by a browser
      logout       Forget the login of a server
      completions  Print what a shell needs to complete words
      schema       Print the JSON Schema of the config, for editors
      version      Print the version
      demo-server  Run the built-in sample MCP server, well-behaved or not
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    Watch servers crash and come back, without any config:
      gripfast serve --demo

    Or with a server of your own, here the built-in sample:
      gripfast add demo -- gripfast demo-server    writes ./gripfast.toml
      gripfast check                               is the config right?
      gripfast serve                               serves it; in another terminal:
      gripfast status                              how do the servers do?
      gripfast tools                               what do they offer?
      gripfast call demo add a=1 b=2               prints 3

    Config: --config, else $GRIPFAST_CONFIG, else ./gripfast.toml, else gripfast/gripfast.toml in the
    platform's config directory. A ./gripfast.toml that gripfast did not write itself is used once you
    trust it (`gripfast trust`). TOML, `mcpServers` JSON and `mcp_servers` YAML are understood as they
    are.

    stdout is data, stderr is talk. Exit codes:
      0  ok                   3  login needed                     6  denied
      1  general, or usage    4  unreachable, or no answer
      2  config invalid       5  the tool or its server reported an error

    $GRIPFAST_LOG (error, warn, info, debug, trace) says how much is logged to stderr,
    $GRIPFAST_LOG_FORMAT (text, json) in which format; $NO_COLOR is honoured. $GRIPFAST_CA names a file
    with certificates to believe, for gateways that speak https.

    Commands reach a gateway of this machine through a socket in its state directory, and send its admin
    token nowhere else. A gateway on another machine is sent $GRIPFAST_TOKEN, its admin token, over
    https. `tools` and `call` send $GRIPFAST_KEY, a client's key, to the gateway that --url or
    $GRIPFAST_URL names; to another machine over https, or where $GRIPFAST_CLEARTEXT is its host and
    port.
    ");
}

#[test]
fn calls() {
    assert_snapshot!(help(&["calls"]), @r#"
    Show what became of tool calls, also of those under way when a gateway died

    Usage: gripfast calls [OPTIONS]

    Options:
          --unknown           Only those of which nobody knows whether they were carried out
          --server <NAME>     Only those of this server
          --since <DURATION>  Only those that came in the last so much time
          --limit <NUMBER>    The newest so many, up to 1000 [default: 50]
      -o, --output <FORM>     How to print it; docs/reference/json.md describes `json` [default: text]
                              [possible values: text, json]
          --url <URL>         Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`,
                              http://127.0.0.1:7331]
      -h, --help              Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    Outcomes: done, failed (the server said so), refused (the server turned it away before acting), not
    sent (the server never saw it), unknown (it was sent, and nobody knows whether the server acted), in
    flight.

    A running gateway is asked. If none listens at the default address, or with --state-dir alone, the
    ledger in the state directory is read; of the calls that were under way when their gateway was
    killed it says `unknown`. Arguments are there as a SHA-256 of what the caller wrote, unless
    `gateway.ledger` says otherwise.

    Exit codes: 0 the calls are shown, also if there are none; 4 there is no gateway at --url.

    Examples:
      gripfast calls
      gripfast calls --unknown --since 1h
      gripfast calls --server github -o json | jq -r '.calls[] | select(.outcome == "unknown") | .id'
    "#);
}

#[test]
fn status() {
    assert_snapshot!(help(&["status"]), @r#"
    Show the servers of a running gateway, or one of them

    Usage: gripfast status [OPTIONS] [NAME]

    Arguments:
      [NAME]  Only this server, with its last events and what it wrote to stderr

    Options:
      -o, --output <FORM>  How to print it; docs/reference/json.md describes `json` [default: text]
                           [possible values: text, json]
      -w, --watch          Go on until Ctrl-C
          --url <URL>      Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`,
                           http://127.0.0.1:7331]
      -h, --help           Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    States: ● ready, ○ idle (starts on first use), ◐ starting, ◍ degraded, ↻ reconnecting, ✗ parked
    (tried again slowly) or config error, ! needs login, ‖ needs approval, ■ stopped, ⊘ disabled. A
    number of tools with a star is from when the server was last seen. CALLS, ERR and RESTARTS count
    since the gateway started.

    The exit code is 0 whenever the gateway answers, however its servers do; 4 if there is no gateway, 1
    if it has no server of that name. With --watch a page is drawn anew every second; into a file or a
    pipe a line is written for every change.

    Examples:
      gripfast status
      gripfast status github --watch
      gripfast status -o json | jq -r '.upstreams[] | select(.state != "ready") | .name'
    "#);
}

#[test]
fn operating() {
    assert_snapshot!(help(&["stop"]), @"
    Stop a server of a running gateway until it is started

    Usage: gripfast stop [OPTIONS] <NAME>

    Arguments:
      <NAME>  The server, by its name in the config

    Options:
      -o, --output <FORM>  How to print it; docs/reference/json.md describes `json` [default: text]
                           [possible values: text, json]
          --url <URL>      Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`,
                           http://127.0.0.1:7331]
      -h, --help           Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    The gateway does it in its own time; `gripfast status NAME --watch` shows how it goes. It is reached
    through its socket in the state directory, and wants the token that it keeps there. Both are found
    by themselves where the command uses the same config, and with --state-dir otherwise.

    Exit codes: 0 the gateway has taken note, 1 it has no such server, 4 there is no gateway, or none
    with this state directory, 6 it wants another token.
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
      -o, --output <FORM>  How to print it; docs/reference/json.md describes `json` [default: text]
                           [possible values: text, json]
      -h, --help           Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    Errors make the config, or one server in it, unusable: exit code 2. Warnings are about what is so
    right now: an unset variable, a command that is not on the PATH. That server would be
    `config_error`; the others work. Nothing is started and nothing is connected to.

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
      [TOOL]    Only this tool of it, with its whole description and the schema of its arguments

    Options:
      -o, --output <FORM>    How to print it; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
          --wait <DURATION>  How long a server may take to start and to list its tools; with --config
                             [default: 15s]
          --url <URL>        Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`,
                             http://127.0.0.1:7331]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    Asks the gateway that runs. With --config no gateway is needed: the servers of that file are
    started, asked what they offer, and stopped again. A server that fails becomes an error row and the
    others are still listed. The exit code is 0 unless every server failed; 4 if there is no gateway.

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
      <TOOL>         The tool, by the server's own name for it
      [ARGUMENT]...  The arguments: KEY=VALUE words, or a JSON object, `@FILE`, or `-` for stdin
                     [default: none]

    Options:
          --accept-defaults  Accept the forms that the server wants filled in, with their own defaults;
                             with --config
          --wait <DURATION>  How long to wait for the server to be ready; with --config [default: its
                             `timeouts.reconnect_wait`]
      -o, --output <FORM>    How to print it; docs/reference/json.md describes `json` [default: text]
                             [possible values: text, json]
          --url <URL>        Where the gateway listens [default: $GRIPFAST_URL, `gateway.listen`,
                             http://127.0.0.1:7331]
      -h, --help             Print help

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    Asks the gateway that runs. With --config no gateway is needed: the server of that file is started,
    called, and stopped again. Text is printed as it is, other content is described in a line. With `-o
    json` the result is printed as it came, byte for byte, and a failure as
    {"error":{"code":…,"text":…}}.

    Exit codes: 0 the tool answered, 5 it answered with an error, 4 it or the gateway could not be
    reached or did not answer in time, 3 a login is needed, 6 the config denies it.

    In KEY=VALUE a value that is JSON is taken as JSON, and any other as text; a value for an argument
    that the tool's schema has as text is text in any case. `gripfast tools SERVER TOOL` shows the
    schema.

    At a terminal, forms that the server wants filled in are asked for field by field. Elsewhere the
    server is told that nobody can be asked.

    A call that was sent and not answered is sent once more only where that does no harm: the tool is
    known as read-only or idempotent, or the config names it in `replay.safe`. Any other is never sent
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
    Run the built-in sample MCP server, well-behaved or not

    Usage: gripfast demo-server [OPTIONS]

    Options:
          --http <ADDR:PORT>       Serve HTTP here; port 0 picks a free one
          --name <NAME>            Its name in `serverInfo` [default: gripfast-demo]
          --era <ERA>              The protocol eras it speaks: both, legacy or modern [default: both]
          --legacy-version <DATE>  The newest revision that `initialize` agrees to [default: 2025-11-25]
          --page-size <N>          Items per page of a list; 0 puts everything on one page [default: 50]
          --tools <N>              Offer this many tools more: extra_1, extra_2, … [default: 0]
          --param-headers          Offer the tool `route`, one argument of which modern clients mirror
                                   in a header
          --showcase               Offer one of each thing that only some servers have
          --changed-schema         Offer `echo` with another description and schema, as an upgraded
                                   server would
          --sse-answers            Answer every POST as an event stream
          --sessionless            Hand out no session ids
          --sse-only               Serve legacy HTTP+SSE only, nothing at /mcp
          --counter-file <FILE>    Append a line `KEY VALUE PID` for every `counter` call
          --pid-file <FILE>        Write the process id here
          --starts-file <FILE>     Append a line `UNIX_MILLIS PID` at every start
      -h, --help                   Print help

    Misbehave on demand:
          --answer-delay <DURATION>
              Wait before every answer
          --never-answer-initialize
              Never answer `initialize` nor `server/discover`
          --ignore-discover
              Never answer `server/discover`
          --no-ping
              Answer `ping` with -32601
          --exit-after <N>
              Die after answering this many calls
          --exit-in-call <N>
              Die in the middle of this call, counted from 1
          --start-delay <DURATION>
              Wait before reading or listening
          --exit-at-start <WHEN>
              Exit at start: always, the first 3 times (3x), or within a time of the first start (60s);
              the latter two count in --starts-file
          --live-for <DURATION>
              Exit after this time, busy or not
          --exit-code <CODE>
              The exit code of these deaths [default: 1]
          --fill-stderr <BYTES>
              Write this much to stderr at start [default: 0]
          --fork-grandchild
              Leave a process behind that holds the pipes open
          --ignore-sigterm
              Shrug off SIGTERM
          --ignore-stdin-close
              Go on when stdin closes
          --junk-on-stdout
              Write lines that are not JSON between the messages
          --exit-on-discover
              Exit on any request before `initialize`
          --session-expiry-form <FORM>
              How a dead session is refused: 404, 404-text, 400-no-id, 400-server-error, 400-plain or
              200-error [default: 404]
          --session-ttl <DURATION>
              Sessions die at this age
          --session-requests <N>
              Sessions die after this many requests
          --status-for-a-while <STATUS[:HOW_LONG]>
              Refuse requests with a status: for ever (503), for a time (503:2s), a number of times
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
              Never answer a POST to a dead HTTP+SSE session

    Global options:
          --config <FILE>    The config file [default: $GRIPFAST_CONFIG, ./gripfast.toml, the platform's
                             config directory]
          --state-dir <DIR>  Where catalogs and the like are kept [default: `gateway.state_dir`, the
                             platform's state directory]

    Without --http it speaks MCP on stdin and stdout until stdin closes. With --http the URL is printed
    to stdout once it listens: Streamable HTTP at /mcp, legacy HTTP+SSE at /sse. Tools: echo, add,
    sleep, counter, fail, reject, ask, crash, misbehave; resources and a prompt as well.

    Durations are written 1500ms, 2s, 1m30s.

    Examples:
      gripfast demo-server --http 127.0.0.1:0
      gripfast demo-server --exit-after 3                      dies after every third call
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
    // What was written by gripfast itself needs no other trust.
    let sandbox = Sandbox::empty().wary();
    assert_eq!(sandbox.run(&words).code, Some(0), "{words:?}");
    assert_eq!(sandbox.run(&["check"]).code, Some(0));
    let serving = Serving::start(&sandbox, &[]);
    let asked = |words: &[&str]| sandbox.run_with(words, &[("GRIPFAST_URL", &serving.url)]);
    assert_eq!(asked(&["status"]).code, Some(0));
    assert!(asked(&["tools"]).stdout.contains("Adds two numbers."));
    let call = asked(&["call", "demo", "add", r#"{"a": 1, "b": 2}"#]);
    assert_eq!((call.code, call.stdout.as_str()), (Some(0), "3\n"), "{call}");
}
