//! The files of `deploy/kubernetes`: their schemas, and the config inside them.

use crate::sandbox::Sandbox;
use gripfast_testkit::packages::Package;
use std::path::PathBuf;
use std::process::Command;

fn manifests() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes"))
}

#[test]
fn every_resource_follows_the_schema_of_kubernetes() {
    if !Package::KubernetesValidate.require() {
        return;
    }
    for (file, resources) in [("config.yaml", 2), ("gripfast.yaml", 5)] {
        let path = manifests().join(file);
        let checked = Package::KubernetesValidate.command(["--strict", path.to_str().unwrap()]);
        let said = Command::new(&checked.program).args(&checked.args).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(said.status.success(), "{text}");
        assert_eq!(text.matches(" passed for resource ").count(), resources, "{text}");
    }
}

#[test]
fn the_config_for_kubernetes_passes_the_check() {
    let manifest = std::fs::read_to_string(manifests().join("config.yaml")).unwrap();
    let (_, rest) = manifest.split_once("gripfast.toml: |\n").expect("a config");
    let (indented, _) = rest.split_once("\n---").expect("the end of the resource");
    let config: Vec<&str> = indented.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let config = config.join("\n");
    for needed in ["[cluster]", "advertise = \"http://${env:POD_IP}:7332\"", "key = \"${file:"] {
        assert!(config.contains(needed), "{config}");
    }
    let checked = Sandbox::with(&config).run(&["check"]);
    // The file with the key is there in the pod only.
    assert_eq!((checked.code, checked.stderr.matches("warning: ").count()), (Some(0), 1), "{checked}");
    assert!(checked.stderr.contains("`cluster.key`: "), "{checked}");
}
