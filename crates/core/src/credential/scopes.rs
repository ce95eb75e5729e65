//! Bounds on scopes that a server asks for: a server that asks for ever more of them must not make a login grow.

/// A login asks for at most this many scopes.
pub const MOST: usize = 64;
/// All scopes of a login together are at most this many bytes, with a space between two.
pub const MOST_BYTES: usize = 4096;

/// The scopes of a list in their order, each once, up to the bounds. Leaves out what is no scope (RFC 6749, section
/// 3.3).
pub fn bounded<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut bytes = 0;
    for scope in scopes {
        let is_scope = !scope.is_empty()
            && scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
        let longer = bytes + scope.len() + usize::from(!kept.is_empty());
        if is_scope && kept.len() < MOST && longer <= MOST_BYTES && kept.iter().all(|known| known != scope) {
            kept.push(scope.to_owned());
            bytes = longer;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_kept_up_to_their_number_and_their_bytes() {
        let many: Vec<String> = (0..200).map(|number| format!("scope-{number}")).collect();
        let kept = bounded(many.iter().map(String::as_str));
        assert_eq!(kept, many[..MOST]);
        let long: Vec<String> = (0..9).map(|number| format!("{number:01000}")).collect();
        let kept = bounded(long.iter().map(String::as_str));
        assert_eq!(kept.len(), 4, "four of a thousand bytes and the spaces between them fit");
        let edge = "x".repeat(MOST_BYTES);
        assert_eq!(bounded([edge.as_str(), "one-more"]), [edge.as_str()]);
        assert_eq!(
            bounded([format!("{edge}x").as_str(), "small"]),
            ["small"],
            "one that is too long hides no other"
        );
    }

    #[test]
    fn a_scope_is_kept_once_and_what_is_no_scope_is_left_out() {
        assert_eq!(
            bounded(["read", "", "wri\"te", "a\\b", "\u{1b}[31m", "größe", "read", "a b", "w"]),
            ["read", "w"]
        );
    }
}
