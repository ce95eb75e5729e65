//! Schema pins: what a tool said about itself when it was first seen is what was approved. A tool that says
//! something else later is quarantined until a person has looked.
//!
//! What counts is the meaning of name, title, description, schemas and annotations, not how it is spelled.
//! What clients are shown is the server's own bytes, in the approved version.

use super::difference::{Difference, differences};
use super::suspicion::{Suspicion, suspicions};
use crate::json::{Digest, canonical, unambiguous};
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is done about a changed tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It is quarantined.
    #[default]
    Enforce,
    /// It is told and used.
    Warn,
    /// Nothing is pinned.
    Off,
}

/// The treatment of a tool that has no pin yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstUse {
    /// It is approved by being seen.
    Trusted,
    /// It waits for a person, as after the loss of earlier approvals.
    NeedsApproval,
}

/// The members that are pinned. Others, such as icons, may change as they like.
const PINNED: &[&str] = &["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// One tool as it was approved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pin {
    /// Of everything that is pinned.
    digest: Digest,
    /// Of the same without the name: a tool under another name is recognised by it.
    body: Digest,
    /// The tool in the server's own bytes.
    raw: Box<RawValue>,
    /// When it was first seen, in milliseconds since the Unix epoch.
    first_seen: u64,
    /// When somebody approved it, if anybody had to.
    approved: Option<u64>,
}

impl Pin {
    /// The pin of a tool in the server's own bytes. One that readers could read differently, or that is nested
    /// too deeply to be read, is pinned by its bytes.
    fn of(raw: &RawValue, first_seen: Wall) -> Self {
        let by_bytes = || (Digest::of(raw.get().as_bytes()), Digest::of(raw.get().as_bytes()));
        let (digest, body) = digests(raw).unwrap_or_else(by_bytes);
        Self { digest, body, raw: raw.to_owned(), first_seen: millis(first_seen), approved: None }
    }

    /// When it was first seen.
    pub fn first_seen(&self) -> Wall {
        Wall::at(Duration::from_millis(self.first_seen))
    }

    /// When somebody approved it, if anybody had to.
    pub fn approved(&self) -> Option<Wall> {
        Some(Wall::at(Duration::from_millis(self.approved?)))
    }

    /// Whether this pin counts where there is another one for the same tool, from another process: the last
    /// approval, or else the first use.
    fn outranks(&self, other: &Self) -> bool {
        match (self.approved, other.approved) {
            (Some(this), Some(that)) => this > that,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.first_seen < other.first_seen,
        }
    }

    /// Whether it says enough about itself to be recognised under another name.
    fn is_recognisable(&self) -> bool {
        let tool: Option<Value> = serde_json::from_str(self.raw.get()).ok();
        let description = tool.as_ref().and_then(|tool| tool.get("description")?.as_str());
        description.is_some_and(|description| !description.trim().is_empty())
    }

    /// What was approved, in short.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The tool as it was approved, in the server's own bytes.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }
}

