//! Which file is the config, and what is said when there is none.

use super::{TOML, World};
use gripfast::config::{Config, ConfigError, Places};
use std::path::{Path, PathBuf};

/// A current directory and a platform directory in a place of their own.
fn places(dir: &Path) -> Places {
    let places = Places { current_dir: dir.join("here"), config_dir: Some(dir.join("home")) };
    std::fs::create_dir_all(&places.current_dir).expect("a fresh directory is writable");
    std::fs::create_dir_all(dir.join("home/gripfast")).expect("a fresh directory is writable");
    places
}

#[test]
fn the_nearest_named_file_wins() {
    let dir = tempfile::tempdir().unwrap();
    let places = places(dir.path());
    let here = places.current_dir.join(TOML);
    let at_home = dir.path().join("home/gripfast").join(TOML);
    let find = |explicit: Option<&str>, world: &World| Config::find(explicit.map(Path::new), world, &places);
    let named = World::default().with_variable("GRIPFAST_CONFIG", "/named.toml");
    let nobody = World::default().with_variable("GRIPFAST_CONFIG", "");

    assert!(matches!(find(None, &nobody), Err(ConfigError::NotFound { .. })));
    std::fs::write(&at_home, "").unwrap();
    assert_eq!(find(None, &nobody).unwrap(), at_home);
    std::fs::write(&here, "").unwrap();
    assert_eq!(find(None, &nobody).unwrap(), here);
    // Named files are the answer even though they do not exist.
    assert_eq!(find(None, &named).unwrap(), PathBuf::from("/named.toml"));
    assert_eq!(find(Some("/explicit.toml"), &named).unwrap(), PathBuf::from("/explicit.toml"));
}

#[test]
fn what_was_looked_for_is_said() {
    let places = Places { current_dir: "/a".into(), config_dir: Some("/b".into()) };
    let error = Config::find(None, &World::default(), &places).unwrap_err();
    let shown = error.to_string().replace('\\', "/");
    insta::assert_snapshot!(shown, @"no config file found; looked for `/a/gripfast.toml`, `/b/gripfast/gripfast.toml`");
    let error = Config::load(Path::new("/does/not/exist.toml")).unwrap_err();
    insta::assert_snapshot!(error, @"no config file found; looked for `/does/not/exist.toml`");
}

#[test]
fn a_file_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mcp.json");
    std::fs::write(&path, r#"{"mcpServers": {"a": {"command": "x"}}}"#).unwrap();
    assert_eq!(Config::load(&path).unwrap().servers.len(), 1);
}

#[test]
fn a_file_that_cannot_be_a_config_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shown = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = Config::load(&path).unwrap_err().to_string();
        error.replace(&dir.path().display().to_string(), "DIR").replace('\\', "/")
    };
    insta::assert_snapshot!(shown("large.toml", &vec![b'#'; 9 << 20]), @"config file `DIR/large.toml` is larger than 8 MiB");
    insta::assert_snapshot!(shown("latin.toml", b"[servers.a]\ncommand = 'caf\xe9'\n"), @r"
    error: the file is not UTF-8 text
     --> DIR/latin.toml:2:15
    ");
    insta::assert_snapshot!(shown("notepad.json", b"\xff\xfe{\0}\0"), @r"
    error: the file is not UTF-8 text
     --> DIR/notepad.json:1:1
      hint: it looks like UTF-16; save it as UTF-8
    ");
    let error = Config::load(dir.path()).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn the_places_of_this_process_exist() {
    assert_eq!(Places::of_this_process().current_dir, Path::new("."));
}
