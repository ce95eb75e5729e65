//! The same config in three formats gives the same result.

use super::{JSON, TOML, YAML, only_server, parse, report};
use gripfast::RecordDetail;
use gripfast::config::*;
use gripfast::exposure::{Exposure, ExposureSettings};
use gripfast::ledger::LedgerOptions;
use gripfast_core::supervise::spec::{SupervisionSpec, WhenDown};
use std::path::Path;
use std::time::Duration;

const IN_TOML: &str = r#"
[gateway]
listen = "127.0.0.1:9000"
state_dir = "/var/lib/gripfast"
startup_wait = "3s"
session_idle_timeout = "30m"
limits = { sessions = 500 }
ledger = "arguments"
ledger_size = "1MiB"
exposure = "auto"
exposure_limit = 5000
always = ["docs__*"]
load = true
public_url = "https://mcp.example.com"
allowed_origins = ["http://localhost:6274"]
auth = { keys = true, jwt = { issuer = "https://i.example", audience = "a", jwks = "/etc/jwks.json", scopes = ["mcp"] } }
tls = { cert = "/etc/cert.pem", key = "/etc/key.pem" }

[servers.github]
command = "npx"
args = ["-y", "some-server"]
env = { TOKEN = "${env:GITHUB_TOKEN}" }
inherit_env = ["HTTPS_PROXY"]
cwd = "/srv"
spare = 1
recycle = { max_rss = "512MiB" }

[servers.docs]
url = "https://example.com/mcp"
transport = "http"
protocol = "legacy"
headers = { Authorization = "Bearer ${env:DOCS_TOKEN}" }
ca_file = "/etc/ca.pem"
lazy = true
idle_timeout = "11m"
keepalive_interval = "0s"
keepalive_timeout = "31s"
when_down = "withdraw"
circuit = { threshold = 4, cooldown = "61s" }
restart = { max = 6, window = "6m", backoff_min = "200ms", backoff_max = "31s", parked_probe = "61s" }
timeouts = { connect = "31s", connect_max = "302s", call = "301s", progress = "61s", reconnect_wait = "16s" }
max_in_flight = 65
max_waiting = 7
recycle = { max_lifetime = "12h" }
max_message = "1MiB"
cache = { lists = "90s", tools = { "get_*" = "hinted" } }
prefix = ""
isolation = "per_client"
exposure = "search"
always = ["get_*"]
max_instances = 65
redirects = ["https://eu.example.com"]
oauth = { issuer = "https://id.example.com", client_id = "us", client_secret = "${env:SECRET}", scopes = ["read"], callback_port = 7332 }
tools = { allow = ["*"], deny = ["delete_*"] }
replay = { safe = ["search_*"], never = ["send_*"] }
restore = [{ tool = "login", arguments = { user = "me", ids = [1, 2.5], deep = { on = true, word = "${env:WORD}" } } }, { tool = "wake" }]
disabled = true
"#;

const IN_JSON: &str = r#"{
  // Comments and trailing commas are allowed.
  "gateway": { "listen": "127.0.0.1:9000", "state_dir": "/var/lib/gripfast", "startup_wait": "3s",
    "session_idle_timeout": "30m", "limits": { "sessions": 500 },
    "ledger": "arguments", "ledger_size": "1MiB", "exposure": "auto", "exposure_limit": 5000, "always": ["docs__*"], "load": true,
    "public_url": "https://mcp.example.com", "allowed_origins": ["http://localhost:6274"], "auth": { "keys": true, "jwt": { "issuer": "https://i.example", "audience": "a", "jwks": "/etc/jwks.json",
      "scopes": ["mcp"] } }, "tls": { "cert": "/etc/cert.pem", "key": "/etc/key.pem" } },
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "some-server"],
      "env": { "TOKEN": "${env:GITHUB_TOKEN}" },
      "inherit_env": ["HTTPS_PROXY"],
      "cwd": "/srv",
      "spare": 1,
      "recycle": { "max_rss": "512MiB" },
    },
    "docs": {
      "url": "https://example.com/mcp",
      "transport": "http",
      "protocol": "legacy",
      "headers": { "Authorization": "Bearer ${env:DOCS_TOKEN}" },
      "ca_file": "/etc/ca.pem",
      "lazy": true,
      "idle_timeout": "11m",
      "keepalive_interval": "0s",
      "keepalive_timeout": "31s",
      "when_down": "withdraw",
      "circuit": { "threshold": 4, "cooldown": "61s" },
      "restart": { "max": 6, "window": "6m", "backoff_min": "200ms", "backoff_max": "31s", "parked_probe": "61s" },
      "timeouts": { "connect": "31s", "connect_max": "302s", "call": "301s", "progress": "61s", "reconnect_wait": "16s" },
      "max_in_flight": 65,
      "max_waiting": 7,
      "recycle": { "max_lifetime": "12h" },
      "max_message": 1048576,
      "cache": { "lists": "90s", "tools": { "get_*": "hinted" } },
      "prefix": "",
      "isolation": "per_client",
      "exposure": "search",
      "always": ["get_*"],
      "max_instances": 65,
      "redirects": ["https://eu.example.com"],
      "oauth": { "issuer": "https://id.example.com", "client_id": "us", "client_secret": "${env:SECRET}", "scopes": ["read"], "callback_port": 7332 },
      "tools": { "allow": ["*"], "deny": ["delete_*"] },
      "replay": { "safe": ["search_*"], "never": ["send_*"] },
      "restore": [
        { "tool": "login", "arguments": { "user": "me", "ids": [1, 2.5], "deep": { "on": true, "word": "${env:WORD}" } } },
        { "tool": "wake" }
      ],
      "disabled": true
    }
  }
}"#;

