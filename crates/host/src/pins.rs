//! The pins of one server: what its tools, prompts, resource templates and instructions said when they were first seen, and
//! what is done about those that say something else. What counts as a change is decided in `core`; here pins are kept,
//! shared by all instances of the server and with other processes through the store, and held up against what each
//! instance says.

pub use gripfast_core::policy::difference::Difference;
pub use gripfast_core::policy::pins::{Mode as PinMode, PinKind, Quarantined};
pub use gripfast_core::policy::suspicion::Suspicion;

use crate::clock::Clock;
use crate::store::Shelf;
use crate::upstream::{Upstream, tool_item};
use gripfast_core::catalog::{Catalog, Item};
use gripfast_core::event::Event;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::ids::Epoch;
use gripfast_core::policy::pins::{Approvals, Judged};
use gripfast_core::policy::suspicion::suspicions;
use gripfast_core::text;
use gripfast_core::time::Wall;
use gripfast_wire::RawValue;
use gripfast_wire::patch::Patch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// One pinned tool, prompt, resource template or text of instructions, or a new tool that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTool {
    /// What it is.
    pub kind: PinKind,
    /// Its name, as it was approved.
    pub tool: String,
    /// What was approved, in short; empty if nothing was.
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
    /// Items that are pinned.
    pub pinned: usize,
    /// Items that say something else than what was approved, or that wait for approval.
    pub changed: usize,
}

/// What all instances of one server are held up against.
#[derive(Default)]
pub(crate) struct Approved(Mutex<Known>);

#[derive(Default)]
struct Known {
    pins: Approvals,
    /// What everybody's instance said last. Others that say the same of their tools keep no catalog of their own.
    said: Weak<Catalog>,
}

impl Approved {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a config says about pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PinRules {
    pub(crate) mode: PinMode,
    /// How many tools may be pinned, how many prompts, and how many resource templates.
    pub(crate) most: usize,
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
    rules: PinRules,
    shelf: Shelf,
    /// What the instance said last, all of it, if it has said anything.
    said: Option<Arc<Catalog>>,
    judged: Judged,
    /// The instructions that were looked at last, as they are pinned, and how they differ from what was approved.
    instructions: Option<(Box<RawValue>, Option<Quarantined>)>,
    /// Whether the store has lost approvals of the server. A tool without a pin is not trusted then.
    has_lost: bool,
    /// How often something was held up against the pins.
    screenings: u64,
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
    pub(crate) fn new(rules: PinRules, shelf: Shelf, approved: Arc<Approved>, clock: Clock) -> Self {
        let judged = Judged::default();
        let mut board =
            Board { rules, shelf, said: None, judged, instructions: None, has_lost: false, screenings: 0 };
        if rules.mode != PinMode::Off {
            board.load(&mut approved.known().pins);
        }
        Self {
            clock,
            approved,
            holds_any: AtomicBool::new(board.has_lost && rules.mode.holds()),
            board: Mutex::new(board),
            compared_on: AtomicU64::new(u64::MAX),
        }
    }

    /// The config has changed. What was approved, and what is held back, belongs to the server's name, and stays whatever
    /// way it is reached by.
    pub(crate) fn revise(&self, rules: PinRules, shelf: Shelf) {
        let mut board = self.board();
        (board.rules, board.shelf) = (rules, shelf);
    }

    /// Whether anybody wants to know what the tools say.
    pub(crate) fn looks(&self) -> bool {
        self.board().rules.mode != PinMode::Off
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
        match board.rules.mode {
            PinMode::Strict => true,
            PinMode::Enforce => board.has_lost || !self.approved.known().pins.of(PinKind::Tool).is_empty(),
            PinMode::Warn | PinMode::Off => false,
        }
    }

    /// Takes note of what the server says, and says what of it is shown: what changed stays as it was approved.
    pub(crate) fn screen(&self, said: Arc<Catalog>) -> Screened {
        let mut board = self.board();
        self.approved.known().said = Arc::downgrade(&said);
        self.judge(&mut board, said)
    }

