//! One entry put into a YAML file, or taken out of it, by lines: what the parser says where things are decides which
//! lines, and every other line stays as it is. What comes out is read again and has to be what was meant, or else
//! nothing is done.

use gripfast::config::Tree;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// How a file holds its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// A table with a key for each.
    Table,
    /// A list, each with its `name`.
    List,
}

/// A place in a YAML file for one entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'s> {
    /// The key at the top of the file under which servers are.
    pub(super) root: &'s str,
    pub(super) holding: Holding,
    /// The name of the entry.
    pub(super) name: &'s str,
}

impl Slot<'_> {
    /// The text with the entry in it, after all others.
    pub(super) fn put(self, before: &str, entry: &[(String, Tree)]) -> Result<String, String> {
        let tree = read(before)?;
        let held = self.held(&tree).next().map(Tree::entries).unwrap_or_default();
        if !held.is_empty() && entry.iter().all(|ours| held.contains(ours)) {
            return Ok(before.to_owned());
        }
        // What somebody added to it is theirs.
        let theirs = held.iter().filter(|(key, _)| entry.iter().all(|(ours, _)| ours != key));
        let entry: &[(String, Tree)] = &entry.iter().chain(theirs).cloned().collect::<Vec<_>>();
        let cleared = self.take_out(before)?;
        let wanted = self.with(read(&cleared)?, entry)?;
        let text = File::of(&cleared)?.put(self, entry)?;
        surely(text, &wanted)
    }

    /// The text without the entry.
    pub(super) fn take_out(self, before: &str) -> Result<String, String> {
        let tree = read(before)?;
        if self.held(&tree).next().is_none() {
            return Ok(before.to_owned());
        }
        let text = File::of(before)?.take_out(self)?;
        surely(text, &self.without(tree))
    }

    /// Our entry as the file holds it, if it does.
    fn held(self, tree: &Tree) -> impl Iterator<Item = &Tree> {
        let servers = tree.get(self.root);
        let named = servers.filter(|_| self.holding == Holding::Table).and_then(|held| held.get(self.name));
        let listed = match servers {
            Some(Tree::List(items)) if self.holding == Holding::List => items.as_slice(),
            _ => &[],
        };
        listed.iter().filter(move |item| self.is_it(item)).chain(named)
    }

    fn is_it(self, item: &Tree) -> bool {
        item.get("name").and_then(Tree::text) == Some(self.name)
    }

    fn whole(self, entry: &[(String, Tree)]) -> Tree {
        Tree::Table(entry.to_vec())
    }

    /// What the file says once the entry is in it.
    fn with(self, tree: Tree, entry: &[(String, Tree)]) -> Result<Tree, String> {
        let mut top = match tree {
            Tree::Table(top) => top,
            Tree::Null => Vec::new(),
            _ => return Err("it is no table".to_owned()),
        };
        if !top.iter().any(|(key, _)| key == self.root) {
            top.push((self.root.to_owned(), Tree::Null));
        }
        for (_, servers) in top.iter_mut().filter(|(key, _)| key == self.root) {
            let added = (self.name.to_owned(), self.whole(entry));
            match (&mut *servers, self.holding) {
                (Tree::Table(held), Holding::Table) => held.push(added),
                (Tree::List(held), Holding::List) => held.push(added.1),
                (Tree::Null, Holding::Table) => *servers = Tree::Table(vec![added]),
                (Tree::Null, Holding::List) => *servers = Tree::List(vec![added.1]),
                _ => return Err(format!("its `{}` is not what servers belong into", self.root)),
            }
        }
        Ok(Tree::Table(top))
    }

    /// What the file says once the entry is out of it.
    fn without(self, tree: Tree) -> Tree {
        let Tree::Table(mut top) = tree else { return tree };
        for (_, servers) in top.iter_mut().filter(|(key, _)| key == self.root) {
            match servers {
                Tree::Table(held) => held.retain(|(name, _)| name != self.name),
                Tree::List(held) => held.retain(|item| !self.is_it(item)),
                Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) => {}
            }
        }
        Tree::Table(top)
    }

    /// The lines of the entry, this far in.
    fn lines(self, indent: usize, entry: &[(String, Tree)]) -> Vec<String> {
        let pad = " ".repeat(indent);
        let said = entry.iter().map(|(key, value)| format!("{key}: {}", written(value)));
        match self.holding {
            Holding::Table => {
                let inner = said.map(|said| format!("{pad}  {said}"));
                std::iter::once(format!("{pad}{}:", self.name)).chain(inner).collect()
            }
            Holding::List => said
                .enumerate()
                .map(|(at, said)| format!("{pad}{} {said}", if at == 0 { "-" } else { " " }))
                .collect(),
        }
    }
}

