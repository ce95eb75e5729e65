//! `gripfast service` and `gripfast man`. A script stands in for `systemctl` and records its arguments; the real
//! `systemd-analyze` checks the units.

use crate::sandbox::{CommandOutput, Sandbox};
use gripfast_testkit::service_manager::ServiceManager;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A sandbox whose `systemctl` and `journalctl` record their arguments and end with this exit code.
fn with_fake_systemd(config: &str, code: u8) -> Sandbox {
    let sandbox = Sandbox::with(config);
    fs::create_dir(sandbox.path("bin")).unwrap();
    for tool in ["systemctl", "journalctl"] {
        let log = sandbox.path("asked");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho {tool} \"$@\" >> {}\nexit {code}\n",
            log.display()
        );
        let path = sandbox.path("bin").join(tool);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    sandbox
}

fn run(sandbox: &Sandbox, words: &[&str]) -> CommandOutput {
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    sandbox.run_with(words, &[("PATH", &path)])
}

fn asked(sandbox: &Sandbox) -> String {
    let asked = fs::read_to_string(sandbox.path("asked")).unwrap_or_default();
    fs::write(sandbox.path("asked"), "").unwrap();
    asked
}

fn unit(sandbox: &Sandbox, name: &str) -> Option<String> {
    fs::read_to_string(sandbox.path("home/.config/systemd/user").join(name)).ok()
}

const CONFIG: &str = "[gateway]\nlisten = \"127.0.0.1:7444\"\n[servers.demo]\ncommand = \"cat\"\n";
const INSTALL: [&str; 5] = ["service", "install", "--user", "--config", "gripfast.toml"];

