//! Tokens of a source text. Comments are dropped, except documentation, and so is the content of strings.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Ident,
    /// One character, or `::`.
    Punct,
    /// The text of a `///` or `/** */` comment.
    Doc,
    /// A string, a character, a number or a lifetime. Its text is empty, because no check may depend on it.
    Literal,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    pub(crate) text: &'s str,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Whether this is the given identifier, keyword or punctuation.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Ident | Kind::Punct) && self.text == text
    }
}

pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut reader = Reader { source, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = reader.next_token() {
        tokens.push(token);
    }
    tokens
}

struct Reader<'s> {
    source: &'s str,
    at: usize,
    line: usize,
}

impl<'s> Reader<'s> {
    fn next_token(&mut self) -> Option<Token<'s>> {
        loop {
            let first = self.rest().chars().next()?;
            let line = self.line;
            let token = |kind, text| Some(Token { kind, text, line });
            if first.is_whitespace() {
                self.advance(first.len_utf8());
            } else if self.rest().starts_with("//") {
                let comment = self.take(self.rest().find('\n').unwrap_or(self.rest().len()));
                if comment.starts_with("///") && !comment.starts_with("////") {
                    return token(Kind::Doc, &comment[3..]);
                }
            } else if self.rest().starts_with("/*") {
                let comment = self.take(block_comment_len(self.rest()));
                if comment.starts_with("/**") && !comment.starts_with("/***") && comment.len() > 4 {
                    return token(Kind::Doc, &comment[3..]);
                }
            } else if let Some(length) = string_len(self.rest()).or_else(|| quote_len(self.rest())) {
                self.advance(length);
                return token(Kind::Literal, "");
            } else if first.is_ascii_digit() {
                self.advance(number_len(self.rest()));
                return token(Kind::Literal, "");
            } else if is_ident(first) {
                if self.rest().starts_with("r#") {
                    self.advance(2);
                }
                let length = self.rest().find(|char| !is_ident(char)).unwrap_or(self.rest().len());
                return token(Kind::Ident, self.take(length));
            } else {
                let length = if self.rest().starts_with("::") { 2 } else { first.len_utf8() };
                return token(Kind::Punct, self.take(length));
            }
        }
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn take(&mut self, length: usize) -> &'s str {
        let taken = &self.rest()[..length];
        self.advance(length);
        taken
    }

    fn advance(&mut self, length: usize) {
        self.line += self.rest()[..length].matches('\n').count();
        self.at += length;
    }
}

fn is_ident(char: char) -> bool {
    char == '_' || char.is_alphanumeric()
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// `"…"`, `b"…"`, `c"…"` and their raw forms.
fn string_len(text: &str) -> Option<usize> {
    let unprefixed = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let body = unprefixed.strip_prefix('r').unwrap_or(unprefixed);
    let raw = body.len() != unprefixed.len();
    let hashes = if raw { body.len() - body.trim_start_matches('#').len() } else { 0 };
    let content = body[hashes..].strip_prefix('"')?;
    let start = text.len() - content.len();
    if raw {
        let closing = format!("\"{}", "#".repeat(hashes));
        return Some(content.find(&closing).map_or(text.len(), |end| start + end + closing.len()));
    }
    Some(start + past_closing(content, '"'))
}

/// `'x'`, `'\n'`, `b'x'`, and lifetimes.
fn quote_len(text: &str) -> Option<usize> {
    let content = text.strip_prefix("b'").or_else(|| text.strip_prefix('\''))?;
    let start = text.len() - content.len();
    let mut chars = content.chars();
    let first = chars.next()?;
    if first == '\\' || chars.next() == Some('\'') {
        return Some(start + past_closing(content, '\''));
    }
    Some(start + content.find(|char| !is_ident(char)).unwrap_or(content.len()))
}

fn past_closing(content: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in content.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + char.len_utf8(),
            _ => {}
        }
    }
    content.len()
}

fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        let decimal_point = byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !(byte == b'_' || byte.is_ascii_alphanumeric() || decimal_point) {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        let words: Vec<_> = tokens(source).iter().filter(|t| t.kind != Kind::Doc).map(|t| t.text).collect();
        words.join(" ")
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a c g");
    }

    #[test]
    fn strings_are_not_code() {
        assert_eq!(
            code(r###"a("b \" c", r#"d " e"#, b"f", br"g", '"', 'h', '\'', 'é') i"###),
            "a (  ,  ,  ,  ,  ,  ,  ,  ) i"
        );
    }

    #[test]
    fn a_lifetime_does_not_open_a_character() {
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> &'static str { x }"),
            "fn f <  > ( x : &  str ) - > &  str { x }"
        );
    }

    #[test]
    fn a_raw_identifier_is_its_name_and_a_range_is_two_numbers() {
        assert_eq!(code("r#type 0..10 1.5 x.0"), "type  . .   x . ");
    }

    #[test]
    fn documentation_is_kept_with_its_line() {
        let found = tokens("\n/// one\n//// not\n//! not\n/** two */ fn x() {}");
        let docs: Vec<_> =
            found.iter().filter(|t| t.kind == Kind::Doc).map(|t| (t.text.trim(), t.line)).collect();
        assert_eq!(docs, [("one", 2), ("two */", 5)]);
    }

    #[test]
    fn unfinished_code_ends() {
        for source in ["\"abc", "r#\"abc", "'", "/* abc", "'\\", "b", "r#"] {
            tokens(source);
        }
    }
}
