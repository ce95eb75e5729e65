//! The server in memory behind a link that does something else with some of the requests.

use crate::world::Server;
use gripfast::transport::{
    BoxFuture, Dialer, Link, LinkFacts, Listening, Outgoing, Renewed, Reply, Route, Session, Surroundings,
    Trouble,
};
use gripfast_core::failure::Evidence;
use gripfast_core::supervise::upstream::{LinkKind, Manner};
use std::sync::Arc;

/// What becomes of one request.
pub(crate) type Fate = BoxFuture<'static, Result<Reply, Box<Trouble>>>;

/// What is done to a server.
pub(crate) trait Meddler: Send + Sync + 'static {
    /// What becomes of a request, if the server is not to see it.
    fn meddle(&self, request: &Outgoing) -> Option<Fate>;

    /// Its credential was refused.
    fn renew(&self) -> Renewed {
        Renewed::NeedsPerson(None)
    }
}

/// A dialer whose links are meddled with.
pub(crate) struct Meddled<M>(pub(crate) Server, pub(crate) Arc<M>);

struct MeddledLink<M>(Arc<dyn Link>, Arc<M>);

impl<M: Meddler> Dialer for Meddled<M> {
    fn kind(&self) -> LinkKind {
        self.0.kind()
    }

    fn routes(&self) -> Vec<Route> {
        self.0.routes()
    }

    fn open(
        &self,
        route: Route,
        surroundings: Surroundings,
    ) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        Box::pin(async move {
            let link = self.0.open(route, surroundings).await?;
            let link: Arc<dyn Link> = Arc::new(MeddledLink(link, Arc::clone(&self.1)));
            Ok(link)
        })
    }

    fn renew_credential(&self) -> BoxFuture<'_, Result<Renewed, Evidence>> {
        Box::pin(std::future::ready(Ok(self.1.renew())))
    }
}

impl<M: Meddler> Link for MeddledLink<M> {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing,
    ) -> BoxFuture<'a, Result<Reply, Box<Trouble>>> {
        match self.1.meddle(&request) {
            Some(fate) => fate,
            None => self.0.request(session, request),
        }
    }

    fn send<'a>(&'a self, session: &'a Session, message: Vec<u8>) -> BoxFuture<'a, Result<(), Box<Trouble>>> {
        self.0.send(session, message)
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<Listening> {
        None
    }

    fn close<'a>(&'a self, session: Option<&'a Session>, manner: Manner) -> BoxFuture<'a, ()> {
        self.0.close(session, manner)
    }

    fn facts(&self) -> LinkFacts {
        self.0.facts()
    }
}
