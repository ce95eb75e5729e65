//! Pins: the text of an item at first sight counts as approved. A tool that changes later is quarantined until an
//! operator approves it; prompts, resource templates and server instructions keep their approved text.
//!
//! Pins compare the meaning of the members that a client or model reads, not their spelling. Clients get the server's
//! own bytes, in the approved version.

use super::diff::{Difference, differences};
use super::suspicious_text::{Suspicion, find_suspicious};
use crate::json::{Digest, canonical, parse_strict};
use crate::json_text::{Json, JsonText};
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Treatment of changed and new tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PinMode {
    /// A changed tool is quarantined; a new one is approved at first sight.
    #[default]
    Enforce,
    /// Changed and new tools are held until they are approved.
    Strict,
    /// Changes are reported, and the tools are used.
    Warn,
    /// Nothing is pinned.
    Off,
}

impl PinMode {
    /// Returns whether changed tools are held back.
    pub const fn enforces(self) -> bool {
        match self {
            Self::Enforce | Self::Strict => true,
            Self::Warn | Self::Off => false,
        }
    }

    /// The treatment of a tool that is seen for the first time.
    const fn first_sight(self) -> FirstSight {
        match self {
            Self::Strict => FirstSight::Held,
            Self::Enforce | Self::Warn | Self::Off => FirstSight::Approved,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstSight {
    Approved,
    Held,
}

word_enum! {
    /// Kind of item whose text is pinned.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum PinKind {
        /// A tool, by its name.
        Tool = "tool",
        /// A prompt, by its name.
        Prompt = "prompt",
        /// A resource template, by its URI template.
        Template = "template",
        /// The instructions of a server, a single text. It is pinned as `{"instructions": TEXT}`.
        Instructions = "instructions",
    }
}

impl PinKind {
    /// The label of an item for people: a tool by its name alone.
    pub fn label(self, name: &str) -> String {
        match self {
            Self::Tool => name.to_owned(),
            Self::Prompt | Self::Template => format!("{} {name}", self.as_str()),
            Self::Instructions => self.as_str().to_owned(),
        }
    }

    /// The pinned members. Others, such as icons, may change freely.
    const fn members(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &["name", "title", "description", "inputSchema", "outputSchema", "annotations"],
            Self::Prompt => &["name", "title", "description", "arguments"],
            Self::Template => &["uriTemplate", "name", "title", "description", "mimeType"],
            Self::Instructions => &["instructions"],
        }
    }
}

/// One item as it was approved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pin {
    /// Digest of all pinned members.
    digest: Digest,
    /// Digest without the name, to recognise a renamed tool.
    body: Digest,
    /// The item in the server's own bytes.
    raw: JsonText,
    /// The time of first sight, in milliseconds since the Unix epoch.
    first_seen: u64,
    /// The time of the explicit approval, if there was one.
    approved: Option<u64>,
    /// Members that a newer version has added. They are kept as long as the pin is; an approval makes a new pin.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl Pin {
    /// The pin of an item in the server's own bytes. One that parsers could read differently, or that is nested too
    /// deeply, is pinned by its bytes.
    fn of(kind: PinKind, raw: &Json, first_seen: Wall) -> Self {
        let by_bytes = || (Digest::of(raw.get().as_bytes()), Digest::of(raw.get().as_bytes()));
        let (digest, body) = digests(kind, raw).unwrap_or_else(by_bytes);
        Self {
            digest,
            body,
            raw: raw.to_owned(),
            first_seen: millis(first_seen),
            approved: None,
            unknown: BTreeMap::new(),
        }
    }

    /// The time of first sight.
    pub fn first_seen(&self) -> Wall {
        Wall::from_unix_epoch(Duration::from_millis(self.first_seen))
    }

    /// The time of the explicit approval, if there was one.
    pub fn approved(&self) -> Option<Wall> {
        Some(Wall::from_unix_epoch(Duration::from_millis(self.approved?)))
    }

