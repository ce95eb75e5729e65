//! The few fields of results and notifications that a host decides on, borrowed and in order. Everything else stays
//! raw, and a field of the wrong type reads as absent, so that one odd field does not cost a user the whole result.

use std::borrow::Cow;
use std::time::Duration;

use gripfast_core::json_text::Json;

use crate::patch::{NotAnObject, Object, Patch};
use crate::{Id, envelope, raw};

/// The four lists a server can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum List {
    /// `tools/list`
    Tools,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
    /// `prompts/list`
    Prompts,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Resources, Self::ResourceTemplates, Self::Prompts];

    /// The method that requests the list.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The member of the result that holds the list.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// The member that identifies an item.
    pub const fn item_key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    /// The notification that the list has changed.
    pub const fn changed_notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Resources | Self::ResourceTemplates => "notifications/resources/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The items as received, in their order.
    pub items: Vec<&'a Json>,
    /// Cursor of the next page; `None` on the last one.
    pub next_cursor: Option<Cow<'a, str>>,
    /// Cache hints of the page.
    pub freshness: Freshness,
}

impl<'a> Page<'a> {
    /// Reads a list result. A missing list reads as an empty one, because some servers leave out empty lists.
    pub fn read(result: &'a Json, list: List) -> Result<Self, NotAnObject> {
        let object = Object::parse(result)?;
        Ok(Self {
            items: object.get(list.member()).and_then(raw::items).unwrap_or_default(),
            next_cursor: object.text("nextCursor"),
            freshness: Freshness::read(&object),
        })
    }
}

/// Cache hints of a modern result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Zero if the server does not state it.
    pub ttl: Duration,
    /// Private if the server does not state it, or states something unknown.
    pub scope: CacheScope,
}

/// Clients that may share a cached result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// All clients.
    Public,
    /// Clients with the same authorization only.
    Private,
}

impl Freshness {
    /// Reads `ttlMs` and `cacheScope` of a result.
    pub fn read(result: &Object<'_>) -> Self {
        let millis = result.get("ttlMs").and_then(|ttl| raw::integer(ttl.get()));
        let public = result.text("cacheScope").is_some_and(|scope| scope == "public");
        Self {
            ttl: Duration::from_millis(millis.and_then(|millis| u64::try_from(millis).ok()).unwrap_or(0)),
            scope: if public { CacheScope::Public } else { CacheScope::Private },
        }
    }
}

/// One tool of a list.
#[derive(Clone, Debug)]
pub struct Tool<'a> {
    /// Name; empty if the tool has none.
    pub name: Cow<'a, str>,
    /// Annotations: claims of the server, not proofs.
    pub hints: ToolHints,
    /// Schema of the arguments.
    pub input_schema: Option<&'a Json>,
}

/// `annotations` of a tool; `None` for hints that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// The tool changes nothing.
    pub read_only: Option<bool>,
    /// The tool may destroy something.
    pub destructive: Option<bool>,
    /// A second call has no further effect.
    pub idempotent: Option<bool>,
    /// The tool reaches beyond its server.
    pub open_world: Option<bool>,
}

impl<'a> Tool<'a> {
    /// Reads one item of `tools`.
    pub fn read(item: &'a Json) -> Result<Self, NotAnObject> {
        let object = Object::parse(item)?;
        let annotations = object.object("annotations");
        let hint = |name| annotations.as_ref().and_then(|hints| hints.get(name)).and_then(raw::boolean);
        Ok(Self {
            name: object.text("name").unwrap_or_default(),
            hints: ToolHints {
                read_only: hint("readOnlyHint"),
                destructive: hint("destructiveHint"),
                idempotent: hint("idempotentHint"),
                open_world: hint("openWorldHint"),
            },
            input_schema: object.get("inputSchema"),
        })
    }
}

/// Kind of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultType<'a> {
    /// Final. Also the meaning of a legacy result, which has no type.
    Complete,
    /// The server needs answers to `inputRequests` first.
    InputRequired,
    /// A type that an extension defines, such as `task`.
    Other(Cow<'a, str>),
}

impl<'a> ResultType<'a> {
    /// Reads `resultType` of a result.
    pub fn read(result: &Object<'a>) -> Self {
        match result.text("resultType") {
            None => Self::Complete,
            Some(kind) => match &*kind {
                "complete" => Self::Complete,
                "input_required" => Self::InputRequired,
                _ => Self::Other(kind),
            },
        }
    }
}

/// The result of `tools/call`.
#[derive(Clone, Debug)]
pub struct CallResult<'a> {
    /// True if the tool reports that it failed.
    pub is_error: bool,
    /// Kind of the result: final, or waiting for input.
    pub result_type: ResultType<'a>,
}

impl<'a> CallResult<'a> {
    /// Reads a result of `tools/call`.
    pub fn read(result: &'a Json) -> Result<Self, NotAnObject> {
        let object = Object::parse(result)?;
        Ok(Self { is_error: object.flag("isError"), result_type: ResultType::read(&object) })
    }
}

/// `notifications/progress`.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The token the request carried; a string or a number, as ids are.
    pub token: Id<'a>,
    /// Progress value. Kept raw, because it is only passed on.
    pub progress: Option<&'a Json>,
}

