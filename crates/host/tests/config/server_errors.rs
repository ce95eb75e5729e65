//! Errors in the name and the simple keys of a server.

use super::{TOML, report};
use insta::assert_snapshot;

#[test]
fn a_misspelt_key() {
    let text = r#"[servers.github]
# how to start it
comand = "npx"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `comand`
         --> gripfast.toml:3:1 (servers.github.comand)
          |
        3 | comand = "npx"
          | ^^^^^^
          hint: did you mean `command`?
    "#);
}

#[test]
fn a_key_without_a_similar_one() {
    let text = r#"[servers.github]
command = "npx"
colour = "red"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `colour`
         --> gripfast.toml:3:1 (servers.github.colour)
          |
        3 | colour = "red"
          | ^^^^^^
    "#);
}

#[test]
fn a_key_of_other_clients_in_a_native_file() {
    let text = r#"[servers.docs]
serverUrl = "https://example.com/mcp"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown key `serverUrl`
         --> gripfast.toml:2:1 (servers.docs.serverUrl)
          |
        2 | serverUrl = "https://example.com/mcp"
          | ^^^^^^^^^
          hint: write `url`
    "#);
}

#[test]
fn neither_command_nor_url() {
    let text = r#"[servers.github]
args = ["-y"]
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: server `github` has neither a `command` nor a `url`
         --> gripfast.toml:1:10 (servers.github)
          |
        1 | [servers.github]
          |          ^^^^^^
          hint: `command` starts a local server, `url` reaches a remote one
    ");
}

#[test]
fn both_command_and_url() {
    let text = r#"[servers.github]
command = "npx"
url = "https://example.com/mcp"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: a server has a `command` or a `url`, not both
         --> gripfast.toml:3:1 (servers.github.url)
          |
        3 | url = "https://example.com/mcp"
          | ^^^
          hint: keep one of them
    "#);
}

#[test]
fn a_name_with_a_strange_letter() {
    let text = r#"[servers."My Server!"]
command = "x"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: a space is not allowed in a name; allowed: letters, digits, `_` and `-`
         --> gripfast.toml:1:10 (servers.My Server!)
          |
        1 | [servers."My Server!"]
          |          ^^^^^^^^^^^^
          hint: use `My-Server`
    "#);
}

#[test]
fn a_name_with_two_underscores() {
    let text = r#"[servers.git__hub]
command = "x"
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `__` is not allowed in a name, because it separates server and tool
         --> gripfast.toml:1:10 (servers.git__hub)
          |
        1 | [servers.git__hub]
          |          ^^^^^^^^
          hint: use `git_hub`
    ");
}

#[test]
fn a_name_that_ends_in_an_underscore() {
    let text = r#"[servers.github_]
command = "x"
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: a name cannot end in `_`, because `__` separates server and tool
         --> gripfast.toml:1:10 (servers.github_)
          |
        1 | [servers.github_]
          |          ^^^^^^^
          hint: use `github`
    ");
}

#[test]
fn an_empty_name() {
    let text = r#"[servers.""]
command = "x"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a name, found an empty string
         --> gripfast.toml:1:10 (servers.)
          |
        1 | [servers.""]
          |          ^^
    "#);
}

#[test]
fn a_name_that_is_too_long() {
    let text = r#"[servers.nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn]
command = "x"
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: a name of 65 characters is too long; allowed: 1 to 64
         --> gripfast.toml:1:10 (servers.nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn)
          |
        1 | [servers.nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn]
          |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: use `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn`
    ");
}

#[test]
fn enabled_and_disabled() {
    let text = r#"[servers.github]
command = "npx"
enabled = true
disabled = false
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `enabled` and `disabled` are both set
         --> gripfast.toml:3:1 (servers.github.enabled)
          |
        3 | enabled = true
          | ^^^^^^^
          hint: keep one of them
    ");
}

#[test]
fn a_flag_in_quotes() {
    let text = r#"[servers.github]
command = "npx"
disabled = "yes"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected true or false, found a string
         --> gripfast.toml:3:12 (servers.github.disabled)
          |
        3 | disabled = "yes"
          |            ^^^^^
          hint: write true, without quotes
    "#);
}

#[test]
fn a_flag_that_is_a_number() {
    let text = r#"[servers.github]
command = "npx"
lazy = 1
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: expected true or false, found a number
         --> gripfast.toml:3:8 (servers.github.lazy)
          |
        3 | lazy = 1
          |        ^
    ");
}

#[test]
fn a_protocol_that_does_not_exist() {
    let text = r#"[servers.github]
command = "npx"
protocol = "modem"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `modem` is not one of `auto`, `legacy`, `modern`
         --> gripfast.toml:3:12 (servers.github.protocol)
          |
        3 | protocol = "modem"
          |            ^^^^^^^
          hint: did you mean `modern`?
    "#);
}

