//! stdio transport: one client, one message per line.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{broadcast, mpsc};

use crate::caller::{Caller, LegacyClient, Outbound};
use crate::methods;
use crate::rpc::{self, INVALID_REQUEST, MODERN_VERSION, Message, Request, RpcError};
use crate::state::{Change, Era, ServerState};
use crate::subscription::Subscription;

pub(crate) async fn serve(shared: Arc<ServerState>) -> std::io::Result<()> {
    let (stream, said) = mpsc::channel(64);
    let writer = tokio::spawn(write(said));
    let mut pipe = Pipe { shared, stream, client: None };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        pipe.handle_line(&line).await;
    }
    // The client is gone.
    writer.abort();
    Ok(())
}

async fn write(mut said: mpsc::Receiver<Outbound>) -> std::io::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(said) = said.recv().await {
        match said {
            Outbound::Message(message) => stdout.write_all(format!("{message}\n").as_bytes()).await?,
            // A stream on stdio cannot be resumed.
            Outbound::Close => continue,
        }
        stdout.flush().await?;
    }
    Ok(())
}

struct Pipe {
    shared: Arc<ServerState>,
    stream: mpsc::Sender<Outbound>,
    /// The legacy client, after its handshake.
    client: Option<Arc<LegacyClient>>,
}

impl Pipe {
    async fn handle_line(&mut self, line: &str) {
        match Message::read(line.as_bytes()) {
            Ok(Message::Request(request)) => match self.shared.era {
                Era::Legacy => self.legacy(request).await,
                Era::Modern => self.modern(request).await,
            },
            Ok(Message::Notification) => {}
            Ok(Message::Response { id, outcome }) => {
                if let Some(client) = &self.client {
                    client.complete(&id, outcome);
                }
            }
            Err(error) => self.respond(&Value::Null, Err(error)).await,
        }
    }

    async fn legacy(&mut self, request: Request) {
        if request.method == "initialize" {
            let client = LegacyClient::from_initialize(&request);
            tokio::spawn(forward_changes(
                self.shared.changes.subscribe(),
                Arc::clone(&client),
                self.stream.clone(),
            ));
            self.client = Some(client);
            return self.respond(&request.id, Ok(methods::initialize(&request))).await;
        }
        match &self.client {
            Some(client) => self.perform(Caller::legacy(client, self.stream.clone()), request),
            None => {
                let error = RpcError::new(INVALID_REQUEST, "`initialize` comes first");
                self.respond(&request.id, Err(error)).await;
            }
        }
    }

    async fn modern(&mut self, request: Request) {
        let checked = request.modern_version().and_then(|version| match version {
            MODERN_VERSION => Ok(()),
            other => Err(RpcError::unsupported_version(other)),
        });
        match checked {
            Err(error) => self.respond(&request.id, Err(error)).await,
            Ok(()) if request.method == "subscriptions/listen" => {
                tokio::spawn(listen(
                    Arc::clone(&self.shared),
                    Subscription::from_request(&request),
                    self.stream.clone(),
                ));
            }
            Ok(()) => self.perform(Caller::modern(&request, self.stream.clone()), request),
        }
    }

    fn perform(&self, caller: Caller, request: Request) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let outcome = methods::answer(&shared, &caller, &request).await;
            caller.send(rpc::response(&request.id, outcome)).await;
        });
    }

    async fn respond(&self, id: &Value, outcome: Result<Value, RpcError>) {
        let _ = self.stream.send(Outbound::Message(rpc::response(id, outcome))).await;
    }
}

/// Sends list changes and updates of subscribed resources to a legacy client.
async fn forward_changes(
    mut changes: broadcast::Receiver<Change>,
    client: Arc<LegacyClient>,
    stream: mpsc::Sender<Outbound>,
) {
    while let Ok(change) = changes.recv().await {
        let wanted = match &change {
            Change::Tools | Change::Prompts => true,
            Change::Resource(uri) => client.is_subscribed_to(uri),
        };
        if wanted && stream.send(Outbound::Message(change.to_message(None))).await.is_err() {
            return;
        }
    }
}

async fn listen(shared: Arc<ServerState>, subscription: Subscription, stream: mpsc::Sender<Outbound>) {
    let mut changes = shared.changes.subscribe();
    let mut message = subscription.acknowledged();
    while stream.send(Outbound::Message(message)).await.is_ok() {
        message = loop {
            let Ok(change) = changes.recv().await else { return };
            if subscription.wants(&change) {
                break change.to_message(Some(&subscription.meta));
            }
        };
    }
}
