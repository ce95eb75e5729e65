//! Heartbeat of this replica, on a thread and a connection of its own: neither a busy runtime nor a slow command on the
//! other connection delays it.

use crate::connection::{Connection, Script};
use crate::moved::read_notice;
use crate::record::ReplicaRecord;
use crate::store::{Store, StoreSettings, millis};
use crate::{StoreError, lease_now};
use gripfast_core::placement::heartbeat::{Heartbeat, HeartbeatReply, HeartbeatTicket, StoreUnreachable};
use gripfast_core::placement::place::{BootId, OwnerEpoch, StoreTime};
use gripfast_core::placement::term::LeaseNow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/heartbeat.lua")))
});
static LEAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/leave.lua")))
});

/// Notices of takeovers that one heartbeat returns, roughly.
const NOTICES: u32 = 1_000;

/// The content of one heartbeat.
#[derive(Debug, Clone)]
pub struct HeartbeatRequest {
    /// The record of this replica.
    pub record: ReplicaRecord,
    /// The exclusive leases that this replica holds, with their epochs.
    pub leases: Vec<(String, OwnerEpoch)>,
    /// The notices of takeovers that the replica has received with the last heartbeat.
    pub acknowledged: TakeoverNotices,
}

/// Notices of takeovers in the form of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakeoverNotices(Vec<(String, String)>);

/// The result of one heartbeat.
#[derive(Debug, Clone)]
pub struct HeartbeatSuccess {
    /// The part that the machines of `core` take.
    pub reply: HeartbeatReply,
    /// The records of all live replicas, this one included.
    pub records: Vec<ReplicaRecord>,
    /// The takeovers of `reply` in the form of the store, for the next heartbeat to acknowledge.
    pub notices: TakeoverNotices,
    /// Records without a valid MAC, or of a newer format.
    pub unreadable_records: usize,
    /// The revision number of each shared table.
    pub revisions: BTreeMap<String, u64>,
    /// The service marker as it is stored; empty if the store has none. [`crate::marker::ServiceMarker::read`] reads it.
    pub marker: String,
}

/// The receiver of heartbeats' results. Its methods are called on the heartbeat thread and must not wait.
pub trait HeartbeatHandler: Send + Sync + 'static {
    /// The content of the next heartbeat. It acknowledges the notices of the last one that succeeded.
    fn request(&self, acknowledged: TakeoverNotices) -> HeartbeatRequest;
    /// A heartbeat that was sent at `sent` succeeded.
    fn succeeded(&self, sent: LeaseNow, request: &HeartbeatRequest, success: HeartbeatSuccess);
    /// A heartbeat failed, or had no reply in time.
    fn failed(&self, error: &StoreError);
}

/// The heartbeat thread. Dropping it stops the thread without leaving the service: after a crash it looks the same.
#[derive(Debug)]
pub struct HeartbeatThread {
    stop: watch::Sender<Option<ThreadEnd>>,
    thread: Option<JoinHandle<()>>,
}

/// The way in which the thread ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadEnd {
    /// Removes the replica's record, so that others take over at once.
    Leave,
    /// Ends without a word.
    Silent,
}

impl HeartbeatThread {
    /// Starts the thread. Its first heartbeat is due at once.
    ///
    /// # Errors
    ///
    /// If the settings make no connection possible, or the system has no thread left.
    pub fn start(settings: &StoreSettings, handler: Arc<dyn HeartbeatHandler>) -> Result<Self, StoreError> {
        let sender = HeartbeatSender::new(settings)?;
        let (stop, stopped) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let failed = |error: std::io::Error| StoreError::Unreachable(error.to_string());
        let runtime = runtime.map_err(failed)?;
        let thread = std::thread::Builder::new().name("heartbeat".to_owned());
        let thread =
            thread.spawn(move || runtime.block_on(run(&sender, &*handler, stopped))).map_err(failed)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Removes the replica's record and ends the thread. Waits for both, for the time of a heartbeat at most.
    pub fn leave(mut self) {
        self.end(ThreadEnd::Leave);
    }

    fn end(&mut self, end: ThreadEnd) {
        self.stop.send_replace(Some(end));
        if let Some(thread) = self.thread.take() {
            // It panics only if the handler does, which has been reported by then.
            let _ = thread.join();
        }
    }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(ThreadEnd::Silent);
        }
    }
}

async fn run(
    sender: &HeartbeatSender,
    handler: &dyn HeartbeatHandler,
    mut stopped: watch::Receiver<Option<ThreadEnd>>,
) {
    let mut heartbeat = Heartbeat::new(sender.settings.spec);
    let mut notices = TakeoverNotices::default();
    let end = loop {
        if let Some(ticket) = heartbeat.poll(lease_now()) {
            tokio::select! {
                () = beat(sender, handler, &mut heartbeat, &mut notices, ticket) => {}
                end = stop_signal(&mut stopped) => break end,
            }
        }
        // The timer stands still while the machine sleeps, so the clocks are read often.
        let pause = heartbeat.poll_timeout(lease_now()).min(Duration::from_millis(250));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            end = stop_signal(&mut stopped) => break end,
        }
    };
    if end == ThreadEnd::Leave {
        let limit = sender.settings.spec.heartbeat();
        // Without it the record ends by time.
        let _ = tokio::time::timeout(limit, sender.leave()).await;
    }
}

