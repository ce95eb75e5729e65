//! Pages that a person has to visit before a server goes on, which is elicitation by URL. A legacy server gives each an
//! id, and may refuse a request because of some; a modern one asks for them like for any other input.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::patch::{Object, Patch};
use crate::raw;

/// Says that a person is done with a page, in the legacy era.
pub const COMPLETE: &str = "notifications/elicitation/complete";
const ID: &str = "elicitationId";

/// The pages that the `data` of [`crate::codes::URL_ELICITATION_REQUIRED`] names.
pub fn required(data: &RawValue) -> Vec<&RawValue> {
    let named = Object::parse(data).ok().and_then(|data| raw::items(data.get("elicitations")?));
    named.unwrap_or_default()
}

/// The id of a page, in the parameters of a question, in what is [`required`], or in [`COMPLETE`].
pub fn id_in(params: &RawValue) -> Option<Cow<'_, str>> {
    Object::parse(params).ok()?.text(ID)
}

/// A page as the parameters of a modern question.
pub fn in_modern_words(page: &RawValue) -> Option<Box<RawValue>> {
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

    fn json(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_refusal_names_the_pages_and_each_is_put_without_its_id() {
        let data = json(
            r#"{"elicitations":[{"mode":"url", "elicitationId":"a","url":"https://x/","k":1.0},{"url":"https://y/"},{"mode":"url"}]}"#,
        );
        let pages = required(&data);
        assert_eq!(pages.len(), 3);
        assert_eq!(id_in(pages[0]).as_deref(), Some("a"));
        let modern: Vec<_> = pages.iter().map(|page| in_modern_words(page)).collect();
        assert_eq!(modern[0].as_ref().unwrap().get(), r#"{"mode":"url","url":"https://x/","k":1.0}"#);
        assert_eq!(modern[1].as_ref().unwrap().get(), r#"{"url":"https://y/","mode":"url"}"#);
        assert!(modern[2].is_none(), "nobody could visit it");
        for odd in ["7", "{}", r#"{"elicitations":{}}"#] {
            assert!(required(&json(odd)).is_empty());
        }
    }
}
