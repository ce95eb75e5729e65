//! Redaction: the one place that takes secrets out of text before it is shown, logged, stored or passed on.
//!
//! Three things count as secret: what was filled in for a server ([`KnownSecrets`], in every spelling that URLs and JSON
//! give it), what is shaped like a token, and what a name announces (`password=…`, `https://user:…@host`). File names stay
//! readable: a random-looking word inside a path is not a token.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Replacement for a secret where the width of the text does not matter.
pub const REDACTED: &str = "[redacted]";

/// Prefixes of the tokens of well-known services.
const TOKEN_PREFIXES: &[&str] =
    &["ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "sk-", "xoxb-", "xoxp-", "AKIA", "eyJ"];

/// Authentication scheme before a token.
const BEARER: &str = "Bearer ";

/// Minimum length of a word that counts as a token.
const SHORTEST_TOKEN: usize = 12;

/// Masks everything in a text that looks like a secret, keeping the width so that carets stay in place.
pub fn text(text: &str) -> Cow<'_, str> {
    redacted(text, Names::Count)
}

/// Masks what is shaped like a secret in a text whose names say nothing, such as `login_key = "keyring"`.
pub fn shapes(text: &str) -> Cow<'_, str> {
    redacted(text, Names::SayNothing)
}

/// Whether `password=` announces a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Count,
    SayNothing,
}

fn redacted(text: &str, names: Names) -> Cow<'_, str> {
    // Every failure's text passes here, and most texts have nothing to look at.
    let mut words = text.as_bytes().split(|byte| !is_word(char::from(*byte)));
    let has_marks = text.contains(['=', '@', '"', '\'']) || text.contains(BEARER);
    if !has_marks && words.all(|word| word.len() < SHORTEST_TOKEN) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_delimiter).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        if names == Names::Count && is_announced(&shown, run) && !is_reference(run) {
            push_stars(&mut shown, run);
        } else {
            push_run(&mut shown, run);
        }
        let next = after.find(|letter| !is_delimiter(letter)).unwrap_or(after.len());
        shown.push_str(&after[..next]);
        rest = &after[next..];
    }
    Cow::Owned(shown)
}

/// Masks tokens of well-known services in the name of a tool, a prompt or a client. Names are often long and mixed, so
/// their shape says nothing.
pub fn name(name: &str) -> Cow<'_, str> {
    if !TOKEN_PREFIXES.iter().any(|prefix| name.contains(prefix)) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len());
    push_words(&mut shown, name, has_token_prefix);
    Cow::Owned(shown)
}

/// Masks user, password and query values of a URL, and tokens in the rest of it. References (`${env:NAME}`) stay.
pub fn url(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let mut shown = match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            match authority.rsplit_once('@') {
                Some((_, host)) => format!("{scheme}://{REDACTED}@{host}{path}"),
                None => address.to_owned(),
            }
        }
        None => address.to_owned(),
    };
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

/// Masks secrets in a JSON document: members whose name announces one, and whatever looks like one.
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

/// Between two delimiters stands a URL, a path, a `name=value` or a plain word.
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

/// Whether what stands before a run says that it is a secret: `password=`, `"password": "`, `Bearer `.
fn is_announced(before: &str, run: &str) -> bool {
    if before.ends_with(BEARER) {
        return run.len() >= 8 && run.bytes().any(|byte| byte.is_ascii_digit());
    }
    const QUOTES: [char; 2] = ['"', '\''];
    let before = before.trim_end_matches(QUOTES).trim_end_matches(' ');
    let name = match before.strip_suffix('=') {
        Some(name) => name,
        // A colon after a name in quotes; plain text has colons in other places too.
        None => match before.strip_suffix(':') {
            Some(name) if name.ends_with(QUOTES) => name,
            Some(_) | None => return false,
        },
    };
    let name = name.trim_end_matches(' ').trim_end_matches(QUOTES);
    announces_secret(name.rsplit(|letter| !is_word(letter)).next().unwrap_or_default())
}

/// Whether a value of a config is one reference (`${env:NAME}`, `${file:PATH}`), without a default and without a command,
/// which may hold a secret.
fn is_reference(value: &str) -> bool {
    let inside = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| {
        !inside.contains(['$', '{', '}']) && !inside.contains(":-") && !inside.starts_with("cmd:")
    })
}

