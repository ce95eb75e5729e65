//! The profile of the packaged binary: an instrumented build serves the training load of `gripfast-bench`, and
//! `llvm-profdata` merges its counters into one file for the compiler.
//!
//! The counters fit only a build with the same cargo profile, target and compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TARGET, cannot, output, run_shown, wheel};
use crate::workspace::Workspace;

/// Builds the instrumented binary, runs the training load and returns the merged profile.
pub(super) fn record(workspace: &Workspace, sources: &Path) -> Result<PathBuf, String> {
    let merger = llvm_profdata(workspace)?;
    // A target directory of its own: the flags would otherwise rebuild everything twice in each run.
    let place = workspace.target.join("profile");
    let counters = place.join("counters");
    super::empty(&counters)?;
    println!("building the instrumented binary");
    // By the same tool as the packaged binary: the symbols must have the same names.
    let flag = format!("-Cprofile-generate={}", counters.display());
    run_shown(&mut wheel::portable(workspace, sources, &place, &flag, &place.join("wheel"))?)?;
    let bench = ["build", "--release", "--package", "gripfast-bench", "--bin", "gripfast-bench"];
    run_shown(&mut workspace.cargo(&bench))?;
    println!("running the training load");
    let mut training = Command::new(workspace.target.join("release/gripfast-bench"));
    training.arg("--train").arg("--gripfast").arg(place.join(TARGET).join("dist/gripfast"));
    run_shown(training.current_dir(&workspace.root))?;
    let profile = place.join("gripfast.profdata");
    let mut merge = Command::new(&merger.program);
    merge.env("LD_LIBRARY_PATH", &merger.libraries).args(["merge", "-o"]).arg(&profile).arg(&counters);
    output(&mut merge)?;
    Ok(profile)
}

/// An `llvm-profdata` and the directory of its libraries.
struct Merger {
    program: PathBuf,
    libraries: PathBuf,
}

/// The `llvm-profdata` of the compiler's LLVM version, from Debian's packages. They are unpacked below `target`, which
/// needs no root.
fn llvm_profdata(workspace: &Workspace) -> Result<Merger, String> {
    let version = output(Command::new("rustc").arg("-vV").current_dir(&workspace.root))?;
    let major = llvm_major(&version).ok_or_else(|| format!("rustc names no version of LLVM:\n{version}"))?;
    let place = workspace.target.join(format!("tools/llvm-{major}"));
    let merger = Merger {
        program: place.join(format!("usr/lib/llvm-{major}/bin/llvm-profdata")),
        libraries: place.join("usr/lib/x86_64-linux-gnu"),
    };
    if merger.program.exists() {
        return Ok(merger);
    }
    println!("unpacking Debian's llvm-{major}");
    let downloads = workspace.target.join("tools/downloads");
    super::empty(&downloads)?;
    let mut download = Command::new("apt-get");
    download.arg("download").args([format!("llvm-{major}"), format!("libllvm{major}")]);
    output(download.current_dir(&downloads)).map_err(|error| {
        format!(
            "no `llvm-profdata` for LLVM {major}, which the profile-guided build needs: {error}\n\
                 hint: `apt-get update` reads the newest list of packages"
        )
    })?;
    for entry in fs::read_dir(&downloads).map_err(|error| cannot("list", &downloads, &error))? {
        let package = entry.map_err(|error| cannot("list", &downloads, &error))?.path();
        output(Command::new("dpkg-deb").arg("--extract").args([&package, &place]))?;
    }
    Ok(merger)
}

/// The major version of LLVM in the output of `rustc -vV`.
fn llvm_major(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
}

/// Flags that make the compiler use a profile. Code that the training load never ran is made small.
pub(super) fn use_flags(profile: &Path) -> String {
    format!("-Cprofile-use={}\u{1f}-Cllvm-args=-pgo-cold-func-opt=optsize", profile.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_llvm_is_read_from_rustc() {
        let text =
            "rustc 1.95.0 (59807616e 2026-04-14)\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.2\n";
        assert_eq!(llvm_major(text), Some("22"));
        assert_eq!(llvm_major("rustc 1.95.0"), None);
    }
}
