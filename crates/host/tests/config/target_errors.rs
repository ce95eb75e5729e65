//! Errors in the command or URL of a server.

use super::{TOML, report};
use insta::assert_snapshot;

#[test]
fn a_transport_that_does_not_exist() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
transport = "htp"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `htp` is not one of `auto`, `stdio`, `http`, `sse`
         --> gripfast.toml:3:13 (servers.docs.transport)
          |
        3 | transport = "htp"
          |             ^^^^^
          hint: did you mean `http`?
    "#);
}

#[test]
fn a_websocket() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
transport = "ws"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: WebSocket is not an MCP transport, and gripfast does not support it
         --> gripfast.toml:3:13 (servers.docs.transport)
          |
        3 | transport = "ws"
          |             ^^^^
          hint: look up the server's Streamable HTTP URL in its documentation
    "#);
}

#[test]
fn a_transport_by_the_name_others_use() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
transport = "streamable-http"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `streamable-http` is not one of `auto`, `stdio`, `http`, `sse`
         --> gripfast.toml:3:13 (servers.docs.transport)
          |
        3 | transport = "streamable-http"
          |             ^^^^^^^^^^^^^^^^^
          hint: write `http`
    "#);
}

#[test]
fn the_key_type_in_a_native_file() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
type = "http"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `type`
         --> gripfast.toml:3:1 (servers.docs.type)
          |
        3 | type = "http"
          | ^^^^
          hint: write `transport`
    "#);
}

#[test]
fn a_url_transport_with_a_command() {
    let text = r#"[servers.github]
command = "npx"
transport = "http"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: this transport needs a `url`, but the server has a `command`
         --> gripfast.toml:3:13 (servers.github.transport)
          |
        3 | transport = "http"
          |             ^^^^^^
    "#);
}

#[test]
fn a_stdio_transport_with_a_url() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
transport = "stdio"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: this transport needs a `command`, but the server has a `url`
         --> gripfast.toml:3:13 (servers.docs.transport)
          |
        3 | transport = "stdio"
          |             ^^^^^^^
    "#);
}

#[test]
fn an_invalid_url() {
    let text = r#"[servers.docs]
url = "example.com/mcp"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: not a URL: relative URL without a base
         --> gripfast.toml:2:7 (servers.docs.url)
          |
        2 | url = "example.com/mcp"
          |       ^^^^^^^^^^^^^^^^^
          hint: for example "https://example.com/mcp"
    "#);
}

#[test]
fn a_url_of_another_scheme() {
    let text = r#"[servers.docs]
url = "ftp://example.com/mcp"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: the scheme is `ftp`, expected `http` or `https`
         --> gripfast.toml:2:7 (servers.docs.url)
          |
        2 | url = "ftp://example.com/mcp"
          |       ^^^^^^^^^^^^^^^^^^^^^^^
          hint: for example "https://example.com/mcp"
    "#);
}

#[test]
fn a_url_without_a_host() {
    let text = r#"[servers.docs]
url = "http:///"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: not a URL: empty host
         --> gripfast.toml:2:7 (servers.docs.url)
          |
        2 | url = "http:///"
          |       ^^^^^^^^^^
          hint: for example "https://example.com/mcp"
    "#);
}

#[test]
fn an_empty_command() {
    let text = r#"[servers.a]
command = " "
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a string that is not empty
         --> gripfast.toml:2:11 (servers.a.command)
          |
        2 | command = " "
          |           ^^^
    "#);
}

