//! The handshake of each era: what a server is asked first, and what its answer, or the want of one, says about it.
//! Which way and era are tried when is decided by `dial`.

use super::dial::Step;
use super::{ServerCapabilities, ServerFacts, Upstream};
use crate::config::ProtocolChoice;
use crate::transport::{HOST_ID, Link, Outgoing, Reply, Route, Session, Trouble};
use gripfast_core::failure::{During, Evidence, HttpAnswer, Observed, RpcError};
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::era::probe::{self, Over, ProbeAnswer};
use gripfast_wire::era::{Capabilities, DiscoverResult, InitializeResult, RequestContext, initialize_params};
use gripfast_wire::patch::Object;
use gripfast_wire::{Era, Outcome, ProtocolVersion, RawValue, codes};
use std::sync::Arc;
use std::time::Duration;

/// Why an attempt came to nothing.
pub(super) enum Miss {
    /// The server speaks, but not like this.
    AnotherEra(Evidence),
    /// The server cannot be spoken to now.
    Away(Evidence),
}

impl Miss {
    pub(super) fn evidence(&self) -> &Evidence {
        match self {
            Self::AnotherEra(evidence) | Self::Away(evidence) => evidence,
        }
    }
}

/// A legacy server may simply not answer what it does not know; it is not waited for longer.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

impl Upstream {
    pub(super) async fn greet(&self, link: &dyn Link, step: Step) -> Result<(Session, ServerFacts), Miss> {
        match step.era {
            Era::Modern => self.discover(link, step.route).await,
            Era::Legacy => self.initialize(link, step.route).await,
        }
    }

    async fn discover(&self, link: &dyn Link, route: Route) -> Result<(Session, ServerFacts), Miss> {
        let session = Session { era: Era::Modern, version: Some(ProtocolVersion::MODERN), id: None };
        let params = self.context(ProtocolVersion::MODERN).apply_to(None).ok();
        let asking = link.request(&session, self.handshake_request("server/discover", params.as_deref()));
        let answer = match self.settings().protocol {
            // Where there is no other era to try, a server that is slow to start has all the time there is.
            ProtocolChoice::Legacy | ProtocolChoice::Modern => asking.await,
            ProtocolChoice::Auto => {
                // The legacy handshake must have its time too. A server that is known to be modern is only slow.
                let half = self.with(|machine, _| machine.connect_limit()) / 2;
                let within = if self.is_known_modern() { half } else { PROBE_WITHIN.min(half) };
                match tokio::time::timeout(within, asking).await {
                    Ok(answer) => answer,
                    // Nothing is proven by it: whether it is legacy, `initialize` tells, and a success is remembered.
                    Err(_) => {
                        let evidence = Evidence::sent(During::Handshake, Observed::Silence(within));
                        return Err(Miss::AnotherEra(evidence));
                    }
                }
            }
        };
        let (probed, evidence) = match &answer {
            Ok(Reply { message, .. }) => read_probe(message, None),
            Err(trouble) => (probe_of(trouble, route), trouble.evidence.clone()),
        };
        match probe::verdict(probed) {
            probe::Verdict::Modern { .. } => {}
            probe::Verdict::Legacy => return Err(Miss::AnotherEra(evidence)),
            probe::Verdict::NoVerdict => return Err(Miss::Away(evidence)),
        }
        // A modern server that declines to be discovered is modern all the same, but of no use.
        let Ok(Reply { message, .. }) = &answer else { return Err(Miss::Away(evidence)) };
        let Ok(Message::Response(response)) = Message::parse(message) else {
            return Err(Miss::Away(evidence));
        };
        let Outcome::Result(result) = response.outcome else { return Err(Miss::Away(evidence)) };
        let Some(discovered) = DiscoverResult::read(result) else { return Err(Miss::Away(evidence)) };
        let facts = ServerFacts {
            name: discovered.server_name.map(Into::into),
            version: discovered.server_version.map(Into::into),
            instructions: discovered.instructions.map(Into::into),
            capabilities: capabilities(&discovered.capabilities),
            extensions: extensions(&discovered.capabilities),
            freshness: Some(crate::cache::said(discovered.freshness)),
        };
        Ok((session, facts))
    }