#[test]
fn an_isolation_that_does_not_exist() {
    let text = r#"[servers.github]
command = "npx"
isolation = "per-client"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `per-client` is not one of `auto`, `shared`, `per_client`
         --> gripfast.toml:3:13 (servers.github.isolation)
          |
        3 | isolation = "per-client"
          |             ^^^^^^^^^^^^
          hint: did you mean `per_client`?
    "#);
}

#[test]
fn no_instances_at_all() {
    let text = r#"[servers.github]
command = "npx"
isolation = "per_client"
max_instances = 0
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `0` is out of range; allowed: 1 to 10000
         --> gripfast.toml:4:17 (servers.github.max_instances)
          |
        4 | max_instances = 0
          |                 ^
    ");
}

#[test]
fn no_tools_at_all() {
    let text = r#"[servers.github]
command = "npx"
pins = "strickt"
max_tools = 0
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `strickt` is not one of `enforce`, `strict`, `warn`, `off`
         --> gripfast.toml:3:8 (servers.github.pins)
          |
        3 | pins = "strickt"
          |        ^^^^^^^^^
          hint: did you mean `strict`?

        error: `0` is out of range; allowed: 1 to 100000
         --> gripfast.toml:4:13 (servers.github.max_tools)
          |
        4 | max_tools = 0
          |             ^
    "#);
}

#[test]
fn methods_that_are_no_list() {
    let text = r#"[servers.github]
command = "npx"
methods = "skills/*"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a list, found a string
         --> gripfast.toml:3:11 (servers.github.methods)
          |
        3 | methods = "skills/*"
          |           ^^^^^^^^^^
          hint: write ["…"] with square brackets
    "#);
}

#[test]
fn an_invalid_prefix() {
    let text = r#"[servers.github]
command = "npx"
prefix = "git.hub"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `.` is not allowed in a name; allowed: letters, digits, `_` and `-`
         --> gripfast.toml:3:10 (servers.github.prefix)
          |
        3 | prefix = "git.hub"
          |          ^^^^^^^^^
          hint: `prefix = ""` leaves the names unchanged
    "#);
}

