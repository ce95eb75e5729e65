//! Files that another user could have changed: a config, a key, a state directory. They are refused with exit code 2,
//! unless the config has `strict_modes = false`.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{CommandOutput, Sandbox, stdio};
use gripfast_testkit::wait::until_some;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

const OFF: &str = "[gateway]\nstrict_modes = false\n";

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs a verb that reads the config and the state directory and exits.
fn policy(sandbox: &Sandbox, more: &[&str]) -> CommandOutput {
    sandbox.run(&[&["policy", "test", "local", "demo", "echo"], more].concat())
}

fn is_refused(ran: &CommandOutput, what: &str, mode: &str) {
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains(what) && ran.stderr.contains(mode), "{ran}");
    assert!(ran.stderr.contains("chmod go-w"), "{ran}");
}

#[test]
fn g05_a_config_that_others_can_write_is_refused_wherever_it_was_found() {
    let sandbox = Sandbox::with_demo(&[]);
    let config = sandbox.path("gripfast.toml");
    for (mode, shown) in
        [(0o664, "its group can write it (mode 0664)"), (0o606, "all other users can write it")]
    {
        set_mode(&config, mode);
        is_refused(&policy(&sandbox, &[]), "config file `./gripfast.toml` is not safe to use", shown);
        is_refused(&policy(&sandbox, &["--config", "gripfast.toml"]), "config file `gripfast.toml`", shown);
        is_refused(&sandbox.run(&["serve"]), "config file", shown);
        is_refused(&sandbox.run(&["status"]), "config file", shown);
        is_refused(&sandbox.run(&["add", "x", "--", "sh"]), "config file", shown);
        is_refused(&sandbox.run(&["check"]), "error: config file", shown);
        is_refused(&sandbox.run(&["trust"]), "config file", shown);
    }
    let home = sandbox.path("home/.config/gripfast");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("gripfast.toml"), OFF.to_owned() + &stdio("demo", &[])).unwrap();
    std::fs::remove_file(&config).unwrap();
    set_mode(&home.join("gripfast.toml"), 0o664);
    // Its own setting does not count there: the file was neither named nor trusted.
    is_refused(&policy(&sandbox, &[]), "home/.config/gripfast/gripfast.toml` is not safe to use", "0664");
}

#[test]
fn g05_a_named_or_trusted_config_may_turn_strict_modes_off() {
    let sandbox = Sandbox::with(&(OFF.to_owned() + &stdio("demo", &[])));
    set_mode(&sandbox.path("gripfast.toml"), 0o666);
    assert_eq!(policy(&sandbox, &[]).code, Some(0));
    assert_eq!(policy(&sandbox, &["--config", "gripfast.toml"]).code, Some(0));
    let checked = sandbox.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert!(checked.stderr.contains("warning: config file") && checked.stderr.contains("0666"), "{checked}");
    let served = GatewayProcess::start(&sandbox, &[]).end(Signal::TERM);
    assert!(served.contains("warning: config file") && served.contains("mode 0666"), "{served}");
}