const IN_YAML: &str = r#"
gateway: { listen: "127.0.0.1:9000", state_dir: /var/lib/gripfast, startup_wait: 3s, session_idle_timeout: 30m,
  limits: { sessions: 500 }, ledger: arguments, ledger_size: 1MiB,
  exposure: auto, exposure_limit: 5000, always: ["docs__*"], load: true,
  public_url: "https://mcp.example.com", allowed_origins: ["http://localhost:6274"], auth: { keys: true, jwt: { issuer: "https://i.example", audience: a,
  jwks: /etc/jwks.json, scopes: [mcp] } }, tls: { cert: /etc/cert.pem, key: /etc/key.pem } }
mcp_servers:
  github:
    command: npx
    args: [-y, some-server]
    env:
      TOKEN: ${env:GITHUB_TOKEN}
    inherit_env: [HTTPS_PROXY]
    cwd: /srv
    spare: 1
    recycle: { max_rss: 512MiB }
  docs:
    url: https://example.com/mcp
    transport: http
    protocol: legacy
    headers:
      Authorization: Bearer ${env:DOCS_TOKEN}
    ca_file: /etc/ca.pem
    lazy: true
    idle_timeout: 11m
    keepalive_interval: 0s
    keepalive_timeout: 31s
    when_down: withdraw
    circuit: { threshold: 4, cooldown: 61s }
    restart: { max: 6, window: 6m, backoff_min: 200ms, backoff_max: 31s, parked_probe: 61s }
    timeouts: { connect: 31s, connect_max: 302s, call: 301s, progress: 61s, reconnect_wait: 16s }
    max_in_flight: 65
    max_waiting: 7
    recycle: { max_lifetime: 12h }
    max_message: 1 MiB
    cache: { lists: 90s, tools: { "get_*": hinted } }
    prefix: ""
    isolation: per_client
    exposure: search
    always: ["get_*"]
    max_instances: 65
    redirects: ["https://eu.example.com"]
    oauth: { issuer: "https://id.example.com", client_id: us, client_secret: "${env:SECRET}", scopes: [read], callback_port: 7332 }
    tools: { allow: ["*"], deny: [delete_*] }
    replay: { safe: [search_*], never: [send_*] }
    restore:
      - { tool: login, arguments: { user: me, ids: [1, 2.5], deep: { on: true, word: "${env:WORD}" } } }
      - { tool: wake }
    disabled: true
"#;

#[test]
fn the_three_formats_give_the_same_config() {
    let specs = [(TOML, IN_TOML), (JSON, IN_JSON), (YAML, IN_YAML)].map(|(file, text)| {
        assert_eq!(report(file, text), "");
        let config = parse(file, text);
        let servers: Vec<_> = config.servers.into_iter().map(|server| (server.name, server.spec)).collect();
        (config.gateway, servers)
    });
    assert_eq!(specs[0], specs[1]);
    assert_eq!(specs[0], specs[2]);
}