    /// The same for the tools of an instance that is not everybody's, and so shows nothing.
    pub(crate) fn compare(&self, said: Arc<Catalog>) -> Screened {
        let mut board = self.board();
        let everybodys = self.approved.known().said.upgrade();
        let says_the_same = |other: &Arc<Catalog>| other.diff(&said).tools.is_empty();
        let said = everybodys.filter(says_the_same).unwrap_or(said);
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
        if board.rules.mode != PinMode::Off {
            board.load(&mut self.approved.known().pins);
        }
        let mode = board.mode();
        let Board { rules, shelf, judged, has_lost, screenings: number, said: said_before, instructions: _ } =
            board;
        let (number, PinRules { most, .. }) = (*number, *rules);
        let is_first_listing = said_before.replace(Arc::clone(&said)).is_none();
        let Known { pins, .. } = &mut *self.approved.known();
        let before = std::mem::take(judged);
        let is_first_sight = is_first_listing && pins.of(PinKind::Tool).is_empty();
        if mode == PinMode::Off {
            judged.beyond.extend(beyond(&said, most));
        } else {
            let now = self.clock.now().wall;
            for (kind, items) in pinned_lists(&said) {
                let items = items.iter().map(|item| (item.key.as_str(), &*item.raw));
                pins.judge(now, kind, items, (mode, most), judged);
            }
            if !judged.fresh.is_empty() {
                shelf.keep_pins(pins);
            }
            if !*has_lost {
                shelf.witness(pins);
            }
        }
        let held = |change: &Quarantined| change.kind == PinKind::Tool && mode.holds();
        let holds_any =
            !judged.beyond.is_empty() || judged.quarantined.iter().any(held) || (*has_lost && mode.holds());
        self.holds_any.store(holds_any, Ordering::Release);
        let mut events = events(&before, judged, pins, *rules);
        if is_first_sight {
            // Of a server that was never seen before, everything is new.
            events.retain(|event| !matches!(event, Event::NewTools { held: false, .. }));
        }
        let shows_all = judged.beyond.is_empty() && (judged.quarantined.is_empty() || !mode.holds());
        let cause = cause_of(judged.quarantined.iter().filter(|change| held(change)), *has_lost);
        let catalog = if shows_all { said } else { as_approved(&said, pins, judged, mode) };
        Screened { number, catalog, events, cause }
    }

    /// The instructions that clients get where the server says these: the approved ones, if there are any. What is to be
    /// told about it comes with them.
    fn instructions(&self, said: &str) -> (String, Option<Event>) {
        let mut board = self.board();
        let PinRules { mode, most } = board.rules;
        if mode == PinMode::Off {
            return (said.to_owned(), None);
        }
        let raw = Patch::new().set_text(INSTRUCTIONS, said).to_object();
        let known = &mut *self.approved.known();
        let (now, mut judged) = (self.clock.now().wall, Judged::default());
        let judge = |pins: &mut Approvals, judged: &mut Judged| {
            *judged = Judged::default();
            let items = [(INSTRUCTIONS, &*raw)];
            pins.judge(now, PinKind::Instructions, items, (mode, most.max(1)), judged);
        };
        judge(&mut known.pins, &mut judged);
        if !judged.quarantined.is_empty()
            && let Some(stored) = board.shelf.pins()
        {
            // Another process may have approved them.
            known.pins.adopt(stored);
            judge(&mut known.pins, &mut judged);
        }
        if !judged.fresh.is_empty() {
            board.shelf.keep_pins(&known.pins);
        }
        let change = judged.quarantined.pop();
        let is_known = matches!(&board.instructions, Some((before, _)) if before.get() == raw.get());
        let event = change
            .as_ref()
            .filter(|_| !is_known)
            .map(|_| Event::TextsChanged { items: vec![INSTRUCTIONS.to_owned()], kept: mode.holds() });
        let approved = known.pins.of(PinKind::Instructions).get(INSTRUCTIONS).filter(|_| mode.holds());
        let text = approved.and_then(|pin| instructions_in(pin.raw())).unwrap_or_else(|| said.to_owned());
        board.instructions = Some((raw, change));
        (text, event)
    }

    /// Whether this tool is held back, as far as this process knows.
    pub(crate) fn holds(&self, tool: &str) -> bool {
        self.holds_any.load(Ordering::Acquire) && self.why_held(&self.board(), tool).is_some()
    }