    /// Returns whether this pin wins over another process's pin of the same item: the later approval, or else the
    /// earlier first sight.
    fn supersedes(&self, other: &Self) -> bool {
        match (self.approved, other.approved) {
            (Some(this), Some(that)) => this > that,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.first_seen < other.first_seen,
        }
    }

    /// Returns whether its description is specific enough to recognise it under another name.
    fn is_recognisable(&self) -> bool {
        let tool: Option<Value> = serde_json::from_str(self.raw.get()).ok();
        let description = tool.as_ref().and_then(|tool| tool.get("description")?.as_str());
        description.is_some_and(|description| !description.trim().is_empty())
    }

    /// The digest of all pinned members.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The approved item in the server's own bytes.
    pub fn raw(&self) -> &Json {
        &self.raw
    }
}

fn millis(at: Wall) -> u64 {
    u64::try_from(at.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// Digests of all pinned members, with and without the name.
fn digests(kind: PinKind, raw: &Json) -> Option<(Digest, Digest)> {
    let mut tool = pinned_members(kind, raw)?;
    let digest = Digest::of(canonical(&tool)?.as_bytes());
    tool.as_object_mut()?.remove("name");
    Some((digest, Digest::of(canonical(&tool)?.as_bytes())))
}

fn pinned_members(kind: PinKind, raw: &Json) -> Option<Value> {
    let mut item = parse_strict(raw.get())?;
    item.as_object_mut()?.retain(|key, _| kind.members().contains(&key.as_str()));
    Some(item)
}

/// The pins of one server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Approvals {
    tools: Pins,
    prompts: Pins,
    templates: Pins,
    instructions: Pins,
    /// Members that a newer version has added.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

/// The pins of one kind, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Pins(BTreeMap<String, Pin>);

/// An item that an operator has to review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// The kind of item.
    pub kind: PinKind,
    /// The approved name.
    pub tool: String,
    /// The new name, if it was renamed.
    pub renamed_to: Option<String>,
    /// True if it is new and was never approved.
    pub is_new: bool,
    /// The differences; the whole text if it is new.
    pub differences: Vec<Difference>,
    /// Suspicious parts of the new text.
    pub suspicions: Vec<Suspicion>,
}

/// The result of checking a listing.
#[derive(Debug, Default)]
pub struct PinReview {
    /// Items at first sight, which are approved by that.
    pub newly_pinned: Vec<(PinKind, String)>,
    /// Items that an operator has to review.
    pub quarantined: Vec<Quarantined>,
    /// Tools that are not offered: approved tools under a new name.
    pub hidden: BTreeSet<String>,
    /// New items beyond the limit, which are not offered.
    pub over_limit: BTreeSet<(PinKind, String)>,
    /// New items whose pins are not stored yet, because several hosts share their pins. The caller moves them here from
    /// `newly_pinned`.
    pub unstored: BTreeSet<(PinKind, String)>,
}

impl PinReview {
    /// The pending change of an item by its present name.
    pub fn change_of(&self, kind: PinKind, name: &str) -> Option<&Quarantined> {
        let now = |change: &&Quarantined| change.renamed_to.as_deref().unwrap_or(&change.tool) == name;
        self.quarantined.iter().filter(|change| change.kind == kind).find(now)
    }
}

impl Approvals {
    /// Reads the pins that version 0.1 stored: those of tools.
    pub fn from_v0_1(stored: &[u8]) -> Option<Self> {
        Some(Self { tools: serde_json::from_slice(stored).ok()?, ..Self::default() })
    }

    /// Merges pins and approvals of another process.
    pub fn merge(&mut self, others: Self) {
        let Self { tools, prompts, templates, instructions, unknown } = others;
        self.unknown.extend(unknown);
        self.tools.merge(tools);
        self.prompts.merge(prompts);
        self.templates.merge(templates);
        self.instructions.merge(instructions);
    }

    /// The pins of a kind.
    pub fn of(&self, kind: PinKind) -> &Pins {
        match kind {
            PinKind::Tool => &self.tools,
            PinKind::Prompt => &self.prompts,
            PinKind::Template => &self.templates,
            PinKind::Instructions => &self.instructions,
        }
    }

    fn of_mut(&mut self, kind: PinKind) -> &mut Pins {
        match kind {
            PinKind::Tool => &mut self.tools,
            PinKind::Prompt => &mut self.prompts,
            PinKind::Template => &mut self.templates,
            PinKind::Instructions => &mut self.instructions,
        }
    }

    /// Checks the listing of a kind: `(name, the server's own bytes)`. New items are pinned if `mode` approves at first
    /// sight and there are fewer than `most` pins of the kind.
    pub fn judge<'t>(
        &mut self,
        now: Wall,
        kind: PinKind,
        listing: impl IntoIterator<Item = (&'t str, &'t Json)>,
        (mode, most): (PinMode, usize),
        judged: &mut PinReview,
    ) {
        let first_sight = match kind {
            PinKind::Tool => mode.first_sight(),
            PinKind::Prompt | PinKind::Template | PinKind::Instructions => FirstSight::Approved,
        };
        self.of_mut(kind).judge(now, kind, listing, (first_sight, most), judged);
    }

    /// Approves the present text of an item, in the server's own bytes. Returns whether it differs from the pin.
    pub fn approve(&mut self, now: Wall, kind: PinKind, name: &str, now_named: &str, raw: &Json) -> bool {
        self.of_mut(kind).approve(now, kind, name, now_named, raw)
    }
}