#[test]
fn every_key_sets_its_field() {
    let config = parse(TOML, IN_TOML);
    assert_eq!(config.gateway.listen.to_string(), "127.0.0.1:9000");
    assert_eq!(config.gateway.state_dir.as_deref(), Some(Path::new("/var/lib/gripfast")));
    assert_eq!(config.gateway.startup_wait, Duration::from_secs(3));
    assert_eq!(config.gateway.session_idle_timeout, Duration::from_secs(1800));
    assert_eq!(config.gateway.limits, ClientLimits { sessions: 500, ..ClientLimits::default() });
    let access = &config.gateway.access;
    assert_eq!(access.public_url.as_ref().map(|url| url.as_str()), Some("https://mcp.example.com/"));
    assert_eq!(access.allowed_origins, ["http://localhost:6274"]);
    assert!(access.keys);
    let jwt = access.jwt.as_ref().unwrap();
    assert_eq!((&*jwt.issuer, &*jwt.audience, &*jwt.name), ("https://i.example", "a", "sub"));
    assert_eq!((&jwt.jwks, &*jwt.scopes), (&Jwks::File("/etc/jwks.json".into()), &["mcp".to_owned()][..]));
    let tls = access.tls.as_ref().unwrap();
    assert_eq!((&*tls.cert, &*tls.key), (Path::new("/etc/cert.pem"), Path::new("/etc/key.pem")));
    let github = config.servers[0].spec.as_ref().unwrap();
    assert!(github.supervision.spare);
    assert_eq!(github.supervision.recycle.max_rss, Some(512 << 20));
    let (exposure, always) = (Exposure::Auto, vec!["docs__*".to_owned()]);
    assert_eq!(config.gateway.exposure, ExposureSettings { exposure, limit: 5000, always, load: true });
    assert_eq!(config.gateway.ledger, LedgerOptions { detail: RecordDetail::Arguments, size: 1 << 20 });
    insta::assert_snapshot!(format!("{:#?}", config.servers[1].spec), @r#"
    Ok(
        ServerSpec {
            target: Url {
                url: "https://example.com/mcp",
                transport: Http,
                headers: [
                    (
                        "Authorization",
                        "[redacted]${env:DOCS_TOKEN}",
                    ),
                ],
                tls: TlsSpec {
                    ca_file: Some(
                        "/etc/ca.pem",
                    ),
                    client_cert: None,
                    client_key: None,
                    strict_modes: On,
                },
                redirects: [
                    "https://eu.example.com",
                ],
            },
            oauth: Some(
                OAuthSpec {
                    issuer: Some(
                        "https://id.example.com",
                    ),
                    client_id: Some(
                        "us",
                    ),
                    client_secret: Some(
                        "${env:SECRET}",
                    ),
                    private_key: None,
                    private_key_id: None,
                    client_metadata_url: None,
                    scopes: [
                        "read",
                    ],
                    grant: AuthorizationCode,
                    callback_port: 7332,
                },
            ),
            protocol: Legacy,
            max_message: 1048576,
            disabled: true,
            supervision: SupervisionSpec {
                lazy: true,
                idle_timeout: 660s,
                when_down: Withdraw,
                keepalive: KeepaliveSpec {
                    interval: None,
                    timeout: 31s,
                },
                circuit: CircuitSpec {
                    threshold: 4,
                    cooldown: 61s,
                },
                restart: RestartSpec {
                    max: 6,
                    window: 360s,
                    backoff_min: 200ms,
                    backoff_max: 31s,
                    parked_probe: 61s,
                },
                timeouts: TimeoutSpec {
                    connect: 31s,
                    connect_max: 302s,
                    call: 301s,
                    progress: 61s,
                    reconnect_wait: 16s,
                },
                max_in_flight: 65,
                max_waiting: 7,
                spare: false,
                recycle: RecycleSpec {
                    max_lifetime: Some(
                        43200s,
                    ),
                    max_rss: None,
                },
            },
            prefix: Some(
                "",
            ),
            policy: Policy {
                tools: Lists {
                    allow: [
                        "*",
                    ],
                    deny: [
                        "delete_*",
                    ],
                },
                resources: Lists {
                    allow: [
                        "*",
                    ],
                    deny: [],
                },
                prompts: Lists {
                    allow: [
                        "*",
                    ],
                    deny: [],
                },
                methods: None,
            },
            pins: Enforce,
            max_tools: 2000,
            exposure: Some(
                Search,
            ),
            always: [
                "get_*",
            ],
            isolation: PerClient,
            max_instances: 65,
            placement: Each,
            replay: ReplayRules {
                safe: [
                    "search_*",
                ],
                never: [
                    "send_*",
                ],
            },
            restore: [
                RestoreCall {
                    tool: "login",
                    arguments: [redacted],
                },
                RestoreCall {
                    tool: "wake",
                    arguments: [redacted],
                },
            ],
            cache: CacheSpec {
                reads: true,
                tools: [
                    (
                        "get_*",
                        AsHinted,
                    ),
                ],
                lists: 90s,
                stale_lists: 0ns,
            },
        },
    )
    "#);
}

#[test]
fn the_arguments_of_a_marked_call_are_expanded_at_the_call() {
    let config = parse(TOML, IN_TOML);
    let Ok(spec) = &config.servers[1].spec else { panic!("{config:?}") };
    let world = super::TestLookup::default().with_variable("WORD", "hunter2");
    let made = spec.restore[0].arguments.expand(&world).unwrap();
    let wanted =
        serde_json::json!({ "user": "me", "ids": [1, 2.5], "deep": { "on": true, "word": "hunter2" } });
    assert_eq!(made, wanted);
    let unset = spec.restore[0].arguments.expand(&super::TestLookup::default()).unwrap_err();
    assert_eq!(unset.to_string(), "environment variable `WORD` is not set");
    assert_eq!(spec.restore[1].arguments.expand(&world).unwrap(), serde_json::json!({}));
}

/// The example of the manual, in which every key has its default.
#[test]
fn the_documented_defaults_are_the_defaults() {
    let written = only_server(
        TOML,
        r#"
[servers.docs]
url = "https://example.com/mcp"
transport = "auto"
protocol = "auto"
lazy = false
idle_timeout = "10m"
keepalive_interval = "180s"
keepalive_timeout = "30s"
when_down = "keep"
circuit = { threshold = 3, cooldown = "60s" }
restart = { max = 5, window = "5m", backoff_min = "100ms", backoff_max = "30s", parked_probe = "60s" }
timeouts = { connect = "30s", call = "300s", progress = "60s", reconnect_wait = "15s" }
max_in_flight = 64
max_waiting = 1024
max_message = "16MiB"
isolation = "auto"
max_instances = 64
tools = { allow = ["*"], deny = [] }
replay = { safe = [], never = [] }
enabled = true
"#,
    );
    let silent = only_server(TOML, "[servers.docs]\nurl = \"https://example.com/mcp\"\n");
    assert_eq!(written, silent);
    assert_eq!(silent, ServerSpec::new(silent.target.clone()));
    assert_eq!(silent.supervision, SupervisionSpec::default());
    assert_eq!(silent.supervision.when_down, WhenDown::Keep);
    assert_eq!(parse(TOML, "").gateway, GatewayConfig::default());
    assert_eq!(GatewayConfig::default().listen.to_string(), "127.0.0.1:7331");
}

#[test]
fn c03_package_runners_begin_with_connect_max_and_others_with_connect() {
    let limits = |keys: &str| {
        let timeouts = only_server(TOML, &format!("[servers.a]\n{keys}\n")).supervision.timeouts;
        (timeouts.connect.as_secs(), timeouts.connect_max.as_secs())
    };
    for runner in ["npx", "uvx", "pipx", "bunx", "docker", "/usr/local/bin/uvx", "npx.cmd"] {
        assert_eq!(limits(&format!("command = \"{runner}\"")), (300, 300), "{runner}");
    }
    for other in ["command = \"npxx\"", "command = \"node\"", "url = \"https://h.example/npx\""] {
        assert_eq!(limits(other), (30, 300), "{other}");
    }
    let with = |command: &str, timeouts: &str| {
        limits(&format!("command = \"{command}\"\ntimeouts = {{ {timeouts} }}"))
    };
    assert_eq!(with("npx", "connect = \"10s\""), (10, 300), "the operator's own limit wins");
    assert_eq!(with("npx", "connect_max = \"9m\""), (540, 540));
    assert_eq!(with("node", "connect_max = \"9m\""), (30, 540));
    assert_eq!(with("node", "connect_max = \"20s\""), (20, 20));
    assert_eq!(with("node", "connect = \"10m\""), (600, 600));
}

#[test]
fn servers_keep_the_order_of_the_file() {
    let names = |file, text| {
        let servers = parse(file, text).servers;
        servers.into_iter().map(|server| server.name).collect::<Vec<_>>()
    };
    let toml = "[servers.z]\ncommand='x'\n[servers.a]\ncommand='x'\n[gateway]\n[servers.m]\ncommand='x'\n";
    assert_eq!(names(TOML, toml), ["z", "a", "m"]);
    let json = r#"{"servers": {"z": {"command":"x"}, "a": {"command":"x"}, "m": {"command":"x"}}}"#;
    assert_eq!(names(JSON, json), ["z", "a", "m"]);
    let yaml = "mcp_servers:\n  z: {command: x}\n  a: {command: x}\n  m: {command: x}\n";
    assert_eq!(names(YAML, yaml), ["z", "a", "m"]);
}

#[test]
fn a_bad_server_never_stops_the_others() {
    let text = "
[servers.a]
command = 'x'
[servers.bad]
comand = 'x'
[servers.'also bad']
url = 3
[servers.z]
url = 'http://h/'
";
    let servers = parse(TOML, text).servers;
    let fine: Vec<_> = servers.iter().map(|server| (server.name.as_str(), server.spec.is_ok())).collect();
    assert_eq!(fine, [("a", true), ("bad", false), ("also bad", false), ("z", true)]);
    assert_eq!(servers[1].position, Position { line: 4, column: 10 });
}

#[test]
fn all_mistakes_of_a_server_are_found_in_one_run() {
    let text =
        "[servers.a]\ncommand = 3\nlazy = 'no'\ntimeouts = { call = 1, conect = '1s' }\nprefix = '!'\n";
    let config = parse(TOML, text);
    let errors = config.servers[0].spec.as_ref().unwrap_err();
    let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "servers.a.command",
            "servers.a.lazy",
            "servers.a.timeouts.call",
            "servers.a.timeouts.conect",
            "servers.a.prefix"
        ]
    );
}

