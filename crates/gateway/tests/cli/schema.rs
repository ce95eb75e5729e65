//! `gripfast schema`: what editors go by.

use crate::sandbox::Sandbox;
use serde_json::Value;

#[test]
fn the_schema_knows_the_keys_of_a_server_and_refuses_others() {
    let ran = Sandbox::empty().run(&["schema"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    let schema: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let server = &schema["properties"]["servers"]["additionalProperties"];
    assert_eq!(server["additionalProperties"], false);
    let known = server["properties"].as_object().unwrap();
    for key in [
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "headers",
        "transport",
        "lazy",
        "timeouts",
        "tools",
        "replay",
    ] {
        assert!(known.contains_key(key), "{key}");
    }
    assert!(known["idle_timeout"]["description"].as_str().unwrap().contains("lazy"));
}
