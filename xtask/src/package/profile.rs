//! The profile of the packaged binary: an instrumented build serves the training load of `gripfast-bench`, and
//! `llvm-profdata` merges its counters into one file for the compiler.
//!
//! The counters fit only a build with the same cargo profile, target and compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TARGET, cannot, output, run_shown};
use crate::workspace::Workspace;

/// Builds the instrumented binary, runs the training load and returns the merged profile.
pub(super) fn record(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut merger = llvm_profdata(workspace)?;
    // A target directory of its own: the flags would otherwise rebuild everything twice in each run.
    let place = workspace.target.join("profile");
    let counters = place.join("counters");
    super::empty(&counters)?;
    println!("building the instrumented binary");
    // Not with zig, which does not know the linker flag of instrumented code. Cargo gives the symbols the same names.
    let instrumented = ["build", "--locked", "--profile", "dist", "--target", TARGET, "--bin", "gripfast"];
    let flag = format!("-Cprofile-generate={}", counters.display());
    let mut build = workspace.cargo(&instrumented);
    run_shown(build.env("CARGO_TARGET_DIR", &place).env("CARGO_ENCODED_RUSTFLAGS", flag))?;
    let bench = ["build", "--release", "--package", "gripfast-bench", "--bin", "gripfast-bench"];
    run_shown(&mut workspace.cargo(&bench))?;
    println!("running the training load");
    let mut training = Command::new(workspace.target.join("release/gripfast-bench"));
    training.arg("--train").arg("--gripfast").arg(place.join(TARGET).join("dist/gripfast"));
    run_shown(training.current_dir(&workspace.root))?;
    let profile = place.join("gripfast.profdata");
    output(merger.args(["merge", "-o"]).arg(&profile).arg(&counters))?;
    Ok(profile)
}

/// Starts the `llvm-profdata` of the compiler's LLVM version: the one of rustup's `llvm-tools` if it is installed,
/// otherwise Debian's.
fn llvm_profdata(workspace: &Workspace) -> Result<Command, String> {
    let rustc = |argument| {
        output(Command::new("rustc").args(["--print", argument]).current_dir(&workspace.root))
            .map(|text| text.trim().to_owned())
    };
    let of_rustup = Path::new(&rustc("sysroot")?)
        .join("lib/rustlib")
        .join(rustc("host-tuple")?)
        .join("bin/llvm-profdata");
    if of_rustup.exists() {
        return Ok(Command::new(of_rustup));
    }
    let version = output(Command::new("rustc").arg("-vV").current_dir(&workspace.root))?;
    let major = llvm_major(&version).ok_or_else(|| format!("rustc names no version of LLVM:\n{version}"))?;
    let place = workspace.target.join(format!("tools/llvm-{major}"));
    if !place.exists() {
        println!("unpacking Debian's llvm-{major}");
        unpack_of_debian(workspace, &format!("llvm-{major}"), &place).map_err(|error| {
            format!(
                "the profile-guided build needs `llvm-profdata` of LLVM {major}, and Debian's cannot be had: {error}\n\
                 hint: `rustup component add llvm-tools` installs it"
            )
        })?;
    }
    // The packages of Debian unstable need its C library too, so its loader starts the program.
    let mut command = Command::new(place.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(place.join("usr/lib/x86_64-linux-gnu"));
    command.arg(place.join(format!("usr/lib/llvm-{major}/bin/llvm-profdata")));
    Ok(command)
}

/// Unpacks a package of Debian unstable with all that it needs. Neither root nor a change of the system is needed: apt
/// uses lists and a cache below `target`, and the mirror of the system.
fn unpack_of_debian(workspace: &Workspace, package: &str, place: &Path) -> Result<(), String> {
    let apt_place = workspace.target.join("tools/apt");
    for directory in ["lists/partial", "cache/archives/partial", "unpacked"] {
        super::empty(&apt_place.join(directory))?;
    }
    let mirrors = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"];
    let mirrors = output(Command::new("apt-get").args(mirrors))?;
    let mirror = mirrors.lines().next().ok_or("apt has no list of packages; `apt-get update` reads one")?;
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    super::write(&apt_place.join("sources"), &format!("deb [signed-by={keys}] {mirror} sid main\n"))?;
    super::write(&apt_place.join("status"), "")?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        for (key, file) in [
            ("Dir::Etc::SourceList", "sources"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{key}={}", apt_place.join(file).display()));
        }
        command.args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "Acquire::Languages=none"]);
        // No lock: the files are ours. No user of its own: it may not be able to write below `target`.
        output(command.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]).args(words))
    };
    apt(&["update"])?;
    apt(&["install", "--download-only", "--yes", "--no-install-recommends", package])?;
    let (downloads, unpacked) = (apt_place.join("cache/archives"), apt_place.join("unpacked"));
    for entry in fs::read_dir(&downloads).map_err(|error| cannot("list", &downloads, &error))? {
        let file = entry.map_err(|error| cannot("list", &downloads, &error))?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            output(Command::new("dpkg-deb").arg("--extract").args([&file, &unpacked]))?;
        }
    }
    fs::rename(&unpacked, place).map_err(|error| cannot("rename", &unpacked, &error))
}

/// The major version of LLVM in the output of `rustc -vV`.
fn llvm_major(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
}

/// Flag that makes the compiler use a profile. It makes code small that the training load never ran.
pub(super) fn use_flag(profile: &Path) -> String {
    format!("-Cprofile-use={}", profile.display())
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