    /// What a caller is told about a tool that is held back.
    pub(crate) fn refusal(&self, server: &str, tool: &str) -> CallError {
        let board = self.board();
        let why = self.why_held(&board, tool).unwrap_or(WhyHeld::Changed);
        why.refusal(server, tool, board.rules.most)
    }

    /// A person approves what a tool says now, or what all tools say but those that were dealt with. The same for prompts,
    /// resource templates and instructions. Answers with their names.
    pub(crate) fn approve(&self, tool: Option<&str>, done: &[String]) -> Vec<String> {
        let mut board = self.board();
        let Board { shelf, judged, said, instructions, rules, .. } = &mut *board;
        let Known { pins, .. } = &mut *self.approved.known();
        let now = self.clock.now().wall;
        let mut approved = Vec::new();
        let of_instructions =
            instructions.iter().filter_map(|(raw, change)| Some((change.as_ref()?, &**raw)));
        let of_lists = judged.quarantined.iter().filter_map(|change| {
            let named = change.renamed_to.as_deref().unwrap_or(&change.tool);
            Some((change, &*item_of(said.as_deref()?, change.kind, named)?.raw))
        });
        for (change, raw) in of_lists.chain(of_instructions) {
            let named = change.renamed_to.as_deref().unwrap_or(&change.tool);
            let label = change.kind.label(&change.tool);
            let is_meant = tool.is_none_or(|tool| [&change.tool, named, &label].contains(&tool));
            let has_room = !change.is_new || pins.of(change.kind).len() < rules.most;
            if is_meant && has_room && !done.contains(&label) {
                pins.approve(now, change.kind, &change.tool, named, raw);
                approved.push(label);
            }
        }
        if !approved.is_empty() {
            shelf.keep_pins(pins);
            // Only a person ends the wait after a loss, and only when no tool is left that waits for it.
            let is_pinned = |tool: &Item| pins.of(PinKind::Tool).get(&tool.key).is_some();
            if said.as_ref().is_some_and(|said| said.tools.iter().all(is_pinned)) {
                shelf.witness(pins);
            }
        }
        approved
    }

    fn why_held(&self, board: &Board, tool: &str) -> Option<WhyHeld> {
        let is_lost = || board.has_lost && self.approved.known().pins.of(PinKind::Tool).get(tool).is_none();
        match board.why_held(tool) {
            Some(WhyHeld::New) | None if board.rules.mode.holds() && is_lost() => Some(WhyHeld::Lost),
            why => why,
        }
    }

    /// What a person has to look at.
    pub(crate) fn changes(&self) -> Vec<Quarantined> {
        let board = self.board();
        let instructions = board.instructions.as_ref().and_then(|(_, change)| change.clone());
        board.judged.quarantined.iter().cloned().chain(instructions).collect()
    }

    /// How many items of the server are pinned.
    pub(crate) fn count(&self) -> usize {
        let known = self.approved.known();
        PinKind::ALL.iter().map(|kind| known.pins.of(*kind).len()).sum()
    }

