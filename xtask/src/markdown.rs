//! Links and heading anchors of one Markdown page.
//!
//! This is not a Markdown parser. It knows code blocks, code spans, comments, headings and links, which is all that the
//! link check in `docs.rs` needs. Setext headings and reference links without a definition are not recognized.

use std::collections::BTreeSet;

/// One page, reduced to what the link check needs.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) links: Vec<Link>,
    /// The anchors that GitHub and mdBook give the headings, and explicit `id`s of HTML tags.
    pub(crate) anchors: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// As written, without an optional title.
    pub(crate) target: String,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Page {
    pub(crate) fn read(text: &str) -> Self {
        let unfenced = without_code_blocks(text);
        let prose = without_spans(&unfenced);
        let mut links = links(&prose);
        links.sort_by_key(|link| link.line);
        let mut anchors = heading_anchors(&unfenced, &prose);
        anchors.extend(attributes(&prose, &["id", "name"]).map(|link| link.target));
        Self { links, anchors }
    }
}

/// Blanks out fenced code blocks; every line keeps its number.
fn without_code_blocks(text: &str) -> String {
    let mut unfenced = String::with_capacity(text.len());
    let mut open: Option<(char, usize)> = None;
    for line in text.lines() {
        let fence = fence(line);
        match open {
            Some((mark, length)) => {
                let closes = fence.is_some_and(|(other, run)| other == mark && run >= length);
                if closes && line.trim().trim_matches(mark).is_empty() {
                    open = None;
                }
            }
            None if fence.is_some() => open = fence,
            None => unfenced.push_str(line),
        }
        unfenced.push('\n');
    }
    unfenced
}

/// The character and the length of the fence that the line begins with.
fn fence(line: &str) -> Option<(char, usize)> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let run = line.chars().take_while(|char| *char == mark).count();
    (run >= 3).then_some((mark, run))
}

