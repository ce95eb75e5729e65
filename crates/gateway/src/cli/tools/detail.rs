//! Details of one tool, one resource or one prompt.

use super::{ListKind, ListedItem, item_word, list_failure};
use crate::cli::args::{GlobalArgs, OutputFormat};
use crate::cli::call::server_error;
use crate::cli::config;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::local_host::{HostOptions, runtime, with_host};
use crate::cli::mcp_client;
use crate::cli::mcp_client::{McpClient, ToolSource, require_server};
use crate::cli::render::{Screen, pretty, with_progress};
use gripfast::Json;
use gripfast::wire::Outcome;
use gripfast::wire::patch::{Object, Patch};
use gripfast::wire::results::List;
use serde_json::Value;
use std::io;

/// Prints a tool: its names, the full description and the schemas.
pub(super) fn show_tool(tool: &ListedItem, screen: &mut Screen) -> io::Result<()> {
    screen.line(&tool.key)?;
    if let Some(public) = &tool.public {
        screen.line(&format!("client name: {public}"))?;
    }
    let hints = tool.hints();
    if !hints.is_empty() {
        screen.line(&format!("hints: {hints}"))?;
    }
    let description = tool.text("description");
    if !description.trim().is_empty() {
        screen.line(&format!("\n{}", description.trim()))?;
    }
    let object = Object::parse(&tool.raw).ok();
    for (member, title) in [("inputSchema", "arguments"), ("outputSchema", "structured result")] {
        if let Some(schema) = object.as_ref().and_then(|object| object.get(member)) {
            screen.line(&format!("\n{title} (JSON Schema):\n{}", pretty(schema.get())))?;
        }
    }
    Ok(())
}

/// The arguments of a prompt: required ones plain, others in brackets.
pub(super) fn prompt_arguments(prompt: &ListedItem) -> String {
    let prompt: Value = serde_json::from_str(prompt.raw.get()).unwrap_or_default();
    let arguments = prompt["arguments"].as_array().into_iter().flatten();
    let shown = arguments.filter_map(|argument| {
        let name = argument["name"].as_str()?;
        Some(if argument["required"] == true { name.to_owned() } else { format!("[{name}]") })
    });
    shown.collect::<Vec<_>>().join(" ")
}

impl ListKind<'_> {
    /// Reads one resource, or gets one prompt.
    pub(super) fn get(
        &self,
        global: &GlobalArgs,
        server: &str,
        key: &str,
        arguments: Option<&[(String, String)]>,
        screen: &mut Screen,
    ) -> Result<Exit, CommandError> {
        let method = if self.list == List::Prompts { "prompts/get" } else { "resources/read" };
        let params = |name: &str| {
            let params = Patch::new().set_text(self.list.item_key(), name);
            let arguments = arguments.filter(|arguments| !arguments.is_empty()).map(|arguments| {
                arguments
                    .iter()
                    .fold(Patch::new(), |object, (key, value)| object.set_text(key.clone(), value))
                    .to_object()
            });
            match arguments {
                Some(arguments) => params.set_owned("arguments", arguments).to_object(),
                None => params.to_object(),
            }
        };
        let what = format!("server `{server}`");
        let result = match ToolSource::resolve(global, self.url)? {
            ToolSource::Gateway(url, fleet) => {
                let asking = async {
                    require_server(&url, fleet.as_deref(), server)?;
                    let client = McpClient::connect(global, &url).await?;
                    let offers = client.offers(self.list).await?;
                    let its = || offers.iter().filter(|offer| offer.server == server);
                    let public = match its().find(|offer| offer.name == key) {
                        Some(offer) => offer.public.as_str(),
                        None if self.list == List::Prompts && its().next().is_some() => {
                            let names = its().map(|offer| &*offer.name);
                            return Err(mcp_client::unknown_item(self.list, server, key, names));
                        }
                        // A URI of a template, or of a server that has not been listed yet: the gateway finds out.
                        None => key,
                    };
                    client.request(method, &params(public)).await
                };
                let answer = runtime()?.block_on(with_progress(screen, &what, asking))?;
                match mcp_client::outcome(&answer).ok_or_else(|| mcp_client::invalid_answer(&url))? {
                    Outcome::Result(result) => result.to_owned(),
                    Outcome::Error(error) => {
                        let failure = mcp_client::failure_in_error(&error)
                            .unwrap_or_else(|| server_error(server, &error));
                        let word = item_word(self.list);
                        let hint = format!("`gripfast {word}s {server}` lists its {word}s");
                        return Err(match failure.hint {
                            None => failure.with_hint(hint).into(),
                            Some(_) => failure.into(),
                        });
                    }
                }
            }
            ToolSource::Config => {
                let opened = config::open(global, screen)?;
                let mut spec = opened.server(server).and_then(config::server_spec)?.clone();
                spec.supervision.timeouts.reconnect_wait = self.wait;
                let host_options =
                    HostOptions { logins: Some(opened.logins(global)?), ..HostOptions::default() };
                let answer = with_host(host_options, &[(server, &spec)], async |host| {
                    let asking = host.request(server, method, Some(params(key)));
                    with_progress(screen, &what, asking).await
                })?;
                let answer = answer
                    .map_err(|error| config::without_gateway_hints(global, server, list_failure(error)))?;
                match answer.outcome() {
                    Outcome::Result(result) => result.to_owned(),
                    Outcome::Error(error) => return Err(server_error(server, &error).into()),
                }
            }
        };
        match self.form {
            OutputFormat::Json => screen.raw_json(result.get())?,
            OutputFormat::Text => {
                let lines = shown(self.list, &result);
                lines.iter().try_for_each(|line| screen.line(line))?;
                if lines.is_empty() {
                    screen.message(&format!("the {} `{key}` is empty", item_word(self.list)))?;
                }
            }
        }
        Ok(Exit::Ok)
    }
}

/// The lines of a resource or prompt. A result that does not follow MCP is shown whole.
fn shown(list: List, result: &Json) -> Vec<String> {
    let parsed: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let whole = || vec![pretty(result.get())];
    if list == List::Prompts {
        let Some(messages) = parsed["messages"].as_array() else { return whole() };
        let line = |message: &Value| {
            let role = message["role"].as_str().unwrap_or("?");
            let content = &message["content"];
            match content["text"].as_str() {
                Some(text) => format!("{role}: {text}"),
                None => format!("{role}: [{}]", content["type"].as_str().unwrap_or("unknown content")),
            }
        };
        return messages.iter().map(line).collect();
    }
    let Some(contents) = parsed["contents"].as_array() else { return whole() };
    let line = |content: &Value| match (content["text"].as_str(), content["blob"].as_str()) {
        (Some(text), _) => text.to_owned(),
        (None, blob) => {
            let kind = content["mimeType"].as_str().unwrap_or("binary");
            format!("[{kind}, {} bytes of base64]", blob.map_or(0, str::len))
        }
    };
    contents.iter().map(line).collect()
}
