//! Arbitrary input never makes the config parser panic or hang.

use super::{JSON, TOML, YAML, report};
use proptest::prelude::*;

/// Fragments of real configs in random order, which get further than random characters.
fn pieces() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "=",
        "\n",
        " ",
        "  ",
        "\t",
        "\"",
        "'",
        "- ",
        "&a",
        "*a",
        "<<",
        "!!str",
        "---",
        "#",
        "//",
        "/*",
        "\\",
        "\\u12",
        "é",
        "\u{1f600}",
        "\u{feff}",
        "\r\n",
        "null",
        "true",
        "30",
        "1e999",
        "-1",
        "\"30s\"",
        "\"${A}\"",
        "\"${\"",
        "mcpServers",
        "mcp_servers",
        "servers",
        "gateway",
        "listen",
        "command",
        "url",
        "args",
        "env",
        "headers",
        "tools",
        "timeouts",
        "call",
        "restart",
        "a",
        "[servers.a]",
        "|",
        ">",
        "? ",
        "\"mcpServers\":",
        "\"a\":",
        "\"command\":",
        "\"x\"",
        "command = \"x\"",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = [TOML, JSON, YAML, "mcp"].map(|file| report(file, &text));
    }

    #[test]
    fn arbitrary_pieces_never_panic(text in pieces()) {
        let _ = [TOML, JSON, YAML, "mcp"].map(|file| report(file, &text));
    }

    #[test]
    fn arbitrary_values_of_every_key_never_panic(
        key in "(command|url|args|env|headers|tools|replay|circuit|restart|timeouts|prefix|lazy|transport|type)",
        value in "(\"[ -~]{0,12}\"|[0-9]{1,25}|true|null|\\[\\]|\\[\\[\\]\\]|\\{\\}|\\{\"a\": [0-9]\\})",
    ) {
        let text = format!(r#"{{"mcpServers": {{"a": {{"{key}": {value}, "command": "x"}}, "b": {{"command": "x"}}}}}}"#);
        report(JSON, &text);
        report(YAML, &text);
    }
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    for (file, text) in [
        (JSON, format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))),
        (JSON, format!("{}1{}", "{\"a\":".repeat(300), "}".repeat(300))),
        (YAML, "[".repeat(100_000)),
        (YAML, "- ".repeat(10_000)),
        (TOML, format!("a = {}", "[".repeat(100_000))),
        (TOML, format!("{} = 1", vec!["a"; 10_000].join("."))),
    ] {
        assert!(report(file, &text).starts_with("error: "), "{file}: {:.40}", text);
    }
}

#[test]
fn a_chain_of_aliases_cannot_grow_without_bound() {
    let nested = (1..=100).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        format!("{text}a{level}: &a{level} [*a{}]\n", level - 1)
    });
    assert!(report(YAML, &nested).starts_with("error: nested more than 64 levels deep"));
    let wide = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(1000));
    assert!(report(YAML, &wide).starts_with("error: the aliases of this file expand to too much data"));
}

#[test]
fn a_large_file_on_one_line_is_read_in_reasonable_time() {
    let servers: Vec<String> =
        (0..4_000).map(|number| format!(r#""s{number}": {{"command": "x", "odd": 1}}"#)).collect();
    let text = format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(","));
    assert!(report(JSON, &text).starts_with("warning: ignored unknown key `odd`\n --> mcp.json:1:"));
}
