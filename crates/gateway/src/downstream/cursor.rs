//! Cursors of merged lists: opaque to clients, valid for one revision of the menu.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Where the next page begins, in which revision of the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) revision: u64,
    pub(crate) from: usize,
}

impl Cursor {
    pub(crate) fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}.{}", self.revision, self.from))
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let (revision, from) = text.split_once('.')?;
        Some(Self { revision: revision.parse().ok()?, from: from.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_nonsense_does_not() {
        let cursor = Cursor { revision: 7, from: 1000 };
        assert_eq!(Cursor::from_text(&cursor.to_text()), Some(cursor));
        for nonsense in ["", "!", "MTIz", "7.1000"] {
            assert_eq!(Cursor::from_text(nonsense), None);
        }
    }
}
