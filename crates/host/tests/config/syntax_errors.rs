//! Syntax errors.

use super::{JSON, TOML, YAML, report};
use insta::assert_snapshot;

#[test]
fn toml_that_does_not_parse() {
    let text = r#"[servers.a]
command = "npx
args = []
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: invalid basic string, expected `"`
         --> gripfast.toml:2:15
          |
        2 | command = "npx
          |               ^
    "#);
}

#[test]
fn toml_with_a_value_missing() {
    let text = "[servers.a]
command =
";
    assert_snapshot!(report(TOML, text), @r"
        error: string values must be quoted, expected literal string
         --> gripfast.toml:2:10
          |
        2 | command =
          |          ^
    ");
}

#[test]
fn toml_with_a_duplicate_key() {
    let text = r#"[servers.a]
command = "x"
command = "y"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: duplicate key
         --> gripfast.toml:3:1
          |
        3 | command = "y"
          | ^^^^^^^
    "#);
}

#[test]
fn toml_with_a_duplicate_server() {
    let text = r#"[servers.a]
command = "x"

[servers.a]
command = "y"
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: duplicate key
         --> gripfast.toml:4:10
          |
        4 | [servers.a]
          |          ^
    ");
}

#[test]
fn json_that_does_not_parse() {
    let text = r#"{
  "mcpServers": {
    "a": { "command" "npx" }
  }
}
"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: expected colon after the string or word in object property
         --> mcp.json:3:22
          |
        3 |     "a": { "command" "npx" }
          |                      ^^^^^
    "#);
}

#[test]
fn json_that_does_not_end() {
    let text = r#"{ "mcpServers": {"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: unterminated object
         --> mcp.json:1:17
          |
        1 | { "mcpServers": {
          |                 ^
    "#);
}

#[test]
fn json_with_single_quotes() {
    let text = "{ 'mcpServers': {} }";
    assert_snapshot!(report(JSON, text), @r"
        error: single-quoted strings are not allowed
         --> mcp.json:1:3
          |
        1 | { 'mcpServers': {} }
          |   ^^^^^^^^^^^^
    ");
}

#[test]
fn json_with_a_missing_comma() {
    let text = r#"{ "mcpServers": { "a": { "command": "x" "args": [] } } }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: expected comma
         --> mcp.json:1:40
          |
        1 | { "mcpServers": { "a": { "command": "x" "args": [] } } }
          |                                        ^
    "#);
}

#[test]
fn json_with_a_duplicate_server() {
    let text = r#"{ "mcpServers": {
  "a": { "command": "x" },
  "a": { "command": "y" }
} }"#;
    assert_snapshot!(report(JSON, text), @r#"
        error: duplicate key `a`
         --> mcp.json:3:3
          |
        3 |   "a": { "command": "y" }
          |   ^^^
          hint: the first one is on line 2
    "#);
}

#[test]
fn json_with_two_values() {
    let text = "{} {}";
    assert_snapshot!(report(JSON, text), @r"
        error: text cannot contain more than one JSON value
         --> mcp.json:1:4
          |
        1 | {} {}
          |    ^
    ");
}

#[test]
fn yaml_that_does_not_parse() {
    let text = "mcp_servers:
  a:
    args: [b
  c: d
";
    assert_snapshot!(report(YAML, text), @r"
        error: invalid indentation
         --> config.yaml:4:4
          |
        4 |   c: d
          |    ^
    ");
}

#[test]
fn yaml_with_a_tab() {
    let text = "mcp_servers:
	a: b
";
    assert_snapshot!(report(YAML, text), @r"
        error: tabs disallowed within this context (block indentation)
         --> config.yaml:2:2
          |
        2 |  a: b
          |  ^
    ");
}

#[test]
fn yaml_with_a_duplicate_key() {
    let text = "mcp_servers:
  a:
    command: x
    command: y
";
    assert_snapshot!(report(YAML, text), @r"
        error: duplicate key `command`
         --> config.yaml:4:5
          |
        4 |     command: y
          |     ^^^^^^^
          hint: the first one is on line 3
    ");
}

#[test]
fn yaml_with_a_tag() {
    let text = "mcp_servers:
  a:
    command: !!python/object:os.system x
";
    assert_snapshot!(report(YAML, text), @r"
        error: YAML tags are not supported
         --> config.yaml:3:14
          |
        3 |     command: !!python/object:os.system x
          |              ^
          hint: remove the YAML tag (`!…`)
    ");
}

#[test]
fn yaml_with_two_documents() {
    let text = "mcp_servers: {}
---
mcp_servers: {}
";
    assert_snapshot!(report(YAML, text), @r"
        error: a second document starts here
         --> config.yaml:2:1
          |
        2 | ---
          | ^^^
          hint: keep one document per file; `---` begins another
    ");
}

#[test]
fn yaml_with_an_alias_of_nothing() {
    let text = "mcp_servers:
  a: *b
";
    assert_snapshot!(report(YAML, text), @r"
        error: while parsing node, found unknown anchor
         --> config.yaml:2:6
          |
        2 |   a: *b
          |      ^
    ");
}

#[test]
fn yaml_with_an_alias_of_itself() {
    let text = "mcp_servers: &all
  a: *all
";
    assert_snapshot!(report(YAML, text), @r"
        error: an alias is inside the value that it refers to
         --> config.yaml:2:6
          |
        2 |   a: *all
          |      ^
    ");
}

#[test]
fn yaml_with_a_list_as_key() {
    let text = "mcp_servers:
  [a]: b
";
    assert_snapshot!(report(YAML, text), @r"
        error: a list cannot be a key
         --> config.yaml:2:3
          |
        2 |   [a]: b
          |   ^
    ");
}

#[test]
fn yaml_that_merges_a_value_that_is_not_a_table() {
    let text = "mcp_servers:
  a:
    <<: 3
";
    assert_snapshot!(report(YAML, text), @r"
        error: `<<` merges tables, but this is a number
         --> config.yaml:3:9
          |
        3 |     <<: 3
          |         ^
    ");
}

#[test]
fn yaml_with_a_billion_laughs_bomb() {
    let text = "a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]
b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]
c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]
d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]
e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]
f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e]
g: &g [*f, *f, *f, *f, *f, *f, *f, *f, *f]
";
    assert_snapshot!(report(YAML, text), @r"
        error: the aliases of this file expand to too much data
         --> config.yaml:6:16
          |
        6 | f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e]
          |                ^
    ");
}
