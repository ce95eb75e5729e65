//! The npm packages: `gripfast`, which only starts the binary, and the binary of one platform as its optional
//! dependency. Neither has an install script.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{Parts, install, output, write};

const PLATFORM: &str = "@gripfast/linux-x64";

/// Builds the platform's package and the launcher.
pub(super) fn build(parts: &Parts<'_>) -> Result<[PathBuf; 2], String> {
    let platform = parts.staged("npm-platform")?;
    install(&parts.binary, &platform.join("bin/gripfast"), 0o755)?;
    let launcher = parts.staged("npm-launcher")?;
    install(&parts.sources.join("npm/gripfast.js"), &launcher.join("bin/gripfast.js"), 0o755)?;
    install(&parts.workspace.root.join("README.md"), &launcher.join("README.md"), 0o644)?;
    let common = |name: &str, description: &str| json!({ "name": name, "version": parts.version, "description": description, "license": "MIT OR Apache-2.0" });
    let mut of_platform = common(PLATFORM, "The gripfast binary for Linux on x64");
    of_platform["os"] = json!(["linux"]);
    of_platform["cpu"] = json!(["x64"]);
    of_platform["libc"] = json!(["glibc"]);
    let mut of_launcher = common("gripfast", "MCP host and gateway that never loses a server");
    of_launcher["bin"] = json!({ "gripfast": "bin/gripfast.js" });
    of_launcher["engines"] = json!({ "node": ">=18" });
    of_launcher["optionalDependencies"] = json!({ PLATFORM: parts.version });
    let pack = |directory: PathBuf, manifest: Value| {
        let manifest = serde_json::to_string_pretty(&manifest).map_err(|error| error.to_string())?;
        write(&directory.join("package.json"), &manifest)?;
        let mut npm = Command::new("npm");
        npm.args(["pack", "--ignore-scripts", "--loglevel", "error", "--pack-destination"]).arg(&parts.out);
        let name = output(npm.current_dir(directory))?;
        Ok::<_, String>(parts.out.join(name.trim()))
    };
    Ok([pack(platform, of_platform)?, pack(launcher, of_launcher)?])
}
