//! Counts messages that a slow client did not get, and tells the client the number in one log message.

use bytes::Bytes;
use gripfast::wire::log;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Log message for `count` dropped messages; `None` for zero.
pub(crate) fn notice(count: usize) -> Option<Bytes> {
    if count == 0 {
        return None;
    }
    let data = format!("{count} messages were dropped: the client reads more slowly than the server sends");
    let params = json!({ "level": "warning", "logger": "gripfast", "data": data });
    Some(json!({ "jsonrpc": "2.0", "method": log::MESSAGE, "params": params }).to_string().into())
}

/// Number of dropped messages that the client was not told about yet.
#[derive(Debug, Default)]
pub(crate) struct DroppedMessages(AtomicUsize);

impl DroppedMessages {
    /// Sends a message that may be dropped, after the notice about earlier dropped ones. `send` returns false if a
    /// message did not fit.
    pub(crate) fn send_or_count(
        &self,
        message: &[u8],
        wants: impl Fn(&[u8]) -> bool,
        send: impl Fn(Bytes) -> bool,
    ) {
        let before = self.0.load(Ordering::Relaxed);
        if let Some(notice) = notice(before).filter(|notice| wants(notice)) {
            if !send(notice) {
                self.0.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.0.fetch_sub(before, Ordering::Relaxed);
        }
        if !send(Bytes::copy_from_slice(message)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the notice for the messages that were dropped since the last one.
    pub(crate) fn take(&self) -> Option<Bytes> {
        notice(self.0.swap(0, Ordering::Relaxed))
    }
}
