//! MCP Apps: a tool may name a `ui://` resource that shows its result. Where the name of that resource changes on
//! the way, the tool has to name it anew. What is in it, and who shows it, is decided elsewhere.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::patch::{Object, Patch};

/// The extension, in the capabilities of those who have it.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// What its resources are made of.
pub const MIME_TYPE: &str = "text/html;profile=mcp-app";

/// Where `_meta` of a tool names its resource: inside `ui`, and in the older form beside it.
const INSIDE: (&str, &str) = ("ui", "resourceUri");
const BESIDE: &str = "ui/resourceUri";

/// The resource that a tool names.
pub fn resource_of(tool: &RawValue) -> Option<Cow<'_, str>> {
    // Few tools do. A key may hide behind escapes, hence the second look.
    let mentioned = |what: &[u8]| memchr::memmem::find(tool.get().as_bytes(), what).is_some();
    if !mentioned(b"resourceUri") && !mentioned(b"\\u") {
        return None;
    }
    let meta = Object::parse(tool).ok()?.object("_meta")?;
    let inside = meta.object(INSIDE.0).and_then(|ui| ui.text(INSIDE.1));
    inside.or_else(|| meta.text(BESIDE))
}

/// The changes to `_meta` of a tool that make it name `public` where it names `own`.
pub fn renamed(tool: &RawValue, own: &str, public: &str) -> Patch<'static> {
    let mut patch = Patch::new();
    let Some(meta) = Object::parse(tool).ok().and_then(|tool| tool.object("_meta")) else { return patch };
    if let Some(ui) = meta.object(INSIDE.0).filter(|ui| ui.text(INSIDE.1).as_deref() == Some(own)) {
        patch = patch.set_owned(INSIDE.0, Patch::new().set_text(INSIDE.1, public).apply(&ui));
    }
    if meta.text(BESIDE).as_deref() == Some(own) {
        patch = patch.set_text(BESIDE, public);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::patch_payload;

    #[test]
    fn a_tool_names_its_resource_in_either_form_and_is_renamed_in_all_of_them() {
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
                patch_payload(Some(&tool), &Patch::new(), &renamed(&tool, "ui://a", "ui://b")).unwrap();
            assert_eq!(changed.get(), format!(r#"{{"name":"t", "_meta":{renamed_to}}}"#));
        }
    }

    #[test]
    fn what_names_no_resource_or_another_one_is_left_alone() {
        for tool in [
            r#"{"name":"t"}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"ui":7}}"#,
            r#"{"_meta":{"ui":{"resourceUri":1}}}"#,
        ] {
            assert_eq!(resource_of(&json(tool)), None);
            assert!(renamed(&json(tool), "ui://a", "ui://b").is_empty());
        }
        assert!(
            renamed(&json(r#"{"_meta":{"ui":{"resourceUri":"ui://c"}}}"#), "ui://a", "ui://b").is_empty()
        );
    }

    fn json(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }
}
