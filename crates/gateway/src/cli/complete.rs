//! `gripfast complete`: the names of servers, tools and prompts that fit what was typed so far. The scripts of `gripfast
//! completions` call it; people do not.

use super::args::Global;
use super::client::{Asked, Client};
use super::config;
use super::exit::Exit;
use super::fleet::small_runtime;
use super::render::Screen;
use super::stop::Stop;
use clap::Args;
use gripfast::wire::results::List;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The words after `gripfast`, the last of them as far as it is typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Verbs whose first word is a server.
const OF_A_SERVER: [&str; 19] = [
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
/// Options that are followed by a value.
const WITH_VALUE: [&str; 6] = ["--config", "--state-dir", "--url", "--output", "-o", "--wait"];
/// A person waits for this at every key.
const LIMIT: Duration = Duration::from_secs(2);

/// A name that is wanted.
#[derive(Debug, PartialEq)]
enum Wanted<'w> {
    Server,
    Of(List, &'w str),
}

/// Prints nothing where nothing is known: a shell that completes shows no errors.
pub(crate) fn run(global: &Global, args: &CompleteArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let Some((typed, before)) = args.words.split_last() else { return Ok(Exit::Ok) };
    let value_of = |option: &str| {
        let at = before.iter().position(|word| word == option)?;
        before.get(at + 1).cloned()
    };
    let global = Global {
        config: value_of("--config").map(PathBuf::from).or_else(|| global.config.clone()),
        state_dir: value_of("--state-dir").map(PathBuf::from).or_else(|| global.state_dir.clone()),
    };
    let Some(wanted) = wanted(before) else { return Ok(Exit::Ok) };
    let url = value_of("--url").and_then(|url| url.parse().ok());
    let names = match (Asked::of(&global, url.as_ref()), &wanted) {
        (Ok(Asked::Gateway(_, Some(fleet))), Wanted::Server) => fleet.names().map(str::to_owned).collect(),
        (Ok(Asked::Gateway(url, _)), Wanted::Of(list, server)) => {
            let asked = async { Client::of(&global, &url).await?.offers(*list).await };
            let offers = small_runtime()?.block_on(async { tokio::time::timeout(LIMIT, asked).await });
            let offers = offers.ok().and_then(Result::ok).unwrap_or_default();
            offers.into_iter().filter(|offer| offer.server == *server).map(|offer| offer.name).collect()
        }
        // Without a gateway the config knows the servers; none is started for its tools.
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
fn wanted(before: &[String]) -> Option<Wanted<'_>> {
    let mut words = Vec::new();
    let mut rest = before.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if WITH_VALUE.contains(&word) {
            rest.next()?;
        } else if !word.starts_with('-') {
            words.push(word);
        }
    }
    match words.as_slice() {
        [verb] if OF_A_SERVER.contains(verb) => Some(Wanted::Server),
        ["call" | "tools", server] => Some(Wanted::Of(List::Tools, server)),
        ["prompts", server] => Some(Wanted::Of(List::Prompts, server)),
        _ => None,
    }
}

/// Whether a shell takes a name for a word and nothing else. Servers choose the names of their tools.
fn is_plain(name: &str) -> bool {
    !name.starts_with('-')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_wanted_where_a_verb_takes_them() {
        let after = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            wanted(&words).map(|wanted| format!("{wanted:?}"))
        };
        assert_eq!(after("call").as_deref(), Some("Server"));
        assert_eq!(after("call --config x.toml -o json demo").as_deref(), Some(r#"Of(Tools, "demo")"#));
        assert_eq!(after("prompts demo").as_deref(), Some(r#"Of(Prompts, "demo")"#));
        for words in ["", "serve", "call demo echo", "call --config"] {
            assert_eq!(after(words), None, "{words}");
        }
    }

    #[test]
    fn a_name_that_a_shell_would_read_as_more_than_a_word_is_left_out() {
        assert!(is_plain("create_issue-2.0"));
        for name in ["$(reboot)", "a b", "`x`", "a;b", "-rf", "*", "a\nb", "~", "a\u{1b}"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
