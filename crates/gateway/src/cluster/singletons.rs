//! Singleton servers: the lease of each, its effect on this replica, and the endpoint by which other replicas use the
//! servers that this one runs.
//!
//! `core::placement::exclusive` decides; a task per server performs its actions. The heartbeat renews the leases. The
//! links to the servers are in the library (`gripfast::singleton`).

use super::forward::{PRINCIPAL, caller_header, covered_headers};
use super::{Member, StoreState};
use crate::mcp::registration::RELAYED_CLIENT;
use crate::mcp::{Gateway, Limits, TokenCipher};
use crate::server::quota::Peer;
use axum::body::Body;
use axum::response::Response;
use gripfast::placement::exclusive::{ClaimReply, ExclusiveLease, LeaseAction, LeaseInput, StopCause};
use gripfast::placement::heartbeat::StoreUnreachable;
use gripfast::placement::place::{BootId, OwnerEpoch};
use gripfast::placement::term::{LeaseNow, LeaseSpec};
use gripfast::singleton::{
    ReplicaEndpoint, ReplicaSigner, ServerLease, SingletonPlace, SingletonServer, renew_child_leases,
};
use gripfast::sync::Mutex;
use gripfast::{Host, Principal};
use gripfast_cluster::forward::{FORWARD_HEADER, ForwardedRequest, VerifiedForward};
use gripfast_cluster::lease_now;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Beginning of the path of a server at the replica that runs it.
pub(super) const SERVERS_PATH: &str = "/servers/";

/// The timers stand still while the machine sleeps, so the clocks are read often.
const CLOCK_CHECK: Duration = Duration::from_millis(250);
/// Time for a server to be listed before another replica is told to wait.
const LISTING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the processes of a server to end after they were killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The singleton servers of this replica.
#[derive(Default)]
pub(super) struct Singletons {
    /// By the name of the lease.
    leases: Mutex<BTreeMap<String, Arc<SingletonLease>>>,
    tasks: TaskTracker,
    /// Cancelled when this replica leaves the service.
    leaving: CancellationToken,
    /// The endpoints of the servers that this replica runs, by server.
    endpoints: Mutex<BTreeMap<String, Arc<Gateway>>>,
    limits: std::sync::OnceLock<Limits>,
}

/// The lease of one server at this replica.
struct SingletonLease {
    machine: Mutex<ExclusiveLease>,
    digest: String,
    wake: Notify,
}

impl ServerLease for SingletonLease {
    fn may_act(&self) -> bool {
        self.machine.lock().may_act(lease_now()).is_some()
    }
}

impl SingletonLease {
    fn handle(&self, input: LeaseInput) {
        self.machine.lock().handle(lease_now(), input);
    }
}

impl Singletons {
    /// The leases that the next heartbeat renews.
    pub(super) fn renewals(&self) -> Vec<(String, OwnerEpoch)> {
        let leases = self.leases.lock();
        let renewal = |(name, lease): (&String, &Arc<SingletonLease>)| {
            Some((name.clone(), lease.machine.lock().renewal()?))
        };
        leases.iter().filter_map(renewal).collect()
    }

    /// Applies the result of a heartbeat that was sent at `sent`.
    pub(super) fn renewed(&self, sent: LeaseNow, renewed: &[(String, OwnerEpoch)], lost: &[String]) {
        if renewed.is_empty() {
            return;
        }
        let leases = self.leases.lock().clone();
        for (name, epoch) in renewed {
            let Some(lease) = leases.get(name) else { continue };
            lease.handle(match lost.contains(name) {
                true => LeaseInput::Lost { epoch: *epoch },
                false => LeaseInput::Renewed { sent, epoch: *epoch },
            });
        }
        self.renew_watcher();
    }

    /// Lets the watcher process wait until the first lease ends that this replica holds.
    fn renew_watcher(&self) {
        let leases: Vec<_> = self.leases.lock().values().cloned().collect();
        let left = || {
            let now = lease_now();
            let left = |lease: &Arc<SingletonLease>| {
                let machine = lease.machine.lock();
                machine.may_act(now).map(|_| machine.left(now))
            };
            leases.iter().filter_map(left).min()
        };
        // Without a lease there is nothing to renew, and the process is ended anyway.
        if left().is_some() {
            renew_child_leases(&|| left().unwrap_or_default());
        }
    }

    /// Lets all tasks look at the clock and at the replicas.
    pub(super) fn wake(&self) {
        self.leases.lock().values().for_each(|lease| lease.wake.notify_one());
    }

    /// Ends the endpoint of a server that this replica no longer runs.
    fn close_endpoint(&self, server: &str) {
        if let Some(endpoint) = self.endpoints.lock().remove(server) {
            endpoint.begin_shutdown();
        }
    }
}

