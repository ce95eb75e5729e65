//! Line-based edits of a YAML file: inserts or removes one entry, at positions that the parser reports, and leaves
//! every other line as it is. The result is parsed again and compared with the intended content; otherwise the edit
//! fails.

use gripfast::config::Tree;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Shape of the servers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServersShape {
    /// A table with one key per server.
    Table,
    /// A list in which each server has a `name`.
    List,
}

/// A place in a YAML file for one entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct YamlSlot<'s> {
    /// The top-level key of the servers.
    pub(super) root: &'s str,
    pub(super) shape: ServersShape,
    /// The name of the entry.
    pub(super) name: &'s str,
}

impl YamlSlot<'_> {
    /// The text with the entry after all others.
    pub(super) fn insert(self, before: &str, entry: &[(String, Tree)]) -> Result<String, String> {
        let tree = read(before)?;
        let held = self.current_entry(&tree).next().map(Tree::entries).unwrap_or_default();
        if !held.is_empty() && entry.iter().all(|ours| held.contains(ours)) {
            return Ok(before.to_owned());
        }
        // Members that the user added stay.
        let theirs = held.iter().filter(|(key, _)| entry.iter().all(|(ours, _)| ours != key));
        let entry: &[(String, Tree)] = &entry.iter().chain(theirs).cloned().collect::<Vec<_>>();
        let cleared = self.remove(before)?;
        let wanted = self.with_entry(read(&cleared)?, entry)?;
        let text = File::of(&cleared)?.insert(self, entry)?;
        verified(text, &wanted)
    }

    /// The text without the entry.
    pub(super) fn remove(self, before: &str) -> Result<String, String> {
        let tree = read(before)?;
        if self.current_entry(&tree).next().is_none() {
            return Ok(before.to_owned());
        }
        let text = File::of(before)?.remove(self)?;
        verified(text, &self.without_entry(tree))
    }

    /// The present entry in the file, if there is one.
    fn current_entry(self, tree: &Tree) -> impl Iterator<Item = &Tree> {
        let servers = tree.get(self.root);
        let named =
            servers.filter(|_| self.shape == ServersShape::Table).and_then(|held| held.get(self.name));
        let listed = match servers {
            Some(Tree::List(items)) if self.shape == ServersShape::List => items.as_slice(),
            _ => &[],
        };
        listed.iter().filter(move |item| self.is_our_entry(item)).chain(named)
    }

    fn is_our_entry(self, item: &Tree) -> bool {
        item.get("name").and_then(Tree::text) == Some(self.name)
    }

    fn whole(self, entry: &[(String, Tree)]) -> Tree {
        Tree::Table(entry.to_vec())
    }

    /// The content of the file with the entry added.
    fn with_entry(self, tree: Tree, entry: &[(String, Tree)]) -> Result<Tree, String> {
        let mut top = match tree {
            Tree::Table(top) => top,
            Tree::Null => Vec::new(),
            _ => return Err("it is not a table".to_owned()),
        };
        if !top.iter().any(|(key, _)| key == self.root) {
            top.push((self.root.to_owned(), Tree::Null));
        }
        for (_, servers) in top.iter_mut().filter(|(key, _)| key == self.root) {
            let added = (self.name.to_owned(), self.whole(entry));
            match (&mut *servers, self.shape) {
                (Tree::Table(held), ServersShape::Table) => held.push(added),
                (Tree::List(held), ServersShape::List) => held.push(added.1),
                (Tree::Null, ServersShape::Table) => *servers = Tree::Table(vec![added]),
                (Tree::Null, ServersShape::List) => *servers = Tree::List(vec![added.1]),
                _ => return Err(format!("its `{}` does not hold servers", self.root)),
            }
        }
        Ok(Tree::Table(top))
    }

    /// The content of the file without the entry.
    fn without_entry(self, tree: Tree) -> Tree {
        let Tree::Table(mut top) = tree else { return tree };
        for (_, servers) in top.iter_mut().filter(|(key, _)| key == self.root) {
            match servers {
                Tree::Table(held) => held.retain(|(name, _)| name != self.name),
                Tree::List(held) => held.retain(|item| !self.is_our_entry(item)),
                Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) => {}
            }
        }
        Tree::Table(top)
    }

    /// The lines of the entry with this indentation.
    fn lines(self, indent: usize, entry: &[(String, Tree)]) -> Vec<String> {
        let pad = " ".repeat(indent);
        let members = entry.iter().map(|(key, value)| format!("{key}: {}", to_yaml(value)));
        match self.shape {
            ServersShape::Table => {
                let inner = members.map(|member| format!("{pad}  {member}"));
                std::iter::once(format!("{pad}{}:", self.name)).chain(inner).collect()
            }
            ServersShape::List => members
                .enumerate()
                .map(|(at, member)| format!("{pad}{} {member}", if at == 0 { "-" } else { " " }))
                .collect(),
        }
    }
}