    /// The pinned items of the server, with these changes of them, and new ones that wait for approval.
    pub(crate) fn list(&self, changes: &[Quarantined]) -> Vec<PinnedTool> {
        let change = |kind: PinKind, tool: &str| {
            changes.iter().find(|changed| changed.kind == kind && changed.tool == tool)
        };
        let known = self.approved.known();
        let mut listed = Vec::new();
        for kind in PinKind::ALL {
            listed.extend(known.pins.of(kind).iter().map(|(tool, pin)| PinnedTool {
                kind,
                tool: tool.to_owned(),
                digest: pin.digest().to_string(),
                first_seen: pin.first_seen(),
                approved: pin.approved(),
                change: change(kind, tool).cloned(),
                suspicions: suspicions_of(pin.raw().get()),
            }));
        }
        let now = self.clock.now().wall;
        listed.extend(changes.iter().filter(|change| change.is_new).map(|change| PinnedTool {
            kind: change.kind,
            tool: change.tool.clone(),
            digest: String::new(),
            first_seen: now,
            approved: None,
            change: Some(change.clone()),
            suspicions: Vec::new(),
        }));
        listed
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a tool is held back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhyHeld {
    Changed,
    New,
    Lost,
    TooMany,
}

impl Board {
    /// Takes over what the store has, and compares it with what the witness remembers.
    fn load(&mut self, pins: &mut Approvals) {
        if let Some(stored) = self.shelf.pins() {
            pins.adopt(stored);
        }
        self.has_lost = self.shelf.has_lost(pins);
    }

    /// How pins are enforced now: after a loss no tool is trusted at first sight.
    fn mode(&self) -> PinMode {
        match self.rules.mode {
            PinMode::Enforce if self.has_lost => PinMode::Strict,
            mode => mode,
        }
    }

    fn why_held(&self, tool: &str) -> Option<WhyHeld> {
        let Judged { quarantined, hidden, beyond, .. } = &self.judged;
        let mut tools = quarantined.iter().filter(|change| change.kind == PinKind::Tool);
        let change = tools.find(|change| change.tool == tool);
        if beyond.contains(&(PinKind::Tool, tool.to_owned())) {
            Some(WhyHeld::TooMany)
        } else if !self.rules.mode.holds() {
            None
        } else if change.is_some_and(|change| change.is_new) {
            Some(WhyHeld::New)
        } else if change.is_some() || hidden.contains(tool) {
            Some(WhyHeld::Changed)
        } else {
            None
        }
    }
}

impl WhyHeld {
    fn refusal(self, server: &str, tool: &str, most: usize) -> CallError {
        let (text, hint) = match self {
            Self::Changed => (
                format!(
                    "tool `{tool}` of server `{server}` says something else than what was approved; \
                     it is not called before somebody has looked"
                ),
                format!(
                    "`gripfast pins diff {server}` shows what changed, \
                     `gripfast pins approve {server} {tool}` accepts it"
                ),
            ),
            Self::New => (
                format!(
                    "tool `{tool}` of server `{server}` is new and was not approved yet (`pins = \"strict\"`)"
                ),
                format!(
                    "`gripfast pins diff {server}` shows it, `gripfast pins approve {server} {tool}` accepts it"
                ),
            ),
            Self::Lost => (
                format!("tool `{tool}` of server `{server}` waits for approval: its approval was lost"),
                format!(
                    "`gripfast pins diff {server}` shows it, `gripfast pins approve {server} {tool}` accepts it"
                ),
            ),
            Self::TooMany => (
                format!("server `{server}` has {most} pinned tools; tool `{tool}` is new and stays hidden"),
                format!("raise `max_tools` of `{server}` if it is meant to have more"),
            ),
        };
        CallError::new(Code::SchemaChanged, server, Fate::NotSent, text).hint(hint)
    }
}

impl Upstream {
    /// The instructions of the server that is up, as far as they are approved.
    pub(crate) fn instructions(&self) -> Option<String> {
        let live = self.live()?;
        let (text, event) = self.pins.instructions(live.server.instructions.as_deref()?);
        if let Some(event) = event {
            self.announce(self.clock.now(), event);
        }
        Some(text)
    }
}

/// The name under which instructions are pinned, and the member that holds their text.
const INSTRUCTIONS: &str = PinKind::Instructions.word();

fn instructions_in(pinned: &RawValue) -> Option<String> {
    let pinned: serde_json::Value = serde_json::from_str(pinned.get()).ok()?;
    Some(pinned.get(INSTRUCTIONS)?.as_str()?.to_owned())
}

/// The lists of a catalog whose items are pinned.
fn pinned_lists(catalog: &Catalog) -> [(PinKind, &Vec<Item>); 3] {
    [
        (PinKind::Tool, &catalog.tools),
        (PinKind::Prompt, &catalog.prompts),
        (PinKind::Template, &catalog.templates),
    ]
}

fn item_of<'c>(catalog: &'c Catalog, kind: PinKind, name: &str) -> Option<&'c Item> {
    let (_, items) = pinned_lists(catalog).into_iter().find(|(listed, _)| *listed == kind)?;
    items.iter().find(|item| item.key == name)
}

/// What is hidden where nothing is pinned: everything beyond the first so many items of each list.
fn beyond(said: &Catalog, most: usize) -> impl Iterator<Item = (PinKind, String)> {
    pinned_lists(said)
        .into_iter()
        .flat_map(move |(kind, items)| items.iter().skip(most).map(move |item| (kind, item.key.clone())))
}

/// What is to be told about a listing, beside what was told about the one before it.
fn events(before: &Judged, judged: &Judged, pins: &Approvals, rules: PinRules) -> Vec<Event> {
    let mut events = Vec::new();
    let fresh: Vec<&String> =
        judged.fresh.iter().filter(|(kind, _)| *kind == PinKind::Tool).map(|(_, name)| name).collect();
    let held = rules.mode.holds();
    let is_news = |change: &&Quarantined| {
        let same = |known: &Quarantined| known.kind == change.kind && known.tool == change.tool;
        !before.quarantined.iter().any(same)
    };
    let (mut new, mut changed, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for change in judged.quarantined.iter().filter(is_news) {
        match change.kind {
            PinKind::Tool if change.is_new => new.push(change.tool.clone()),
            PinKind::Tool => changed.push(change.tool.clone()),
            PinKind::Prompt | PinKind::Template | PinKind::Instructions => {
                texts.push(change.kind.label(&change.tool));
            }
        }
    }
    if !fresh.is_empty() {
        events
            .push(Event::NewTools { tools: fresh.iter().map(|tool| (*tool).clone()).collect(), held: false });
    }
    if !new.is_empty() {
        events.push(Event::NewTools { tools: new, held });
    }
    let suspicious: Vec<String> =
        fresh.into_iter().filter(|tool| !is_harmless(pins, tool)).cloned().collect();
    if !suspicious.is_empty() {
        events.push(Event::ToolsSuspicious { tools: suspicious });
    }
    if !changed.is_empty() {
        events.push(Event::ToolsChanged { tools: changed, held });
    }
    if !texts.is_empty() {
        events.push(Event::TextsChanged { items: texts, kept: held });
    }
    if !judged.beyond.is_empty() && judged.beyond != before.beyond {
        events.push(Event::TooManyTools { hidden: judged.beyond.len(), limit: rules.most });
    }
    events
}

fn cause_of<'q>(held: impl Iterator<Item = &'q Quarantined>, has_lost: bool) -> Option<String> {
    let (new, changed): (Vec<_>, Vec<_>) = held.partition(|change| change.is_new);
    let names = |changes: Vec<&Quarantined>| {
        text::names(&changes.iter().map(|change| change.tool.as_str()).collect::<Vec<_>>())
    };
    let unapproved = if has_lost {
        "approvals lost, because `state.db` is new, damaged or unusable; waiting for approval"
    } else {
        "new and not approved"
    };
    match (changed.is_empty(), new.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("changed since they were approved: {}", names(changed))),
        (true, false) => Some(format!("{unapproved}: {}", names(new))),
        (false, false) => {
            let (changed, new) = (names(changed), names(new));
            Some(format!("changed since they were approved: {changed}; {unapproved}: {new}"))
        }
    }
}

