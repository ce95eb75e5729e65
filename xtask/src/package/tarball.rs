//! The tarball, with its checksum beside it.

use std::path::PathBuf;
use std::process::Command;

use super::{Parts, install, output, write};

pub(super) fn build(parts: &Parts<'_>) -> Result<PathBuf, String> {
    let name = format!("gripfast-{}-x86_64-linux", parts.version);
    let root = parts.staged(&name)?;
    parts.stage_prefix(&root)?;
    output(
        Command::new(&parts.binary).args(["service", "install", "--root"]).arg(parts.staging.join("units")),
    )?;
    for unit in ["gripfast.service", "gripfast.socket"] {
        let from = parts.staging.join("units/usr/lib/systemd/system").join(unit);
        install(&from, &root.join("share/doc/gripfast/examples").join(unit), 0o644)?;
    }
    let file = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--file"]);
    output(tar.arg(parts.out.join(&file)).arg(&name).current_dir(&parts.staging))?;
    let sum = output(Command::new("sha256sum").arg(&file).current_dir(&parts.out))?;
    write(&parts.out.join(format!("{file}.sha256")), &sum)?;
    Ok(parts.out.join(file))
}
