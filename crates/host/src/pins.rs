//! The pins of one server: what its tools said when they were first seen, and what is done about those that say
//! something else. What counts as a change is decided in `core`; here pins are kept, shared by all instances of the
//! server and with other processes through the store, and held up against what each instance says.

pub use gripfast_core::policy::difference::Difference;
pub use gripfast_core::policy::pins::{Mode as PinMode, Quarantined};
pub use gripfast_core::policy::suspicion::Suspicion;

use crate::clock::Clock;
use crate::store::Shelf;
use crate::upstream::tool_item;
use gripfast_core::catalog::Catalog;
use gripfast_core::event::Event;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::Epoch;
use gripfast_core::policy::pins::{FirstUse, Judged, Pins};
use gripfast_core::policy::suspicion::suspicions;
use gripfast_core::text;
use gripfast_core::time::Wall;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// One pinned tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTool {
    /// Its name, as it was approved.
    pub tool: String,
    /// What was approved, in short. Empty for a tool whose approval was lost.
    pub digest: String,
    /// When it was first seen.
    pub first_seen: Wall,
    /// When somebody approved what it says, if anybody had to.
    pub approved: Option<Wall>,
    /// What changed since, if something did.
    pub change: Option<Quarantined>,
    /// What to look at twice in what was approved.
    pub suspicions: Vec<Suspicion>,
}

/// The pins of one server in summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinCounts {
    /// Tools that are pinned.
    pub pinned: usize,
    /// Tools that say something else than what was approved.
    pub changed: usize,
}

/// What all instances of one server are held up against.
#[derive(Default)]
pub(crate) struct Approved(Mutex<Known>);

#[derive(Default)]
struct Known {
    pins: Pins,
    /// What everybody's instance said last. Others that say the same of their tools keep no catalog of their own.
    said: Weak<Catalog>,
}

impl Approved {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One instance, held up against the pins of its server.
pub(crate) struct Pinboard {
    clock: Clock,
    /// Locked after the board.
    approved: Arc<Approved>,
    board: Mutex<Board>,
    /// Whether a call has to be looked at.
    holds_any: AtomicBool,
    /// The number of the link on which the tools were last held up against the pins.
    compared_on: AtomicU64,
}

struct Board {
    mode: PinMode,
    shelf: Shelf,
    /// What the instance said last, all of it, if it has said anything.
    said: Option<Arc<Catalog>>,
    judged: Judged,
    /// Whether the store has lost approvals of the server. A tool without a pin is not trusted then.
    has_lost: bool,
    /// How often something was held up against the pins.
    screenings: u64,
}

impl Board {
    fn new(mode: PinMode, shelf: Shelf) -> Self {
        Self { mode, shelf, said: None, judged: Judged::default(), has_lost: false, screenings: 0 }
    }

    /// Takes over what the store has, and compares it with what the witness remembers.
    fn load(&mut self, pins: &mut Pins) {
        if let Some(stored) = self.shelf.pins() {
            pins.adopt(stored);
        }
        self.has_lost = self.shelf.has_lost(pins);
    }

    /// Whether a call has to be looked at.
    fn holds_any(&self) -> bool {
        self.mode == PinMode::Enforce && (self.has_lost || !self.judged.quarantined.is_empty())
    }
}

/// What clients are shown of what a server said, and what is to be told about it.
pub(crate) struct Screened {
    /// The later of two has the higher number, and is the one that counts.
    pub(crate) number: u64,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) events: Vec<Event>,
    /// Why somebody has to look, if somebody has to.
    pub(crate) cause: Option<String>,
}

impl Pinboard {
    pub(crate) fn new(mode: PinMode, shelf: Shelf, approved: Arc<Approved>, clock: Clock) -> Self {
        let mut board = Board::new(mode, shelf);
        if mode != PinMode::Off {
            board.load(&mut approved.known().pins);
        }
        Self {
            clock,
            approved,
            holds_any: AtomicBool::new(board.holds_any()),
            board: Mutex::new(board),
            compared_on: AtomicU64::new(u64::MAX),
        }
    }

    /// The config has changed. A server that is reached in another way is another one: what was pinned and
    /// said before is not its.
    pub(crate) fn revise(&self, mode: PinMode, shelf: Shelf) {
        let mut board = self.board();
        if board.shelf.is_the_same(&shelf) {
            board.mode = mode;
        } else {
            *board = Board { screenings: board.screenings, ..Board::new(mode, shelf) };
            let mut known = self.approved.known();
            *known = Known::default();
            if mode != PinMode::Off {
                board.load(&mut known.pins);
            }
        }
        self.holds_any.store(board.holds_any(), Ordering::Release);
    }

    /// Whether anybody wants to know what the tools say.
    pub(crate) fn looks(&self) -> bool {
        self.board().mode != PinMode::Off
    }

