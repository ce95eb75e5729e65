//! Cursors of merged lists: opaque to clients, and good for one list in one state of the menu. Another
//! process counts its states anew, so a cursor names its process too.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// One list in one state of the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edition {
    /// A number that no other process has.
    pub(crate) process: u64,
    pub(crate) revision: u64,
    pub(crate) list: &'static str,
}

/// Where a cursor leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// To this item.
    Item(usize),
    /// Into another edition.
    Elsewhere,
    /// Nowhere: it is not one of ours.
    Nowhere,
}

impl Edition {
    /// The cursor of the page that begins with this item.
    pub(crate) fn cursor(&self, from: usize) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}.{from}", self.name()))
    }

    /// Where a client's cursor leads.
    pub(crate) fn place(&self, cursor: &str) -> Place {
        let text = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((edition, from)) = text.as_deref().and_then(|text| text.rsplit_once('.')) else {
            return Place::Nowhere;
        };
        match from.parse() {
            Ok(from) if edition == self.name() => Place::Item(from),
            Ok(_) if edition.split('.').count() == 3 => Place::Elsewhere,
            Ok(_) | Err(_) => Place::Nowhere,
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
    fn a_cursor_leads_back_into_its_own_edition_and_nowhere_else() {
        let edition = Edition { process: 0xfeed, revision: 7, list: "tools" };
        let cursor = edition.cursor(1000);
        assert_eq!(edition.place(&cursor), Place::Item(1000));
        for other in [
            Edition { process: 0xbeef, ..edition },
            Edition { revision: 8, ..edition },
            Edition { list: "prompts", ..edition },
        ] {
            assert_eq!(other.place(&cursor), Place::Elsewhere);
        }
        for nonsense in ["", "!", "MTIz", "7.1000"] {
            assert_eq!(edition.place(nonsense), Place::Nowhere);
        }
    }
}
