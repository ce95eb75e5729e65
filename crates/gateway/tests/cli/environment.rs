//! Environment variables of servers: inherited ones, `[defaults]`, and the findings of `check`.

use crate::sandbox::{Sandbox, stdio};
use insta::assert_snapshot;

/// Names among these that are set in the demo server's environment.
fn seen(config: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let sandbox = Sandbox::with(config);
    let words = ["call", "demo", "misbehave", "{\"how\":\"env\"}", "--config", "gripfast.toml"];
    let ran = sandbox.run_with(&words, variables);
    assert_eq!(ran.code, Some(0), "{ran}");
    let all: Vec<&str> = ran.stdout.lines().map(str::trim).collect();
    let names = variables.iter().map(|(name, _)| (*name).to_owned());
    names.filter(|name| all.contains(&name.as_str())).collect()
}

const SET: [(&str, &str); 4] = [
    ("SSL_CERT_FILE", "/etc/company.pem"),
    ("https_proxy", "http://proxy.example:3128"),
    ("DEMO_TOKEN", "a-secret-of-demo"),
    ("UNRELATED_TOKEN", "a-secret-of-nobody"),
];

#[test]
fn g06_a_server_gets_authorities_and_proxies_and_no_tokens() {
    assert_eq!(seen(&stdio("demo", &[]), &SET), ["SSL_CERT_FILE", "https_proxy"]);
}

#[test]
fn g06_network_env_false_keeps_them_from_one_server_or_from_all() {
    let demo = stdio("demo", &[]);
    assert_eq!(seen(&format!("{demo}network_env = false\n"), &SET), [""; 0]);
    assert_eq!(seen(&format!("[defaults]\nnetwork_env = false\n{demo}"), &SET), [""; 0]);
    let own = format!("[defaults]\nnetwork_env = false\n{demo}network_env = true\n");
    assert_eq!(seen(&own, &SET), ["SSL_CERT_FILE", "https_proxy"], "a server's own key wins");
    let named = format!("{demo}network_env = false\ninherit_env = [\"https_proxy\"]\n");
    assert_eq!(seen(&named, &SET), ["https_proxy"], "`inherit_env` only adds");
}

#[test]
fn check_names_variables_that_a_server_looks_as_if_it_needed() {
    let sandbox = Sandbox::with(&stdio("demo", &[]));
    assert_snapshot!(sandbox.run_with(&["check"], &SET), @r#"
    exit 0
    --- stdout
    ok, 1 warning: 1 server (1 stdio)
    --- stderr
    warning: server `demo` may need `DEMO_TOKEN`, which is set here and not passed to it
     --> ./gripfast.toml:1:10 (inherit_env)
      hint: `inherit_env = ["DEMO_TOKEN"]` passes what it needs
    "#);
}

#[test]
fn import_and_doctor_name_missing_variables_too() {
    let mcp = r#"{"mcpServers":{"github":{"command":"sh","args":["-c","exit 1"]}}}"#;
    let set = [("GITHUB_TOKEN", "a-secret-of-github")];
    let named = "server `github` may need `GITHUB_TOKEN`, which is set here and not passed to it";
    let sandbox = Sandbox::empty().file("mcp.json", mcp);
    let imported = sandbox.run_with(&["import", "mcp.json"], &set);
    assert!(imported.to_string().contains(named), "{imported}");
    let doctor = sandbox.run_with(&["doctor", "--config", "mcp.json", "--wait", "1s"], &set);
    assert!(doctor.stdout.contains(named), "{doctor}");
}

#[test]
fn check_warns_of_a_proxy_password_that_a_server_gets() {
    let set = [("HTTPS_PROXY", "http://me:hunter2@proxy.example:3128")];
    let checked = Sandbox::with(&stdio("demo", &[])).run_with(&["check"], &set);
    assert_snapshot!(checked, @"
    exit 0
    --- stdout
    ok, 1 warning: 1 server (1 stdio)
    --- stderr
    warning: server `demo` gets `HTTPS_PROXY`, whose URL contains a password
     --> ./gripfast.toml:1:10 (network_env)
      hint: `network_env = false` withholds proxy and certificate variables from this server
    ");
    assert!(!checked.to_string().contains("hunter2"));
    let without = format!("{}network_env = false\n", stdio("demo", &[]));
    let checked = Sandbox::with(&without).run_with(&["check"], &set);
    assert_eq!(checked.stderr, "", "{checked}");
}