#[test]
fn a_finding_fits_on_one_line_for_a_status() {
    let config = parse(TOML, "[servers.a]\ncommand = 'x'\ntimeouts = { call = 30 }\n");
    let errors = config.servers[0].spec.as_ref().unwrap_err();
    insta::assert_snapshot!(errors[0], @r#"servers.a.timeouts.call: expected a duration with a unit, found a number (write "30s" for seconds or "30ms" for milliseconds)"#);
}

#[test]
fn anchors_and_merge_keys_of_yaml_work() {
    let text = "
defaults: &defaults
  command: npx
  lazy: true
mcp_servers:
  a:
    <<: *defaults
    lazy: false
  b: *defaults
";
    let config = parse(YAML, text);
    let specs: Vec<_> = config.servers.iter().map(|server| server.spec.as_ref().unwrap()).collect();
    assert_eq!(specs[0].target, specs[1].target);
    assert_eq!([specs[0].supervision.lazy, specs[1].supervision.lazy], [false, true]);
}

#[test]
fn defaults_are_the_keys_of_every_server_and_a_servers_own_key_wins() {
    let both = r#"
[defaults]
lazy = true
timeouts = { call = "40s", progress = "20s" }
env = { A = "all", B = "all" }
ca_file = "/etc/company.pem"
disabled = true

[servers.local]
command = "x"
timeouts = { call = "10s" }
env = { B = "own" }
enabled = true

[servers.remote]
url = "https://h.example/mcp"
lazy = false
"#;
    let written_out = r#"
[servers.local]
command = "x"
lazy = true
timeouts = { call = "10s", progress = "20s" }
env = { B = "own", A = "all" }
enabled = true

[servers.remote]
url = "https://h.example/mcp"
lazy = false
timeouts = { call = "40s", progress = "20s" }
ca_file = "/etc/company.pem"
disabled = true
"#;
    let specs = |text| parse(TOML, text).servers.into_iter().map(|server| server.spec).collect::<Vec<_>>();
    assert_eq!(specs(both), specs(written_out));
    let jsonc = r#"{ "defaults": { "lazy": true }, "mcpServers": { "a": { "command": "x" } } }"#;
    assert!(only_server("mcp.json", jsonc).supervision.lazy);
}

#[test]
fn a_setting_from_defaults_is_shown_with_its_origin() {
    let config = parse(TOML, "[defaults]\nlazy = true\n[servers.a]\ncommand = \"x\"\n");
    let lazy = config.settings().into_iter().find(|setting| setting.path == "servers.a.lazy").unwrap();
    assert_eq!(lazy.value, "true");
    assert!(matches!(lazy.from, SettingFrom::File(at) if at.line == 2), "{lazy:?}");
}
