//! Delivers `notifications/cancelled` over HTTP. It is a separate message on any free connection, so it can be lost
//! where the request was not: a kept connection turns out to be closed, or a busy server takes no new ones for a while.
//! It is retried until the server answers. A second delivery does no harm; a lost one leaves a call running that is no
//! longer wanted.

use super::client::{HttpClient, HttpRequest};
use gripfast_core::failure::During;
use std::sync::Arc;
use std::time::Duration;

/// Evidence that the server has received the request that is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestReceipt {
    /// The server has begun to answer the request, or has accepted it.
    Confirmed,
    /// No answer yet: the request may still be on its way, and arrive after the cancellation.
    Unconfirmed,
}

/// Maximum number of cancellations in delivery to one server. Further ones are dropped: a server that does not accept
/// this many does not process them either.
pub(super) const MAX_PENDING: usize = 1024;

/// Delays before each attempt. Any HTTP answer ends the attempts.
const RETRY_DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(4)];

/// Time limit for each attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay before a cancellation is repeated; a request that it has overtaken has arrived by then.
const REORDER_DELAY: Duration = Duration::from_secs(1);

impl HttpClient {
    /// Delivers a request that cancels another one, in the background.
    pub(crate) fn send_cancel(&self, cancel: HttpRequest, receipt: RequestReceipt) {
        // A runtime that is shutting down cannot deliver it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Ok(permit) = Arc::clone(&self.cancel_permits).try_acquire_owned() else { return };
        let client = self.clone();
        runtime.spawn(async move {
            let _permit = permit;
            let delivered = client.deliver_cancel(&cancel).await;
            if delivered && receipt == RequestReceipt::Unconfirmed {
                tokio::time::sleep(REORDER_DELAY).await;
                client.deliver_cancel(&cancel).await;
            }
        });
    }

    /// Sends the cancellation until the server answers. Returns whether it did.
    async fn deliver_cancel(&self, cancel: &HttpRequest) -> bool {
        for pause in RETRY_DELAYS {
            tokio::time::sleep(pause).await;
            let sending = self.send(cancel.clone(), During::Call);
            if let Ok(Ok(_)) = tokio::time::timeout(ATTEMPT_TIMEOUT, sending).await {
                return true;
            }
        }
        false
    }
}
