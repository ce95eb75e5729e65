//! Environment of a child: the default variables and those that its config names.

use crate::own_process::in_own_process;
use crate::test_host::{MARK, TestHost};
use gripfast::config::{ServerSpec, Target};
use serde_json::json;

/// Variable of this process that children must not inherit by default. [`in_own_process`] sets it.
const SECRET: &str = "GRIPFAST_TEST_ALONE";

#[test]
fn g06_a_child_sees_the_usual_variables_and_those_of_its_config_and_no_others() {
    let name = "g06_a_child_sees_the_usual_variables_and_those_of_its_config_and_no_others";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        test_host.spawn_ready("plain", test_host.demo(&[])).await;
        let names = variables(&test_host, "plain").await;
        assert!(std::env::var_os(SECRET).is_some() && !names.iter().any(|name| name == SECRET));
        let usual = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "SHELL", "TMPDIR"];
        // The last one is the tag by which descendants are found.
        let of_config = [MARK, "GRIPFAST", "GRIPFAST_LEASH"];
        let strange = names.iter().filter(|name| {
            let prefixed = name.starts_with("LC_") || name.starts_with("XDG_");
            !prefixed
                && !is_network(name)
                && !usual.contains(&name.as_str())
                && !of_config.contains(&name.as_str())
        });
        assert_eq!(strange.collect::<Vec<_>>(), Vec::<&String>::new());
        for expected in ["PATH", MARK] {
            assert!(names.iter().any(|name| name == expected), "{expected} is missing: {names:?}");
        }
    });
}

#[test]
fn g06_a_child_sees_a_variable_of_ours_that_its_config_asks_for() {
    let name = "g06_a_child_sees_a_variable_of_ours_that_its_config_asks_for";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        test_host.spawn_ready("asking", inheriting(test_host.demo(&[]))).await;
        assert!(variables(&test_host, "asking").await.iter().any(|name| name == SECRET));
    });
}

/// Returns true for a variable that configures network access.
fn is_network(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"].contains(&upper.as_str())
        || ["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]
            .contains(&name)
}

fn inheriting(mut spec: ServerSpec) -> ServerSpec {
    if let Target::Stdio { inherit_env, .. } = &mut spec.target {
        inherit_env.push(SECRET.to_owned());
    }
    spec
}

async fn variables(test_host: &TestHost, server: &str) -> Vec<String> {
    let names = test_host.call(server, "misbehave", json!({ "how": "env" })).await.unwrap();
    names.lines().map(str::to_owned).collect()
}
