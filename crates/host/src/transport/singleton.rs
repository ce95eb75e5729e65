//! Links to a singleton server: to the server itself at the replica that runs it, and to that replica from the others.
//! A link ends when the server moves.

use super::http::{HttpClient, HttpLink};
use super::inbox::{Inbox, Incoming, LinkContext};
use super::{
    BoxFuture, Dialer, Link, LinkInfo, Outgoing, RenewOutcome, Reply, Route, SendError, Session,
    UnsolicitedStream,
};
use crate::singleton::{PlaceTerm, ReplicaEndpoint, ServerLease, SingletonPlace, SingletonServer};
use crate::sync::Mutex;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::ids::ClientKey;
use gripfast_core::redact::KnownSecrets;
use gripfast_core::supervise::upstream::{CloseMode, LinkKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Dialer of a singleton server.
pub(crate) struct SingletonDialer {
    server: Arc<SingletonServer>,
    /// Opens links to the server itself.
    target: Arc<dyn Dialer>,
    /// The last link to the server itself of each instance: the next one is opened after it is closed.
    last: Mutex<BTreeMap<Option<ClientKey>, Weak<SingletonLink>>>,
}

/// Time for the calls in flight on a link that is replaced.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);

impl SingletonDialer {
    pub(crate) fn new(server: Arc<SingletonServer>, target: Arc<dyn Dialer>) -> Self {
        Self { server, target, last: Mutex::default() }
    }

    fn is_here(&self) -> bool {
        matches!(self.server.place().place, SingletonPlace::Here { .. })
    }

    async fn open_here(
        &self,
        route: Route,
        context: LinkContext,
        lease: Arc<dyn ServerLease>,
        ended: CancellationToken,
    ) -> Result<Arc<dyn Link>, Evidence> {
        let running = self.server.local_links().token();
        let instance = context.dedicated_to.clone();
        let last = self.last.lock().get(&instance).and_then(Weak::upgrade);
        if let Some(last) = last {
            last.replace().await;
        }
        if !lease.may_act() {
            return Err(unplaced("the lease of this replica has ended"));
        }
        let inbox = context.inbox.clone();
        let context = LinkContext { is_leased: true, ..context };
        let opened = tokio::select! {
            biased;
            // A child that is just being started is killed.
            () = ended.cancelled() => return Err(unplaced("this replica no longer runs it")),
            opened = self.target.connect(route, context) => opened?,
        };
        let link = SingletonLink::new(opened, ended, inbox, LinkPlace::Here(lease), Some(running));
        let mut last = self.last.lock();
        last.retain(|_, link| link.strong_count() > 0);
        last.insert(instance, Arc::downgrade(&link));
        Ok(link)
    }

    fn open_elsewhere(
        &self,
        context: LinkContext,
        endpoint: &ReplicaEndpoint,
        ended: CancellationToken,
    ) -> Result<Arc<dyn Link>, Observed> {
        let mut url = endpoint.url.clone();
        if let (Some(client), Ok(mut path)) = (&context.dedicated_to, url.path_segments_mut()) {
            path.push(client.as_str());
        }
        let client = HttpClient::for_replica(&url, Arc::clone(&endpoint.signer))?;
        let inbox = context.inbox.clone();
        let link = Arc::new(HttpLink::new(client, url, context)?);
        Ok(SingletonLink::new(link, ended, inbox, LinkPlace::Elsewhere(endpoint.clone()), None))
    }
}

impl Drop for SingletonDialer {
    fn drop(&mut self) {
        self.server.mark_removed();
    }
}

fn unplaced(text: &str) -> Evidence {
    Evidence::unsent(During::Handshake, Observed::Unplaced(text.to_owned()))
}

impl Dialer for SingletonDialer {
    fn kind(&self) -> LinkKind {
        if self.is_here() { self.target.kind() } else { LinkKind::Remote }
    }

    fn routes(&self) -> Vec<Route> {
        if self.is_here() { self.target.routes() } else { vec![Route::Replica] }
    }

    fn connect(&self, route: Route, context: LinkContext) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        Box::pin(async move {
            let PlaceTerm { place, ended } = self.server.place();
            match (place, route) {
                (SingletonPlace::Unknown(reason), _) => Err(unplaced(&reason)),
                (SingletonPlace::Here { .. }, Route::Replica) => Err(unplaced("it moves to this replica")),
                (SingletonPlace::Here { lease, .. }, _) => {
                    Box::pin(self.open_here(route, context, lease, ended)).await
                }
                (SingletonPlace::Elsewhere(endpoint), Route::Replica) => self
                    .open_elsewhere(context, &endpoint, ended)
                    .map_err(|observed| Evidence::unsent(During::Handshake, observed)),
                (SingletonPlace::Elsewhere(_), _) => Err(unplaced("it moves to another replica")),
            }
        })
    }

    fn secrets(&self) -> BoxFuture<'_, KnownSecrets> {
        self.target.secrets()
    }

    fn renew_credential(&self) -> BoxFuture<'_, Result<RenewOutcome, Evidence>> {
        self.target.renew_credential()
    }

    fn credential_changed(&self) -> BoxFuture<'_, ()> {
        self.target.credential_changed()
    }

    fn holder(&self) -> Option<String> {
        self.server.holder()
    }
}

/// A link that ends when the server moves.
struct SingletonLink {
    link: Arc<dyn Link>,
    place: LinkPlace,
    /// Cancelled when the server moves.
    ended: CancellationToken,
    /// Cancelled when the link is closed or dropped.
    closed: CancellationToken,
    inbox: Inbox,
    /// Lasts until no process is left.
    running: Mutex<Option<TaskTrackerToken>>,
    /// Permits of the requests in flight; closed while the link is replaced.
    requests: tokio_util::task::TaskTracker,
}

