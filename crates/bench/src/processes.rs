//! Processes of a measurement: the test server, and the gateway or proxy in front of it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{Address, Client};
use crate::process::Process;
use gripfast_measure::Era;
use gripfast_measure::{MeasureError, Result, free_port, proc};

/// The test server over HTTP.
#[derive(Debug)]
pub(crate) struct Server {
    _process: Process,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process =
            Process::start("the server behind", command.arg("--serve-http").stdout(Stdio::piped()))?;
        let line = process.first_line()?;
        let port =
            line.trim().parse().map_err(|error| MeasureError::new("port of the test server", &error))?;
        Ok(Self { _process: process, port })
    }

    /// Address of the server itself.
    pub(crate) fn address(&self) -> Address {
        Address { socket: localhost(self.port), path: "/mcp".to_owned(), prefix: "" }
    }

    /// Config entry for this server, with this many tools.
    pub(crate) fn entry(&self, name: &str, tools: usize, era: Era) -> String {
        let protocol = match era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        let port = self.port;
        format!(
            "[servers.{name}]\nurl = \"http://127.0.0.1:{port}/mcp?tools={tools}\"\ntransport = \"http\"\n\
             protocol = \"{protocol}\"\n"
        )
    }
}

/// Command of the test server over stdio.
pub(crate) fn stdio_server(tools: usize) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve-pipes").arg(tools.to_string());
    Ok(command)
}

/// Config entry for the test server over stdio.
pub(crate) fn stdio_entry(name: &str, tools: usize) -> Result<String> {
    let path = std::env::current_exe()?;
    let path = path.display();
    Ok(format!(
        "[servers.{name}]\ncommand = \"{path}\"\nargs = [\"--serve-pipes\", \"{tools}\"]\nprotocol = \"legacy\"\n"
    ))
}

/// A running gripfast.
#[derive(Debug)]
pub(crate) struct Gateway {
    process: Process,
    pub(crate) address: Address,
    /// Start time.
    pub(crate) began: Instant,
}

/// Name of the first server; its tools have this prefix.
pub(crate) const FIRST: &str = "bench";
const PREFIX: &str = "bench__";

/// Directory with the files of a gateway, removed on drop.
#[derive(Debug)]
pub(crate) struct GatewayDir(TempDir);

impl GatewayDir {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Gateway {
    /// Starts gripfast with these servers and waits until it listens.
    pub(crate) fn start(gripfast: &Path, home: &GatewayDir, config: &str) -> Result<Self> {
        Self::start_with(Command::new(gripfast), home, config)
    }

    /// Same as [`Self::start`], at this address.
    pub(crate) fn start_at(
        gripfast: &Path,
        address: SocketAddr,
        home: &GatewayDir,
        config: &str,
    ) -> Result<Self> {
        Self::start_command(Command::new(gripfast), address, home, config)
    }

    /// Same as [`Self::start`], with the command that gets the arguments of gripfast.
    pub(crate) fn start_with(command: Command, home: &GatewayDir, config: &str) -> Result<Self> {
        Self::start_command(command, localhost(0), home, config)
    }

