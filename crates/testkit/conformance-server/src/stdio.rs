//! One client on stdin and stdout, one message a line.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{broadcast, mpsc};

use crate::caller::{Caller, LegacyClient, Said};
use crate::methods;
use crate::rpc::{self, INVALID_REQUEST, MODERN_VERSION, Message, Request, RpcError};
use crate::subscription::Subscription;
use crate::world::{Change, Era, World};

pub(crate) async fn serve(world: Arc<World>) -> std::io::Result<()> {
    let (stream, said) = mpsc::channel(64);
    let writer = tokio::spawn(write(said));
    let mut pipe = Pipe { world, stream, client: None };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        pipe.hear(&line).await;
    }
    // Nobody is left to answer.
    writer.abort();
    Ok(())
}

async fn write(mut said: mpsc::Receiver<Said>) -> std::io::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(said) = said.recv().await {
        match said {
            Said::Message(message) => stdout.write_all(format!("{message}\n").as_bytes()).await?,
            // There is nothing to come back to on a pipe.
            Said::HangUp => continue,
        }
        stdout.flush().await?;
    }
    Ok(())
}

struct Pipe {
    world: Arc<World>,
    stream: mpsc::Sender<Said>,
    /// The legacy client, once it has shaken hands.
    client: Option<Arc<LegacyClient>>,
}

impl Pipe {
    async fn hear(&mut self, line: &str) {
        match Message::read(line.as_bytes()) {
            Ok(Message::Request(request)) => match self.world.era {
                Era::Legacy => self.legacy(request).await,
                Era::Modern => self.modern(request).await,
            },
            Ok(Message::Notification) => {}
            Ok(Message::Response { id, outcome }) => {
                if let Some(client) = &self.client {
                    client.answered(&id, outcome);
                }
            }
            Err(error) => self.respond(&Value::Null, Err(error)).await,
        }
    }

    async fn legacy(&mut self, request: Request) {
        if request.method == "initialize" {
            let client = LegacyClient::shakes_hands(&request);
            tokio::spawn(tell(self.world.changes.subscribe(), Arc::clone(&client), self.stream.clone()));
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
                    Arc::clone(&self.world),
                    Subscription::of(&request),
                    self.stream.clone(),
                ));
            }
            Ok(()) => self.perform(Caller::modern(&request, self.stream.clone()), request),
        }
    }

    fn perform(&self, caller: Caller, request: Request) {
        let world = Arc::clone(&self.world);
        tokio::spawn(async move {
            let outcome = methods::answer(&world, &caller, &request).await;
            caller.say(rpc::response(&request.id, outcome)).await;
        });
    }

    async fn respond(&self, id: &Value, outcome: Result<Value, RpcError>) {
        let _ = self.stream.send(Said::Message(rpc::response(id, outcome))).await;
    }
}

/// A legacy client is told of every change of a list, and of the resources it subscribed to.
async fn tell(
    mut changes: broadcast::Receiver<Change>,
    client: Arc<LegacyClient>,
    stream: mpsc::Sender<Said>,
) {
    while let Ok(change) = changes.recv().await {
        let wanted = match &change {
            Change::Tools | Change::Prompts => true,
            Change::Resource(uri) => client.is_subscribed_to(uri),
        };
        if wanted && stream.send(Said::Message(change.to_message(None))).await.is_err() {
            return;
        }
    }
}

async fn listen(world: Arc<World>, subscription: Subscription, stream: mpsc::Sender<Said>) {
    let mut changes = world.changes.subscribe();
    let mut message = subscription.acknowledged();
    while stream.send(Said::Message(message)).await.is_ok() {
        message = loop {
            let Ok(change) = changes.recv().await else { return };
            if subscription.wants(&change) {
                break change.to_message(Some(&subscription.meta));
            }
        };
    }
}