impl<'a> Progress<'a> {
    /// The method.
    pub const METHOD: &'static str = "notifications/progress";

    /// Reads the parameters; `None` without a valid token, because the progress then belongs to no request.
    pub fn read(params: &'a Json) -> Option<Self> {
        let object = Object::parse(params).ok()?;
        Some(Self {
            token: Id::from_raw(object.get("progressToken")?).ok()?,
            progress: object.get("progress"),
        })
    }
}

/// `notifications/cancelled`.
#[derive(Clone, Debug)]
pub struct Cancelled<'a> {
    /// The cancelled request.
    pub request_id: Id<'a>,
    /// Reason, for logs.
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> Cancelled<'a> {
    /// The method.
    pub const METHOD: &'static str = "notifications/cancelled";

    /// Reads the parameters; `None` without a valid request id.
    pub fn read(params: &'a Json) -> Option<Self> {
        let object = Object::parse(params).ok()?;
        Some(Self { request_id: Id::from_raw(object.get("requestId")?).ok()?, reason: object.text("reason") })
    }
}

/// The notification that cancels a request.
pub fn cancelled(request_id: Id<'_>, reason: Option<&str>) -> Vec<u8> {
    let mut params = Patch::new().set_owned("requestId", raw::owned(request_id.as_raw().into()));
    if let Some(reason) = reason {
        params = params.set_text("reason", reason);
    }
    envelope::notification(Cancelled::METHOD, Some(&params.to_object()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, RequestId};
    use gripfast_core::json_text::JsonText;

    #[test]
    fn a_page_keeps_items_unchanged_and_in_order() {
        let result = json(
            r#"{"tools":[{"name":"b" },{ "name":"a"}],"nextCursor":"c\n2","ttlMs":300000.0,"cacheScope":"public"}"#,
        );
        let page = Page::read(&result, List::Tools).unwrap();
        let items: Vec<&str> = page.items.iter().map(|item| item.get()).collect();
        assert_eq!(items, [r#"{"name":"b" }"#, r#"{ "name":"a"}"#]);
        assert_eq!(page.next_cursor.as_deref(), Some("c\n2"));
        assert_eq!(page.freshness, Freshness { ttl: Duration::from_secs(300), scope: CacheScope::Public });
    }

    #[test]
    fn a_page_without_the_list_is_empty_and_a_non_object_is_refused() {
        let empty = json("{}");
        let page = Page::read(&empty, List::Prompts).unwrap();
        assert!(page.items.is_empty() && page.next_cursor.is_none());
        assert!(Page::read(&json("[]"), List::Prompts).is_err());
    }

    #[test]
    fn invalid_cache_hints_mean_private_and_no_caching() {
        for odd in [r#"{"ttlMs":-1,"cacheScope":"shared"}"#, r#"{"ttlMs":"60"}"#, "{}", r#"{"ttlMs":1.5}"#] {
            let odd = json(odd);
            let read = Freshness::read(&Object::parse(&odd).unwrap());
            assert_eq!(read, Freshness { ttl: Duration::ZERO, scope: CacheScope::Private });
        }
    }

    #[test]
    fn absent_or_invalid_tool_hints_are_none() {
        let item = json(
            r#"{"name":"t","annotations":{"readOnlyHint":true,"destructiveHint":"no","openWorldHint":false}}"#,
        );
        let hints = Tool::read(&item).unwrap().hints;
        assert_eq!(
            hints,
            ToolHints { read_only: Some(true), destructive: None, idempotent: None, open_world: Some(false) }
        );
    }

    #[test]
    fn a_call_result_without_a_type_is_complete() {
        let read = |text: &str| {
            let result = json(text);
            let read = CallResult::read(&result).unwrap();
            (read.is_error, format!("{:?}", read.result_type))
        };
        assert_eq!(read(r#"{"content":[]}"#), (false, "Complete".to_owned()));
        assert_eq!(read(r#"{"isError":true,"resultType":"complete"}"#), (true, "Complete".to_owned()));
        assert_eq!(read(r#"{"resultType":"input_required"}"#), (false, "InputRequired".to_owned()));
        assert_eq!(read(r#"{"resultType":"task"}"#), (false, "Other(\"task\")".to_owned()));
    }

    #[test]
    fn a_cancellation_reads_back_with_the_same_id() {
        let id = RequestId::from("a\"b");
        let bytes = cancelled(id.as_id(), Some("bored"));
        let message = Message::parse(&bytes).unwrap();
        let read = Cancelled::read(message.params().unwrap()).unwrap();
        assert_eq!(message.method(), Some(Cancelled::METHOD));
        assert_eq!((read.request_id, read.reason.as_deref()), (id.as_id(), Some("bored")));
    }

    #[test]
    fn a_progress_token_is_read_in_any_spelling() {
        let params = json(r#"{"progressToken":7.0,"progress":50.00}"#);
        let read = Progress::read(&params).unwrap();
        assert_eq!(read.token.as_u64(), Some(7));
        assert_eq!(read.progress.unwrap().get(), "50.00");
        assert!(Progress::read(&json(r#"{"progressToken":{}}"#)).is_none());
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }
}
