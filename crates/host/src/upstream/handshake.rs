//! The handshake of each era: `server/discover` or `initialize`, and what the answer says about the server. `connect`
//! decides which transport and era are tried.

use super::connect::ConnectStep;
use super::{ServerCapabilities, ServerFacts, Upstream};
use crate::config::ProtocolChoice;
use crate::transport::{HOST_ID, Link, Outgoing, Reply, Route, SendError, Session};
use gripfast_core::failure::{During, Evidence, HttpAnswer, Observed, RpcError};
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::era::probe::{self, ProbeAnswer, ProbeTransport};
use gripfast_wire::era::{Capabilities, DiscoverResult, InitializeResult, RequestContext, initialize_params};
use gripfast_wire::patch::Object;
use gripfast_wire::{Era, Json, JsonText, Outcome, ProtocolVersion, codes};
use std::sync::Arc;
use std::time::Duration;

/// Error of one handshake attempt.
pub(super) enum HandshakeError {
    /// The server answers, but not in this era or on this transport.
    WrongEra(Evidence),
    /// The server cannot be reached now.
    Unavailable(Evidence),
}

impl HandshakeError {
    pub(super) fn evidence(&self) -> &Evidence {
        match self {
            Self::WrongEra(evidence) | Self::Unavailable(evidence) => evidence,
        }
    }
}

/// A legacy server may not answer an unknown method at all; after this time `initialize` is tried.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

impl Upstream {
    pub(super) async fn handshake(
        &self,
        link: &dyn Link,
        step: ConnectStep,
    ) -> Result<(Session, ServerFacts), HandshakeError> {
        match step.era {
            Era::Modern => self.discover(link, step.route).await,
            Era::Legacy => self.initialize(link, step.route).await,
        }
    }

    async fn discover(
        &self,
        link: &dyn Link,
        route: Route,
    ) -> Result<(Session, ServerFacts), HandshakeError> {
        let session = Session { era: Era::Modern, version: Some(ProtocolVersion::MODERN), id: None };
        let params = self.context(ProtocolVersion::MODERN).apply_to(None).ok();
        let asking = link.request(&session, self.handshake_request("server/discover", params.as_deref()));
        let answer = match self.spec().protocol {
            // Without another era to try, a slow server gets the whole time.
            ProtocolChoice::Legacy | ProtocolChoice::Modern => asking.await,
            ProtocolChoice::Auto => {
                // The legacy handshake needs time too. A server that is known to be modern is only slow.
                let half = self.with_machine(|machine, _| machine.connect_limit()) / 2;
                let within = if self.is_known_modern() { half } else { PROBE_TIMEOUT.min(half) };
                match tokio::time::timeout(within, asking).await {
                    Ok(answer) => answer,
                    // Silence proves nothing: `initialize` tells whether the server is legacy, and a success is
                    // remembered.
                    Err(_) => {
                        let evidence = Evidence::sent(During::Handshake, Observed::NoAnswer(within));
                        return Err(HandshakeError::WrongEra(evidence));
                    }
                }
            }
        };
        let (probed, evidence) = match &answer {
            Ok(Reply { message, .. }) => read_probe(message, None),
            Err(send_error) => (probe_answer_of(send_error, route), send_error.evidence.clone()),
        };
        match probe::verdict(probed) {
            probe::ProbeVerdict::Modern { .. } => {}
            probe::ProbeVerdict::Legacy => return Err(HandshakeError::WrongEra(evidence)),
            probe::ProbeVerdict::NoVerdict => return Err(HandshakeError::Unavailable(evidence)),
        }
        // A modern server that refuses `server/discover` is modern but unusable.
        let Ok(Reply { message, .. }) = &answer else { return Err(HandshakeError::Unavailable(evidence)) };
        let Ok(Message::Response(response)) = Message::parse(message) else {
            return Err(HandshakeError::Unavailable(evidence));
        };
        let Outcome::Result(result) = response.outcome else {
            return Err(HandshakeError::Unavailable(evidence));
        };
        let Some(discovered) = DiscoverResult::read(result) else {
            return Err(HandshakeError::Unavailable(evidence));
        };
        let facts = ServerFacts {
            name: discovered.server_name.map(Into::into),
            version: discovered.server_version.map(Into::into),
            instructions: discovered.instructions.map(Into::into),
            capabilities: capabilities(&discovered.capabilities),
            extensions: extensions(&discovered.capabilities),
            freshness: Some(crate::cache::freshness_from_wire(discovered.freshness)),
        };
        Ok((session, facts))
    }

