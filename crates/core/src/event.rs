//! What happens to one upstream, or to the gateway as a whole, as typed facts. Whoever watches turns them into log
//! lines, metrics and feeds; whoever emits them knows nothing about that.

use crate::security::SecurityEvent;
use crate::supervise::status::State;
use crate::text::{duration, names, times};
use std::fmt;
use std::mem::discriminant;
use std::time::Duration;

/// Something worth telling about one upstream, or about the gateway as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is in another state than before.
    StateChanged {
        /// The state it left.
        from: State,
        /// The state it is in.
        to: State,
        /// Why, if it went wrong.
        cause: Option<String>,
    },
    /// An attempt to bring it back begins.
    Restarting {
        /// Restarts within the window, this one included.
        in_window: u32,
    },
    /// It is usable again after having been away.
    Revived {
        /// How long it was away.
        away: Duration,
    },
    /// A link that works is being replaced: the new one is made first.
    Replacing {
        /// Why.
        why: ReplaceCause,
    },
    /// A link that worked was replaced; calls that were under way finish on the old one.
    Replaced,
    /// The replacement could not be made; the present link stays.
    ReplacementFailed {
        /// What happened.
        cause: String,
    },
    /// A spare is ready to take over.
    SpareReady,
    /// The spare takes over.
    SpareUsed,
    /// The spare could not be made, or was lost while it waited; another one is made.
    SpareLost {
        /// What happened.
        cause: String,
    },
    /// Its session was replaced; the link stayed.
    SessionRenewed,
    /// A new session was told what the one before it knew: marked calls, log level, followed resources.
    SessionRestored {
        /// What it could not be told, and why; the first few, if there are many.
        missing: Vec<String>,
    },
    /// Its credential was replaced; the link stayed.
    CredentialRenewed,
    /// Too many failures in a row: calls are refused for a while.
    CircuitOpened {
        /// The failures that did it.
        failures: u32,
        /// When a trial is let through.
        cooldown: Duration,
    },
    /// Calls flow again.
    CircuitClosed,
    /// A principal is refused for a while: the process died several times while its calls alone were in flight.
    PrincipalRefused {
        /// Its name. It is in the log, and in nothing that is read without the admin token.
        principal: String,
        /// How often it died.
        deaths: usize,
        /// For how long it is refused.
        wait: Duration,
    },
    /// A probe was not answered as it should be.
    ProbeFailed {
        /// What happened.
        cause: String,
    },
    /// The machine slept; the link is checked before it is trusted.
    Slept,
    /// Its catalog was listed, and differs from what was known.
    CatalogChanged {
        /// Items that are new.
        added: usize,
        /// Items that are gone.
        removed: usize,
        /// Items that read differently.
        changed: usize,
    },
    /// Its catalog could not be listed; it is tried again.
    CatalogFailed {
        /// What happened.
        cause: String,
    },
    /// It asked or said something, and it could not be known which client it meant: from now on each client that can
    /// be asked has an instance of its own, or every client if several principals could be meant.
    ClientsSeparated,
    /// Which of its tools, prompts and resources go by other names, because another server holds theirs, has changed.
    NamesGaveWay {
        /// What they are called; empty when all have their own names again.
        names: Vec<String>,
    },
    /// Tools of it say something else than what was approved.
    ToolsChanged {
        /// Their names.
        tools: Vec<String>,
        /// Whether they are held back until somebody has looked.
        held: bool,
    },
    /// Somebody approved what tools of it say.
    ToolsApproved {
        /// Their names.
        tools: Vec<String>,
    },
    /// New tools of it have words that somebody should look at twice.
    ToolsSuspicious {
        /// Their names.
        tools: Vec<String>,
    },
    /// Notifications of it were given to no client, because they could have been for any of several principals.
    MessagesDropped {
        /// How many so far.
        dropped: u64,
    },
    /// It offers tools that it did not offer before.
    NewTools {
        /// Their names.
        tools: Vec<String>,
        /// Whether they are held back until they are approved.
        held: bool,
    },
    /// It offers more than `max_tools`: new tools, prompts or resource templates are hidden.
    TooManyTools {
        /// How many are hidden.
        hidden: usize,
        /// The bound.
        limit: usize,
    },
    /// Its instructions, or the texts of prompts or resource templates, differ from what was approved.
    TextsChanged {
        /// What they belong to.
        items: Vec<String>,
        /// Whether clients get the approved text.
        kept: bool,
    },
    /// Lines on its stdout that were not MCP.
    JunkSkipped {
        /// How many so far.
        lines: u64,
        /// The beginning of the last one.
        sample: String,
    },
    /// A failed authentication, an admin action, or a change of keys or trust. It belongs to no upstream.
    Security(SecurityEvent),
}