#[test]
fn a_user_service_is_installed_started_and_removed_without_a_trace() {
    let sandbox = with_fake_systemd(CONFIG, 0);
    insta::assert_snapshot!(run(&sandbox, &INSTALL), @"
    exit 0
    --- stdout
    wrote [DIR]/home/.config/systemd/user/gripfast.socket
    wrote [DIR]/home/.config/systemd/user/gripfast.service
    --- stderr
    the gateway runs at 127.0.0.1:[PORT]; `gripfast service status --user` shows its state, `gripfast service logs --user` its log
    it starts when you log in; to start it at boot, run: loginctl enable-linger
    ");
    insta::assert_snapshot!(asked(&sandbox), @"
    systemctl --user daemon-reload
    systemctl --user enable gripfast.socket gripfast.service
    systemctl --user start gripfast.socket
    systemctl --user restart gripfast.service
    ");
    let (socket, service) =
        (unit(&sandbox, "gripfast.socket").unwrap(), unit(&sandbox, "gripfast.service").unwrap());
    assert!(socket.contains("ListenStream=127.0.0.1:7444\n"), "the address of the config: {socket}");
    let config = sandbox.path("gripfast.toml");
    assert!(service.contains(&format!(" serve --config {}\n", config.display())), "{service}");
    let path = format!("Environment=PATH={}:/usr/bin:/bin\n", sandbox.path("bin").display());
    assert!(service.contains(&path), "commands of servers are found as in the shell: {service}");

    insta::assert_snapshot!(run(&sandbox, &["service", "uninstall", "--user"]), @"
    exit 0
    --- stdout
    removed [DIR]/home/.config/systemd/user/gripfast.service
    removed [DIR]/home/.config/systemd/user/gripfast.socket
    --- stderr
    config and state stay; the state is in [DIR]/home/.local/state/gripfast
    ");
    insta::assert_snapshot!(asked(&sandbox), @"
    systemctl --user disable --now gripfast.service gripfast.socket
    systemctl --user daemon-reload
    ");
    assert_eq!((unit(&sandbox, "gripfast.socket"), unit(&sandbox, "gripfast.service")), (None, None));
    insta::assert_snapshot!(run(&sandbox, &["service", "uninstall", "--user"]), @"
    exit 1
    --- stderr
    error: no service is installed: `[DIR]/home/.config/systemd/user/gripfast.service` does not exist
      hint: `--user` is about your own service; a package removes its service itself
    ");
}

#[test]
fn a_second_install_keeps_the_socket_unless_its_address_changes() {
    let sandbox = with_fake_systemd(CONFIG, 0);
    run(&sandbox, &INSTALL);
    asked(&sandbox);
    run(&sandbox, &INSTALL);
    assert!(!asked(&sandbox).contains("stop"), "calls wait in the queue of the socket");
    let sandbox = sandbox.file("gripfast.toml", &CONFIG.replace("7444", "7445"));
    run(&sandbox, &INSTALL);
    assert!(asked(&sandbox).contains("systemctl --user stop gripfast.service gripfast.socket\n"));
}

#[test]
fn without_systemd_nothing_is_written_and_the_next_step_is_named() {
    let sandbox = Sandbox::with(CONFIG);
    fs::create_dir(sandbox.path("bin")).unwrap();
    let bin = sandbox.path("bin").display().to_string();
    let ran = sandbox.run_with(&INSTALL, &[("PATH", &bin)]);
    insta::assert_snapshot!(ran, @"
    exit 1
    --- stderr
    error: cannot run `systemctl`: No such file or directory (os error 2)
      hint: this machine seems to have no systemd; let its own service manager run `gripfast serve --config FILE`, and send SIGTERM to stop it
    ");
    assert_eq!(unit(&sandbox, "gripfast.service"), None);
}

#[test]
fn a_failure_of_systemctl_names_its_command_and_where_to_look() {
    let sandbox = with_fake_systemd(CONFIG, 1);
    let ran = run(&sandbox, &INSTALL);
    insta::assert_snapshot!(ran, @"
    exit 1
    --- stdout
    wrote [DIR]/home/.config/systemd/user/gripfast.socket
    wrote [DIR]/home/.config/systemd/user/gripfast.service
    --- stderr
    error: `systemctl --user daemon-reload` failed (exit status: 1)
      hint: `journalctl --user --unit gripfast` has the cause if the service itself failed
    ");
}

#[test]
fn an_invalid_config_installs_nothing() {
    let sandbox = with_fake_systemd("[gateway]\nlisten = 3\n", 0);
    let ran = run(&sandbox, &INSTALL);
    assert_eq!((ran.code, asked(&sandbox).as_str()), (Some(2), ""), "{ran}");
    assert_eq!(unit(&sandbox, "gripfast.service"), None);
}

#[test]
fn status_and_logs_ask_systemd_and_have_our_exit_codes() {
    let sandbox = with_fake_systemd(CONFIG, 0);
    assert_eq!(run(&sandbox, &["service", "status", "--user"]).code, Some(0));
    assert_eq!(run(&sandbox, &["service", "logs", "-f", "-n", "7"]).code, Some(0));
    insta::assert_snapshot!(asked(&sandbox), @"
    systemctl --user status --no-pager gripfast.socket gripfast.service
    journalctl --no-pager --unit gripfast.service --lines 7 --follow
    ");
    // systemctl ends with 3 for a service that does not run; here 3 means that a login is needed.
    let stopped = with_fake_systemd(CONFIG, 3);
    assert_eq!(run(&stopped, &["service", "status", "--user"]).code, Some(4));
}

#[test]
fn a_temporary_copy_of_gripfast_is_not_installed() {
    let sandbox = with_fake_systemd(CONFIG, 0);
    fs::create_dir(sandbox.path("_npx")).unwrap();
    let copy = sandbox.path("_npx/gripfast");
    fs::copy(crate::sandbox::GRIPFAST, &copy).unwrap();
    let mut command = Command::new(copy);
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    command.args(INSTALL).current_dir(sandbox.path("")).env_clear();
    command.env("HOME", sandbox.path("home")).env("PATH", path);
    let ran = sandbox.ran(command.output().unwrap());
    insta::assert_snapshot!(ran, @"
    exit 1
    --- stderr
    error: `[DIR]/_npx/gripfast` is a temporary copy of gripfast, which may be deleted
      hint: install gripfast first, for example with `uv tool install gripfast` or `npm install --global gripfast`
    ");
    assert_eq!(unit(&sandbox, "gripfast.service"), None);
}

/// Checks units with systemd's own parser; it also names unknown keys.
fn verify(units: &Path) {
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--recursive-errors=no"]);
    command.args(["gripfast.socket", "gripfast.service"].map(|unit| units.join(unit)));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("gripfast."), "{said}");
}

#[test]
fn systemd_accepts_the_units_of_users_and_of_packages() {
    if !ServiceManager::Systemd.require() {
        return;
    }
    let sandbox = with_fake_systemd(CONFIG, 0);
    assert_eq!(run(&sandbox, &INSTALL).code, Some(0));
    verify(&sandbox.path("home/.config/systemd/user"));
    let ran = run(&sandbox, &["service", "install", "--root", "package"]);
    assert_eq!((ran.code, asked(&sandbox).contains("daemon-reload\n")), (Some(0), true), "{ran}");
    let units = sandbox.path("package/usr/lib/systemd/system");
    let service = fs::read_to_string(units.join("gripfast.service")).unwrap();
    let command = "ExecStart=/usr/bin/gripfast serve --config /etc/gripfast/gripfast.toml";
    assert!(service.contains(command), "{service}");
    // The program of a package is not on this machine.
    let here = service.replace("/usr/bin/gripfast", crate::sandbox::GRIPFAST);
    fs::write(units.join("gripfast.service"), here).unwrap();
    verify(&units);
}

#[test]
fn man_pages_exist_for_all_commands() {
    let sandbox = Sandbox::empty();
    let ran = sandbox.run(&["man", "pages"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    let read = |page: &str| fs::read_to_string(sandbox.path("pages").join(page)).unwrap();
    assert!(read("gripfast.1").contains(".TH gripfast 1"));
    assert!(read("gripfast-serve.1").contains("\\-\\-listen"));
    assert!(read("gripfast-service-install.1").contains("\\-\\-user"));
}