    /// What was screened last was said on the link of this epoch.
    pub(crate) fn were_compared_on(&self, epoch: Epoch) {
        self.compared_on.store(epoch.number(), Ordering::Release);
    }

    /// The server of the link of epoch `old` has forgotten its session: what was compared there holds for `new` until the
    /// listing that follows. Waiting for that would double the time of every forgotten session. A remote server that
    /// was deployed anew looks the same; a tool that it has changed may be called once more before it is held back.
    pub(crate) fn go_on_from(&self, old: Epoch, new: Epoch) {
        let (old, new) = (old.number(), new.number());
        let _ = self.compared_on.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether tools may have changed unseen: something is pinned and enforced, and on the link of this epoch
    /// nothing was held up against it yet.
    pub(crate) fn are_behind(&self, epoch: Epoch) -> bool {
        if self.compared_on.load(Ordering::Acquire) == epoch.number() {
            return false;
        }
        let board = self.board();
        board.mode == PinMode::Enforce && (board.has_lost || !self.approved.known().pins.is_empty())
    }

    /// Takes note of what the server says, and says what of it is shown: what changed stays as it was approved.
    pub(crate) fn screen(&self, said: Arc<Catalog>) -> Screened {
        let mut board = self.board();
        self.approved.known().said = Arc::downgrade(&said);
        board.said = Some(Arc::clone(&said));
        self.judge(&mut board, said)
    }

    /// The same for the tools of an instance that is not everybody's, and so shows nothing.
    pub(crate) fn compare(&self, said: Arc<Catalog>) -> Screened {
        let mut board = self.board();
        let everybodys = self.approved.known().said.upgrade();
        let says_the_same = |other: &Arc<Catalog>| other.diff(&said).tools.is_empty();
        let said = everybodys.filter(says_the_same).unwrap_or(said);
        board.said = Some(Arc::clone(&said));
        self.judge(&mut board, said)
    }

    /// Holds what the server said last up against the pins as they are now, here and in the store.
    pub(crate) fn screen_again(&self) -> Option<Screened> {
        let mut board = self.board();
        let said = board.said.clone()?;
        Some(self.judge(&mut board, said))
    }

    /// What the server said last, all of it, if it has said anything.
    pub(crate) fn said(&self) -> Option<Arc<Catalog>> {
        self.board().said.clone()
    }

    fn judge(&self, board: &mut Board, said: Arc<Catalog>) -> Screened {
        board.screenings += 1;
        let number = board.screenings;
        let Known { pins, .. } = &mut *self.approved.known();
        if board.mode == PinMode::Off {
            board.judged = Judged::default();
            self.holds_any.store(false, Ordering::Release);
            return Screened { number, catalog: said, events: Vec::new(), cause: None };
        }
        board.load(pins);
        let Board { mode, shelf, judged, has_lost, screenings: _, said: _ } = board;
        let before = std::mem::take(judged);
        let now = self.clock.now().wall;
        let first_use = if *has_lost { FirstUse::NeedsApproval } else { FirstUse::Trusted };
        let listing = said.tools.iter().map(|tool| (tool.key.as_str(), &*tool.raw));
        *judged = pins.judge(now, listing, first_use);
        if !judged.fresh.is_empty() {
            shelf.keep_pins(pins);
        }
        if !*has_lost {
            shelf.witness(pins);
        }
        let mut events = Vec::new();
        let suspicious = judged.fresh.iter().filter(|tool| !is_harmless(pins, tool));
        let suspicious: Vec<String> = suspicious.cloned().collect();
        if !suspicious.is_empty() {
            events.push(Event::ToolsSuspicious { tools: suspicious });
        }
        let known = |tool: &str| before.quarantined.iter().any(|known| known.tool == tool);
        let changed = judged.quarantined.iter().filter(|changed| !known(&changed.tool));
        let changed: Vec<String> = changed.map(|changed| changed.tool.clone()).collect();
        let held = *mode == PinMode::Enforce;
        if !changed.is_empty() {
            events.push(Event::ToolsChanged { tools: changed, held });
        }
        let some_wait = held && !judged.quarantined.is_empty();
        let catalog = if some_wait { with_approved(&said, pins, judged) } else { said };
        let cause = some_wait.then(|| {
            let is_pinned = |changed: &&Quarantined| pins.get(&changed.tool).is_some();
            let (changed, lost): (Vec<_>, Vec<_>) = judged.quarantined.iter().partition(is_pinned);
            cause(&changed, &lost)
        });
        self.holds_any.store(board.holds_any(), Ordering::Release);
        Screened { number, catalog, events, cause }
    }

    /// Whether this tool is held back, as far as this process knows.
    pub(crate) fn holds(&self, tool: &str) -> bool {
        if !self.holds_any.load(Ordering::Acquire) {
            return false;
        }
        let board = self.board();
        board.judged.hidden.contains(tool)
            || board.judged.quarantined.iter().any(|changed| changed.tool == tool)
            || board.has_lost && self.approved.known().pins.get(tool).is_none()
    }

    /// Somebody approves what a tool says now, or what all tools say but those that were dealt with. Answers with
    /// their names.
    pub(crate) fn approve(&self, tool: Option<&str>, done: &[String]) -> Vec<String> {
        let mut board = self.board();
        let Board { shelf, judged, said: Some(said), .. } = &mut *board else { return Vec::new() };
        let Known { pins, .. } = &mut *self.approved.known();
        let now = self.clock.now().wall;
        let mut approved = Vec::new();
        for changed in &judged.quarantined {
            let named = changed.renamed_to.as_deref().unwrap_or(&changed.tool);
            let is_meant = tool.is_none_or(|tool| tool == changed.tool || tool == named)
                && !done.contains(&changed.tool);
            if let Some(said) = said.tool(named).filter(|_| is_meant) {
                pins.approve(now, &changed.tool, named, &said.raw);
                approved.push(changed.tool.clone());
            }
        }
        if !approved.is_empty() {
            shelf.keep_pins(pins);
            // Only a person ends the wait after a loss, and only when no tool is left that waits for it.
            if said.tools.iter().all(|tool| pins.get(&tool.key).is_some()) {
                shelf.witness(pins);
            }
        }
        approved
    }

    /// What a person has to look at.
    pub(crate) fn changes(&self) -> Vec<Quarantined> {
        self.board().judged.quarantined.clone()
    }

    /// How many tools of the server are pinned.
    pub(crate) fn count(&self) -> usize {
        self.approved.known().pins.len()
    }

    /// The pinned tools of the server, with these changes of them.
    pub(crate) fn list(&self, changes: &[Quarantined]) -> Vec<PinnedTool> {
        let change = |tool: &str| changes.iter().find(|changed| changed.tool == tool);
        let known = self.approved.known();
        let pinned = known.pins.iter().map(|(tool, pin)| PinnedTool {
            tool: tool.to_owned(),
            digest: pin.digest().to_string(),
            first_seen: pin.first_seen(),
            approved: pin.approved(),
            change: change(tool).cloned(),
            suspicions: suspicions_of(pin.raw().get()),
        });
        let is_unpinned = |changed: &&Quarantined| known.pins.get(&changed.tool).is_none();
        let unpinned = changes.iter().filter(is_unpinned).map(|changed| PinnedTool {
            tool: changed.tool.clone(),
            digest: String::new(),
            first_seen: self.clock.now().wall,
            approved: None,
            change: Some(changed.clone()),
            suspicions: changed.suspicions.clone(),
        });
        pinned.chain(unpinned).collect()
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a caller is told about a tool that is held back.
pub(crate) fn changed(server: &str, tool: &str) -> CallError {
    let text = format!(
        "tool `{tool}` of server `{server}` waits for approval: it says something else than what was approved, \
         or its approval was lost"
    );
    CallError::new(Code::SchemaChanged, server, Fate::NotSent, text).hint(format!(
        "`gripfast pins diff {server}` shows what changed, `gripfast pins approve {server} {tool}` accepts it"
    ))
}

/// Why tools of a server wait: some have changed, and the approvals of others were lost.
fn cause(changed: &[&Quarantined], lost: &[&Quarantined]) -> String {
    let names = |tools: &[&Quarantined]| {
        text::names(&tools.iter().map(|changed| changed.tool.as_str()).collect::<Vec<_>>())
    };
    let lost_names = || {
        format!(
            "approvals lost, because `state.db` is new, damaged or unusable; waiting for approval: {}",
            names(lost)
        )
    };
    match (changed.is_empty(), lost.is_empty()) {
        (_, true) => format!("changed since they were approved: {}", names(changed)),
        (true, false) => lost_names(),
        (false, false) => format!("{}; changed since they were approved: {}", lost_names(), names(changed)),
    }
}

fn is_harmless(pins: &Pins, tool: &str) -> bool {
    pins.get(tool).is_none_or(|pin| suspicions_of(pin.raw().get()).is_empty())
}

fn suspicions_of(tool: &str) -> Vec<Suspicion> {
    serde_json::from_str(tool).map(|tool| suspicions(&tool)).unwrap_or_default()
}

/// The catalog with what was approved in the place of what changed, under the approved names.
fn with_approved(said: &Catalog, pins: &Pins, judged: &Judged) -> Arc<Catalog> {
    let approved = |name: &str| tool_item(pins.get(name)?.raw());
    let mut shown = said.clone();
    shown.tools = said
        .tools
        .iter()
        .filter_map(|tool| {
            let changed = judged
                .quarantined
                .iter()
                .find(|changed| changed.renamed_to.as_ref().unwrap_or(&changed.tool) == &tool.key);
            match changed {
                Some(changed) => approved(&changed.tool),
                None => (!judged.hidden.contains(&tool.key)).then(|| tool.clone()),
            }
        })
        .collect();
    Arc::new(shown)
}
