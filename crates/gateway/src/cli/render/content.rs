//! Text output of a tool result: text as it is, other content described in one line.

use super::json::pretty;
use gripfast::Json;
use serde::Deserialize;
use std::borrow::Cow;

/// The printable content of a result.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// One entry per piece of content.
    pub(crate) lines: Vec<String>,
}

#[derive(Deserialize)]
struct CallResult<'r> {
    #[serde(borrow, default)]
    content: Vec<&'r Json>,
    #[serde(borrow, default, rename = "structuredContent")]
    structured: Option<&'r Json>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentItem<'r> {
    Text {
        #[serde(borrow)]
        text: Cow<'r, str>,
    },
    Image(Media<'r>),
    Audio(Media<'r>),
    ResourceLink(Linked<'r>),
    Resource {
        #[serde(borrow)]
        resource: Linked<'r>,
    },
}

#[derive(Deserialize)]
struct Media<'r> {
    #[serde(borrow)]
    data: Cow<'r, str>,
    #[serde(borrow, rename = "mimeType")]
    mime_type: Cow<'r, str>,
}

#[derive(Deserialize)]
struct Linked<'r> {
    #[serde(borrow)]
    uri: Cow<'r, str>,
    #[serde(borrow, default, rename = "mimeType")]
    mime_type: Option<Cow<'r, str>>,
}

impl Content {
    /// The content of a result. A result that does not follow MCP is shown whole, so that the user sees what the server
    /// sent.
    pub(crate) fn of(result: &Json) -> Self {
        // serde would read a list as the fields of the struct in order.
        let object = Some(result.get()).filter(|text| text.starts_with('{'));
        let parsed = object.and_then(|text| serde_json::from_str(text).ok());
        let Some(CallResult { content, structured }) = parsed else {
            return Self { lines: vec![pretty(result.get())] };
        };
        let pieces: Vec<(&Json, Option<ContentItem<'_>>)> =
            content.into_iter().map(|raw| (raw, serde_json::from_str(raw.get()).ok())).collect();
        let has_text = pieces.iter().any(|(_, piece)| matches!(piece, Some(ContentItem::Text { .. })));
        let mut lines: Vec<String> = pieces
            .into_iter()
            .map(|(raw, piece)| piece.map_or_else(|| pretty(raw.get()), ContentItem::shown))
            .collect();
        // Servers repeat structured content as text for older clients, so only one of them is shown.
        if let Some(structured) = structured.filter(|_| !has_text) {
            lines.push(pretty(structured.get()));
        }
        Self { lines }
    }
}

impl ContentItem<'_> {
    fn shown(self) -> String {
        match self {
            Self::Text { text } => text.into_owned(),
            Self::Image(media) => media.shown("image"),
            Self::Audio(media) => media.shown("audio"),
            Self::ResourceLink(linked) => linked.shown("resource link"),
            Self::Resource { resource } => resource.shown("resource"),
        }
    }
}

impl Media<'_> {
    fn shown(&self, what: &str) -> String {
        // Base64 has four letters for three bytes; each `=` stands for a missing byte at the end.
        let padding = self.data.bytes().rev().take_while(|byte| *byte == b'=').count();
        let bytes = (self.data.len() / 4 * 3).saturating_sub(padding);
        format!("[{what}: {}, {bytes} bytes]", self.mime_type)
    }
}

impl Linked<'_> {
    fn shown(&self, what: &str) -> String {
        match &self.mime_type {
            Some(mime_type) => format!("[{what}: {}, {mime_type}]", self.uri),
            None => format!("[{what}: {}]", self.uri),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::JsonText;

    fn shown(result: &str) -> String {
        let raw = JsonText::parse(result.to_owned()).unwrap();
        Content::of(&raw).lines.join("\n")
    }

    #[test]
    fn text_is_shown_instead_of_structured_content() {
        let result = r#"{"content":[{"type":"text","text":"a\nb"}],"structuredContent":{"a":1}}"#;
        assert_eq!(shown(result), "a\nb");
        assert_eq!(shown(r#"{"content":[],"structuredContent":{"a":1}}"#), "{\n  \"a\": 1\n}");
    }

    #[test]
    fn other_content_is_described() {
        let result = r#"{"content":[
            {"type":"image","data":"aGVsbG8=","mimeType":"image/png"},
            {"type":"audio","data":"aGVsbG8h","mimeType":"audio/wav"},
            {"type":"resource_link","uri":"demo://x","name":"x"},
            {"type":"resource","resource":{"uri":"demo://y","mimeType":"text/plain","text":"long"}}]}"#;
        insta::assert_snapshot!(shown(result), @r"
        [image: image/png, 5 bytes]
        [audio: audio/wav, 6 bytes]
        [resource link: demo://x]
        [resource: demo://y, text/plain]
        ");
    }

    #[test]
    fn unknown_content_is_shown_whole() {
        assert_eq!(shown(r#"{"content":[{"type":"hologram"}]}"#), "{\n  \"type\": \"hologram\"\n}");
        assert_eq!(shown(r#"{"content":7}"#), "{\n  \"content\": 7\n}");
        assert_eq!(shown("[]"), "[]");
        assert_eq!(shown("{}"), "");
    }
}
