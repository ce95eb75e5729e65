//! `gripfast connect`: the entry in the config files of other clients, the text that stays unchanged, and `--undo`.

use crate::doctor::answering;
#[cfg(unix)]
use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::{ask, demo_gateway};
use crate::sandbox::Sandbox;
#[cfg(unix)]
use crate::sandbox::stdio;
use gripfast_testkit::wait::until_some;
use insta::assert_snapshot;

/// Sandbox with this file in its home directory.
fn home(path: &str, text: &str) -> Sandbox {
    let sandbox = Sandbox::empty();
    let path = sandbox.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    sandbox
}

/// Connects to an address where nothing listens.
fn connect(sandbox: &Sandbox, words: &[&str]) -> String {
    sandbox.run(&[&["connect"], words, &["--url", "http://127.0.0.1:1"]].concat()).to_string()
}

fn file(sandbox: &Sandbox, path: &str) -> String {
    std::fs::read_to_string(sandbox.path(path)).unwrap()
}

const ZED: &str = "{\n  // my theme\n  \"theme\": \"One\",\n  \"context_servers\": {\n    \"a\": { \"command\": \"sh\" }, // mine\n  },\n}\n";
const ZED_AT: &str = "home/.config/zed/settings.json";

#[test]
fn comments_and_formatting_stay_and_a_copy_is_kept() {
    let sandbox = home(ZED_AT, ZED);
    assert_snapshot!(connect(&sandbox, &["zed"]), @"
    exit 0
    --- stderr
    a backup is in [DIR]/home/.config/zed/settings.json.gripfast-backup
    Zed now has the entry: [DIR]/home/.config/zed/settings.json
    warning: the gateway does not answer: cannot connect to 127.0.0.1:[PORT] (connection refused)
      hint: `gripfast serve` starts the gateway; `--url` names another gateway
      hint: restart Zed to apply it; `--undo` reverts it
    ");
    assert_snapshot!(file(&sandbox, ZED_AT), @r#"
    {
      // my theme
      "theme": "One",
      "context_servers": {
        "a": { "command": "sh" }, // mine
        "gripfast": {
          "url": "http://127.0.0.1:1/mcp",
        },
      },
    }
    "#);
    assert_eq!(file(&sandbox, &format!("{ZED_AT}.gripfast-backup")), ZED);
    assert_snapshot!(connect(&sandbox, &["zed"]), @"
    exit 0
    --- stderr
    Zed already has the entry: [DIR]/home/.config/zed/settings.json
    warning: the gateway does not answer: cannot connect to 127.0.0.1:[PORT] (connection refused)
      hint: `gripfast serve` starts the gateway; `--url` names another gateway
    ");
    assert_snapshot!(connect(&sandbox, &["zed", "--undo"]), @"
    exit 0
    --- stderr
    restored the config of Zed: [DIR]/home/.config/zed/settings.json
    ");
    assert_eq!(file(&sandbox, ZED_AT), ZED);
    assert!(!sandbox.path(&format!("{ZED_AT}.gripfast-backup")).exists());
    assert_snapshot!(connect(&sandbox, &["zed", "--undo"]), @"
    exit 0
    --- stderr
    Zed is not connected: [DIR]/home/.config/zed/settings.json
    ");
}

#[test]
fn later_changes_are_not_undone() {
    let sandbox = home(ZED_AT, ZED);
    connect(&sandbox, &["zed"]);
    let changed = file(&sandbox, ZED_AT).replace("One", "Two");
    std::fs::write(sandbox.path(ZED_AT), &changed).unwrap();
    assert_snapshot!(connect(&sandbox, &["zed", "--undo"]), @"
    exit 0
    --- stderr
    removed the entry from [DIR]/home/.config/zed/settings.json; the file has changed since, so the backup was not restored
    ");
    let after = file(&sandbox, ZED_AT);
    assert!(after.contains("Two") && after.contains("// mine") && !after.contains("gripfast"), "{after}");
}

#[test]
fn a_missing_file_is_created_and_removed_by_undo() {
    let sandbox = Sandbox::empty();
    assert_snapshot!(connect(&sandbox, &["cursor"]), @"
    exit 0
    --- stderr
    Cursor now has the entry: [DIR]/home/.cursor/mcp.json
    warning: the gateway does not answer: cannot connect to 127.0.0.1:[PORT] (connection refused)
      hint: `gripfast serve` starts the gateway; `--url` names another gateway
      hint: restart Cursor to apply it; `--undo` reverts it
    ");
    assert_snapshot!(file(&sandbox, "home/.cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "gripfast": {
          "url": "http://127.0.0.1:1/mcp"
        }
      }
    }
    "#);
    assert_snapshot!(connect(&sandbox, &["cursor", "--undo"]), @"
    exit 0
    --- stderr
    removed [DIR]/home/.cursor/mcp.json, which did not exist before
    ");
    assert!(!sandbox.path("home/.cursor/mcp.json").exists());
}

#[test]
fn every_client_gets_an_entry_in_its_own_format() {
    let files = [
        ("claude-code", "home/.claude.json"),
        ("vscode", "home/.config/Code/User/mcp.json"),
        ("windsurf", "home/.codeium/windsurf/mcp_config.json"),
        ("opencode", "home/.config/opencode/opencode.json"),
        ("cline", "home/.cline/data/settings/cline_mcp_settings.json"),
        ("amp", "home/.config/amp/settings.json"),
        ("codex", "home/.codex/config.toml"),
        ("claude-desktop", "home/.config/Claude/claude_desktop_config.json"),
    ];
    let sandbox = Sandbox::with("");
    let written = files.map(|(client, path)| {
        let told = connect(&sandbox, &[client]);
        assert!(told.starts_with("exit 0"), "{client}: {told}");
        let text = file(&sandbox, path).replace(crate::sandbox::GRIPFAST, "[GRIPFAST]");
        format!("{client}\n{}", text.replace(&sandbox.path("").display().to_string(), "[DIR]/"))
    });
    assert_snapshot!(written.join("\n"), @r#"
    claude-code
    {
      "mcpServers": {
        "gripfast": {
          "type": "http",
          "url": "http://127.0.0.1:1/mcp"
        }
      }
    }

    vscode
    {
      "servers": {
        "gripfast": {
          "type": "http",
          "url": "http://127.0.0.1:1/mcp"
        }
      }
    }

    windsurf
    {
      "mcpServers": {
        "gripfast": {
          "serverUrl": "http://127.0.0.1:1/mcp"
        }
      }
    }

    opencode
    {
      "mcp": {
        "gripfast": {
          "type": "remote",
          "url": "http://127.0.0.1:1/mcp"
        }
      }
    }

    cline
    {
      "mcpServers": {
        "gripfast": {
          "type": "streamableHttp",
          "url": "http://127.0.0.1:1/mcp"
        }
      }
    }

    amp
    {
      "amp.mcpServers": {
        "gripfast": {
          "url": "http://127.0.0.1:1/mcp"
        }
      }
    }

    codex
    [mcp_servers.gripfast]
    url = "http://127.0.0.1:1/mcp"

    claude-desktop
    {
      "mcpServers": {
        "gripfast": {
          "command": "[GRIPFAST]",
          "args": ["stdio", "--background", "--config", "[DIR]/gripfast.toml"]
        }
      }
    }
    "#);
}

#[test]
fn toml_keeps_its_comments() {
    let text = "# mine\nmodel = \"x\" # best\n\n[mcp_servers.a]\ncommand = \"sh\"\n";
    let sandbox = home("home/.codex/config.toml", text);
    connect(&sandbox, &["codex"]);
    let added = file(&sandbox, "home/.codex/config.toml");
    assert_eq!(
        added.strip_prefix(text),
        Some("\n[mcp_servers.gripfast]\nurl = \"http://127.0.0.1:1/mcp\"\n")
    );
    connect(&sandbox, &["codex", "--undo"]);
    assert_eq!(file(&sandbox, "home/.codex/config.toml"), text);
}

#[test]
fn yaml_keeps_its_comments_and_gets_an_entry_in_each_clients_format() {
    let files = [
        (
            "goose",
            "home/.config/goose/config.yaml",
            "extensions:\n  # mine\n  a:\n    cmd: sh # a shell\n\nmodel: x\n",
        ),
        ("hermes", "home/.hermes/config.yaml", "model: x\nmcp_servers: {}\n"),
        (
            "continue",
            "home/.continue/config.yaml",
            "name: me\nmcpServers:\n  - name: a # mine\n    command: sh\n",
        ),
        ("vibe", "home/.vibe/config.toml", "# mine\n[[mcp_servers]]\nname = \"a\"\n"),
    ];
    let written = files.map(|(client, path, before)| {
        let sandbox = home(path, before);
        let told = connect(&sandbox, &[client]);
        assert!(told.starts_with("exit 0"), "{client}: {told}");
        let after = file(&sandbox, path);
        assert!(connect(&sandbox, &[client]).contains("already has the entry"), "{client}");
        assert_eq!(file(&sandbox, &format!("{path}.gripfast-backup")), before);
        // The user changes something else meanwhile: only the entry is removed.
        std::fs::write(sandbox.path(path), format!("{after}# later\n")).unwrap();
        let undone = connect(&sandbox, &[client, "--undo"]);
        assert!(undone.starts_with("exit 0"), "{client}: {undone}");
        let left = file(&sandbox, path);
        assert!(left.ends_with("# later\n") && !left.contains("gripfast"), "{client}: {left}");
        format!("{client}\n{after}")
    });
    assert_snapshot!(written.join("\n"), @r#"
    goose
    extensions:
      # mine
      a:
        cmd: sh # a shell
      gripfast:
        name: gripfast
        type: streamable_http
        uri: "http://127.0.0.1:1/mcp"
        enabled: true
        timeout: 300

    model: x

    hermes
    model: x
    mcp_servers:
      gripfast:
        url: "http://127.0.0.1:1/mcp"

    continue
    name: me
    mcpServers:
      - name: a # mine
        command: sh
      - name: gripfast
        type: streamable-http
        url: "http://127.0.0.1:1/mcp"

    vibe
    # mine
    [[mcp_servers]]
    name = "a"

    [[mcp_servers]]
    name = "gripfast"
    transport = "http"
    url = "http://127.0.0.1:1/mcp"
    "#);
}

#[test]
fn yaml_that_cannot_be_changed_safely_is_left_alone() {
    let before = "extensions: { a: { cmd: sh } }\n";
    let sandbox = home("home/.config/goose/config.yaml", before);
    assert_snapshot!(connect(&sandbox, &["goose"]), @r#"
    exit 1
    --- stderr
    error: `[DIR]/home/.config/goose/config.yaml` cannot be edited: `extensions` is a YAML flow mapping (`{…}`); rewrite it as indented lines first, or add this by hand:
      gripfast:
        name: gripfast
        type: streamable_http
        uri: "http://127.0.0.1:[PORT]/mcp"
        enabled: true
        timeout: 300
      hint: nothing was changed
    "#);
    assert_eq!(file(&sandbox, "home/.config/goose/config.yaml"), before);
    let connected = "extensions: { gripfast: { uri: 'http://127.0.0.1:1/mcp' } }\n";
    let sandbox = home("home/.config/goose/config.yaml", connected);
    assert_snapshot!(connect(&sandbox, &["goose", "--undo"]), @"
    exit 1
    --- stderr
    error: `[DIR]/home/.config/goose/config.yaml` cannot be edited: `extensions` is a YAML flow mapping (`{…}`); remove `gripfast` by hand
      hint: nothing was changed
    ");
    assert_eq!(file(&sandbox, "home/.config/goose/config.yaml"), connected);
}

#[test]
fn an_invalid_file_is_left_alone() {
    let sandbox = home("home/.cursor/mcp.json", "{\"mcpServers\": [");
    assert_snapshot!(connect(&sandbox, &["cursor"]), @"
    exit 1
    --- stderr
    error: `[DIR]/home/.cursor/mcp.json` cannot be edited: it is not valid JSON
      hint: nothing was changed
    ");
    let sandbox = home("home/.cursor/mcp.json", "{\"mcpServers\": []}");
    assert_snapshot!(connect(&sandbox, &["cursor"]), @"
    exit 1
    --- stderr
    error: `[DIR]/home/.cursor/mcp.json` cannot be edited: the key for servers does not hold an object
      hint: nothing was changed
    ");
    assert_eq!(file(&sandbox, "home/.cursor/mcp.json"), "{\"mcpServers\": []}");
}

#[test]
fn fields_that_a_user_added_to_the_entry_stay_when_its_url_changes() {
    let json = "{\n  \"mcpServers\": {\n    \"gripfast\": { \"command\": \"gripfast\", \"url\": \"http://127.0.0.1:2/mcp\", \"headers\": {\"Authorization\": \"Bearer k\"} }\n  }\n}\n";
    let sandbox = home("home/.cursor/mcp.json", json);
    connect(&sandbox, &["cursor"]);
    assert_snapshot!(file(&sandbox, "home/.cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "gripfast": { "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer k"} }
      }
    }
    "#);
    assert!(connect(&sandbox, &["cursor"]).contains("already has the entry"));
    let vibe = "[[mcp_servers]]\nname = \"gripfast\"\ntransport = \"http\"\nurl = \"http://127.0.0.1:2/mcp\"\nheaders = { Authorization = \"Bearer k\" }\n";
    let sandbox = home("home/.vibe/config.toml", vibe);
    connect(&sandbox, &["vibe"]);
    assert_eq!(file(&sandbox, "home/.vibe/config.toml"), vibe.replace(":2/mcp", ":1/mcp"));
}

#[test]
fn a_client_is_connected_once_the_gateway_has_answered() {
    let (sandbox, mut running) = demo_gateway();
    std::fs::create_dir_all(sandbox.path("home/.cursor")).unwrap();
    running.go();
    assert_snapshot!(ask(&sandbox, &running, &["connect", "cursor"]), @"
    exit 0
    --- stderr
    Cursor now has the entry: [DIR]/home/.cursor/mcp.json
    warning: the gateway does not answer: cannot connect to 127.0.0.1:[PORT] (connection refused)
      hint: `gripfast serve` starts the gateway; `--url` names another gateway
      hint: restart Cursor to apply it; `--undo` reverts it
    ");
    running.come();
    assert_snapshot!(ask(&sandbox, &running, &["connect", "cursor"]), @"
    exit 0
    --- stderr
    Cursor is already connected, with 9 tools: [DIR]/home/.cursor/mcp.json
    ");
    // Another program listens there.
    let stranger = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    assert_snapshot!(sandbox.run(&["connect", "cursor", "--url", &stranger]), @"
    exit 0
    --- stderr
    Cursor now has the entry: [DIR]/home/.cursor/mcp.json
    warning: the gateway does not answer: http://127.0.0.1:[PORT]/mcp: no MCP server at this URL: HTTP 404
      hint: `gripfast doctor` looks for the cause
      hint: restart Cursor to apply it; `--undo` reverts it
    ");
}

#[test]
fn undo_restores_the_file_whatever_flags_were_used() {
    let flags: [(&[&str], &[&str]); 4] = [
        (&["--url", "http://127.0.0.1:1"], &[]),
        (&[], &["--url", "http://127.0.0.1:2"]),
        (&["--config", "other.toml"], &["--state-dir", "elsewhere"]),
        (&["--config", "other.toml"], &["--config", "gone.toml"]),
    ];
    let files = [
        ("zed", ZED_AT, ZED),
        ("codex", "home/.codex/config.toml", "model = \"x\" # best\n"),
        ("goose", "home/.config/goose/config.yaml", "model: x # best\n"),
        ("vibe", "home/.vibe/config.toml", "# mine\n"),
        ("claude-desktop", "home/.config/Claude/claude_desktop_config.json", "{\"theme\": 1}"),
    ];
    for (client, path, before) in files {
        for (there, back) in flags {
            let sandbox = home(path, before).file("other.toml", "[gateway]\nlisten = '127.0.0.1:3'\n");
            let connected = sandbox.run(&[&["connect", client], there].concat());
            assert_eq!(connected.code, Some(0), "{client}: {connected}");
            assert_ne!(file(&sandbox, path), before, "{client}");
            let undone = sandbox.run(&[&["connect", client, "--undo"], back].concat());
            assert!(
                undone.stderr.contains("restored the config of"),
                "{client} {there:?} {back:?}: {undone}"
            );
            assert_eq!(file(&sandbox, path), before, "{client}");
            assert!(!sandbox.path(&format!("{path}.gripfast-backup")).exists(), "{client}");
        }
    }
}

#[test]
fn a_file_that_gripfast_created_is_removed_after_repeated_connects() {
    let sandbox = Sandbox::empty();
    for url in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
        assert_eq!(sandbox.run(&["connect", "cursor", "--url", url]).code, Some(0));
    }
    connect(&sandbox, &["cursor", "--undo"]);
    assert!(!sandbox.path("home/.cursor/mcp.json").exists());
    assert!(!sandbox.path("home/.cursor/mcp.json.gripfast-backup").exists());
}

#[test]
fn undo_leaves_no_empty_table_behind_in_a_file_that_has_changed_since() {
    for (client, path, before, change) in [
        ("cursor", "home/.cursor/mcp.json", "{\n  \"a\": 1\n}\n", ("\"a\": 1", "\"a\": 2")),
        ("goose", "home/.config/goose/config.yaml", "a: 1\n", ("a: 1", "a: 2")),
        ("codex", "home/.codex/config.toml", "a = 1\n", ("a = 1", "a = 2")),
    ] {
        let sandbox = home(path, before);
        connect(&sandbox, &[client]);
        std::fs::write(sandbox.path(path), file(&sandbox, path).replace(change.0, change.1)).unwrap();
        connect(&sandbox, &[client, "--undo"]);
        assert_eq!(file(&sandbox, path), before.replace(change.0, change.1), "{client}");
    }
}

#[test]
fn a_later_connect_keeps_a_copy_of_the_current_file() {
    let sandbox = home("home/.cursor/mcp.json", "{}\n");
    connect(&sandbox, &["cursor"]);
    // The user removes the entry by hand and edits the file.
    std::fs::write(sandbox.path("home/.cursor/mcp.json"), "{\"new\": 1}\n").unwrap();
    connect(&sandbox, &["cursor"]);
    connect(&sandbox, &["cursor", "--undo"]);
    assert_eq!(file(&sandbox, "home/.cursor/mcp.json"), "{\"new\": 1}\n");
}

#[cfg(unix)]
#[test]
fn where_clients_need_keys_one_is_created_written_and_removed() {
    let config = format!("[gateway]\nauth = {{ keys = true }}\n{}", stdio("demo", &[]));
    let cases = [
        ("cursor", "home/.cursor/mcp.json", r#""headers": {"#),
        ("codex", "home/.codex/config.toml", "http_headers = { Authorization = \"Bearer gfk_"),
        (
            "continue",
            "home/.continue/config.yaml",
            "requestOptions: { \"headers\": { \"Authorization\": \"Bearer gfk_",
        ),
        ("vibe", "home/.vibe/config.toml", "headers = { Authorization = \"Bearer gfk_"),
    ];
    let sandbox = Sandbox::with(&config);
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let listening =
        config.replace("auth", &format!("listen = {:?}\nauth", gateway.url.trim_start_matches("http://")));
    let sandbox = sandbox.file("named.toml", &listening);
    let with_config = |words: &[&str]| {
        let words = [words, &["--config", "named.toml"]].concat();
        let output = sandbox.command(&words).env_remove("GRIPFAST_URL").output().unwrap();
        sandbox.ran(output)
    };
    for (client, path, written) in cases {
        let told = until_some("its servers are ready", || {
            let told = with_config(&["connect", client]);
            told.stderr.contains("connected, with").then_some(told)
        });
        assert!(told.stderr.contains("with 9 tools"), "{told}");
        let entry = file(&sandbox, path);
        assert!(entry.contains(written) && entry.contains("Bearer gfk_"), "{client}: {entry}");
        assert!(!told.to_string().contains("gfk_"), "{told}");
        assert!(with_config(&["keys", "ls"]).stdout.contains(client));
        let again = with_config(&["connect", client]);
        assert!(again.stderr.contains("is already connected"), "{again}");
        assert_eq!(file(&sandbox, path), entry, "it keeps its key");
        let undone = with_config(&["connect", client, "--undo"]);
        assert!(undone.stderr.contains(&format!("removed the key `{client}`")), "{undone}");
        assert!(!sandbox.path(path).exists() && !with_config(&["keys", "ls"]).stdout.contains(client));
    }
}

#[test]
fn a_key_that_a_user_created_stays_when_the_entry_is_removed() {
    let sandbox = Sandbox::with("[gateway]\nauth = { keys = true }\n");
    let made = sandbox.run(&["keys", "add", "laptop"]);
    let json = format!(
        r#"{{"mcpServers": {{"gripfast": {{"url": "http://127.0.0.1:2/mcp", "headers": {{"Authorization": "Bearer {}"}}}}}}}}"#,
        made.stdout.trim()
    );
    std::fs::create_dir_all(sandbox.path("home/.cursor")).unwrap();
    let sandbox = sandbox.file("home/.cursor/mcp.json", &json);
    let connected = connect(&sandbox, &["cursor"]);
    assert!(!connected.contains("created the key"), "{connected}");
    let undone = connect(&sandbox, &["cursor", "--undo"]);
    assert!(undone.contains("its key is still valid"), "{undone}");
    assert!(sandbox.run(&["keys", "ls"]).stdout.contains("laptop"));
}