impl Pins {
    fn merge(&mut self, others: Self) {
        for (tool, pin) in others.0 {
            match self.0.get(&tool) {
                Some(known) if !pin.supersedes(known) => {}
                Some(_) | None => {
                    self.0.insert(tool, pin);
                }
            }
        }
    }

    fn judge<'t>(
        &mut self,
        now: Wall,
        kind: PinKind,
        listing: impl IntoIterator<Item = (&'t str, &'t Json)>,
        (first_sight, most): (FirstSight, usize),
        judged: &mut PinReview,
    ) {
        let listing: Vec<_> = listing.into_iter().collect();
        let offered: BTreeSet<&str> = listing.iter().map(|(name, _)| *name).collect();
        // Approved tools that are not offered any more: one of them may be back under another name.
        let missing: BTreeMap<Digest, String> = self
            .0
            .iter()
            .filter(|(name, pin)| {
                kind == PinKind::Tool && !offered.contains(name.as_str()) && pin.is_recognisable()
            })
            .map(|(name, pin)| (pin.body, name.clone()))
            .collect();
        for (name, raw) in listing {
            match self.0.get(name) {
                Some(pin) if pin.raw.get() == raw.get() => {}
                Some(pin) => judged.quarantined.extend(changed(kind, name, pin, raw)),
                None => {
                    let pin = Pin::of(kind, raw, now);
                    match missing.get(&pin.body) {
                        Some(approved) => {
                            judged.hidden.insert(name.to_owned());
                            judged.quarantined.push(Quarantined {
                                kind,
                                tool: approved.clone(),
                                renamed_to: Some(name.to_owned()),
                                is_new: false,
                                differences: Vec::new(),
                                suspicions: find_suspicious(&Value::from(name)),
                            });
                        }
                        // No approved pin is removed to make room.
                        None if self.0.len() >= most => {
                            judged.over_limit.insert((kind, name.to_owned()));
                        }
                        None => match first_sight {
                            FirstSight::Approved => {
                                self.0.insert(name.to_owned(), pin);
                                judged.newly_pinned.push((kind, name.to_owned()));
                            }
                            FirstSight::Held => judged.quarantined.push(unapproved(kind, name, raw)),
                        },
                    }
                }
            }
        }
    }

    fn approve(&mut self, now: Wall, kind: PinKind, tool: &str, now_named: &str, raw: &Json) -> bool {
        let mut pin = Pin::of(kind, raw, now);
        // The last approval wins, also if the clock is behind that of an earlier approval.
        let earlier = [tool, now_named].iter().filter_map(|name| self.0.get(*name)?.approved).max();
        pin.approved = Some(earlier.map_or(0, |earlier| earlier.saturating_add(1)).max(millis(now)));
        let known = if tool == now_named { self.0.get(tool).cloned() } else { self.0.remove(tool) };
        pin.first_seen = known.map_or(pin.first_seen, |known| known.first_seen);
        let before = self.0.insert(now_named.to_owned(), pin.clone());
        before.is_none_or(|before| before.digest != pin.digest)
    }

    /// The pin of an item.
    pub fn get(&self, tool: &str) -> Option<&Pin> {
        self.0.get(tool)
    }

    /// All pins, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Pin)> {
        self.0.iter().map(|(name, pin)| (name.as_str(), pin))
    }

    /// Number of pins.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no pins.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The change of a pinned item, if its meaning differs.
