//! Readings of a URI: the texts that different parsers make of one URI. A rule and a URI are compared reading by
//! reading, so a rule about `https://host/*` or `file:///srv/*` holds however the URI is spelled, and a URI that
//! parsers read differently is judged by all of its readings.
//!
//! The parsers are RFC 3986 as Python's `urlsplit` has it, which leaves path and escapes alone, and WHATWG as Node's
//! `URL` and Rust's `url` have it, which resolves them.

use std::borrow::Cow;
use url::Url;

/// Escapes within escapes that are undone; nobody writes more of them in good faith.
const ROUNDS: usize = 4;

/// Whether a URI is refused whatever the lists say, for its control characters or outer spaces: parsers drop TAB, CR and
/// LF inside a URI and spaces around it, and so make another URI of it than the one that was judged.
pub fn is_refused_uri(uri: &str) -> bool {
    uri.contains(char::is_control) || uri.trim() != uri
}

/// Some of the readings of a URI or a rule, one bit for each. The same bit is the same reading of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readings(u64);

impl Readings {
    /// The text as it is written, the only reading of a name that is no URI.
    pub(super) const WRITTEN: Self = Self(1);

    pub(super) const fn overlap(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// One text and the readings that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Form<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) readings: Readings,
}

/// All forms of a URI.
pub(super) fn forms_of_uri(uri: &str) -> Vec<Form<'_>> {
    Forms::of(uri, Text::Uri).found
}

/// The forms of a URI that a rule has to allow: all but the written one. It says nothing that the others do not say, and
/// two spellings of one resource differ in it.
pub(super) fn forms_to_allow(uri: &str) -> Vec<Form<'_>> {
    let mut forms = forms_of_uri(uri);
    for form in &mut forms {
        form.readings.0 &= !Readings::WRITTEN.0;
    }
    forms.retain(|form| form.readings.0 != 0);
    forms
}

/// All forms of a rule. One without `*` and `?` is a URI itself. Of others the authority is read and escapes are undone,
/// but nothing is resolved or cut off: a star may stand for any part of a path.
pub(super) fn forms_of_rule(rule: &str) -> Vec<Form<'_>> {
    let text = if rule.contains(WILDCARDS) { Text::Pattern } else { Text::Rule };
    Forms::of(rule, text).found
}

const WILDCARDS: [char; 2] = ['*', '?'];

/// A text that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Uri,
    /// A rule without wildcards.
    Rule,
    /// A rule with wildcards.
    Pattern,
}

struct Forms<'a> {
    found: Vec<Form<'a>>,
    /// The bit of the next reading.
    next: u64,
    text: Text,
    /// What was resolved already, and the places of its forms.
    resolved: Vec<(String, Vec<usize>)>,
}

impl<'a> Forms<'a> {
    /// Takes every reading, always in the same order.
    fn of(written: &'a str, text: Text) -> Self {
        let mut forms = Self { found: Vec::with_capacity(4), next: 1, text, resolved: Vec::new() };
        forms.add(Cow::Borrowed(written));
        let split = without_empty_parts(by_rfc_3986(written, text), text);
        let whatwg = without_empty_parts(by_whatwg(written, text), text);
        // A server may undo escapes before it parses, or parse again what it has parsed.
        let again = [&split, &whatwg].map(|base| {
            let plain = forms.plain(base);
            without_empty_parts(by_whatwg(&plain, text), text)
        });
        for base in [&split, &whatwg].into_iter().chain(&again) {
            forms.add_resolved(base);
            forms.add_resolved(&essence(base, text));
        }
        // Paths by the letter: a server may tell `%2F` from a slash.
        let essence = essence(&split, text);
        forms.add(Cow::Owned(split));
        forms.add(Cow::Owned(essence));
        forms
    }

    /// Takes the next reading, and answers with the place of its form.
    fn add(&mut self, text: Cow<'a, str>) -> usize {
        let known = self.found.iter().position(|form| form.text == text);
        let at = known.unwrap_or(self.found.len());
        if known.is_none() {
            self.found.push(Form { text, readings: Readings(0) });
        }
        self.add_at(at);
        at
    }

    fn add_at(&mut self, at: usize) {
        self.found[at].readings.0 |= self.next;
        self.next <<= 1;
    }

    /// With escapes undone, and dot segments resolved as well: by the book, by servers that take everything behind `://`
    /// for the path, and by those to which many slashes are one.
    fn add_resolved(&mut self, base: &str) {
        // Most URIs read the same in all ways, and are resolved once.
        if let Some((_, places)) = self.resolved.iter().find(|(known, _)| known == base) {
            places.clone().into_iter().for_each(|at| self.add_at(at));
            return;
        }
        let plain = self.plain(base);
        let ways = [
            (Authority::OfItsOwn, Slashes::AsTheyAre),
            (Authority::OfItsOwn, Slashes::OneForMany),
            (Authority::PartOfPath, Slashes::AsTheyAre),
            (Authority::PartOfPath, Slashes::OneForMany),
        ];
        let resolved = ways.map(|(authority, slashes)| match self.text {
            Text::Uri | Text::Rule => resolved(&plain, authority, slashes),
            Text::Pattern => plain.clone(),
        });
        let texts = std::iter::once(plain).chain(resolved);
        let places = texts.map(|text| self.add(Cow::Owned(text))).collect();
        self.resolved.push((base.to_owned(), places));
    }

