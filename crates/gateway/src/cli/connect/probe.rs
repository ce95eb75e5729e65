//! Whether a gateway answers at an address, tried as the client will: the same URL, the same headers.

use crate::cli::doctor::reach::{self, Reach};
use crate::cli::fleet::{Means, runtime, with_host};
use crate::cli::render::{Screen, with_progress};
use crate::cli::stop::Stop;
use gripfast::Code;
use gripfast::config::{Config, ProcessEnvironment, ServerSpec};
use std::time::Duration;
use toml_edit::{DocumentMut, InlineTable, Item, Table, value};

/// A gateway of this machine answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came of trying.
pub(super) enum Answer {
    /// It offers so many tools.
    Tools(usize),
    /// No usable answer: why, and what to do.
    Nothing { why: String, step: String },
}

/// Tries an address.
pub(super) fn of(url: &str, headers: &[(String, String)], screen: &mut Screen) -> Result<Answer, Stop> {
    let Some(spec) = spec(url, headers) else {
        let why = "its headers mean something to the client only, so the address was not tried".to_owned();
        return Ok(Answer::Nothing {
            why,
            step: "`gripfast status` shows whether the gateway runs".to_owned(),
        });
    };
    let trying = reach::of(&spec.target, &ProcessEnvironment);
    let reached = runtime()?.block_on(with_progress(screen, "the gateway", trying));
    let nobody = |why: String| {
        let step = "`gripfast serve` starts the gateway; `--url` names another".to_owned();
        Ok(Answer::Nothing { why, step })
    };
    match reached {
        Reach::NoSuchName { host, why } => return nobody(format!("the name `{host}` is not known ({why})")),
        Reach::Closed { address, why } => return nobody(format!("nothing listens at {address} ({why})")),
        Reach::NotTried | Reach::Open => {}
    }
    with_host(Means::default(), &[("gripfast", &spec)], async |host| {
        let found = with_progress(screen, "the gateway", host.discover(PATIENCE)).await;
        let catalog = found.into_iter().next().map(|row| row.catalog);
        let status = host.status_of("gripfast").ok();
        let cause = status.and_then(|status| status.supervision.cause);
        match catalog {
            Some(Ok(catalog)) => Answer::Tools(catalog.tools.len()),
            Some(Err(error)) => Answer::Nothing {
                why: format!("{url} was tried: {}", cause.unwrap_or(error.text)),
                step: match error.code {
                    Code::NeedsLogin => {
                        "`gripfast keys add NAME` on the gateway's machine makes a key, which the entry sends as \
                         `Authorization: Bearer KEY`"
                    }
                    _ => "`gripfast doctor` says what listens there",
                }
                .to_owned(),
            },
            None => Answer::Nothing { why: "it was not asked".to_owned(), step: String::new() },
        }
    })
}

/// A server at this address; nothing if it could not be one.
fn spec(url: &str, headers: &[(String, String)]) -> Option<ServerSpec> {
    let mut table = Table::new();
    table.insert("url", value(url));
    let pairs: InlineTable = headers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    table.insert("headers", value(pairs));
    let mut servers = Table::new();
    servers.insert("gripfast", Item::Table(table));
    let mut document = DocumentMut::new();
    document.insert("servers", Item::Table(servers));
    let config = Config::parse(&document.to_string(), Config::FILE_NAME.as_ref()).ok()?;
    config.servers.into_iter().next()?.spec.ok()
}
