//! Errors in the file as a whole and in the gateway section: nothing starts.

use super::{JSON, TOML, parse, report};
use gripfast::config::TokenTypes;
use insta::assert_snapshot;

#[test]
fn an_unknown_table() {
    let text = r#"[server.github]
command = "npx"
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: unknown key `server`
         --> gripfast.toml:1:2 (server)
          |
        1 | [server.github]
          |  ^^^^^^^^^^^^^
          hint: did you mean `servers`?
    ");
}

#[test]
fn an_unknown_key_without_a_similar_one() {
    let text = r#"colour = "red"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `colour`
         --> gripfast.toml:1:1 (colour)
          |
        1 | colour = "red"
          | ^^^^^^
          hint: known keys: gateway, defaults, servers, clients, budgets, cluster
    "#);
}

#[test]
fn a_clients_entry_that_does_not_say_of_which_server() {
    let text = r#"[clients.ci]
tools = { allow = ["read_*"] }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `read_*` names no server; write `SERVER/read_*`, or `*/read_*` for all servers
         --> gripfast.toml:2:9 (clients.ci.tools)
          |
        2 | tools = { allow = ["read_*"] }
          |         ^
    "#);
}

#[test]
fn an_address_for_other_replicas_with_tls() {
    let text = r#"[cluster]
store = "redis://127.0.0.1:6379/0"
key = "a secret of at least thirty-two characters"
advertise = "https://10.0.0.7:7332"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: not an address of a replica: its scheme is https, and replicas do not use TLS between them: write http, and use a private network
         --> gripfast.toml:4:13 (cluster.advertise)
          |
        4 | advertise = "https://10.0.0.7:7332"
          |             ^^^^^^^^^^^^^^^^^^^^^^^
          hint: the URL under which the other replicas reach this one, such as "http://10.0.0.7:7332"
    "#);
}

#[test]
fn a_budget_without_a_time() {
    let text = r#"[budgets.few]
calls = 10
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `calls` needs `within`, such as "1m"
         --> gripfast.toml:1:10 (budgets.few)
          |
        1 | [budgets.few]
          |          ^^^
    "#);
}

