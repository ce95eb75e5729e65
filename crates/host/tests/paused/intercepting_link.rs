//! The in-memory server behind a link that intercepts some requests.

use crate::memory_server::MemoryServer;
use gripfast::transport::{
    BoxFuture, Dialer, Link, LinkContext, LinkInfo, Outgoing, RenewOutcome, Reply, Route, SendError, Session,
    UnsolicitedStream,
};
use gripfast_core::failure::Evidence;
use gripfast_core::supervise::upstream::{CloseMode, LinkKind};
use std::sync::Arc;

/// Result of one request.
pub(crate) type CallOutcome = BoxFuture<'static, Result<Reply, Box<SendError>>>;

/// Interceptor of requests to a server.
pub(crate) trait RequestInterceptor: Send + Sync + 'static {
    /// Result of a request that the server must not see; `None` to forward it.
    fn intercept(&self, request: &Outgoing<'_>) -> Option<CallOutcome>;

    /// Result of a credential renewal.
    fn renew(&self) -> RenewOutcome {
        RenewOutcome::NeedsPerson(None)
    }
}

/// A dialer whose links intercept requests.
pub(crate) struct InterceptedDialer<M>(pub(crate) MemoryServer, pub(crate) Arc<M>);

struct InterceptedLink<M>(Arc<dyn Link>, Arc<M>);

impl<M: RequestInterceptor> Dialer for InterceptedDialer<M> {
    fn kind(&self) -> LinkKind {
        self.0.kind()
    }

    fn routes(&self) -> Vec<Route> {
        self.0.routes()
    }

    fn connect(
        &self,
        route: Route,
        surroundings: LinkContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        Box::pin(async move {
            let link = self.0.connect(route, surroundings).await?;
            let link: Arc<dyn Link> = Arc::new(InterceptedLink(link, Arc::clone(&self.1)));
            Ok(link)
        })
    }

    fn renew_credential(&self) -> BoxFuture<'_, Result<RenewOutcome, Evidence>> {
        Box::pin(std::future::ready(Ok(self.1.renew())))
    }
}

impl<M: RequestInterceptor> Link for InterceptedLink<M> {
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>> {
        match self.1.intercept(&request) {
            Some(fate) => fate,
            None => self.0.request(session, request),
        }
    }

    fn send<'a>(
        &'a self,
        session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<SendError>>> {
        self.0.send(session, message)
    }

    fn listen(self: Arc<Self>, _session: Arc<Session>) -> Option<UnsolicitedStream> {
        None
    }

    fn close<'a>(&'a self, session: Option<&'a Session>, manner: CloseMode) -> BoxFuture<'a, ()> {
        self.0.close(session, manner)
    }

    fn info(&self) -> LinkInfo {
        self.0.info()
    }
}
