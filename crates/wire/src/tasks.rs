//! Tasks: work that a server goes on with after it has answered. The legacy era has them since 2025-11-25, the modern
//! one as an extension; both name a task by an id that its server chose. What is in a task is between the server and
//! the client.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::Era;
use crate::patch::{Object, Patch};
use crate::{envelope, raw};

/// The extension of the modern era.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// What becomes of a task, as a legacy server tells it.
pub const STATUS: &str = "notifications/tasks/status";
/// The same of a modern one.
pub const MODERN_STATUS: &str = "notifications/tasks";
/// Where the `_meta` of anything else names the task that it is about.
const RELATED: &str = "io.modelcontextprotocol/related-task";
const ID: &str = "taskId";

/// A task that has just begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun<'a> {
    /// What its server calls it.
    pub id: Cow<'a, str>,
    /// How long its server remembers it, counted from the beginning; `None` if there is no end to that.
    pub lifetime: Option<Duration>,
}

impl<'a> Begun<'a> {
    /// Reads the result of the request that may have begun one, at a server of this era.
    pub fn read(era: Era, result: &'a RawValue) -> Option<Self> {
        let result = Object::parse(result).ok()?;
        let (task, lifetime) = match era {
            Era::Legacy => (result.object("task")?, "ttl"),
            Era::Modern if result.text("resultType").is_some_and(|kind| kind == "task") => (result, "ttlMs"),
            Era::Modern => return None,
        };
        let millis = task.get(lifetime).and_then(|ttl| raw::integer(ttl.get()));
        let lifetime = millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        Some(Self { id: task.text(ID)?, lifetime })
    }
}

/// How far a legacy server has come with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is at work; look again after this time, if it says when.
    Working(Option<Duration>),
    /// It has ended, or wants to ask something: `tasks/result` brings either.
    WantsToBeAsked,
}

impl Progress {
    /// Reads the result of `tasks/get`, or the task in the result that began it. A word that nobody knows is worth
    /// asking about.
    pub fn read(task: &Object<'_>) -> Self {
        if task.text("status").is_some_and(|status| status == "working") {
            let millis = task.get("pollInterval").and_then(|every| raw::integer(every.get()));
            let every = millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
            return Self::Working(every);
        }
        Self::WantsToBeAsked
    }
}

/// Whether a tool of the legacy era can only be called as a task.
pub fn are_required_by(tool: &RawValue) -> bool {
    // Few tools are, and most do not even say the word. A key may hide behind escapes, hence the second look.
    let mentioned = |what: &[u8]| memchr::memmem::find(tool.get().as_bytes(), what).is_some();
    if !mentioned(b"taskSupport") && !mentioned(b"\\u") {
        return false;
    }
    let execution = Object::parse(tool).ok().and_then(|tool| tool.object("execution"));
    execution.and_then(|execution| execution.text("taskSupport")).is_some_and(|support| support == "required")
}

/// The capabilities of a client that has tasks besides.
pub fn declared_in(capabilities: &RawValue) -> Box<RawValue> {
    let has = Patch::new().set_owned(EXTENSION, raw::owned(b"{}".to_vec()));
    let Ok(said) = Object::parse(capabilities) else { return capabilities.to_owned() };
    let extensions = match said.object("extensions") {
        Some(extensions) => has.apply(&extensions),
        None => has.to_object(),
    };
    Patch::new().set_owned("extensions", extensions).apply(&said)
}

/// What becomes of a task, told in the manner of a modern server: the result of `tasks/get` without what only results say.
pub fn status_of(task: &Object<'_>) -> Vec<u8> {
    let params = Patch::new().remove("resultType").remove("_meta").apply(task);
    envelope::notification(MODERN_STATUS, Some(&params))
}

/// The task that the parameters of a request or a notification name.
pub fn named_in(params: &RawValue) -> Option<Cow<'_, str>> {
    Object::parse(params).ok()?.text(ID)
}

