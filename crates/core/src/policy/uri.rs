//! The forms in which a server may read a URI. A rule about `file:///srv/*` must hold however a path out of
//! there is spelled, so a URI is judged in every form that a server could make of it.

use std::borrow::Cow;

/// Escapes within escapes that are undone; nobody writes more of them in good faith.
const ROUNDS: usize = 4;

/// The URI as it is written, and, if they differ, with its escapes undone, and with its dot segments resolved as well:
/// by the book, by those who take everything behind `://` for the path, and by those to whom many slashes are one.
pub(super) fn forms(uri: &str) -> Vec<Cow<'_, str>> {
    let mut forms = vec![Cow::Borrowed(uri)];
    let mut plain = uri.to_owned();
    for _ in 0..ROUNDS {
        let undone = unescaped(&plain);
        if undone == plain {
            break;
        }
        plain = undone;
    }
    let readings = [
        (Authority::OfItsOwn, Slashes::AsTheyAre),
        (Authority::OfItsOwn, Slashes::OneForMany),
        (Authority::PartOfPath, Slashes::AsTheyAre),
        (Authority::PartOfPath, Slashes::OneForMany),
    ];
    let resolved = readings.map(|(authority, slashes)| resolved(&plain, authority, slashes));
    for form in std::iter::once(plain).chain(resolved) {
        if !forms.iter().any(|known| *known == form) {
            forms.push(Cow::Owned(form));
        }
    }
    forms
}

/// With `%2e` and the like as the characters that they stand for, once.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |offset: usize| char::from(*bytes.get(at + offset)?).to_digit(16);
        match (bytes[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
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
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{}:", scheme.to_ascii_lowercase()), rest),
        Some(_) | None => (String::new(), text.as_str()),
    };
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

    #[test]
    fn a_plain_uri_has_one_form() {
        for plain in [
            "file:///srv/a",
            "demo://readme",
            "x",
            "",
            "https://h/a?b=c#d",
            "file:///srv/a..b",
            "file:///srv/a/",
            "file:///",
            "demo:x",
            "demo:",
        ] {
            assert_eq!(forms(plain), [plain], "{plain}");
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
            "file:/srv/../etc/passwd",
            "file://LOCALHOST/etc/passwd",
            "file://localhost/srv/%2e%2e/etc/passwd",
        ] {
            let forms = forms(spelled);
            assert!(forms.iter().any(|form| form == "file:///etc/passwd"), "{spelled}: {forms:?}");
        }
        assert!(forms("demo://x/../../readme").iter().any(|form| form == "demo://readme"));
        assert!(forms("NOTES:Mine").iter().any(|form| form == "notes:Mine"));
    }

    proptest! {
        #[test]
        fn any_text_has_at_most_six_forms_and_the_first_is_itself(text in ".{0,60}") {
            let forms = forms(&text);
            prop_assert!(forms.len() <= 6 && forms[0] == text);
        }
    }
}