/// Why a link that works is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceCause {
    /// Somebody asked for it.
    Asked,
    /// It is one of an older config.
    Changed,
    /// It has lived as long as it may.
    Age,
    /// It holds more memory than it may.
    Memory {
        /// How much, in bytes.
        resident: u64,
    },
}

impl Event {
    /// The word for this kind of event in logs, metrics and feeds.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "state_changed",
            Self::Restarting { .. } => "restarting",
            Self::Revived { .. } => "revived",
            Self::Replacing { .. } => "replacing",
            Self::Replaced => "replaced",
            Self::ReplacementFailed { .. } => "replacement_failed",
            Self::SpareReady => "spare_ready",
            Self::SpareUsed => "spare_used",
            Self::SpareLost { .. } => "spare_lost",
            Self::SessionRenewed => "session_renewed",
            Self::SessionRestored { .. } => "session_restored",
            Self::CredentialRenewed => "credential_renewed",
            Self::CircuitOpened { .. } => "circuit_opened",
            Self::CircuitClosed => "circuit_closed",
            Self::PrincipalRefused { .. } => "principal_refused",
            Self::ProbeFailed { .. } => "probe_failed",
            Self::Slept => "slept",
            Self::CatalogChanged { .. } => "catalog_changed",
            Self::CatalogFailed { .. } => "catalog_failed",
            Self::ClientsSeparated => "clients_separated",
            Self::NamesGaveWay { .. } => "names_gave_way",
            Self::ToolsChanged { .. } => "tools_changed",
            Self::ToolsApproved { .. } => "tools_approved",
            Self::ToolsSuspicious { .. } => "tools_suspicious",
            Self::MessagesDropped { .. } => "messages_dropped",
            Self::NewTools { .. } => "new_tools",
            Self::TooManyTools { .. } => "too_many_tools",
            Self::TextsChanged { .. } => "texts_changed",
            Self::JunkSkipped { .. } => "junk_skipped",
            Self::Security(event) => event.word(),
        }
    }

    /// The event without secrets: `text` takes them out of what the server wrote.
    #[must_use]
    pub fn redacted(self, text: impl Fn(&str) -> String) -> Self {
        let names = |names: Vec<String>| names.iter().map(|one| text(one)).collect();
        match self {
            Self::StateChanged { from, to, cause } => {
                Self::StateChanged { from, to, cause: cause.map(|cause| text(&cause)) }
            }
            Self::ReplacementFailed { cause } => Self::ReplacementFailed { cause: text(&cause) },
            Self::SpareLost { cause } => Self::SpareLost { cause: text(&cause) },
            Self::SessionRestored { missing } => Self::SessionRestored { missing: names(missing) },
            Self::ProbeFailed { cause } => Self::ProbeFailed { cause: text(&cause) },
            Self::CatalogFailed { cause } => Self::CatalogFailed { cause: text(&cause) },
            Self::NamesGaveWay { names: all } => Self::NamesGaveWay { names: names(all) },
            Self::ToolsChanged { tools, held } => Self::ToolsChanged { tools: names(tools), held },
            Self::ToolsApproved { tools } => Self::ToolsApproved { tools: names(tools) },
            Self::ToolsSuspicious { tools } => Self::ToolsSuspicious { tools: names(tools) },
            Self::NewTools { tools, held } => Self::NewTools { tools: names(tools), held },
            Self::TextsChanged { items, kept } => Self::TextsChanged { items: names(items), kept },
            Self::JunkSkipped { lines, sample } => Self::JunkSkipped { lines, sample: text(&sample) },
            Self::Restarting { .. }
            | Self::Revived { .. }
            | Self::Replacing { .. }
            | Self::Replaced
            | Self::SpareReady
            | Self::SpareUsed
            | Self::SessionRenewed
            | Self::CredentialRenewed
            | Self::CircuitOpened { .. }
            | Self::CircuitClosed
            | Self::PrincipalRefused { .. }
            | Self::Slept
            | Self::CatalogChanged { .. }
            | Self::ClientsSeparated
            | Self::TooManyTools { .. }
            | Self::Security(_)
            | Self::MessagesDropped { .. } => self,
        }
    }

    /// Whether this says again what `earlier` said. Measures differ each time without being news: how long
    /// it was away, how many lines so far.
    pub fn repeats(&self, earlier: &Self) -> bool {
        let measured = matches!(
            self,
            Self::Restarting { .. }
                | Self::Revived { .. }
                | Self::JunkSkipped { .. }
                | Self::MessagesDropped { .. }
        );
        if measured { discriminant(self) == discriminant(earlier) } else { self == earlier }
    }
}

