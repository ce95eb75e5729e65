//! Elicitation by URL: pages that a person has to visit before a server continues. A legacy server gives each an id,
//! and may refuse a request until they are visited; a modern one requests them like any other input.

use std::borrow::Cow;

use gripfast_core::json_text::{Json, JsonText};

use crate::patch::{Object, Patch};
use crate::raw;

/// Notification of a legacy server that a person has completed a URL elicitation.
pub const COMPLETE: &str = "notifications/elicitation/complete";
const ID: &str = "elicitationId";

/// The elicitations that the `data` of [`crate::codes::URL_ELICITATION_REQUIRED`] lists.
pub fn elicitations(data: &Json) -> Vec<&Json> {
    let named = Object::parse(data).ok().and_then(|data| raw::items(data.get("elicitations")?));
    named.unwrap_or_default()
}

/// The elicitation id in the parameters of a legacy request, in an item of [`elicitations`], or in [`COMPLETE`].
pub fn elicitation_id(params: &Json) -> Option<Cow<'_, str>> {
    Object::parse(params).ok()?.text(ID)
}

/// Converts an elicitation of a legacy server to the parameters of a modern one.
pub fn to_modern(page: &Json) -> Option<JsonText> {
    let page = Object::parse(page).ok()?;
    page.text("url")?;
    let mut patch = Patch::new();
    if page.has(ID) {
        patch = patch.remove(ID);
    }
    if page.text("mode").as_deref() != Some("url") {
        patch = patch.set_text("mode", "url");
    }
    Some(patch.apply(&page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn elicitations_of_a_legacy_error_are_converted_without_their_ids() {
        let data = json(
            r#"{"elicitations":[{"mode":"url", "elicitationId":"a","url":"https://x/","k":1.0},{"url":"https://y/"},{"mode":"url"}]}"#,
        );
        let pages = elicitations(&data);
        assert_eq!(pages.len(), 3);
        assert_eq!(elicitation_id(pages[0]).as_deref(), Some("a"));
        let modern: Vec<_> = pages.iter().map(|page| to_modern(page)).collect();
        assert_eq!(modern[0].as_ref().unwrap().get(), r#"{"mode":"url","url":"https://x/","k":1.0}"#);
        assert_eq!(modern[1].as_ref().unwrap().get(), r#"{"url":"https://y/","mode":"url"}"#);
        assert!(modern[2].is_none(), "it has no URL");
        for odd in ["7", "{}", r#"{"elicitations":{}}"#] {
            assert!(elicitations(&json(odd)).is_empty());
        }
    }
}
