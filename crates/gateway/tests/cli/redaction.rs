//! Redaction: a server that repeats its secrets everywhere, and every place that shows or stores its output.

use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::STATE;
use crate::sandbox::Sandbox;
use gripfast_testkit::wait::until_some;
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;

const PLAIN: &str = "correct-horse-battery";
const SPECIAL: &str = "s3cr\"et/päss word+%";

/// Stdio server that puts the variables PLAIN and SPECIAL into names, descriptions, errors and stderr, and exits on
/// request. The texts of its tools change with each start.
const SERVER: &str = r#"
import json, os, sys
from urllib.parse import quote, quote_plus
plain, special = os.environ["PLAIN"], os.environ["SPECIAL"]
spellings = " ".join([plain, special, quote(special, safe=""), quote_plus(special), json.dumps(special)])
with open("starts", "a+") as starts:
    starts.write("x")
    starts.seek(0)
    count = len(starts.read())
print("logs in with", spellings, file=sys.stderr, flush=True)
print("no message:", spellings, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    method = request["method"]
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "parrot", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"x": {"type": "string", "default": special}}}
        tool = {"name": "use_" + plain, "description": f"{count}: {spellings}", "inputSchema": schema}
        answer["result"] = {"tools": [tool, {"name": "die", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call" and request["params"]["name"] == "die":
        print("dies with", spellings, file=sys.stderr, flush=True)
        sys.exit(3)
    else:
        answer["error"] = {"code": -32000, "message": "refused " + spellings, "data": {"key": spellings}}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn g05_a_secret_that_a_server_repeats_is_shown_and_stored_nowhere() {
    let config = "[gateway]\naudit = \"arguments\"\nledger = \"arguments\"\n\
                  [servers.parrot]\ncommand = \"python3\"\nargs = [\"server.py\"]\n\
                  env = { PLAIN = \"${file:plain}\", SPECIAL = \"${file:special}\" }\n";
    let sandbox = Sandbox::with(config)
        .file("server.py", SERVER)
        .file("plain", &format!("{PLAIN}\n"))
        .file("special", &format!("{SPECIAL}\n"));
    let config = config.replace("${file:", &format!("${{file:{}/", sandbox.path("").display()));
    let sandbox = sandbox.file("gripfast.toml", &config);
    let serving = GatewayProcess::of(
        sandbox.command(&["serve", "--listen", "127.0.0.1:0"]).env("GRIPFAST_LOG", "debug"),
    );
    let get = |path: &str| serving.get(path);
    until_some("the server is ready", || get("/api/v1/status").contains("\"ready\"").then_some(()));
    let client = serving.client();
    let refused = client.call(&format!("parrot__use_{PLAIN}"), json!({ "note": SPECIAL, "password": "x" }));
    assert!(refused.contains("-32000") && refused.contains("refused ***"), "{refused}");
    let died = client.call("parrot__die", json!({}));
    assert!(died.contains("dies with ***"), "{died}");
    until_some("what it says now is seen to differ", || {
        get("/api/v1/status").contains("\"needs_approval\"").then_some(())
    });
    let changed = get("/api/v1/upstreams/parrot");
    assert!(changed.contains("use_***"), "{changed}");
    let mut shown = vec![("answer", refused), ("failure", died), ("server", changed)];
    for path in
        ["status", "upstreams/parrot/tools", "upstreams/parrot/pins", "upstreams/parrot/log", "pins", "calls"]
    {
        let answer = get(&format!("/api/v1/{path}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        shown.push((path, answer));
    }
    let tools = shown.iter().find(|(path, _)| path.ends_with("/tools")).unwrap();
    assert!(tools.1.contains("use_***"), "{}", tools.1);
    shown.push(("log", serving.end(Signal::TERM)));
    for folder in ["audit", "ledger"] {
        let stored = everything_in(&sandbox.path(STATE).join(folder));
        assert!(stored.contains("parrot"), "{folder}: {stored}");
        shown.push((folder, stored));
    }
    // A gateway that has not started the server yet shows the catalog that is stored.
    let lazy = config.replace("[servers.parrot]", "[servers.parrot]\nlazy = true");
    let sandbox = sandbox.file("gripfast.toml", &lazy);
    let serving = GatewayProcess::start(&sandbox, &[]);
    for path in ["/api/v1/upstreams/parrot/tools", "/api/v1/pins"] {
        let answer = until_some("what is stored is shown without secrets", || {
            let answer = serving.get(path);
            (answer.contains("use_***") || answer.contains(PLAIN)).then_some(answer)
        });
        shown.push((path, answer));
    }
    drop(serving);
    for (place, text) in shown {
        for secret in [PLAIN, "s3cr", "ss word", "ss%20word", "ss+word"] {
            assert!(!text.contains(secret), "`{secret}` in {place}: {text}");
        }
    }
}

/// The text of all files in a folder.
fn everything_in(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|file| file.is_file())
        .map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned())
        .collect()
}
