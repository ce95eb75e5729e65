//! The software bill of materials in CycloneDX: the crates in the binary, from `cargo metadata`. One file beside each
//! package, with the digest of that package.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{output, write};
use crate::workspace::Workspace;

pub(super) struct Sbom {
    application: Value,
    components: Vec<Value>,
    dependencies: Vec<Value>,
}

impl Sbom {
    pub(super) fn read(workspace: &Workspace) -> Result<Self, String> {
        let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform"];
        let text = output(workspace.cargo(&args).arg("x86_64-unknown-linux-gnu"))?;
        let metadata: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Self::from_metadata(&metadata).ok_or_else(|| "`cargo metadata` printed an unknown format".to_owned())
    }

    /// Collects the packages that the gateway is linked with: no build scripts' and no tests' dependencies.
    fn from_metadata(metadata: &Value) -> Option<Self> {
        let packages: BTreeMap<&str, &Value> =
            metadata["packages"].as_array()?.iter().filter_map(|it| Some((it["id"].as_str()?, it))).collect();
        let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
            .as_array()?
            .iter()
            .filter_map(|it| Some((it["id"].as_str()?, it)))
            .collect();
        let linked = |id: &str| -> Option<Vec<&str>> {
            let all = nodes.get(id)?["deps"].as_array()?.iter();
            let is_linked = |it: &&Value| {
                it["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it["kind"].is_null()))
            };
            Some(all.filter(is_linked).filter_map(|it| it["pkg"].as_str()).collect())
        };
        let (&root, _) = packages.iter().find(|(_, it)| it["name"] == "gripfast-gateway")?;
        let (mut seen, mut next) = (BTreeSet::from([root]), vec![root]);
        while let Some(id) = next.pop() {
            next.extend(linked(id)?.into_iter().filter(|id| seen.insert(id)));
        }
        let reference = |id: &str| {
            let package = packages.get(id)?;
            Some(format!("pkg:cargo/{}@{}", package["name"].as_str()?, package["version"].as_str()?))
        };
        let component = |id: &str, kind: &str| {
            let (package, reference) = (packages.get(id)?, reference(id)?);
            let mut component = json!({ "type": kind, "bom-ref": reference, "purl": reference });
            component["name"] = package["name"].clone();
            component["version"] = package["version"].clone();
            if let Some(licence) = package["license"].as_str() {
                // An old way to write OR.
                component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
            }
            Some(component)
        };
        let mut application = component(root, "application")?;
        application["name"] = "gripfast".into();
        let others = seen.iter().filter(|id| **id != root);
        let dependencies = seen.iter().map(|id| {
            let on: Option<BTreeSet<String>> = linked(id)?.into_iter().map(reference).collect();
            Some(json!({ "ref": reference(id)?, "dependsOn": on? }))
        });
        Some(Self {
            application,
            components: others.map(|id| component(id, "library")).collect::<Option<_>>()?,
            dependencies: dependencies.collect::<Option<_>>()?,
        })
    }

    pub(super) fn version(&self) -> &str {
        self.application["version"].as_str().unwrap_or_default()
    }

    /// Writes `PACKAGE.cdx.json`.
    pub(super) fn write_beside(&self, package: &Path) -> Result<(), String> {
        let digest = output(Command::new("sha256sum").arg(package))?;
        let digest = digest.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
        let mut application = self.application.clone();
        application["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
        let document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": { "component": application },
            "components": self.components,
            "dependencies": self.dependencies,
        });
        let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
        write(&package.with_added_extension("cdx.json"), &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linked_crates_are_listed() {
        let package =
            |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let packages = ["gripfast-gateway", "a", "b", "build", "test"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                { "id": "gripfast-gateway", "deps": [dependency("a", Value::Null), dependency("test", "dev".into())] },
                { "id": "a", "deps": [dependency("b", Value::Null), dependency("build", "build".into())] },
                { "id": "b", "deps": [] }, { "id": "build", "deps": [] }, { "id": "test", "deps": [] },
            ] },
        });
        let sbom = Sbom::from_metadata(&metadata).unwrap();
        let names: Vec<&Value> = sbom.components.iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(sbom.version(), "1.0.0");
        assert_eq!(sbom.components[0]["licenses"], json!([{ "expression": "MIT OR Apache-2.0" }]));
        assert_eq!(
            sbom.dependencies[0],
            json!({ "ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@1.0.0"] })
        );
    }
}
