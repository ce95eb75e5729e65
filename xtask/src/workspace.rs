//! Layout of the workspace as reported by `cargo metadata`: root, target directory, packages and their sources.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Absolute. Every child process gets it as `CARGO_TARGET_DIR`, so that all of them share it.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: DependencyKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    Normal,
    Build,
    Dev,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self, String> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot run `cargo metadata`: {error}"))?;
        if !output.status.success() {
            return Err("`cargo metadata` failed, see above".to_owned());
        }
        let metadata = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("`cargo metadata` did not print JSON: {error}"))?;
        Self::from_metadata(&metadata).ok_or_else(|| "`cargo metadata` printed an unknown format".to_owned())
    }

    pub(crate) fn from_metadata(metadata: &Value) -> Option<Self> {
        let packages = metadata["packages"].as_array()?.iter().map(Package::from_metadata);
        Some(Self {
            root: metadata["workspace_root"].as_str()?.into(),
            target: metadata["target_directory"].as_str()?.into(),
            packages: packages.collect::<Option<_>>()?,
        })
    }

    /// The path from the root of the workspace, with slashes.
    pub(crate) fn display(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string().replace('\\', "/")
    }

    /// A `cargo` command in the root, with the shared target directory and without stdin.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.args(args).current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target).stdin(Stdio::null());
        command
    }

    /// Builds release binaries of the gateway and of `package`, and runs `package` with the path of the gateway.
    pub(crate) fn run_release(
        &self,
        command_name: &str,
        package: &str,
        args: &[String],
    ) -> Result<(), String> {
        let build = ["build", "--release", "--package", "gripfast-gateway", "--package", package, "--bins"];
        let built = self.cargo(&build).status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !built.success() {
            return Err(format!("cargo xtask {command_name}: the build failed, see above"));
        }
        let binary = |name: &str| {
            let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
            self.target.join("release").join(name)
        };
        let mut command = Command::new(binary(package));
        command.arg("--gripfast").arg(binary("gripfast")).args(args).current_dir(&self.root);
        let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("cargo xtask {command_name}: {status}")) }
    }
}

impl Package {
    fn from_metadata(package: &Value) -> Option<Self> {
        let dependencies = package["dependencies"].as_array()?.iter().map(|dependency| {
            let kind = match dependency["kind"].as_str() {
                None => DependencyKind::Normal,
                Some("build") => DependencyKind::Build,
                Some("dev") => DependencyKind::Dev,
                Some(_) => return None,
            };
            Some(Dependency { name: dependency["name"].as_str()?.to_owned(), kind })
        });
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            dir: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
            dependencies: dependencies.collect::<Option<_>>()?,
        })
    }

    /// The crate name in a `use` statement.
    pub(crate) fn ident(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// All `.rs` files below `dir`, sorted, without those of nested packages. A missing directory has none.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    collect(dir, &mut found).map_err(|error| format!("cannot list {}: {error}", dir.display()))?;
    found.sort();
    Ok(found)
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.join("Cargo.toml").exists() {
                collect(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The cargo that started xtask, so that a pinned toolchain stays pinned.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