    async fn initialize(
        &self,
        link: &dyn Link,
        route: Route,
    ) -> Result<(Session, ServerFacts), HandshakeError> {
        let mut session = Session { era: Era::Legacy, version: None, id: None };
        let deps = self.deps();
        let params =
            initialize_params(&ProtocolVersion::LATEST_LEGACY, &deps.capabilities, &deps.client_info);
        let answer = link.request(&session, self.handshake_request("initialize", Some(&params))).await;
        let Reply { message, session_id, .. } =
            answer.map_err(|send_error| initialize_error(*send_error, route))?;
        let garbled = |text: &str| {
            HandshakeError::Unavailable(Evidence::sent(
                During::Handshake,
                Observed::Malformed(text.to_owned()),
            ))
        };
        let Ok(Message::Response(response)) = Message::parse(&message) else {
            return Err(garbled("its answer to `initialize` is not a JSON-RPC response"));
        };
        let result = match response.outcome {
            Outcome::Result(result) => result,
            Outcome::Error(error) => {
                let rpc_error = RpcError { code: error.code, message: error.message.into_owned() };
                let observed = Observed::Rpc { error: rpc_error, had_session: false };
                let evidence = Evidence::sent(During::Handshake, observed);
                return Err(if codes::is_modern(error.code) {
                    HandshakeError::WrongEra(evidence)
                } else {
                    HandshakeError::Unavailable(evidence)
                });
            }
        };
        let Ok(initialized) = InitializeResult::read(result) else {
            return Err(garbled("its answer to `initialize` is not an object"));
        };
        session.version = Some(initialized.version.clone());
        session.id = session_id;
        let facts = ServerFacts {
            name: initialized.server_name.map(Into::into),
            version: initialized.server_version.map(Into::into),
            instructions: initialized.instructions.map(Into::into),
            capabilities: capabilities(&initialized.capabilities),
            extensions: extensions(&initialized.capabilities),
            freshness: None,
        };
        let ready = envelope::notification("notifications/initialized", None);
        link.send(&session, ready).await.map_err(|send_error| {
            HandshakeError::Unavailable(Evidence { during: During::Handshake, ..send_error.evidence })
        })?;
        Ok((session, facts))
    }

    fn handshake_request<'a>(&self, method: &'a str, params: Option<&Json>) -> Outgoing<'a> {
        let id = self.next_request_id();
        Outgoing {
            id,
            method,
            message: envelope::request(id, method, params),
            name: None,
            headers: vec![(HOST_ID.to_owned(), self.deps().host_id.to_string())],
            during: During::Handshake,
            safety: crate::transport::Safety::AtMostOnce,
            sent: Arc::default(),
            principal: None,
            listener: None,
            memory: None,
        }
    }

    pub(super) fn context(&self, version: ProtocolVersion) -> RequestContext {
        let deps = self.deps();
        let client_info = Json::to_owned(&deps.client_info);
        RequestContext {
            version,
            client_info: Some(client_info),
            capabilities: Json::to_owned(&deps.capabilities),
            log_level: None,
        }
    }
}

