//! Search for the config file, and the message if there is none.

use super::{TOML, TestLookup};
use gripfast::config::{Config, ConfigError, ConfigOrigin, ConfigText, SearchPaths};
use std::path::{Path, PathBuf};

/// A current directory and a platform directory below `dir`.
fn search_paths(dir: &Path) -> SearchPaths {
    let places = SearchPaths { current_dir: dir.join("here"), config_dir: Some(dir.join("home")) };
    std::fs::create_dir_all(&places.current_dir).expect("a fresh directory is writable");
    std::fs::create_dir_all(dir.join("home/gripfast")).expect("a fresh directory is writable");
    places
}

#[test]
fn the_nearest_named_file_wins() {
    let dir = tempfile::tempdir().unwrap();
    let places = search_paths(dir.path());
    let here = places.current_dir.join(TOML);
    let at_home = dir.path().join("home/gripfast").join(TOML);
    let find = |explicit: Option<&str>, world: &TestLookup| {
        Config::find(explicit.map(Path::new), world, &places).map(|found| (found.path, found.origin))
    };
    let from = |path: PathBuf, origin| (path, origin);
    let named = TestLookup::default().with_variable("GRIPFAST_CONFIG", "/named.toml");
    let unnamed = TestLookup::default().with_variable("GRIPFAST_CONFIG", "");

    assert!(matches!(find(None, &unnamed), Err(ConfigError::NotFound { .. })));
    std::fs::write(&at_home, "").unwrap();
    assert_eq!(find(None, &unnamed).unwrap(), from(at_home, ConfigOrigin::PlatformDirectory));
    std::fs::write(&here, "").unwrap();
    assert_eq!(find(None, &unnamed).unwrap(), from(here, ConfigOrigin::CurrentDirectory));
    // Explicitly named files are used even if they do not exist.
    assert_eq!(find(None, &named).unwrap(), from("/named.toml".into(), ConfigOrigin::Named));
    assert_eq!(
        find(Some("/explicit.toml"), &named).unwrap(),
        from("/explicit.toml".into(), ConfigOrigin::Named)
    );
}

#[test]
fn the_searched_paths_are_listed() {
    let places = SearchPaths { current_dir: "/a".into(), config_dir: Some("/b".into()) };
    let error = Config::find(None, &TestLookup::default(), &places).unwrap_err();
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
fn the_platform_config_is_recognized_in_its_own_directory() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir_all(home.join("gripfast")).unwrap();
    std::fs::write(home.join("gripfast").join(TOML), "").unwrap();
    let places = SearchPaths { current_dir: home.join("gripfast"), config_dir: Some(home) };
    let found = Config::find(None, &TestLookup::default(), &places).unwrap();
    assert_eq!(found.origin, ConfigOrigin::PlatformDirectory);
}

#[cfg(unix)]
#[test]
fn g05_a_config_writable_by_others_is_refused_unless_strict_modes_is_off() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(TOML);
    let server = "[servers.a]\ncommand = \"x\"\n";
    let off = format!("[gateway]\nstrict_modes = false\n{server}");
    let (named, here, home) =
        (ConfigOrigin::Named, ConfigOrigin::CurrentDirectory, ConfigOrigin::PlatformDirectory);
    let cases = [
        (0o600, server, named, "used"),
        (0o644, server, home, "used"),
        (0o664, server, named, "refused"),
        (0o646, server, here, "refused"),
        (0o666, server, home, "refused"),
        (0o600, off.as_str(), named, "used"),
        (0o664, off.as_str(), named, "warned"),
        (0o664, off.as_str(), here, "warned"),
        (0o664, off.as_str(), home, "refused"),
        (0o664, "[gateway]\nstrict_modes = false\n[servers", named, "refused"),
    ];
    for (mode, text, origin, expected) in cases {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let became = match ConfigText::read(&path).unwrap().config(origin) {
            Ok(config) if config.warnings.is_empty() => "used",
            Ok(config) => {
                let warning = config.warnings[0].render();
                assert!(
                    warning.contains("can write it (mode 0664)") && warning.contains("chmod go-w"),
                    "{warning}"
                );
                "warned"
            }
            Err(ConfigError::Unsafe(found)) => {
                assert_eq!(found.path, path);
                "refused"
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(became, expected, "{mode:o} {origin:?} {text}");
    }
}

#[test]
fn the_search_paths_of_this_process_exist() {
    assert_eq!(SearchPaths::from_process().current_dir, Path::new("."));
}
