//! Pins of one server: the approved descriptions of its tools, prompts, resource templates and instructions. `core`
//! decides what counts as a change; this module keeps the pins, shares them among all instances and through the store
//! with other processes, and compares each instance with them.
//!
//! Hosts with a [`SharedState`] have their pins there. A new item is then pinned by compare-and-set before it is offered:
//! the host that loses adopts the stored pin and compares its item with it.

pub use gripfast_core::policy::diff::Difference;
pub use gripfast_core::policy::pins::{PinKind, PinMode, Quarantined};
pub use gripfast_core::policy::suspicious_text::Suspicion;

use crate::clock::Clock;
use crate::shared_state::{SharedState, StateError, StateTable};
use crate::store::ServerStore;
use crate::sync::Mutex;
use crate::upstream::{Upstream, tool_item};
use gripfast_core::catalog::{Catalog, Item};
use gripfast_core::event::Event;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::ids::Epoch;
use gripfast_core::json_text::{Json, JsonText};
use gripfast_core::policy::pins::{Approvals, PinReview};
use gripfast_core::policy::suspicious_text::find_suspicious;
use gripfast_core::text;
use gripfast_core::time::Wall;
use gripfast_wire::patch::Patch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A pinned tool, prompt, resource template or instructions text, or a new tool that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTool {
    /// Kind of the item.
    pub kind: PinKind,
    /// Name of the item, as it was approved.
    pub tool: String,
    /// Digest of the approved description; empty if none was approved.
    pub digest: String,
    /// Time at which the item was first seen.
    pub first_seen: Wall,
    /// Time of the operator's approval, if one was needed.
    pub approved: Option<Wall>,
    /// Change since the approval.
    pub change: Option<Quarantined>,
    /// Suspicious parts of the approved description.
    pub suspicions: Vec<Suspicion>,
}

/// Pin counts of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinCounts {
    /// Pinned items.
    pub pinned: usize,
    /// Items that differ from what was approved, or that wait for approval.
    pub changed: usize,
}

/// The pins that all instances of one server are compared with.
#[derive(Default)]
pub(crate) struct ServerPins(Mutex<Known>);

#[derive(Default)]
struct Known {
    pins: Approvals,
    /// Last catalog of the shared instance. Dedicated instances with the same tools share it to save memory.
    catalog: Weak<Catalog>,
    /// Version of the shared state that the pins are of.
    shared_version: Option<u64>,
}

/// Pin settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PinSettings {
    pub(crate) mode: PinMode,
    /// Maximum number of pinned tools, of prompts, and of resource templates (`max_tools`).
    pub(crate) max: usize,
}

/// Comparison of one instance with the pins of its server.
pub(crate) struct InstancePins {
    clock: Clock,
    /// Lock order: after `state`.
    approved: Arc<ServerPins>,
    state: Mutex<InstancePinState>,
    /// True if any tool may be held back; calls check it first.
    has_held: AtomicBool,
    /// Epoch of the connection whose tools were last compared with the pins.
    compared_epoch: AtomicU64,
}

struct InstancePinState {
    rules: PinSettings,
    store: ServerStore,
    /// The last catalog of the instance, complete.
    last_catalog: Option<Arc<Catalog>>,
    judged: PinReview,
    /// The last instructions in their pinned form, and their change since the approval.
    instructions: Option<(JsonText, Option<Quarantined>)>,
    /// The store has lost approvals of the server. Then a tool without a pin is not trusted.
    has_lost: bool,
    /// Number of screenings so far.
    screenings: u64,
    /// Items that this host has pinned in the shared state since the last screening.
    just_pinned: Option<JustPinned>,
}

#[derive(Default)]
struct JustPinned {
    items: Vec<(PinKind, String)>,
    /// The server had no pinned tools before.
    is_first_sight: bool,
}

/// Pins to store in the shared state.
struct PinProposal {
    server: String,
    expected: u64,
    value: String,
    pinned: JustPinned,
}

/// Attempts to pin new items while other hosts pin theirs.
const MAX_ATTEMPTS: usize = 16;

