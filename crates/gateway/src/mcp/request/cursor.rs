//! Cursors of merged lists: opaque to clients, valid for one list with the same items. A cursor names the digest of the
//! list, so it is also valid in another process that has the same list, and after a restart.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// One list with certain items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListVersion {
    /// Digest of the rendered items.
    pub(crate) digest: u64,
    pub(crate) list: &'static str,
}

/// Item that a cursor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorTarget {
    /// This item.
    Item(usize),
    /// An item of another list, or of the list with other items.
    OtherVersion,
    /// Not a cursor of the gateway.
    Invalid,
}

impl ListVersion {
    /// Cursor of the page that starts with this item.
    pub(crate) fn cursor(&self, from: usize) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}.{from}", self.name()))
    }

    /// Resolves a cursor that a client has sent.
    pub(crate) fn resolve(&self, cursor: &str) -> CursorTarget {
        let text = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((version, from)) = text.as_deref().and_then(|text| text.rsplit_once('.')) else {
            return CursorTarget::Invalid;
        };
        match from.parse() {
            Ok(from) if version == self.name() => CursorTarget::Item(from),
            // Cursors from before 0.2 have three parts.
            Ok(_) if matches!(version.split('.').count(), 2 | 3) => CursorTarget::OtherVersion,
            Ok(_) | Err(_) => CursorTarget::Invalid,
        }
    }

    fn name(&self) -> String {
        format!("{:016x}.{}", self.digest, self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_valid_for_the_same_items_of_its_own_list_only() {
        let version = ListVersion { digest: 0xfeed, list: "tools" };
        let cursor = version.cursor(1000);
        assert_eq!(version.resolve(&cursor), CursorTarget::Item(1000));
        for other in [ListVersion { digest: 0xbeef, ..version }, ListVersion { list: "prompts", ..version }] {
            assert_eq!(other.resolve(&cursor), CursorTarget::OtherVersion);
        }
        let earlier = URL_SAFE_NO_PAD.encode("feed.7.tools.1000");
        assert_eq!(version.resolve(&earlier), CursorTarget::OtherVersion);
        for nonsense in ["", "!", "MTIz", "7.1000"] {
            assert_eq!(version.resolve(nonsense), CursorTarget::Invalid);
        }
    }
}
