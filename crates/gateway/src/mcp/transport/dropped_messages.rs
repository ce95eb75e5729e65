//! The log message that stands for others: a client that reads too slowly for a talkative server is told how many
//! messages it did not get.

use bytes::Bytes;
use gripfast::wire::log;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The message in place of this many that were left out; none if it is none.
pub(crate) fn notice(count: usize) -> Option<Bytes> {
    if count == 0 {
        return None;
    }
    let data = format!("{count} messages were left out: the client reads more slowly than the server talks");
    let params = json!({ "level": "warning", "logger": "gripfast", "data": data });
    Some(json!({ "jsonrpc": "2.0", "method": log::MESSAGE, "params": params }).to_string().into())
}

/// How many messages did not fit on a channel, until its client is told.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(AtomicUsize);

impl LeftOut {
    /// Says a message that may be left out, after those before it were accounted for. `say` answers whether it fitted.
    pub(crate) fn say(&self, message: &[u8], wants: impl Fn(&[u8]) -> bool, say: impl Fn(Bytes) -> bool) {
        let before = self.0.load(Ordering::Relaxed);
        if let Some(notice) = notice(before).filter(|notice| wants(notice)) {
            if !say(notice) {
                self.0.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.0.fetch_sub(before, Ordering::Relaxed);
        }
        if !say(Bytes::copy_from_slice(message)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The message for those that were left out since the client was last told.
    pub(crate) fn take(&self) -> Option<Bytes> {
        notice(self.0.swap(0, Ordering::Relaxed))
    }
}