/// Result of a screening: the catalog that clients see, and the events to publish.
pub(crate) struct ScreenedCatalog {
    /// Number of the screening; the highest one is current.
    pub(crate) number: u64,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) events: Vec<Event>,
    /// Reason why the operator has to approve something.
    pub(crate) cause: Option<String>,
}

impl InstancePins {
    pub(crate) fn new(
        rules: PinSettings,
        store: ServerStore,
        approved: Arc<ServerPins>,
        clock: Clock,
    ) -> Self {
        let judged = PinReview::default();
        let mut state = InstancePinState {
            rules,
            store,
            last_catalog: None,
            judged,
            instructions: None,
            has_lost: false,
            screenings: 0,
            just_pinned: None,
        };
        if rules.mode != PinMode::Off {
            state.load(&mut approved.0.lock());
        }
        Self {
            clock,
            approved,
            has_held: AtomicBool::new(state.has_lost && rules.mode.enforces()),
            state: Mutex::new(state),
            compared_epoch: AtomicU64::new(u64::MAX),
        }
    }

    /// Applies changed settings. Approved and held-back items belong to the server's name, so they stay when its
    /// target changes.
    pub(crate) fn apply_settings(&self, rules: PinSettings, store: ServerStore) {
        let mut state = self.state.lock();
        (state.rules, state.store) = (rules, store);
    }

    /// Returns true unless pins are off.
    pub(crate) fn is_enabled(&self) -> bool {
        self.state.lock().rules.mode != PinMode::Off
    }

    /// Marks the last screening as made for the connection of this epoch.
    pub(crate) fn mark_compared(&self, epoch: Epoch) {
        self.compared_epoch.store(epoch.number(), Ordering::Release);
    }

