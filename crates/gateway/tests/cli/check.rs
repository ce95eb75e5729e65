//! `gripfast check`: findings and exit codes; it starts no server.

use crate::sandbox::{Sandbox, UNUSED_URL, stdio, url};
use insta::assert_snapshot;

#[test]
fn a_sound_config() {
    let config = [stdio("one", &[]), stdio("two", &[]), url("three", UNUSED_URL)].concat();
    assert_snapshot!(Sandbox::with(&config).run(&["check"]), @"
    exit 0
    --- stdout
    ok: 3 servers (2 stdio, 1 http)
    ");
}

#[test]
fn every_kind_of_server_is_counted() {
    let sse = "[servers.b]\nurl = 'http://localhost/sse'\ntransport = 'sse'\n";
    let off = "[servers.c]\ncommand = 'no-such-program'\ndisabled = true\n";
    let config = [&url("a", UNUSED_URL), sse, off].concat();
    assert_snapshot!(Sandbox::with(&config).run(&["check"]), @"
    exit 0
    --- stdout
    ok: 3 servers (1 http, 1 sse, 1 disabled)
    ");
}

#[test]
fn an_empty_config() {
    assert_snapshot!(Sandbox::with("").run(&["check"]), @"
    exit 0
    --- stdout
    ok, 1 warning: 0 servers
    --- stderr
    warning: no servers in this file
     --> ./gripfast.toml:1:1
      hint: add a table `[servers.NAME]` with a `command` or a `url`
    ");
}

#[test]
fn a_config_of_another_client() {
    let config = format!(r#"{{"mcpServers": {{"web": {{"url": "{UNUSED_URL}"}}}}}}"#);
    assert_snapshot!(Sandbox::empty().file("mcp.json", &config).run(&["check", "mcp.json"]), @"
    exit 0
    --- stdout
    ok: 1 server (1 http)
    ");
}

#[test]
fn no_config_anywhere() {
    assert_snapshot!(Sandbox::empty().run(&["check"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `./gripfast.toml`, `[DIR]/home/.config/gripfast/gripfast.toml`
      hint: `gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; `--config FILE` or $GRIPFAST_CONFIG names another file, which may be the JSON or YAML of another client
    ");
}

#[test]
fn a_named_config_that_is_not_there() {
    assert_snapshot!(Sandbox::with("").run(&["check", "other.toml"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `other.toml`
      hint: `gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; `--config FILE` or $GRIPFAST_CONFIG names another file, which may be the JSON or YAML of another client
    ");
}

#[test]
fn a_directory_for_a_config() {
    assert_snapshot!(Sandbox::empty().run(&["check", "home"]), @"
    exit 2
    --- stderr
    error: cannot read config file `home`: Is a directory (os error 21)
    ");
}

#[test]
fn the_config_may_be_named_in_three_ways() {
    let sandbox = Sandbox::with("nonsense").file("good.toml", "");
    assert_eq!(sandbox.run(&["check"]).code, Some(2));
    assert_eq!(sandbox.run(&["check", "good.toml"]).code, Some(0));
    assert_eq!(sandbox.run(&["check", "--config", "good.toml"]).code, Some(0));
    assert_eq!(sandbox.run(&["--config", "good.toml", "check"]).code, Some(0));
    assert_eq!(sandbox.run_with(&["check"], &[("GRIPFAST_CONFIG", "good.toml")]).code, Some(0));
}

#[test]
fn broken_syntax() {
    assert_snapshot!(Sandbox::with("[servers.a\ncommand = 'x'").run(&["check"]), @"
    exit 2
    --- stdout
    invalid, 1 error
    --- stderr
    error: unclosed table, expected `]`
     --> ./gripfast.toml:1:11
      |
    1 | [servers.a
      |           ^
    ");
}

#[test]
fn one_bad_server_among_good_ones() {
    let config = [&url("good", UNUSED_URL), "[servers.bad]\ncomand = 'npx'\n"].concat();
    assert_snapshot!(Sandbox::with(&config).run(&["check"]), @"
    exit 2
    --- stdout
    invalid, 1 error: 2 servers (1 http, 1 unusable)
    --- stderr
    error: unknown key `comand`
     --> ./gripfast.toml:4:1 (servers.bad.comand)
      |
    4 | comand = 'npx'
      | ^^^^^^
      hint: did you mean `command`?
    ");
}

#[test]
fn one_bad_server_for_programs() {
    let config = [&url("good", UNUSED_URL), "[servers.bad]\ncomand = 'npx'\n"].concat();
    let ran = Sandbox::with(&config).run(&["check", "-o", "json"]);
    assert_eq!(ran.code, Some(2));
    assert_snapshot!(ran.stdout, @r#"{"schema_version":1,"file":"./gripfast.toml","ok":false,"servers":[{"name":"good","transport":"http","disabled":false,"ok":true},{"name":"bad","transport":null,"disabled":false,"ok":false}],"findings":[{"severity":"error","server":"bad","key":"servers.bad.comand","line":4,"column":1,"message":"unknown key `comand`","hint":"did you mean `command`?"}]}"#);
}

#[test]
fn broken_syntax_for_programs() {
    let ran = Sandbox::with("[servers.a").run(&["check", "-o", "json"]);
    assert_eq!(ran.code, Some(2));
    assert_snapshot!(ran.stdout, @r#"{"schema_version":1,"file":"./gripfast.toml","ok":false,"servers":[],"findings":[{"severity":"error","server":null,"key":"","line":1,"column":11,"message":"unclosed table, expected `]`","hint":null}]}"#);
}

#[test]
fn unset_variables_are_all_named_and_do_not_fail_the_check() {
    let config = "[servers.docs]\nurl = 'https://example.com/mcp'\n\
                  headers = { Authorization = '${env:KIND} ${env:TOKEN}', X-Fine = '${env:NONE:-default}' }\n";
    assert_snapshot!(Sandbox::with(config).run(&["check"]), @"
    exit 0
    --- stdout
    ok, 2 warnings: 1 server (1 http)
    --- stderr
    warning: server `docs` cannot start: environment variable `KIND` is not set
     --> ./gripfast.toml:1:10 (`headers.Authorization` of `docs`)
      hint: set it for the gripfast process, or write a default: `${env:KIND:-…}`

    warning: server `docs` cannot start: environment variable `TOKEN` is not set
     --> ./gripfast.toml:1:10 (`headers.Authorization` of `docs`)
      hint: set it for the gripfast process, or write a default: `${env:TOKEN:-…}`
    ");
    let set = [("KIND", "Bearer"), ("TOKEN", "secret")];
    assert_eq!(Sandbox::with(config).run_with(&["check"], &set).stderr, "");
}

#[test]
fn a_secret_file_that_is_not_there() {
    let config = "[servers.a]\nurl = 'http://localhost/mcp'\nheaders = { A = '${file:/no/such/secret}' }\n";
    assert_snapshot!(Sandbox::with(config).run(&["check"]), @"
    exit 0
    --- stdout
    ok, 1 warning: 1 server (1 http)
    --- stderr
    warning: server `a` cannot start: cannot read `/no/such/secret`: No such file or directory (os error 2)
     --> ./gripfast.toml:1:10 (`headers.A` of `a`)
      hint: the file is read whenever the server is connected
    ");
}

#[test]
fn missing_executables() {
    let config = "[servers.a]\ncommand = 'no-such-program'\n\n[servers.b]\ncommand = './tool'\n\n\
                  [servers.c]\ncommand = 'nor-this'\nenv = { PATH = '/nowhere' }\n\n\
                  [servers.d]\ncommand = 'sh'\ncwd = '/no/such/dir'\n";
    assert_snapshot!(Sandbox::with(config).file("tool", "not executable").run(&["check"]), @"
    exit 0
    --- stdout
    ok, 4 warnings: 4 servers (4 stdio)
    --- stderr
    warning: server `a` cannot start: command `no-such-program` is not on the PATH
     --> ./gripfast.toml:1:10 (`command` of `a`)
      hint: install it, or correct `command`

    warning: server `b` cannot start: `./tool` is not an executable file
     --> ./gripfast.toml:4:10 (`command` of `b`)
      hint: install it, or correct `command`

    warning: server `c` cannot start: command `nor-this` is not on the PATH
     --> ./gripfast.toml:7:10 (`command` of `c`)
      hint: install it, or correct `command`

    warning: server `d` cannot start: `/no/such/dir` is not a directory
      --> ./gripfast.toml:11:10 (`cwd` of `d`)
       hint: create it, or correct `cwd`
    ");
}

#[test]
fn nothing_is_started() {
    let sandbox = Sandbox::empty();
    let pid_file = sandbox.path("pid");
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &["--pid-file", pid_file.to_str().unwrap()]));
    assert_eq!(sandbox.run(&["check"]).code, Some(0));
    assert!(!pid_file.exists());
}

#[test]
fn a_mistake_in_the_table_of_replicas_is_an_error_and_a_missing_variable_a_warning() {
    let config = |key: &str, store: &str| {
        let cluster =
            format!("[cluster]\nname = 'a'\nlisten = '127.0.0.1:7332'\nkey = '{key}'\nstore = '{store}'\n");
        [url("web", UNUSED_URL), cluster].concat()
    };
    let (key, store) = ("a secret of at least thirty-two characters", "redis://127.0.0.1:6379");
    for (config, code, said) in [
        (config(key, store), 0, ""),
        (config("short", store), 2, "error: `cluster.key`"),
        (config(key, "http://127.0.0.1"), 2, "error: `cluster.store`"),
        (config("${env:NO_SUCH_KEY}", store), 0, "warning: `cluster.key`"),
    ] {
        let checked = Sandbox::with(&config).run(&["check"]);
        assert_eq!(checked.code, Some(code), "{config}{checked}");
        assert!(checked.stderr.contains(said), "{config}{checked}");
        assert_eq!(checked.stderr.contains("hint: "), !said.is_empty(), "{checked}");
    }
}
