//! Redaction: removes secrets from text before it is shown, logged, stored or passed on. The only module that does
//! this.
//!
//! Three things are secret: values that were filled in for a server ([`KnownSecrets`], in every spelling in URLs and
//! JSON), words that look like a token, and values with a telling name (`password=…`, `https://user:…@host`). File
//! names stay readable: a random-looking word inside a path is not a token.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Replacement for a secret where the width of the text does not matter.
pub const REDACTED: &str = "[redacted]";

/// Prefixes of the tokens of well-known services.
const TOKEN_PREFIXES: &[&str] = &[
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "eyJ",
];

/// The bytes that a token prefix can start with.
const PREFIX_STARTS: [bool; 256] = {
    let mut starts = [false; 256];
    let mut index = 0;
    while index < TOKEN_PREFIXES.len() {
        starts[TOKEN_PREFIXES[index].as_bytes()[0] as usize] = true;
        index += 1;
    }
    starts
};

/// Minimum length of a word that counts as a token.
const MIN_TOKEN_LENGTH: usize = 12;

/// Masks everything in a text that looks like a secret, keeping the width so that carets stay in place.
pub fn text(text: &str) -> Cow<'_, str> {
    redacted(text, Names::Count)
}

/// Masks words that look like a secret, in a text whose names say nothing, such as `login_key = "keyring"`.
pub fn shapes(text: &str) -> Cow<'_, str> {
    redacted(text, Names::SayNothing)
}

/// Treatment of names such as `password=`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Count,
    SayNothing,
}

fn redacted(text: &str, names: Names) -> Cow<'_, str> {
    if !may_hold_secrets(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let announced = if names == Names::Count { announced(&shown, rest) } else { 0 };
        let url = if announced == 0 { url_length(rest) } else { None };
        let run = url.unwrap_or_else(|| rest.find(is_delimiter).unwrap_or(rest.len()));
        let (run, after) = rest.split_at(if announced > 0 { announced } else { run });
        match url {
            Some(_) => push_url(&mut shown, run, names),
            None if announced > 0 => push_stars(&mut shown, run),
            None => push_run(&mut shown, run),
        }
        let next = after.find(|letter| !is_delimiter(letter)).unwrap_or(after.len());
        shown.push_str(&after[..next]);
        rest = &after[next..];
    }
    Cow::Owned(shown)
}

/// Fast check whether a text has to be scanned. The text of every failure comes here, and most contain no secret.
fn may_hold_secrets(text: &str) -> bool {
    let (mut length, mut before) = (0, 0);
    for (at, byte) in text.bytes().enumerate() {
        if is_word(char::from(byte)) {
            length += 1;
            if length == MIN_TOKEN_LENGTH || (byte == b'-' && before == b'-') {
                return true;
            }
        } else {
            let word = || &text.as_bytes()[at - length..at];
            match byte {
                b'=' | b'@' => return true,
                b':' if before == b'"' || before == b'\'' => return true,
                b':' if std::str::from_utf8(word()).is_ok_and(announces_secret) => return true,
                b' ' if word().eq_ignore_ascii_case(b"bearer") || word().eq_ignore_ascii_case(b"basic") => {
                    return true;
                }
                _ => {}
            }
            length = 0;
        }
        before = byte;
    }
    false
}

/// Masks tokens of well-known services in the name of a tool, prompt or client. Names are often long and mixed, so that
/// their shape says nothing.
pub fn name(name: &str) -> Cow<'_, str> {
    let bytes = name.as_bytes();
    let starts_token = |at: usize| {
        PREFIX_STARTS[usize::from(bytes[at])]
            && TOKEN_PREFIXES.iter().any(|prefix| bytes[at..].starts_with(prefix.as_bytes()))
    };
    if name.len() < MIN_TOKEN_LENGTH || !(0..bytes.len()).any(starts_token) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len());
    push_words(&mut shown, name, has_token_prefix);
    Cow::Owned(shown)
}

