//! A program that embeds a host: one server, a call, a crash, and the next call.
//!
//! `cargo build --release && cargo run -p gripfast --example embed`, from the root of the checkout.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use gripfast::config::Config;
use gripfast::{Answer, CallError, Host};
use gripfast_core::json_text::JsonText;
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::load(Path::new("examples/demo.toml"))?;
    let host = Host::builder().client_info("embed-example", "0.2.0").build();
    for server in config.servers {
        match server.spec {
            Ok(spec) => host.spawn(&server.name, spec)?,
            // Status shows the server with its cause; the others work.
            Err(findings) => host.spawn_broken(&server.name, &findings[0].to_string())?,
        }
    }

    let mut events = host.subscribe_events();
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            println!("  event: {} {}", event.server.as_deref().unwrap_or("gateway"), event.event.kind());
        }
    });

    println!("echo: {}", call(&host, "echo", json!({ "text": "hello" })).await?);

    // The server dies during this call, so it is unknown whether the tool did its work.
    match call(&host, "crash", json!({})).await {
        Ok(answer) => println!("crash: {answer}"),
        Err(error) => println!("crash: {} ({})", error, error.code.as_str()),
    }

    // The host restarts the server, and this call waits for the new process.
    println!("echo: {}", call(&host, "echo", json!({ "text": "still here" })).await?);
    println!("restarts: {}", host.server_status("demo")?.supervision.restarts);

    host.shutdown().await;
    Ok(())
}

/// Calls a tool of `demo` and returns the first text of its result.
async fn call(host: &Host, tool: &str, arguments: Value) -> Result<String, CallError> {
    let arguments = JsonText::of(&arguments).expect("a JSON value prints as JSON");
    let answer = host.call("demo", tool, Some(arguments)).await?;
    Ok(first_text(&answer))
}

/// The first text of the result; a JSON-RPC error of the server is an answer too.
fn first_text(answer: &Answer) -> String {
    match answer.result() {
        Ok(result) => {
            let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
            result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
        }
        Err((code, message)) => format!("the server declined: {message} ({code})"),
    }
}
