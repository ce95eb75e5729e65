//! Tasks: work that a server continues after it has answered. The legacy era has them since 2025-11-25, the modern one
//! as an extension; in both, the server chooses the task id. This module reads and rewrites ids; the content of a task
//! is passed on unchanged.

use std::borrow::Cow;
use std::time::Duration;

use gripfast_core::json_text::{Json, JsonText};

use crate::Era;
use crate::patch::{Object, Patch};
use crate::{envelope, raw};

/// The extension of the modern era.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Status notification of a legacy server.
pub const STATUS: &str = "notifications/tasks/status";
/// Status notification of a modern server.
pub const MODERN_STATUS: &str = "notifications/tasks";
/// Key in `_meta` that relates any other message to a task.
const RELATED: &str = "io.modelcontextprotocol/related-task";
const ID: &str = "taskId";

/// A task that was just created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTask<'a> {
    /// Id that the server chose.
    pub id: Cow<'a, str>,
    /// Time that the server keeps the task, counted from its creation; `None` for no limit.
    pub lifetime: Option<Duration>,
}

impl<'a> CreatedTask<'a> {
    /// Reads the result of a request that may have created a task, from a server of this era.
    pub fn read(era: Era, result: &'a Json) -> Option<Self> {
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

/// Progress of a task at a legacy server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskProgress {
    /// In progress; poll again after this time, if the server states one.
    Working(Option<Duration>),
    /// Ended or waiting for input: `tasks/result` returns either.
    FetchResult,
}

impl TaskProgress {
    /// Reads the result of `tasks/get`, or the task in the result that created it. An unknown status means that
    /// `tasks/result` should be requested.
    pub fn read(task: &Object<'_>) -> Self {
        if task.text("status").is_some_and(|status| status == "working") {
            let millis = task.get("pollInterval").and_then(|every| raw::integer(every.get()));
            let every = millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
            return Self::Working(every);
        }
        Self::FetchResult
    }
}

/// Returns whether a tool of the legacy era can only be called as a task.
pub fn requires_task(tool: &Json) -> bool {
    // Most tools do not contain the word at all. A key may be written with escapes, hence the second search.
    let mentioned = |what: &[u8]| memchr::memmem::find(tool.get().as_bytes(), what).is_some();
    if !mentioned(b"taskSupport") && !mentioned(b"\\u") {
        return false;
    }
    let execution = Object::parse(tool).ok().and_then(|tool| tool.object("execution"));
    execution.and_then(|execution| execution.text("taskSupport")).is_some_and(|support| support == "required")
}

/// The client capabilities with support for tasks added.
pub fn with_task_capability(capabilities: &Json) -> JsonText {
    let has = Patch::new().set_owned(EXTENSION, raw::owned(b"{}".to_vec()));
    let Ok(object) = Object::parse(capabilities) else { return capabilities.to_owned() };
    let extensions = match object.object("extensions") {
        Some(extensions) => has.apply(&extensions),
        None => has.to_object(),
    };
    Patch::new().set_owned("extensions", extensions).apply(&object)
}

/// A modern status notification, made from a result of `tasks/get` without the members that only results have.
pub fn status_notification(task: &Object<'_>) -> Vec<u8> {
    let params = Patch::new().remove("resultType").remove("_meta").apply(task);
    envelope::notification(MODERN_STATUS, Some(&params))
}

/// The task id in the parameters of a request or a notification.
pub fn task_id(params: &Json) -> Option<Cow<'_, str>> {
    Object::parse(params).ok()?.text(ID)
}

/// A patch for a result, or for the parameters of a notification, that replaces the task id `own` with `public`.
pub fn rename_task(payload: &Object<'_>, own: &str, public: &str) -> Patch<'static> {
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

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }

    fn created(era: Era, result: &str) -> Option<(String, Option<u64>)> {
        let result = json(result);
        let created = CreatedTask::read(era, &result)?;
        Some((created.id.into_owned(), created.lifetime.map(|lifetime| lifetime.as_millis() as u64)))
    }

    #[test]
    fn a_created_task_is_recognised_in_the_form_of_each_era() {
        let legacy = r#"{"task":{"taskId":"a","status":"working","ttl":60000}}"#;
        assert_eq!(created(Era::Legacy, legacy), Some(("a".to_owned(), Some(60_000))));
        let modern = r#"{"resultType":"task","taskId":"b","ttlMs":null}"#;
        assert_eq!(created(Era::Modern, modern), Some(("b".to_owned(), None)));
        for (era, other) in [
            (Era::Modern, legacy),
            (Era::Legacy, modern),
            (Era::Modern, r#"{"resultType":"complete","taskId":"b"}"#),
            (Era::Legacy, r#"{"task":{"taskId":7}}"#),
            (Era::Legacy, r#"{"task":7}"#),
            (Era::Legacy, "[]"),
        ] {
            assert_eq!(created(era, other), None, "{other}");
        }
        let odd = r#"{"task":{"taskId":"a","ttl":-1}}"#;
        assert_eq!(created(Era::Legacy, odd), Some(("a".to_owned(), None)), "an invalid lifetime");
    }

    #[test]
    fn only_the_given_task_id_is_replaced_wherever_it_occurs() {
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
            assert_eq!(rename_task(&object, "a", "b").apply(&object).get(), after);
        }
    }

    #[test]
    fn support_for_tasks_is_added_to_the_other_capabilities() {
        for (before, after) in [
            ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
            (
                r#"{"roots":{ },"extensions":{"x":1.0}}"#,
                r#"{"roots":{ },"extensions":{"x":1.0,"io.modelcontextprotocol/tasks":{}}}"#,
            ),
            ("7", "7"),
        ] {
            assert_eq!(with_task_capability(&json(before)).get(), after);
        }
    }

    #[test]
    fn a_polled_task_becomes_a_modern_status_notification() {
        let polled =
            json(r#"{"taskId":"a","status":"completed","resultType":"complete","n":1.0,"_meta":{}}"#);
        let sent = String::from_utf8(status_notification(&Object::parse(&polled).unwrap())).unwrap();
        let params = r#"{"taskId":"a","status":"completed","n":1.0}"#;
        assert_eq!(sent, format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{params}}}"#));
    }

    #[test]
    fn tools_that_require_a_task_are_recognised() {
        assert!(requires_task(&json(r#"{"execution":{"taskSupport":"required"}}"#)));
        assert!(requires_task(&json(r#"{"execution":{"task\u0053upport":"required"}}"#)));
        for tool in [
            r#"{"execution":{"taskSupport":"optional"}}"#,
            r#"{"taskSupport":"required"}"#,
            r#"{"description":"taskSupport"}"#,
            "7",
        ] {
            assert!(!requires_task(&json(tool)), "{tool}");
        }
    }

    #[test]
    fn a_working_task_is_polled_again_and_the_result_of_any_other_is_fetched() {
        let read = |task: &str| TaskProgress::read(&Object::parse(&json(task)).unwrap());
        assert_eq!(
            read(r#"{"status":"working","pollInterval":50}"#),
            TaskProgress::Working(Some(Duration::from_millis(50)))
        );
        assert_eq!(read(r#"{"status":"working","pollInterval":"soon"}"#), TaskProgress::Working(None));
        for status in ["input_required", "completed", "failed", "cancelled", "cosmic"] {
            assert_eq!(read(&format!(r#"{{"status":"{status}"}}"#)), TaskProgress::FetchResult);
        }
    }
}