#[test]
fn g05_files_of_another_user_are_refused() {
    let sandbox = Sandbox::with_demo(&[]);
    if chown(sandbox.path("gripfast.toml"), Some(12_345), None).is_err() {
        // Only root can change the owner of a file. `file_modes` in core decides, and has its own test.
        return;
    }
    let ran = policy(&sandbox, &["--config", "gripfast.toml"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("it belongs to user 12345, but gripfast runs as user 0"), "{ran}");
    assert!(ran.stderr.contains("chown 0 "), "{ran}");
    chown(sandbox.path("gripfast.toml"), Some(0), None).unwrap();
    std::fs::create_dir(sandbox.path("state")).unwrap();
    chown(sandbox.path("state"), Some(12_345), None).unwrap();
    let ran = policy(&sandbox, &["--state-dir", "state"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("it belongs to user 12345"), "{ran}");
}

#[test]
fn g05_a_state_directory_that_others_can_write_is_refused_by_every_verb() {
    let sandbox = Sandbox::with_demo(&[]).file("lax.toml", &(OFF.to_owned() + &stdio("demo", &[])));
    std::fs::create_dir(sandbox.path("state")).unwrap();
    set_mode(&sandbox.path("state"), 0o770);
    let verbs: &[&[&str]] = &[
        &["serve", "--listen", "127.0.0.1:0"],
        &["serve", "--demo", "--listen", "127.0.0.1:0"],
        &["stdio"],
        &["status"],
        &["call", "--config", "gripfast.toml", "demo", "echo", r#"{"text":"x"}"#],
        &["tools", "--config", "gripfast.toml"],
        &["calls"],
        &["keys", "add", "laptop"],
        &["keys", "ls"],
        &["policy", "test", "local", "demo", "echo"],
        &["pins", "ls"],
        &["logout", "demo"],
    ];
    for words in verbs {
        let ran = sandbox.run(&[*words, &["--state-dir", "state"]].concat());
        assert_eq!(ran.code, Some(2), "{words:?}: {ran}");
        assert!(
            ran.stderr.contains("the state directory is refused: `state` is not safe to use"),
            "{words:?}: {ran}"
        );
        assert!(
            ran.stderr.contains("mode 0770") && ran.stderr.contains("chmod go-w state"),
            "{words:?}: {ran}"
        );
        assert_eq!(std::fs::read_dir(sandbox.path("state")).unwrap().count(), 0, "{words:?}");
    }
    let checked = sandbox.run(&["check", "--state-dir", "state"]);
    assert!(
        checked.code == Some(2) && checked.stderr.contains("error: state directory `state`"),
        "{checked}"
    );
    let lax = sandbox.run(&["keys", "add", "laptop", "--config", "lax.toml", "--state-dir", "state"]);
    assert_eq!(lax.code, Some(0), "{lax}");
    let said =
        GatewayProcess::start(&sandbox, &["--config", "lax.toml", "--state-dir", "state"]).end(Signal::TERM);
    assert!(said.contains("`state` is not safe to use") && said.contains("strict_modes"), "{said}");
}

#[test]
fn g05_a_key_in_the_state_directory_that_others_can_write_is_refused() {
    let sandbox = Sandbox::with_demo(&[]);
    std::fs::create_dir_all(sandbox.path("state/logins")).unwrap();
    set_mode(&sandbox.path("state"), 0o700);
    for name in ["admin.token", "session.key", "keys.json", "logins/key"] {
        let path = sandbox.path("state").join(name);
        std::fs::write(&path, "x".repeat(32)).unwrap();
        set_mode(&path, 0o660);
        let ran = sandbox.run(&["serve", "--listen", "127.0.0.1:0", "--state-dir", "state"]);
        is_refused(&ran, name, "mode 0660");
        std::fs::remove_file(&path).unwrap();
    }
}

/// Certificate for this machine and its key, in PEM form.
fn certificate_and_key() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[test]
fn g05_a_tls_key_others_can_write_is_refused_and_a_readable_one_is_a_warning() {
    let (cert, key) = certificate_and_key();
    let tls = "tls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
    let strict = format!("[gateway]\n{tls}{}", stdio("demo", &[]));
    let sandbox = Sandbox::with(&strict).file("cert.pem", &cert).file("key.pem", &key);
    let sandbox = sandbox.file("lax.toml", &format!("{OFF}{tls}{}", stdio("demo", &[])));
    set_mode(&sandbox.path("key.pem"), 0o660);
    let ran = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]);
    is_refused(&ran, "`gateway.tls.key` is refused: `key.pem` is not safe to use", "mode 0660");
    is_refused(&sandbox.run(&["check"]), "error: key file `key.pem`", "mode 0660");
    let said = GatewayProcess::start(&sandbox, &["--config", "lax.toml"]).end(Signal::TERM);
    assert!(said.contains("the key `key.pem` is not safe to use"), "{said}");
    set_mode(&sandbox.path("key.pem"), 0o644);
    let said = GatewayProcess::start(&sandbox, &[]).end(Signal::TERM);
    assert!(
        said.contains("every user of this machine can read the key `key.pem`; `chmod 600 key.pem`"),
        "{said}"
    );
    let checked = sandbox.run(&["check"]);
    assert!(
        checked.code == Some(0) && checked.stderr.contains("warning: every user of this machine"),
        "{checked}"
    );
    assert!(checked.stderr.contains("hint: `chmod 600 key.pem`"), "{checked}");
    set_mode(&sandbox.path("key.pem"), 0o600);
    let said = GatewayProcess::start(&sandbox, &[]).end(Signal::TERM);
    assert!(!said.contains("key.pem"), "{said}");
}

#[test]
fn g05_a_set_of_keys_that_others_can_write_is_refused() {
    let config =
        "[gateway.auth.jwt]\nissuer = \"https://login.example\"\naudience = \"me\"\njwks = \"keys.json\"\n";
    let sandbox =
        Sandbox::with(&(config.to_owned() + &stdio("demo", &[]))).file("keys.json", "{\"keys\":[]}");
    set_mode(&sandbox.path("keys.json"), 0o666);
    let ran = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]);
    is_refused(&ran, "`gateway.auth.jwt.jwks` is refused: `keys.json`", "mode 0666");
}

