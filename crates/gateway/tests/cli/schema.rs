//! `gripfast schema`: the JSON Schema of the config, for editors.

use crate::sandbox::Sandbox;
use gripfast_testkit::packages::Package;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Configs of the docs, as a reader would paste them, and of the examples, each with its place.
fn published() -> Vec<(String, String)> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let in_dir = |dir: &str, ending: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(repository.join(dir)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
    };
    let pages = in_dir("docs", "md").into_iter().chain(in_dir("docs/reference", "md"));
    let pages =
        pages.chain(["README.md", "SECURITY.md", "deploy/README.md"].map(|page| repository.join(page)));
    let on_pages = pages.flat_map(|page| {
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks =
            text.split("\n```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0.to_owned());
        blocks.map(|block| (page.display().to_string(), block)).collect::<Vec<_>>()
    });
    let examples = in_dir("examples", "toml").into_iter();
    let examples = examples.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
    on_pages.chain(examples).collect()
}

#[test]
fn every_config_in_the_docs_is_valid() {
    let published = published();
    assert!(published.len() > 10, "{published:?}");
    for (place, text) in published {
        let ran = Sandbox::with(&text).run(&["check"]);
        assert_eq!(ran.code, Some(0), "{place}:\n{text}\n{ran}");
    }
}

/// Script that prints the errors of a schema, and of each config against it.
const VALIDATE: &str = r#"
import json, sys, tomllib, jsonschema_rs
schema = json.load(open("schema.json"))
jsonschema_rs.meta.validate(schema)
judge = jsonschema_rs.validator_for(schema)
for text in json.load(open("configs.json")):
    print(json.dumps([error.message for error in judge.iter_errors(tomllib.loads(text))]))
"#;

/// Configs that `check` refuses and that an editor should mark.
const WRONG: [&str; 6] = [
    "[servers.a]\ncommand = \"sh\"\nlasy = true\n",
    "[servers.a]\ncommand = \"sh\"\nidle_timeout = 10\n",
    "[servers.a]\ncommand = \"sh\"\nwhen_down = \"maybe\"\n",
    "[servers.a]\ncommand = \"sh\"\nmax_in_flight = -1\n",
    "[servers.a]\ncommand = \"sh\"\ntimeouts = { conect = \"1s\" }\n",
    "[gateway]\nlissen = \"127.0.0.1:1\"\n",
];

#[test]
fn the_schema_is_valid_and_agrees_with_check() {
    // It contains an independent JSON Schema validator.
    if !Package::Schemathesis.require() {
        return;
    }
    let published = published();
    let texts: Vec<&str> = published.iter().map(|(_, text)| &**text).chain(WRONG).collect();
    let sandbox = Sandbox::empty().file("configs.json", &serde_json::to_string(&texts).unwrap());
    let sandbox = sandbox.file("judge.py", VALIDATE);
    let schema = sandbox.run(&["schema"]).stdout;
    let sandbox = sandbox.file("schema.json", &schema);
    let python = Package::Schemathesis.command([]).program.with_file_name("python3");
    let judged = Command::new(python).arg("judge.py").current_dir(sandbox.path("")).output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    let said = String::from_utf8(judged.stdout).unwrap();
    let said: Vec<Vec<String>> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said.len(), texts.len());
    let (of_published, of_wrong) = said.split_at(published.len());
    for ((place, text), faults) in published.iter().zip(of_published) {
        assert!(faults.is_empty(), "{place}: {faults:?}\n{text}");
    }
    for (text, faults) in WRONG.iter().zip(of_wrong) {
        assert!(!faults.is_empty(), "{text}");
        assert_eq!(Sandbox::with(text).run(&["check"]).code, Some(2), "{text}");
    }
}
