//! Readings of a URI: the texts that different parsers make of one URI. A rule and a URI are compared reading by
//! reading, so a rule about `https://host/*` or `file:///srv/*` holds for every spelling, and a URI that parsers read
//! differently is judged by all of its readings.
//!
//! The parsers are RFC 3986 as in Python's `urlsplit`, which leaves path and escapes alone, and WHATWG as in Node's
//! `URL` and Rust's `url`, which resolves them.

use std::borrow::Cow;
use url::Url;

/// Maximum levels of nested escapes that are undone; legitimate URIs have fewer.
const MAX_UNESCAPE_ROUNDS: usize = 4;

/// Returns whether a URI is refused whatever the lists say, because of control characters or outer spaces: parsers drop
/// TAB, CR and LF inside a URI and spaces around it, which makes it another URI than the one that was judged.
pub fn is_refused_uri(uri: &str) -> bool {
    uri.contains(char::is_control) || uri.trim() != uri
}

/// A set of readings of a URI or rule, one bit each. The same bit is the same reading in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UriReadings(u64);

impl UriReadings {
    /// The text as written, the only reading of a name that is not a URI.
    pub(super) const WRITTEN: Self = Self(1);

    pub(super) const fn overlap(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// One text and the readings that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UriForm<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) readings: UriReadings,
}

/// All forms of a URI.
pub(super) fn forms_of_uri(uri: &str) -> Vec<UriForm<'_>> {
    Forms::of(uri, Text::Uri).found
}

/// The forms of a URI that a rule has to allow: all but the written one. It adds nothing to the others, and differs
/// between two spellings of one resource.
pub(super) fn forms_to_allow(uri: &str) -> Vec<UriForm<'_>> {
    let mut forms = forms_of_uri(uri);
    for form in &mut forms {
        form.readings.0 &= !UriReadings::WRITTEN.0;
    }
    forms.retain(|form| form.readings.0 != 0);
    forms
}

/// All forms of a rule. A rule without `*` and `?` is a URI itself. Of others the authority is read and escapes are
/// undone, but nothing is resolved or cut off, because a star may stand for any part of a path.
pub(super) fn forms_of_rule(rule: &str) -> Vec<UriForm<'_>> {
    let text = if rule.contains(WILDCARDS) { Text::Pattern } else { Text::Rule };
    Forms::of(rule, text).found
}

const WILDCARDS: [char; 2] = ['*', '?'];

/// Kind of text that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Uri,
    /// A rule without wildcards.
    Rule,
    /// A rule with wildcards.
    Pattern,
}

struct Forms<'a> {
    found: Vec<UriForm<'a>>,
    /// The bit of the next reading.
    next: u64,
    text: Text,
    /// Texts that were resolved already, and the indices of their forms.
    resolved: Vec<(String, Vec<usize>)>,
}

impl<'a> Forms<'a> {
    /// Adds every reading, always in the same order.
    fn of(written: &'a str, text: Text) -> Self {
        let mut forms = Self { found: Vec::with_capacity(4), next: 1, text, resolved: Vec::new() };
        forms.add(Cow::Borrowed(written));
        let split = without_empty_parts(by_rfc_3986(written, text), text);
        let whatwg = without_empty_parts(by_whatwg(written, text), text);
        // A server may undo escapes before it parses, or parse the result of parsing again.
        let again = [&split, &whatwg].map(|base| {
            let plain = forms.plain(base);
            without_empty_parts(by_whatwg(&plain, text), text)
        });
        for base in [&split, &whatwg].into_iter().chain(&again) {
            forms.add_resolved(base);
            forms.add_resolved(&essence(base, text));
        }
        // Unresolved paths, because a server may distinguish `%2F` from a slash.
        let essence = essence(&split, text);
        forms.add(Cow::Owned(split));
        forms.add(Cow::Owned(essence));
        forms
    }

    /// Adds the next reading. Returns the index of its form.
    fn add(&mut self, text: Cow<'a, str>) -> usize {
        let known = self.found.iter().position(|form| form.text == text);
        let at = known.unwrap_or(self.found.len());
        if known.is_none() {
            self.found.push(UriForm { text, readings: UriReadings(0) });
        }
        self.add_at(at);
        at
    }