#[test]
fn g05_a_running_gateway_does_not_reload_a_config_that_others_can_write() {
    let sandbox = Sandbox::with_demo(&[]);
    let serving = GatewayProcess::start(&sandbox, &["--config", "gripfast.toml"]);
    let status = || {
        let words = ["status", "-o", "json", "--url", &serving.url, "--config", "named.toml"];
        serde_json::from_str::<serde_json::Value>(&sandbox.run(&words).stdout).unwrap()
    };
    std::fs::write(sandbox.path("named.toml"), "").unwrap();
    set_mode(&sandbox.path("gripfast.toml"), 0o666);
    let evil = format!("{OFF}{}{}", stdio("demo", &[]), stdio("evil", &[]));
    std::fs::write(sandbox.path("gripfast.toml"), &evil).unwrap();
    let why = until_some("it is refused", || status()["config"]["error"].as_str().map(str::to_owned));
    assert!(why.contains("is not safe to use") && why.contains("chmod go-w"), "{why}");
    assert_eq!(status()["upstreams"].as_array().unwrap().len(), 1);
    set_mode(&sandbox.path("gripfast.toml"), 0o600);
    until_some("it is taken once it is safe", || {
        (status()["upstreams"].as_array()?.len() == 2).then_some(())
    });
}

#[test]
fn g05_a_gateway_changes_nothing_behind_symlinks_in_its_state_directory() {
    let sandbox = Sandbox::with(&format!("[gateway]\naudit = \"digest\"\n{}", stdio("demo", &[])));
    for name in ["state", "theirs", "theirs/directory"] {
        std::fs::create_dir(sandbox.path(name)).unwrap();
    }
    set_mode(&sandbox.path("state"), 0o700);
    let files = ["admin.token", "session.key", "keys.json", "state.db"];
    for name in files {
        let victim = sandbox.path("theirs").join(name);
        std::fs::write(&victim, "t".repeat(32)).unwrap();
        set_mode(&victim, 0o644);
        symlink(&victim, sandbox.path("state").join(name)).unwrap();
    }
    for name in ["logins", "ledger", "audit"] {
        symlink(sandbox.path("theirs/directory"), sandbox.path("state").join(name)).unwrap();
    }
    let serving = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    assert!(serving.client().call("demo__echo", serde_json::json!({ "text": "hello" })).contains("hello"));
    let said = serving.end(Signal::TERM);
    assert!(said.contains("is a symlink"), "{said}");
    for name in files {
        let victim = sandbox.path("theirs").join(name);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "t".repeat(32), "{name}");
        assert_eq!(std::fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o644, "{name}");
    }
    assert_eq!(std::fs::read_dir(sandbox.path("theirs/directory")).unwrap().count(), 0);
}

#[test]
fn a_state_directory_may_itself_be_a_symlink() {
    let sandbox = Sandbox::with_demo(&[]);
    std::fs::create_dir(sandbox.path("real")).unwrap();
    symlink(sandbox.path("real"), sandbox.path("state")).unwrap();
    let serving = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    drop(serving.client());
    let said = serving.end(Signal::TERM);
    assert!(!said.contains("symlink"), "{said}");
    for name in ["admin.token", "session.key", "state.db"] {
        assert!(sandbox.path("real").join(name).is_file(), "{name}");
    }
}
