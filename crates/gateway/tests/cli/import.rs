//! `gripfast import`: a config file of every client, the imported servers, and the printed notes.

use crate::sandbox::{CommandOutput, Sandbox};
use insta::assert_snapshot;

/// Sandbox with these files in its home directory.
fn home(files: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::empty();
    for (path, text) in files {
        let path = sandbox.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    sandbox
}

/// Runs the import and checks that the clients' files are unchanged.
fn import(files: &[(&str, &str)], words: &[&str]) -> CommandOutput {
    let sandbox = home(files);
    let ran = sandbox.run(&[&["import"], words].concat());
    for (path, text) in files {
        assert_eq!(std::fs::read_to_string(sandbox.path(path)).unwrap(), *text, "{path} was touched");
    }
    ran
}

#[test]
fn claude_desktop() {
    let file = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "server-files", "/tmp"], "env": {"A": "b"}},
        "remote": {"command": "npx", "args": ["-y", "mcp-remote", "https://example.com/mcp", "--header", "Authorization: Bearer ${TOKEN}"]}}}"#;
    assert_snapshot!(import(&[("home/.config/Claude/claude_desktop_config.json", file)], &[]), @r#"
    exit 0
    --- stdout
    [servers.files]
    command = "npx"
    args = ["-y", "server-files", "/tmp"]
    env = { A = "b" }

    [servers.remote]
    url = "https://example.com/mcp"
    headers = { Authorization = "Bearer ${TOKEN}" }
    --- stderr
    Claude Desktop: [DIR]/home/.config/Claude/claude_desktop_config.json
      + files
      + remote
          `mcp-remote` is left out: gripfast connects to the URL itself
    nothing was written; `--write` adds 2 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn claude_code() {
    let file = r#"{"numStartups": 3,
      "mcpServers": {
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Api-Key": "${KEY:-none}"}, "timeout": 30000},
        "quick": {"type": "sse", "url": "https://example.com/sse", "timeout": 5},
        "socket": {"type": "ws", "url": "wss://example.com"},
        "helped": {"type": "http", "url": "https://example.com/h", "headersHelper": "/bin/get", "oauth": {"clientId": "x"}}}}"#;
    let project = r#"{"servers": {"a": {"command": "sh"}}}"#;
    assert_snapshot!(import(&[("home/.claude.json", file), (".mcp.json", project)], &["--from", "claude-code"]), @r#"
    exit 0
    --- stdout
    [servers.web]
    url = "https://example.com/mcp"
    transport = "http"
    headers = { X-Api-Key = "${env:KEY:-…}" }
    timeouts = { call = "30s" }

    [servers.quick]
    url = "https://example.com/sse"
    transport = "sse"

    [servers.helped]
    url = "https://example.com/h"
    transport = "http"
    --- stderr
    Claude Code: [DIR]/home/.claude.json
      + web
      + quick
          its `timeout` is below one second, which Claude Code ignores too
      - socket: uses WebSocket, which is not an MCP transport
      + helped
          its headers come from a command, which is not imported; add them to `headers`
          `oauth` is left out: logins are not imported
    Claude Code: ./.mcp.json (from this directory)
      cannot be imported: it has servers under `servers`, which Claude Code does not read
    possible secrets are not printed; `--write` writes them into the file
    nothing was written; `--write` adds 3 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn vs_code() {
    let file = r#"{
      // asked for
      "inputs": [{"type": "promptString", "id": "api-key", "description": "Key", "password": true}],
      "servers": {
        "a": {"type": "stdio", "command": "node", "args": ["${workspaceFolder}/x.js"]},
        "b": {"command": "node", "args": ["x.js"], "env": {"KEY": "${input:api-key}", "PORT": 80, "GONE": null}, "envFile": ".env", "sandboxEnabled": true},
        "c": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${input:api-key}"},},
      }
    }"#;
    assert_snapshot!(import(&[("home/.config/Code/User/mcp.json", file)], &[]), @r#"
    exit 0
    --- stdout
    [servers.b]
    command = "node"
    args = ["x.js"]
    env = { KEY = "${env:API_KEY}", PORT = "80" }

    [servers.c]
    url = "https://example.com/mcp"
    transport = "http"
    headers = { Authorization = "Bearer ${env:API_KEY}" }
    --- stderr
    VS Code: [DIR]/home/.config/Code/User/mcp.json
      - a: refers to `${workspaceFolder}`, which only an editor can resolve
      + b
          the editor prompted for input; set `API_KEY` in the environment instead
          `GONE` has no value and is left out
          variables in `.env` are not imported; add them to `env` as `${env:NAME}`
          `sandboxEnabled` is left out: gripfast has no such setting
      + c
          the editor prompted for input; set `API_KEY` in the environment instead
    nothing was written; `--write` adds 2 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn cursor_windsurf_kiro_and_similar_clients() {
    let cursor = r#"{"mcpServers": {"a": {"url": "https://example.com/mcp", "auth": {"CLIENT_ID": "x"}}, "gripfast": {"url": "http://127.0.0.1:7331/mcp"}}}"#;
    let windsurf = r#"{"mcpServers": {"a": {"serverUrl": "https://example.com/mcp"}, "b": {"serverUrl": "https://example.com/b", "disabled": true, "disabledTools": ["x"]}}}"#;
    let kiro = r#"{"mcpServers": {"my server": {"command": " sh", "autoApprove": ["*"], "env": {"API_TOKEN": "abcdefgh12345678"}}}}"#;
    let lmstudio = r#"{"mcpServers": {"a": {"url": "https://example.org/other"}}}"#;
    let files = [
        ("home/.cursor/mcp.json", cursor),
        ("home/.codeium/windsurf/mcp_config.json", windsurf),
        ("home/.kiro/settings/mcp.json", kiro),
        ("home/.lmstudio/mcp.json", lmstudio),
    ];
    assert_snapshot!(import(&files, &[]), @r#"
    exit 0
    --- stdout
    [servers.a]
    url = "https://example.com/mcp"

    [servers.b]
    url = "https://example.com/b"
    disabled = true
    tools = { deny = ["x"] }

    [servers.my-server]
    command = " sh"
    env = { API_TOKEN = "[redacted]" }

    [servers.a-lmstudio]
    url = "https://example.org/other"
    --- stderr
    Cursor: [DIR]/home/.cursor/mcp.json
      + a
          `auth` is left out: logins are not imported
      - gripfast: this is gripfast itself
    Windsurf: [DIR]/home/.codeium/windsurf/mcp_config.json
      - a: same as `a`, which the config already has
      + b
          disabled in the client; imported as disabled
    Kiro: [DIR]/home/.kiro/settings/mcp.json
      + my-server
          `command` starts or ends with a space
          `API_TOKEN` contains a secret in plain text; write `${env:NAME}` and set the variable
          `autoApprove` is left out: approvals are not imported
          renamed to `my-server`
    LM Studio: [DIR]/home/.lmstudio/mcp.json
      + a-lmstudio
          renamed to `a-lmstudio`
    possible secrets are not printed; `--write` writes them into the file
    nothing was written; `--write` adds 4 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn zed() {
    let file = r#"{
      // my theme
      "theme": "One",
      "context_servers": {"a": {"command": "sh", "args": ["-c", "x"], "timeout": 90, "enabled": false}, "b": {"url": "https://example.com/mcp"}, "old": {"command": {"path": "sh", "args": ["y"]}}}
    }"#;
    assert_snapshot!(import(&[("home/.config/zed/settings.json", file)], &[]), @r#"
    exit 0
    --- stdout
    [servers.a]
    command = "sh"
    args = ["-c", "x"]
    disabled = true
    timeouts = { call = "90s" }

    [servers.b]
    url = "https://example.com/mcp"

    [servers.old]
    command = "sh"
    args = ["y"]
    --- stderr
    Zed: [DIR]/home/.config/zed/settings.json
      + a
          disabled in the client; imported as disabled
      + b
      + old
    nothing was written; `--write` adds 3 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn codex() {
    let file = r#"
model = "x"
[mcp_servers.a]
command = "sh"
args = ["-c", "x"]
env_vars = ["A", { name = "B", source = "local" }]
startup_timeout_sec = 20
tool_timeout_sec = 1.5
enabled_tools = ["x", "y"]
disabled_tools = ["y"]
[mcp_servers.b]
url = "https://example.com/mcp"
bearer_token_env_var = "T"
http_headers = { X = "y" }
env_http_headers = { Z = "ZVAR" }
required = true
"#;
    assert_snapshot!(import(&[("home/.codex/config.toml", file)], &["--from", "codex"]), @r#"
    exit 0
    --- stdout
    [servers.a]
    command = "sh"
    args = ["-c", "x"]
    inherit_env = ["A", "B"]
    timeouts = { connect = "20s", call = "1500ms" }
    tools = { allow = ["x", "y"], deny = ["y"] }

    [servers.b]
    url = "https://example.com/mcp"
    headers = { X = "y", Z = "${env:ZVAR}", Authorization = "Bearer ${env:T}" }
    --- stderr
    Codex: [DIR]/home/.codex/config.toml
      + a
      + b
    nothing was written; `--write` adds 2 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn gemini_copilot_and_opencode() {
    let gemini = r#"{"mcpServers": {"g": {"command": "sh", "args": ["$HOME/x", "%USER%"], "cwd": "/tmp", "timeout": 600000, "trust": true, "includeTools": ["a"], "excludeTools": ["b"]}, "h": {"httpUrl": "https://example.com/mcp"}}}"#;
    let copilot = r#"{"mcpServers": {"c": {"type": "local", "command": "sh", "args": [], "tools": ["*"]}, "d": {"type": "http", "url": "https://example.com/d", "tools": ["x"]}}}"#;
    let opencode = r#"{"mcp": {"o": {"type": "local", "command": ["sh", "-c", "x"], "environment": {"K": "{env:K}", "F": "{file:~/f}"}, "timeout": 5000, "enabled": true}, "r": {"type": "remote", "url": "https://example.com/r", "oauth": false}}}"#;
    let files = [
        ("home/.gemini/settings.json", gemini),
        ("home/.copilot/mcp-config.json", copilot),
        ("home/.config/opencode/opencode.jsonc", opencode),
    ];
    assert_snapshot!(import(&files, &[]), @r#"
    exit 0
    --- stdout
    [servers.g]
    command = "sh"
    args = ["${env:HOME}/x", "${env:USER}"]
    cwd = "/tmp"
    timeouts = { call = "600s" }
    tools = { allow = ["a"], deny = ["b"] }

    [servers.h]
    url = "https://example.com/mcp"

    [servers.c]
    command = "sh"

    [servers.d]
    url = "https://example.com/d"
    transport = "http"
    tools = { allow = ["x"] }

    [servers.o]
    command = "sh"
    args = ["-c", "x"]
    env = { K = "${env:K}", F = "${file:[DIR]/home/f}" }
    timeouts = { call = "5s" }

    [servers.r]
    url = "https://example.com/r"
    --- stderr
    Gemini CLI: [DIR]/home/.gemini/settings.json
      + g
          `trust` is left out: approvals are not imported
      + h
    Copilot CLI: [DIR]/home/.copilot/mcp-config.json
      + c
      + d
    opencode: [DIR]/home/.config/opencode/opencode.jsonc
      + o
      + r
          `oauth` is left out: logins are not imported
    nothing was written; `--write` adds 6 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn servers_that_gemini_excludes_or_does_not_allow_stay_off() {
    let excluded = r#"{"mcpServers": {"a": {"command": "sh", "args": ["1"]}, "b": {"command": "sh"}}, "mcp": {"excluded": ["a"]}}"#;
    assert_snapshot!(import(&[("home/.gemini/settings.json", excluded)], &[]), @r#"
    exit 0
    --- stdout
    [servers.a]
    command = "sh"
    args = ["1"]
    disabled = true

    [servers.b]
    command = "sh"
    --- stderr
    Gemini CLI: [DIR]/home/.gemini/settings.json
      + a
          excluded in the client (`mcp.excluded`); imported as disabled
      + b
    nothing was written; `--write` adds 2 servers to `[DIR]/gripfast.toml`
    "#);
    let allowed = excluded.replace("excluded", "allowed");
    assert_snapshot!(import(&[("home/.gemini/settings.json", &allowed)], &["-o", "json"]), @r#"
    exit 0
    --- stdout
    {"schema_version":1,"files":[{"client":"gemini","path":"[DIR]/home/.gemini/settings.json","error":null,"servers":[{"name":"a","taken":true,"left_out":null,"notes":[]},{"name":"b","taken":true,"left_out":null,"notes":["not allowed in the client (`mcp.allowed`); imported as disabled"]}]}]}
    --- stderr
    nothing was written; `--write` adds 2 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn claude_codes_servers_of_every_project_are_offered() {
    let sandbox = home(&[("shop/x", ""), ("blog/x", "")]);
    let (shop, blog) = (sandbox.path("shop"), sandbox.path("blog"));
    let file = format!(
        r#"{{"projects": {{
          {shop:?}: {{"mcpServers": {{"db": {{"command": "node", "args": ["./db.js"]}}, "web": {{"type": "http", "url": "https://example.com/mcp"}}}}, "disabledMcpServers": ["web"]}},
          {blog:?}: {{"mcpServers": {{"db": {{"command": "npx", "args": ["-y", "db"]}}, "web": {{"type": "http", "url": "https://example.com/mcp"}}}}}},
          "/no/such/project": {{"mcpServers": {{"old": {{"command": "sh"}}}}}},
          "/empty": {{}}
        }}}}"#
    );
    std::fs::write(sandbox.path("home/.claude.json"), file).unwrap();
    assert_snapshot!(sandbox.run(&["import"]), @r#"
    exit 0
    --- stdout
    [servers.db]
    command = "node"
    args = ["./db.js"]
    cwd = "[DIR]/shop"

    [servers.web]
    url = "https://example.com/mcp"
    transport = "http"
    disabled = true

    [servers.db-blog]
    command = "npx"
    args = ["-y", "db"]

    [servers.web-blog]
    url = "https://example.com/mcp"
    transport = "http"
    --- stderr
    Claude Code: [DIR]/home/.claude.json
      + db
          belongs to the project `[DIR]/shop`
      + web
          belongs to the project `[DIR]/shop`
          disabled in the client (`disabledMcpServers`); imported as disabled
      + db-blog
          belongs to the project `[DIR]/blog`
          renamed to `db-blog`
      + web-blog
          belongs to the project `[DIR]/blog`
          renamed to `web-blog`
      - old: belongs to the project `/no/such/project`, which does not exist
    nothing was written; `--write` adds 4 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn one_file_is_imported_by_its_path_in_any_format() {
    let cline = r#"{"mcpServers": {"my files": {"command": "npx -y files --root /srv", "timeout": 60}}}"#;
    let files = [
        ("copy/cline_mcp_settings.json", cline),
        ("home/.cursor/mcp.json", "{\"mcpServers\": {\"c\": {\"command\": \"sh\"}}}"),
    ];
    assert_snapshot!(import(&files, &["copy/cline_mcp_settings.json"]), @r#"
    exit 0
    --- stdout
    [servers.my-files]
    command = "npx"
    args = ["-y", "files", "--root", "/srv"]
    timeouts = { call = "60s" }
    --- stderr
    Cline: copy/cline_mcp_settings.json
      + my-files
          its `command` is a whole command line; split into `command` and `args`
          renamed to `my-files`
    nothing was written; `--write` adds 1 server to `[DIR]/gripfast.toml`
    "#);
    let zed = r#"{"context_servers": {"z": {"command": "sh", "timeout": 5}}}"#;
    assert_snapshot!(import(&[("a.json", zed)], &["a.json"]), @r#"
    exit 0
    --- stdout
    [servers.z]
    command = "sh"
    timeouts = { call = "5s" }
    --- stderr
    Zed: a.json
      + z
    nothing was written; `--write` adds 1 server to `[DIR]/gripfast.toml`
    "#);
    let unknown = r#"{"mcpServers": {"u": {"command": "sh", "timeout": 5}}}"#;
    assert_snapshot!(import(&[("a.json", unknown)], &["a.json"]), @r#"
    exit 0
    --- stdout
    [servers.u]
    command = "sh"
    --- stderr
    MCP client: a.json
      + u
          its `timeout` is left out: the unit is not known
    nothing was written; `--write` adds 1 server to `[DIR]/gripfast.toml`
    "#);
    assert_snapshot!(import(&[("a.json", unknown)], &["a.json", "--from", "zed"]), @"
    exit 2
    --- stderr
    error: `a.json` cannot be imported: it has servers under `mcpServers`, which Zed does not read
    ");
    assert_snapshot!(import(&[("a.toml", "[servers.a]\ncommand = 'sh'\n")], &["a.toml"]), @"
    exit 2
    --- stderr
    error: `a.toml` cannot be imported: it is already a gripfast config
      hint: `--config a.toml` uses it directly
    ");
    assert_snapshot!(import(&[], &["none.json"]), @"
    exit 1
    --- stderr
    error: there is no file `none.json`
    ");
}

#[test]
fn imported_servers_are_not_imported_again() {
    let cursor = r#"{"mcpServers": {"a": {"command": "sh", "args": ["x"], "env": {"A": "b"}}}}"#;
    let sandbox = home(&[("home/.cursor/mcp.json", cursor)]);
    assert_eq!(sandbox.run(&["import", "--write"]).code, Some(0));
    let written = std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap();
    assert_snapshot!(sandbox.run(&["import"]), @"
    exit 0
    --- stderr
    Cursor: [DIR]/home/.cursor/mcp.json
      - a: same as `a`, which the config already has
    nothing to import
    ");
    assert_snapshot!(sandbox.run(&["import", "--write"]), @"
    exit 0
    --- stderr
    Cursor: [DIR]/home/.cursor/mcp.json
      - a: same as `a`, which the config already has
    nothing to import
    ");
    assert_eq!(std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap(), written);
}

#[test]
fn goose_hermes_and_continue() {
    let goose = "extensions:\n  dev:\n    type: builtin\n    name: dev\n  mine:\n    type: stdio\n    cmd: sh\n    args: [x]\n    envs: { A: b }\n    env_keys: [KEY]\n    timeout: 300\n    enabled: true\n  web:\n    type: streamable_http\n    uri: https://example.com/mcp\n    available_tools: [x]\n";
    let hermes = "mcp_servers:\n  a:\n    command: sh\n    timeout: 120\n    connect_timeout: 60\n    keepalive_interval: 90\n    tools: { include: [x], exclude: [y] }\n  b:\n    url: https://example.com/b\n    transport: sse\n    ssl_verify: false\n";
    let continued = "mcpServers:\n  - name: My Server\n    command: sh\n    args: [z]\n";
    let files = [
        ("home/.config/goose/config.yaml", goose),
        ("home/.hermes/config.yaml", hermes),
        ("home/.continue/config.yaml", continued),
    ];
    assert_snapshot!(import(&files, &[]), @r#"
    exit 0
    --- stdout
    [servers.mine]
    command = "sh"
    args = ["x"]
    env = { A = "b" }
    inherit_env = ["KEY"]
    timeouts = { call = "300s" }

    [servers.web]
    url = "https://example.com/mcp"
    transport = "http"
    tools = { allow = ["x"] }

    [servers.a]
    command = "sh"
    timeouts = { connect = "60s", call = "120s" }
    keepalive_interval = "90s"
    tools = { allow = ["x"] }

    [servers.b]
    url = "https://example.com/b"
    transport = "sse"

    [servers.My-Server]
    command = "sh"
    args = ["z"]
    --- stderr
    Goose: [DIR]/home/.config/goose/config.yaml
      - dev: is part of Goose (`builtin`) and not a separate server
      + mine
      + web
    Hermes: [DIR]/home/.hermes/config.yaml
      + a
          its excluded tools are left out: Hermes ignores them if tools are included
      + b
          `ssl_verify = false` is not imported: gripfast always verifies certificates
    Continue: [DIR]/home/.continue/config.yaml
      + My-Server
          renamed to `My-Server`
    nothing was written; `--write` adds 5 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn cline_inspector_amp_vibe_and_the_rest() {
    let cline = r#"{"mcpServers": {"a": {"type": "streamableHttp", "url": "https://example.com/a", "timeout": 60, "alwaysAllow": []}, "n": {"transport": {"type": "stdio", "command": "sh", "args": ["q"]}}}}"#;
    let inspector = r#"{"mcpServers": {"i": {"type": "http", "url": "https://example.com/i", "requestTimeout": 2500, "protocolEra": "legacy"}}}"#;
    let amp = r#"{"amp.mcpServers": {"m": {"url": "https://example.com/m"}}}"#;
    let vibe = "[[mcp_servers]]\nname = \"v\"\ntransport = \"http\"\nurl = \"https://example.com/v\"\n";
    let plain = |n: u32| format!(r#"{{"mcpServers": {{"s{n}": {{"command": "sh", "args": ["{n}"]}}}}}}"#);
    let (factory, kimi, antigravity, trae) = (plain(1), plain(2), plain(3), plain(4));
    let files = [
        ("home/.cline/data/settings/cline_mcp_settings.json", cline),
        ("home/.mcp-inspector/mcp.json", inspector),
        ("home/.config/amp/settings.json", amp),
        ("home/.vibe/config.toml", vibe),
        ("home/.factory/mcp.json", &factory),
        ("home/.kimi/mcp.json", &kimi),
        ("home/.gemini/antigravity/mcp_config.json", &antigravity),
        ("home/.config/Trae/User/mcp.json", &trae),
    ];
    assert_snapshot!(import(&files, &[]), @r#"
    exit 0
    --- stdout
    [servers.a]
    url = "https://example.com/a"
    transport = "http"
    timeouts = { call = "60s" }

    [servers.n]
    command = "sh"
    args = ["q"]

    [servers.s1]
    command = "sh"
    args = ["1"]

    [servers.s2]
    command = "sh"
    args = ["2"]

    [servers.s3]
    command = "sh"
    args = ["3"]

    [servers.s4]
    command = "sh"
    args = ["4"]

    [servers.i]
    url = "https://example.com/i"
    transport = "http"
    timeouts = { call = "2500ms" }
    protocol = "legacy"

    [servers.m]
    url = "https://example.com/m"

    [servers.v]
    url = "https://example.com/v"
    transport = "http"
    --- stderr
    Cline: [DIR]/home/.cline/data/settings/cline_mcp_settings.json
      + a
          `alwaysAllow` is left out: approvals are not imported
      + n
    Factory: [DIR]/home/.factory/mcp.json
      + s1
    Kimi: [DIR]/home/.kimi/mcp.json
      + s2
    Antigravity: [DIR]/home/.gemini/antigravity/mcp_config.json
      + s3
    Trae: [DIR]/home/.config/Trae/User/mcp.json
      + s4
    MCP Inspector: [DIR]/home/.mcp-inspector/mcp.json
      + i
    Amp: [DIR]/home/.config/amp/settings.json
      + m
    Mistral Vibe: [DIR]/home/.vibe/config.toml
      + v
    nothing was written; `--write` adds 9 servers to `[DIR]/gripfast.toml`
    "#);
}

#[test]
fn written_servers_work_and_the_rest_of_the_config_stays() {
    let ours = "# mine\n[servers.a]\ncommand = 'sh'\n";
    let cursor = r#"{"mcpServers": {"a": {"command": "sh", "args": ["other"]}}}"#;
    let sandbox = home(&[("gripfast.toml", ours), ("home/.cursor/mcp.json", cursor)]);
    assert_snapshot!(sandbox.run(&["import", "--write"]), @"
    exit 0
    --- stderr
    Cursor: [DIR]/home/.cursor/mcp.json
      + a-cursor
          renamed to `a-cursor`
    added 1 server to `[DIR]/gripfast.toml`
    ");
    let written = std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap();
    assert!(written.starts_with(ours), "{written}");
    assert_eq!(sandbox.run(&["check"]).code, Some(0));
}

#[test]
fn files_that_cannot_be_used() {
    let files = [("home/.cursor/mcp.json", "{\"mcpServers\": {"), ("home/.kimi/mcp.json", "{}")];
    assert_snapshot!(import(&files, &[]), @"
    exit 0
    --- stderr
    Cursor: [DIR]/home/.cursor/mcp.json
      cannot be imported: unterminated object (line 1)
    Kimi: [DIR]/home/.kimi/mcp.json
      no servers
    nothing to import
    ");
    assert_snapshot!(import(&files, &["-o", "json"]), @r#"
    exit 0
    --- stdout
    {"schema_version":1,"files":[{"client":"cursor","path":"[DIR]/home/.cursor/mcp.json","error":"unterminated object (line 1)","servers":[]},{"client":"kimi","path":"[DIR]/home/.kimi/mcp.json","error":null,"servers":[]}]}
    --- stderr
    nothing to import
    "#);
    assert_snapshot!(import(&[], &[]), @"
    exit 0
    --- stderr
    nothing to import
      hint: no config of another MCP client was found; `gripfast import --help` lists the known clients
    ");
    assert_snapshot!(import(&[], &["--from", "cursr"]), @"
    exit 1
    --- stderr
    error: invalid value 'cursr' for '--from <CLIENT>': did you mean `cursor`?

    For more information, try '--help'.
    ");
}

#[test]
fn a_gateway_is_not_put_behind_itself_wherever_it_listens() {
    let cursor = r#"{"mcpServers": {"hub": {"url": "http://localhost:8080/mcp"}, "gripfast": {"url": "https://mcp.example.com/mcp"}, "other": {"url": "http://127.0.0.1:8081/mcp"}}}"#;
    let sandbox = home(&[("home/.cursor/mcp.json", cursor)]);
    let sandbox = sandbox.file("gripfast.toml", "[gateway]\nlisten = '127.0.0.1:8080'\n");
    let output = sandbox.command(&["import", "--write"]).env_remove("GRIPFAST_URL").output().unwrap();
    assert_snapshot!(sandbox.ran(output), @"
    exit 0
    --- stderr
    Cursor: [DIR]/home/.cursor/mcp.json
      - hub: this is gripfast itself
      - gripfast: this is gripfast itself
      + other
    added 1 server to `[DIR]/gripfast.toml`
    ");
}

/// Config file of every client with a secret in each usual place.
fn secretive() -> Vec<(&'static str, &'static str, String)> {
    let command =
        r#""command": "npx", "args": ["-y", "server", "--api-key", "hunter22", "--token=hunter22"]"#;
    let env = r#"{"API_TOKEN": "hunter22", "SETTING": "hunter22", "MIXED": "hunter22-${HOME}", "GUESSED": "${X:-hunter22}"}"#;
    let url = "https://me:hunter22@example.com/mcp?key=hunter22&plain=hunter22";
    let headers = r#"{"Authorization": "Bearer hunter22", "X-Custom": "hunter22", "X-Mixed": "Bearer ${HOME} hunter22"}"#;
    let bridge =
        format!(r#"{{"command": "npx", "args": ["mcp-remote", "{url}", "--header", "X-Auth: hunter22"]}}"#);
    let stdio = format!(r#"{{{command}, "env": {env}}}"#);
    let http = |key: &str| format!(r#"{{"{key}": "{url}", "headers": {headers}}}"#);
    let servers = |key: &str| format!(r#"{{"a": {stdio}, "b": {}, "c": {bridge}}}"#, http(key));
    let json = |root: &str, key: &str| format!(r#"{{"{root}": {}}}"#, servers(key));
    let opencode = format!(
        r#"{{"mcp": {{"a": {{"type": "local", "command": ["npx", "--api-key", "hunter22"], "environment": {env}}}, "b": {}}}}}"#,
        http("url")
    );
    let yaml = |root: &str, env_key: &str, url_key: &str| {
        format!(
            "{root}:\n  a: {{\"cmd\": \"npx\", \"command\": \"npx\", \"args\": [\"--api-key\", \"hunter22\"], \"{env_key}\": {env}}}\n  b: {{\"{url_key}\": \"{url}\", \"headers\": {headers}}}\n"
        )
    };
    let toml = r#"
        [mcp_servers.a]
        command = "npx"
        args = ["--api-key", "hunter22"]
        env = { API_TOKEN = "hunter22", SETTING = "hunter22" }
        [mcp_servers.b]
        url = "https://me:hunter22@example.com/mcp?key=hunter22"
        http_headers = { Authorization = "Bearer hunter22", X-Custom = "hunter22" }
    "#;
    let vibe = r#"
        [[mcp_servers]]
        name = "b"
        transport = "http"
        url = "https://me:hunter22@example.com/mcp?key=hunter22"
        headers = { Authorization = "Bearer hunter22" }
    "#;
    vec![
        ("claude-desktop", "home/.config/Claude/claude_desktop_config.json", json("mcpServers", "url")),
        ("claude-code", "home/.claude.json", json("mcpServers", "url")),
        ("claude-code", ".mcp.json", json("mcpServers", "url")),
        ("vscode", "home/.config/Code/User/mcp.json", json("servers", "url")),
        ("cursor", "home/.cursor/mcp.json", json("mcpServers", "url")),
        ("windsurf", "home/.codeium/windsurf/mcp_config.json", json("mcpServers", "serverUrl")),
        ("kiro", "home/.kiro/settings/mcp.json", json("mcpServers", "url")),
        ("lmstudio", "home/.lmstudio/mcp.json", json("mcpServers", "url")),
        ("zed", "home/.config/zed/settings.json", json("context_servers", "url")),
        ("codex", "home/.codex/config.toml", toml.to_owned()),
        ("gemini", "home/.gemini/settings.json", json("mcpServers", "httpUrl")),
        ("copilot", "home/.copilot/mcp-config.json", json("mcpServers", "url")),
        ("opencode", "home/.config/opencode/opencode.jsonc", opencode),
        ("goose", "home/.config/goose/config.yaml", yaml("extensions", "envs", "uri")),
        ("hermes", "home/.hermes/config.yaml", yaml("mcp_servers", "env", "url")),
        (
            "continue",
            "home/.continue/config.yaml",
            format!("mcpServers:\n  - {{\"name\": \"b\", \"url\": \"{url}\", \"headers\": {headers}}}\n"),
        ),
        ("cline", "home/.cline/data/settings/cline_mcp_settings.json", json("mcpServers", "url")),
        ("inspector", "home/.mcp-inspector/mcp.json", json("mcpServers", "url")),
        ("amp", "home/.config/amp/settings.json", json("amp.mcpServers", "url")),
        ("vibe", "home/.vibe/config.toml", vibe.to_owned()),
        ("factory", "home/.factory/mcp.json", json("mcpServers", "url")),
        ("kimi", "home/.kimi/mcp.json", json("mcpServers", "url")),
        ("antigravity", "home/.gemini/antigravity/mcp_config.json", json("mcpServers", "url")),
        ("trae", "home/.config/Trae/User/mcp.json", json("mcpServers", "url")),
    ]
}

#[test]
fn g05_an_import_that_is_not_written_prints_no_secret_of_any_client() {
    for (client, path, text) in secretive() {
        let sandbox = home(&[(path, &text)]);
        for form in ["text", "json"] {
            let ran = sandbox.run(&["import", "--from", client, "-o", form]);
            assert_eq!(ran.code, Some(0), "{client}: {ran}");
            assert!(ran.stderr.contains("  + b") || form == "json", "{client}: {ran}");
            assert!(!ran.stdout.contains("hunter22") && !ran.stderr.contains("hunter22"), "{client}: {ran}");
        }
        assert!(!sandbox.path("gripfast.toml").exists());
        let ran = sandbox.run(&["import", "--from", client, "--write"]);
        assert!(!ran.stdout.contains("hunter22") && !ran.stderr.contains("hunter22"), "{client}: {ran}");
        let written = std::fs::read_to_string(sandbox.path("gripfast.toml")).unwrap();
        assert!(written.contains("Bearer hunter22"), "{client}: {written}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(sandbox.path("gripfast.toml")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{client}");
        }
    }
}
