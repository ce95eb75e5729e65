//! Secrets never appear in debug output or error messages.

use super::{JSON, TOML, TestLookup, parse, report};
use gripfast::config::{Config, Target, Template};
use proptest::prelude::*;

#[test]
fn literal_values_are_not_in_debug_output() {
    let text = r#"
[servers.a]
command = "x"
args = ["--token", "ghp_abcdefghijklmnop", "--password", "hunter2", "--header", "X-Api-Key: hunter2"]
env = { PLAIN = "hunter2", MIXED = "user:hunter2@${HOST:-hunter2}" }
[servers.b]
url = "https://me:hunter2@example.com/mcp?key=hunter2"
headers = { Authorization = "Bearer hunter2" }
restore = [{ tool = "login", arguments = { password = "hunter2" } }]
"#;
    let config = parse(TOML, text);
    let shown = format!("{config:?} {config:#?}");
    assert!(!shown.contains("hunter2") && !shown.contains("ghp_"), "{shown}");
    assert!(shown.contains("[redacted]${env:HOST:-…}"), "{shown}");
    // Parts of the spec hide their secrets too.
    let Ok(spec) = &config.servers[1].spec else { panic!() };
    let Target::Url { headers, url, .. } = &spec.target else { panic!() };
    assert_eq!(format!("{headers:?}"), r#"[("Authorization", "[redacted]")]"#);
    assert_eq!(url.to_string(), "https://[redacted]@example.com/mcp?key=[redacted]");
}

#[test]
fn an_expanded_value_is_not_in_debug_output() {
    let world = TestLookup::default().with_variable("TOKEN", "hunter2");
    let value = Template::parse("Bearer ${TOKEN}").unwrap().expand(&world).unwrap();
    assert_eq!(format!("{value:?}"), "[redacted]");
    assert_eq!(value.reveal(), "Bearer hunter2");
}

/// The error is on the same line as the secret, as in inline tables and minified files.
#[test]
fn an_error_beside_a_secret_does_not_show_it() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "hunter2", "B": ["x"]}}}}"#;
    insta::assert_snapshot!(report(JSON, text), @r#"
    error: expected a string, found a list
     --> mcp.json:1:68 (mcpServers.a.env.B)
      |
    1 | {"mcpServers": {"a": {"command": "x", "env": {"A": "*******", "B": ["x"]}}}}
      |                                                                    ^
    "#);
    let text =
        r#"{"mcpServers": {"a": {"command": "x", "args": ["--password", "hunter2"], "env": {"B": ["x"]}}}}"#;
    assert!(!report(JSON, text).contains("hunter2"), "{}", report(JSON, text));
    let text = "[servers.a]\ncommand = 'x'\nenv = { A = '${X:-hunter2}', B = 3 }\n";
    assert!(!report(TOML, text).contains("hunter2"));
    let text = "[servers.a]\ncommand = 'x'\nenv = { A = 'ghp_abcdefghijklmnop }\n";
    assert!(!report(TOML, text).contains("ghp_"));
}

proptest! {
    #[test]
    fn no_literal_of_env_or_headers_is_ever_shown(secret in "[a-zA-Z0-9+/=%!]{6,40}") {
        // Long and unusual enough not to be in any message by chance.
        let secret = format!("{secret}Q7!");
        let text = format!(
            r#"{{"mcpServers": {{"a": {{"command": "x", "env": {{"A": "{secret}", "B": {{}}}}, "oops": 1}},
                "b": {{"url": "http://h/", "headers": {{"A": "{secret}"}}, "prefix": "%"}}}}}}"#
        );
        let shown = format!("{:?}", parse(JSON, &text)) + &report(JSON, &text);
        prop_assert!(!shown.contains(&secret), "{}", shown);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_quoted_without_its_secrets() {
    for (file, text) in [
        ("gripfast.toml", "[servers.a]\nenv = { API_TOKEN = \"hunter2\" \n"),
        ("gripfast.toml", "[servers.a]\nheaders = { \"X-Api-Key\" = \"hunter2\" = }\n"),
        ("mcp.json", "{\"mcpServers\": {\"a\": {\"env\": {\"PASSWORD\": \"hunter2\" ?}}}}"),
    ] {
        let error = Config::parse(text, file.as_ref()).unwrap_err().to_string();
        assert!(error.contains("*******") && !error.contains("hunter2"), "{error}");
    }
}
