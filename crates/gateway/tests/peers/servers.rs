//! Popular servers from the package registries, all behind one gateway: listed under their own names, used by several
//! clients at once, and killed one after another.

use crate::gateway::Gateway;
use crate::peer_host::kill_9;
use futures_util::future::join_all;
use gripfast_testkit::clients::{Client, ClientProcess, Mode};
use gripfast_testkit::packages::Package;
use gripfast_testkit::peers::{Peer, PeerCommand, Transport, require};
use gripfast_testkit::proc::is_alive;
use gripfast_testkit::wait::{until, within};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Names of the servers in the config, in order.
const SERVERS: [&str; 7] = ["everything", "files", "memory", "time", "git", "sqlite", "rmcp"];

/// Gateway with all of them, and the files that they use.
struct PopularServers {
    gateway: Gateway,
    dir: TempDir,
}

impl PopularServers {
    /// Starts the gateway; `None` if a server could not be installed.
    fn start() -> Option<Self> {
        let packages = [Package::Filesystem, Package::Memory, Package::Time, Package::Git, Package::Sqlite];
        let peers = [Peer::ServerEverything(Transport::Stdio), Peer::Rmcp(Transport::Stdio)];
        if !(packages.into_iter().all(Package::require) && peers.into_iter().all(require)) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name).display().to_string();
        let (files, repository) = (place("files"), place("repository"));
        std::fs::create_dir(&files).unwrap();
        make_repository(Path::new(&repository));
        let mut memory = Package::Memory.command([]);
        memory.env.push(("MEMORY_FILE_PATH".to_owned(), place("memory.jsonl")));
        let commands = [
            Peer::ServerEverything(Transport::Stdio).command(),
            Package::Filesystem.command([&*files]),
            memory,
            Package::Time.command([]),
            Package::Git.command(["--repository", &*repository]),
            Package::Sqlite.command(["--db-path", &*place("test.db")]),
            Peer::Rmcp(Transport::Stdio).command(),
        ];
        let config: String =
            SERVERS.iter().zip(&commands).map(|(name, command)| table(name, command)).collect();
        Some(Self { gateway: Gateway::with(&config), dir })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn meets(&self, client: Client, mode: Mode, over: Transport) -> ClientProcess {
        client.start(mode, over, &self.gateway.target(over))
    }

    /// One call for each server, unique to this client and round, and the text that its answer must contain.
    fn calls(&self, client: usize, round: usize) -> Vec<(Value, String)> {
        let call = |tool: &str, arguments: Value| json!({ "tool": tool, "arguments": arguments });
        let mark = format!("client {client}, round {round}");
        let file = self.place("files").join(format!("{client}-{round}.txt"));
        let query = format!("SELECT '{mark}' AS mark, count(*) AS marks FROM marks");
        let (hour, minute) = (round % 10, 10 + client);
        let time = json!({ "source_timezone": "UTC", "time": format!("0{hour}:{minute}"), "target_timezone": "Asia/Tokyo" });
        vec![
            (call("everything__echo", json!({ "message": mark })), format!("Echo: {mark}")),
            (
                call("files__write_file", json!({ "path": file, "content": mark })),
                format!("{client}-{round}.txt"),
            ),
            (call("memory__search_nodes", json!({ "query": "Ada" })), "wrote the first program".to_owned()),
            (call("time__convert_time", time), format!("T{:02}:{minute}:00+09:00", hour + 9)),
            (
                call("git__git_log", json!({ "repo_path": self.place("repository") })),
                "the first commit".to_owned(),
            ),
            (call("sqlite__read_query", json!({ "query": query })), mark),
            (call("rmcp__add", json!({ "a": client, "b": 100 * round })), (client + 100 * round).to_string()),
        ]
    }