/// Interprets a failed probe.
fn probe_answer_of(send_error: &SendError, route: Route) -> ProbeAnswer {
    let over = if route == Route::Stdio { ProbeTransport::Stdio } else { ProbeTransport::Http };
    match &send_error.evidence.observed {
        Observed::Http(answer) => match &send_error.answer {
            Some(message) => read_probe(message, Some(answer)).0,
            None => ProbeAnswer::Status(answer.status),
        },
        Observed::NoAnswer(_) | Observed::Exited { .. } | Observed::Closed(_) => ProbeAnswer::Silence(over),
        // The answer is not MCP: `initialize` or the other transport will tell.
        Observed::Malformed(_) => ProbeAnswer::OtherResult,
        Observed::NoExecutable(_)
        | Observed::SpawnFailed(_)
        | Observed::OutOfResources(_)
        | Observed::Unplaced(_)
        | Observed::UnsetVariable(_)
        | Observed::BadConfig(_)
        | Observed::NoToken(_)
        | Observed::Connect { .. }
        | Observed::RefusedByPeer(_)
        | Observed::Rpc { .. }
        | Observed::TooLarge(_)
        | Observed::NoMemory { .. } => ProbeAnswer::Silence(ProbeTransport::Http),
    }
}

fn read_probe(message: &[u8], http: Option<&HttpAnswer>) -> (ProbeAnswer, Evidence) {
    let garbled =
        || Observed::Malformed("its answer to `server/discover` is not a JSON-RPC response".to_owned());
    let (answer, observed) = match Message::parse(message) {
        Ok(Message::Response(response)) => {
            let observed = match &response.outcome {
                Outcome::Error(error) => {
                    let error = RpcError { code: error.code, message: error.message.clone().into_owned() };
                    Observed::Rpc { error, had_session: false }
                }
                Outcome::Result(_) => garbled(),
            };
            (ProbeAnswer::from_outcome(&response.outcome, http.map(|http| http.status)), observed)
        }
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => (ProbeAnswer::OtherResult, garbled()),
    };
    (answer, Evidence::sent(During::Handshake, observed))
}

/// Returns true for an error code that only the modern era has.
pub(super) fn says_modern(evidence: &Evidence) -> bool {
    matches!(&evidence.observed, Observed::Rpc { error, .. } if codes::is_modern(error.code))
}

/// Classifies a failed `initialize`. Over HTTP it may mean that this is the URL of the old transport, or that the
/// server no longer supports `initialize`.
fn initialize_error(send_error: SendError, route: Route) -> HandshakeError {
    let SendError { evidence, .. } = send_error;
    let another = match &evidence.observed {
        Observed::Http(HttpAnswer { rpc: Some(rpc), .. }) => codes::is_modern(rpc.code),
        Observed::Http(HttpAnswer { status, .. }) => matches!(status, 400 | 404 | 405 | 406 | 415),
        Observed::Malformed(_) => route == Route::Http,
        Observed::NoExecutable(_)
        | Observed::SpawnFailed(_)
        | Observed::OutOfResources(_)
        | Observed::Unplaced(_)
        | Observed::UnsetVariable(_)
        | Observed::BadConfig(_)
        | Observed::NoToken(_)
        | Observed::Connect { .. }
        | Observed::Closed(_)
        | Observed::RefusedByPeer(_)
        | Observed::Exited { .. }
        | Observed::NoAnswer(_)
        | Observed::Rpc { .. }
        | Observed::TooLarge(_)
        | Observed::NoMemory { .. } => false,
    };
    if another { HandshakeError::WrongEra(evidence) } else { HandshakeError::Unavailable(evidence) }
}

fn extensions(declared: &Capabilities<'_>) -> Option<JsonText> {
    Object::parse(declared.raw?).ok()?.get("extensions").map(Json::to_owned)
}

fn capabilities(declared: &Capabilities<'_>) -> ServerCapabilities {
    ServerCapabilities {
        undeclared: declared.raw.is_none(),
        tools: declared.tools,
        resources: declared.resources,
        prompts: declared.prompts,
        logging: declared.logging,
        tools_changes: declared.tools_list_changed,
        resources_changes: declared.resources_list_changed,
        resources_subscribe: declared.resources_subscribe,
        prompts_changes: declared.prompts_list_changed,
        tasks: calls_as_tasks(declared).unwrap_or(false),
    }
}

/// `tasks.requests.tools.call`, the legacy capability for calling tools as tasks.
fn calls_as_tasks(declared: &Capabilities<'_>) -> Option<bool> {
    let requests = Object::parse(declared.raw?).ok()?.object("tasks")?.object("requests")?;
    Some(requests.object("tools")?.has("call"))
}
