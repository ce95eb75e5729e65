//! Typed events of one upstream or of the whole gateway. Logs, metrics and event feeds are made from them elsewhere.

use crate::security::SecurityEvent;
use crate::supervise::status::State;
use crate::text::{duration, name_list, times};
use std::fmt;
use std::mem::discriminant;
use std::time::Duration;

/// An event of one upstream, or of the whole gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The state changed.
    StateChanged {
        /// The state before.
        from: State,
        /// The state now.
        to: State,
        /// The cause, if something failed.
        cause: Option<String>,
    },
    /// An attempt to restart the server or reconnect to it begins.
    Restarting {
        /// Restarts within the window, this one included.
        in_window: u32,
    },
    /// The server is usable again after an outage.
    Revived {
        /// Duration of the outage.
        away: Duration,
    },
    /// A working link is being replaced. The new link is made first.
    Replacing {
        /// The cause.
        cause: ReplaceCause,
    },
    /// A working link was replaced; calls in flight finish on the old one.
    Replaced,
    /// The replacement failed; the present link stays.
    ReplacementFailed {
        /// The cause.
        cause: String,
    },
    /// A spare is ready to take over.
    SpareReady,
    /// The spare took over.
    SpareUsed,
    /// The spare could not be made, or was lost while it waited; another one is made.
    SpareLost {
        /// The cause.
        cause: String,
    },
    /// The session was replaced; the link stayed.
    SessionRenewed,
    /// The session state was restored in a new session: marked calls, log level, subscriptions.
    SessionRestored {
        /// The missing parts with their causes; the first few if there are many.
        missing: Vec<String>,
    },
    /// The credential was replaced; the link stayed.
    CredentialRenewed,
    /// Too many consecutive failures: calls are refused for a while.
    CircuitOpened {
        /// Number of failures.
        failures: u32,
        /// Time until a trial call is admitted.
        cooldown: Duration,
    },
    /// Calls are admitted again.
    CircuitClosed,
    /// A principal is refused for a while: the process died several times while only its calls were in flight.
    PrincipalRefused {
        /// Its name. It is shown in the log, and in nothing that can be read without the admin token.
        principal: String,
        /// Number of deaths.
        deaths: usize,
        /// Duration of the refusal.
        wait: Duration,
    },
    /// A probe failed.
    ProbeFailed {
        /// The cause.
        cause: String,
    },
    /// This machine was asleep; the link is checked before it is used.
    MachineSlept,
    /// The catalog was listed and differs from the known one.
    CatalogChanged {
        /// Number of new items.
        added: usize,
        /// Number of removed items.
        removed: usize,
        /// Number of changed items.
        changed: usize,
    },
    /// The catalog could not be listed; it is tried again.
    CatalogFailed {
        /// The cause.
        cause: String,
    },
    /// The server sent a request or message that could not be attributed to a client. From now on each client that can
    /// answer requests gets its own instance, or every client if several principals could be meant.
    ClientsIsolated,
    /// The set of items that are renamed because of name conflicts with other servers changed.
    NameConflicts {
        /// The public names; empty when all items have their own names again.
        names: Vec<String>,
    },
    /// Tools differ from their approved version.
    ToolsChanged {
        /// Their names.
        tools: Vec<String>,
        /// True if they are held back until an operator approves them.
        held: bool,
    },
    /// An operator approved changed tools.
    ToolsApproved {
        /// Their names.
        tools: Vec<String>,
    },
    /// New tools have suspicious text that an operator should review.
    ToolsSuspicious {
        /// Their names.
        tools: Vec<String>,
    },
    /// Notifications were delivered to no client, because they could have been for any of several principals.
    MessagesDropped {
        /// Total number so far.
        dropped: u64,
    },
    /// The server offers new tools.
    NewTools {
        /// Their names.
        tools: Vec<String>,
        /// True if they are held back until they are approved.
        held: bool,
    },
    /// The server offers more than `max_tools`: new tools, prompts or resource templates are hidden.
    TooManyTools {
        /// Number of hidden items.
        hidden: usize,
        /// The limit.
        limit: usize,
    },
    /// The server's instructions, or texts of prompts or resource templates, differ from their approved version.
    TextsChanged {
        /// The items.
        items: Vec<String>,
        /// True if clients still get the approved text.
        kept: bool,
    },
    /// The server wrote lines to stdout that are not MCP.
    JunkSkipped {
        /// Total number so far.
        lines: u64,
        /// The start of the last one.
        sample: String,
    },
    /// A failed authentication, an admin action, or a change of keys or trust. It belongs to no server.
    Security(SecurityEvent),
}