    fn add_at(&mut self, at: usize) {
        self.found[at].readings.0 |= self.next;
        self.next <<= 1;
    }

    /// Adds the form with escapes undone, and those with dot segments resolved: by the specification, as servers do
    /// that take everything after `://` for the path, and as servers do that collapse slashes.
    fn add_resolved(&mut self, base: &str) {
        // Most URIs have the same text in all readings, and are resolved once.
        if let Some((_, places)) = self.resolved.iter().find(|(known, _)| known == base) {
            places.clone().into_iter().for_each(|at| self.add_at(at));
            return;
        }
        let plain = self.plain(base);
        let ways = [
            (Authority::Separate, Slashes::Kept),
            (Authority::Separate, Slashes::Collapsed),
            (Authority::PartOfPath, Slashes::Kept),
            (Authority::PartOfPath, Slashes::Collapsed),
        ];
        let resolved = ways.map(|(authority, slashes)| match self.text {
            Text::Uri | Text::Rule => resolved(&plain, authority, slashes),
            Text::Pattern => plain.clone(),
        });
        let texts = std::iter::once(plain).chain(resolved);
        let places = texts.map(|text| self.add(Cow::Owned(text))).collect();
        self.resolved.push((base.to_owned(), places));
    }

    /// Undoes all escapes.
    fn plain(&self, text: &str) -> String {
        let mut plain = text.to_owned();
        for _ in 0..MAX_UNESCAPE_ROUNDS {
            let undone = unescaped(&plain, self.text);
            if undone == plain {
                break;
            }
            plain = undone;
        }
        plain
    }
}

/// Splits off the scheme, in lower case; it is empty if the text has none.
fn split_scheme(text: &str) -> (String, &str) {
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{}:", scheme.to_ascii_lowercase()), rest),
        Some(_) | None => (String::new(), text),
    }
}

/// Splits off the authority after `//`, up to a slash, a query or a fragment.
fn split_authority(rest: &str, text: Text) -> Option<(&str, &str)> {
    let rest = rest.strip_prefix("//")?;
    // In a pattern, `?` matches any character.
    let ends: &[char] = if text == Text::Pattern { &['/', '#'] } else { &['/', '?', '#'] };
    Some(rest.split_at(rest.find(ends).unwrap_or(rest.len())))
}

/// The reading of `urlsplit`: scheme and host in lower case, no user, no default port; the rest unchanged.
fn by_rfc_3986(written: &str, text: Text) -> String {
    let (scheme, rest) = split_scheme(written);
    let Some((authority, rest)) = split_authority(rest, text) else {
        // Parsers do not distinguish a file URI without a host from one with an empty host.
        let mark = if scheme == "file:" && rest.starts_with('/') { "//" } else { "" };
        return format!("{scheme}{mark}{rest}");
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_lowercase();
    let host = match host.rsplit_once(':') {
        Some((host, port)) if is_implied(&scheme, port) => host,
        Some(_) | None => &host,
    };
    format!("{scheme}//{}{rest}", without_last_dot(host))
}

fn is_implied(scheme: &str, port: &str) -> bool {
    let implied = match scheme {
        "http:" | "ws:" => Some(80),
        "https:" | "wss:" => Some(443),
        "ftp:" => Some(21),
        _ => None,
    };
    port.is_empty() || (implied.is_some() && port.parse::<u16>().ok() == implied)
}

/// Removes the dot of a fully qualified host name, which names the same host.
fn without_last_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// The reading of browsers, without user; that of `urlsplit` if they cannot read it.
fn by_whatwg(written: &str, text: Text) -> String {
    match text {
        Text::Uri | Text::Rule => Url::parse(written).ok().map(|url| {
            let (scheme, authority, rest) = parts(&url);
            format!("{scheme}{authority}{rest}")
        }),
        Text::Pattern => {
            let (scheme, rest) = split_scheme(written);
            split_authority(rest, text).and_then(|(authority, rest)| {
                // A host cannot contain `?`, and the host of a URI is compared in lower case anyway.
                if authority.contains('?') {
                    return None;
                }
                let url = Url::parse(&format!("{scheme}//{authority}/")).ok()?;
                let (scheme, authority, _) = parts(&url);
                Some(format!("{scheme}{authority}{rest}"))
            })
        }
    }
    .unwrap_or_else(|| by_rfc_3986(written, text))
}

/// Scheme, authority without user, and the rest.
fn parts(url: &Url) -> (String, String, &str) {
    let scheme = format!("{}:", url.scheme());
    let authority = match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("//{}:{port}", without_last_dot(host)),
        (Some(host), None) => format!("//{}", without_last_dot(host)),
        (None, _) if url.as_str()[scheme.len()..].starts_with("//") => "//".to_owned(),
        (None, _) => String::new(),
    };
    (scheme, authority, &url[url::Position::BeforePath..])
}