fn millis(at: Wall) -> u64 {
    u64::try_from(at.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// Of everything that is pinned, and of the same without the name.
fn digests(raw: &RawValue) -> Option<(Digest, Digest)> {
    let mut tool = pinned_members(raw)?;
    let digest = Digest::of(canonical(&tool)?.as_bytes());
    tool.as_object_mut()?.remove("name");
    Some((digest, Digest::of(canonical(&tool)?.as_bytes())))
}

fn pinned_members(raw: &RawValue) -> Option<Value> {
    let mut tool = unambiguous(raw.get())?;
    tool.as_object_mut()?.retain(|key, _| PINNED.contains(&key.as_str()));
    Some(tool)
}

/// All pins of one server, by the name of the tool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Pins(BTreeMap<String, Pin>);

/// A tool that a person has to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// Its name, as it was approved.
    pub tool: String,
    /// Its name now, if it is offered under another one.
    pub renamed_to: Option<String>,
    /// What changed.
    pub differences: Vec<Difference>,
    /// What to look at twice in its new words.
    pub suspicions: Vec<Suspicion>,
}

/// What came of a listing.
#[derive(Debug, Default)]
pub struct Judged {
    /// Tools that were seen for the first time, and are approved by that.
    pub fresh: Vec<String>,
    /// Tools that a person has to look at, with the pins that hold for them.
    pub quarantined: Vec<Quarantined>,
    /// Names that are not to be offered: the new names of approved tools.
    pub hidden: BTreeSet<String>,
}

impl Pins {
    /// Tools that are remembered. Beyond it those that are offered no more are forgotten.
    pub const MOST: usize = 100_000;

    /// Takes over what another process has pinned or approved.
    pub fn adopt(&mut self, others: Self) {
        for (tool, pin) in others.0 {
            match self.0.get(&tool) {
                Some(known) if !pin.outranks(known) => {}
                Some(_) | None => {
                    self.0.insert(tool, pin);
                }
            }
        }
    }

    /// Looks at a listing: `(name, the server's own bytes)`. New tools are pinned, or wait, as `first_use` says.
    pub fn judge<'t>(
        &mut self,
        now: Wall,
        listing: impl IntoIterator<Item = (&'t str, &'t RawValue)>,
        first_use: FirstUse,
    ) -> Judged {
        let mut judged = Judged::default();
        let listing: Vec<_> = listing.into_iter().collect();
        let offered: BTreeSet<&str> = listing.iter().map(|(name, _)| *name).collect();
        // Approved tools that are offered no more: one of them may be back under another name.
        let missing: BTreeMap<Digest, String> = self
            .0
            .iter()
            .filter(|(name, pin)| !offered.contains(name.as_str()) && pin.is_recognisable())
            .map(|(name, pin)| (pin.body, name.clone()))
            .collect();
        for (name, raw) in listing {
            match self.0.get(name) {
                Some(pin) if pin.raw.get() == raw.get() => {}
                Some(pin) => judged.quarantined.extend(changed(name, pin, raw)),
                None => {
                    let pin = Pin::of(raw, now);
                    match (missing.get(&pin.body), first_use) {
                        (Some(approved), FirstUse::Trusted | FirstUse::NeedsApproval) => {
                            judged.hidden.insert(name.to_owned());
                            judged.quarantined.push(Quarantined {
                                tool: approved.clone(),
                                renamed_to: Some(name.to_owned()),
                                differences: Vec::new(),
                                suspicions: suspicions(&Value::from(name)),
                            });
                        }
                        (None, FirstUse::Trusted) => {
                            self.0.insert(name.to_owned(), pin);
                            judged.fresh.push(name.to_owned());
                        }
                        (None, FirstUse::NeedsApproval) => judged.quarantined.push(unapproved(name, raw)),
                    }
                }
            }
        }
        if self.0.len() > Self::MOST {
            self.0.retain(|name, _| offered.contains(name.as_str()));
        }
        judged
    }

    /// A person approves what `tool` says now, in the server's own bytes. Answers whether that was news.
    pub fn approve(&mut self, now: Wall, tool: &str, now_named: &str, raw: &RawValue) -> bool {
        let mut pin = Pin::of(raw, now);
        // The last approval counts, also by a clock that is behind the one of an earlier approval.
        let earlier = [tool, now_named].iter().filter_map(|name| self.0.get(*name)?.approved).max();
        pin.approved = Some(earlier.map_or(0, |earlier| earlier.saturating_add(1)).max(millis(now)));
        let known = if tool == now_named { self.0.get(tool).cloned() } else { self.0.remove(tool) };
        pin.first_seen = known.map_or(pin.first_seen, |known| known.first_seen);
        let before = self.0.insert(now_named.to_owned(), pin.clone());
        before.is_none_or(|before| before.digest != pin.digest)
    }

    /// The pin of a tool.
    pub fn get(&self, tool: &str) -> Option<&Pin> {
        self.0.get(tool)
    }

    /// All pins, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Pin)> {
        self.0.iter().map(|(name, pin)| (name.as_str(), pin))
    }

    /// How many tools are pinned.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What changed about a pinned tool, if it means something.
fn changed(name: &str, pin: &Pin, raw: &RawValue) -> Option<Quarantined> {
    let Some(now) = pinned_members(raw) else { return Some(ambiguous(name)) };
    if canonical(&now).is_some_and(|form| Digest::of(form.as_bytes()) == pin.digest) {
        return None;
    }
    let approved = pinned_members(&pin.raw).unwrap_or_default();
    Some(Quarantined {
        tool: name.to_owned(),
        renamed_to: None,
        differences: differences(&approved, &now),
        suspicions: suspicions(&now),
    })
}

