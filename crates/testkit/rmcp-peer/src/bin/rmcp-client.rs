//! The client of the official Rust SDK, controlled by a test: both eras.
//!
//! ```text
//! rmcp-client MODE stdio COMMAND [ARG...]
//! rmcp-client MODE http URL
//! ```
//!
//! MODE is `auto`, `legacy`, or a version of the modern era. Reads commands from stdin and answers each on stdout,
//! one line of JSON per command, until stdin ends. `crates/testkit/src/clients.rs` lists the commands.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, GetPromptRequestParams, Implementation, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ResourceContents,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, RequestContext, RunningService, ServiceError,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Notify;

/// Messages received during a command, and the response to elicitations.
#[derive(Default)]
struct Handler {
    received: Mutex<Received>,
    progressed: Notify,
}

#[derive(Default)]
struct Received {
    answer: Option<ElicitationAction>,
    asked: Vec<String>,
    progress: Vec<f64>,
}

impl Handler {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().build(),
            Implementation::new("rmcp-client", "1"),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let mut heard = self.received();
        heard.asked.push(message);
        Ok(match heard.answer.clone() {
            None => ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "ok": true })),
            Some(answer) => ElicitResult::new(answer),
        })
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.received().progress.push(params.progress);
        self.progressed.notify_one();
    }
}

type Client = RunningService<RoleClient, Handler>;
type Failure = Box<dyn Error>;

async fn connect(mode: &str, transport: &str, target: &[String]) -> Result<Client, Failure> {
    let modern = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match mode {
        "legacy" => ClientLifecycleMode::Initialize,
        "auto" => ClientLifecycleMode::Auto { preferred_versions: modern, legacy_version: None },
        _ => ClientLifecycleMode::Discover { preferred_versions: modern },
    };
    let (first, rest) = target.split_first().ok_or("where to?")?;
    let handler = Handler::default();
    Ok(match transport {
        "stdio" => {
            let mut command = tokio::process::Command::new(first);
            command.args(rest);
            handler.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?
        }
        "http" => {
            let transport = StreamableHttpClientTransport::from_uri(first.as_str());
            handler.serve_with_lifecycle(transport, lifecycle).await?
        }
        other => return Err(format!("no such transport: {other}").into()),
    })
}

async fn execute(client: &Client, command: &Value) -> Result<Value, Failure> {
    let word = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
    Ok(match word("do").as_str() {
        "meet" => {
            let info = client.peer_info().ok_or("no server is connected")?;
            let name = info.server_info.as_ref().map(|info| info.name.clone());
            json!({ "version": info.protocol_version, "server": name })
        }
        "list" => {
            let tools = client.list_all_tools().await?;
            let resources = client.list_all_resources().await?;
            let prompts = client.list_all_prompts().await?;
            json!({
                "tools": tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
                "resources": resources.iter().map(|resource| &*resource.uri).collect::<Vec<_>>(),
                "prompts": prompts.iter().map(|prompt| &*prompt.name).collect::<Vec<_>>(),
            })
        }
        "call" => {
            let mut answer = call(client, command).await;
            let heard = client.service().received();
            answer["asked"] = json!(heard.asked);
            answer["progress"] = json!(heard.progress);
            answer
        }
        "together" => {
            let calls = command["calls"].as_array().ok_or("no calls")?;
            Value::Array(join_all(calls.iter().map(|command| call(client, command))).await)
        }
        "abandon" => tokio::select! {
            _ = call(client, command) => json!({ "abandoned": false }),
            // Dropping the future cancels the request.
            () = client.service().progressed.notified() => json!({ "abandoned": true }),
        },
        "read" => {
            let read = client.read_resource(ReadResourceRequestParams::new(word("uri"))).await?;
            match read.contents.first() {
                Some(ResourceContents::TextResourceContents { text, .. }) => json!({ "text": text }),
                _ => json!({ "text": null }),
            }
        }
        "prompt" => {
            let mut params = GetPromptRequestParams::new(word("name"));
            params.arguments = command["arguments"].as_object().cloned();
            let prompt = client.get_prompt(params).await?;
            let said = prompt.messages.first().and_then(|message| message.content.as_text());
            json!({ "text": said.map(|said| said.text.clone()) })
        }
        other => return Err(format!("no such command: {other}").into()),
    })
}

async fn call(client: &Client, command: &Value) -> Value {
    let mut params = CallToolRequestParams::new(command["tool"].as_str().unwrap_or_default().to_owned());
    params.arguments = command["arguments"].as_object().cloned();
    match client.call_tool(params).await {
        Ok(result) => json!({
            "text": result.content.first().and_then(|first| first.as_text()).map(|first| first.text.clone()),
            "structured": result.structured_content,
            "failed": result.is_error.unwrap_or(false),
        }),
        Err(ServiceError::McpError(error)) => {
            json!({ "error": { "code": error.code.0, "message": error.message } })
        }
        Err(error) => json!({ "error": { "code": null, "message": error.to_string() } }),
    }
}

#[expect(clippy::print_stdout, reason = "stdout is the way to the test")]
async fn run(words: &[String]) -> Result<(), Failure> {
    let [mode, transport, target @ ..] = words else {
        return Err("usage: rmcp-client MODE stdio|http TARGET...".into());
    };
    let client = connect(mode, transport, target).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let answer = (command["answer"] == "decline").then_some(ElicitationAction::Decline);
        *client.service().received() = Received { answer, ..Received::default() };
        println!("{}", execute(&client, &command).await?);
    }
    client.cancel().await?;
    Ok(())
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line program says its errors on stderr")]
async fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rmcp-client: {error}");
            ExitCode::FAILURE
        }
    }
}
