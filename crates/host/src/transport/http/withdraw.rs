//! Telling a server that nobody waits for one of its answers any more. Over HTTP that is a message of its own, on
//! whatever connection is free, so it can be lost where the request was not: a kept connection turns out to be
//! closed, a busy server takes no new ones for a while. It is told until the server has heard. Hearing twice does
//! no harm; never hearing leaves a call at work that nobody wants.

use super::client::{Ask, HttpClient};
use gripfast_core::failure::During;
use std::sync::Arc;
use std::time::Duration;

/// Whether a server has shown that it knows the request which is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has begun to answer, or said that it accepts it.
    Surely,
    /// Not a word: the request may still be on its way, and be overtaken.
    Perhaps,
}

/// Withdrawals that may be on their way to one server at a time. More are told nobody: whoever gives up calls
/// faster than that has a server that does not listen.
pub(super) const MOST: usize = 1024;

/// The pauses before each attempt. An answer of any kind ends them: whoever answers has heard.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(4)];

/// How long each attempt may take.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// What was overtaken has arrived by then, and is told of once more.
const ARRIVES_WITHIN: Duration = Duration::from_secs(1);

impl HttpClient {
    /// Tells the server `ask`, which withdraws a request, in the background.
    pub(crate) fn withdraw(&self, ask: Ask, taken: Taken) {
        // A runtime that is shutting down has nobody left to tell it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Ok(turn) = Arc::clone(&self.withdrawals).try_acquire_owned() else { return };
        let client = self.clone();
        runtime.spawn(async move {
            let _turn = turn;
            let heard = client.tell(&ask).await;
            if heard && taken == Taken::Perhaps {
                tokio::time::sleep(ARRIVES_WITHIN).await;
                client.tell(&ask).await;
            }
        });
    }

    /// Whether the server has heard it in the end.
    async fn tell(&self, ask: &Ask) -> bool {
        for pause in PAUSES {
            tokio::time::sleep(pause).await;
            let telling = self.send(ask.clone(), During::Call);
            if let Ok(Ok(_)) = tokio::time::timeout(HEARD_WITHIN, telling).await {
                return true;
            }
        }
        false
    }
}