    /// With all escapes undone.
    fn plain(&self, text: &str) -> String {
        let mut plain = text.to_owned();
        for _ in 0..ROUNDS {
            let undone = unescaped(&plain, self.text);
            if undone == plain {
                break;
            }
            plain = undone;
        }
        plain
    }
}

/// The scheme in lower case, and the rest; no scheme, and everything, of a text that has none.
fn split_scheme(text: &str) -> (String, &str) {
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{}:", scheme.to_ascii_lowercase()), rest),
        Some(_) | None => (String::new(), text),
    }
}

/// The authority behind `//`, up to a slash, a query or a fragment, and the rest.
fn split_authority(rest: &str, text: Text) -> Option<(&str, &str)> {
    let rest = rest.strip_prefix("//")?;
    // In a pattern a `?` is any letter.
    let ends: &[char] = if text == Text::Pattern { &['/', '#'] } else { &['/', '?', '#'] };
    Some(rest.split_at(rest.find(ends).unwrap_or(rest.len())))
}

/// As `urlsplit` reads it: scheme and host in lower case, no user, no port that the scheme implies; the rest by the
/// letter.
fn by_rfc_3986(written: &str, text: Text) -> String {
    let (scheme, rest) = split_scheme(written);
    let Some((authority, rest)) = split_authority(rest, text) else {
        // No parser tells a file without a host from one with an empty host.
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

/// The host of a name that is spelled out to the root is the same host.
fn without_last_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// As browsers read it, without user; what they cannot read, as `urlsplit` does.
fn by_whatwg(written: &str, text: Text) -> String {
    match text {
        Text::Uri | Text::Rule => Url::parse(written).ok().map(|url| {
            let (scheme, authority, rest) = parts(&url);
            format!("{scheme}{authority}{rest}")
        }),
        Text::Pattern => {
            let (scheme, rest) = split_scheme(written);
            split_authority(rest, text).and_then(|(authority, rest)| {
                // A `?` cannot be in a host, and need not be: whatever stands there is in lower case.
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

/// Without a query and a fragment that say nothing: no parser tells them from none.
fn without_empty_parts(uri: String, text: Text) -> String {
    if text == Text::Pattern {
        return uri;
    }
    let (before, fragment) = uri.split_once('#').unwrap_or((&uri, ""));
    let before = before.strip_suffix('?').filter(|before| !before.contains('?')).unwrap_or(before);
    if fragment.is_empty() { before.to_owned() } else { format!("{before}#{fragment}") }
}

/// Without a fragment, which most servers do not get or do not look at. Of a file, its path alone: many servers find it by
/// that, and look neither at a host nor at a query.
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

/// With `%2e` and the like as the characters that they stand for, once. In a rule, a wildcard that is written as an
/// escape becomes any one letter.
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

/// What a server takes the part between `://` and the next slash for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority {
    OfItsOwn,
    PartOfPath,
}

/// What a server takes several slashes in a row for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slashes {
    AsTheyAre,
    /// As files are named: `/srv//../etc` is `/etc`, and `file:/etc` and `file://localhost/etc` are `file:///etc`.
    OneForMany,
}

/// Without `.` and `..` segments, whichever way the slashes lean, and with the scheme in lower case.
fn resolved(text: &str, authority: Authority, slashes: Slashes) -> String {
    let text = text.replace('\\', "/");
    let (scheme, rest) = split_scheme(&text);
    let (mark, rest) = match (rest.strip_prefix("//"), slashes) {
        (Some(rest), _) => ("//", rest),
        (None, Slashes::OneForMany) if rest.starts_with('/') && !scheme.is_empty() => ("//", rest),
        (None, Slashes::AsTheyAre | Slashes::OneForMany) => ("", rest),
    };
    let (before, path) = match authority {
        Authority::OfItsOwn if mark == "//" => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        Authority::OfItsOwn | Authority::PartOfPath => ("", rest),
    };
    let is_here =
        slashes == Slashes::OneForMany && scheme == "file:" && before.eq_ignore_ascii_case("localhost");
    let before = if is_here { "" } else { before };
    // A path from the root begins with an empty segment, and nothing is above that.
    let top = usize::from(path.starts_with('/'));
    let mut segments: Vec<&str> = Vec::new();
    for (at, segment) in path.split('/').enumerate() {
        match segment {
            "." => {}
            ".." => segments.truncate(segments.len().saturating_sub(1).max(top)),
            "" if slashes == Slashes::OneForMany && at > 0 => {}
            segment => segments.push(segment),
        }
    }
    let ends_open = slashes == Slashes::OneForMany && path.ends_with('/') && !segments.is_empty();
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
    fn g01_a_way_out_is_seen_through_however_it_is_spelled() {
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
    fn g01_a_host_is_the_same_however_it_is_spelled() {
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
            prop_assert!(forms[0].readings.overlap(Readings::WRITTEN));
        }

        /// Rule and URI are read alike, so a rule without wildcards always speaks of its own text.
        #[test]
        fn a_uri_has_the_same_forms_as_the_rule_that_spells_it_out(text in "[a-z:/.@#%A-Z0-9é\\\\]{0,30}") {
            prop_assume!(!text.contains("%2A") && !text.contains("%2a"));
            prop_assert_eq!(forms_of_uri(&text), forms_of_rule(&text));
        }
    }
}
