//! `gripfast complete`: names of servers, tools and prompts that complete a command line. The scripts of `gripfast
//! completions` call it.

use super::args::GlobalArgs;
use super::config;
use super::error::CommandError;
use super::exit::Exit;
use super::local_host::small_runtime;
use super::mcp_client::{McpClient, ToolSource};
use super::render::Screen;
use clap::Args;
use gripfast::wire::results::List;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// Words after `gripfast`; the last one may be incomplete
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Commands whose first argument is a server.
const SERVER_VERBS: [&str; 19] = [
    "status",
    "ls",
    "reconnect",
    "restart",
    "reload",
    "stop",
    "start",
    "logs",
    "events",
    "doctor",
    "tools",
    "resources",
    "prompts",
    "call",
    "login",
    "logout",
    "remove",
    "enable",
    "disable",
];
/// Options that take a value.
const VALUE_OPTIONS: [&str; 6] = ["--config", "--state-dir", "--url", "--output", "-o", "--wait"];
/// Time limit, because the user waits at the prompt.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The kind of name to complete.
#[derive(Debug, PartialEq)]
enum Wanted<'w> {
    Server,
    Of(List, &'w str),
}

/// Prints the matching names. Prints nothing on errors, which a completing shell could not show.
pub(crate) fn run(
    global: &GlobalArgs,
    args: &CompleteArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let Some((typed, before)) = args.words.split_last() else { return Ok(Exit::Ok) };
    let value_of = |option: &str| {
        let at = before.iter().position(|word| word == option)?;
        before.get(at + 1).cloned()
    };
    let global = GlobalArgs {
        config: value_of("--config").map(PathBuf::from).or_else(|| global.config.clone()),
        state_dir: value_of("--state-dir").map(PathBuf::from).or_else(|| global.state_dir.clone()),
    };
    let Some(wanted) = name_kind(before) else { return Ok(Exit::Ok) };
    let url = value_of("--url").and_then(|url| url.parse().ok());
    let names = match (ToolSource::resolve(&global, url.as_ref()), &wanted) {
        (Ok(ToolSource::Gateway(_, Some(fleet))), Wanted::Server) => {
            fleet.names().map(str::to_owned).collect()
        }
        (Ok(ToolSource::Gateway(url, _)), Wanted::Of(list, server)) => {
            let listing = async { McpClient::connect(&global, &url).await?.offers(*list).await };
            let offers = small_runtime()?.block_on(async { tokio::time::timeout(TIMEOUT, listing).await });
            let offers = offers.ok().and_then(Result::ok).unwrap_or_default();
            offers.into_iter().filter(|offer| offer.server == *server).map(|offer| offer.name).collect()
        }
        // Without a gateway the config has the server names; no server is started to list its tools.
        (_, Wanted::Server) => match config::open(&global, screen) {
            Ok(opened) => opened.config.servers.into_iter().map(|entry| entry.name).collect(),
            Err(_) => Vec::new(),
        },
        (_, Wanted::Of(..)) => Vec::new(),
    };
    for name in names.iter().filter(|name| name.starts_with(typed.as_str()) && is_plain(name)) {
        screen.line(name)?;
    }
    Ok(Exit::Ok)
}

/// The kind of name that comes after these words.
fn name_kind(before: &[String]) -> Option<Wanted<'_>> {
    let mut words = Vec::new();
    let mut rest = before.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if VALUE_OPTIONS.contains(&word) {
            rest.next()?;
        } else if !word.starts_with('-') {
            words.push(word);
        }
    }
    match words.as_slice() {
        [verb] if SERVER_VERBS.contains(verb) => Some(Wanted::Server),
        ["call" | "tools", server] => Some(Wanted::Of(List::Tools, server)),
        ["prompts", server] => Some(Wanted::Of(List::Prompts, server)),
        _ => None,
    }
}

/// Returns true if a shell reads the name as one plain word. Servers choose the names of their tools, so they are not
/// trusted.
fn is_plain(name: &str) -> bool {
    !name.starts_with('-')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_where_a_verb_takes_them() {
        let after = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            name_kind(&words).map(|wanted| format!("{wanted:?}"))
        };
        assert_eq!(after("call").as_deref(), Some("Server"));
        assert_eq!(after("call --config x.toml -o json demo").as_deref(), Some(r#"Of(Tools, "demo")"#));
        assert_eq!(after("prompts demo").as_deref(), Some(r#"Of(Prompts, "demo")"#));
        for words in ["", "serve", "call demo echo", "call --config"] {
            assert_eq!(after(words), None, "{words}");
        }
    }

    #[test]
    fn a_name_with_shell_metacharacters_is_left_out() {
        assert!(is_plain("create_issue-2.0"));
        for name in ["$(reboot)", "a b", "`x`", "a;b", "-rf", "*", "a\nb", "~", "a\u{1b}"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