fn changed(kind: PinKind, name: &str, pin: &Pin, raw: &Json) -> Option<Quarantined> {
    let change = |differences, suspicions| Quarantined {
        kind,
        tool: name.to_owned(),
        renamed_to: None,
        is_new: false,
        differences,
        suspicions,
    };
    let Some(now) = pinned_members(kind, raw) else { return Some(change(vec![unreadable()], Vec::new())) };
    if canonical(&now).is_some_and(|form| Digest::of(form.as_bytes()) == pin.digest) {
        return None;
    }
    let approved = pinned_members(kind, &pin.raw).unwrap_or_default();
    Some(change(differences(&approved, &now), find_suspicious(&now)))
}

/// A new item that was not approved.
fn unapproved(kind: PinKind, name: &str, raw: &Json) -> Quarantined {
    let (differences, suspicions) = match pinned_members(kind, raw) {
        Some(now) => (differences(&Value::Object(serde_json::Map::new()), &now), find_suspicious(&now)),
        None => (vec![unreadable()], Vec::new()),
    };
    Quarantined { kind, tool: name.to_owned(), renamed_to: None, is_new: true, differences, suspicions }
}

fn unreadable() -> Difference {
    let after = Some("ambiguous JSON: a key appears twice, or it is nested too deeply".to_owned());
    Difference { path: String::new(), before: None, after }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> JsonText {
        JsonText::parse(json.to_owned()).unwrap()
    }

    fn judge_kind(
        pins: &mut Approvals,
        (mode, most): (PinMode, usize),
        kind: PinKind,
        items: &[(&str, &str)],
    ) -> PinReview {
        let items: Vec<_> = items.iter().map(|(name, json)| (*name, raw(json))).collect();
        let mut judged = PinReview::default();
        let listing = items.iter().map(|(name, json)| (*name, &**json));
        pins.judge(at(1), kind, listing, (mode, most), &mut judged);
        judged
    }

    fn judge(pins: &mut Approvals, tools: &[(&str, &str)]) -> PinReview {
        judge_kind(pins, (PinMode::Enforce, 100), PinKind::Tool, tools)
    }

    fn approve(pins: &mut Approvals, now: Wall, tool: &str, named: &str, json: &str) -> bool {
        pins.approve(now, PinKind::Tool, tool, named, &raw(json))
    }

    fn names(fresh: &[(PinKind, String)]) -> Vec<&str> {
        fresh.iter().map(|(_, name)| name.as_str()).collect()
    }

    fn get<'p>(pins: &'p Approvals, tool: &str) -> Option<&'p Pin> {
        pins.of(PinKind::Tool).get(tool)
    }

    fn at(millis: u64) -> Wall {
        Wall::from_unix_epoch(Duration::from_millis(millis))
    }

    const READ: &str = r#"{"name":"read","description":"Reads","inputSchema":{"type":"object"}}"#;
    const RENAMED: &str = r#"{"name":"fetch","description":"Reads","inputSchema":{"type":"object"}}"#;
    const CHANGED: &str =
        r#"{"name":"read","description":"Reads. <IMPORTANT>","inputSchema":{"type":"object"}}"#;

    /// G02
    #[test]
    fn g02_an_approval_wins_even_if_the_clock_is_behind() {
        let mut pins = Approvals::default();
        approve(&mut pins, at(100), "read", "read", READ);
        approve(&mut pins, at(100), "read", "read", CHANGED);
        let stored = pins.clone();
        approve(&mut pins, at(50), "read", "read", READ);
        // Pins of other processes in the store are older, whatever they contain.
        pins.merge(stored);
        assert_eq!(judge(&mut pins, &[("read", READ)]).quarantined, []);
    }

    #[test]
    fn g02_a_tool_is_approved_at_first_sight_and_unchanged_after_that() {
        let mut pins = Approvals::default();
        assert_eq!(names(&judge(&mut pins, &[("read", READ)]).newly_pinned), ["read"]);
        let again = judge(&mut pins, &[("read", READ)]);
        assert!(again.newly_pinned.is_empty() && again.quarantined.is_empty());
    }

    #[test]
    fn g02_key_order_and_icons_are_no_change() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        let respelled = r#"{ "inputSchema": {"type": "object"}, "icons": [], "description": "Read\u0073", "name":"read" }"#;
        assert_eq!(judge(&mut pins, &[("read", respelled)]).quarantined, []);
    }

    #[test]
    fn g02_a_changed_tool_is_quarantined_with_its_difference_until_it_is_approved() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        for _ in 0..2 {
            let judged = judge(&mut pins, &[("read", CHANGED)]);
            let [quarantined] = judged.quarantined.as_slice() else { panic!("{judged:?}") };
            assert_eq!(quarantined.differences[0].path, "description");
            assert_eq!(quarantined.suspicions[0].what, "contains \"<important>\"");
            assert_eq!(get(&pins, "read").unwrap().raw().get(), READ, "the approved form stays");
        }
        assert!(approve(&mut pins, at(9), "read", "read", CHANGED));
        assert_eq!(judge(&mut pins, &[("read", CHANGED)]).quarantined, []);
        assert_eq!(judge(&mut pins, &[("read", READ)]).quarantined.len(), 1, "the way back is a change too");
    }

    #[test]
    fn g02_a_removed_tool_that_comes_back_changed_is_quarantined() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        judge(&mut pins, &[]);
        assert_eq!(judge(&mut pins, &[("read", CHANGED)]).quarantined.len(), 1);
    }

    #[test]
    fn g02_a_renamed_tool_is_recognised_and_hidden_until_it_is_approved() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        let judged = judge(&mut pins, &[("fetch", RENAMED)]);
        assert!(judged.newly_pinned.is_empty() && judged.hidden.contains("fetch"));
        assert_eq!(judged.quarantined[0].tool, "read");
        assert_eq!(judged.quarantined[0].renamed_to.as_deref(), Some("fetch"));
        assert!(approve(&mut pins, at(9), "read", "fetch", RENAMED));
        let judged = judge(&mut pins, &[("fetch", RENAMED)]);
        assert!(judged.quarantined.is_empty() && judged.hidden.is_empty());
        assert!(get(&pins, "read").is_none());
    }

    #[test]
    fn g02_between_processes_the_last_approval_or_first_sight_wins() {
        let seen = |json: &str, when| {
            let mut pins = Approvals::default();
            let json = raw(json);
            let (limits, mut judged) = ((PinMode::Enforce, 100), PinReview::default());
            pins.judge(at(when), PinKind::Tool, [("read", &*json)], limits, &mut judged);
            pins
        };
        let (earlier, later) = (seen(READ, 1), seen(CHANGED, 2));
        for (mut mine, theirs) in [(earlier.clone(), later.clone()), (later.clone(), earlier.clone())] {
            mine.merge(theirs);
            assert_eq!(get(&mine, "read").unwrap().raw().get(), READ);
        }
        let mut approved = earlier.clone();
        approve(&mut approved, at(9), "read", "read", CHANGED);
        let pin = get(&approved, "read").unwrap();
        assert_eq!((pin.first_seen(), pin.approved()), (at(1), Some(at(9))));
        let mut mine = earlier;
        mine.merge(approved);
        assert!(judge(&mut mine, &[("read", CHANGED)]).quarantined.is_empty());
    }

    #[test]
    fn a_tool_without_description_is_not_recognised_after_a_rename() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("a", r#"{"name":"a","inputSchema":{"type":"object"}}"#)]);
        let judged = judge(&mut pins, &[("b", r#"{"name":"b","inputSchema":{"type":"object"}}"#)]);
        assert_eq!((names(&judged.newly_pinned), judged.hidden.len()), (vec!["b"], 0));
    }

    #[test]
    fn g02_a_change_that_some_parsers_miss_is_a_change() {
        let twice =
            r#"{"name":"read","description":"EVIL","description":"Reads","inputSchema":{"type":"object"}}"#;
        let deep = format!(
            r#"{{"name":"read","description":"Reads","inputSchema":{}{}}}"#,
            r#"{"not":"#.repeat(200) + "{}",
            "}".repeat(200)
        );
        for changed in [twice, &deep] {
            let mut pins = Approvals::default();
            judge(&mut pins, &[("read", READ)]);
            assert_eq!(judge(&mut pins, &[("read", changed)]).quarantined.len(), 1, "{changed}");
            assert!(approve(&mut pins, at(9), "read", "read", changed));
            assert_eq!(judge(&mut pins, &[("read", changed)]).quarantined, []);
            assert_eq!(judge(&mut pins, &[("read", READ)]).quarantined.len(), 1);
        }
    }

    #[test]
    fn a_new_tool_beside_an_identical_one_is_new() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        let judged = judge(&mut pins, &[("read", READ), ("fetch", RENAMED)]);
        assert_eq!((names(&judged.newly_pinned), judged.quarantined.len()), (vec!["fetch"], 0));
    }

    #[test]
    fn g02_pins_round_trip_through_json() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        let mut again: Approvals = serde_json::from_str(&serde_json::to_string(&pins).unwrap()).unwrap();
        assert_eq!(judge(&mut again, &[("read", READ)]).newly_pinned, []);
        assert_eq!(judge(&mut again, &[("read", CHANGED)]).quarantined.len(), 1);
    }

    #[test]
    fn g02_members_that_a_newer_version_has_added_are_kept() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        let mut stored = serde_json::to_value(&pins).unwrap();
        stored["of_the_server"] = Value::from(1);
        stored["tools"]["read"]["of_the_tool"] = Value::from("x");
        let mut again: Approvals = serde_json::from_str(&stored.to_string()).unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), stored);
        judge(&mut again, &[("read", READ), ("fetch", RENAMED)]);
        let mut merged = Approvals::default();
        merged.merge(again);
        let merged = serde_json::to_value(&merged).unwrap();
        assert_eq!(
            (&merged["of_the_server"], &merged["tools"]["read"]),
            (&stored["of_the_server"], &stored["tools"]["read"])
        );
    }

    fn tool(name: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)
    }

    /// Regression: a hundred thousand other tools, followed by the changed one, made 0.1 forget the approval.
    #[test]
    fn g02_approved_tools_are_never_evicted() {
        let (mut pins, limits) = (Approvals::default(), (PinMode::Enforce, 20));
        judge_kind(&mut pins, limits, PinKind::Tool, &[("read", READ)]);
        for listing in 0..10 {
            let others: Vec<String> = (0..100).map(|number| format!("other-{listing}-{number}")).collect();
            let others: Vec<_> = others.iter().map(|name| (name.as_str(), tool(name))).collect();
            let others: Vec<_> = others.iter().map(|(name, json)| (*name, json.as_str())).collect();
            let judged = judge_kind(&mut pins, limits, PinKind::Tool, &others);
            assert_eq!(
                judged.newly_pinned.len() + judged.over_limit.len(),
                100,
                "what is not pinned is not offered"
            );
            assert!(pins.of(PinKind::Tool).len() <= 20);
        }
        let judged = judge_kind(&mut pins, limits, PinKind::Tool, &[("read", CHANGED)]);
        assert_eq!((judged.quarantined.len(), judged.over_limit.len()), (1, 0));
        let judged = judge_kind(&mut pins, (PinMode::Enforce, 1), PinKind::Tool, &[("read", READ)]);
        assert!(judged.over_limit.is_empty(), "what is pinned stays, also beyond a lower bound");
    }

    #[test]
    fn g02_strict_pins_hold_new_tools_until_they_are_approved() {
        let (mut pins, limits) = (Approvals::default(), (PinMode::Strict, 100));
        for _ in 0..2 {
            let judged = judge_kind(&mut pins, limits, PinKind::Tool, &[("read", CHANGED)]);
            let [held] = judged.quarantined.as_slice() else { panic!("{judged:?}") };
            assert!(held.is_new && judged.newly_pinned.is_empty() && pins.of(PinKind::Tool).is_empty());
            let said: Vec<_> = held.differences.iter().map(|said| said.path.as_str()).collect();
            assert_eq!(said, ["description", "inputSchema", "name"]);
            assert_eq!(held.suspicions.len(), 1);
        }
        assert!(approve(&mut pins, at(9), "read", "read", CHANGED));
        let judged = judge_kind(&mut pins, limits, PinKind::Tool, &[("read", CHANGED)]);
        assert!(judged.quarantined.is_empty());
    }

    #[test]
    fn g02_prompts_templates_and_instructions_are_approved_at_first_sight_in_any_mode() {
        let items = [
            (PinKind::Prompt, r#"{"name":"x","description":"one","arguments":[]}"#, "description"),
            (PinKind::Template, r#"{"uriTemplate":"x","description":"one","icons":[]}"#, "description"),
            (PinKind::Instructions, r#"{"instructions":"one"}"#, "instructions"),
        ];
        for mode in [PinMode::Enforce, PinMode::Strict] {
            let mut pins = Approvals::default();
            for (kind, json, path) in items {
                assert_eq!(judge_kind(&mut pins, (mode, 9), kind, &[("x", json)]).newly_pinned.len(), 1);
                let (again, other) = (json.replace("[]", "[ ]"), json.replace("one", "two"));
                assert_eq!(judge_kind(&mut pins, (mode, 9), kind, &[("x", &again)]).quarantined, []);
                let judged = judge_kind(&mut pins, (mode, 9), kind, &[("x", &other)]);
                assert_eq!(
                    (judged.quarantined[0].kind, &*judged.quarantined[0].differences[0].path),
                    (kind, path)
                );
                assert_eq!(pins.of(kind).get("x").unwrap().raw().get(), json, "the approved text stays");
                assert!(pins.approve(at(9), kind, "x", "x", &raw(&other)));
                assert_eq!(judge_kind(&mut pins, (mode, 9), kind, &[("x", &other)]).quarantined, []);
            }
        }
    }

    #[test]
    fn g02_pins_of_version_0_1_are_read() {
        let mut pins = Approvals::default();
        judge(&mut pins, &[("read", READ)]);
        let stored = serde_json::to_vec(pins.of(PinKind::Tool)).unwrap();
        let mut pins = Approvals::from_v0_1(&stored).unwrap();
        assert_eq!(judge(&mut pins, &[("read", CHANGED)]).quarantined.len(), 1);
    }
}