/// Appends a text without delimiters, without what is secret in it.
fn push_run(shown: &mut String, run: &str) {
    let Some((scheme, rest)) = run.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
        let is_secret = if is_file_name(run) { has_token_prefix } else { is_token };
        return push_words(shown, run, is_secret);
    };
    shown.push_str(scheme);
    shown.push_str("://");
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        push_stars(shown, user);
        shown.push('@');
    }
    push_words(shown, host, is_token);
    push_words(shown, path, is_token);
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

/// Whether a text is the path of a file: it begins like one, or ends in an extension.
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
    word.len() >= SHORTEST_TOKEN && TOKEN_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// Whether a word is shaped like a token: a well-known prefix, a long mix of cases and digits, or long hexadecimal.
fn is_token(word: &str) -> bool {
    let has = |test: fn(&u8) -> bool| word.bytes().any(|byte| test(&byte));
    let mixed = word.len() >= 20
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit);
    let hex = word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    mixed || hex || has_token_prefix(word)
}

/// Texts that are secret whatever they look like: what was filled in for a server, which may repeat it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownSecrets {
    /// The longest first, or one that contains another would be hidden only in part.
    texts: Vec<String>,
}

impl KnownSecrets {
    /// Minimum length of a secret: shorter ones are `1`, `true` and `debug`, and masking those would make texts unreadable.
    pub const SHORTEST: usize = 6;
    /// Authentication schemes, which stand before a secret and are none.
    const SCHEMES: &[&str] = &["Bearer", "bearer", "Basic", "Digest"];

    /// Adds each line of a text that is long enough: what is shown is shown by lines.
    pub fn learn(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| line.chars().count() >= Self::SHORTEST) {
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

    /// Adds a text and each word of it: a server that repeats `Bearer WORD` may repeat the word alone.
    pub fn learn_words(&mut self, text: &str) {
        self.learn(text);
        text.split_whitespace().for_each(|word| self.learn(word));
    }

    /// The texts, to merge several of these.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Masks the known secrets, and then whatever else looks like a secret.
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

    /// Masks each known secret in every spelling, and the beginning of one where the text was cut within it.
    /// JSON stays JSON.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        // Escapes within escapes: a URL in JSON, JSON in a string of JSON.
        const DEEPEST: usize = 2;
        let mut shown = Cow::Borrowed(text);
        for secret in &self.texts {
            for depth in 0..=DEEPEST {
                let mut from = 0;
                while let Some(found) = find(&shown, from, secret.as_bytes(), depth) {
                    let stars: String = shown[found.clone()].chars().map(|_| '*').collect();
                    from = found.start + stars.len();
                    shown.to_mut().replace_range(found, &stars);
                }
            }
        }
        shown
    }
}

/// Where a text spells a secret with `depth` layers of escapes, from `from` on. The last place may be cut off by the end
/// of the text.
fn find(text: &str, from: usize, secret: &[u8], depth: usize) -> Option<Range<usize>> {
    let first = *secret.first()?;
    if depth > 0 && !text.contains(['%', '\\', '+']) {
        return None;
    }
    let bytes = text.as_bytes();
    let may_begin = |byte: u8| byte == first || (depth > 0 && matches!(byte, b'%' | b'\\' | b'+'));
    (from..bytes.len()).filter(|&at| may_begin(bytes[at]) && text.is_char_boundary(at)).find_map(|at| {
        let length = spelled(&bytes[at..], secret, depth)?;
        Some(at..at + length).filter(|found| text.is_char_boundary(found.end))
    })
}

/// How many bytes at the beginning of a text spell a secret, or enough of its beginning before the text ends.
fn spelled(text: &[u8], secret: &[u8], depth: usize) -> Option<usize> {
    let (mut at, mut known) = (0, 0);
    while known < secret.len() {
        if at == text.len() {
            return (known >= KnownSecrets::SHORTEST).then_some(at);
        }
        let letter = letter(&text[at..], depth)?;
        let is_space = depth > 0 && text[at] == b'+' && secret[known] == b' ';
        if !is_space && !secret[known..].starts_with(letter.bytes()) {
            return None;
        }
        at += letter.spelled;
        known += if is_space { 1 } else { letter.length };
    }
    Some(at)
}

