//! Bounds for the scopes of a login, so that a server cannot make it grow without limit.

/// Maximum number of scopes of a login.
pub const MAX_SCOPES: usize = 64;
/// Maximum number of bytes of all scopes, with a space between two.
pub const MAX_BYTES: usize = 4096;

/// The scopes of a list in order, without duplicates, up to the bounds. Strings that are not valid scopes (RFC 6749,
/// section 3.3) are left out.
pub fn bounded<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut bytes = 0;
    for scope in scopes {
        let is_scope = !scope.is_empty()
            && scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
        let longer = bytes + scope.len() + usize::from(!kept.is_empty());
        if is_scope
            && kept.len() < MAX_SCOPES
            && longer <= MAX_BYTES
            && kept.iter().all(|known| known != scope)
        {
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
    fn scopes_are_bounded_by_number_and_bytes() {
        let many: Vec<String> = (0..200).map(|number| format!("scope-{number}")).collect();
        let kept = bounded(many.iter().map(String::as_str));
        assert_eq!(kept, many[..MAX_SCOPES]);
        let long: Vec<String> = (0..9).map(|number| format!("{number:01000}")).collect();
        let kept = bounded(long.iter().map(String::as_str));
        assert_eq!(kept.len(), 4, "four of a thousand bytes and the spaces between them fit");
        let edge = "x".repeat(MAX_BYTES);
        assert_eq!(bounded([edge.as_str(), "one-more"]), [edge.as_str()]);
        assert_eq!(
            bounded([format!("{edge}x").as_str(), "small"]),
            ["small"],
            "one that is too long hides no other"
        );
    }

    #[test]
    fn duplicate_and_invalid_scopes_are_left_out() {
        assert_eq!(
            bounded(["read", "", "wri\"te", "a\\b", "\u{1b}[31m", "größe", "read", "a b", "w"]),
            ["read", "w"]
        );
    }
}