/// The changes to a result, or to the parameters of a notification, that make it name `public` where it names `own`.
pub fn renamed(payload: &Object<'_>, own: &str, public: &str) -> Patch<'static> {
    let is_own = |object: &Object<'_>| object.text(ID).as_deref() == Some(own);
    let rename = || Patch::new().set_text(ID, public);
    let mut patch = if is_own(payload) { rename() } else { Patch::new() };
    if let Some(task) = payload.object("task").filter(is_own) {
        patch = patch.set_owned("task", rename().apply(&task));
    }
    if let Some(meta) = payload.object("_meta")
        && let Some(related) = meta.object(RELATED).filter(is_own)
    {
        let meta = Patch::new().set_owned(RELATED, rename().apply(&related)).apply(&meta);
        patch = patch.set_owned("_meta", meta);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn begun(era: Era, result: &str) -> Option<(String, Option<u64>)> {
        let result = json(result);
        let begun = Begun::read(era, &result)?;
        Some((begun.id.into_owned(), begun.lifetime.map(|lifetime| lifetime.as_millis() as u64)))
    }

    #[test]
    fn each_era_says_in_its_own_way_that_a_task_has_begun() {
        let legacy = r#"{"task":{"taskId":"a","status":"working","ttl":60000}}"#;
        assert_eq!(begun(Era::Legacy, legacy), Some(("a".to_owned(), Some(60_000))));
        let modern = r#"{"resultType":"task","taskId":"b","ttlMs":null}"#;
        assert_eq!(begun(Era::Modern, modern), Some(("b".to_owned(), None)));
        for (era, other) in [
            (Era::Modern, legacy),
            (Era::Legacy, modern),
            (Era::Modern, r#"{"resultType":"complete","taskId":"b"}"#),
            (Era::Legacy, r#"{"task":{"taskId":7}}"#),
            (Era::Legacy, r#"{"task":7}"#),
            (Era::Legacy, "[]"),
        ] {
            assert_eq!(begun(era, other), None, "{other}");
        }
        let odd = r#"{"task":{"taskId":"a","ttl":-1}}"#;
        assert_eq!(begun(Era::Legacy, odd), Some(("a".to_owned(), None)), "a lifetime that is none");
    }

    #[test]
    fn a_task_is_renamed_wherever_it_is_named_and_no_other_is() {
        for (before, after) in [
            (r#"{ "taskId":"a","n":1.0}"#, r#"{ "taskId":"b","n":1.0}"#),
            (r#"{"task":{"taskId":"a", "x":[ ]}}"#, r#"{"task":{"taskId":"b", "x":[ ]}}"#),
            (
                r#"{"content":[],"_meta":{"k":1,"io.modelcontextprotocol/related-task":{"taskId":"a"}}}"#,
                r#"{"content":[],"_meta":{"k":1,"io.modelcontextprotocol/related-task":{"taskId":"b"}}}"#,
            ),
            (
                r#"{"taskId":"c","task":{"taskId":1},"_meta":7}"#,
                r#"{"taskId":"c","task":{"taskId":1},"_meta":7}"#,
            ),
        ] {
            let before = json(before);
            let object = Object::parse(&before).unwrap();
            assert_eq!(renamed(&object, "a", "b").apply(&object).get(), after);
        }
    }

    #[test]
    fn a_client_that_has_tasks_declares_them_beside_the_rest() {
        for (before, after) in [
            ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
            (
                r#"{"roots":{ },"extensions":{"x":1.0}}"#,
                r#"{"roots":{ },"extensions":{"x":1.0,"io.modelcontextprotocol/tasks":{}}}"#,
            ),
            ("7", "7"),
        ] {
            assert_eq!(declared_in(&json(before)).get(), after);
        }
    }

    #[test]
    fn a_task_that_was_looked_at_is_told_of_as_its_server_would() {
        let looked =
            json(r#"{"taskId":"a","status":"completed","resultType":"complete","n":1.0,"_meta":{}}"#);
        let told = String::from_utf8(status_of(&Object::parse(&looked).unwrap())).unwrap();
        let params = r#"{"taskId":"a","status":"completed","n":1.0}"#;
        assert_eq!(told, format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{params}}}"#));
    }

    #[test]
    fn a_tool_says_whether_it_can_only_be_called_as_a_task() {
        assert!(are_required_by(&json(r#"{"execution":{"taskSupport":"required"}}"#)));
        assert!(are_required_by(&json(r#"{"execution":{"task\u0053upport":"required"}}"#)));
        for tool in [
            r#"{"execution":{"taskSupport":"optional"}}"#,
            r#"{"taskSupport":"required"}"#,
            r#"{"description":"taskSupport"}"#,
            "7",
        ] {
            assert!(!are_required_by(&json(tool)), "{tool}");
        }
    }

    #[test]
    fn a_task_that_is_at_work_is_looked_at_again_and_any_other_is_asked_for() {
        let read = |task: &str| Progress::read(&Object::parse(&json(task)).unwrap());
        assert_eq!(
            read(r#"{"status":"working","pollInterval":50}"#),
            Progress::Working(Some(Duration::from_millis(50)))
        );
        assert_eq!(read(r#"{"status":"working","pollInterval":"soon"}"#), Progress::Working(None));
        for status in ["input_required", "completed", "failed", "cancelled", "cosmic"] {
            assert_eq!(read(&format!(r#"{{"status":"{status}"}}"#)), Progress::WantsToBeAsked);
        }
    }
}
