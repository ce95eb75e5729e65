//! `gripfast serve` as a process that can be killed, and a minimal legacy client.

use crate::sandbox::Sandbox;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};

/// Running `gripfast serve`; killed on drop.
pub(crate) struct GatewayProcess {
    child: Child,
    pub(crate) url: String,
}

impl GatewayProcess {
    /// Serves the sandbox's config, with these further arguments.
    pub(crate) fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        Self::of(&mut sandbox.command(&[&["serve", "--listen", "127.0.0.1:0"], words].concat()))
    }

    /// Starts a command that becomes a gateway.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some((_, rest)) = line.split_once("serves MCP at ") else {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("{line}\n{stderr}");
        };
        let url = rest.split_once("/mcp").unwrap().0.to_owned();
        Self { child, url }
    }

    /// Sends a GET and returns the answer with its head.
    pub(crate) fn get(&self, path: &str) -> String {
        let address = self.url.trim_start_matches("http://");
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads stderr up to a line with this text.
    pub(crate) fn hears(&mut self, words: &str) {
        let lines = BufReader::new(self.child.stderr.as_mut().unwrap()).lines();
        let said = lines.map_while(Result::ok).find(|line| line.contains(words));
        assert!(said.is_some(), "it ended without saying `{words}`");
    }

    /// Ends the process and returns its stderr.
    pub(crate) fn end(mut self, signal: Signal) -> String {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        stderr
    }

    /// Starts a session of a legacy client.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client { address: self.url.replace("http://", ""), session: String::new() };
        let info = json!({ "name": "a-script", "version": "1.2" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let mut head = String::new();
        client.send("initialize", &params).read_to_string(&mut head).unwrap();
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        client.session = session.unwrap_or_else(|| panic!("{head}")).to_owned();
        client
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // It may have been ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Client {
    address: String,
    session: String,
}

impl Client {
    /// Sends a request and returns its connection, from which the answer can be read. Dropping it disconnects.
    pub(crate) fn send(&self, method: &str, params: &Value) -> TcpStream {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let session = match self.session.as_str() {
            "" => String::new(),
            id => format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n"),
        };
        let mut connection = TcpStream::connect(&self.address).unwrap();
        write!(
            connection,
            "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nconnection: close\r\n{session}\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        connection
    }

    /// Calls a tool and returns the answer with its HTTP head.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> String {
        let mut answer = String::new();
        let mut connection = self.begin(tool, arguments);
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Calls a tool without waiting for the answer.
    pub(crate) fn begin(&self, tool: &str, arguments: Value) -> TcpStream {
        self.send("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }
}