/// The event as a sentence without its subject, which stands beside it. The only wording there is.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateChanged { from, to, cause } => {
                write!(f, "went from {} to {}", from.word(), to.word())?;
                cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Self::Restarting { in_window } => write!(f, "restarts, {} within the window", times(*in_window)),
            Self::Revived { away } => write!(f, "is back after {}", duration(*away)),
            Self::Replacing { why: ReplaceCause::Asked } => {
                f.write_str("is being replaced, as somebody asked")
            }
            Self::Replacing { why: ReplaceCause::Changed } => {
                f.write_str("is being replaced, for its config has changed")
            }
            Self::Replacing { why: ReplaceCause::Age } => f.write_str("is being replaced: it is old enough"),
            Self::Replacing { why: ReplaceCause::Memory { resident } } => {
                write!(f, "is being replaced: it holds {} MiB", resident >> 20)
            }
            Self::Replaced => f.write_str("was replaced; calls under way finish on the old one"),
            Self::ReplacementFailed { cause } => {
                write!(f, "could not be replaced and stays as it is: {cause}")
            }
            Self::SpareReady => f.write_str("has a spare"),
            Self::SpareUsed => f.write_str("goes on with its spare"),
            Self::SpareLost { cause } => write!(f, "lost its spare: {cause}"),
            Self::SessionRenewed => f.write_str("forgot its session and has a new one"),
            Self::SessionRestored { missing } if missing.is_empty() => {
                f.write_str("knows everything that its session is to know")
            }
            Self::SessionRestored { missing } => {
                write!(f, "lacks some of what its session is to know: {}", missing.join("; "))
            }
            Self::CredentialRenewed => f.write_str("has a new credential"),
            Self::CircuitOpened { failures, cooldown } => {
                let (failed, closed_for) = (times(*failures), duration(*cooldown));
                write!(f, "failed {failed} in a row; calls are refused for {closed_for}")
            }
            Self::CircuitClosed => f.write_str("takes calls again"),
            Self::PrincipalRefused { principal: _, deaths, wait } => {
                let (died, refused_for) = (times(*deaths as u32), duration(*wait));
                write!(
                    f,
                    "died {died} while only calls of one principal were in flight; \
                     calls of that principal are refused for {refused_for}"
                )
            }
            Self::ProbeFailed { cause } => write!(f, "did not answer a probe: {cause}"),
            Self::Slept => f.write_str("is checked before it is used, for the machine slept"),
            Self::CatalogChanged { added, removed, changed } => {
                write!(f, "offers something else: {added} new, {removed} gone, {changed} changed")
            }
            Self::CatalogFailed { cause } => write!(f, "could not be listed: {cause}"),
            Self::ClientsSeparated => f.write_str(
                "sends messages that do not tell which client they are for; clients have their own instance from now on",
            ),
            Self::NamesGaveWay { names } if names.is_empty() => f.write_str("has all its names to itself again"),
            Self::NamesGaveWay { names } => {
                write!(f, "has names that belong to another server; they are renamed: {}", list(names))
            }
            Self::ToolsChanged { tools, held: true } => {
                write!(f, "tools wait for approval and are not called before: {}", list(tools))
            }
            Self::ToolsChanged { tools, held: false } => {
                write!(f, "says something else than what was approved about {}", list(tools))
            }
            Self::ToolsApproved { tools } => write!(f, "has new words approved about {}", list(tools)),
            Self::ToolsSuspicious { tools } => {
                write!(f, "has words that somebody should look at twice about {}", list(tools))
            }
            Self::MessagesDropped { dropped } => {
                write!(f, "sent notifications that name no request to a link that several clients share; not delivered ({dropped} so far)")
            }
            Self::NewTools { tools, held: true } => {
                write!(f, "offers new tools, which are held until they are approved: {}", list(tools))
            }
            Self::NewTools { tools, held: false } => write!(f, "offers new tools: {}", list(tools)),
            Self::TooManyTools { hidden, limit } => {
                write!(f, "offers more than {limit} tools (`max_tools`); {hidden} new items are hidden")
            }
            Self::TextsChanged { items, kept: true } => {
                write!(f, "changed the text of {}; clients get the approved text until it is approved", list(items))
            }
            Self::TextsChanged { items, kept: false } => write!(f, "changed the text of {}", list(items)),
            Self::JunkSkipped { lines, sample } => {
                write!(f, "writes lines to stdout that are not MCP ({lines} so far): {sample}")
            }
            Self::Security(event) => write!(f, "{event}"),
        }
    }
}

fn list(tools: &[String]) -> String {
    names(&tools.iter().map(String::as_str).collect::<Vec<_>>())
}