impl Member {
    /// Claims and runs the singleton servers of `host`, from now on.
    pub(crate) fn run_singletons(self: &Arc<Self>, host: &Host, limits: &Limits) {
        let Some(mut servers) = host.take_singletons() else { return };
        let client = gripfast::config::ClientLimits {
            // Other replicas have limited their clients.
            in_flight_per_client: limits.client.in_flight,
            memory_per_client: limits.client.memory,
            suspended_calls_per_client: limits.client.suspended_calls,
            ..limits.client
        };
        let _ = self.singletons.limits.set(Limits { client, status_tool: false, ..limits.clone() });
        let member = Arc::clone(self);
        self.singletons.tasks.spawn(async move {
            let leaving = member.singletons.leaving.clone();
            let mut turns: BTreeMap<String, Arc<tokio::sync::Mutex<()>>> = BTreeMap::new();
            while let Some(Some(server)) = leaving.run_until_cancelled(servers.recv()).await {
                // A server with a changed config waits until the one before has given its lease back.
                let turn = Arc::clone(turns.entry(server.name().to_owned()).or_default());
                let member = Arc::clone(&member);
                let tasks = member.singletons.tasks.clone();
                tasks.spawn(async move {
                    let _turn = turn.lock().await;
                    SingletonTask::new(member, server).run().await;
                });
            }
        });
    }

    /// Gives all singleton servers back, so that other replicas start them at once.
    pub(crate) async fn release_singletons(&self) {
        self.singletons.leaving.cancel();
        self.singletons.tasks.close();
        self.singletons.tasks.wait().await;
    }

    /// The endpoint of a server for another replica. `rest` is the path: name, digest of the config, and the client of
    /// a dedicated instance.
    pub(super) fn relay(&self, rest: &str, forward: &VerifiedForward) -> Result<Relay, String> {
        let mut parts = rest.splitn(3, '/');
        let (Some(server), Some(digest)) = (parts.next(), parts.next()) else {
            return Err("the path names no server".to_owned());
        };
        let lease = self.singletons.leases.lock().get(&lease_name(server)).cloned();
        let lease = lease.ok_or_else(|| "it does not have the server".to_owned())?;
        if lease.digest != digest {
            return Err("it runs the server with another config".to_owned());
        }
        if lease.machine.lock().may_act(lease_now()) != Some(forward.epoch) {
            return Err("it does not run the server".to_owned());
        }
        let client = parts.next().map(|client| format!("{} {client}", forward.from));
        let client = client.and_then(|client| HeaderValue::try_from(client).ok());
        Ok(Relay { endpoint: self.endpoint(server)?, client })
    }

    fn endpoint(&self, server: &str) -> Result<Arc<Gateway>, String> {
        let host = self.gateway().ok_or("it shuts down")?.host.clone();
        let mut endpoints = self.singletons.endpoints.lock();
        if let Some(endpoint) = endpoints.get(server).filter(|known| known.host.is_current_view(&host)) {
            return Ok(Arc::clone(endpoint));
        }
        let view = host.server_view(server).map_err(|error| error.text)?;
        // Its own key: an id that it issues is an id of the server for all replicas.
        let cipher = TokenCipher::ephemeral().map_err(|error| error.to_string())?;
        let limits = self.singletons.limits.get().cloned().unwrap_or_default();
        let endpoint = Gateway::new(view, cipher, &limits);
        endpoints.insert(server.to_owned(), Arc::clone(&endpoint));
        Ok(endpoint)
    }
}

fn lease_name(server: &str) -> String {
    format!("server:{server}")
}

/// 421: nothing was done, for this reason.
pub(super) fn not_performed(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response
}

/// A request of another replica to a server that this one runs.
pub(super) struct Relay {
    endpoint: Arc<Gateway>,
    client: Option<HeaderValue>,
}

impl Relay {
    pub(super) async fn serve<B>(self, mut request: Request<B>, peer: Peer) -> Response
    where
        B: http_body::Body<Data = bytes::Bytes> + Unpin,
    {
        // Without a catalog the other replica would get the wrong capabilities.
        if let Err(error) = self.endpoint.host.until_viewed(LISTING_TIMEOUT).await {
            return not_performed(error.text);
        }
        request.headers_mut().remove(RELAYED_CLIENT);
        if let Some(client) = self.client {
            request.headers_mut().insert(RELAYED_CLIENT, client);
        }
        self.endpoint.serve(request, peer).await
    }
}

/// Performs the actions of one lease.
struct SingletonTask {
    member: Arc<Member>,
    server: Arc<SingletonServer>,
    lease: Arc<SingletonLease>,
    /// The other replica that runs the server.
    holder: Option<(BootId, OwnerEpoch)>,
    reason: String,
}