    /// Carries the comparison of epoch `old` over to `new` after a lost session, until the next listing: waiting for
    /// it would double the cost of every lost session. A remote server that was redeployed looks the same; a tool
    /// that it changed may be called once more before it is held back.
    pub(crate) fn carry_over(&self, old: Epoch, new: Epoch) {
        let (old, new) = (old.number(), new.number());
        let _ = self.compared_epoch.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns true if pins are enforced and the tools of this connection have not been compared with them yet.
    pub(crate) fn needs_comparison(&self, epoch: Epoch) -> bool {
        if self.compared_epoch.load(Ordering::Acquire) == epoch.number() {
            return false;
        }
        let state = self.state.lock();
        match state.rules.mode {
            PinMode::Strict => true,
            PinMode::Enforce => {
                state.has_lost
                    || state.store.shared().is_some()
                    || !self.approved.0.lock().pins.of(PinKind::Tool).is_empty()
            }
            PinMode::Warn | PinMode::Off => false,
        }
    }

    /// Compares the catalog of the shared instance with the pins. In the result, changed items are as they were
    /// approved.
    pub(crate) fn screen(&self, declared: Arc<Catalog>) -> ScreenedCatalog {
        let mut state = self.state.lock();
        self.approved.0.lock().catalog = Arc::downgrade(&declared);
        self.judge(&mut state, declared)
    }

    /// Compares the tools of a dedicated instance with the pins; its catalog is not shown to clients.
    pub(crate) fn compare(&self, declared: Arc<Catalog>) -> ScreenedCatalog {
        let mut state = self.state.lock();
        let shared_catalog = self.approved.0.lock().catalog.upgrade();
        let has_same_tools = |other: &Arc<Catalog>| other.diff(&declared).tools.is_empty();
        let declared = shared_catalog.filter(has_same_tools).unwrap_or(declared);
        self.judge(&mut state, declared)
    }

    /// Compares the last catalog again, with the pins in memory and in the store.
    pub(crate) fn screen_again(&self) -> Option<ScreenedCatalog> {
        let mut state = self.state.lock();
        let declared = state.last_catalog.clone()?;
        Some(self.judge(&mut state, declared))
    }

    /// The last catalog of the server, complete.
    pub(crate) fn last_catalog(&self) -> Option<Arc<Catalog>> {
        self.state.lock().last_catalog.clone()
    }

    fn judge(&self, state: &mut InstancePinState, declared: Arc<Catalog>) -> ScreenedCatalog {
        state.screenings += 1;
        if state.rules.mode != PinMode::Off {
            state.load(&mut self.approved.0.lock());
        }
        let mode = state.mode();
        let InstancePinState {
            rules,
            store,
            judged,
            has_lost,
            screenings: number,
            last_catalog: declared_before,
            instructions: _,
            just_pinned,
        } = state;
        let (number, PinSettings { max: most, .. }) = (*number, *rules);
        let is_first_listing = declared_before.replace(Arc::clone(&declared)).is_none();
        let Known { pins, .. } = &mut *self.approved.0.lock();
        let before = std::mem::take(judged);
        let mut is_first_sight = is_first_listing && pins.of(PinKind::Tool).is_empty();
        if mode == PinMode::Off {
            judged.over_limit.extend(items_beyond(&declared, most));
        } else if store.shared().is_some() {
            // Without a new item nothing is pinned, and no copy is needed.
            if has_unpinned(pins, &declared) {
                judge_lists(&mut pins.clone(), &declared, self.clock.now().wall, (mode, most), judged);
            } else {
                judge_lists(pins, &declared, self.clock.now().wall, (mode, most), judged);
            }
            let pinned = just_pinned.take().unwrap_or_default();
            is_first_sight = pinned.is_first_sight;
            judged.unstored = std::mem::replace(&mut judged.newly_pinned, pinned.items).into_iter().collect();
        } else {
            judge_lists(pins, &declared, self.clock.now().wall, (mode, most), judged);
            if !judged.newly_pinned.is_empty() {
                store.save_pins(pins);
            }
            if !*has_lost {
                store.update_witness(pins);
            }
        }
        let held = |change: &Quarantined| change.kind == PinKind::Tool && mode.enforces();
        let holds_any = !judged.over_limit.is_empty()
            || judged.quarantined.iter().any(held)
            || (!judged.unstored.is_empty() && mode.enforces())
            || (*has_lost && mode.enforces());
        self.has_held.store(holds_any, Ordering::Release);
        let mut events = events(&before, judged, pins, *rules);
        if is_first_sight {
            // Everything is new at a server that is seen for the first time.
            events.retain(|event| !matches!(event, Event::NewTools { held: false, .. }));
        }
        let is_approved = judged.quarantined.is_empty() && judged.unstored.is_empty();
        let shows_all = judged.over_limit.is_empty() && (is_approved || !mode.enforces());
        let cause = approval_cause(judged.quarantined.iter().filter(|change| held(change)), *has_lost);
        let catalog = if shows_all { declared } else { as_approved(&declared, pins, judged, mode) };
        ScreenedCatalog { number, catalog, events, cause }
    }

    /// Pins new items in the shared state, if there is one. Returns when they are stored, or cannot be stored `within`
    /// this time; they are not offered then.
    pub(crate) async fn store_new(&self, declared: &Catalog, instructions: Option<&str>, within: Duration) {
        let shared = self.state.lock().store.shared().cloned();
        if let Some(shared) = shared {
            Box::pin(self.store_in(&*shared, declared, instructions, within)).await;
        }
    }

    async fn store_in(
        &self,
        shared: &dyn SharedState,
        declared: &Catalog,
        instructions: Option<&str>,
        within: Duration,
    ) {
        let end = self.clock.mono() + within;
        for _ in 0..MAX_ATTEMPTS {
            let Some(proposal) = self.propose(declared, instructions) else { return };
            let PinProposal { server, expected, value, pinned } = proposal;
            match shared.set(StateTable::Pins, &server, expected, Some(value)).await {
                Ok(_) => {
                    self.state.lock().just_pinned = Some(pinned);
                    return;
                }
                // The next attempt is based on the pins of the other host.
                Err(StateError::Changed) => {}
                Err(StateError::Later { left, .. }) if self.clock.mono() + left < end => {
                    tokio::time::sleep(left).await;
                }
                Err(error @ (StateError::Later { .. } | StateError::Unavailable(_))) => {
                    let items = pinned.items.len();
                    tracing::warn!(
                        "{items} new items of server `{server}` are not offered, because they cannot be pinned: {error}"
                    );
                    return;
                }
            }
        }
    }

    /// The pins with those of new items; `None` if there is nothing to store.
    fn propose(&self, declared: &Catalog, instructions: Option<&str>) -> Option<PinProposal> {
        let mut state = self.state.lock();
        if state.rules.mode == PinMode::Off {
            return None;
        }
        let known = &mut *self.approved.0.lock();
        let expected = state.load(known)?;
        let raw = instructions.map(|text| Patch::new().set_text(INSTRUCTIONS, text).to_object());
        let has_new_text = raw.is_some() && known.pins.of(PinKind::Instructions).is_empty();
        // Pins from before the host joined are stored too.
        let is_unstored = expected == 0 && PinKind::ALL.iter().any(|kind| !known.pins.of(*kind).is_empty());
        if !has_unpinned(&known.pins, declared) && !has_new_text && !is_unstored {
            return None;
        }
        let (mut pins, mut judged) = (known.pins.clone(), PinReview::default());
        let (now, most) = (self.clock.now().wall, state.rules.max);
        judge_lists(&mut pins, declared, now, (state.mode(), most), &mut judged);
        if let Some(raw) = raw.as_deref().filter(|_| has_new_text) {
            let items = [(INSTRUCTIONS, raw)];
            pins.judge(now, PinKind::Instructions, items, (state.mode(), most.max(1)), &mut judged);
        }
        if judged.newly_pinned.is_empty() && !is_unstored {
            return None;
        }
        let is_first_sight = known.pins.of(PinKind::Tool).is_empty();
        Some(PinProposal {
            server: state.store.server().to_owned(),
            expected,
            value: serde_json::to_string(&pins).ok()?,
            pinned: JustPinned { items: judged.newly_pinned, is_first_sight },
        })
    }

    /// Returns true if new items are not offered, because their pins are not stored.
    pub(crate) fn has_unstored(&self) -> bool {
        !self.state.lock().judged.unstored.is_empty()
    }

    /// Approves in the shared state what [`Self::approve`] approves in this host.
    pub(crate) async fn approve_shared(
        &self,
        shared: &dyn SharedState,
        tool: Option<&str>,
        done: &[String],
    ) -> Result<Vec<String>, StateError> {
        for _ in 0..MAX_ATTEMPTS {
            let (server, expected, value, approved) = {
                let mut state = self.state.lock();
                let known = &mut *self.approved.0.lock();
                let Some(expected) = state.load(known) else { return Ok(Vec::new()) };
                let mut pins = known.pins.clone();
                let approved = state.approve(&mut pins, self.clock.now().wall, tool, done);
                if approved.is_empty() {
                    return Ok(approved);
                }
                let value = serde_json::to_string(&pins)
                    .map_err(|error| StateError::Unavailable(error.to_string()))?;
                (state.store.server().to_owned(), expected, value, approved)
            };
            match shared.set(StateTable::Pins, &server, expected, Some(value)).await {
                Ok(_) => return Ok(approved),
                Err(StateError::Changed) => drop(self.screen_again()),
                Err(error) => return Err(error),
            }
        }
        Err(StateError::Changed)
    }

    /// The instructions that clients get: the approved ones, if there are any; none if they are new and cannot be
    /// pinned. Returns an event if they have changed.
    fn instructions(&self, declared: &str) -> (Option<String>, Option<Event>) {
        let mut state = self.state.lock();
        let PinSettings { mode, max: most } = state.rules;
        if mode == PinMode::Off {
            return (Some(declared.to_owned()), None);
        }
        let raw = Patch::new().set_text(INSTRUCTIONS, declared).to_object();
        let known = &mut *self.approved.0.lock();
        if state.store.shared().is_some() {
            state.load(known);
            if known.pins.of(PinKind::Instructions).get(INSTRUCTIONS).is_none() {
                return (Some(declared.to_owned()).filter(|_| !mode.enforces()), None);
            }
        }
        let (now, mut judged) = (self.clock.now().wall, PinReview::default());
        let judge = |pins: &mut Approvals, judged: &mut PinReview| {
            *judged = PinReview::default();
            let items = [(INSTRUCTIONS, &*raw)];
            pins.judge(now, PinKind::Instructions, items, (mode, most.max(1)), judged);
        };
        judge(&mut known.pins, &mut judged);
        if !judged.quarantined.is_empty()
            && state.store.shared().is_none()
            && let Some(stored) = state.store.pins()
        {
            // Another process may have approved the instructions.
            known.pins.merge(stored);
            judge(&mut known.pins, &mut judged);
        }
        if !judged.newly_pinned.is_empty() {
            state.store.save_pins(&known.pins);
        }
        let change = judged.quarantined.pop();
        let is_known = matches!(&state.instructions, Some((before, _)) if before.get() == raw.get());
        let event = change
            .as_ref()
            .filter(|_| !is_known)
            .map(|_| Event::TextsChanged { items: vec![INSTRUCTIONS.to_owned()], kept: mode.enforces() });
        let approved = known.pins.of(PinKind::Instructions).get(INSTRUCTIONS).filter(|_| mode.enforces());
        let text = approved.and_then(|pin| instructions_in(pin.raw())).unwrap_or_else(|| declared.to_owned());
        state.instructions = Some((raw, change));
        (Some(text), event)
    }

    /// Returns true if the tool is held back, as far as this process knows.
    pub(crate) fn is_held(&self, tool: &str) -> bool {
        self.has_held.load(Ordering::Acquire) && self.why_held(&self.state.lock(), tool).is_some()
    }

    /// The error for a tool that is held back.
    pub(crate) fn refusal(&self, server: &str, tool: &str) -> CallError {
        let state = self.state.lock();
        let why = self.why_held(&state, tool).unwrap_or(HoldReason::Changed);
        why.refusal(server, tool, state.rules.max)
    }

    /// Approves the present description of a tool, or of all changed items except `done`: tools, prompts, resource
    /// templates and instructions. Returns their names.
    pub(crate) fn approve(&self, tool: Option<&str>, done: &[String]) -> Vec<String> {
        let state = self.state.lock();
        let Known { pins, .. } = &mut *self.approved.0.lock();
        let approved = state.approve(pins, self.clock.now().wall, tool, done);
        let InstancePinState { store, last_catalog: declared, .. } = &*state;
        if !approved.is_empty() {
            store.save_pins(pins);
            // After lost approvals the witness is written only when the operator has approved every tool.
            let is_pinned = |tool: &Item| pins.of(PinKind::Tool).get(&tool.key).is_some();
            if declared.as_ref().is_some_and(|declared| declared.tools.iter().all(is_pinned)) {
                store.update_witness(pins);
            }
        }
        approved
    }

    fn why_held(&self, state: &InstancePinState, tool: &str) -> Option<HoldReason> {
        let is_lost = || state.has_lost && self.approved.0.lock().pins.of(PinKind::Tool).get(tool).is_none();
        match state.why_held(tool) {
            Some(HoldReason::New) | None if state.rules.mode.enforces() && is_lost() => {
                Some(HoldReason::Lost)
            }
            why => why,
        }
    }

    /// The changes that wait for approval.
    pub(crate) fn changes(&self) -> Vec<Quarantined> {
        let state = self.state.lock();
        let instructions = state.instructions.as_ref().and_then(|(_, change)| change.clone());
        state.judged.quarantined.iter().cloned().chain(instructions).collect()
    }

    /// Number of pinned items of the server.
    pub(crate) fn count(&self) -> usize {
        let known = self.approved.0.lock();
        PinKind::ALL.iter().map(|kind| known.pins.of(*kind).len()).sum()
    }

    /// The pinned items of the server with these changes, and new ones that wait for approval.
    pub(crate) fn list(&self, changes: &[Quarantined]) -> Vec<PinnedTool> {
        let change = |kind: PinKind, tool: &str| {
            changes.iter().find(|changed| changed.kind == kind && changed.tool == tool)
        };
        let known = self.approved.0.lock();
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
}

/// Reason why a tool is held back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HoldReason {
    Changed,
    New,
    Unstored,
    Lost,
    TooMany,
}

impl InstancePinState {
    /// Merges the stored pins and compares them with the witness. Pins of a shared state replace those in memory; the
    /// result is their version, or `None` if they cannot be read.
    fn load(&mut self, known: &mut Known) -> Option<u64> {
        let Some(shared) = self.store.shared() else {
            if let Some(stored) = self.store.pins() {
                known.pins.merge(stored);
            }
            self.has_lost = self.store.has_lost_approvals(&known.pins);
            return None;
        };
        let field = shared.get(StateTable::Pins, self.store.server());
        if known.shared_version == Some(field.version) {
            return known.shared_version;
        }
        known.pins = match &field.value {
            // Another version of gripfast may have written it.
            Some(value) => serde_json::from_str(value).ok()?,
            None => self.store.pins().unwrap_or_default(),
        };
        known.shared_version = Some(field.version);
        known.shared_version
    }

