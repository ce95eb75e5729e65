//! MCP Apps: a tool may name a `ui://` resource that shows its result. This module reads that URI and rewrites it for
//! the client.

use std::borrow::Cow;

use gripfast_core::json_text::Json;

use crate::patch::{Object, Patch};

/// Name of the extension in the capabilities.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// MIME type of its resources.
pub const MIME_TYPE: &str = "text/html;profile=mcp-app";

/// Keys in a tool's `_meta` that name its resource: nested in `ui`, and the older flat form.
const NESTED_KEY: (&str, &str) = ("ui", "resourceUri");
const FLAT_KEY: &str = "ui/resourceUri";

/// The resource that a tool names.
pub fn resource_of(tool: &Json) -> Option<Cow<'_, str>> {
    // Few tools name one. A key may be written with escapes, hence the second search.
    let mentioned = |what: &[u8]| memchr::memmem::find(tool.get().as_bytes(), what).is_some();
    if !mentioned(b"resourceUri") && !mentioned(b"\\u") {
        return None;
    }
    let meta = Object::parse(tool).ok()?.object("_meta")?;
    let inside = meta.object(NESTED_KEY.0).and_then(|ui| ui.text(NESTED_KEY.1));
    inside.or_else(|| meta.text(FLAT_KEY))
}

/// A patch for a tool's `_meta` that replaces the URI `own` with `public`.
pub fn rename_resource(tool: &Json, own: &str, public: &str) -> Patch<'static> {
    let mut patch = Patch::new();
    let Some(meta) = Object::parse(tool).ok().and_then(|tool| tool.object("_meta")) else { return patch };
    if let Some(ui) = meta.object(NESTED_KEY.0).filter(|ui| ui.text(NESTED_KEY.1).as_deref() == Some(own)) {
        patch = patch.set_owned(NESTED_KEY.0, Patch::new().set_text(NESTED_KEY.1, public).apply(&ui));
    }
    if meta.text(FLAT_KEY).as_deref() == Some(own) {
        patch = patch.set_text(FLAT_KEY, public);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::patch_payload;
    use gripfast_core::json_text::JsonText;

    #[test]
    fn the_resource_is_read_and_renamed_in_both_forms() {
        for (meta, renamed_to) in [
            (r#"{"ui":{ "resourceUri":"ui://a" ,"x":[ ]}}"#, r#"{"ui":{ "resourceUri":"ui://b" ,"x":[ ]}}"#),
            (r#"{"ui/resourceUri" : "ui://a"}"#, r#"{"ui/resourceUri" : "ui://b"}"#),
            (
                r#"{"ui":{"resourceUri":"ui://a"},"ui/resourceUri":"ui://a"}"#,
                r#"{"ui":{"resourceUri":"ui://b"},"ui/resourceUri":"ui://b"}"#,
            ),
        ] {
            let tool = json(&format!(r#"{{"name":"t", "_meta":{meta}}}"#));
            assert_eq!(resource_of(&tool).as_deref(), Some("ui://a"));
            let changed =
                patch_payload(Some(&tool), &Patch::new(), &rename_resource(&tool, "ui://a", "ui://b"))
                    .unwrap();
            assert_eq!(changed.get(), format!(r#"{{"name":"t", "_meta":{renamed_to}}}"#));
        }
    }

    #[test]
    fn a_tool_without_the_resource_is_left_unchanged() {
        for tool in [
            r#"{"name":"t"}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"ui":7}}"#,
            r#"{"_meta":{"ui":{"resourceUri":1}}}"#,
        ] {
            assert_eq!(resource_of(&json(tool)), None);
            assert!(rename_resource(&json(tool), "ui://a", "ui://b").is_empty());
        }
        assert!(
            rename_resource(&json(r#"{"_meta":{"ui":{"resourceUri":"ui://c"}}}"#), "ui://a", "ui://b")
                .is_empty()
        );
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }
}