/// The cause for which a working link is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceCause {
    /// An operator requested it.
    Requested,
    /// It was made with an older config.
    ConfigChanged,
    /// It reached `max_lifetime`.
    Age,
    /// It uses more memory than `max_rss`.
    Memory {
        /// Resident memory in bytes.
        resident: u64,
    },
}

impl Event {
    /// The kind of event in logs, metrics and feeds.
    pub const fn kind(&self) -> &'static str {
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
            Self::MachineSlept => "machine_slept",
            Self::CatalogChanged { .. } => "catalog_changed",
            Self::CatalogFailed { .. } => "catalog_failed",
            Self::ClientsIsolated => "clients_isolated",
            Self::NameConflicts { .. } => "name_conflicts",
            Self::ToolsChanged { .. } => "tools_changed",
            Self::ToolsApproved { .. } => "tools_approved",
            Self::ToolsSuspicious { .. } => "tools_suspicious",
            Self::MessagesDropped { .. } => "messages_dropped",
            Self::NewTools { .. } => "new_tools",
            Self::TooManyTools { .. } => "too_many_tools",
            Self::TextsChanged { .. } => "texts_changed",
            Self::JunkSkipped { .. } => "junk_skipped",
            Self::Security(event) => event.kind(),
        }
    }

    /// The event with the server's texts redacted by `text`.
    #[must_use]
    pub fn redacted(mut self, text: impl Fn(&str) -> String) -> Self {
        match &mut self {
            Self::StateChanged { cause, .. } => *cause = cause.as_deref().map(text),
            Self::ReplacementFailed { cause: said }
            | Self::SpareLost { cause: said }
            | Self::ProbeFailed { cause: said }
            | Self::CatalogFailed { cause: said }
            | Self::JunkSkipped { sample: said, .. } => *said = text(said),
            Self::SessionRestored { missing: names }
            | Self::NameConflicts { names }
            | Self::ToolsChanged { tools: names, .. }
            | Self::ToolsApproved { tools: names }
            | Self::ToolsSuspicious { tools: names }
            | Self::NewTools { tools: names, .. }
            | Self::TextsChanged { items: names, .. } => names.iter_mut().for_each(|name| *name = text(name)),
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
            | Self::MachineSlept
            | Self::CatalogChanged { .. }
            | Self::ClientsIsolated
            | Self::TooManyTools { .. }
            | Self::Security(_)
            | Self::MessagesDropped { .. } => {}
        }
        self
    }

    /// Returns whether this event repeats `earlier`. Measured values, such as the duration of an outage or the number
    /// of lines, do not make it a new event.
    pub fn is_repeat_of(&self, earlier: &Self) -> bool {
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

/// The text of the event without its server, which is shown beside it. The only place with these texts.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateChanged { from, to, cause } => {
                write!(f, "state changed from {} to {}", from.as_str(), to.as_str())?;
                cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Self::Restarting { in_window } => {
                write!(f, "is restarting ({} within the window)", times(*in_window))
            }
            Self::Revived { away } => write!(f, "is back after {}", duration(*away)),
            Self::Replacing { cause: ReplaceCause::Requested } => f.write_str("is being replaced on request"),
            Self::Replacing { cause: ReplaceCause::ConfigChanged } => {
                f.write_str("is being replaced because its config changed")
            }
            Self::Replacing { cause: ReplaceCause::Age } => {
                f.write_str("is being replaced because it has reached `recycle.max_lifetime`")
            }
            Self::Replacing { cause: ReplaceCause::Memory { resident } } => {
                let mebibytes = resident >> 20;
                write!(f, "is being replaced because it uses {mebibytes} MiB of memory (`recycle.max_rss`)")
            }
            Self::Replaced => f.write_str("was replaced; calls in flight finish on the old connection"),
            Self::ReplacementFailed { cause } => {
                write!(f, "replacement failed; the current connection stays in use: {cause}")
            }
            Self::SpareReady => f.write_str("has a spare process ready"),
            Self::SpareUsed => f.write_str("continues with its spare process"),
            Self::SpareLost { cause } => write!(f, "lost its spare process: {cause}"),
            Self::SessionRenewed => f.write_str("lost its session and has a new one"),
            Self::SessionRestored { missing } if missing.is_empty() => f.write_str("session state restored"),
            Self::SessionRestored { missing } => {
                write!(f, "session state restored in part; missing: {}", missing.join("; "))
            }
            Self::CredentialRenewed => f.write_str("has a new credential"),
            Self::CircuitOpened { failures: 1, cooldown } => {
                write!(f, "circuit opened: a call failed; calls are refused for {}", duration(*cooldown))
            }
            Self::CircuitOpened { failures, cooldown } => {
                let (failed, refused_for) = (times(*failures), duration(*cooldown));
                write!(f, "circuit opened: calls failed {failed} in a row; calls are refused for {refused_for}")
            }
            Self::CircuitClosed => f.write_str("accepts calls again"),
            Self::PrincipalRefused { principal: _, deaths, wait } => {
                let (died, refused_for) = (times(*deaths as u32), duration(*wait));
                write!(
                    f,
                    "died {died} while only calls of one principal were in flight; \
                     calls of that principal are refused for {refused_for}"
                )
            }
            Self::ProbeFailed { cause } => write!(f, "did not answer a probe: {cause}"),
            Self::MachineSlept => f.write_str("is checked before use because this machine was asleep"),
            Self::CatalogChanged { added, removed, changed } => {
                write!(f, "catalog changed: {added} added, {removed} removed, {changed} changed")
            }
            Self::CatalogFailed { cause } => write!(f, "catalog could not be listed: {cause}"),
            Self::ClientsIsolated => f.write_str(
                "sent a message that could be for several clients; clients get dedicated instances from now on",
            ),
            Self::NameConflicts { names } if names.is_empty() => {
                f.write_str("name conflicts resolved; all items have their own names again")
            }
            Self::NameConflicts { names } => {
                write!(f, "items renamed because of name conflicts with other servers: {}", list(names))
            }
            Self::ToolsChanged { tools, held: true } => {
                write!(f, "changed tools wait for approval and cannot be called: {}", list(tools))
            }
            Self::ToolsChanged { tools, held: false } => {
                write!(f, "tools changed since they were approved: {}", list(tools))
            }
            Self::ToolsApproved { tools } => write!(f, "changed tools approved: {}", list(tools)),
            Self::ToolsSuspicious { tools } => {
                write!(f, "suspicious text in the descriptions of new tools, please review: {}", list(tools))
            }
            Self::MessagesDropped { dropped } => {
                write!(
                    f,
                    "sent notifications that name no request over a connection that several clients share; \
                     they are not delivered ({dropped} so far)"
                )
            }
            Self::NewTools { tools, held: true } => {
                write!(f, "offers new tools, which are held until they are approved: {}", list(tools))
            }
            Self::NewTools { tools, held: false } => write!(f, "offers new tools: {}", list(tools)),
            Self::TooManyTools { hidden, limit } => {
                write!(f, "offers more than {limit} tools (`max_tools`); {hidden} new items are hidden")
            }
            Self::TextsChanged { items, kept: true } => {
                let items = list(items);
                write!(
                    f,
                    "changed the text of {items}; clients get the approved text until the new one is approved"
                )
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
    name_list(&tools.iter().map(String::as_str).collect::<Vec<_>>())
}