    /// Approves in `pins` the present description of a tool, or of all changed items except `done`. Returns their names.
    fn approve(&self, pins: &mut Approvals, now: Wall, tool: Option<&str>, done: &[String]) -> Vec<String> {
        let Self { judged, last_catalog: declared, instructions, rules, .. } = self;
        let mut approved = Vec::new();
        let of_instructions =
            instructions.iter().filter_map(|(raw, change)| Some((change.as_ref()?, &**raw)));
        let of_lists = judged.quarantined.iter().filter_map(|change| {
            let named = change.renamed_to.as_deref().unwrap_or(&change.tool);
            Some((change, &*item_of(declared.as_deref()?, change.kind, named)?.raw))
        });
        for (change, raw) in of_lists.chain(of_instructions) {
            let named = change.renamed_to.as_deref().unwrap_or(&change.tool);
            let label = change.kind.label(&change.tool);
            let is_meant = tool.is_none_or(|tool| [&change.tool, named, &label].contains(&tool));
            let has_room = !change.is_new || pins.of(change.kind).len() < rules.max;
            if is_meant && has_room && !done.contains(&label) {
                pins.approve(now, change.kind, &change.tool, named, raw);
                approved.push(label);
            }
        }
        approved
    }

    /// The effective mode: after lost approvals no new tool is trusted.
    fn mode(&self) -> PinMode {
        match self.rules.mode {
            PinMode::Enforce if self.has_lost => PinMode::Strict,
            mode => mode,
        }
    }