/// A tool that waits although nothing is known that it differs from: all of it is new.
fn unapproved(name: &str, raw: &RawValue) -> Quarantined {
    let Some(now) = pinned_members(raw) else { return ambiguous(name) };
    Quarantined {
        tool: name.to_owned(),
        renamed_to: None,
        differences: differences(&Value::Object(serde_json::Map::new()), &now),
        suspicions: suspicions(&now),
    }
}

fn ambiguous(name: &str) -> Quarantined {
    let after = "it cannot be read in one way: a key appears twice, or it is nested too deeply".to_owned();
    Quarantined {
        tool: name.to_owned(),
        renamed_to: None,
        differences: vec![Difference { path: String::new(), before: None, after: Some(after) }],
        suspicions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn judge(pins: &mut Pins, tools: &[(&str, &str)]) -> Judged {
        let tools: Vec<_> = tools.iter().map(|(name, json)| (*name, raw(json))).collect();
        pins.judge(at(1), tools.iter().map(|(name, json)| (*name, &**json)), FirstUse::Trusted)
    }

    fn at(millis: u64) -> Wall {
        Wall::at(Duration::from_millis(millis))
    }

    const READ: &str = r#"{"name":"read","description":"Reads","inputSchema":{"type":"object"}}"#;
    const RENAMED: &str = r#"{"name":"fetch","description":"Reads","inputSchema":{"type":"object"}}"#;
    const CHANGED: &str =
        r#"{"name":"read","description":"Reads. <IMPORTANT>","inputSchema":{"type":"object"}}"#;

    /// G02
    #[test]
    fn g02_an_approval_holds_also_by_a_clock_that_is_behind() {
        let mut pins = Pins::default();
        pins.approve(at(100), "read", "read", &raw(READ));
        pins.approve(at(100), "read", "read", &raw(CHANGED));
        let stored = pins.clone();
        pins.approve(at(50), "read", "read", &raw(READ));
        // What the store still has of other processes is older, whatever it says.
        pins.adopt(stored);
        assert_eq!(judge(&mut pins, &[("read", READ)]).quarantined, []);
    }

    #[test]
    fn g02_the_first_use_is_trusted_and_what_is_said_the_same_way_again_is_fine() {
        let mut pins = Pins::default();
        assert_eq!(judge(&mut pins, &[("read", READ)]).fresh, ["read"]);
        let again = judge(&mut pins, &[("read", READ)]);
        assert!(again.fresh.is_empty() && again.quarantined.is_empty());
    }

    #[test]
    fn g02_where_approvals_were_lost_a_tool_without_a_pin_waits_until_it_is_approved() {
        let mut pins = Pins::default();
        let tool = raw(READ);
        for _ in 0..2 {
            let judged = pins.judge(at(1), [("read", &*tool)], FirstUse::NeedsApproval);
            assert!(judged.fresh.is_empty() && pins.is_empty());
            let shown: Vec<&str> =
                judged.quarantined[0].differences.iter().map(|difference| difference.path.as_str()).collect();
            assert_eq!(shown, ["description", "inputSchema", "name"], "a person sees all of it");
        }
        assert!(pins.approve(at(2), "read", "read", &tool));
        let judged = pins.judge(at(3), [("read", &*tool)], FirstUse::NeedsApproval);
        assert_eq!(judged.quarantined, []);
    }

    #[test]
    fn g02_another_order_of_keys_is_no_change_nor_is_an_icon() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("read", READ)]);
        let respelled = r#"{ "inputSchema": {"type": "object"}, "icons": [], "description": "Read\u0073", "name":"read" }"#;
        assert_eq!(judge(&mut pins, &[("read", respelled)]).quarantined, []);
    }

    #[test]
    fn g02_a_changed_tool_is_quarantined_with_its_difference_until_it_is_approved() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("read", READ)]);
        for _ in 0..2 {
            let judged = judge(&mut pins, &[("read", CHANGED)]);
            let [quarantined] = judged.quarantined.as_slice() else { panic!("{judged:?}") };
            assert_eq!(quarantined.differences[0].path, "description");
            assert_eq!(quarantined.suspicions[0].what, "it says \"<important>\"");
            assert_eq!(pins.get("read").unwrap().raw().get(), READ, "the approved form stays");
        }
        assert!(pins.approve(at(9), "read", "read", &raw(CHANGED)));
        assert_eq!(judge(&mut pins, &[("read", CHANGED)]).quarantined, []);
        assert_eq!(judge(&mut pins, &[("read", READ)]).quarantined.len(), 1, "the way back is a change too");
    }

    #[test]
    fn g02_a_tool_that_was_away_and_comes_back_changed_is_quarantined() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("read", READ)]);
        judge(&mut pins, &[]);
        assert_eq!(judge(&mut pins, &[("read", CHANGED)]).quarantined.len(), 1);
    }

    #[test]
    fn g02_a_renamed_tool_is_recognised_and_hidden_until_it_is_approved() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("read", READ)]);
        let judged = judge(&mut pins, &[("fetch", RENAMED)]);
        assert!(judged.fresh.is_empty() && judged.hidden.contains("fetch"));
        assert_eq!(judged.quarantined[0].tool, "read");
        assert_eq!(judged.quarantined[0].renamed_to.as_deref(), Some("fetch"));
        assert!(pins.approve(at(9), "read", "fetch", &raw(RENAMED)));
        let judged = judge(&mut pins, &[("fetch", RENAMED)]);
        assert!(judged.quarantined.is_empty() && judged.hidden.is_empty());
        assert!(pins.get("read").is_none());
    }

    #[test]
    fn g02_of_two_processes_the_last_approval_counts_and_without_one_the_first_use() {
        let seen = |json: &str, when| {
            let mut pins = Pins::default();
            let json = raw(json);
            pins.judge(at(when), [("read", &*json)], FirstUse::Trusted);
            pins
        };
        let (earlier, later) = (seen(READ, 1), seen(CHANGED, 2));
        for (mut mine, theirs) in [(earlier.clone(), later.clone()), (later.clone(), earlier.clone())] {
            mine.adopt(theirs);
            assert_eq!(mine.get("read").unwrap().raw().get(), READ);
        }
        let mut approved = earlier.clone();
        approved.approve(at(9), "read", "read", &raw(CHANGED));
        let pin = approved.get("read").unwrap();
        assert_eq!((pin.first_seen(), pin.approved()), (at(1), Some(at(9))));
        let mut mine = earlier;
        mine.adopt(approved);
        assert!(judge(&mut mine, &[("read", CHANGED)]).quarantined.is_empty());
    }

    #[test]
    fn a_tool_that_says_nothing_about_itself_is_not_recognised_under_another_name() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("a", r#"{"name":"a","inputSchema":{"type":"object"}}"#)]);
        let judged = judge(&mut pins, &[("b", r#"{"name":"b","inputSchema":{"type":"object"}}"#)]);
        assert_eq!((judged.fresh.as_slice(), judged.hidden.len()), (["b".to_owned()].as_slice(), 0));
    }

    #[test]
    fn g02_a_change_that_some_readers_would_not_see_is_a_change() {
        let twice =
            r#"{"name":"read","description":"EVIL","description":"Reads","inputSchema":{"type":"object"}}"#;
        let deep = format!(
            r#"{{"name":"read","description":"Reads","inputSchema":{}{}}}"#,
            r#"{"not":"#.repeat(200) + "{}",
            "}".repeat(200)
        );
        for changed in [twice, &deep] {
            let mut pins = Pins::default();
            judge(&mut pins, &[("read", READ)]);
            assert_eq!(judge(&mut pins, &[("read", changed)]).quarantined.len(), 1, "{changed}");
            assert!(pins.approve(at(9), "read", "read", &raw(changed)));
            assert_eq!(judge(&mut pins, &[("read", changed)]).quarantined, []);
            assert_eq!(judge(&mut pins, &[("read", READ)]).quarantined.len(), 1);
        }
    }

    #[test]
    fn a_new_tool_beside_its_likeness_is_new() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("read", READ)]);
        let judged = judge(&mut pins, &[("read", READ), ("fetch", RENAMED)]);
        assert_eq!((judged.fresh.as_slice(), judged.quarantined.len()), (["fetch".to_owned()].as_slice(), 0));
    }

    #[test]
    fn g02_pins_survive_being_written_down() {
        let mut pins = Pins::default();
        judge(&mut pins, &[("read", READ)]);
        let mut again: Pins = serde_json::from_str(&serde_json::to_string(&pins).unwrap()).unwrap();
        assert_eq!(judge(&mut again, &[("read", READ)]).fresh, Vec::<String>::new());
        assert_eq!(judge(&mut again, &[("read", CHANGED)]).quarantined.len(), 1);
    }
}