    fn start_command(
        mut command: Command,
        address: SocketAddr,
        home: &GatewayDir,
        config: &str,
    ) -> Result<Self> {
        let file = home.path().join("gripfast.toml");
        fs::write(&file, config)?;
        let log = File::create(home.path().join("log"))?;
        command.args(["serve", "--listen", &address.to_string(), "--config"]).arg(&file).arg("--state-dir");
        command.arg(home.path().join("state")).env("HOME", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let began = Instant::now();
        let mut process = Process::start("gripfast", &mut command)?;
        let line = process.first_line()?;
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        let socket = url.and_then(|url| url.split('/').next()).and_then(|socket| socket.parse().ok());
        let socket = socket.ok_or_else(|| MeasureError::new("gripfast: no URL in its first line", &line))?;
        let address = Address { socket, path: "/mcp".to_owned(), prefix: PREFIX };
        Ok(Self { process, address, began })
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        vec![self.process.pid()]
    }

    pub(crate) fn resident(&self) -> u64 {
        proc::resident_memory(&self.pids())
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

/// nginx in a good configuration for MCP: persistent connections on both sides, no response buffering.
#[derive(Debug)]
pub(crate) struct Nginx {
    process: Process,
    _home: GatewayDir,
    pub(crate) address: Address,
}

impl Nginx {
    /// Starts nginx in front of `server`. `file` is a name and its content to serve.
    pub(crate) fn start(server: &Server, file: (&str, &[u8])) -> Result<Self> {
        let home = GatewayDir::new()?;
        let port = free_port()?;
        let config = home.path().join("nginx.conf");
        fs::create_dir(home.path().join("files"))?;
        fs::write(home.path().join("files").join(file.0), file.1)?;
        fs::write(&config, nginx_config(home.path(), port, server.port))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(home.path()).arg("-c").arg(&config).arg("-e").arg(home.path().join("errors"));
        let hint = "nginx (hint: install Debian's `nginx-light`)";
        let process = Process::start(hint, command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        let address = Address { socket: localhost(port), path: "/mcp".to_owned(), prefix: "" };
        wait_for(address.socket)?;
        Ok(Self { process, _home: home, address })
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let master = self.process.pid();
        let mut pids = proc::children_of(master);
        pids.push(master);
        pids
    }

    pub(crate) fn resident(&self) -> u64 {
        proc::resident_memory(&self.pids())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The workers would outlive a master that is killed.
        let _ = self.process.end();
    }
}

fn nginx_config(home: &Path, port: u16, server: u16) -> String {
    let home = home.display();
    // As root, nginx runs its workers as another user, which cannot read our files.
    let user = if rustix::process::getuid().is_root() { "user root;\n" } else { "" };
    let mut text = format!(
        "{user}daemon off;\nworker_processes auto;\npid {home}/pid;\nerror_log {home}/errors;\n\
         events {{ worker_connections 8192; }}\nhttp {{\naccess_log off;\ntcp_nodelay on;\nsendfile on;\n\
         default_type application/json;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\n\
         client_max_body_size 16m;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "{kind}_temp_path {home}/{kind};");
    }
    let _ = write!(
        text,
        "upstream behind {{ server 127.0.0.1:{server}; keepalive 256; keepalive_requests 1000000000; }}\n\
         server {{\nlisten 127.0.0.1:{port} backlog=4096;\nroot {home}/files;\nopen_file_cache max=16;\n\
         location /mcp {{\nproxy_pass http://behind;\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_buffering off;\nproxy_read_timeout 1h;\n}}\n}}\n}}\n"
    );
    text
}

/// Another gateway, given by its command and URL.
#[derive(Debug)]
pub(crate) struct Other {
    process: Process,
    _home: GatewayDir,
    pub(crate) address: Address,
}

impl Other {
    /// Starts the gateway. `{url}` in `command` stands for the URL of the test server, `{config}` for a file with
    /// `mcpServers` in which that server is called `bench`.
    pub(crate) async fn start(command: &str, url: &str, server: &Server) -> Result<Self> {
        let home = GatewayDir::new()?;
        let config = home.path().join("servers.json");
        let behind = format!("http://127.0.0.1:{}/mcp", server.port);
        let entry = serde_json::json!({ "mcpServers": { FIRST: { "type": "http", "url": behind } } });
        fs::write(&config, entry.to_string())?;
        let line = command.replace("{url}", &behind).replace("{config}", &config.display().to_string());
        let mut command = Command::new("/bin/sh");
        let log = File::create(home.path().join("log"))?;
        command.arg("-c").arg(format!("exec {line}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Process::start("the other gateway", &mut command)?;
        let bare = url.trim_start_matches("http://");
        let (socket, path) = bare.split_once('/').unwrap_or((bare, "mcp"));
        let socket = socket.parse().map_err(|error| MeasureError::new("--url", &error))?;
        wait_for(socket)?;
        let address = Address { socket, path: format!("/{path}"), prefix: "" };
        let prefix = detect_prefix(&address).await?;
        Ok(Self { process, _home: home, address: Address { prefix, ..address } })
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let first = self.process.pid();
        let mut pids = proc::children_of(first);
        pids.push(first);
        pids
    }

    pub(crate) fn resident(&self) -> u64 {
        proc::resident_memory(&self.pids())
    }
}

/// Finds the prefix of the tools among the prefixes that gateways use.
async fn detect_prefix(address: &Address) -> Result<&'static str> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        for prefix in ["", "bench__", "bench_", "bench-", "bench.", "bench/", "bench:"] {
            let Ok(mut client) = Client::connect(&Address { prefix, ..address.clone() }, Era::Legacy).await
            else {
                continue;
            };
            let mut ready = client.prepare(crate::client::BenchRequest::Call(100));
            if client.send(&mut ready).await.is_ok_and(|(_, bytes)| bytes > 100) {
                return Ok(prefix);
            }
        }
        if Instant::now() > deadline {
            return Err(MeasureError::new("the other gateway", &"calls of the tool `give` fail"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Connects this many clients, each on its own connection.
pub(crate) async fn clients(address: &Address, era: Era, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(Client::connect(address, era).await?);
    }
    Ok(clients)
}

fn localhost(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn wait_for(socket: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(socket).is_err() {
        if Instant::now() > deadline {
            return Err(MeasureError::new("no listener after 30 s", &socket));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Absolute path of the gripfast binary, which `cargo xtask bench` has built.
pub(crate) fn gripfast(given: &Path) -> Result<PathBuf> {
    given.canonicalize().map_err(|error| MeasureError::new(&given.display().to_string(), &error))
}
