//! Forwards a request to its server. For a legacy client, collects the input that a modern server requires and repeats
//! the request with it.

use super::dispatch::{ClientRequest, RequestOutcome, RpcFault};
use crate::mcp::Gateway;
use crate::mcp::elicitation::url::UrlVisit;
use crate::mcp::tasks::registry::TaskLocation;
use gripfast::input::{self, CollectedInput};
use gripfast::wire::Era;
use gripfast::wire::patch::NotAnObject;
use gripfast::{Answer, CallError, CallOptions, CallOutcome, Code, Json, JsonText};
use std::sync::Arc;

/// Answer of a server on its way to the client.
pub(crate) struct ForwardedAnswer {
    pub(crate) answer: Answer,
    /// Server that answered.
    pub(crate) server: Arc<str>,
    /// Form of the tool output that the client expects from `tools/list`.
    pub(crate) output: ToolOutput,
    /// Task id of the server and of the client, if the answer is about a task and the ids differ.
    pub(crate) task: Option<Box<(String, String)>>,
    /// The answer must not be cached for other clients, whatever the server says.
    pub(crate) private: bool,
}

/// Form of a tool's structured output as listed to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolOutput {
    /// As the server declares it.
    Unchanged,
    /// Wrapped as the member `result` of an object.
    Wrapped,
}

impl ForwardedAnswer {
    pub(crate) fn new(answer: Answer, server: Arc<str>) -> Self {
        Self { answer, server, output: ToolOutput::Unchanged, task: None, private: false }
    }

    pub(crate) fn with_wrapped_output(self) -> Self {
        Self { output: ToolOutput::Wrapped, ..self }
    }

    /// Marks an answer that other clients may not be allowed to read.
    pub(crate) fn with_private_scope(self) -> Self {
        Self { private: true, ..self }
    }

    /// Sets the task ids, if the client knows the task under another id than the server.
    pub(crate) fn with_task(self, own: String, public: String) -> Self {
        let task = (own != public).then(|| Box::new((own, public)));
        Self { task, ..self }
    }
}

/// Instance of a server that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstanceChoice {
    /// The instance that is dedicated to the client, if `isolation` provides one.
    Dedicated,
    /// The shared instance, because only that one knows the task.
    Shared,
}

impl InstanceChoice {
    /// Instance that has a task which was started earlier.
    pub(crate) fn of_task(location: &TaskLocation) -> Self {
        if location.dedicated_to.is_some() { Self::Dedicated } else { Self::Shared }
    }
}

impl Gateway {
    pub(crate) async fn forward(
        &self,
        request: &ClientRequest<'_>,
        server: &Arc<str>,
        params: Result<JsonText, NotAnObject>,
    ) -> RequestOutcome {
        self.forward_to_instance(request, server, params, InstanceChoice::Dedicated).await
    }

    pub(crate) async fn forward_to_instance(
        &self,
        request: &ClientRequest<'_>,
        server: &Arc<str>,
        params: Result<JsonText, NotAnObject>,
        instance: InstanceChoice,
    ) -> RequestOutcome {
        let mut params = match params {
            Ok(params) => params,
            Err(error) => return RpcFault::invalid(error.to_string()),
        };
        if request.era == Era::Modern {
            match UrlVisit::from_params(&params) {
                UrlVisit::Unanswered => {}
                UrlVisit::Accepted(rest) => params = rest,
                UrlVisit::Declined => {
                    return RequestOutcome::Failed(without_input(server, Code::Cancelled, URL_DECLINED));
                }
            }
        }
        let listener = self.listener_for(request, server);
        let log_level = request.client.level.get();
        for _ in 0..input::MAX_ROUNDS {
            let options = CallOptions {
                timeout: None,
                listener: Some(Arc::clone(&listener)),
                client: Some(request.client.host_client.clone()),
                capabilities: request.client.capabilities.clone(),
                log_level,
                use_shared_instance: instance == InstanceChoice::Shared,
                memory: Some(Arc::clone(&request.client.memory) as _),
                by_operator: false,
            };
            let answer = match self.send(server, request.method, &params, options).await {
                Ok(answer) => answer,
                Err(error) => return RequestOutcome::Failed(error),
            };
            if let Some(outcome) = self.url_elicitation_required(request, server, &answer) {
                return outcome;
            }
            let collected = match request.era {
                // A modern client gets the input-required result, and repeats the request itself.
                Era::Modern => CollectedInput::NotRequired,
                Era::Legacy => input::collect(&*request.listener, &params, &answer).await,
            };
            params = match collected {
                CollectedInput::NotRequired => {
                    return RequestOutcome::Answer(ForwardedAnswer::new(answer, Arc::clone(server)));
                }
                CollectedInput::Retry(params) => params,
                CollectedInput::Refused(why) => {
                    let why = format!("the client refused to answer: {why}");
                    return RequestOutcome::Failed(without_input(server, Code::Cancelled, &why));
                }
                CollectedInput::Unsupported(why) => {
                    return RequestOutcome::Failed(without_input(server, Code::InvalidRequest, &why));
                }
            };
        }
        let why = format!("it still asks for input after {} rounds", input::MAX_ROUNDS);
        RequestOutcome::Failed(without_input(server, Code::UpstreamProtocol, &why))
    }

    /// Sends one request to a server, within a telemetry span if an exporter is installed.
    async fn send(
        &self,
        server: &str,
        method: &str,
        params: &Json,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let Some(telemetry) = self.telemetry.get() else {
            return self.host.request_with(server, method, Some(params), options).await;
        };
        let span = telemetry.client_span(server, method, params);
        let with_context = span.with_trace_context(params);
        let params = with_context.as_deref().unwrap_or(params);
        let outcome = self.host.request_with(server, method, Some(params), options).await;
        span.finish_sent(&outcome);
        outcome
    }
}

const URL_DECLINED: &str = "the user declined to visit a URL that the server requires";

/// Error for a server that did not get the input that it requires.
fn without_input(server: &str, code: Code, why: &str) -> CallError {
    let text = format!("server `{server}` requires input that it did not get: {why}");
    CallError::new(code, server, CallOutcome::Refused, text)
}
