//! Access check of a request: every item that it names must be allowed by the policies of its server and of its
//! client. Without policies only URIs are checked: one with control characters or outer spaces is never sent to a
//! server.

use crate::client::Principal;
use crate::host::{Host, HostEntry};
use crate::policy::{ItemKind, PolicyDecision, policy_target};
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::json_text::Json;
use gripfast_core::policy::is_refused_uri;
use gripfast_wire::patch::{NotAnObject, Object};

/// An item that a request names.
struct NamedItem {
    kind: ItemKind,
    name: String,
}

impl Host {
    /// Refuses a request for an item that the caller may not use.
    pub(crate) fn check_access(
        &self,
        entry: &HostEntry,
        principal: Option<&Principal>,
        method: &str,
        params: Option<&Json>,
    ) -> Result<(), CallError> {
        let audience = self.audience(principal);
        let is_open = entry.rules.is_unrestricted() && audience.is_unrestricted();
        if is_open && !takes_uri(method) {
            return Ok(());
        }
        if !is_open && !is_protocol_method(method) {
            let decision = entry.rules.decide_method(&entry.name, &audience, method);
            if !decision.allowed {
                let text = format!("method `{method}` of server `{}` is {}", entry.name, decision.reason);
                let error = CallError::new(Code::Denied, &entry.name, CallOutcome::NotSent, text);
                return Err(error.with_hint("add it to `methods` if clients with an `allow` list may use it"));
            }
        }
        let named = named_items(entry, method, params).map_err(|error| {
            let text = format!("the parameters of `{method}` cannot be checked against the policy: {error}");
            CallError::new(Code::InvalidRequest, &entry.name, CallOutcome::NotSent, text)
        })?;
        for NamedItem { kind, name } in named {
            if kind == ItemKind::Resource && is_refused_uri(&name) {
                let text = format!("URI {name:?} has control characters, or leading or trailing spaces");
                let error = CallError::new(Code::InvalidRequest, &entry.name, CallOutcome::NotSent, text);
                return Err(
                    error.with_hint("percent-encode them, such as `%20`, if they are part of the URI")
                );
            }
            if is_open {
                continue;
            }
            let hints = entry.tool_hints(kind, &name);
            let decision = entry.rules.decide(&audience, &policy_target(&entry.name, kind, &name, hints));
            if !decision.allowed {
                return Err(denied_error(entry, principal, kind, &name, &decision));
            }
        }
        Ok(())
    }

    /// Explains whether a client may use an item of a server, and which rules decide it. `None` is the program
    /// itself, to which client policies do not apply.
    ///
    /// # Errors
    /// There is no server with this name.
    pub fn explain_access(
        &self,
        principal: Option<&Principal>,
        server: &str,
        kind: ItemKind,
        name: &str,
    ) -> Result<PolicyDecision, CallError> {
        let entry = self.entry(server)?;
        let hints = entry.tool_hints(kind, name);
        Ok(entry.rules.decide(&self.audience(principal), &policy_target(server, kind, name, hints)))
    }
}

/// Returns true for methods that MCP defines: policies judge them by the items that they name.
fn is_protocol_method(method: &str) -> bool {
    matches!(
        method,
        "completion/complete"
            | "initialize"
            | "logging/setLevel"
            | "ping"
            | "prompts/get"
            | "prompts/list"
            | "resources/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/templates/list"
            | "resources/unsubscribe"
            | "server/discover"
            | "subscriptions/listen"
            | "tasks/cancel"
            | "tasks/get"
            | "tasks/list"
            | "tasks/result"
            | "tasks/update"
            | "tools/call"
            | "tools/list"
    )
}

fn takes_uri(method: &str) -> bool {
    method.starts_with("resources/") || method == "completion/complete"
}

fn denied_error(
    entry: &HostEntry,
    principal: Option<&Principal>,
    kind: ItemKind,
    name: &str,
    decision: &PolicyDecision,
) -> CallError {
    let server = &entry.name;
    let text = format!("{} `{name}` of server `{server}` is {}", kind.singular(), decision.reason);
    let error = CallError::new(Code::Denied, server, CallOutcome::NotSent, text);
    match kind {
        ItemKind::Tool => {
            let client = principal.map_or(Principal::LOCAL, Principal::name);
            error.with_hint(format!("`gripfast policy test {client} {server} {name}` explains the decision"))
        }
        ItemKind::Resource | ItemKind::Prompt => {
            error.with_hint(format!("change the `{}` lists of `{server}` or of the client", kind.plural()))
        }
    }
}

/// The items that a request names. Refuses parameters with duplicate members: the server might read the other one.
fn named_items(
    entry: &HostEntry,
    method: &str,
    params: Option<&Json>,
) -> Result<Vec<NamedItem>, NotAnObject> {
    let Some(params) = params.map(Object::parse).transpose()? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    match method {
        "tools/call" => found.extend(text(&params, "name")?.map(NamedItem::of(ItemKind::Tool))),
        "prompts/get" => found.extend(text(&params, "name")?.map(NamedItem::of(ItemKind::Prompt))),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            found.extend(text(&params, "uri")?.map(NamedItem::of(ItemKind::Resource)));
        }
        "completion/complete" => {
            let reference = params.get_strict("ref")?.map(Object::parse).transpose()?;
            if let Some(reference) = reference {
                found.extend(text(&reference, "name")?.map(NamedItem::of(ItemKind::Prompt)));
                found.extend(text(&reference, "uri")?.map(NamedItem::of(ItemKind::Resource)));
            }
        }
        // An unknown method may use any item that it names.
        _ => {
            let reference = params.get_strict("ref")?.and_then(|inside| Object::parse(inside).ok());
            for object in [Some(params), reference].into_iter().flatten() {
                if let Some(name) = text(&object, "name")? {
                    let kinds = entry.kinds_named(&name);
                    found.extend(kinds.into_iter().map(|kind| NamedItem { kind, name: name.clone() }));
                }
                found.extend(text(&object, "uri")?.map(NamedItem::of(ItemKind::Resource)));
            }
        }
    }
    Ok(found)
}

impl NamedItem {
    fn of(kind: ItemKind) -> impl Fn(String) -> Self {
        move |name| Self { kind, name }
    }
}

fn text(object: &Object<'_>, member: &'static str) -> Result<Option<String>, NotAnObject> {
    object.get_strict(member)?;
    Ok(object.text(member).map(std::borrow::Cow::into_owned))
}