enum LinkPlace {
    Here(Arc<dyn ServerLease>),
    Elsewhere(ReplicaEndpoint),
}

impl LinkPlace {
    fn reason(&self) -> String {
        match self {
            Self::Here(_) => "this replica no longer runs the server".to_owned(),
            Self::Elsewhere(endpoint) => format!("replica `{}` no longer runs the server", endpoint.replica),
        }
    }
}

impl SingletonLink {
    fn new(
        link: Arc<dyn Link>,
        ended: CancellationToken,
        inbox: Inbox,
        place: LinkPlace,
        running: Option<TaskTrackerToken>,
    ) -> Arc<Self> {
        let placed = Arc::new(Self {
            link,
            place,
            // A link that is replaced ends alone.
            ended: ended.child_token(),
            closed: CancellationToken::new(),
            inbox,
            running: Mutex::new(running),
            requests: tokio_util::task::TaskTracker::new(),
        });
        tokio::spawn(end_with_place(Arc::downgrade(&placed), placed.ended.clone(), placed.closed.clone()));
        placed
    }

    /// Lets the requests in flight finish, then ends the link, so that the next one can be opened.
    async fn replace(&self) {
        if self.closed.is_cancelled() {
            return;
        }
        self.requests.close();
        let _ = tokio::time::timeout(REPLACE_TIMEOUT, self.requests.wait()).await;
        self.ended.cancel();
        self.closed.cancelled().await;
    }

    fn lost(&self) -> Observed {
        Observed::Closed(self.place.reason())
    }

    /// Fails if the link may not be used any more. Nothing was sent then.
    fn check(&self, during: During) -> Result<(), Box<SendError>> {
        let has_lease = match &self.place {
            LinkPlace::Here(lease) => lease.may_act(),
            LinkPlace::Elsewhere(_) => true,
        };
        if has_lease && !self.ended.is_cancelled() && !self.requests.is_closed() {
            return Ok(());
        }
        Err(Evidence::unsent(during, self.lost()).into())
    }
}

impl Drop for SingletonLink {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Ends a link when its server moves.
async fn end_with_place(link: Weak<SingletonLink>, ended: CancellationToken, closed: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => {}
        () = closed.cancelled() => return,
    }
    let Some(link) = link.upgrade() else { return };
    let lost = Incoming::Lost(Evidence::sent(During::Call, link.lost()));
    // The process ends at once. The supervisor hears of it first, so that the loss is not taken for a crash.
    let close = async {
        link.link.close(None, CloseMode::Immediate).await;
        link.running.lock().take();
        link.closed.cancel();
    };
    tokio::join!(link.inbox.put(lost), close);
}

impl Link for SingletonLink {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        mut request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
        Box::pin(async move {
            let (during, sent) = (request.during, Arc::clone(&request.sent));
            self.check(during)?;
            let _in_flight = self.requests.token();
            if let LinkPlace::Elsewhere(endpoint) = &self.place {
                request.headers.extend(endpoint.signer.principal_headers(request.principal.as_ref()));
            }
            let answered = tokio::select! {
                biased;
                answered = self.link.request(session, request) => answered,
                () = self.ended.cancelled() => {
                    Err(Evidence { during, sent: sent.sent(), observed: self.lost() }.into())
                }
            };
            answered.map_err(|mut error| {
                if self.ended.is_cancelled() {
                    error.evidence.observed = self.lost();
                    error.answer = None;
                }
                self.misdirected(during, error)
            })
        })
    }

    fn send<'a>(
        &'a self,
        session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<SendError>>> {
        Box::pin(async move {
            self.check(During::Call)?;
            self.link.send(session, message).await
        })
    }

    fn listen(self: Arc<Self>, session: Arc<Session>) -> Option<UnsolicitedStream> {
        Arc::clone(&self.link).listen(session)
    }

    fn close<'a>(&'a self, session: Option<&'a Session>, manner: CloseMode) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::select! {
                () = self.link.close(session, manner) => {}
                // The server moves: there is no time for a graceful end.
                () = self.ended.cancelled() => self.closed.cancelled().await,
            }
            self.running.lock().take();
            self.closed.cancel();
        })
    }

    fn info(&self) -> LinkInfo {
        match &self.place {
            LinkPlace::Here(_) => self.link.info(),
            LinkPlace::Elsewhere(_) => LinkInfo::default(),
        }
    }

    fn resident_memory(&self) -> Option<u64> {
        self.link.resident_memory()
    }
}

impl SingletonLink {
    /// A replica that does not run the server answers 421, before it acts.
    fn misdirected(&self, during: During, mut error: Box<SendError>) -> Box<SendError> {
        const MISDIRECTED: u16 = 421;
        let (LinkPlace::Elsewhere(endpoint), Observed::Http(answer)) =
            (&self.place, &error.evidence.observed)
        else {
            return error;
        };
        if answer.status != MISDIRECTED {
            return error;
        }
        let text = answer.body.trim();
        let text = if text.is_empty() { "it does not run the server" } else { text };
        let text = format!("replica `{}`: {text}", endpoint.replica);
        let observed = match during {
            During::Handshake => Observed::Unplaced(text),
            During::Call | During::Probe => Observed::Closed(text),
        };
        error.evidence = Evidence::unsent(during, observed);
        error.answer = None;
        error
    }
}
