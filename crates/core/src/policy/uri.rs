//! The forms in which a server may read a URI. A rule about `file:///srv/*` must hold however a path out of
//! there is spelled, so a URI is judged in every form that a server could make of it.

use std::borrow::Cow;

/// Escapes within escapes that are undone; nobody writes more of them in good faith.
const ROUNDS: usize = 4;

/// The URI as it is written, and, if they differ, with its escapes undone, and with its dot segments
/// resolved as well, by the book and by those who take everything behind `://` for the path.
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
    let plain_path = resolved(&plain, Authority::OfItsOwn);
    let whole_path = resolved(&plain, Authority::PartOfPath);
    for form in [plain, plain_path, whole_path] {
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

/// Without `.` and `..` segments, whichever way the slashes lean, and with the scheme in lower case.
fn resolved(text: &str, authority: Authority) -> String {
    let text = text.replace('\\', "/");
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{}://", scheme.to_ascii_lowercase()), rest),
        None => (String::new(), text.as_str()),
    };
    let (before, path) = match authority {
        Authority::OfItsOwn => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        Authority::PartOfPath => ("", rest),
    };
    // A path from the root begins with an empty segment, and nothing is above that.
    let top = usize::from(path.starts_with('/'));
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." => segments.truncate(segments.len().saturating_sub(1).max(top)),
            segment => segments.push(segment),
        }
    }
    format!("{scheme}{before}{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plain_uri_has_one_form() {
        for plain in ["file:///srv/a", "demo://readme", "x", "", "https://h/a?b=c#d", "file:///srv/a..b"] {
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
        ] {
            let forms = forms(spelled);
            assert!(forms.iter().any(|form| form == "file:///etc/passwd"), "{spelled}: {forms:?}");
        }
        assert!(forms("demo://x/../../readme").iter().any(|form| form == "demo://readme"));
    }

    proptest! {
        #[test]
        fn any_text_has_at_most_four_forms_and_the_first_is_itself(text in ".{0,60}") {
            let forms = forms(&text);
            prop_assert!(forms.len() <= 4 && forms[0] == text);
        }
    }
}
