//! The Debian package: binary, man pages, completions, systemd units, example config, and a system user.

use std::path::PathBuf;
use std::process::Command;

use super::{Build, Parts, install, output, write};

pub(super) fn build(parts: &Parts<'_>) -> Result<PathBuf, String> {
    let root = parts.staged("deb")?;
    let usr = root.join("usr");
    parts.stage_prefix(&usr)?;
    output(Command::new("sh").args(["-c", "gzip -9n \"$0\"/*"]).arg(usr.join("share/man/man1")))?;
    // Debian's names for these two.
    let doc = usr.join("share/doc/gripfast");
    let rename = "cd \"$0\" && mv LICENSE-MIT copyright && rm LICENSE-APACHE && gzip -9n CHANGELOG.md && mv CHANGELOG.md.gz changelog.gz";
    output(Command::new("sh").args(["-c", rename]).arg(&doc))?;
    output(Command::new(&parts.binary).args(["service", "install", "--root"]).arg(&root))?;
    install(&parts.sources.join("gripfast.toml"), &root.join("etc/gripfast/gripfast.toml"), 0o644)?;
    let size = output(Command::new("du").args(["--summarize", "--block-size=1K"]).arg(&root))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    // The check is about the content: the best compression takes long, and its binary needs the glibc of this machine.
    let (glibc, compression) = match parts.build {
        Build::Portable => ("2.17", "-Zxz"),
        Build::Plain => ("2.28", "-Zgzip"),
    };
    let values =
        [("VERSION", &*parts.version), ("ARCHITECTURE", "amd64"), ("SIZE", &*size), ("GLIBC", glibc)];
    write(&root.join("DEBIAN/control"), &parts.template("deb/control", &values)?)?;
    write(&root.join("DEBIAN/conffiles"), "/etc/gripfast/gripfast.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        install(&parts.sources.join("deb").join(script), &root.join("DEBIAN").join(script), 0o755)?;
    }
    let package = parts.out.join(format!("gripfast_{}_amd64.deb", parts.version));
    output(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", compression, "--build"])
            .arg(&root)
            .arg(&package),
    )?;
    Ok(package)
}