/// Blanks out code spans and comments; every line keeps its number.
fn without_spans(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', '<', '\\']) {
        prose.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with('\\') {
            // The escaped character is text.
            let escaped = rest[1..].chars().next().map_or(0, char::len_utf8);
            prose.push_str(&rest[..1 + escaped]);
            rest = &rest[1 + escaped..];
            continue;
        } else if rest.starts_with("<!--") {
            rest.find("-->").map_or(rest.len(), |end| end + 3)
        } else {
            code_span(rest).unwrap_or_default()
        };
        if length == 0 {
            // A run of backticks that nothing closes, or a tag.
            let run = rest.len() - rest.trim_start_matches('`').len();
            prose.push_str(&rest[..run.max(1)]);
            rest = &rest[run.max(1)..];
        } else {
            prose.extend(rest[..length].chars().map(|char| if char == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    prose.push_str(rest);
    prose
}

/// The length of the code span at the beginning of `text`. A span ends with its paragraph at the latest.
fn code_span(text: &str) -> Option<usize> {
    let content = text.trim_start_matches('`');
    let marks = text.len() - content.len();
    let paragraph = content.find("\n\n").map_or(content, |end| &content[..end]);
    let mut at = 0;
    while let Some(found) = paragraph[at..].find('`') {
        let closing = &paragraph[at + found..];
        let run = closing.len() - closing.trim_start_matches('`').len();
        at += found + run;
        if run == marks {
            return (marks > 0).then_some(marks + at);
        }
    }
    None
}

/// Inline links and images, reference definitions, `<https://…>`, and the attributes `href` and `src`.
fn links(prose: &str) -> Vec<Link> {
    let mut links: Vec<_> = attributes(prose, &["href", "src", "srcset"]).collect();
    let mut push = |at: usize, target: &str| {
        links.push(Link { target: target.to_owned(), line: line_of(prose, at) });
    };
    for (at, _) in prose.match_indices("](") {
        push(at, destination(&prose[at + 2..]));
    }
    for scheme in ["<http://", "<https://"] {
        for (at, _) in prose.match_indices(scheme) {
            let inside = &prose[at + 1..];
            push(at, inside.find('>').map_or(inside, |end| &inside[..end]));
        }
    }
    let mut start = 0;
    for line in prose.split_inclusive('\n') {
        if let Some((label, target)) =
            line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
            && !label.starts_with('^')
        {
            push(start, target.split_whitespace().next().unwrap_or_default());
        }
        start += line.len();
    }
    links
}

/// The destination of an inline link, given what follows its `](`.
fn destination(text: &str) -> &str {
    if let Some(inside) = text.strip_prefix('<') {
        return inside.find('>').map_or(inside, |end| &inside[..end]);
    }
    let mut depth = 0_usize;
    for (at, char) in text.char_indices() {
        match char {
            '(' => depth += 1,
            ')' if depth == 0 => return &text[..at],
            ')' => depth -= 1,
            _ if char.is_whitespace() => return &text[..at],
            _ => {}
        }
    }
    text
}

/// The values of the given attributes of HTML tags.
fn attributes<'t>(prose: &'t str, names: &'t [&str]) -> impl Iterator<Item = Link> + 't {
    let values = names.iter().flat_map(move |name| {
        let start = format!(" {name}=\"");
        let found: Vec<_> = prose.match_indices(&start).map(|(at, _)| (at, at + start.len())).collect();
        found
    });
    values.map(|(at, value)| {
        let value = &prose[value..];
        let target = value.find('"').map_or(value, |end| &value[..end]).to_owned();
        Link { target, line: line_of(prose, at) }
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// `prose` says which lines are headings, `unfenced` has their text with the code spans in it.
fn heading_anchors(unfenced: &str, prose: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (line, prose) in unfenced.lines().zip(prose.lines()) {
        let level = prose.chars().take_while(|char| *char == '#').count();
        let is_heading = (1..=6).contains(&level) && prose[level..].starts_with(' ');
        if is_heading {
            let slug = slug(&line[level..]);
            let repeated = (1..).map(|count| format!("{slug}-{count}"));
            let free = std::iter::once(slug.clone()).chain(repeated).find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
    }
    anchors
}

/// The anchor of a heading, as GitHub and mdBook make it: lower case, blanks become `-`, punctuation goes.
fn slug(heading: &str) -> String {
    let mut text = heading.trim().trim_end_matches('#').trim_end().to_owned();
    // Of a link, only the text counts.
    while let Some(start) = text.find("](") {
        let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
    }
    let kept = text.to_lowercase();
    let kept = kept.chars().filter(|char| char.is_alphanumeric() || matches!(char, '_' | '-' | ' '));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        Page::read(text).links.into_iter().map(|link| link.target).collect()
    }

    fn anchors(text: &str) -> Vec<String> {
        Page::read(text).anchors.into_iter().collect()
    }

    #[test]
    fn every_form_of_link_is_found() {
        let text = "[a](a.md), ![b](<b c.png>) [`code`](c.md#x \"title\") and <https://d.example>.\n\
                    [e]: e.md\n<img src=\"f.svg\" alt=\"x\"> [g](g_(1).md)\n[two\nlines](h.md)\n";
        let mut found = targets(text);
        found.sort();
        assert_eq!(
            found,
            ["a.md", "b c.png", "c.md#x", "e.md", "f.svg", "g_(1).md", "h.md", "https://d.example"]
        );
    }

    #[test]
    fn code_and_comments_have_no_links_and_no_headings() {
        let text = "```sh\n# not a heading\n[a](a.md)\n```\n~~~~\n```\n[b](b.md)\n~~~~\n\
                    `[c](c.md)` ``[d](`d`.md)`` <!-- [e](e.md)\n# nor this --> \\`[f](f.md)\n";
        assert_eq!(targets(text), ["f.md"]);
        assert_eq!(anchors(text), [""; 0]);
    }

    #[test]
    fn a_backtick_that_nothing_closes_hides_no_link() {
        assert_eq!(targets("a ` b [c](c.md)\n\n`d`\n"), ["c.md"]);
    }

    #[test]
    fn a_link_has_its_line() {
        let page = Page::read("a\n\n```\nb\n```\n[c](c.md)\n");
        assert_eq!(page.links, [Link { target: "c.md".to_owned(), line: 6 }]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# What `-o json` prints\n## `servers.NAME.restore[]`\n### A [link](x.md) & more?\n\
                    #### Über snake_case #\n#no heading\n";
        assert_eq!(
            anchors(text),
            ["a-link--more", "serversnamerestore", "what--o-json-prints", "über-snake_case"]
        );
    }

    #[test]
    fn a_repeated_heading_gets_a_number_and_an_explicit_id_counts() {
        assert_eq!(
            anchors("## Example\n## Example\n## Example\n<a id=\"here\"></a>\n"),
            ["example", "example-1", "example-2", "here"]
        );
    }

    #[test]
    fn an_unfinished_page_ends() {
        for text in ["```", "`", "<!--", "[a](", "[a](<b", "\\", "<a href=\"", "#", "[a]: "] {
            Page::read(text);
        }
    }
}
