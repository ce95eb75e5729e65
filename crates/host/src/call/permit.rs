//! Whether a request may go: whatever it names must be allowed by the lists of its server and of its client.
//! Where there are no rules, only URIs are looked at: one with control characters or outer spaces goes to no server.

use crate::client::Principal;
use crate::host::{Entry, Host};
use crate::policy::{Decision, Kind, subject};
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
use gripfast_core::policy::is_refused_uri;
use gripfast_wire::RawValue;
use gripfast_wire::patch::{NotAnObject, Object};

/// Something that a request names.
struct Named {
    kind: Kind,
    name: String,
}

impl Host {
    /// Refuses a request for something that its caller may not use.
    pub(crate) fn permit(
        &self,
        entry: &Entry,
        principal: Option<&Principal>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), CallError> {
        let audience = self.audience(principal);
        let is_open = entry.rules.are_open() && audience.is_everybody();
        if is_open && !names_a_uri(method) {
            return Ok(());
        }
        if !is_open && !is_of_protocol(method) {
            let decision = entry.rules.decide_method(&entry.name, &audience, method);
            if !decision.allowed {
                let text = format!("method `{method}` of server `{}` is {}", entry.name, decision.reason);
                let error = CallError::new(Code::Denied, &entry.name, Fate::NotSent, text);
                return Err(error.hint("name it in `methods` if clients with an `allow` list may use it"));
            }
        }
        let named = named(entry, method, params).map_err(|error| {
            let text = format!("the parameters of `{method}` cannot be judged: {error}");
            CallError::new(Code::InvalidRequest, &entry.name, Fate::NotSent, text)
        })?;
        for Named { kind, name } in named {
            if kind == Kind::Resource && is_refused_uri(&name) {
                let text = format!("the URI {name:?} has control characters, or spaces at its ends");
                let error = CallError::new(Code::InvalidRequest, &entry.name, Fate::NotSent, text);
                return Err(error.hint("write them as escapes, such as `%20`, if they are part of the URI"));
            }
            if is_open {
                continue;
            }
            let hints = entry.hints(kind, &name);
            let decision = entry.rules.decide(&audience, &subject(&entry.name, kind, &name, hints));
            if !decision.allowed {
                return Err(denied(entry, principal, kind, &name, &decision));
            }
        }
        Ok(())
    }

    /// Whether a client may use something of a server, and which rules say so. `None` is the program itself, to
    /// which the lists of clients do not apply.
    ///
    /// # Errors
    /// There is no server of this name.
    pub fn explain(
        &self,
        principal: Option<&Principal>,
        server: &str,
        kind: Kind,
        name: &str,
    ) -> Result<Decision, CallError> {
        let entry = self.entry(server)?;
        let hints = entry.hints(kind, name);
        Ok(entry.rules.decide(&self.audience(principal), &subject(server, kind, name, hints)))
    }
}

/// Whether the protocol says what a method does, so that lists can judge it by what it names.
fn is_of_protocol(method: &str) -> bool {
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

fn names_a_uri(method: &str) -> bool {
    method.starts_with("resources/") || method == "completion/complete"
}

fn denied(
    entry: &Entry,
    principal: Option<&Principal>,
    kind: Kind,
    name: &str,
    decision: &Decision,
) -> CallError {
    let server = &entry.name;
    let text = format!("{} `{name}` of upstream `{server}` is {}", kind.one(), decision.reason);
    let error = CallError::new(Code::Denied, server, Fate::NotSent, text);
    match kind {
        Kind::Tool => {
            let client = principal.map_or(Principal::LOCAL, Principal::name);
            error.hint(format!("`gripfast policy test {client} {server} {name}` explains it"))
        }
        Kind::Resource | Kind::Prompt => {
            error.hint(format!("change the `{}` lists of `{server}` or of the client", kind.word()))
        }
    }
}

/// What a request names, as far as rules are about it. A request that can be read in two ways is refused:
/// the server might read it in the other one.
fn named(entry: &Entry, method: &str, params: Option<&RawValue>) -> Result<Vec<Named>, NotAnObject> {
    let Some(params) = params.map(Object::parse).transpose()? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    match method {
        "tools/call" => found.extend(text(&params, "name")?.map(Named::of(Kind::Tool))),
        "prompts/get" => found.extend(text(&params, "name")?.map(Named::of(Kind::Prompt))),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            found.extend(text(&params, "uri")?.map(Named::of(Kind::Resource)));
        }
        "completion/complete" => {
            let reference = params.get_deciding("ref")?.map(Object::parse).transpose()?;
            if let Some(reference) = reference {
                found.extend(text(&reference, "name")?.map(Named::of(Kind::Prompt)));
                found.extend(text(&reference, "uri")?.map(Named::of(Kind::Resource)));
            }
        }
        // A method that is not known here does something with what it names, nobody knows what.
        _ => {
            let reference = params.get_deciding("ref")?.and_then(|inside| Object::parse(inside).ok());
            for object in [Some(params), reference].into_iter().flatten() {
                if let Some(name) = text(&object, "name")? {
                    let kinds = entry.kinds_named(&name);
                    found.extend(kinds.into_iter().map(|kind| Named { kind, name: name.clone() }));
                }
                found.extend(text(&object, "uri")?.map(Named::of(Kind::Resource)));
            }
        }
    }
    Ok(found)
}

impl Named {
    fn of(kind: Kind) -> impl Fn(String) -> Self {
        move |name| Self { kind, name }
    }
}

fn text(object: &Object<'_>, member: &'static str) -> Result<Option<String>, NotAnObject> {
    object.get_deciding(member)?;
    Ok(object.text(member).map(std::borrow::Cow::into_owned))
}
