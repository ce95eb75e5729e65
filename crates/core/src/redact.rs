//! What looks like a secret: words shaped like a token, and names that announce one; and what is known to be one. Used
//! wherever a text that somebody else wrote is shown, stored or told on.

use std::borrow::Cow;
use std::fmt;

/// How the tokens of well-known services begin.
const TOKEN_PREFIXES: &[&str] =
    &["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-", "xoxb-", "xoxp-", "AKIA", "eyJ"];

/// No word shorter than this is taken for a token.
const SHORTEST: usize = 12;

/// Replaces each word that is shaped like a token by stars, keeping the width so that carets stay in place.
pub fn mask_tokens(text: &str) -> String {
    masked(text).into_owned()
}

/// [`mask_tokens`] for whoever only looks at the text.
pub fn masked(text: &str) -> Cow<'_, str> {
    // Most texts have no word of the length, and every failure's text is looked at.
    let mut words = text.as_bytes().split(|byte| !is_word(char::from(*byte)));
    if words.all(|word| word.len() < SHORTEST) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if is_token(word) {
            shown.extend(word.chars().map(|_| '*'))
        } else {
            shown.push_str(word)
        }
        let next = after.find(is_word).unwrap_or(after.len());
        shown.push_str(&after[..next]);
        rest = &after[next..];
    }
    Cow::Owned(shown)
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

/// A well-known beginning, a long mix of cases and digits, or long hexadecimal.
fn is_token(word: &str) -> bool {
    let has = |test: fn(&u8) -> bool| word.bytes().any(|byte| test(&byte));
    let known = word.len() >= SHORTEST && TOKEN_PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    let mixed = word.len() >= 20
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit);
    let hex = word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    known || mixed || hex
}

/// Texts that are known to be secret, whatever they look like: what was filled in for a server, which may repeat it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownSecrets {
    /// The longest first, or one that contains another would be hidden only in part.
    texts: Vec<String>,
}

impl KnownSecrets {
    /// Shorter ones are `1`, `true` and `debug`, and starring those out would make texts unreadable.
    pub const SHORTEST: usize = 6;
    /// How a server is told what kind of secret follows.
    const SCHEMES: &[&str] = &["Bearer", "bearer", "Basic", "Digest"];

    /// Takes each line of a text for a secret: what is shown is shown by lines.
    pub fn learn(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| line.chars().count() >= Self::SHORTEST) {
            if !Self::SCHEMES.contains(&line) && !self.texts.iter().any(|known| known == line) {
                self.texts.push(line.to_owned());
            }
        }
        self.texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    }

    /// Takes a text and each word of it for a secret: whoever repeats `Bearer WORD` may repeat the word alone.
    pub fn learn_words(&mut self, text: &str) {
        self.learn(text);
        text.split_whitespace().for_each(|word| self.learn(word));
    }

    /// The texts, for whoever puts several of these together.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// The text with stars in the place of each secret, and of the beginning of one where the text was cut within it.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in &self.texts {
            if shown.contains(secret.as_str()) {
                shown = Cow::Owned(shown.replace(secret.as_str(), &stars(secret)));
            }
            if let Some(begun) = Self::cut_within(&shown, secret) {
                let kept = shown.len() - begun.len();
                shown = Cow::Owned(format!("{}{}", &shown[..kept], stars(begun)));
            }
        }
        shown
    }

    /// The beginning of `secret` that `text` ends with, if there is enough of it.
    fn cut_within<'a>(text: &str, secret: &'a str) -> Option<&'a str> {
        let ends = secret.char_indices().map(|(end, _)| end).skip(Self::SHORTEST);
        ends.map(|end| &secret[..end]).filter(|begun| text.ends_with(begun)).last()
    }
}

impl<'a> FromIterator<&'a str> for KnownSecrets {
    fn from_iter<T: IntoIterator<Item = &'a str>>(texts: T) -> Self {
        let mut known = Self::default();
        texts.into_iter().for_each(|text| known.learn(text));
        known
    }
}

/// It may be printed together with whatever has it.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets([redacted]; {})", self.texts.len())
    }
}

fn stars(text: &str) -> String {
    text.chars().map(|_| '*').collect()
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

    #[test]
    fn token_shaped_words_are_starred_and_names_are_not() {
        assert_eq!(mask_tokens("--key=ghp_0123456789ab -y"), "--key=**************** -y");
        assert_eq!(mask_tokens("Zx9Zx9Zx9Zx9Zx9Zx9Zx9"), "*".repeat(21));
        for harmless in ["@modelcontextprotocol/server-filesystem@2025.11.25", "${env:GITHUB_TOKEN}", "é", ""]
        {
            assert_eq!(mask_tokens(harmless), harmless);
        }
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
    fn names_that_announce_a_secret_are_known_in_any_spelling() {
        for name in ["password", "API_KEY", "x-api-key", "accessToken", "client_secret", "Authorization"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["path", "key", "query", "author"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