#[test]
fn a_command_that_is_a_list() {
    let text = r#"[servers.a]
command = ["npx", "-y"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a string, found a list
         --> gripfast.toml:2:11 (servers.a.command)
          |
        2 | command = ["npx", "-y"]
          |           ^
          hint: write `command = "program"` and `args = ["…"]`
    "#);
}

#[test]
fn an_argument_that_is_a_number() {
    let text = r#"[servers.github]
command = "npx"
args = ["--port", 8080]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a string, found a number
         --> gripfast.toml:3:19 (servers.github.args[1])
          |
        3 | args = ["--port", 8080]
          |                   ^^^^
          hint: put it in quotes
    "#);
}

#[test]
fn an_argument_that_is_a_list() {
    let text = r#"[servers.github]
command = "npx"
args = [[]]
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: expected a string, found a list
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = [[]]
          |         ^
    ");
}

#[test]
fn arguments_in_one_string() {
    let text = r#"[servers.github]
command = "npx"
args = "-y server"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a list, found a string
         --> gripfast.toml:3:8 (servers.github.args)
          |
        3 | args = "-y server"
          |        ^^^^^^^^^^^
          hint: write ["…"] with square brackets
    "#);
}

#[test]
fn a_variable_that_is_a_number() {
    let text = r#"[servers.github]
command = "npx"
env = { PORT = 8080 }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: expected a string, found a number
         --> gripfast.toml:3:16 (servers.github.env.PORT)
          |
        3 | env = { PORT = 8080 }
          |                ^^^^
          hint: put it in quotes
    ");
}

#[test]
fn a_variable_with_an_impossible_name() {
    let text = r#"[servers.github]
command = "npx"
env = { "A=B" = "x" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `A=B` cannot be the name of a variable
         --> gripfast.toml:3:9 (servers.github.env.A=B)
          |
        3 | env = { "A=B" = "x" }
          |         ^^^^^
    "#);
}

#[test]
fn an_environment_that_is_a_list() {
    let text = r#"[servers.github]
command = "npx"
env = ["A=B"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a table, found a list
         --> gripfast.toml:3:7 (servers.github.env)
          |
        3 | env = ["A=B"]
          |       ^
    "#);
}

#[test]
fn an_invalid_inherited_name() {
    let text = r#"[servers.github]
command = "npx"
inherit_env = ["A=B", 3]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected the name of an environment variable
         --> gripfast.toml:3:16 (servers.github.inherit_env[0])
          |
        3 | inherit_env = ["A=B", 3]
          |                ^^^^^

        error: expected a string, found a number
         --> gripfast.toml:3:23 (servers.github.inherit_env[1])
          |
        3 | inherit_env = ["A=B", 3]
          |                       ^
    "#);
}

#[test]
fn headers_of_a_command() {
    let text = r#"[servers.github]
command = "npx"
headers = { A = "b" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `headers` requires `url`, which this server does not have
         --> gripfast.toml:3:1 (servers.github.headers)
          |
        3 | headers = { A = "b" }
          | ^^^^^^^
    "#);
}

#[test]
fn arguments_of_a_url() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
args = []
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `args` requires `command`, which this server does not have
         --> gripfast.toml:3:1 (servers.docs.args)
          |
        3 | args = []
          | ^^^^
    ");
}

#[test]
fn a_header_with_an_impossible_name() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
headers = { "A B" = "x" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `A B` cannot be the name of a header
         --> gripfast.toml:3:13 (servers.docs.headers.A B)
          |
        3 | headers = { "A B" = "x" }
          |             ^^^^^
    "#);
}

#[test]
fn a_header_with_a_line_break() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
headers = { A = "x\ny" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: a header cannot contain line breaks or other control characters
         --> gripfast.toml:3:17 (servers.docs.headers.A)
          |
        3 | headers = { A = "x\ny" }
          |                 ^^^^^^
    "#);
}

#[test]
fn a_certificate_without_its_key() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
client_cert = "/a.pem"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `client_cert` and `client_key` go together, but only one is set
         --> gripfast.toml:3:1 (servers.docs.client_cert)
          |
        3 | client_cert = "/a.pem"
          | ^^^^^^^^^^^
    "#);
}

#[test]
fn white_space_around_a_value() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
headers = { Authorization = "Bearer abc " }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        warning: the value begins or ends with white space
         --> gripfast.toml:3:29 (servers.docs.headers.Authorization)
          |
        3 | headers = { Authorization = "********** " }
          |                             ^^^^^^^^^^^^^
    "#);
}