/// Removes an empty query and an empty fragment, which parsers do not distinguish from none.
fn without_empty_parts(uri: String, text: Text) -> String {
    if text == Text::Pattern {
        return uri;
    }
    let (before, fragment) = uri.split_once('#').unwrap_or((&uri, ""));
    let before = before.strip_suffix('?').filter(|before| !before.contains('?')).unwrap_or(before);
    if fragment.is_empty() { before.to_owned() } else { format!("{before}#{fragment}") }
}

/// Removes the fragment, which most servers do not get or ignore. Of a file URI only the path remains: many servers
/// find the file by that and ignore host and query.
fn essence(uri: &str, text: Text) -> String {
    let uri = match text {
        Text::Uri | Text::Rule => uri.split_once('#').map_or(uri, |(before, _)| before),
        Text::Pattern => uri,
    };
    let Some((_, path)) = uri.strip_prefix("file:").and_then(|rest| split_authority(rest, text)) else {
        return uri.to_owned();
    };
    let path = match text {
        Text::Uri | Text::Rule => path.split_once('?').map_or(path, |(before, _)| before),
        Text::Pattern => path,
    };
    format!("file://{path}")
}

/// Undoes one level of percent-encoding. In a rule, an encoded `*` becomes `?`, so that it matches one character.
fn unescaped(text: &str, kind: Text) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |offset: usize| char::from(*bytes.get(at + offset)?).to_digit(16);
        match (bytes[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                let byte = (high * 16 + low) as u8;
                plain.push(if kind != Text::Uri && byte == b'*' { b'?' } else { byte });
                at += 3;
            }
            (byte, _, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Interpretation of the part between `://` and the next slash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority {
    Separate,
    PartOfPath,
}

/// Interpretation of several slashes in a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slashes {
    Kept,
    /// As in file names: `/srv//../etc` is `/etc`, and `file:/etc` and `file://localhost/etc` are `file:///etc`.
    Collapsed,
}

/// Resolves `.` and `..` segments, treats backslashes as slashes, and lowers the scheme.
fn resolved(text: &str, authority: Authority, slashes: Slashes) -> String {
    let text = text.replace('\\', "/");
    let (scheme, rest) = split_scheme(&text);
    let (mark, rest) = match (rest.strip_prefix("//"), slashes) {
        (Some(rest), _) => ("//", rest),
        (None, Slashes::Collapsed) if rest.starts_with('/') && !scheme.is_empty() => ("//", rest),
        (None, Slashes::Kept | Slashes::Collapsed) => ("", rest),
    };
    let (before, path) = match authority {
        Authority::Separate if mark == "//" => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        Authority::Separate | Authority::PartOfPath => ("", rest),
    };
    let is_here =
        slashes == Slashes::Collapsed && scheme == "file:" && before.eq_ignore_ascii_case("localhost");
    let before = if is_here { "" } else { before };
    // An absolute path starts with an empty segment, and nothing is above that.
    let top = usize::from(path.starts_with('/'));
    let mut segments: Vec<&str> = Vec::new();
    for (at, segment) in path.split('/').enumerate() {
        match segment {
            "." => {}
            ".." => segments.truncate(segments.len().saturating_sub(1).max(top)),
            "" if slashes == Slashes::Collapsed && at > 0 => {}
            segment => segments.push(segment),
        }
    }
    let ends_open = slashes == Slashes::Collapsed && path.ends_with('/') && !segments.is_empty();
    let last = if ends_open { "/" } else { "" };
    format!("{scheme}{mark}{before}{}{last}", segments.join("/"))
}

fn is_scheme(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(uri: &str) -> Vec<String> {
        forms_of_uri(uri).into_iter().map(|form| form.text.into_owned()).collect()
    }

    #[test]
    fn a_plain_uri_has_one_form() {
        for plain in [
            "file:///srv/a",
            "demo://readme",
            "x",
            "",
            "https://h/a?b=c",
            "file:///srv/a..b",
            "file:///srv/a/",
            "file:///",
            "demo:x",
            "demo:",
        ] {
            assert_eq!(texts(plain), [plain], "{plain}");
        }
    }

    #[test]
    fn g01_a_path_traversal_is_resolved_in_every_spelling() {
        for spelled in [
            "file:///srv/../etc/passwd",
            "file:///srv/%2e%2E/etc/passwd",
            "file:///srv/%252e%252e/etc/passwd",
            "file:///srv/..%2fetc/passwd",
            "file:///srv\\..\\etc\\passwd",
            "FILE:///srv/./../etc/passwd",
            "file:///srv/../../../etc/passwd",
            "file:///srv//../etc/passwd",
            "file:///srv//..//..//etc//passwd",
            "file:////etc/passwd",
            "File:/etc/passwd",
            "file:etc/passwd",
            "file:/srv/../etc/passwd",
            "file://LOCALHOST/etc/passwd",
            "file://localhost/srv/%2e%2e/etc/passwd",
            "file:///srv/.%09./etc/passwd",
            "file://elsewhere/etc/passwd",
            "file://u@elsewhere:80/srv/../etc/passwd",
            "file:///etc/passwd?x",
            "file:///etc/passwd#x",
        ] {
            let forms = texts(spelled);
            assert!(forms.iter().any(|form| form == "file:///etc/passwd"), "{spelled}: {forms:?}");
        }
        assert!(texts("demo://x/../../readme").iter().any(|form| form == "demo://readme"));
        assert!(texts("NOTES:Mine").iter().any(|form| form == "notes:Mine"));
    }

    #[test]
    fn g01_spellings_of_a_host_are_equal() {
        for spelled in [
            "https://HOST.example/x",
            "HTTPS://host.example/x",
            "https://host.example:443/x",
            "https://host.example:/x",
            "https://host.example:0443/x",
            "https://u:p@host.example/x",
            "https://u@v@host.example/x",
            "https:/host.example/x",
            "https:host.example/x",
            "https:///host.example/x",
            "https:\\\\host.example\\x",
            "https://\u{ff48}\u{ff4f}st.example/x",
            "https://ho\u{ad}st.example/x",
            "https://host\u{3002}example/x",
            "https://%68ost.example/x",
            "https://host.example./x",
            "https://host.example/x#y",
        ] {
            let forms = texts(spelled);
            assert!(forms.iter().any(|form| form == "https://host.example/x"), "{spelled}: {forms:?}");
        }
        assert!(texts("https://host.example?/x").iter().any(|form| form == "https://host.example/?/x"));
        assert!(texts("https://a\\@host.example/x").iter().any(|form| form == "https://host.example/x"));
        assert!(texts("http://0x7f.1/x").iter().any(|form| form == "http://127.0.0.1/x"));
    }

    proptest! {
        #[test]
        fn any_text_has_a_written_form_and_a_bounded_number_of_others(text in ".{0,60}") {
            let forms = forms_of_uri(&text);
            prop_assert!(forms.len() <= 43 && forms[0].text == text.as_str());
            prop_assert!(forms[0].readings.overlap(UriReadings::WRITTEN));
        }

        /// Rule and URI are read alike, so a rule without wildcards always matches its own text.
        #[test]
        fn a_uri_has_the_same_forms_as_an_equal_rule(text in "[a-z:/.@#%A-Z0-9é\\\\]{0,30}") {
            prop_assume!(!text.contains("%2A") && !text.contains("%2a"));
            prop_assert_eq!(forms_of_uri(&text), forms_of_rule(&text));
        }
    }
}