const CANNOT_EDIT_SAFELY: &str = "it is laid out in a way that gripfast cannot change safely";

fn read(text: &str) -> Result<Tree, String> {
    Tree::parse(text, "config.yaml".as_ref())
        .map_err(|_| "it is not valid YAML, or uses features beyond plain YAML".to_owned())
}

/// The text, if it parses to the intended content.
fn verified(text: String, wanted: &Tree) -> Result<String, String> {
    if read(&text).is_ok_and(|parsed| parsed == *wanted) {
        Ok(text)
    } else {
        Err(CANNOT_EDIT_SAFELY.to_owned())
    }
}

/// A value as YAML in flow style. JSON strings are valid YAML.
fn to_yaml(value: &Tree) -> String {
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
        Tree::List(items) => format!("[{}]", items.iter().map(to_yaml).collect::<Vec<_>>().join(", ")),
        Tree::Table(entries) => {
            let members = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", serde_json::Value::from(key.as_str()), to_yaml(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A file as lines, counted from 0, with the positions of its top-level keys.
struct File<'t> {
    lines: Vec<&'t str>,
    ending: &'static str,
    top: Vec<(YamlSpan, YamlSpan)>,
}

/// The lines of a node.
#[derive(Debug)]
struct YamlSpan {
    line: usize,
    /// The last line with content of the node.
    last: usize,
    content: SpanContent,
}

#[derive(Debug)]
enum SpanContent {
    /// A key without a value.
    Nothing,
    Text(String),
    List(Vec<YamlSpan>),
    Table(Vec<(YamlSpan, YamlSpan)>),
}

impl<'t> File<'t> {
    fn of(text: &'t str) -> Result<Self, String> {
        let root = SpanBuilder::read(text).ok_or_else(|| CANNOT_EDIT_SAFELY.to_owned())?;
        let top = match root.map(|root| root.content) {
            Some(SpanContent::Table(top)) => top,
            Some(SpanContent::Nothing) | None => Vec::new(),
            Some(SpanContent::Text(_) | SpanContent::List(_)) => return Err("it is not a table".to_owned()),
        };
        let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Ok(Self { lines: text.lines().collect(), ending, top })
    }

    fn root(&self, slot: YamlSlot<'_>) -> Option<&(YamlSpan, YamlSpan)> {
        self.top.iter().find(|(key, _)| matches!(&key.content, SpanContent::Text(text) if text == slot.root))
    }

    fn insert(&self, slot: YamlSlot<'_>, entry: &[(String, Tree)]) -> Result<String, String> {
        let mut lines: Vec<String> = self.lines.iter().map(|line| (*line).to_owned()).collect();
        match self.root(slot) {
            None => {
                lines.push(format!("{}:", slot.root));
                lines.extend(slot.lines(2, entry));
            }
            Some((key, value)) if value.is_flow_style(key) => {
                let by_hand = slot.lines(2, entry).join("\n");
                return Err(format!(
                    "`{}` is a YAML {}; rewrite it as indented lines first, or add this by hand:\n{by_hand}",
                    slot.root,
                    value.flow_kind()
                ));
            }
            Some((key, value)) => {
                let children = match &value.content {
                    SpanContent::Table(children) => {
                        children.last().map(|(key, value)| key.last.max(value.last))
                    }
                    SpanContent::List(items) => items.last().map(|item| item.last),
                    SpanContent::Nothing | SpanContent::Text(_) => None,
                };
                let (after, indent) = match children {
                    Some(last) => {
                        let indent = indent_of(self.lines.get(value.line).copied().unwrap_or_default());
                        (self.with_comments(last, indent), indent)
                    }
                    None => {
                        // No value, `{}` or `[]` on the line of the key.
                        let line = lines.get_mut(key.line).ok_or(CANNOT_EDIT_SAFELY)?;
                        *line = without_empty(line).ok_or(CANNOT_EDIT_SAFELY)?;
                        (self.with_comments(key.line, 1), 2)
                    }
                };
                let at = (after + 1).min(lines.len());
                lines.splice(at..at, slot.lines(indent, entry));
            }
        }
        Ok(self.joined(&lines))
    }

    fn remove(&self, slot: YamlSlot<'_>) -> Result<String, String> {
        let mut lines: Vec<String> = self.lines.iter().map(|line| (*line).to_owned()).collect();
        let (key, value) = self.root(slot).ok_or(CANNOT_EDIT_SAFELY)?;
        if value.is_flow_style(key) {
            let (root, kind, name) = (slot.root, value.flow_kind(), slot.name);
            return Err(format!("`{root}` is a YAML {kind}; remove `{name}` by hand"));
        }
        let (gone, left) = match &value.content {
            SpanContent::Table(children) => {
                let is_it =
                    |node: &YamlSpan| matches!(&node.content, SpanContent::Text(text) if text == slot.name);
                let it = children.iter().find(|(key, _)| is_it(key)).ok_or(CANNOT_EDIT_SAFELY)?;
                ((it.0.line, it.1.last.max(it.0.last)), children.len() - 1)
            }
            SpanContent::List(items) => {
                let it = items.iter().find(|item| item.is_named(slot.name)).ok_or(CANNOT_EDIT_SAFELY)?;
                ((it.line, it.last), items.len() - 1)
            }
            SpanContent::Nothing | SpanContent::Text(_) => return Err(CANNOT_EDIT_SAFELY.to_owned()),
        };
        lines.drain(gone.0..=gone.1.min(lines.len().saturating_sub(1)));
        if left == 0 {
            let empty = if slot.shape == ServersShape::Table { "{}" } else { "[]" };
            let line = lines.get_mut(key.line).ok_or(CANNOT_EDIT_SAFELY)?;
            let colon = line.find(':').ok_or(CANNOT_EDIT_SAFELY)?;
            line.insert_str(colon + 1, &format!(" {empty}"));
        }
        Ok(self.joined(&lines))
    }

    /// The last of the comment lines that follow a line with at least this indentation: they belong to the lines above.
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

impl YamlSpan {
    /// Returns true if the value is in flow style (braces) on the line of its key. A block begins on a later line.
    fn is_flow_style(&self, key: &Self) -> bool {
        let holds_something = match &self.content {
            SpanContent::Table(entries) => !entries.is_empty(),
            SpanContent::List(items) => !items.is_empty(),
            SpanContent::Nothing | SpanContent::Text(_) => false,
        };
        holds_something && self.line == key.line
    }

    /// The YAML term for a value in flow style, for messages.
    fn flow_kind(&self) -> &'static str {
        match &self.content {
            SpanContent::List(_) => "flow sequence (`[…]`)",
            SpanContent::Table(_) | SpanContent::Nothing | SpanContent::Text(_) => "flow mapping (`{…}`)",
        }
    }

    fn is_named(&self, name: &str) -> bool {
        let SpanContent::Table(entries) = &self.content else { return false };
        let text =
            |node: &Self, wanted: &str| matches!(&node.content, SpanContent::Text(text) if text == wanted);
        entries.iter().any(|(key, value)| text(key, "name") && text(value, name))
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// A line `key: {}` or `key: []` without the empty value; other lines without a value stay as they are.
fn without_empty(line: &str) -> Option<String> {
    let colon = line.find(':')?;
    let (key, rest) = line.split_at(colon + 1);
    let rest = rest.trim_start();
    let comment = ["{}", "[]"].iter().find_map(|empty| rest.strip_prefix(empty)).unwrap_or(rest).trim_start();
    (comment.is_empty() || comment.starts_with('#'))
        .then(|| format!("{key}{}{comment}", if comment.is_empty() { "" } else { " " }))
}

/// Builds spans from the events of the parser.
#[derive(Default)]
struct SpanBuilder {
    open: Vec<Open>,
    root: Option<YamlSpan>,
}

struct Open {
    node: YamlSpan,
    key: Option<YamlSpan>,
}

impl SpanBuilder {
    /// The outermost value, if there is one. The outer `None` means a parse error or an unexpected event.
    fn read(text: &str) -> Option<Option<YamlSpan>> {
        let mut builder = Self::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.ok()?;
            builder.take(event, span)?;
        }
        Some(builder.root)
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
                // A block scalar ends where the next node begins, on a later line. An empty scalar has no line.
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let last = if (is_block || span.end.col() == 0) && end > line { end - 1 } else { end };
                self.add(match span.start == span.end {
                    true => YamlSpan { line, last: 0, content: SpanContent::Nothing },
                    false => YamlSpan { line, last, content: SpanContent::Text(text.into_owned()) },
                })?;
            }
            Event::SequenceStart(..) => self.open(line, SpanContent::List(Vec::new())),
            Event::MappingStart(..) => self.open(line, SpanContent::Table(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                let mut node = self.open.pop()?.node;
                // Flow style has an end mark of its own; a block ends where the next node begins.
                if span.start != span.end {
                    node.last = node.last.max(line);
                }
                self.add(node)?;
            }
            // The value is elsewhere in the file.
            Event::Alias(_) => {
                self.add(YamlSpan { line, last: end, content: SpanContent::Text("*".to_owned()) })?;
            }
        }
        Some(())
    }

    fn open(&mut self, line: usize, what: SpanContent) {
        self.open.push(Open { node: YamlSpan { line, last: line, content: what }, key: None });
    }

    fn add(&mut self, node: YamlSpan) -> Option<()> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Some(());
        };
        open.node.last = open.node.last.max(node.last);
        match &mut open.node.content {
            SpanContent::List(items) => items.push(node),
            SpanContent::Table(entries) => match open.key.take() {
                None => open.key = Some(node),
                Some(key) => entries.push((key, node)),
            },
            SpanContent::Nothing | SpanContent::Text(_) => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOT: YamlSlot<'_> = YamlSlot { root: "extensions", shape: ServersShape::Table, name: "gripfast" };
    const LISTED: YamlSlot<'_> = YamlSlot { root: "mcpServers", shape: ServersShape::List, name: "gripfast" };

    fn entry() -> Vec<(String, Tree)> {
        vec![
            ("name".to_owned(), Tree::Text("gripfast".to_owned())),
            ("uri".to_owned(), Tree::Text("http://127.0.0.1:7331/mcp".to_owned())),
        ]
    }

    fn put(slot: YamlSlot<'_>, before: &str) -> String {
        let after = slot.insert(before, &entry()).unwrap();
        assert_eq!(slot.insert(&after, &entry()).unwrap(), after, "twice is once");
        after
    }

    const OURS: &str = "  gripfast:\n    name: gripfast\n    uri: \"http://127.0.0.1:7331/mcp\"\n";

    #[test]
    fn an_entry_goes_after_the_others_and_every_other_line_stays() {
        let before = "# mine\nextensions: # all of them\n  a:\n    cmd: sh # a shell\n    args: [-c, \"x: #\"]\n    \
                      # env: later\n\n# the model\nmodel: x\n";
        let after = put(SLOT, before);
        assert_eq!(after, before.replace("    # env: later\n", &format!("    # env: later\n{OURS}")));
        assert_eq!(SLOT.remove(&after).unwrap(), before);
    }

    #[test]
    fn an_entry_goes_into_a_file_without_servers() {
        assert_eq!(put(SLOT, ""), format!("extensions:\n{OURS}"));
        assert_eq!(put(SLOT, "# nothing yet\n"), format!("# nothing yet\nextensions:\n{OURS}"));
        assert_eq!(put(SLOT, "model: x"), format!("model: x\nextensions:\n{OURS}"));
        assert_eq!(
            put(SLOT, "extensions: {}  # none\nmodel: x\n"),
            format!("extensions: # none\n{OURS}model: x\n")
        );
        assert_eq!(put(SLOT, "extensions:\nmodel: x\n"), format!("extensions:\n{OURS}model: x\n"));
        assert_eq!(SLOT.remove(&put(SLOT, "extensions:\nmodel: x\n")).unwrap(), "extensions: {}\nmodel: x\n");
    }

    #[test]
    fn a_list_gets_an_item_with_the_indentation_of_its_others() {
        let item = "- name: gripfast\n  uri: \"http://127.0.0.1:7331/mcp\"\n";
        let before = "mcpServers:\n- name: a\n  args:\n  - x\nmodel: x\n";
        let after = put(LISTED, before);
        assert_eq!(after, before.replace("model", &format!("{item}model")));
        assert_eq!(LISTED.remove(&after).unwrap(), before);
        let before = "mcpServers:\n    - name: a\n";
        let after = put(LISTED, before);
        assert_eq!(
            after,
            format!("{before}    - name: gripfast\n      uri: \"http://127.0.0.1:7331/mcp\"\n")
        );
        assert_eq!(LISTED.remove(&after).unwrap(), before);
    }

    #[test]
    fn an_entry_with_another_target_is_updated_and_keeps_added_members() {
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
    fn a_file_that_cannot_be_changed_safely_is_left_alone() {
        for before in [
            "extensions: { a: { cmd: sh } }\n",
            "extensions: [a]\n",
            "extensions: word\n",
            "- a\n",
            "extensions:\n  a: [\n",
            "a: &x {}\nextensions: *x\n",
            "model: |\n  x\n---\nextensions: {}\n",
        ] {
            assert!(SLOT.insert(before, &entry()).is_err(), "{before}");
        }
    }

    proptest! {
        /// For any file, only the entry is added to its content, and the entry can be removed again.
        #[test]
        fn an_insert_adds_nothing_but_the_entry(before in "((a|extensions|b): ?(x|\\{\\}|)\n(  [ab]:( x| \\[1,\n  2\\]|\n    c: \\|\n      t\n)?\n| *# c\n|\n){0,4}){0,3}") {
            if let Ok(after) = SLOT.insert(&before, &entry()) {
                let expected = SLOT.with_entry(read(&before).unwrap(), &entry());
                prop_assert_eq!(read(&after), expected);
                prop_assert!(SLOT.remove(&after).is_ok(), "{}", after);
            }
        }
    }
}