const UNSURE: &str = "it is laid out in a way that gripfast cannot change safely";

fn read(text: &str) -> Result<Tree, String> {
    Tree::parse(text, "config.yaml".as_ref())
        .map_err(|_| "it is not valid YAML, or has more than plain YAML in it".to_owned())
}

/// The text, if it says what it is to say.
fn surely(text: String, wanted: &Tree) -> Result<String, String> {
    if read(&text).is_ok_and(|said| said == *wanted) { Ok(text) } else { Err(UNSURE.to_owned()) }
}

/// A plain value. JSON's strings are YAML's too.
fn written(value: &Tree) -> String {
    let is_plain = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && !["true", "false", "null"].contains(&text)
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
    };
    match value {
        Tree::Bool(flag) => flag.to_string(),
        Tree::Number(number) => number.clone(),
        Tree::Text(text) if is_plain(text) => text.clone(),
        Tree::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Tree::Null => "null".to_owned(),
        Tree::List(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        Tree::Table(entries) => {
            let said = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", serde_json::Value::from(key.as_str()), written(value)));
            format!("{{ {} }}", said.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A file by lines, which are counted from 0, and where its top keys are.
struct File<'t> {
    lines: Vec<&'t str>,
    ending: &'static str,
    top: Vec<(Spot, Spot)>,
}

/// Where something stands.
#[derive(Debug)]
struct Spot {
    line: usize,
    /// The last line that holds something of it.
    last: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A key without a value.
    Nothing,
    Text(String),
    List(Vec<Spot>),
    Table(Vec<(Spot, Spot)>),
}

impl<'t> File<'t> {
    fn of(text: &'t str) -> Result<Self, String> {
        let root = Spots::read(text).ok_or_else(|| UNSURE.to_owned())?;
        let top = match root.map(|root| root.what) {
            Some(What::Table(top)) => top,
            Some(What::Nothing) | None => Vec::new(),
            Some(What::Text(_) | What::List(_)) => return Err("it is no table".to_owned()),
        };
        let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Ok(Self { lines: text.lines().collect(), ending, top })
    }

    fn root(&self, slot: Slot<'_>) -> Option<&(Spot, Spot)> {
        self.top.iter().find(|(key, _)| matches!(&key.what, What::Text(text) if text == slot.root))
    }

    fn put(&self, slot: Slot<'_>, entry: &[(String, Tree)]) -> Result<String, String> {
        let mut lines: Vec<String> = self.lines.iter().map(|line| (*line).to_owned()).collect();
        match self.root(slot) {
            None => {
                lines.push(format!("{}:", slot.root));
                lines.extend(slot.lines(2, entry));
            }
            Some((key, value)) if value.is_in_braces_beside(key) => {
                let by_hand = slot.lines(2, entry).join("\n");
                return Err(format!(
                    "its `{}` is in braces; write it as indented lines first, or add this yourself:\n{by_hand}",
                    slot.root
                ));
            }
            Some((key, value)) => {
                let children = match &value.what {
                    What::Table(children) => children.last().map(|(key, value)| key.last.max(value.last)),
                    What::List(items) => items.last().map(|item| item.last),
                    What::Nothing | What::Text(_) => None,
                };
                let (after, indent) = match children {
                    Some(last) => {
                        let indent = indent_of(self.lines.get(value.line).copied().unwrap_or_default());
                        (self.with_comments(last, indent), indent)
                    }
                    None => {
                        // Nothing, or `{}`, or `[]`, on the line of its key.
                        let line = lines.get_mut(key.line).ok_or(UNSURE)?;
                        *line = without_empty(line).ok_or(UNSURE)?;
                        (self.with_comments(key.line, 1), 2)
                    }
                };
                let at = (after + 1).min(lines.len());
                lines.splice(at..at, slot.lines(indent, entry));
            }
        }
        Ok(self.joined(&lines))
    }

    fn take_out(&self, slot: Slot<'_>) -> Result<String, String> {
        let mut lines: Vec<String> = self.lines.iter().map(|line| (*line).to_owned()).collect();
        let (key, value) = self.root(slot).ok_or(UNSURE)?;
        if value.is_in_braces_beside(key) {
            return Err(format!("its `{}` is in braces; take `{}` out yourself", slot.root, slot.name));
        }
        let (gone, left) = match &value.what {
            What::Table(children) => {
                let is_it = |spot: &Spot| matches!(&spot.what, What::Text(text) if text == slot.name);
                let it = children.iter().find(|(key, _)| is_it(key)).ok_or(UNSURE)?;
                ((it.0.line, it.1.last.max(it.0.last)), children.len() - 1)
            }
            What::List(items) => {
                let it = items.iter().find(|item| item.is_named(slot.name)).ok_or(UNSURE)?;
                ((it.line, it.last), items.len() - 1)
            }
            What::Nothing | What::Text(_) => return Err(UNSURE.to_owned()),
        };
        lines.drain(gone.0..=gone.1.min(lines.len().saturating_sub(1)));
        if left == 0 {
            let empty = if slot.holding == Holding::Table { "{}" } else { "[]" };
            let line = lines.get_mut(key.line).ok_or(UNSURE)?;
            let colon = line.find(':').ok_or(UNSURE)?;
            line.insert_str(colon + 1, &format!(" {empty}"));
        }
        Ok(self.joined(&lines))
    }

    /// The last of the comment lines that follow a line and stand at least this far in: they are about what is
    /// above them.
    fn with_comments(&self, line: usize, indent: usize) -> usize {
        let follow = self.lines.iter().skip(line + 1);
        let comments =
            follow.take_while(|line| line.trim_start().starts_with('#') && indent_of(line) >= indent.max(1));
        line + comments.count()
    }

    fn joined(&self, lines: &[String]) -> String {
        lines.iter().flat_map(|line| [line.as_str(), self.ending]).collect()
    }
}

impl Spot {
    /// Whether it is written in braces: what is indented begins on a line after its key.
    fn is_in_braces_beside(&self, key: &Self) -> bool {
        let holds_something = match &self.what {
            What::Table(entries) => !entries.is_empty(),
            What::List(items) => !items.is_empty(),
            What::Nothing | What::Text(_) => false,
        };
        holds_something && self.line == key.line
    }

    fn is_named(&self, name: &str) -> bool {
        let What::Table(entries) = &self.what else { return false };
        let text = |spot: &Self, wanted: &str| matches!(&spot.what, What::Text(text) if text == wanted);
        entries.iter().any(|(key, value)| text(key, "name") && text(value, name))
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// A line `key: {}` without the braces, and one without any as it is.
fn without_empty(line: &str) -> Option<String> {
    let colon = line.find(':')?;
    let (key, rest) = line.split_at(colon + 1);
    let rest = rest.trim_start();
    let comment = ["{}", "[]"].iter().find_map(|empty| rest.strip_prefix(empty)).unwrap_or(rest).trim_start();
    (comment.is_empty() || comment.starts_with('#'))
        .then(|| format!("{key}{}{comment}", if comment.is_empty() { "" } else { " " }))
}

/// Builds spots out of the parser's events.
#[derive(Default)]
struct Spots {
    open: Vec<Open>,
    root: Option<Spot>,
}

struct Open {
    spot: Spot,
    key: Option<Spot>,
}

impl Spots {
    /// The outermost value, if there is one; nothing where the parser says what is not expected here.
    fn read(text: &str) -> Option<Option<Spot>> {
        let mut spots = Self::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.ok()?;
            spots.take(event, span)?;
        }
        Some(spots.root)
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let [line, end] = [span.start, span.end].map(|mark| mark.line().saturating_sub(1));
        match event {
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
            Event::Scalar(text, style, ..) => {
                // A block ends where the next thing begins, which is on a line after it; nothing is nowhere.
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let last = if (is_block || span.end.col() == 0) && end > line { end - 1 } else { end };
                self.add(match span.start == span.end {
                    true => Spot { line, last: 0, what: What::Nothing },
                    false => Spot { line, last, what: What::Text(text.into_owned()) },
                })?;
            }
            Event::SequenceStart(..) => self.open(line, What::List(Vec::new())),
            Event::MappingStart(..) => self.open(line, What::Table(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                let mut spot = self.open.pop()?.spot;
                // Braces end where they end; without them the end is wherever the next thing begins.
                if span.start != span.end {
                    spot.last = spot.last.max(line);
                }
                self.add(spot)?;
            }
            // It stands for something elsewhere.
            Event::Alias(_) => {
                self.add(Spot { line, last: end, what: What::Text("*".to_owned()) })?;
            }
        }
        Some(())
    }

    fn open(&mut self, line: usize, what: What) {
        self.open.push(Open { spot: Spot { line, last: line, what }, key: None });
    }

    fn add(&mut self, spot: Spot) -> Option<()> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(spot);
            return Some(());
        };
        open.spot.last = open.spot.last.max(spot.last);
        match &mut open.spot.what {
            What::List(items) => items.push(spot),
            What::Table(entries) => match open.key.take() {
                None => open.key = Some(spot),
                Some(key) => entries.push((key, spot)),
            },
            What::Nothing | What::Text(_) => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOT: Slot<'_> = Slot { root: "extensions", holding: Holding::Table, name: "gripfast" };
    const LISTED: Slot<'_> = Slot { root: "mcpServers", holding: Holding::List, name: "gripfast" };

    fn entry() -> Vec<(String, Tree)> {
        vec![
            ("name".to_owned(), Tree::Text("gripfast".to_owned())),
            ("uri".to_owned(), Tree::Text("http://127.0.0.1:7331/mcp".to_owned())),
        ]
    }

    fn put(slot: Slot<'_>, before: &str) -> String {
        let after = slot.put(before, &entry()).unwrap();
        assert_eq!(slot.put(&after, &entry()).unwrap(), after, "twice is once");
        after
    }

    const OURS: &str = "  gripfast:\n    name: gripfast\n    uri: \"http://127.0.0.1:7331/mcp\"\n";

    #[test]
    fn an_entry_goes_after_the_others_and_every_other_line_stays() {
        let before = "# mine\nextensions: # all of them\n  a:\n    cmd: sh # a shell\n    args: [-c, \"x: #\"]\n    \
                      # env: later\n\n# the model\nmodel: x\n";
        let after = put(SLOT, before);
        assert_eq!(after, before.replace("    # env: later\n", &format!("    # env: later\n{OURS}")));
        assert_eq!(SLOT.take_out(&after).unwrap(), before);
    }

    #[test]
    fn an_entry_goes_into_a_file_without_any() {
        assert_eq!(put(SLOT, ""), format!("extensions:\n{OURS}"));
        assert_eq!(put(SLOT, "# nothing yet\n"), format!("# nothing yet\nextensions:\n{OURS}"));
        assert_eq!(put(SLOT, "model: x"), format!("model: x\nextensions:\n{OURS}"));
        assert_eq!(
            put(SLOT, "extensions: {}  # none\nmodel: x\n"),
            format!("extensions: # none\n{OURS}model: x\n")
        );
        assert_eq!(put(SLOT, "extensions:\nmodel: x\n"), format!("extensions:\n{OURS}model: x\n"));
        assert_eq!(
            SLOT.take_out(&put(SLOT, "extensions:\nmodel: x\n")).unwrap(),
            "extensions: {}\nmodel: x\n"
        );
    }

    #[test]
    fn a_list_gets_an_item_as_far_in_as_its_others() {
        let item = "- name: gripfast\n  uri: \"http://127.0.0.1:7331/mcp\"\n";
        let before = "mcpServers:\n- name: a\n  args:\n  - x\nmodel: x\n";
        let after = put(LISTED, before);
        assert_eq!(after, before.replace("model", &format!("{item}model")));
        assert_eq!(LISTED.take_out(&after).unwrap(), before);
        let before = "mcpServers:\n    - name: a\n";
        let after = put(LISTED, before);
        assert_eq!(
            after,
            format!("{before}    - name: gripfast\n      uri: \"http://127.0.0.1:7331/mcp\"\n")
        );
        assert_eq!(LISTED.take_out(&after).unwrap(), before);
    }

    #[test]
    fn an_entry_that_leads_elsewhere_leads_here_and_keeps_what_somebody_added() {
        let before = "extensions:\n  gripfast:\n    uri: http://elsewhere\n    headers:\n      Authorization: Bearer x\n    \
                      tools: [a, 1]\n  b:\n    cmd: sh\n";
        let theirs = "    headers: { \"Authorization\": \"Bearer x\" }\n    tools: [a, 1]\n";
        assert_eq!(put(SLOT, before), format!("extensions:\n  b:\n    cmd: sh\n{OURS}{theirs}"));
    }

    #[test]
    fn line_endings_stay() {
        assert_eq!(put(SLOT, "model: x\r\n"), format!("model: x\nextensions:\n{OURS}").replace('\n', "\r\n"));
    }

    #[test]
    fn what_cannot_be_changed_safely_is_left_alone() {
        for before in [
            "extensions: { a: { cmd: sh } }\n",
            "extensions: [a]\n",
            "extensions: word\n",
            "- a\n",
            "extensions:\n  a: [\n",
            "a: &x {}\nextensions: *x\n",
            "model: |\n  x\n---\nextensions: {}\n",
        ] {
            assert!(SLOT.put(before, &entry()).is_err(), "{before}");
        }
    }

    proptest! {
        /// Whatever the file, nothing but the entry is added to what it says, and taking it out gives that back.
        #[test]
        fn no_file_says_anything_else_afterwards(before in "((a|extensions|b): ?(x|\\{\\}|)\n(  [ab]:( x| \\[1,\n  2\\]|\n    c: \\|\n      t\n)?\n| *# c\n|\n){0,4}){0,3}") {
            if let Ok(after) = SLOT.put(&before, &entry()) {
                let said = SLOT.with(read(&before).unwrap(), &entry());
                prop_assert_eq!(read(&after), said);
                prop_assert!(SLOT.take_out(&after).is_ok(), "{}", after);
            }
        }
    }
}
