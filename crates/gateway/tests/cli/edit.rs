//! `gripfast add`, `remove`, `enable` and `disable`: their edits of the config, and the edits that they refuse.

use crate::sandbox::{CommandOutput, Sandbox};
use insta::assert_snapshot;

const KEPT: &str = "\
# ours
[gateway]   # the gateway
listen = '127.0.0.1:7331'

[servers.old]
# it was always there
command = 'old'   # really
";

fn file(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap()
}

fn refused(sandbox: &Sandbox, words: &[&str]) -> CommandOutput {
    let before = std::fs::read(sandbox.path("gripfast.toml")).ok();
    let ran = sandbox.run(words);
    assert_ne!(ran.code, Some(0), "{ran}");
    assert_eq!(std::fs::read(sandbox.path("gripfast.toml")).ok(), before, "nothing is written");
    ran
}

#[test]
fn a_server_is_added_and_everything_else_stays() {
    let sandbox = Sandbox::with(KEPT);
    let words = [
        "add",
        "files",
        "--env",
        "A=${env:B}",
        "--env",
        "C=d=e",
        "--lazy",
        "--",
        "sh",
        "-y",
        "server",
        "--x",
    ];
    assert_snapshot!(sandbox.run(&words), @"
    exit 0
    --- stderr
    added `files` to `[DIR]/gripfast.toml`
    warning: server `files` cannot start: environment variable `B` is not set
      hint: set it for the gripfast process, or write a default: `${env:B:-…}`
    ");
    let added = file(&sandbox).strip_prefix(KEPT).map(str::to_owned).expect("what was there stays as it was");
    assert_snapshot!(added, @r#"
    [servers.files]
    command = "sh"
    args = ["-y", "server", "--x"]
    env = { A = "${env:B}", C = "d=e" }
    lazy = true
    "#);
    let docs =
        ["add", "docs", "--url", "https://example.com/mcp", "--header", "Authorization=Bearer ${env:T}"];
    assert_eq!(sandbox.run(&docs).code, Some(0));
    assert!(file(&sandbox).contains("[servers.docs]\nurl = \"https://example.com/mcp\"\nheaders = { Authorization = \"Bearer ${env:T}\" }\n"));
    for name in ["files", "docs"] {
        assert_eq!(sandbox.run(&["remove", name]).code, Some(0));
    }
    assert_eq!(file(&sandbox), KEPT);
}

#[test]
fn a_server_is_disabled_and_enabled_and_everything_else_stays() {
    let kept = KEPT.replace("'old'", "'sh'");
    let sandbox = Sandbox::with(&kept);
    assert_snapshot!(sandbox.run(&["disable", "old"]), @"
    exit 0
    --- stderr
    disabled `old` in `[DIR]/gripfast.toml`
    ");
    assert_eq!(file(&sandbox), format!("{kept}disabled = true\n"));
    assert_snapshot!(sandbox.run(&["disable", "old"]), @"
    exit 0
    --- stderr
    server `old` is already disabled in `[DIR]/gripfast.toml`
    ");
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 0
    --- stdout
    ok: 1 server (1 disabled)
    ");
    assert_snapshot!(sandbox.run(&["enable", "old"]), @"
    exit 0
    --- stderr
    enabled `old` in `[DIR]/gripfast.toml`
    ");
    assert_eq!(file(&sandbox), kept);
    assert_snapshot!(refused(&sandbox, &["enable", "odl"]), @"
    exit 1
    --- stderr
    error: no server `odl` in `./gripfast.toml`
      hint: did you mean `old`?
    ");
    assert_snapshot!(refused(&Sandbox::empty(), &["disable", "old"]), @"
    exit 2
    --- stderr
    error: no config file found; looked for `./gripfast.toml`, `[DIR]/home/.config/gripfast/gripfast.toml`
      hint: `gripfast import --write` creates one from the servers of other MCP clients, `gripfast add` starts a new one; `--config FILE` or $GRIPFAST_CONFIG names another file, which may be the JSON or YAML of another client
    ");
}

#[test]
fn adding_a_missing_command_prints_the_hint_that_fits() {
    let sandbox = Sandbox::empty();
    let add = |name: &str, command: &str| {
        let ran = sandbox.run_with(&["add", name, "--", command], &[("PATH", "/nowhere")]);
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.to_string().lines().skip(3).collect::<Vec<_>>().join("\n")
    };
    let told = [
        add("typo", "npxx"),
        add("absent", "uvx"),
        add("line", "npx -y some-server"),
        add("own", "my-server"),
    ];
    assert_snapshot!(told.join("\n"), @r#"
    warning: server `typo` cannot start: command `npxx` is not on the PATH
      hint: did you mean `npx`?
    warning: server `absent` cannot start: command `uvx` is not on the PATH
      hint: install uv, which brings `uvx`, or write the full path as `command`
    warning: server `line` cannot start: command `npx -y some-server` is not on the PATH
      hint: `command` names one program: write `command = "npx"` and the other words into `args`, one string for each
    warning: server `own` cannot start: command `my-server` is not on the PATH
      hint: install it, or correct `command`
    "#);
}

#[test]
fn the_first_server_makes_the_file() {
    let sandbox = Sandbox::empty();
    assert_snapshot!(sandbox.run(&["add", "a", "--", "sh"]), @"
    exit 0
    --- stderr
    added `a` to `[DIR]/gripfast.toml` (new file)
    ");
    assert_eq!(file(&sandbox), "[servers.a]\ncommand = \"sh\"\n");
    assert_eq!(sandbox.run(&["check"]).code, Some(0));
}

#[test]
fn an_unusable_server_is_not_written() {
    let sandbox = Sandbox::with(KEPT);
    assert_snapshot!(refused(&sandbox, &["add", "a__b", "--", "sh"]), @"
    exit 2
    --- stderr
    error: `__` is not allowed in a name, because it separates server and tool
     --> ./gripfast.toml:9:10 (servers.a__b)
      |
    9 | [servers.a__b]
      |          ^^^^
      hint: use `a_b`

    error: nothing was written to `./gripfast.toml`
    ");
    assert_snapshot!(refused(&sandbox, &["add", "a", "--url", "ftp://x"]), @r#"
    exit 2
    --- stderr
    error: the scheme is `ftp`, expected `http` or `https`
      --> ./gripfast.toml:10:7 (servers.a.url)
       |
    10 | url = "ftp://x"
       |       ^^^^^^^^^
       hint: for example "https://example.com/mcp"

    error: nothing was written to `./gripfast.toml`
    "#);
    assert_snapshot!(refused(&sandbox, &["add", "old", "--", "sh"]), @"
    exit 1
    --- stderr
    error: `./gripfast.toml` already has a server `old`
      hint: `gripfast remove old` removes it
    ");
    assert_snapshot!(refused(&sandbox, &["remove", "odl"]), @"
    exit 1
    --- stderr
    error: no server `odl` in `./gripfast.toml`
      hint: did you mean `old`?
    ");
    assert_eq!(refused(&sandbox, &["add", "a"]).code, Some(1), "neither command nor URL");
    assert_eq!(refused(&sandbox, &["add", "a", "--url", "http://x", "--", "sh"]).code, Some(1), "both");
}

#[test]
fn files_of_other_formats_are_not_edited() {
    let sandbox = Sandbox::empty().file("mcp.json", "{}");
    assert_snapshot!(sandbox.run(&["add", "a", "--config", "mcp.json", "--", "sh"]), @"
    exit 1
    --- stderr
    error: `mcp.json` is not TOML, and gripfast edits only TOML
      hint: `gripfast import --write` converts it into a gripfast.toml
    ");
}

#[cfg(unix)]
#[test]
fn the_file_keeps_its_mode_and_a_new_one_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::with(KEPT);
    let mode = || std::fs::metadata(sandbox.path("gripfast.toml")).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(sandbox.path("gripfast.toml"), PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(sandbox.run(&["add", "a", "--", "sh"]).code, Some(0));
    assert_eq!(mode(), 0o640);
    std::fs::remove_file(sandbox.path("gripfast.toml")).unwrap();
    assert_eq!(sandbox.run(&["add", "a", "--", "sh"]).code, Some(0));
    assert_eq!(mode(), 0o600);
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = Sandbox::empty().run(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
        assert!(ran.stdout.contains("demo-server") && ran.stdout.contains("reconnect"), "{shell}");
    }
}