impl SingletonTask {
    fn new(member: Arc<Member>, server: Arc<SingletonServer>) -> Self {
        let spec: LeaseSpec = member.settings.lease;
        let lease = Arc::new(SingletonLease {
            machine: Mutex::new(ExclusiveLease::new(spec, lease_now())),
            digest: server.digest().to_owned(),
            wake: Notify::new(),
        });
        Self { member, server, lease, holder: None, reason: String::new() }
    }

    async fn run(mut self) {
        let name = lease_name(self.server.name());
        self.member.singletons.leases.lock().insert(name.clone(), Arc::clone(&self.lease));
        self.lease.handle(LeaseInput::Wanted);
        loop {
            let is_wanted = !self.server.is_removed() && !self.member.singletons.leaving.is_cancelled();
            self.lease.handle(if is_wanted { LeaseInput::Wanted } else { LeaseInput::Unwanted });
            while let Some(action) = self.next_action() {
                Box::pin(self.perform(&name, action)).await;
            }
            let is_overdue = self.lease.machine.lock().is_stop_overdue();
            // The next config of the server must not start beside a process that could not be ended.
            if !is_wanted && (!is_overdue || self.member.singletons.leaving.is_cancelled()) {
                break;
            }
            if self.holder.is_some_and(|(boot, _)| !self.member.is_live(boot)) {
                self.holder = None;
                self.set_unknown(
                    "the replica that ran it is lost; another one starts it when its lease ends",
                );
            }
            let due = self.lease.machine.lock().poll_timeout(lease_now()).unwrap_or(CLOCK_CHECK);
            tokio::select! {
                () = tokio::time::sleep(due.min(CLOCK_CHECK)) => {}
                () = self.lease.wake.notified() => {}
                () = self.server.removed(), if is_wanted => {}
                () = self.member.singletons.leaving.cancelled() => {}
                () = self.server.until_stopped(), if is_overdue => self.lease.handle(LeaseInput::Stopped),
            }
        }
        self.member.singletons.leases.lock().remove(&name);
    }

    fn next_action(&self) -> Option<LeaseAction> {
        let mut machine = self.lease.machine.lock();
        machine.handle_timeout(lease_now());
        machine.poll_action()
    }

    async fn perform(&mut self, name: &str, action: LeaseAction) {
        match action {
            LeaseAction::Claim { above } => {
                let reply = self.claim(name, above).await;
                self.lease.handle(LeaseInput::ClaimEnded(reply));
            }
            LeaseAction::Start { .. } => {
                let server = self.server.name();
                tracing::info!(server, "this replica runs the server `{server}` now");
                self.member.singletons.renew_watcher();
                self.holder = None;
                self.reason.clear();
                let replica = self.member.place.name.to_string();
                let lease = Arc::clone(&self.lease) as Arc<dyn ServerLease>;
                self.set_place(SingletonPlace::Here { replica, lease });
            }
            LeaseAction::Stop { cause, .. } => {
                let (server, reason) = (self.server.name().to_owned(), self.stop_reason(cause));
                match cause {
                    StopCause::LetGo => {
                        tracing::info!(server, "this replica stops the server `{server}`: {reason}");
                    }
                    StopCause::Ending | StopCause::Lost => {
                        tracing::warn!(server, "this replica stops the server `{server}`: {reason}");
                    }
                }
                self.set_unknown(&reason);
                self.member.singletons.close_endpoint(&server);
                let ended = await_stop(self.server.until_stopped()).await;
                if ended == LeaseInput::StopOverdue {
                    tracing::error!(
                        server,
                        "the process of the server `{server}` does not end, although it was killed; its lease ends by time, \
                         and another replica starts the server then; look at the process with `ps -o pid,stat,wchan`, and \
                         restart this machine if it does not end"
                    );
                }
                self.lease.handle(ended);
            }
            LeaseAction::Release { epoch } => {
                if let Ok(store) = self.member.joined_store()
                    && let Err(error) = store.release(name, epoch).await
                {
                    tracing::debug!("a lease is not given back, and ends by time: {error}");
                }
                self.lease.handle(LeaseInput::ReleaseEnded);
            }
        }
    }

    fn stop_reason(&self, cause: StopCause) -> String {
        match (cause, self.member.store_state()) {
            (StopCause::Ending, StoreState::Unreachable(error) | StoreState::NotJoined(error)) => {
                format!("its lease has ended, because the store did not renew it: {error}")
            }
            (StopCause::Ending, StoreState::Reachable) => {
                "its lease has ended: this gateway did not renew it in time".to_owned()
            }
            (StopCause::Lost, _) => "another replica runs it".to_owned(),
            (StopCause::LetGo, _) => "this replica gives it up".to_owned(),
        }
    }