#[test]
fn a_tool_filter_that_is_a_list() {
    let text = r#"[servers.github]
command = "npx"
tools = ["a"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a table, found a list
         --> gripfast.toml:3:9 (servers.github.tools)
          |
        3 | tools = ["a"]
          |         ^
    "#);
}

#[test]
fn a_pattern_that_is_empty() {
    let text = r#"[servers.github]
command = "npx"
tools = { deny = [""] }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a name or a pattern, found an empty string
         --> gripfast.toml:3:19 (servers.github.tools.deny[0])
          |
        3 | tools = { deny = [""] }
          |                   ^^
    "#);
}

#[test]
fn a_hint_that_no_tool_has() {
    let text = r#"[servers.github]
command = "npx"
tools = { deny = ["@destroys"] }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: unknown tool hint `@destroys`; the hints are `@read_only`, `@destructive` and `@idempotent`
         --> gripfast.toml:3:9 (servers.github.tools)
          |
        3 | tools = { deny = ["@destroys"] }
          |         ^
    "#);
}

#[test]
fn a_list_that_is_a_string() {
    let text = r#"[servers.github]
command = "npx"
replay = { safe = "search_*" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a list, found a string
         --> gripfast.toml:3:19 (servers.github.replay.safe)
          |
        3 | replay = { safe = "search_*" }
          |                   ^^^^^^^^^^
          hint: write ["…"] with square brackets
    "#);
}

#[test]
fn a_misspelt_key_of_a_filter() {
    let text = r#"[servers.github]
command = "npx"
tools = { alow = [] }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: unknown key `alow`
         --> gripfast.toml:3:11 (servers.github.tools.alow)
          |
        3 | tools = { alow = [] }
          |           ^^^^
          hint: did you mean `allow`?
    ");
}

#[test]
fn an_invalid_message_size() {
    let text = r#"[servers.github]
command = "npx"
max_message = "huge"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `huge` is not a size
         --> gripfast.toml:3:15 (servers.github.max_message)
          |
        3 | max_message = "huge"
          |               ^^^^^^
          hint: write a number of bytes, or a size such as "16MiB"
    "#);
}

#[test]
fn a_message_size_out_of_range() {
    let text = r#"[servers.github]
command = "npx"
max_message = 10
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `10` is out of range; allowed: 1KiB to 1GiB
         --> gripfast.toml:3:15 (servers.github.max_message)
          |
        3 | max_message = 10
          |               ^^
    ");
}

#[test]
fn a_message_size_of_the_wrong_kind() {
    let text = r#"[servers.github]
command = "npx"
max_message = true
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a size such as "16MiB", found a boolean
         --> gripfast.toml:3:15 (servers.github.max_message)
          |
        3 | max_message = true
          |               ^^^^
    "#);
}

#[test]
fn a_login_that_cannot_work() {
    let text = r#"
[servers.child]
command = "server"
oauth = { scopes = ["read"] }

[servers.robot]
url = "https://example.com/mcp"
oauth = { grant = "client_credentials", client_id = "robot" }

[servers.secretive]
url = "https://example.com/mcp"
oauth = { client_secret = "${env:SECRET}", client_metadata_url = "http://example.com/me.json", grants = "x" }

[servers.careless]
url = "https://example.com/mcp"
oauth = { issuer = "http://id.example.com", client_id = "us", client_secret = "${env:SECRET}" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
    error: `oauth` needs a server with a `url`; this one has a `command`
     --> gripfast.toml:2:10 (servers.child.oauth)
      |
    2 | [servers.child]
      |          ^^^^^

    error: `client_credentials` needs a `client_id`, and either a `client_secret` or a `private_key`
     --> gripfast.toml:8:9 (servers.robot.oauth)
      |
    8 | oauth = { grant = "client_credentials", client_id = "robot" }
      |         ^

    error: expected an address that begins with `https://`
      --> gripfast.toml:12:66 (servers.secretive.oauth.client_metadata_url)
       |
    12 | _secret = "${env:SECRET}", client_metadata_url = "http://example.com/me.json", grants = "x" }
       |                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: unknown key `grants`
      --> gripfast.toml:12:96 (servers.secretive.oauth.grants)
       |
    12 | ent_metadata_url = "http://example.com/me.json", grants = "x" }
       |                                                  ^^^^^^
       hint: did you mean `grant`?

    error: a `client_secret` or `private_key` needs `oauth.issuer`, the address of the authorization server that may receive it
      --> gripfast.toml:12:9 (servers.secretive.oauth)
       |
    12 | oauth = { client_secret = "${env:SECRET}", client_metadata_url = "http://example.com/me.json", grant
       |         ^
       hint: add `issuer = "https://…"` to `oauth`: the issuer in the authorization server's own metadata

    error: `client_secret` requires `client_id`, which is missing
      --> gripfast.toml:12:9 (servers.secretive.oauth)
       |
    12 | oauth = { client_secret = "${env:SECRET}", client_metadata_url = "http://example.com/me.json", grant
       |         ^

    error: `oauth.issuer` must begin with `https://`, or be on this machine
      --> gripfast.toml:16:20 (servers.careless.oauth.issuer)
       |
    16 | oauth = { issuer = "http://id.example.com", client_id = "us", client_secret = "${env:SECRET}" }
       |                    ^^^^^^^^^^^^^^^^^^^^^^^
       hint: for example "https://id.example.com"
    "#);
}

#[test]
fn a_marked_call_without_a_tool_or_with_invalid_arguments() {
    let text = r#"[servers.github]
command = "npx"
restore = [{ arguments = {} }, { tool = "", args = 1 }, { tool = "login", arguments = [] }, "login"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `tool` is missing
         --> gripfast.toml:3:12 (servers.github.restore[0])
          |
        3 | restore = [{ arguments = {} }, { tool = "", args = 1 }, { tool = "login", arguments = [] }, "login"]
          |            ^
          hint: write { tool = "login", arguments = { user = "…" } }

        error: unknown key `args`
         --> gripfast.toml:3:45 (servers.github.restore[1].args)
          |
        3 | restore = [{ arguments = {} }, { tool = "", args = 1 }, { tool = "login", arguments = [] }, "login"]
          |                                             ^^^^
          hint: known keys: tool, arguments

        error: expected the name of a tool, found an empty string
         --> gripfast.toml:3:41 (servers.github.restore[1].tool)
          |
        3 | restore = [{ arguments = {} }, { tool = "", args = 1 }, { tool = "login", arguments = [] }, "login"]
          |                                         ^^

        error: expected a table, found a list
         --> gripfast.toml:3:87 (servers.github.restore[2].arguments)
          |
        3 | restore = [{ arguments = {} }, { tool = "", args = 1 }, { tool = "login", arguments = [] }, "login"]
          |                                                                                       ^

        error: expected a table, found a string
         --> gripfast.toml:3:93 (servers.github.restore[3])
          |
        3 | restore = [{ arguments = {} }, { tool = "", args = 1 }, { tool = "login", arguments = [] }, "login"]
          |                                                                                             ^^^^^^^
    "#);
}

#[test]
fn invalid_arguments_are_shown_without_their_secret() {
    let text = r#"[servers.github]
command = "npx"
restore = [{ tool = "login", arguments = { at = 2026-01-01, n = 0x10, secret = "hunter2 ${" } }]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a JSON value, found a date
         --> gripfast.toml:3:49 (servers.github.restore[0].arguments.at)
          |
        3 | restore = [{ tool = "login", arguments = { at = 2026-01-01, n = 0x10, secret = "******* ${" } }]
          |                                                 ^^^^^^^^^^
          hint: put it in quotes

        error: `${` without a closing `}`
         --> gripfast.toml:3:80 (servers.github.restore[0].arguments.secret)
          |
        3 | restore = [{ tool = "login", arguments = { at = 2026-01-01, n = 0x10, secret = "******* ${" } }]
          |                                                                                ^^^^^^^^^^^^
          hint: write `$${` for a literal `${`
    "#);
}
