//! A small MCP server on the official Rust SDK, as a real peer for the tests.
//!
//! It offers the same as the other peers in `crates/testkit/peers`: `echo`, `add`, `counter`, `sleep`, a resource and
//! a prompt. It uses stdio unless `--http ADDR` is given, and speaks both protocol eras, as the SDK does. It shares
//! no code with gripfast.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt, prompt, prompt_handler, prompt_router, schemars, tool,
    tool_handler, tool_router,
};

const GREETING_URI: &str = "peer://greeting";
const GREETING: &str = "hello from rmcp";

#[derive(Clone)]
struct Peer {
    counter_file: Option<Arc<Path>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Counter {
    #[serde(default)]
    ms: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sleep {
    ms: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greet {
    name: String,
}

#[tool_router]
impl Peer {
    #[tool(description = "Say the text back.", annotations(read_only_hint = true))]
    async fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    #[tool(description = "Add two whole numbers.", annotations(read_only_hint = true))]
    async fn add(&self, Parameters(Add { a, b }): Parameters<Add>) -> Result<String, String> {
        a.checked_add(b).map(|sum| sum.to_string()).ok_or_else(|| "the sum does not fit".to_owned())
    }

    #[tool(
        description = "Append a line to the counter file and return the number of lines, after this many milliseconds."
    )]
    async fn counter(&self, Parameters(Counter { ms }): Parameters<Counter>) -> Result<String, String> {
        let path = self.counter_file.as_deref().ok_or("started without --counter-file")?;
        let lines = append_and_count(path).map_err(|error| error.to_string())?;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(lines.to_string())
    }

    #[tool(description = "Wait for this many milliseconds, then answer.", annotations(read_only_hint = true))]
    async fn sleep(&self, Parameters(Sleep { ms }): Parameters<Sleep>) -> String {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        format!("slept {ms} ms")
    }
}

#[prompt_router]
impl Peer {
    #[prompt(name = "greet", description = "Ask for a greeting.")]
    async fn greet(&self, Parameters(Greet { name }): Parameters<Greet>) -> Vec<rmcp::model::PromptMessage> {
        vec![rmcp::model::PromptMessage::new_text(rmcp::model::Role::User, format!("Greet {name}."))]
    }
}

#[tool_handler]
#[prompt_handler]
impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build(),
        )
        .with_instructions("A peer for tests.")
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(GREETING_URI, "greeting")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != GREETING_URI {
            return Err(ErrorData::resource_not_found(format!("no resource {}", request.uri), None));
        }
        Ok(ReadResourceResult::new(vec![ResourceContents::text(GREETING, GREETING_URI)]).into())
    }
}

/// Appends one line per execution, so that a test can count executions instead of answers.
fn append_and_count(path: &Path) -> io::Result<usize> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(b"+\n")?;
    Ok(std::fs::read_to_string(path)?.lines().count())
}

struct Options {
    http: Option<SocketAddr>,
    counter_file: Option<PathBuf>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { http: None, counter_file: std::env::var_os("PEER_COUNTER_FILE").map(PathBuf::from) };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--http" => {
                    options.http = Some(value()?.parse().map_err(|error| format!("--http: {error}"))?)
                }
                "--counter-file" => options.counter_file = Some(value()?.into()),
                _ => return Err(format!("unknown argument `{arg}`")),
            }
        }
        Ok(options)
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let peer = Peer { counter_file: options.counter_file.map(Arc::from) };
    let Some(address) = options.http else {
        peer.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    };
    let service = StreamableHttpService::new(
        move || Ok(peer.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line program says its errors on stderr")]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("rmcp-peer: {error}\nusage: rmcp-peer [--http ADDR] [--counter-file PATH]");
            return ExitCode::FAILURE;
        }
    };
    match serve(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rmcp-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