    /// Every client calls every server, all at once, and each gets its own answers.
    async fn round(&self, clients: &mut [ClientProcess], round: usize) {
        join_all(clients.iter_mut().enumerate().map(async |(number, client)| {
            let (calls, wanted): (Vec<_>, Vec<_>) = self.calls(number, round).into_iter().unzip();
            let answers = client.run(json!({ "do": "together", "calls": calls })).await;
            for ((answer, wanted), call) in answers.as_array().unwrap().iter().zip(wanted).zip(calls) {
                let text = answer["text"].as_str().unwrap_or_else(|| panic!("{client}: {call}: {answer}"));
                assert!(answer["failed"] == false && text.contains(&wanted), "{client}: {call}: {answer}");
            }
            let written = self.place("files").join(format!("{number}-{round}.txt"));
            assert_eq!(std::fs::read_to_string(written).unwrap(), format!("client {number}, round {round}"));
        }))
        .await;
    }

    /// Writes the data that later calls read.
    async fn prepare(&self, client: &mut ClientProcess) {
        let mut call = async |tool: &str, arguments: Value| {
            let answer = client.run(json!({ "do": "call", "tool": tool, "arguments": arguments })).await;
            assert_eq!(answer["failed"], false, "{tool}: {answer}");
        };
        let ada =
            json!({ "name": "Ada", "entityType": "person", "observations": ["wrote the first program"] });
        call("memory__create_entities", json!({ "entities": [ada] })).await;
        call("sqlite__create_table", json!({ "query": "CREATE TABLE marks (mark TEXT)" })).await;
        call("sqlite__write_query", json!({ "query": "INSERT INTO marks VALUES ('one')" })).await;
    }

    fn status(&self, server: &str) -> Value {
        let status = self.gateway.status();
        let upstreams = status["upstreams"].as_array().unwrap();
        upstreams.iter().find(|upstream| upstream["name"] == server).unwrap().clone()
    }

    /// Sends `kill -9` and waits until the gateway has noticed. Later calls are then held and not written to pipes that
    /// the last threads of the dead process keep open for a moment.
    async fn kill(&self, server: &str) -> u64 {
        let pid = self.status(server)["pid"].as_u64().unwrap_or_else(|| panic!("{:#}", self.status(server)));
        let process = u32::try_from(pid).unwrap();
        kill_9(process);
        until("the end of a process", || !is_alive(process) && self.status(server)["pid"] != pid).await;
        pid
    }
}

fn table(name: &str, command: &PeerCommand) -> String {
    let PeerCommand { program, args, env } = command;
    let mut table = format!("[servers.{name}]\ncommand = {program:?}\nargs = {args:?}\n");
    // A busy machine is slow to start seven servers, which is not what is tested.
    table += "timeouts = { connect = \"60s\", reconnect_wait = \"60s\" }\n";
    for (variable, value) in env {
        writeln!(table, "env.{variable} = {value:?}").unwrap();
    }
    table
}