#[test]
fn an_empty_native_file() {
    let text = "# nothing yet
";
    assert_snapshot!(report(TOML, text), @r"
        warning: no servers in this file
         --> gripfast.toml:1:1
          |
        1 | # nothing yet
          | ^
          hint: add a table `[servers.NAME]` with a `command` or a `url`
    ");
}

#[test]
fn an_empty_json_file() {
    let text = "";
    assert_snapshot!(report(JSON, text), @r"
        error: the file is empty
         --> mcp.json:1:1
          hint: put the servers under `mcpServers`
    ");
}

#[test]
fn a_json_file_without_servers() {
    let text = "{}";
    assert_snapshot!(report(JSON, text), @r"
        error: the file is empty
         --> mcp.json:1:1
          |
        1 | {}
          | ^
          hint: put the servers under `mcpServers`
    ");
}

#[test]
fn a_json_file_that_is_a_list() {
    let text = "[]";
    assert_snapshot!(report(JSON, text), @r"
        error: expected a table at the top, found a list
         --> mcp.json:1:1
          |
        1 | []
          | ^
    ");
}

#[test]
fn an_empty_list_of_servers() {
    let text = r#"{ "mcpServers": {} }"#;
    assert_snapshot!(report(JSON, text), @r#"
        warning: no servers in this file
         --> mcp.json:1:3
          |
        1 | { "mcpServers": {} }
          |   ^^^^^^^^^^^^
          hint: add one to `mcpServers`: "NAME": { "command": "…" }, or with a `url`
    "#);
}

#[test]
fn the_root_key_of_zed() {
    let text = r#"{
  "theme": "dark",
  "context_servers": { "a": { "command": "x" } }
}"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: found `context_servers` (Zed's key), expected one of `servers`, `mcpServers`, `mcp_servers`
         --> mcp.json:3:3 (context_servers)
          |
        3 |   "context_servers": { "a": { "command": "x" } }
          |   ^^^^^^^^^^^^^^^^^
          hint: rename it to `mcpServers`
    "#);
}

#[test]
fn the_root_key_of_json_in_toml() {
    let text = r#"[mcpServers.a]
command = "npx"
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: found `mcpServers` (the key of JSON files), expected one of `servers`, `mcp_servers`
         --> gripfast.toml:1:2 (mcpServers)
          |
        1 | [mcpServers.a]
          |  ^^^^^^^^^^^^
          hint: rename it to `servers`
    ");
}

#[test]
fn a_json_file_about_something_else() {
    let text = r#"{ "compilerOptions": {}, "include": [] }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: found `compilerOptions`, `include`, expected one of `servers`, `mcpServers`, `mcp_servers`
         --> mcp.json:1:3
          |
        1 | { "compilerOptions": {}, "include": [] }
          |   ^^^^^^^^^^^^^^^^^
          hint: put the servers under `mcpServers`
    "#);
}

#[test]
fn two_root_keys() {
    let text = r#"{ "servers": {}, "mcpServers": {} }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: both `servers` and `mcpServers` hold servers
         --> mcp.json:1:18 (mcpServers)
          |
        1 | { "servers": {}, "mcpServers": {} }
          |                  ^^^^^^^^^^^^
          hint: move all of them under `servers`
    "#);
}

#[test]
fn servers_as_a_list() {
    let text = r#"{ "mcpServers": [ { "name": "a" } ] }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: expected a table with a key for each server, found a list
         --> mcp.json:1:17 (mcpServers)
          |
        1 | { "mcpServers": [ { "name": "a" } ] }
          |                 ^
          hint: turn the `name` of each server into its key
    "#);
}

#[test]
fn servers_as_a_string() {
    let text = r#"servers = "all"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a table with a key for each server, found a string
         --> gripfast.toml:1:11 (servers)
          |
        1 | servers = "all"
          |           ^^^^^
    "#);
}

#[test]
fn keys_of_other_programs_are_one_warning() {
    let text = r#"{ "inputs": [], "theme": "dark", "servers": { "a": { "command": "x" } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        warning: ignored keys that are not about servers: `inputs`, `theme`
         --> mcp.json:1:3 (inputs)
          |
        1 | { "inputs": [], "theme": "dark", "servers": { "a": { "command": "x" } } }
          |   ^^^^^^^^
    "#);
}

#[test]
fn a_server_that_is_no_table() {
    let text = r#"[servers]
github = "npx"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a table, found a string
         --> gripfast.toml:2:10 (servers.github)
          |
        2 | github = "npx"
          |          ^^^^^
    "#);
}

#[test]
fn an_unknown_gateway_key() {
    let text = r#"[gateway]
listen_on = "127.0.0.1:1"
listen = "127.0.0.1:7331"
[servers]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `listen_on`
         --> gripfast.toml:2:1 (gateway.listen_on)
          |
        2 | listen_on = "127.0.0.1:1"
          | ^^^^^^^^^
          hint: did you mean `listen`?
    "#);
}

#[test]
fn an_exposure_that_does_not_exist() {
    let text = r#"[gateway]
exposure = "serch"
exposure_limit = -1
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `serch` is not one of `all`, `search`, `auto`
         --> gripfast.toml:2:12 (gateway.exposure)
          |
        2 | exposure = "serch"
          |            ^^^^^^^
          hint: did you mean `search`?

        error: `-1` is out of range; allowed: 0 to 100000000
         --> gripfast.toml:3:18 (gateway.exposure_limit)
          |
        3 | exposure_limit = -1
          |                  ^^
    "#);
}

#[test]
fn a_listen_address_with_a_name() {
    let text = r#"[gateway]
listen = "localhost:7331"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected an IP address and a port
         --> gripfast.toml:2:10 (gateway.listen)
          |
        2 | listen = "localhost:7331"
          |          ^^^^^^^^^^^^^^^^
          hint: for example "127.0.0.1:7331", or "0.0.0.0:7331" to let other machines in
    "#);
}

#[test]
fn a_listen_address_that_is_a_port() {
    let text = "[gateway]
listen = 7331
";
    assert_snapshot!(report(TOML, text), @r#"
        error: expected an IP address and a port, found a number
         --> gripfast.toml:2:10 (gateway.listen)
          |
        2 | listen = 7331
          |          ^^^^
          hint: for example "127.0.0.1:7331", or "0.0.0.0:7331" to let other machines in
    "#);
}

#[test]
fn an_empty_state_dir() {
    let text = r#"[gateway]
state_dir = ""
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected the path of a directory, found an empty string
         --> gripfast.toml:2:13 (gateway.state_dir)
          |
        2 | state_dir = ""
          |             ^^
    "#);
}

#[test]
fn a_startup_wait_without_a_unit() {
    let text = "[gateway]
startup_wait = 2
";
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a duration with a unit, found a number
         --> gripfast.toml:2:16 (gateway.startup_wait)
          |
        2 | startup_wait = 2
          |                ^
          hint: write "2s" for seconds or "2ms" for milliseconds
    "#);
}

#[test]
fn a_startup_wait_that_is_too_long() {
    let text = r#"[gateway]
startup_wait = "1h"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: 1h is out of range; allowed: 0s to 10m
         --> gripfast.toml:2:16 (gateway.startup_wait)
          |
        2 | startup_wait = "1h"
          |                ^^^^
    "#);
}

#[test]
fn a_session_that_ends_at_once() {
    let text = r#"[gateway]
session_idle_timeout = "0s"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: 0s is out of range; allowed: 1s to 30d
         --> gripfast.toml:2:24 (gateway.session_idle_timeout)
          |
        2 | session_idle_timeout = "0s"
          |                        ^^^^
    "#);
}

#[test]
fn a_shutdown_that_takes_no_time() {
    let text = r#"[gateway]
shutdown_timeout = "0s"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: 0s is out of range; allowed: 1s to 30d
         --> gripfast.toml:2:20 (gateway.shutdown_timeout)
          |
        2 | shutdown_timeout = "0s"
          |                    ^^^^
    "#);
}

#[test]
fn a_drain_that_outlasts_the_shutdown() {
    let text = r#"[gateway]
drain_wait = "9s"
"#;
    assert_snapshot!(report(TOML, text), @"
        error: `drain_wait` (9s) is not shorter than `shutdown_timeout` (9s)
         --> gripfast.toml:1:2 (gateway)
          |
        1 | [gateway]
          |  ^^^^^^^
    ");
}

#[test]
fn limits_that_are_out_of_range_or_unknown() {
    let text = "[gateway.limits]
sessions = 0
session = 5
";
    assert_snapshot!(report(TOML, text), @r#"
        error: `0` is out of range; allowed: 1 to 1000000
         --> gripfast.toml:2:12 (gateway.limits.sessions)
          |
        2 | sessions = 0
          |            ^

        error: unknown key `session`
         --> gripfast.toml:3:1 (gateway.limits.session)
          |
        3 | session = 5
          | ^^^^^^^
          hint: did you mean `sessions`?
    "#);
}

#[test]
fn embeddings_without_a_model_or_with_a_wrong_url_or_timeout() {
    let text = "[gateway.search.embeddings]
url = \"ftp://localhost/embeddings\"
model = \"small\"
headers = { \"api key\" = \"x\" }
timeout = \"1m\"
";
    assert_snapshot!(report(TOML, text), @r#"
        error: `api key` cannot be the name of a header
         --> gripfast.toml:4:25 (gateway.search.embeddings.headers.api key)
          |
        4 | headers = { "api key" = "x" }
          |                         ^^^

        error: 1m is out of range; allowed: 10ms to 10s
         --> gripfast.toml:5:11 (gateway.search.embeddings.timeout)
          |
        5 | timeout = "1m"
          |           ^^^^
    "#);
    let text = "[gateway.search.embeddings]
url = \"ftp://localhost/embeddings\"
model = \"small\"
";
    assert_snapshot!(report(TOML, text), @r#"
        error: the scheme is `ftp`, expected `http` or `https`
         --> gripfast.toml:2:7 (gateway.search.embeddings.url)
          |
        2 | url = "ftp://localhost/embeddings"
          |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    let text = "[gateway.search]
embeddings = { url = \"http://localhost/v1/embeddings\" }
";
    assert_snapshot!(report(TOML, text), @r#"
        error: expected `url` and `model`
         --> gripfast.toml:2:14 (gateway.search.embeddings)
          |
        2 | embeddings = { url = "http://localhost/v1/embeddings" }
          |              ^
          hint: the URL of the endpoint, such as "http://127.0.0.1:11434/v1/embeddings", and the name of a model
    "#);
}

#[test]
fn an_unknown_login_key_location() {
    let text = "[gateway]\nlogin_key = \"keychain\"\n";
    assert_snapshot!(report(TOML, text), @r#"
    error: `keychain` is not one of `file`, `keyring`
     --> gripfast.toml:2:13 (gateway.login_key)
      |
    2 | login_key = "keychain"
      |             ^^^^^^^^^^
    "#);
}

#[test]
fn strict_modes_are_on_or_off() {
    let text = "[gateway]\nstrict_modes = \"off\"\n";
    assert_snapshot!(report(TOML, text), @r#"
    error: expected true or false, found a string
     --> gripfast.toml:2:16 (gateway.strict_modes)
      |
    2 | strict_modes = "off"
      |                ^^^^^
      hint: write false, without quotes
    "#);
}

#[test]
fn an_unknown_ledger_value() {
    let text = r#"[gateway]
ledger = "args"
ledger_size = "1KiB"
"#;
    assert_snapshot!(report(TOML, text), @r#"
    error: `args` is not one of `off`, `digest`, `arguments`
     --> gripfast.toml:2:10 (gateway.ledger)
      |
    2 | ledger = "args"
      |          ^^^^^^

    error: `1KiB` is out of range; allowed: 64KiB to 1GiB
     --> gripfast.toml:3:15 (gateway.ledger_size)
      |
    3 | ledger_size = "1KiB"
      |               ^^^^^^
    "#);
}

#[test]
fn a_gateway_that_is_no_table() {
    let text = r#"{ "gateway": true, "servers": {} }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: expected a table, found a boolean
         --> mcp.json:1:14 (gateway)
          |
        1 | { "gateway": true, "servers": {} }
          |              ^^^^
    "#);
}

#[test]
fn an_invalid_origin() {
    let text = r#"[gateway]
allowed_origins = ["http://localhost:6274", "localhost:3000"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected an origin as browsers send it: scheme, host and a port that is not the default one
         --> gripfast.toml:2:45 (gateway.allowed_origins[1])
          |
        2 | allowed_origins = ["http://localhost:6274", "localhost:3000"]
          |                                             ^^^^^^^^^^^^^^^^
          hint: for example "http://localhost:6274"
    "#);
}

#[test]
fn an_invalid_public_url() {
    let text = r#"[gateway]
public_url = "mcp.example.com"
auth = { keys = "often", key = true }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected the URL that clients use
         --> gripfast.toml:2:14 (gateway.public_url)
          |
        2 | public_url = "mcp.example.com"
          |              ^^^^^^^^^^^^^^^^^
          hint: for example "https://mcp.example.com", without `/mcp`

        error: expected true or false, found a string
         --> gripfast.toml:3:17 (gateway.auth.keys)
          |
        3 | auth = { keys = "often", key = true }
          |                 ^^^^^^^

        error: unknown key `key`
         --> gripfast.toml:3:26 (gateway.auth.key)
          |
        3 | auth = { keys = "often", key = true }
          |                          ^^^
          hint: did you mean `keys`?
    "#);
}

#[test]
fn an_incomplete_token_issuer() {
    let text = r#"[gateway.auth.jwt]
issuer = "https://login.example"
jwks = "/etc/jwks.json"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected `issuer`, `audience` and `jwks`
         --> gripfast.toml:1:15 (gateway.auth.jwt)
          |
        1 | [gateway.auth.jwt]
          |               ^^^
          hint: the values of the claims `iss` and `aud`, and the URL or file of the issuer's keys
    "#);
}

#[test]
fn g05_an_issuer_or_its_keys_over_plain_http_beyond_this_machine() {
    let text = r#"[gateway.auth.jwt]
issuer = "http://login.example"
audience = "a"
jwks = "HTTP://192.168.1.7/jwks.json"
typ = "at-jwt"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: plain http is accepted for loopback addresses only
         --> gripfast.toml:2:10 (gateway.auth.jwt.issuer)
          |
        2 | issuer = "http://login.example"
          |          ^^^^^^^^^^^^^^^^^^^^^^
          hint: use `https://`: plain http can be read and changed on the network

        error: plain http is accepted for loopback addresses only
         --> gripfast.toml:4:8 (gateway.auth.jwt.jwks)
          |
        4 | jwks = "HTTP://192.168.1.7/jwks.json"
          |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: use `https://`: plain http can be read and changed on the network

        error: `at-jwt` is not one of `any`, `at+jwt`
         --> gripfast.toml:5:7 (gateway.auth.jwt.typ)
          |
        5 | typ = "at-jwt"
          |       ^^^^^^^^
          hint: did you mean `at+jwt`?
    "#);
    for address in
        ["http://127.0.0.1:8080/a", "http://[::1]/a", "http://localhost/a", "https://login.example/a"]
    {
        let text = format!(
            "[gateway.auth.jwt]\nissuer = '{address}'\naudience = 'a'\njwks = '{address}'\ntyp = 'at+jwt'\n"
        );
        let config = parse(TOML, &text);
        assert_eq!(config.gateway.access.jwt.unwrap().typ, TokenTypes::AccessToken);
    }
    for address in
        ["http://login.example", "http://localhost.example", "http://127.0.0.1.example", "http://10.0.0.1"]
    {
        let keys = format!("[gateway.auth.jwt]\nissuer = 'i'\naudience = 'a'\njwks = '{address}'\n");
        let issuer = format!("[gateway.auth.jwt]\nissuer = '{address}'\naudience = 'a'\njwks = 'f'\n");
        for text in [keys, issuer] {
            assert!(report(TOML, &text).contains("loopback addresses only"), "{text}");
        }
    }
}

#[test]
fn logins_for_a_gateway_that_has_no_name() {
    let text = r#"[gateway]
listen = "0.0.0.0:7331"
auth.jwt = { issuer = "https://login.example", audience = "a", jwks = "/etc/jwks.json" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `auth.jwt` requires `public_url`, because `listen` is every address
         --> gripfast.toml:3:12 (gateway.auth.jwt)
          |
        3 | auth.jwt = { issuer = "https://login.example", audience = "a", jwks = "/etc/jwks.json" }
          |            ^
          hint: set `public_url` in the table `gateway` to the URL that clients use, for example "https://mcp.example.com"
    "#);
    let named = text.replace("[gateway]", "[gateway]\npublic_url = \"https://mcp.example.com\"");
    assert!(!report(TOML, &named).contains("log in"), "{}", report(TOML, &named));
}

#[test]
fn a_certificate_without_its_key() {
    let text = r#"[gateway]
tls = { cert = "/etc/cert.pem", keys = "/etc/key.pem" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `keys`
         --> gripfast.toml:2:33 (gateway.tls.keys)
          |
        2 | tls = { cert = "/etc/cert.pem", keys = "/etc/key.pem" }
          |                                 ^^^^
          hint: did you mean `key`?

        error: expected `cert` and `key`
         --> gripfast.toml:2:7 (gateway.tls)
          |
        2 | tls = { cert = "/etc/cert.pem", keys = "/etc/key.pem" }
          |       ^
          hint: the PEM files of the certificate chain and of its private key
    "#);
}

#[test]
fn limits_of_clients_beyond_their_range() {
    for (line, allowed) in [
        ("first_request_timeout = \"99ms\"", Some("100ms to 1m")),
        ("first_request_timeout = \"100ms\"", None),
        ("first_request_timeout = \"61s\"", Some("100ms to 1m")),
        ("requests = 1000001", Some("0 to 1000000")),
        ("requests = 1000000", None),
        ("requests = 0", None),
    ] {
        let text = format!("[gateway.limits]\n{line}\n[servers.x]\ncommand = \"x\"\n");
        match allowed {
            Some(allowed) => {
                let said = report(TOML, &text);
                assert!(said.contains(&format!("allowed: {allowed}")), "{line}: {said}");
            }
            None => drop(parse(TOML, &text)),
        }
    }
}

#[test]
fn requests_have_a_rate_where_clients_authenticate_and_where_the_config_sets_one() {
    let rate = |line: &str, with_auth: bool| {
        let text = format!("[gateway.limits]\n{line}\n[servers.x]\ncommand = \"x\"\n");
        parse(TOML, &text).gateway.limits.request_rate(with_auth)
    };
    assert_eq!((rate("", true), rate("", false)), (Some(1000), None));
    assert_eq!((rate("requests = 7", true), rate("requests = 7", false)), (Some(7), Some(7)));
    assert_eq!((rate("requests = 0", true), rate("requests = 0", false)), (None, None));
}

#[test]
fn fewer_connections_in_all_are_fewer_for_each_client() {
    let mut limits = gripfast::config::ClientLimits::default();
    limits.lower_connections(136);
    assert_eq!((limits.connections, limits.connections_per_client), (136, 68));
    limits.lower_connections(1);
    assert_eq!((limits.connections, limits.connections_per_client), (1, 1));
}
