//! Config files of other clients, unmodified.

use super::{JSON, YAML, only_server, parse, report};
use gripfast::config::*;

fn stdio(spec: &ServerSpec) -> (String, Vec<String>) {
    let Target::Stdio { command, args, .. } = &spec.target else { panic!("{spec:?}") };
    (command.source().to_owned(), args.iter().map(|arg| arg.source().to_owned()).collect())
}

fn transport(spec: &ServerSpec) -> UrlTransport {
    let Target::Url { transport, .. } = &spec.target else { panic!("{spec:?}") };
    *transport
}

fn headers(spec: &ServerSpec) -> Vec<(String, String)> {
    let Target::Url { headers, .. } = &spec.target else { panic!("{spec:?}") };
    headers.iter().map(|(name, value)| (name.clone(), value.source().to_owned())).collect()
}

#[test]
fn the_types_of_all_clients_are_understood() {
    for (written, expected) in [
        ("http", UrlTransport::Http),
        ("streamable-http", UrlTransport::Http),
        ("streamable_http", UrlTransport::Http),
        ("streamableHttp", UrlTransport::Http),
        ("sse", UrlTransport::Sse),
        ("remote", UrlTransport::Auto),
    ] {
        let text = format!(r#"{{"mcpServers": {{"a": {{"type": "{written}", "url": "http://h/"}}}}}}"#);
        assert_eq!(transport(&only_server(JSON, &text)), expected, "{written}");
    }
    for written in ["stdio", "local"] {
        let text = format!(r#"{{"mcpServers": {{"a": {{"type": "{written}", "command": "x"}}}}}}"#);
        assert_eq!(stdio(&only_server(JSON, &text)).0, "x", "{written}");
    }
}

#[test]
fn the_url_keys_of_all_clients_are_understood() {
    for key in ["url", "serverUrl", "httpUrl", "server_url", "uri"] {
        let text = format!(r#"{{"mcpServers": {{"a": {{"{key}": "http://h/"}}}}}}"#);
        assert_eq!(transport(&only_server(JSON, &text)), UrlTransport::Auto, "{key}");
        assert_eq!(report(JSON, &text), "");
    }
}

#[test]
fn a_command_may_be_a_list_with_its_arguments() {
    let spec = only_server(JSON, r#"{"servers": {"a": {"command": ["npx", "-y", "s"], "args": ["z"]}}}"#);
    assert_eq!(stdio(&spec), ("npx".to_owned(), ["-y", "s", "z"].map(str::to_owned).to_vec()));
    let spec = only_server(YAML, "mcp_servers:\n  a: { cmd: npx }\n");
    assert_eq!(stdio(&spec).0, "npx");
}

#[test]
fn environments_may_hold_numbers_flags_and_nulls() {
    for key in ["env", "environment", "envs"] {
        let text = format!(
            r#"{{"servers": {{"a": {{"command": "x", "{key}": {{"P": 8080, "V": 1.10, "F": true, "N": null}}}}}}}}"#
        );
        let spec = only_server(JSON, &text);
        let Target::Stdio { env, .. } = &spec.target else { panic!("{spec:?}") };
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.source())).collect();
        assert_eq!(env, [("P", "8080"), ("V", "1.10"), ("F", "true")], "{key}");
    }
}

#[test]
fn a_codex_file_works() {
    let text = r#"
model = "some-model"

[mcp_servers.docs]
url = "https://example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Key" = "DOCS_KEY" }
enabled_tools = ["search", "fetch"]
disabled_tools = ["fetch"]
enabled = false
"#;
    let spec = only_server("config.toml", text);
    let expected =
        [("X-Region", "eu"), ("X-Key", "${env:DOCS_KEY}"), ("Authorization", "Bearer ${env:DOCS_TOKEN}")];
    assert_eq!(headers(&spec), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(spec.policy.tools.allow().eq(["search", "fetch"]));
    assert!(spec.policy.tools.deny().eq(["fetch"]));
    assert!(spec.disabled);
    insta::assert_snapshot!(report("config.toml", text), @r#"
    warning: ignored keys that are not about servers: `model`
     --> config.toml:2:1 (model)
      |
    2 | model = "some-model"
      | ^^^^^
    "#);
}

#[test]
fn codex_names_the_variables_to_inherit() {
    let text = "[mcp_servers.a]\ncommand = 'x'\nenv_vars = ['A', { name = 'B', source = 'local' }]\n";
    let spec = only_server("config.toml", text);
    let Target::Stdio { inherit_env, .. } = &spec.target else { panic!("{spec:?}") };
    assert_eq!(inherit_env, &["A", "B"]);
}

#[test]
fn a_tool_filter_of_another_client_is_never_dropped() {
    for (written, allow, deny) in [
        (r#""disabledTools": ["d"]"#, "*", Some("d")),
        (r#""excludeTools": ["d"]"#, "*", Some("d")),
        (r#""includeTools": ["i"]"#, "i", None),
        (r#""tools": ["i"]"#, "i", None),
        (r#""tools": "*""#, "*", None),
        (r#""tools": {"include": ["i"]}"#, "i", None),
    ] {
        let spec = only_server(JSON, &format!(r#"{{"mcpServers": {{"a": {{"command": "x", {written}}}}}}}"#));
        assert!(spec.policy.tools.allow().eq([allow]), "{written}");
        assert!(spec.policy.tools.deny().eq(deny), "{written}");
    }
}

#[test]
fn a_null_counts_as_a_missing_key() {
    let spec = only_server(JSON, r#"{"mcpServers": {"a": {"command": "x", "url": null, "cwd": null}}}"#);
    assert_eq!(stdio(&spec).0, "x");
    assert!(parse(YAML, "mcp_servers:\n").servers.is_empty());
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let text = "\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}";
    assert_eq!(report(JSON, text), "");
    assert_eq!(parse(JSON, text).servers.len(), 1);
}

#[test]
fn a_file_without_an_extension_is_read_by_its_content() {
    for text in [
        "[servers.a]\ncommand = 'x'",
        "{\"servers\": {\"a\": {\"command\": \"x\"}}}",
        "mcp_servers:\n  a: {command: x}",
    ] {
        assert_eq!(parse("/dev/fd/63", text).servers.len(), 1, "{text}");
    }
}