/// One letter that a text spells, or one byte of it.
struct Letter {
    bytes: [u8; 4],
    length: usize,
    /// How many bytes of the text spell it.
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

/// The letter that a text begins with, under `depth` layers of percent-encoding or of JSON's escapes.
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

/// The letter behind a backslash that ends at `at`.
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

/// A number of so many hexadecimal digits at `at`, and where it ends.
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
        texts.into_iter().for_each(|text| known.learn(text));
        known
    }
}

/// Prints no secret: a `KnownSecrets` may be printed together with its owner.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets([redacted]; {})", self.texts.len())
    }
}

/// Whether a member of this name holds something that nobody else should read.
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

/// Of each argument of a command, the part that nobody else should read, if the flag before it or a name in it
/// announces one: `--api-key PART`, `--token=PART`, `Authorization: PART`.
pub fn secret_arguments<'a>(arguments: &[&'a str]) -> Vec<Option<&'a str>> {
    let mut before = "";
    let mut parts = Vec::with_capacity(arguments.len());
    for &argument in arguments {
        let flag = before.strip_prefix('-').filter(|_| !argument.starts_with('-'));
        let named = argument.split_once('=').or_else(|| argument.split_once(':'));
        let part = match (flag, named) {
            (Some(flag), _) if announces_secret(flag) => Some(argument),
            (_, Some((name, part))) if announces_secret(name) => Some(part.trim_start()),
            (_, Some(_) | None) => None,
        };
        parts.push(part.filter(|part| !part.is_empty()));
        before = argument;
    }
    parts
}

/// Whether a flag, a header or a variable of this name holds a secret. They are shorter than members of a message, and
/// fewer words of theirs mean something else.
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

    #[test]
    fn words_that_are_shaped_like_a_token_are_masked() {
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
    fn values_are_masked_where_their_name_announces_a_secret() {
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
    fn a_long_name_is_no_token_unless_it_begins_like_one() {
        assert_eq!(name("getUserProfileV2Details"), "getUserProfileV2Details");
        assert_eq!(name("ghp_0123456789abcdef"), stars(20));
    }

    #[test]
    fn a_url_is_shown_without_user_password_and_query_values() {
        for (written, shown) in [
            ("https://me:pw@h.example/mcp?key=1&x", "https://[redacted]@h.example/mcp?key=[redacted]&x"),
            ("https://h.example/a@b", "https://h.example/a@b"),
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
    fn arguments_lose_what_a_name_or_a_shape_announces() {
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
    fn an_argument_is_secret_if_its_flag_or_its_name_says_so() {
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
        ];
        let found: Vec<&str> = secret_arguments(&arguments).into_iter().flatten().collect();
        let secret = ["hunter22", "hunter22", "hunter22", "Bearer hunter22", "hunter22", "h2"];
        assert_eq!(found, secret);
        let harmless =
            ["--port", "8080", "--mode=fast", "https://h.example:80/token=1", "--keyboard", "us", "a: b", ""];
        assert_eq!(secret_arguments(&harmless), [None; 8]);
    }

    #[test]
    fn what_is_known_to_be_secret_is_starred_out_wherever_it_stands() {
        let mut known = KnownSecrets::default();
        known.learn("correct-horse");
        known.learn("correct-horse-battery");
        known.learn("first line\n\nsecond line\n");
        known.learn_words("Bearer abc.def");
        known.learn("short");
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
        let twice = serde_json::to_string(&serde_json::to_string("pä ss/w\"rd\\+%1").unwrap()).unwrap();
        assert!(!known.mask(&twice).contains("rd"), "{twice}");
        let surrogates: KnownSecrets = ["key-😀-key"].into_iter().collect();
        assert_eq!(surrogates.mask("\"key-\\ud83d\\ude00-key\""), format!("\"{}\"", stars(20)));
        for harmless in ["p%", "p%C3%A4", "100 % + 7 \\ x", "\\u", "\\ud83d", "%2", "%25"] {
            assert_eq!(known.mask(harmless), harmless);
        }
    }

    #[test]
    fn names_that_announce_a_secret_are_known_in_any_spelling() {
        for name in ["password", "API_KEY", "x-api-key", "accessToken", "client_secret", "Authorization"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["path", "key", "query", "author"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