/// Masks user, password and query values of a URL, and tokens in the rest. References (`${env:NAME}`) stay.
pub fn url(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").map_or((None, url), |(scheme, rest)| (Some(scheme), rest));
    let (user, rest) = if scheme.is_some() { userinfo(rest) } else { (None, rest) };
    let (address, query) =
        rest.split_once('?').map_or((rest, None), |(address, query)| (address, Some(query)));
    let mut shown = scheme.map_or(String::new(), |scheme| format!("{scheme}://"));
    if user.is_some() {
        shown += REDACTED;
        shown.push('@');
    }
    shown += address;
    let mut masked = String::with_capacity(shown.len());
    push_words(&mut masked, &shown, is_token);
    shown = masked;
    if let Some(query) = query {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((_, value)) if is_reference(value) => pair.to_owned(),
            Some((name, _)) => format!("{name}={REDACTED}"),
            None => text(pair).into_owned(),
        });
        shown = format!("{shown}?{}", pairs.collect::<Vec<_>>().join("&"));
    }
    shown
}

/// Masks secrets in a JSON document: members with a telling name, and texts that look like a secret.
pub fn json(value: &mut Value) {
    match value {
        Value::String(string) => {
            if let Cow::Owned(masked) = text(string) {
                *string = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(json),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if is_secret_name(name) {
                    *member = Value::from(REDACTED);
                } else {
                    json(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Between two delimiters is a URL, a path, a `name=value` or a plain word.
fn is_delimiter(letter: char) -> bool {
    letter.is_whitespace()
        || matches!(
            letter,
            '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '<' | '>' | ',' | ';' | '|' | '=' | '&' | '?'
        )
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

/// The number of bytes at the start of `rest` that are a secret because of the text before: `password=`, `"password":
/// "`, `Authorization: Bearer `, `--token `.
fn announced(before: &str, rest: &str) -> usize {
    const QUOTES: [char; 3] = ['"', '\'', '\\'];
    let name_of = |before: &str| {
        let name = before.trim_end_matches(' ').trim_end_matches(QUOTES);
        announces_secret(name.rsplit(|letter| !is_word(letter)).next().unwrap_or_default())
    };
    let ends_with = |scheme: &[u8]| {
        let at = before.len().checked_sub(scheme.len());
        at.is_some_and(|at| before.as_bytes()[at..].eq_ignore_ascii_case(scheme))
    };
    if !before.ends_with(['=', ':', ' ', '"', '\'']) {
        return 0;
    }
    let unquoted = before.trim_end_matches(QUOTES).trim_end_matches(' ');
    // Plain text has colons elsewhere: `invalid token: expected a string`.
    let mut has_to_look_secret = true;
    let is_named = if ends_with(b"bearer ") || ends_with(b"basic ") {
        true
    } else if let Some(name) = unquoted.strip_suffix('=') {
        has_to_look_secret = false;
        name_of(name)
    } else if let Some(name) = unquoted.strip_suffix(':') {
        has_to_look_secret = !name.ends_with(QUOTES);
        name_of(name)
    } else {
        let flag = before.strip_suffix(' ').and_then(|before| before.rsplit(char::is_whitespace).next());
        flag.is_some_and(|flag| flag.starts_with("--") && announces_secret(flag))
    };
    if !is_named {
        return 0;
    }
    // In quotes a secret may contain spaces. Otherwise it ends where a word of a URL or shell ends.
    let length = match before.chars().next_back().filter(|mark| QUOTES[..2].contains(mark)) {
        Some(quote) => rest.find([quote, '\n']),
        None => rest.find(|letter: char| {
            letter.is_whitespace() || matches!(letter, '&' | '"' | '\'' | ',' | ';' | ')')
        }),
    };
    let value = &rest[..length.unwrap_or(rest.len())];
    let looks_secret =
        value.len() >= 16 || (value.len() >= 6 && value.bytes().any(|byte| byte.is_ascii_digit()));
    if (has_to_look_secret && !looks_secret) || is_reference(value) { 0 } else { value.len() }
}

/// Returns whether a config value is a single reference (`${env:NAME}`, `${file:PATH}`), without a default and without
/// a command, which may contain a secret.
fn is_reference(value: &str) -> bool {
    let inside = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| {
        !inside.contains(['$', '{', '}']) && !inside.contains(":-") && !inside.starts_with("cmd:")
    })
}

/// Appends a path or a plain word with its secrets masked.
fn push_run(shown: &mut String, run: &str) {
    let is_secret = if is_file_name(run) { has_token_prefix } else { is_token };
    push_words(shown, run, is_secret);
}

/// Appends a URL with its secrets masked.
fn push_url(shown: &mut String, url: &str, names: Names) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    shown.push_str(scheme);
    shown.push_str("://");
    let (user, rest) = userinfo(rest);
    if let Some(user) = user {
        push_stars(shown, user);
        shown.push('@');
    }
    let (address, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    push_words(shown, address, is_token);
    shown.push_str(&redacted(query, names));
}

/// The length of a URL at the start of a text, if there is one. It ends at a space or a quote.
fn url_length(text: &str) -> Option<usize> {
    const LONGEST_SCHEME: usize = 32;
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let scheme = text.bytes().take(LONGEST_SCHEME).take_while(is_scheme).count();
    if scheme == 0 || !text[scheme..].starts_with("://") || &text[..scheme] == "file" {
        return None;
    }
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | '<' | '>');
    Some(text.find(ends).unwrap_or(text.len()))
}

/// Splits the text after `://` into user and password, if there are any, and the rest. A password may contain a slash.
fn userinfo(rest: &str) -> (Option<&str>, &str) {
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        // `user:pass/word@host`: a port has digits only.
        None => match (rest.find(':'), rest.rfind('@')) {
            (Some(colon), Some(at)) if colon < authority && !is_port(&rest[colon + 1..authority]) => {
                (Some(&rest[..at]), &rest[at + 1..])
            }
            (_, _) => (None, rest),
        },
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn push_words(shown: &mut String, text: &str, is_secret: fn(&str) -> bool) {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if is_secret(word) {
            push_stars(shown, word);
        } else {
            shown.push_str(word);
        }
        let next = after.find(is_word).unwrap_or(after.len());
        shown.push_str(&after[..next]);
        rest = &after[next..];
    }
}

fn push_stars(shown: &mut String, hidden: &str) {
    shown.extend(hidden.chars().map(|_| '*'));
}

/// Returns whether a text is the path of a file: it begins like one, or ends in an extension.
fn is_file_name(run: &str) -> bool {
    let is_drive = |run: &str| {
        run.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && run[1..].starts_with(":\\")
    };
    let begins = ["/", "./", "../", "~/", "\\\\", "file://"].iter().any(|start| run.starts_with(start));
    // `main.py:12:3`, and the full stop of a sentence.
    let end =
        run.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == ':').trim_end_matches('.');
    let has_extension = end.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && (1..=6).contains(&extension.len())
            && extension.as_bytes()[0].is_ascii_lowercase()
            && extension.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    begins || has_extension || is_drive(run)
}

fn has_token_prefix(word: &str) -> bool {
    word.len() >= MIN_TOKEN_LENGTH && TOKEN_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// Returns whether a word looks like a token: a well-known prefix, a long mix of cases and digits, or long hexadecimal.
fn is_token(word: &str) -> bool {
    let has = |test: fn(&u8) -> bool| word.bytes().any(|byte| test(&byte));
    let mixed = word.len() >= 20
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit);
    let hex = word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    mixed || hex || has_token_prefix(word)
}

/// Texts that are secret whatever they look like: the values that were filled in for a server, which may repeat them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownSecrets {
    /// The longest first, so that a secret that contains another is masked completely.
    texts: Vec<String>,
}

impl KnownSecrets {
    /// Minimum length of a secret: shorter values are `1`, `true` or `debug`, and masking those would make texts
    /// unreadable.
    pub const MIN_LENGTH: usize = 6;
    /// Authentication schemes, which precede a secret and are none.
    const SCHEMES: &[&str] = &["Bearer", "bearer", "Basic", "Digest"];

    /// Adds each line of a text that is long enough, because texts are shown line by line.
    pub fn add_lines(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| line.chars().count() >= Self::MIN_LENGTH) {
            if !Self::SCHEMES.contains(&line) {
                self.insert(line);
            }
        }
    }

    /// Adds a text as it is, however short.
    pub fn insert(&mut self, text: &str) {
        if !text.is_empty() && !self.texts.iter().any(|known| known == text) {
            let at = self.texts.partition_point(|known| known.len() >= text.len());
            self.texts.insert(at, text.to_owned());
        }
    }

    /// Adds a text and each of its words: a server that repeats `Bearer WORD` may repeat the word alone.
    pub fn add_words(&mut self, text: &str) {
        self.add_lines(text);
        text.split_whitespace().for_each(|word| self.add_lines(word));
    }

    /// The texts, to merge several sets.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Masks the known secrets, and then everything else that looks like a secret.
    pub fn text<'a>(&self, shown: &'a str) -> Cow<'a, str> {
        match self.mask(shown) {
            Cow::Borrowed(same) => text(same),
            Cow::Owned(masked) => Cow::Owned(text(&masked).into_owned()),
        }
    }

    /// Masks the known secrets in a name, and tokens of well-known services.
    pub fn name<'a>(&self, shown: &'a str) -> Cow<'a, str> {
        match self.mask(shown) {
            Cow::Borrowed(same) => name(same),
            Cow::Owned(masked) => Cow::Owned(name(&masked).into_owned()),
        }
    }

    /// Masks each known secret in every spelling, and the start of one that is cut off by the end of the text. The time
    /// is proportional to the length of the text.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        // Escapes within escapes: a URL in JSON, or JSON in a JSON string.
        const DEEPEST: usize = 2;
        let mut shown = Cow::Borrowed(text);
        for secret in &self.texts {
            for depth in 0..=DEEPEST {
                if let Some(masked) = masked(&shown, secret.as_bytes(), depth) {
                    shown = Cow::Owned(masked);
                }
            }
        }
        shown
    }

    /// Masks the known secrets in the strings, names and numbers of a JSON document, which stays valid.
    pub fn mask_json(&self, value: &mut Value) {
        match value {
            Value::String(string) => {
                if let Cow::Owned(masked) = self.mask(string) {
                    *string = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(members) => {
                for (name, mut member) in std::mem::take(members) {
                    self.mask_json(&mut member);
                    members.insert(self.mask(&name).into_owned(), member);
                }
            }
            Value::Number(number) => {
                if let Cow::Owned(masked) = self.mask(&number.to_string()) {
                    *value = Value::from(masked);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

/// The text with stars where it spells a secret with `depth` layers of escapes; `None` if it does not. The last
/// occurrence may be cut off by the end of the text.
fn masked(text: &str, secret: &[u8], depth: usize) -> Option<String> {
    let first = *secret.first()?;
    if depth > 0 && !text.contains(['%', '\\', '+']) {
        return None;
    }
    let bytes = text.as_bytes();
    let may_begin = |byte: u8| byte == first || (depth > 0 && matches!(byte, b'%' | b'\\' | b'+'));
    let mut shown: Option<String> = None;
    let (mut at, mut kept) = (0, 0);
    while at < bytes.len() {
        let found = (may_begin(bytes[at]) && text.is_char_boundary(at))
            .then(|| spelled(&bytes[at..], secret, depth))
            .flatten()
            .filter(|length| text.is_char_boundary(at + length));
        let Some(length) = found else {
            at += 1;
            continue;
        };
        let shown = shown.get_or_insert_with(|| String::with_capacity(text.len()));
        shown.push_str(&text[kept..at]);
        push_stars(shown, &text[at..at + length]);
        at += length;
        kept = at;
    }
    shown.map(|shown| shown + &text[kept..])
}

/// The number of bytes at the start of a text that spell a secret, or enough of its start before the text ends.
fn spelled(text: &[u8], secret: &[u8], depth: usize) -> Option<usize> {
    let (mut at, mut known) = (0, 0);
    while known < secret.len() {
        if at == text.len() {
            return (known >= KnownSecrets::MIN_LENGTH).then_some(at);
        }
        let letter = letter(&text[at..], depth)?;
        let is_space = depth > 0 && text[at] == b'+' && secret[known] == b' ';
        if !is_space && !secret[known..].starts_with(letter.bytes()) {
            let is_cut = depth > 0 && is_unfinished(&text[at..]) && known >= KnownSecrets::MIN_LENGTH;
            return is_cut.then_some(text.len());
        }
        at += letter.spelled;
        known += if is_space { 1 } else { letter.length };
    }
    Some(at)
}

/// Returns whether a text is an incomplete escape.
fn is_unfinished(text: &[u8]) -> bool {
    const LONGEST: usize = r"\\ud83d\\ude00".len();
    text.len() < LONGEST
        && matches!(text.first(), Some(b'%' | b'\\'))
        && text[1..].iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'u' | b'\\'))
}

/// One character that a text spells, or one byte of it.
struct Letter {
    bytes: [u8; 4],
    length: usize,
    /// Number of bytes of the text that spell it.
    spelled: usize,
}

impl Letter {
    fn byte(byte: u8, spelled: usize) -> Self {
        Self { bytes: [byte, 0, 0, 0], length: 1, spelled }
    }

    fn character(letter: char, spelled: usize) -> Self {
        let mut bytes = [0; 4];
        let length = letter.encode_utf8(&mut bytes).len();
        Self { bytes, length, spelled }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The first character of a text, under `depth` layers of percent-encoding or JSON escapes.
fn letter(text: &[u8], depth: usize) -> Option<Letter> {
    let Some(below) = depth.checked_sub(1) else { return text.first().map(|byte| Letter::byte(*byte, 1)) };
    let first = letter(text, below)?;
    let escaped = match first.bytes() {
        b"%" => hex(text, first.spelled, 2, below)
            .and_then(|(value, end)| Some(Letter::byte(u8::try_from(value).ok()?, end))),
        b"\\" => unescaped(text, first.spelled, below),
        _ => None,
    };
    Some(escaped.unwrap_or(first))
}

/// The character after a backslash that ends at `at`.
fn unescaped(text: &[u8], at: usize, depth: usize) -> Option<Letter> {
    let mark = letter(text.get(at..)?, depth)?;
    let end = at + mark.spelled;
    match mark.bytes() {
        b"n" => Some(Letter::byte(b'\n', end)),
        b"r" => Some(Letter::byte(b'\r', end)),
        b"t" => Some(Letter::byte(b'\t', end)),
        [same @ (b'"' | b'\\' | b'/')] => Some(Letter::byte(*same, end)),
        b"u" => {
            let (unit, end) = hex(text, end, 4, depth)?;
            if !(0xD800..0xDC00).contains(&unit) {
                return char::from_u32(unit).map(|letter| Letter::character(letter, end));
            }
            let slash = letter(text.get(end..)?, depth).filter(|letter| letter.bytes() == b"\\")?;
            let mark = letter(text.get(end + slash.spelled..)?, depth).filter(|mark| mark.bytes() == b"u")?;
            let (low, end) = hex(text, end + slash.spelled + mark.spelled, 4, depth)?;
            let low = low.checked_sub(0xDC00)?;
            char::from_u32(0x10000 + ((unit - 0xD800) << 10) + low)
                .map(|letter| Letter::character(letter, end))
        }
        _ => None,
    }
}

/// A hexadecimal number of `digits` digits at `at`, and the position after it.
fn hex(text: &[u8], mut at: usize, digits: usize, depth: usize) -> Option<(u32, usize)> {
    let mut value = 0;
    for _ in 0..digits {
        let digit = letter(text.get(at..)?, depth)?;
        value = value * 16 + char::from(digit.bytes[0]).to_digit(16)?;
        at += digit.spelled;
    }
    Some((value, at))
}

impl<'a> FromIterator<&'a str> for KnownSecrets {
    fn from_iter<T: IntoIterator<Item = &'a str>>(texts: T) -> Self {
        let mut known = Self::default();
        texts.into_iter().for_each(|text| known.add_lines(text));
        known
    }
}

/// Prints no secret: a `KnownSecrets` may be printed as a part of its owner.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets([redacted]; {})", self.texts.len())
    }
}

/// Returns whether a literal part of a config value is too short or too common to be a secret.
pub fn is_harmless(literal: &str) -> bool {
    /// Shorter values are `1` and `true`, and masking those would make texts unreadable.
    const SHORTEST: usize = 4;
    const USUAL: &[&str] = &["Bearer", "Basic", "Token", "token", "true", "false"];
    let literal = literal.trim();
    literal.len() < SHORTEST || USUAL.contains(&literal)
}

/// Returns whether a member with this name contains a secret.
pub fn is_secret_name(name: &str) -> bool {
    const TELLING: &[&str] = &[
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "apikey",
        "authorization",
        "credential",
        "privatekey",
    ];
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    TELLING.iter().any(|word| plain.contains(word))
}

/// For each argument of a command, the secret part, if the flag before it or a name in it announces one: `--api-key
/// PART`, `--token=PART`, `Authorization: PART`.
pub fn secret_arguments<'a>(arguments: &[&'a str]) -> Vec<Option<&'a str>> {
    let mut before = "";
    let mut parts = Vec::with_capacity(arguments.len());
    for &argument in arguments {
        let flag = before.strip_prefix('-').filter(|_| !argument.starts_with('-'));
        let named = argument.split_once('=').or_else(|| argument.split_once(':'));
        let part = match (flag, named) {
            (Some(flag), _) if announces_secret(flag) => Some(argument),
            // `-p` may be a port, a path or a password.
            (Some("p" | "k" | "t"), _) if is_password(argument) => Some(argument),
            (_, Some((name, part))) if announces_secret(name) => Some(part.trim_start()),
            (_, Some(_) | None) => None,
        };
        parts.push(part.filter(|part| !part.is_empty()));
        before = argument;
    }
    parts
}