    fn why_held(&self, tool: &str) -> Option<HoldReason> {
        let PinReview { quarantined, hidden, over_limit: beyond, .. } = &self.judged;
        let mut tools = quarantined.iter().filter(|change| change.kind == PinKind::Tool);
        let change = tools.find(|change| change.tool == tool);
        if beyond.contains(&(PinKind::Tool, tool.to_owned())) {
            Some(HoldReason::TooMany)
        } else if !self.rules.mode.enforces() {
            None
        } else if self.judged.unstored.contains(&(PinKind::Tool, tool.to_owned())) {
            Some(HoldReason::Unstored)
        } else if change.is_some_and(|change| change.is_new) {
            Some(HoldReason::New)
        } else if change.is_some() || hidden.contains(tool) {
            Some(HoldReason::Changed)
        } else {
            None
        }
    }
}

impl HoldReason {
    fn refusal(self, server: &str, tool: &str, most: usize) -> CallError {
        let (text, hint) = match self {
            Self::Changed => (
                format!(
                    "tool `{tool}` of server `{server}` has changed since it was approved; \
                     it is not called before the change is approved"
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
            Self::Unstored => (
                format!(
                    "tool `{tool}` of server `{server}` is new and cannot be pinned yet: the store of the service is \
                     unreachable, or was away until now"
                ),
                "try again when the store is back; `gripfast replicas` and `gripfast doctor` show its state"
                    .to_owned(),
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
        CallError::new(Code::SchemaChanged, server, CallOutcome::NotSent, text).with_hint(hint)
    }
}

impl Upstream {
    /// The approved instructions of a connected server.
    pub(crate) fn instructions(&self) -> Option<String> {
        let connection = self.connection()?;
        let (text, event) = self.pins.instructions(connection.server.instructions.as_deref()?);
        if let Some(event) = event {
            self.announce(self.clock.now(), event);
        }
        text
    }
}

/// Name under which instructions are pinned, and the member with their text.
const INSTRUCTIONS: &str = PinKind::Instructions.as_str();

fn instructions_in(pinned: &Json) -> Option<String> {
    let pinned: serde_json::Value = serde_json::from_str(pinned.get()).ok()?;
    Some(pinned.get(INSTRUCTIONS)?.as_str()?.to_owned())
}

/// The pinned lists of a catalog.
fn pinned_lists(catalog: &Catalog) -> [(PinKind, &Vec<Item>); 3] {
    [
        (PinKind::Tool, &catalog.tools),
        (PinKind::Prompt, &catalog.prompts),
        (PinKind::Template, &catalog.templates),
    ]
}

/// Judges all lists of a catalog.
fn judge_lists(
    pins: &mut Approvals,
    declared: &Catalog,
    now: Wall,
    (mode, most): (PinMode, usize),
    judged: &mut PinReview,
) {
    for (kind, items) in pinned_lists(declared) {
        let items = items.iter().map(|item| (item.key.as_str(), &*item.raw));
        pins.judge(now, kind, items, (mode, most), judged);
    }
}

/// Returns true if a catalog has items without a pin.
fn has_unpinned(pins: &Approvals, declared: &Catalog) -> bool {
    let is_unpinned = |(kind, items): (PinKind, &Vec<Item>)| {
        items.iter().any(|item| pins.of(kind).get(&item.key).is_none())
    };
    pinned_lists(declared).into_iter().any(is_unpinned)
}

fn item_of<'c>(catalog: &'c Catalog, kind: PinKind, name: &str) -> Option<&'c Item> {
    let (_, items) = pinned_lists(catalog).into_iter().find(|(listed, _)| *listed == kind)?;
    items.iter().find(|item| item.key == name)
}

/// The items beyond the first `most` of each list, which are hidden even with pins off.
fn items_beyond(declared: &Catalog, most: usize) -> impl Iterator<Item = (PinKind, String)> {
    pinned_lists(declared)
        .into_iter()
        .flat_map(move |(kind, items)| items.iter().skip(most).map(move |item| (kind, item.key.clone())))
}

/// The events of a screening that the one before did not have.
fn events(before: &PinReview, judged: &PinReview, pins: &Approvals, rules: PinSettings) -> Vec<Event> {
    let mut events = Vec::new();
    let fresh: Vec<&String> =
        judged.newly_pinned.iter().filter(|(kind, _)| *kind == PinKind::Tool).map(|(_, name)| name).collect();
    let held = rules.mode.enforces();
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
    if !judged.over_limit.is_empty() && judged.over_limit != before.over_limit {
        events.push(Event::TooManyTools { hidden: judged.over_limit.len(), limit: rules.max });
    }
    events
}

fn approval_cause<'q>(held: impl Iterator<Item = &'q Quarantined>, has_lost: bool) -> Option<String> {
    let (new, changed): (Vec<_>, Vec<_>) = held.partition(|change| change.is_new);
    let names = |changes: Vec<&Quarantined>| {
        text::name_list(&changes.iter().map(|change| change.tool.as_str()).collect::<Vec<_>>())
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
    serde_json::from_str(tool).map(|tool| find_suspicious(&tool)).unwrap_or_default()
}

/// The catalog with changed items as they were approved, under their approved names, and without items that were not
/// approved.
fn as_approved(declared: &Catalog, pins: &Approvals, judged: &PinReview, mode: PinMode) -> Arc<Catalog> {
    let shown = |kind: PinKind, items: &[Item]| -> Vec<Item> {
        let show = |item: &Item| {
            let at = (kind, item.key.clone());
            if judged.over_limit.contains(&at) || (mode.enforces() && judged.unstored.contains(&at)) {
                return None;
            }
            match judged.change_of(kind, &item.key).filter(|_| mode.enforces()) {
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
        tools: shown(PinKind::Tool, &declared.tools),
        prompts: shown(PinKind::Prompt, &declared.prompts),
        templates: shown(PinKind::Template, &declared.templates),
        resources: declared.resources.clone(),
    })
}
