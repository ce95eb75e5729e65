//! Messages about config files of other clients.

use super::{JSON, YAML, report};
use insta::assert_snapshot;

#[test]
fn an_unknown_key_is_a_warning() {
    let text = r#"{ "mcpServers": { "a": {
  "comand": "x",
  "command": "x"
} } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        warning: ignored unknown key `comand`
         --> mcp.json:2:3 (mcpServers.a.comand)
          |
        2 |   "comand": "x",
          |   ^^^^^^^^
          hint: did you mean `command`?
    "#);
}

#[test]
fn a_timeout_without_a_unit_is_explained() {
    let text = r#"{ "mcpServers": { "a": {
  "command": "x",
  "timeout": 60,
  "autoApprove": ["read"]
} } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        warning: ignored unknown key `timeout`
         --> mcp.json:3:3 (mcpServers.a.timeout)
          |
        3 |   "timeout": 60,
          |   ^^^^^^^^^
          hint: clients use different units for it; set `timeouts.call`, for example "300s"

        warning: ignored unknown key `autoApprove`
         --> mcp.json:4:3 (mcpServers.a.autoApprove)
          |
        4 |   "autoApprove": ["read"]
          |   ^^^^^^^^^^^^^
          hint: the client approves calls
    "#);
}

#[test]
fn two_names_for_one_thing() {
    let text = r#"{ "mcpServers": { "a": { "url": "http://h/", "serverUrl": "http://h/" } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: `serverUrl` means the same as `mcpServers.a.url`, which is also set
         --> mcp.json:1:46 (mcpServers.a.serverUrl)
          |
        1 | { "mcpServers": { "a": { "url": "http://h/", "serverUrl": "http://h/" } } }
          |                                              ^^^^^^^^^^^
          hint: keep one of them
    "#);
}

#[test]
fn an_empty_command_list() {
    let text = r#"{ "mcpServers": { "a": { "command": [] } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: expected a command, found an empty list
         --> mcp.json:1:37 (mcpServers.a.command)
          |
        1 | { "mcpServers": { "a": { "command": [] } } }
          |                                     ^
    "#);
}

#[test]
fn environment_of_a_url_is_a_warning() {
    let text = r#"{ "mcpServers": { "a": { "url": "http://h/", "env": {} } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        warning: `env` requires `command`, which this server does not have
         --> mcp.json:1:46 (mcpServers.a.env)
          |
        1 | { "mcpServers": { "a": { "url": "http://h/", "env": {} } } }
          |                                              ^^^^^
          hint: it is ignored
    "#);
}

#[test]
fn a_websocket_of_another_client() {
    let text = r#"{ "mcpServers": { "a": { "type": "ws", "url": "wss://h/" } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: WebSocket is not an MCP transport, and gripfast does not support it
         --> mcp.json:1:34 (mcpServers.a.type)
          |
        1 | { "mcpServers": { "a": { "type": "ws", "url": "wss://h/" } } }
          |                                  ^^^^
          hint: look up the server's Streamable HTTP URL in its documentation

        error: the scheme is `wss`, expected `http` or `https`
         --> mcp.json:1:47 (mcpServers.a.url)
          |
        1 | { "mcpServers": { "a": { "type": "ws", "url": "wss://h/" } } }
          |                                               ^^^^^^^^^^
          hint: for example "https://example.com/mcp"
    "#);
}

#[test]
fn a_yes_of_older_yaml() {
    let text = "mcp_servers:
  a:
    command: x
    enabled: yes
";
    assert_snapshot!(report(YAML, text), @r"
        error: expected true or false, found a string
         --> config.yaml:4:14 (mcp_servers.a.enabled)
          |
        4 |     enabled: yes
          |              ^^^
          hint: write true, without quotes
    ");
}

#[test]
fn a_keepalive_in_seconds_by_hermes() {
    let text = "mcp_servers:
  a:
    command: x
    keepalive_interval: 180
";
    assert_snapshot!(report(YAML, text), @r#"
        warning: taken as seconds
         --> config.yaml:4:25 (mcp_servers.a.keepalive_interval)
          |
        4 |     keepalive_interval: 180
          |                         ^^^
          hint: write "3m" to have the same meaning in every file
    "#);
}

#[test]
fn a_keepalive_out_of_range_by_hermes() {
    let text = "mcp_servers:
  a:
    command: x
    keepalive_interval: 2
";
    assert_snapshot!(report(YAML, text), @r"
        error: 2s is out of range; allowed: 5s to 30d, or 0s for off
         --> config.yaml:4:25 (mcp_servers.a.keepalive_interval)
          |
        4 |     keepalive_interval: 2
          |                         ^
    ");
}

#[test]
fn an_ignored_exclude_by_hermes() {
    let text = "mcp_servers:
  a:
    command: x
    tools: { include: [a], exclude: [b] }
";
    assert_snapshot!(report(YAML, text), @r"
        warning: ignored, because `include` is set and takes precedence over `exclude` in this kind of file
         --> config.yaml:4:37 (mcp_servers.a.tools.exclude)
          |
        4 |     tools: { include: [a], exclude: [b] }
          |                                     ^
          hint: `deny` always applies
    ");
}

#[test]
fn a_bare_number_by_others() {
    let text = r#"{ "mcpServers": { "a": { "command": "x", "timeouts": { "call": 30 } } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: expected a duration with a unit, found a number
         --> mcp.json:1:64 (mcpServers.a.timeouts.call)
          |
        1 | { "mcpServers": { "a": { "command": "x", "timeouts": { "call": 30 } } } }
          |                                                                ^^
          hint: write "30s" for seconds or "30ms" for milliseconds
    "#);
}

#[test]
fn an_invalid_codex_variable() {
    let text = r#"[mcp_servers.a]
url = "http://h/"
bearer_token_env_var = "not a name"
"#;
    assert_snapshot!(report("config.toml", text), @r#"
        error: expected the name of an environment variable
         --> config.toml:3:24 (mcp_servers.a.bearer_token_env_var)
          |
        3 | bearer_token_env_var = "not a name"
          |                        ^^^^^^^^^^^^
    "#);
}