fn is_harmless(pins: &Approvals, tool: &str) -> bool {
    pins.of(PinKind::Tool).get(tool).is_none_or(|pin| suspicions_of(pin.raw().get()).is_empty())
}

fn suspicions_of(tool: &str) -> Vec<Suspicion> {
    serde_json::from_str(tool).map(|tool| suspicions(&tool)).unwrap_or_default()
}

/// The catalog with what was approved in the place of what changed, under the approved names, and without what was not
/// approved.
fn as_approved(said: &Catalog, pins: &Approvals, judged: &Judged, mode: PinMode) -> Arc<Catalog> {
    let shown = |kind: PinKind, items: &[Item]| -> Vec<Item> {
        let show = |item: &Item| {
            if judged.beyond.contains(&(kind, item.key.clone())) {
                return None;
            }
            match judged.change_of(kind, &item.key).filter(|_| mode.holds()) {
                Some(change) => {
                    let approved = pins.of(kind).get(&change.tool)?.raw();
                    match kind {
                        PinKind::Tool => tool_item(approved),
                        PinKind::Prompt | PinKind::Template | PinKind::Instructions => {
                            Some(Item { raw: approved.to_owned(), ..item.clone() })
                        }
                    }
                }
                None => Some(item.clone()),
            }
        };
        items.iter().filter_map(show).collect()
    };
    Arc::new(Catalog {
        tools: shown(PinKind::Tool, &said.tools),
        prompts: shown(PinKind::Prompt, &said.prompts),
        templates: shown(PinKind::Template, &said.templates),
        resources: said.resources.clone(),
    })
}
