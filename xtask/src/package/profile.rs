//! The profile of the packaged binary: an instrumented build serves the training load of `gripfast-bench`, and
//! `llvm-profdata` merges its counters into one file for the compiler.
//!
//! The counters fit only a build in which cargo gives all symbols the same names: with the same cargo profile, target,
//! compiler and settings for build scripts. [`verify`] compares the names, because the compiler ignores counters that do
//! not fit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TARGET, cannot, output, run_shown};
use crate::workspace::Workspace;

/// Variables that maturin sets for cargo when it links with zig. They change the names of all symbols of crates with
/// build scripts, and of the crates that use those.
const SETTINGS_OF_ZIG: [(&str, &str); 3] = [
    ("CARGO_TARGET_APPLIES_TO_HOST", "false"),
    ("CARGO_UNSTABLE_TARGET_APPLIES_TO_HOST", "true"),
    ("__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS", "nightly"),
];
/// Crates whose names are compared. Most others are below them.
const COMPARED: [&str; 3] = ["tokio", "hyper", "gripfast_gateway"];

/// Builds the instrumented binary, runs the training load and returns the merged profile.
pub(super) fn record(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut merger = llvm_profdata(workspace)?;
    // A target directory of its own: the flags would otherwise rebuild everything twice in each run.
    let place = workspace.target.join("profile");
    let counters = place.join("counters");
    super::empty(&counters)?;
    println!("building the instrumented binary");
    // Not with zig, which does not know the linker flag of instrumented code.
    let instrumented = ["build", "--locked", "--profile", "dist", "--target", TARGET, "--bin", "gripfast"];
    let flag = format!("-Cprofile-generate={}", counters.display());
    let mut build = workspace.cargo(&instrumented);
    build.env("CARGO_TARGET_DIR", &place).env("CARGO_ENCODED_RUSTFLAGS", flag).envs(SETTINGS_OF_ZIG);
    run_shown(&mut build)?;
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

/// Fails if the packaged binary has other names of symbols than the instrumented one: then the compiler has used nothing
/// of the profile.
pub(super) fn verify(workspace: &Workspace) -> Result<(), String> {
    for krate in COMPARED {
        let unit = |target: &Path| unit_name(&target.join(TARGET).join("dist/deps"), krate);
        let (packaged, instrumented) = (unit(&workspace.target)?, unit(&workspace.target.join("profile"))?);
        if packaged != instrumented {
            return Err(format!(
                "the profile does not fit the packaged binary: `{krate}` is {packaged} there and {instrumented} in the \
                 instrumented build\nhint: compare the environment that maturin gives cargo with `SETTINGS_OF_ZIG`"
            ));
        }
    }
    Ok(())
}

/// The name of a codegen unit of a crate, with the hash that is in the names of its symbols, from its newest library.
fn unit_name(deps: &Path, krate: &str) -> Result<String, String> {
    let entries = fs::read_dir(deps).map_err(|error| cannot("list", deps, &error))?;
    let prefix = format!("lib{krate}-");
    let libraries = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let is_library = name.starts_with(&prefix) && name.ends_with(".rlib");
        is_library.then_some((entry.metadata().ok()?.modified().ok()?, entry.path()))
    });
    let (_, newest) =
        libraries.max().ok_or_else(|| format!("no library of `{krate}` in {}", deps.display()))?;
    let bytes = fs::read(&newest).map_err(|error| cannot("read", &newest, &error))?;
    find_unit_name(&bytes, krate).ok_or_else(|| format!("{} has no codegen unit", newest.display()))
}

/// Finds `CRATE.HASH-cgu` among the names of the members of a library.
fn find_unit_name(library: &[u8], krate: &str) -> Option<String> {
    let ends = library.windows(5).enumerate().filter(|(_, window)| window == b"-cgu.").map(|(end, _)| end);
    ends.filter_map(|end| {
        let start = library[..end].iter().rposition(|byte| !byte.is_ascii_hexdigit())? + 1;
        let named = library[..start].strip_suffix(b".")?.ends_with(krate.as_bytes());
        (named && start < end).then(|| format!("{krate}.{}", String::from_utf8_lossy(&library[start..end])))
    })
    .next()
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
    fn the_hash_of_a_crate_is_found_in_its_library() {
        let library =
            b"!<arch>\n...hyper-6538.memchr.0a-cgu.0.rcgu.o/\nhyper-b003.hyper.363d96f1-cgu.12.rcgu.o/\n";
        assert_eq!(find_unit_name(library, "hyper").as_deref(), Some("hyper.363d96f1"));
        assert_eq!(find_unit_name(library, "tokio"), None);
    }

    #[test]
    fn the_version_of_llvm_is_read_from_rustc() {
        let text =
            "rustc 1.95.0 (59807616e 2026-04-14)\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.2\n";
        assert_eq!(llvm_major(text), Some("22"));
        assert_eq!(llvm_major("rustc 1.95.0"), None);
    }
}