fn make_repository(place: &Path) {
    let git = |args: &[&str]| {
        let named = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
        let done = Command::new("git").args(named).args(args).status().unwrap();
        assert!(done.success(), "git {args:?}");
    };
    let place = place.to_str().unwrap();
    git(&["init", "--quiet", place]);
    git(&["-C", place, "commit", "--quiet", "--allow-empty", "--message", "the first commit"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn popular_servers_are_listed_together_under_their_own_names() {
    let Some(fleet) = PopularServers::start() else { return };
    let mut client = fleet.meets(Client::Rmcp, Mode::Legacy, Transport::Http);
    let last = json!("everything__simulate-research-query");
    // One of them has more to offer a moment later: it looks first at what its client can do.
    let listed = within("all of the tools", async {
        loop {
            let listed = client.run(json!({ "do": "list" })).await;
            if listed["tools"].as_array().unwrap().contains(&last) {
                return listed;
            }
        }
    })
    .await;
    let lines = ["tools", "resources", "prompts"].map(|list| {
        let names = listed[list].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        format!("{list}:\n  {}", names.collect::<Vec<_>>().join("\n  "))
    });
    insta::assert_snapshot!(lines.join("\n"), @r"
    tools:
      everything__echo
      everything__get-annotated-message
      everything__get-env
      everything__get-resource-links
      everything__get-resource-reference
      everything__get-structured-content
      everything__get-sum
      everything__get-tiny-image
      everything__gzip-file-as-resource
      everything__toggle-simulated-logging
      everything__toggle-subscriber-updates
      everything__trigger-long-running-operation
      everything__get-roots-list
      everything__trigger-elicitation-request
      everything__trigger-url-elicitation
      everything__trigger-sampling-request
      everything__simulate-research-query
      files__read_file
      files__read_text_file
      files__read_media_file
      files__read_multiple_files
      files__write_file
      files__edit_file
      files__create_directory
      files__list_directory
      files__list_directory_with_sizes
      files__directory_tree
      files__move_file
      files__search_files
      files__get_file_info
      files__list_allowed_directories
      memory__create_entities
      memory__create_relations
      memory__add_observations
      memory__delete_entities
      memory__delete_observations
      memory__delete_relations
      memory__read_graph
      memory__search_nodes
      memory__open_nodes
      time__get_current_time
      time__convert_time
      git__git_status
      git__git_diff_unstaged
      git__git_diff_staged
      git__git_diff
      git__git_commit
      git__git_add
      git__git_reset
      git__git_log
      git__git_create_branch
      git__git_checkout
      git__git_show
      git__git_branch
      sqlite__read_query
      sqlite__write_query
      sqlite__create_table
      sqlite__list_tables
      sqlite__describe_table
      sqlite__append_insight
      rmcp__add
      rmcp__counter
      rmcp__echo
      rmcp__sleep
    resources:
      demo://resource/static/document/architecture.md
      demo://resource/static/document/extension.md
      demo://resource/static/document/features.md
      demo://resource/static/document/how-it-works.md
      demo://resource/static/document/instructions.md
      demo://resource/static/document/startup.md
      demo://resource/static/document/structure.md
      memory://knowledge-graph
      memo://insights
      peer://greeting
    prompts:
      everything__simple-prompt
      everything__args-prompt
      everything__completable-prompt
      everything__resource-prompt
      sqlite__mcp-demo
      rmcp__greet
    ");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn popular_servers_serve_several_clients_and_recover_from_kills() {
    let clients =
        [Client::PythonV1, Client::PythonV2, Client::TypeScriptV1, Client::TypeScriptV2, Client::Rmcp];
    if !clients.into_iter().all(Client::require) {
        return;
    }
    let Some(fleet) = PopularServers::start() else { return };
    let mut clients = [
        fleet.meets(Client::Rmcp, Mode::Modern, Transport::Http),
        fleet.meets(Client::Rmcp, Mode::Legacy, Transport::Http),
        fleet.meets(Client::PythonV1, Mode::Legacy, Transport::Http),
        fleet.meets(Client::PythonV2, Mode::Modern, Transport::Http),
        fleet.meets(Client::TypeScriptV1, Mode::Legacy, Transport::Sse),
        fleet.meets(Client::TypeScriptV2, Mode::Modern, Transport::Http),
    ];
    fleet.prepare(&mut clients[0]).await;
    fleet.round(&mut clients, 0).await;
    for (round, server) in (1..).zip(SERVERS) {
        let pid = fleet.kill(server).await;
        fleet.round(&mut clients, round).await;
        let status = fleet.status(server);
        assert!(status["pid"] != pid && status["restarts"] == 1, "{status:#}");
    }
    for server in SERVERS {
        let status = fleet.status(server);
        assert_eq!((&status["state"], &status["restarts"]), (&json!("ready"), &json!(1)), "{status:#}");
    }
    join_all(clients.into_iter().map(ClientProcess::close)).await;
}