    async fn initialize(&self, link: &dyn Link, route: Route) -> Result<(Session, ServerFacts), Miss> {
        let mut session = Session { era: Era::Legacy, version: None, id: None };
        let settings = self.settings();
        let params =
            initialize_params(&ProtocolVersion::LATEST_LEGACY, &settings.capabilities, &settings.client_info);
        let answer = link.request(&session, self.handshake_request("initialize", Some(&params))).await;
        let Reply { message, session_id, .. } =
            answer.map_err(|trouble| miss_of_initialize(*trouble, route))?;
        let garbled =
            |text: &str| Miss::Away(Evidence::sent(During::Handshake, Observed::Garbled(text.to_owned())));
        let Ok(Message::Response(response)) = Message::parse(&message) else {
            return Err(garbled("its answer to `initialize` is not a JSON-RPC response"));
        };
        let result = match response.outcome {
            Outcome::Result(result) => result,
            Outcome::Error(error) => {
                let said = RpcError { code: error.code, message: error.message.into_owned() };
                let observed = Observed::Rpc { error: said, had_session: false };
                let evidence = Evidence::sent(During::Handshake, observed);
                return Err(if codes::is_modern(error.code) {
                    Miss::AnotherEra(evidence)
                } else {
                    Miss::Away(evidence)
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
        link.send(&session, ready)
            .await
            .map_err(|trouble| Miss::Away(Evidence { during: During::Handshake, ..trouble.evidence }))?;
        Ok((session, facts))
    }

    fn handshake_request(&self, method: &str, params: Option<&RawValue>) -> Outgoing {
        let id = self.mint_id();
        Outgoing {
            id,
            method: method.to_owned(),
            message: envelope::request(id, method, params),
            name: None,
            headers: vec![(HOST_ID.to_owned(), self.settings().host_id.to_string())],
            during: During::Handshake,
            safety: crate::transport::Safety::AtMostOnce,
            sent: Arc::default(),
            listener: None,
            memory: None,
        }
    }

    pub(super) fn context(&self, version: ProtocolVersion) -> RequestContext {
        let settings = self.settings();
        let client_info = RawValue::to_owned(&settings.client_info);
        RequestContext {
            version,
            client_info: Some(client_info),
            capabilities: RawValue::to_owned(&settings.capabilities),
            log_level: None,
        }
    }
}

/// What a trouble with the probe says about the era.
fn probe_of(trouble: &Trouble, route: Route) -> ProbeAnswer {
    let over = if route == Route::Stdio { Over::Stdio } else { Over::Http };
    match &trouble.evidence.observed {
        Observed::Http(answer) => match &trouble.answer {
            Some(message) => read_probe(message, Some(answer)).0,
            None => ProbeAnswer::Status(answer.status),
        },
        Observed::Silence(_) | Observed::Exited { .. } | Observed::Closed(_) => ProbeAnswer::Silence(over),
        // An answer that is not MCP at all: `initialize`, or the other transport, will tell.
        Observed::Garbled(_) => ProbeAnswer::OtherResult,
        Observed::NoExecutable(_)
        | Observed::SpawnFailed(_)
        | Observed::LacksResources(_)
        | Observed::UnsetVariable(_)
        | Observed::BadConfig(_)
        | Observed::NoToken(_)
        | Observed::Dial { .. }
        | Observed::TurnedAway(_)
        | Observed::Rpc { .. }
        | Observed::TooLarge(_)
        | Observed::NoMemory { .. } => ProbeAnswer::Silence(Over::Http),
    }
}

fn read_probe(message: &[u8], http: Option<&HttpAnswer>) -> (ProbeAnswer, Evidence) {
    let garbled =
        || Observed::Garbled("its answer to `server/discover` is not a JSON-RPC response".to_owned());
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

/// Whether it declined with a word that only the modern era has.
pub(super) fn says_modern(evidence: &Evidence) -> bool {
    matches!(&evidence.observed, Observed::Rpc { error, .. } if codes::is_modern(error.code))
}

/// A refused `initialize` over HTTP may mean that this is the old transport's address, or that the server
/// has left `initialize` behind.
fn miss_of_initialize(trouble: Trouble, route: Route) -> Miss {
    let Trouble { evidence, .. } = trouble;
    let another = match &evidence.observed {
        Observed::Http(HttpAnswer { rpc: Some(rpc), .. }) => codes::is_modern(rpc.code),
        Observed::Http(HttpAnswer { status, .. }) => matches!(status, 400 | 404 | 405 | 406 | 415),
        Observed::Garbled(_) => route == Route::Http,
        Observed::NoExecutable(_)
        | Observed::SpawnFailed(_)
        | Observed::LacksResources(_)
        | Observed::UnsetVariable(_)
        | Observed::BadConfig(_)
        | Observed::NoToken(_)
        | Observed::Dial { .. }
        | Observed::Closed(_)
        | Observed::TurnedAway(_)
        | Observed::Exited { .. }
        | Observed::Silence(_)
        | Observed::Rpc { .. }
        | Observed::TooLarge(_)
        | Observed::NoMemory { .. } => false,
    };
    if another { Miss::AnotherEra(evidence) } else { Miss::Away(evidence) }
}

fn extensions(said: &Capabilities<'_>) -> Option<Box<RawValue>> {
    Object::parse(said.raw?).ok()?.get("extensions").map(RawValue::to_owned)
}

fn capabilities(said: &Capabilities<'_>) -> ServerCapabilities {
    ServerCapabilities {
        unsaid: said.raw.is_none(),
        tools: said.tools,
        resources: said.resources,
        prompts: said.prompts,
        logging: said.logging,
        tools_changes: said.tools_list_changed,
        resources_changes: said.resources_list_changed,
        resources_subscribe: said.resources_subscribe,
        prompts_changes: said.prompts_list_changed,
        tasks: calls_as_tasks(said).unwrap_or(false),
    }
}

/// `tasks.requests.tools.call`, which is how the legacy era says it.
fn calls_as_tasks(said: &Capabilities<'_>) -> Option<bool> {
    let requests = Object::parse(said.raw?).ok()?.object("tasks")?.object("requests")?;
    Some(requests.object("tools")?.has("call"))
}