    async fn claim(&mut self, name: &str, above: OwnerEpoch) -> Result<ClaimReply, StoreUnreachable> {
        let reply = match self.member.joined_store() {
            Ok(store) => store.claim(name, above).await,
            Err(error) => Err(error),
        };
        match &reply {
            Ok(ClaimReply::Taken { .. }) => self.find_holder(name).await,
            Ok(ClaimReply::Grace { .. }) => {
                self.set_unknown(
                    "the store was away or is new: replicas wait for one lease before they start it",
                );
            }
            Ok(ClaimReply::Claimed { .. }) => {}
            // The replica that runs it is still used: it knows best how long it may.
            Err(error) if self.holder.is_none() => self.set_unknown(&error.to_string()),
            Err(_) => {}
        }
        reply.map_err(|_| StoreUnreachable)
    }

    /// Finds the replica that holds the lease.
    async fn find_holder(&mut self, name: &str) {
        let Ok(store) = self.member.joined_store() else { return };
        let Ok(Some(owner)) = store.lease_holder(name).await else { return };
        let known = (owner.place.boot, owner.epoch);
        if self.holder == Some(known) {
            return;
        }
        let Some(replica) = self.member.live_replica(owner.place.boot) else {
            return self.set_unknown(&format!("replica `{}` has it and is not known yet", owner.place.name));
        };
        let path = format!("{SERVERS_PATH}{}/{}", self.server.name(), self.server.digest());
        let Ok(url) = format!("{}{path}", replica.address).parse() else { return };
        let member = Arc::downgrade(&self.member);
        let signer = Arc::new(HolderSigner { member, to: owner.place.boot, epoch: owner.epoch });
        self.holder = Some(known);
        self.reason.clear();
        let replica = owner.place.name.to_string();
        self.set_place(SingletonPlace::Elsewhere(ReplicaEndpoint { replica, url, signer }));
    }

    fn set_unknown(&mut self, reason: &str) {
        if self.reason != reason {
            reason.clone_into(&mut self.reason);
            self.server.set_place(SingletonPlace::Unknown(reason.to_owned()));
            self.retry_connection();
        }
    }

    fn set_place(&self, place: SingletonPlace) {
        self.server.set_place(place);
        self.retry_connection();
    }

    fn retry_connection(&self) {
        if let Some(gateway) = self.member.gateway() {
            // Fails only if the server has been removed meanwhile.
            let _ = gateway.host.retry_connection(self.server.name());
        }
    }
}

/// Waits until the work has ended. The kernel may not end a process that waits for a device.
async fn await_stop(stopped: impl Future<Output = ()>) -> LeaseInput {
    match tokio::time::timeout(STOP_TIMEOUT, stopped).await {
        Ok(()) => LeaseInput::Stopped,
        Err(_) => LeaseInput::StopOverdue,
    }
}

/// Seals requests to the replica that runs a server.
struct HolderSigner {
    member: Weak<Member>,
    to: BootId,
    epoch: OwnerEpoch,
}

impl ReplicaSigner for HolderSigner {
    fn principal_headers(&self, principal: Option<&Principal>) -> Vec<(String, String)> {
        vec![(PRINCIPAL.as_str().to_owned(), caller_header(principal))]
    }

    fn seal(
        &self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Vec<(HeaderName, HeaderValue)> {
        let Some(member) = self.member.upgrade() else { return Vec::new() };
        let named = headers.get(PRINCIPAL).and_then(|value| value.to_str().ok());
        let principal = named.map_or_else(|| caller_header(None), str::to_owned);
        let covered = covered_headers(headers);
        let request = ForwardedRequest {
            method,
            path,
            query: None,
            headers: &covered,
            principal: &principal,
            credential: "",
            era: "",
        };
        let seal = member.sealer.seal(self.to, self.epoch, &request, body);
        let seal =
            HeaderValue::try_from(seal).ok().map(|seal| (HeaderName::from_static(FORWARD_HEADER), seal));
        let principal = named.is_none().then(|| HeaderValue::try_from(principal).ok()).flatten();
        seal.into_iter().chain(principal.map(|principal| (PRINCIPAL, principal))).collect()
    }

    fn is_authentic(
        &self,
        seal: &[(HeaderName, HeaderValue)],
        status: StatusCode,
        headers: &HeaderMap,
    ) -> bool {
        let Some(member) = self.member.upgrade() else { return false };
        let seal = seal.iter().find(|(name, _)| name.as_str() == FORWARD_HEADER);
        let seal = seal.and_then(|(_, value)| value.to_str().ok()).unwrap_or_default();
        member.is_authentic_reply(self.to, seal, status, headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_end_is_not_reported_as_stopped() {
        assert_eq!(await_stop(std::future::ready(())).await, LeaseInput::Stopped);
        assert_eq!(await_stop(std::future::pending()).await, LeaseInput::StopOverdue);
    }
}
