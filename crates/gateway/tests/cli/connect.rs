//! `gripfast connect`: what is written into other clients' files, what stays, and how it is taken back.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;

/// A home with this file in it.
fn home(path: &str, text: &str) -> Sandbox {
    let sandbox = Sandbox::empty();
    let path = sandbox.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    sandbox
}

fn connect(sandbox: &Sandbox, words: &[&str]) -> String {
    sandbox.run(&[&["connect"], words, &["--url", "http://127.0.0.1:7331"]].concat()).to_string()
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
    a copy is in [DIR]/home/.config/zed/settings.json.gripfast-backup
    Zed is connected: [DIR]/home/.config/zed/settings.json
      hint: restart Zed to have it look; `--undo` takes it back
    ");
    assert_snapshot!(file(&sandbox, ZED_AT), @r#"
    {
      // my theme
      "theme": "One",
      "context_servers": {
        "a": { "command": "sh" }, // mine
        "gripfast": {
          "url": "http://127.0.0.1:7331/mcp",
        },
      },
    }
    "#);
    assert_eq!(file(&sandbox, &format!("{ZED_AT}.gripfast-backup")), ZED);
    assert_snapshot!(connect(&sandbox, &["zed"]), @"
    exit 0
    --- stderr
    Zed is connected already: [DIR]/home/.config/zed/settings.json
    ");
    assert_snapshot!(connect(&sandbox, &["zed", "--undo"]), @"
    exit 0
    --- stderr
    Zed is as it was: [DIR]/home/.config/zed/settings.json
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
fn what_was_changed_since_is_not_undone() {
    let sandbox = home(ZED_AT, ZED);
    connect(&sandbox, &["zed"]);
    let changed = file(&sandbox, ZED_AT).replace("One", "Two");
    std::fs::write(sandbox.path(ZED_AT), &changed).unwrap();
    assert_snapshot!(connect(&sandbox, &["zed", "--undo"]), @"
    exit 0
    --- stderr
    the entry is taken out of [DIR]/home/.config/zed/settings.json, which has changed since
    ");
    let after = file(&sandbox, ZED_AT);
    assert!(after.contains("Two") && after.contains("// mine") && !after.contains("gripfast"), "{after}");
}

#[test]
fn a_file_that_was_not_there_is_made_and_goes_again() {
    let sandbox = Sandbox::empty();
    assert_snapshot!(connect(&sandbox, &["cursor"]), @"
    exit 0
    --- stderr
    Cursor is connected: [DIR]/home/.cursor/mcp.json
      hint: restart Cursor to have it look; `--undo` takes it back
    ");
    assert_snapshot!(file(&sandbox, "home/.cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "gripfast": {
          "url": "http://127.0.0.1:7331/mcp"
        }
      }
    }
    "#);
    assert_snapshot!(connect(&sandbox, &["cursor", "--undo"]), @"
    exit 0
    --- stderr
    [DIR]/home/.cursor/mcp.json is gone, as it was before
    ");
    assert!(!sandbox.path("home/.cursor/mcp.json").exists());
}

#[test]
fn every_client_has_an_entry_in_its_own_words() {
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
          "url": "http://127.0.0.1:7331/mcp"
        }
      }
    }

    vscode
    {
      "servers": {
        "gripfast": {
          "type": "http",
          "url": "http://127.0.0.1:7331/mcp"
        }
      }
    }

    windsurf
    {
      "mcpServers": {
        "gripfast": {
          "serverUrl": "http://127.0.0.1:7331/mcp"
        }
      }
    }

    opencode
    {
      "mcp": {
        "gripfast": {
          "type": "remote",
          "url": "http://127.0.0.1:7331/mcp"
        }
      }
    }

    cline
    {
      "mcpServers": {
        "gripfast": {
          "type": "streamableHttp",
          "url": "http://127.0.0.1:7331/mcp"
        }
      }
    }

    amp
    {
      "amp.mcpServers": {
        "gripfast": {
          "url": "http://127.0.0.1:7331/mcp"
        }
      }
    }

    codex
    [mcp_servers.gripfast]
    url = "http://127.0.0.1:7331/mcp"

    claude-desktop
    {
      "mcpServers": {
        "gripfast": {
          "command": "[GRIPFAST]",
          "args": ["stdio", "--config", "[DIR]/gripfast.toml"]
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
        Some("\n[mcp_servers.gripfast]\nurl = \"http://127.0.0.1:7331/mcp\"\n")
    );
    connect(&sandbox, &["codex", "--undo"]);
    assert_eq!(file(&sandbox, "home/.codex/config.toml"), text);
}

#[test]
fn yaml_keeps_its_comments_and_gets_an_entry_in_the_words_of_each_client() {
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
        assert!(connect(&sandbox, &[client]).contains("already"), "{client}");
        assert_eq!(file(&sandbox, &format!("{path}.gripfast-backup")), before);
        // Somebody changes something else meanwhile: only the entry goes.
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
        uri: "http://127.0.0.1:7331/mcp"
        enabled: true
        timeout: 300

    model: x

    hermes
    model: x
    mcp_servers:
      gripfast:
        url: "http://127.0.0.1:7331/mcp"

    continue
    name: me
    mcpServers:
      - name: a # mine
        command: sh
      - name: gripfast
        type: streamable-http
        url: "http://127.0.0.1:7331/mcp"

    vibe
    # mine
    [[mcp_servers]]
    name = "a"

    [[mcp_servers]]
    name = "gripfast"
    transport = "http"
    url = "http://127.0.0.1:7331/mcp"
    "#);
}

#[test]
fn yaml_that_cannot_be_changed_safely_is_left_alone() {
    let before = "extensions: { a: { cmd: sh } }\n";
    let sandbox = home("home/.config/goose/config.yaml", before);
    assert_snapshot!(connect(&sandbox, &["goose"]), @r#"
    exit 1
    --- stderr
    error: `[DIR]/home/.config/goose/config.yaml` cannot be edited: its `extensions` is in braces; write it as indented lines first, or add this yourself:
      gripfast:
        name: gripfast
        type: streamable_http
        uri: "http://127.0.0.1:[PORT]/mcp"
        enabled: true
        timeout: 300
      hint: nothing was changed
    "#);
    assert_eq!(file(&sandbox, "home/.config/goose/config.yaml"), before);
    let connected = "extensions: { gripfast: { uri: 'http://127.0.0.1:7331/mcp' } }\n";
    let sandbox = home("home/.config/goose/config.yaml", connected);
    assert_snapshot!(connect(&sandbox, &["goose", "--undo"]), @"
    exit 1
    --- stderr
    error: `[DIR]/home/.config/goose/config.yaml` cannot be edited: its `extensions` is in braces; take `gripfast` out yourself
      hint: nothing was changed
    ");
    assert_eq!(file(&sandbox, "home/.config/goose/config.yaml"), connected);
}

#[test]
fn a_file_that_makes_no_sense_is_left_alone() {
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
    error: `[DIR]/home/.cursor/mcp.json` cannot be edited: it does not hold an object where servers belong
      hint: nothing was changed
    ");
    assert_eq!(file(&sandbox, "home/.cursor/mcp.json"), "{\"mcpServers\": []}");
}

#[test]
fn what_somebody_added_to_the_entry_stays_when_it_leads_somewhere_else() {
    let json = "{\n  \"mcpServers\": {\n    \"gripfast\": { \"command\": \"gripfast\", \"url\": \"http://127.0.0.1:1/mcp\", \"headers\": {\"Authorization\": \"Bearer k\"} }\n  }\n}\n";
    let sandbox = home("home/.cursor/mcp.json", json);
    connect(&sandbox, &["cursor"]);
    assert_snapshot!(file(&sandbox, "home/.cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "gripfast": { "url": "http://127.0.0.1:7331/mcp", "headers": {"Authorization": "Bearer k"} }
      }
    }
    "#);
    assert!(connect(&sandbox, &["cursor"]).contains("is connected already"));
    let vibe = "[[mcp_servers]]\nname = \"gripfast\"\ntransport = \"http\"\nurl = \"http://127.0.0.1:1/mcp\"\nheaders = { Authorization = \"Bearer k\" }\n";
    let sandbox = home("home/.vibe/config.toml", vibe);
    connect(&sandbox, &["vibe"]);
    assert_eq!(file(&sandbox, "home/.vibe/config.toml"), vibe.replace(":1/mcp", ":7331/mcp"));
}

#[test]
fn a_gateway_that_asks_who_its_clients_are_says_that_they_need_a_key() {
    let sandbox =
        home("home/.cursor/mcp.json", "{}\n").file("gripfast.toml", "[gateway]\nauth = { keys = true }\n");
    assert!(connect(&sandbox, &["cursor"]).contains("`gripfast keys add NAME` makes a key"));
}
