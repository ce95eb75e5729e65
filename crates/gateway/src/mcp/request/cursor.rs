//! Cursors of merged lists: opaque to clients, valid for one list in one revision of the catalog. Revisions start again
//! in each process, so a cursor also names its process.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// One list in one revision of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListVersion {
    /// Random number of this process.
    pub(crate) process: u64,
    pub(crate) revision: u64,
    pub(crate) list: &'static str,
}

/// Item that a cursor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorTarget {
    /// This item.
    Item(usize),
    /// An item of another list, revision or process.
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
            Ok(_) if version.split('.').count() == 3 => CursorTarget::OtherVersion,
            Ok(_) | Err(_) => CursorTarget::Invalid,
        }
    }

    fn name(&self) -> String {
        format!("{:x}.{}.{}", self.process, self.revision, self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_valid_for_its_own_list_version_only() {
        let version = ListVersion { process: 0xfeed, revision: 7, list: "tools" };
        let cursor = version.cursor(1000);
        assert_eq!(version.resolve(&cursor), CursorTarget::Item(1000));
        for other in [
            ListVersion { process: 0xbeef, ..version },
            ListVersion { revision: 8, ..version },
            ListVersion { list: "prompts", ..version },
        ] {
            assert_eq!(other.resolve(&cursor), CursorTarget::OtherVersion);
        }
        for nonsense in ["", "!", "MTIz", "7.1000"] {
            assert_eq!(version.resolve(nonsense), CursorTarget::Invalid);
        }
    }
}