/// Returns whether the value of a short flag looks like a password: letters and digits, no path and no address.
fn is_password(value: &str) -> bool {
    let has = |test: fn(&u8) -> bool| value.bytes().any(|byte| test(&byte));
    value.len() >= 6
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !value.contains(['/', ':', '.'])
}

/// Returns whether a flag, header or variable with this name contains a secret. Such names are shorter than those of
/// message members, so that shorter words count as well.
pub fn announces_secret(name: &str) -> bool {
    const SHORT: &[&str] = &["auth", "bearer", "cookie", "pass", "pat", "pwd"];
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_. ".contains(letter));
    is_name && (is_secret_name(&name) || name.ends_with("key") || SHORT.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stars(count: usize) -> String {
        "*".repeat(count)
    }

    fn text_of(shown: &str) -> String {
        text(shown).into_owned()
    }

    #[test]
    fn words_that_look_like_a_token_are_masked() {
        assert_eq!(text("--key ghp_0123456789ab -y"), format!("--key {} -y", stars(16)));
        assert_eq!(text("Zx9Zx9Zx9Zx9Zx9Zx9Zx9"), stars(21));
        assert_eq!(
            text("at https://h.example/s/Zx9Zx9Zx9Zx9Zx9Zx9Zx9/mcp"),
            format!("at https://h.example/s/{}/mcp", stars(21))
        );
        for harmless in ["@modelcontextprotocol/server-filesystem@2025.11.25", "${env:GITHUB_TOKEN}", "é", ""]
        {
            assert_eq!(text(harmless), harmless);
        }
    }

    #[test]
    fn file_names_stay_readable() {
        for line in [
            "File \"/root/.cache/uv/archive-v0/Zx9Zx9Zx9Zx9Zx9Zx9Zx9/lib/app.py\", line 3, in <module>",
            "    at Object.<anonymous> (/srv/Zx9Zx9Zx9Zx9Zx9Zx9Zx9/index.js:12:3)",
            "cannot open ./Quarterly-Report-2026-Final",
            "cannot read Quarterly-Report-2026-Final.xlsx.",
            "ENOENT: C:\\Users\\Anna\\Quarterly-Report-2026-Final",
            "--cert=/etc/ssl/0123456789abcdef0123456789abcdef.0",
            "loading file:///nix/store/0123456789abcdef0123456789abcdef-server",
        ] {
            assert_eq!(text(line), line);
        }
        assert_eq!(
            text("/srv/ghp_0123456789abcdef/x"),
            format!("/srv/{}/x", stars(20)),
            "a known prefix is no name"
        );
    }

    #[test]
    fn values_with_a_secret_name_are_masked() {
        for (line, shown) in [
            ("connect postgres://app:hunter2@db/x failed", "connect postgres://***********@db/x failed"),
            (
                "GET https://h.example/p?user=7&api_key=hunter2 401",
                "GET https://h.example/p?user=7&api_key=******* 401",
            ),
            ("DB_PASSWORD=hunter2 rejected", "DB_PASSWORD=******* rejected"),
            (
                "{\"user\": \"bob\", \"password\": \"hunter2\"}",
                "{\"user\": \"bob\", \"password\": \"*******\"}",
            ),
            ("{'client_secret':'hunter2'}", "{'client_secret':'*******'}"),
            ("sent Authorization: Bearer hunter22", "sent Authorization: Bearer ********"),
            ("authorization: basic dXNlcjpodW50ZXIy", "authorization: basic ****************"),
            ("X-Api-Key: hunter22, again", "X-Api-Key: ********, again"),
            ("run --api-key hunter22 now", "run --api-key ******** now"),
            ("{\"password\": \"correct horse battery\"}", "{\"password\": \"*********************\"}"),
            ("{\\\"password\\\":\\\"hunter22\\\"}", "{\\\"password\\\":\\\"*********\"}"),
            ("password=abc=def rest", "password=******* rest"),
            ("postgres://app:hun/ter2@db/x", "postgres://************@db/x"),
            ("postgres://app:hun,ter2@db", "postgres://************@db"),
        ] {
            assert_eq!(text(line), shown);
        }
        for line in [
            "--token=${env:T}",
            "invalid token: expected a string",
            "Bearer authentication required",
            "mode=fast",
        ] {
            assert_eq!(text(line), line);
        }
    }

    #[test]
    fn a_long_name_is_a_token_only_with_a_token_prefix() {
        assert_eq!(name("getUserProfileV2Details"), "getUserProfileV2Details");
        assert_eq!(name("ghp_0123456789abcdef"), stars(20));
    }

    #[test]
    fn a_url_is_shown_without_user_password_and_query_values() {
        for (written, shown) in [
            ("https://me:pw@h.example/mcp?key=1&x", "https://[redacted]@h.example/mcp?key=[redacted]&x"),
            ("https://h.example/a@b", "https://h.example/a@b"),
            ("https://h.example:80/a@b", "https://h.example:80/a@b"),
            ("https://me:p?w@h/x", "https://[redacted]@h/x"),
            ("https://me:p/w@h/x", "https://[redacted]@h/x"),
            ("${BASE}/mcp?key=${env:KEY}", "${BASE}/mcp?key=${env:KEY}"),
            (
                "https://h.example/?k=${A:-hunter2}&l=${cmd:x}&m=a${A}",
                "https://h.example/?k=[redacted]&l=[redacted]&m=[redacted]",
            ),
        ] {
            assert_eq!(url(written), shown);
        }
    }

    #[test]
    fn json_arguments_are_masked_by_name_and_shape() {
        let mut arguments = json!({
            "to": "bob", "password": "hunter2", "nested": [{ "apiKey": 7, "note": "use ghp_0123456789abcdef" }],
        });
        json(&mut arguments);
        let note = format!("use {}", stars(20));
        assert_eq!(
            arguments,
            json!({ "to": "bob", "password": REDACTED, "nested": [{ "apiKey": REDACTED, "note": note }] })
        );
    }

    #[test]
    fn a_command_argument_is_secret_by_its_flag_or_name() {
        let arguments = [
            "-y",
            "server@1.2",
            "--api-key",
            "hunter22",
            "--token=hunter22",
            "--header",
            "X-Api-Key: hunter22",
            "-H",
            "Authorization: Bearer hunter22",
            "PGPASSWORD=hunter22",
            "--password",
            "--verbose",
            "--pat",
            "h2",
            "-p",
            "hunter22",
            "-p",
            "8080",
            "-k",
            "key2.pem",
        ];
        let found: Vec<&str> = secret_arguments(&arguments).into_iter().flatten().collect();
        let secret = ["hunter22", "hunter22", "hunter22", "Bearer hunter22", "hunter22", "h2", "hunter22"];
        assert_eq!(found, secret);
        let harmless =
            ["--port", "8080", "--mode=fast", "https://h.example:80/token=1", "--keyboard", "us", "a: b", ""];
        assert_eq!(secret_arguments(&harmless), [None; 8]);
    }

    #[test]
    fn a_known_secret_is_masked_anywhere_in_a_text() {
        let mut known = KnownSecrets::default();
        known.add_lines("correct-horse");
        known.add_lines("correct-horse-battery");
        known.add_lines("first line\n\nsecond line\n");
        known.add_words("Bearer abc.def");
        known.add_lines("short");
        let shown = |text: &str| known.mask(text).into_owned();
        assert_eq!(
            shown("401 bad token correct-horse-battery!"),
            format!("401 bad token {}!", "*".repeat(21))
        );
        assert_eq!(shown("second line, first line"), "***********, **********");
        assert_eq!(shown("Bearer abc.def; abc.def, Bearer x"), "**************; *******, Bearer x");
        assert_eq!(shown("ends in correct-horse-ba"), "ends in ****************", "it was cut");
        assert_eq!(shown("a short corre"), "a short corre");
        assert_eq!(format!("{known:?}"), "KnownSecrets([redacted]; 6)");
    }

    #[test]
    fn a_known_secret_is_masked_in_every_spelling() {
        let known: KnownSecrets = ["pä ss/w\"rd\\+%1"].into_iter().collect();
        for spelled in [
            "pä ss/w\"rd\\+%1",
            "p%C3%A4%20ss%2Fw%22rd%5C%2B%251",
            "p%c3%a4+ss%2fw%22rd%5c%2b%251",
            "p%25C3%25A4%2520ss%252Fw%2522rd%255C%252B%25251",
            "pä ss/w\\\"rd\\\\+%1",
            "p\\u00e4 ss\\/w\\\"rd\\\\+%1",
        ] {
            let line = format!("before {spelled} after");
            let shown = known.mask(&line);
            assert_eq!(shown, format!("before {} after", stars(spelled.chars().count())), "{spelled}");
        }
        let cut = known.mask("ends in p%C3%A4%20ss%2Fw");
        assert_eq!(cut, format!("ends in {}", stars(16)));
        assert_eq!(known.mask("ends in p%C3%A4%20ss%2Fw%2"), format!("ends in {}", stars(18)));
        let twice = serde_json::to_string(&serde_json::to_string("pä ss/w\"rd\\+%1").unwrap()).unwrap();
        assert!(!known.mask(&twice).contains("rd"), "{twice}");
        let surrogates: KnownSecrets = ["key-😀-key"].into_iter().collect();
        assert_eq!(surrogates.mask("\"key-\\ud83d\\ude00-key\""), format!("\"{}\"", stars(20)));
        for harmless in ["p%", "p%C3%A4", "100 % + 7 \\ x", "\\u", "\\ud83d", "%2", "%25"] {
            assert_eq!(known.mask(harmless), harmless);
        }
    }

    #[test]
    fn masked_json_stays_valid_json() {
        let known: KnownSecrets = ["123456789012", "ends in \\", "a-name-of-a-member"].into_iter().collect();
        let mut value =
            json!({ "n": 123_456_789_012_u64, "a-name-of-a-member": ["ends in \\", true, null, 7] });
        known.mask_json(&mut value);
        assert_eq!(value, json!({ "n": stars(12), stars(18): [stars(9), true, null, 7] }));
    }

    #[test]
    fn masking_time_is_proportional_to_the_text() {
        // With a quadratic algorithm, this takes minutes.
        let known: KnownSecrets = ["pä ss/w\"rd\\+%1"].into_iter().collect();
        let text = "p%C3%A4%20ss%2Fw%22rd%5C%2B%251 ".repeat(50_000);
        assert!(!known.mask(&text).contains("rd"));
        for long in ["a=", "a: ", "\"a", "x://", "--a ", "Bearer ", "password=\"", "a@b ", "/x.y:1"] {
            let long = long.repeat(200_000);
            assert_eq!(text_of(&long).chars().count(), long.len());
        }
    }

    #[test]
    fn secret_names_are_recognised_in_any_spelling() {
        for name in ["password", "API_KEY", "x-api-key", "accessToken", "client_secret", "Authorization"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["path", "key", "query", "author"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
