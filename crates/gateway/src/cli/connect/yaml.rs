//! Edits of a YAML file: inserts or removes the lines of one entry, and leaves every other line as it is. The layout of
//! the lines only suggests the place. The parser decides: unless the result has exactly the intended content, nothing is
//! written, and the user gets the lines to paste.

use gripfast::config::Tree;

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
        let text = Lines::of(&cleared).insert(self, entry)?;
        verified(text, &wanted).map_err(|why| {
            let by_hand = self.lines(2, entry).join("\n");
            format!("{why}; add this to `{}` by hand:\n{by_hand}", self.root)
        })
    }

    /// The text without the entry.
    pub(super) fn remove(self, before: &str) -> Result<String, String> {
        let tree = read(before)?;
        if self.current_entry(&tree).next().is_none() {
            return Ok(before.to_owned());
        }
        let text = Lines::of(before).remove(self)?;
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
            let added = (self.name.to_owned(), Tree::Table(entry.to_vec()));
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

/// A file as lines, counted from 0.
struct Lines<'t> {
    lines: Vec<&'t str>,
    ending: &'static str,
}

/// The lines of the table or list of servers in block style.
struct Block {
    /// The line of its key.
    key: usize,
    /// The line after its last one. Blank lines and comments before the next top-level key are not part of it.
    end: usize,
    indent: usize,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { lines: text.lines().collect(), ending }
    }

    /// The servers, if the file has their key. An error names a value on the line of the key.
    fn block(&self, root: &str) -> Result<Option<Block>, &'static str> {
        let is_root = |line: &&str| key_and_value(line).is_some_and(|(key, _)| key == root);
        let Some(key) = self.lines.iter().position(is_root) else { return Ok(None) };
        match key_and_value(self.lines[key]).map_or("", |(_, value)| value) {
            "" | "{}" | "[]" => {}
            value if value.starts_with('{') => return Err("flow mapping (`{…}`)"),
            value if value.starts_with('[') => return Err("flow sequence (`[…]`)"),
            _ => return Err("value on one line"),
        }
        let mut block = Block { key, end: key + 1, indent: 2 };
        let mut is_first = true;
        for (at, line) in self.lines.iter().enumerate().skip(key + 1) {
            match (indent_of(line), is_content(line)) {
                (0, true) if !line.starts_with('-') => break,
                (indent, true) if std::mem::take(&mut is_first) => {
                    (block.end, block.indent) = (at + 1, indent);
                }
                (0, false) => {}
                (_, false) if line.trim().is_empty() => {}
                (_, true | false) => block.end = at + 1,
            }
        }
        Ok(Some(block))
    }

    /// The first line and the line after the last one of each server, without comments that follow it.
    fn servers(&self, block: &Block) -> Vec<(usize, usize)> {
        let is_start = |at: &usize| is_content(self.lines[*at]) && indent_of(self.lines[*at]) == block.indent;
        let starts: Vec<usize> = (block.key + 1..block.end).filter(is_start).collect();
        let ends = starts.iter().skip(1).copied().chain([block.end]);
        let last_of = |start, end| (start..end).rfind(|at| is_content(self.lines[*at])).unwrap_or(start);
        starts.iter().zip(ends).map(|(start, end)| (*start, last_of(*start, end) + 1)).collect()
    }

    fn insert(&self, slot: YamlSlot<'_>, entry: &[(String, Tree)]) -> Result<String, String> {
        let mut lines: Vec<String> = self.lines.iter().map(|line| (*line).to_owned()).collect();
        let block = self.block(slot.root).map_err(|kind| {
            let by_hand = slot.lines(2, entry).join("\n");
            format!(
                "`{}` is a YAML {kind}; rewrite it as indented lines first, or add this by hand:\n{by_hand}",
                slot.root
            )
        })?;
        match block {
            None => {
                lines.push(format!("{}:", slot.root));
                lines.extend(slot.lines(2, entry));
            }
            Some(Block { key, end, indent }) => {
                lines[key] = without_empty(&lines[key]);
                lines.splice(end..end, slot.lines(indent, entry));
            }
        }
        Ok(self.joined(&lines))
    }

    fn remove(&self, slot: YamlSlot<'_>) -> Result<String, String> {
        let mut lines: Vec<String> = self.lines.iter().map(|line| (*line).to_owned()).collect();
        let block = self
            .block(slot.root)
            .map_err(|kind| format!("`{}` is a YAML {kind}; remove `{}` by hand", slot.root, slot.name))?;
        let block = block.ok_or(CANNOT_EDIT_SAFELY)?;
        let servers = self.servers(&block);
        let (start, end) = *servers
            .iter()
            .find(|(start, end)| slot.begins(&self.lines[*start..*end]))
            .ok_or(CANNOT_EDIT_SAFELY)?;
        lines.drain(start..end);
        if servers.len() == 1 {
            let empty = if slot.shape == ServersShape::Table { "{}" } else { "[]" };
            let colon = lines[block.key].find(':').ok_or(CANNOT_EDIT_SAFELY)?;
            lines[block.key].insert_str(colon + 1, &format!(" {empty}"));
        }
        Ok(self.joined(&lines))
    }

    fn joined(&self, lines: &[String]) -> String {
        lines.iter().flat_map(|line| [line.as_str(), self.ending]).collect()
    }
}

impl YamlSlot<'_> {
    /// Returns true if these are the lines of the entry.
    fn begins(self, lines: &[&str]) -> bool {
        let mut members = lines.iter().filter_map(|line| key_and_value(line.trim_start_matches(['-', ' '])));
        match self.shape {
            ServersShape::Table => members.next().is_some_and(|(key, _)| key == self.name),
            ServersShape::List => members.any(|(key, value)| key == "name" && value == self.name),
        }
    }
}

/// The key and the value of a line `key: value`, without quotes and comment.
fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let quotes = ['"', '\''];
    let (key, value) = line.split_once(':')?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    Some((key.trim_matches(quotes), value.trim_matches(quotes)))
}

/// Returns true for a line that is neither blank nor a comment.
fn is_content(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// A line `key: {}` or `key: []` without the empty value; other lines without a value stay as they are.
fn without_empty(line: &str) -> String {
    let Some((key, rest)) = line.split_once(':') else { return line.to_owned() };
    let empty = ["{}", "[]"].iter().find_map(|empty| rest.trim_start().strip_prefix(empty));
    match empty.map(str::trim) {
        None => line.to_owned(),
        Some("") => format!("{key}:"),
        Some(comment) => format!("{key}: {comment}"),
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

    #[test]
    fn a_refused_edit_gives_the_lines_to_paste() {
        for before in ["extensions: { a: { cmd: sh } }\n", "extensions:\n  { a: { cmd: sh } }\n"] {
            let why = SLOT.insert(before, &entry()).unwrap_err();
            assert!(why.contains("by hand:\n  gripfast:\n    name: gripfast\n"), "{why}");
        }
    }

    #[test]
    fn keys_in_quotes_and_comments_inside_an_entry_are_understood() {
        let before = "\"extensions\":\n  'a':\n    cmd: sh\n";
        let after = put(SLOT, before);
        assert_eq!(after, format!("{before}{OURS}"));
        let commented = after.replace("    name", "    # ours\n\n    name");
        assert_eq!(SLOT.remove(&commented).unwrap(), before);
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