async fn stop_signal(stopped: &mut watch::Receiver<Option<ThreadEnd>>) -> ThreadEnd {
    let end = stopped.wait_for(Option::is_some).await;
    end.ok().and_then(|end| *end).unwrap_or(ThreadEnd::Silent)
}

async fn beat(
    sender: &HeartbeatSender,
    handler: &dyn HeartbeatHandler,
    heartbeat: &mut Heartbeat,
    notices: &mut TakeoverNotices,
    ticket: HeartbeatTicket,
) {
    let request = handler.request(notices.clone());
    let limit = sender.settings.spec.heartbeat();
    let result = tokio::time::timeout(limit, sender.send(&request)).await;
    let result = result.unwrap_or_else(|_| Err(StoreError::Unreachable("no reply in time".to_owned())));
    let counts = heartbeat.ended(ticket, result.as_ref().map(|_| ()).map_err(|_| StoreUnreachable));
    match result {
        Ok(success) if counts => {
            notices.clone_from(&success.notices);
            handler.succeeded(ticket.sent, &request, success);
        }
        Ok(_) => handler.failed(&StoreError::Unreachable("the reply came too late".to_owned())),
        Err(error) => handler.failed(&error),
    }
}

/// Sends heartbeats over a connection of its own.
#[derive(Debug)]
pub(crate) struct HeartbeatSender {
    settings: StoreSettings,
    connection: Connection,
    /// Check values of all keys. The marker of the service has one of them.
    key_checks: String,
}

type RawReply =
    (u64, u64, Vec<String>, Vec<(String, String)>, Vec<String>, u64, u64, BTreeMap<String, u64>, String);

impl HeartbeatSender {
    pub(crate) fn new(settings: &StoreSettings) -> Result<Self, StoreError> {
        let connection = Connection::new(&settings.url, settings.spec.heartbeat())?;
        let key_checks = settings.keys.check_values().join(" ");
        Ok(Self { settings: settings.clone(), connection, key_checks })
    }

    pub(crate) async fn send(&self, request: &HeartbeatRequest) -> Result<HeartbeatSuccess, StoreError> {
        let spec = self.settings.spec;
        let mut script = HEARTBEAT.prepare_invoke();
        script.arg(self.settings.namespace.prefix()).arg(self.settings.place.to_string());
        script.arg(request.record.seal(&self.settings.keys));
        script.arg(millis(spec.lease)).arg(millis(spec.grace())).arg(NOTICES);
        script.arg(self.key_checks.as_str()).arg(request.leases.len());
        for (name, epoch) in &request.leases {
            script.arg(name).arg(epoch.number());
        }
        for (session, owner) in &request.acknowledged.0 {
            script.arg(session).arg(owner);
        }
        let (since, last_takeover, lost, taken, stored, grace, time, revisions, marker): RawReply =
            self.connection.run(&script).await?;
        let open = |stored: &String| {
            let (boot, sealed) = stored.split_once(' ')?;
            ReplicaRecord::open(&self.settings.keys, BootId::parse(boot)?, sealed).ok()
        };
        let records: Vec<ReplicaRecord> = stored.iter().filter_map(open).collect();
        Ok(HeartbeatSuccess {
            reply: HeartbeatReply {
                record_since: StoreTime::from_micros(since),
                last_takeover: OwnerEpoch::from_number(last_takeover),
                lost,
                taken: taken.iter().filter_map(|(session, owner)| read_notice(session, owner)).collect(),
                replicas: records.iter().map(ReplicaRecord::live).collect(),
                grace_left: Duration::from_millis(grace),
                store_time: StoreTime::from_micros(time),
            },
            notices: TakeoverNotices(taken),
            unreadable_records: stored.len() - records.len(),
            records,
            revisions,
            marker,
        })
    }

    async fn leave(&self) -> Result<(), StoreError> {
        let mut script = LEAVE.prepare_invoke();
        script.arg(self.settings.namespace.prefix()).arg(self.settings.place.to_string());
        script.arg(millis(self.settings.spec.lease));
        self.connection.run(&script).await
    }
}

impl Store {
    /// Sends one heartbeat over a connection of its own, to join before the thread is started.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn heartbeat(&self, request: &HeartbeatRequest) -> Result<HeartbeatSuccess, StoreError> {
        HeartbeatSender::new(&self.settings)?.send(request).await
    }
}
