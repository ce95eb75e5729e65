//! Listing the catalog of an upstream: reads every page of every list, compares it with the known catalog, stores and
//! publishes it.

use super::call::is_response_too_deep;
use super::list_ttl::ListTtls;
use super::{Connection, Upstream};
use crate::shared_state::{SharedState, StateError};
use crate::transport::{Outgoing, Route, SendError};
use futures_util::FutureExt;
use gripfast_core::cache::Freshness;
use gripfast_core::catalog::{Catalog, Item};
use gripfast_core::event::Event;
use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::failure::{During, Evidence, Failure, Observed, RpcError};
use gripfast_core::ids::Epoch;
use gripfast_core::supervise::upstream::Input;
use gripfast_wire::envelope::{self, Message};
use gripfast_wire::era::RequestContext;
use gripfast_wire::headers::{self, ParamHeaders};
use gripfast_wire::patch::{Object, Patch};
use gripfast_wire::results::{List, Page, Tool};
use gripfast_wire::{Era, Json, Outcome, codes};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The known catalog of an upstream.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    pub(crate) catalog: Arc<Catalog>,
    /// Origin of the catalog.
    pub(crate) origin: ListingOrigin,
    /// The era of the server when it was listed.
    pub(crate) era: Era,
    /// Tools whose arguments must be repeated in headers (modern era).
    pub(crate) param_headers: Arc<BTreeMap<String, ParamHeaders>>,
    /// TTLs of the lists.
    pub(crate) ttls: ListTtls,
    /// Lists that failed and were kept from before, with the reasons.
    pub(crate) missing: Option<String>,
    /// Number of the pin screening that produced the catalog.
    screened: u64,
}

/// Origin of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingOrigin {
    /// Never listed.
    Nothing,
    /// Stored in an earlier run.
    Stored,
    /// Listed from the server in this run.
    Server,
}

impl Listing {
    /// A stored catalog of a server that spoke this era.
    pub(crate) fn stored(catalog: Option<Arc<Catalog>>, era: Era) -> Self {
        let origin = if catalog.is_some() { ListingOrigin::Stored } else { ListingOrigin::Nothing };
        let catalog = catalog.unwrap_or_default();
        let (param_headers, ttls) = Default::default();
        Self { catalog, origin, era, param_headers, ttls, missing: None, screened: 0 }
    }

    /// Applies the result of a screening, unless a later one was applied: of two concurrent screenings, the one that
    /// began with older data may finish last. Returns true if it was applied.
    fn apply_screened(&mut self, number: u64, catalog: Arc<Catalog>) -> bool {
        let is_later = number > self.screened;
        if is_later {
            (self.screened, self.catalog) = (number, catalog);
        }
        is_later
    }
}

/// The items of a list and its TTL; `None` for a list that the server does not have.
type ListedItems = (Vec<Item>, Option<Freshness>);

/// Time that the other lists get before the tools are published without them.
const OTHER_LISTS_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for a new item to be pinned in the state that several hosts share, before the others are published without it.
/// Longer than a store refuses changes after it was away.
const PIN_TIMEOUT: Duration = Duration::from_secs(20);
/// A list with more pages is refused: the server's paging is broken.
const MAX_PAGES: usize = 1000;
/// A list with more items is refused: memory is limited.
const MAX_ITEMS: usize = 100_000;
/// Maximum size of the items and cursors of a list with several pages.
const MAX_BYTES: usize = 64 << 20;

impl Upstream {
    /// Returns true if the connection has to be listed. The shared instance lists the catalog; a dedicated one only
    /// needs its tools for the pin check, and the arguments that it wants in headers.
    pub(super) fn needs_listing(&self, connection: &Connection) -> bool {
        !self.role.is_dedicated() || self.pins.is_enabled() || may_need_headers(connection)
    }

    /// Lists the present connection. Tools are published before the other lists if those are slow, or if requesting
    /// them breaks the connection.
    pub(super) async fn list_current(&self, connection: &Connection) -> Result<Listing, Failure> {
        let publish = |tools: Listing| {
            if self.connection().is_some_and(|present| present.epoch == connection.epoch) {
                self.apply_listing(connection.epoch, tools);
                self.handle_input(Input::ToolsListed { epoch: connection.epoch });
                self.changed.notify_waiters();
            }
        };
        let listed = AssertUnwindSafe(self.list(connection, publish)).catch_unwind().await;
        listed.unwrap_or_else(|_| {
            Err(Failure::InvalidResponse("its lists could not be read completely".to_owned()))
        })
    }

    /// Lists all lists over a connection, or only the tools for a dedicated instance. A list that fails keeps its
    /// known items. `early` gets the tools if the other lists are slow.
    pub(super) async fn list(
        &self,
        connection: &Connection,
        early: impl FnOnce(Listing),
    ) -> Result<Listing, Failure> {
        let known = Arc::clone(&self.listing.borrow().catalog);
        let at = self.clock.mono();
        let (tools, of_tools) = self.list_one(connection, List::Tools).await?;
        let (tools, param_headers) = match connection.session.era {
            Era::Modern => with_param_headers(tools),
            Era::Legacy => (tools, BTreeMap::new()),
        };
        let undeclared = Some(Freshness::UNSPECIFIED);
        let (resources, templates, prompts) =
            (known.resources.clone(), known.templates.clone(), known.prompts.clone());
        let mut listing = Listing {
            catalog: Arc::new(Catalog { tools, resources, templates, prompts }),
            origin: ListingOrigin::Server,
            era: connection.session.era,
            param_headers: Arc::new(param_headers),
            ttls: ListTtls {
                listed_at: at,
                tools: of_tools,
                resources: undeclared,
                templates: undeclared,
                prompts: undeclared,
            },
            missing: None,
            screened: 0,
        };
        self.store_new_pins(connection, &listing.catalog).await;
        let mut early = Some(early);
        let mut publish_early = |listing: &Listing| {
            if let Some(early) = early.take() {
                early(listing.clone());
            }
        };
        let others = self.list_others(connection);
        tokio::pin!(others);
        let others = match tokio::time::timeout(OTHER_LISTS_TIMEOUT, &mut others).await {
            Ok(others) => others,
            Err(_) => {
                publish_early(&listing);
                others.await
            }
        };
        let catalog = Arc::make_mut(&mut listing.catalog);
        let ttls = &mut listing.ttls;
        let places = [
            (List::Resources, &mut catalog.resources, &mut ttls.resources),
            (List::ResourceTemplates, &mut catalog.templates, &mut ttls.templates),
            (List::Prompts, &mut catalog.prompts, &mut ttls.prompts),
        ];
        let (mut missing, mut link_failure) = (Vec::new(), None);
        for ((list, items, good_for), listed) in places.into_iter().zip(others) {
            match listed {
                Ok(listed) => (*items, *good_for) = listed,
                Err(failure) if concerns_link(&failure) => link_failure = Some(failure),
                // Refused by the server: the known items stay, and the list is not requested again.
                Err(Failure::Declined(_)) => {}
                Err(failure) => missing.push(format!("`{}`: {failure}", list.method())),
            }
        }
        if let Some(failure) = link_failure {
            publish_early(&listing);
            return Err(failure);
        }
        listing.missing = (!missing.is_empty()).then(|| missing.join("; "));
        self.store_new_pins(connection, &listing.catalog).await;
        Ok(listing)
    }

    /// Pins new items in the state that several hosts share, before they are offered.
    async fn store_new_pins(&self, connection: &Connection, catalog: &Catalog) {
        let instructions = connection.server.instructions.as_deref();
        self.pins.store_new(catalog, instructions, PIN_TIMEOUT).await;
    }

    /// Applies changes of the shared pins, and pins what could not be pinned before.
    pub(crate) async fn shared_pins_changed(&self) {
        self.screen_again();
        if !self.pins.has_unstored() {
            return;
        }
        if let (Some(connection), Some(catalog)) = (self.connection(), self.pins.last_catalog()) {
            self.store_new_pins(&connection, &catalog).await;
            self.screen_again();
        }
    }

    /// Approves in the shared state what [`Self::approve`] approves in this host.
    pub(crate) async fn approve_shared(
        &self,
        shared: &dyn SharedState,
        tool: Option<&str>,
        done: &[String],
    ) -> Result<Vec<String>, StateError> {
        let approved = self.pins.approve_shared(shared, tool, done).await?;
        if !approved.is_empty() {
            self.announce(self.clock.now(), Event::ToolsApproved { tools: approved.clone() });
            self.screen_again();
        }
        Ok(approved)
    }

    /// Lists everything except the tools, one list after another; stops after a failure of the connection.
    async fn list_others(&self, connection: &Connection) -> Vec<Result<ListedItems, Failure>> {
        let mut all = Vec::new();
        for list in [List::Resources, List::ResourceTemplates, List::Prompts] {
            let listed = self.list_one(connection, list).await;
            let ends = listed.as_ref().is_err_and(concerns_link);
            all.push(listed);
            if ends {
                break;
            }
        }
        all
    }

    /// Returns true if the server has this list and this instance needs it.
    fn is_wanted(&self, connection: &Connection, list: List) -> bool {
        let offers = connection.server.capabilities;
        let offered = match list {
            List::Tools => offers.tools,
            List::Resources | List::ResourceTemplates => offers.resources && !self.role.is_dedicated(),
            List::Prompts => offers.prompts && !self.role.is_dedicated(),
        };
        offered || (offers.undeclared && (list == List::Tools || !self.role.is_dedicated()))
    }

    /// The tools that want arguments in headers, fetched from the server now; none if the server cannot be listed.
    pub(super) async fn fetch_param_headers(
        &self,
        connection: &Connection,
    ) -> BTreeMap<String, ParamHeaders> {
        if !may_need_headers(connection) {
            return BTreeMap::new();
        }
        let (tools, _) = self.list_pages(connection, List::Tools).await.unwrap_or_default();
        with_param_headers(tools).1
    }

    /// Applies a new listing of the connection of this epoch.
    pub(super) fn apply_listing(&self, epoch: Epoch, listing: Listing) {
        if self.role.is_dedicated() {
            self.compare(listing);
        } else {
            self.publish(listing);
        }
        self.pins.mark_compared(epoch);
        self.changed.notify_waiters();
    }

    /// Compares the tools of a dedicated instance with the approved ones. The result is not shown to clients.
    fn compare(&self, listing: Listing) {
        let screened = self.pins.compare(listing.catalog);
        self.announce_pins(screened.events, screened.cause);
        self.listing.send_replace(Listing { catalog: Arc::default(), ..listing });
    }

    /// Publishes a listing, as far as it is approved, and stores it for the next start.
    fn publish(&self, mut listing: Listing) {
        let known = self.listing.borrow().clone();
        let store_is_new = self.store_is_new.swap(false, Ordering::AcqRel);
        let is_unchanged = self
            .pins
            .last_catalog()
            .is_some_and(|known_catalog| known_catalog.diff(&listing.catalog).is_empty());
        if known.origin == ListingOrigin::Nothing || store_is_new || !is_unchanged {
            self.deps().store.save_catalog(&listing.catalog);
        }
        self.cache.invalidate_server(&self.name);
        let screened = self.pins.screen(Arc::clone(&listing.catalog));
        listing.catalog = screened.catalog;
        let diff = known.catalog.diff(&listing.catalog);
        if !diff.is_empty() {
            let (added, removed, changed) = diff.counts();
            self.announce(self.clock.now(), Event::CatalogChanged { added, removed, changed });
        }
        self.announce_pins(screened.events, screened.cause);
        // Signalled while the listing is locked: a reader that sees the listing also sees the signal, and never takes
        // an older snapshot for the present one. An unchanged catalog causes no signal, because calls to all servers
        // would wait for the new snapshot.
        self.listing.send_modify(|known| {
            // An approval since then has screened this listing again.
            let later =
                (known.screened > screened.number).then(|| (known.screened, Arc::clone(&known.catalog)));
            let (number, catalog) = later.unwrap_or((screened.number, listing.catalog));
            let looks_unchanged = known.era == listing.era && known.catalog.is_identical(&catalog);
            let catalog = if looks_unchanged { Arc::clone(&known.catalog) } else { catalog };
            *known = Listing { catalog, screened: number, ..listing };
            if !looks_unchanged {
                self.change_signal.notify();
            }
        });
    }

    /// Screens the catalog again after a possible approval, here or in another process.
    pub(crate) fn screen_again(&self) {
        let Some(screened) = self.pins.screen_again() else { return };
        if !self.role.is_dedicated() {
            self.listing.send_if_modified(|known| {
                let differs = !known.catalog.diff(&screened.catalog).is_empty();
                let taken = known.apply_screened(screened.number, screened.catalog);
                if differs && taken {
                    self.change_signal.notify();
                }
                differs && taken
            });
        }
        self.announce_pins(screened.events, screened.cause);
    }

    /// Approves the present description of a tool, or of all changed tools except `done`. Returns their names.
    pub(crate) fn approve(&self, tool: Option<&str>, done: &[String]) -> Vec<String> {
        let approved = self.pins.approve(tool, done);
        if !approved.is_empty() {
            self.announce(self.clock.now(), Event::ToolsApproved { tools: approved.clone() });
            self.screen_again();
        }
        approved
    }

    pub(super) fn announce_pins(&self, events: Vec<Event>, cause: Option<String>) {
        for event in events {
            self.announce(self.clock.now(), event);
        }
        let cause = cause.map(|cause| self.secrets.mask(&cause));
        self.handle_input(Input::ApprovalNeeded { cause });
    }

    /// Fetches one list if it is needed. The call timeout limits all pages together, because each page has its own
    /// limit and there may be many.
    async fn list_one(&self, connection: &Connection, list: List) -> Result<ListedItems, Failure> {
        if !self.is_wanted(connection, list) {
            return Ok((Vec::new(), None));
        }
        let within = self.spec().supervision.timeouts.call;
        let listed = tokio::time::timeout(within, self.list_pages(connection, list)).await;
        listed.unwrap_or(Err(Failure::TimedOut(within)))
    }

    /// Fetches all pages of a list, and its TTL.
    async fn list_pages(&self, connection: &Connection, list: List) -> Result<ListedItems, Failure> {
        let mut items = Vec::new();
        let mut seen_keys = BTreeSet::new();
        let mut seen_cursors = BTreeSet::new();
        let mut cursor: Option<String> = None;
        let (mut bytes, mut ttls) = (0, Vec::new());
        for _ in 0..MAX_PAGES {
            let known = items.len();
            let page =
                self.list_page(connection, list, cursor.as_deref(), &mut items, &mut seen_keys).await?;
            let (next, good) = page.unwrap_or((None, Freshness::UNSPECIFIED));
            ttls.push(good);
            let Some(next) = next else { return Ok((items, Some(Freshness::combine(ttls)))) };
            if items.len() > MAX_ITEMS {
                return Err(Failure::InvalidResponse(format!(
                    "`{}` has more than {MAX_ITEMS} items",
                    list.method()
                )));
            }
            bytes += next.len() + items[known..].iter().map(|item| item.raw.get().len()).sum::<usize>();
            if bytes > MAX_BYTES {
                return Err(Failure::InvalidResponse(format!(
                    "`{}` is larger than {} MiB",
                    list.method(),
                    MAX_BYTES >> 20
                )));
            }
            if !seen_cursors.insert(next.clone()) {
                return Err(Failure::InvalidResponse(format!(
                    "`{}` returned the same cursor twice",
                    list.method()
                )));
            }
            cursor = Some(next);
        }
        Err(Failure::InvalidResponse(format!("`{}` has more than {MAX_PAGES} pages", list.method())))
    }

    /// Fetches one page. Returns the next cursor and the TTL, or `None` if the server does not know the list.
    async fn list_page(
        &self,
        connection: &Connection,
        list: List,
        cursor: Option<&str>,
        items: &mut Vec<Item>,
        seen: &mut BTreeSet<String>,
    ) -> Result<Option<(Option<String>, Freshness)>, Failure> {
        let params = cursor.map(|cursor| Patch::new().set_text("cursor", cursor).to_object());
        let message =
            match self.internal_request(connection, list.method(), params.as_deref(), During::Call).await {
                Ok(message) => message,
                Err(send_error) => {
                    return absent_list_or(self.secrets.classify(&send_error.evidence), &send_error)
                        .map(|()| None);
                }
            };
        let nonsense =
            |what: &str| Failure::InvalidResponse(format!("its answer to `{}` {what}", list.method()));
        let Ok(Message::Response(response)) = Message::parse(&message) else {
            return Err(nonsense("is not a JSON-RPC response"));
        };
        let result = match response.outcome {
            Outcome::Result(result) => result,
            Outcome::Error(error) => {
                let rpc_error = RpcError { code: error.code, message: error.message.into_owned() };
                let observed = Observed::Rpc { error: rpc_error, had_session: connection.has_session() };
                let send_error: Box<SendError> = Evidence::sent(During::Call, observed).into();
                return absent_list_or(self.secrets.classify(&send_error.evidence), &send_error)
                    .map(|()| None);
            }
        };
        let page = Page::read(result, list).map_err(|_| nonsense("is not a list"))?;
        for raw in page.items {
            let Some(item) = item(raw, list) else { continue };
            // Items with the same name cannot be distinguished; the first one is kept.
            if seen.insert(item.key.clone()) {
                items.push(item);
            }
        }
        Ok(Some((page.next_cursor.map(Into::into), crate::cache::freshness_from_wire(page.freshness))))
    }

    /// Sends a request of the host itself on a connection: without admission and not counted, but with a timeout.
    pub(super) async fn internal_request(
        &self,
        connection: &Connection,
        method: &str,
        params: Option<&Json>,
        during: During,
    ) -> Result<bytes::Bytes, Box<SendError>> {
        self.internal_request_with(connection, &connection.context, method, params, during).await
    }

    /// Like [`Upstream::internal_request`], with another modern context than usual.
    pub(super) async fn internal_request_with(
        &self,
        connection: &Connection,
        context: &RequestContext,
        method: &str,
        params: Option<&Json>,
        during: During,
    ) -> Result<bytes::Bytes, Box<SendError>> {
        self.request_of_ours(connection, context, method, params, Vec::new(), during).await
    }

    /// Calls a tool for the host itself, with arguments repeated in headers.
    pub(super) async fn internal_call(
        &self,
        connection: &Connection,
        params: &Json,
        param_headers: Vec<(String, String)>,
    ) -> Result<bytes::Bytes, Box<SendError>> {
        let (context, during) = (&connection.context, During::Call);
        self.request_of_ours(connection, context, "tools/call", Some(params), param_headers, during).await
    }

    async fn request_of_ours(
        &self,
        connection: &Connection,
        context: &RequestContext,
        method: &str,
        params: Option<&Json>,
        param_headers: Vec<(String, String)>,
        during: During,
    ) -> Result<bytes::Bytes, Box<SendError>> {
        let id = self.next_request_id();
        let with_context = match connection.session.era {
            Era::Modern => context.apply_to(params).ok(),
            Era::Legacy => None,
        };
        let request = Outgoing {
            id,
            method,
            message: envelope::request(id, method, with_context.as_deref().or(params)),
            name: name_header(connection, method, params),
            headers: param_headers,
            during,
            safety: crate::transport::Safety::of_method(method),
            sent: Arc::default(),
            principal: None,
            listener: None,
            memory: None,
        };
        let (rules, limit) = (self.spec().supervision.clone(), self.deps().max_nesting);
        let within = match during {
            // A paused server gets the configured keepalive timeout; the caller may give up sooner.
            During::Probe => rules.timeouts.connect.max(rules.keepalive.timeout),
            During::Handshake | During::Call => rules.timeouts.connect,
        };
        match tokio::time::timeout(within, connection.link.request(&connection.session, request)).await {
            Ok(Ok(reply)) if is_response_too_deep(&reply.message, limit) => {
                let text = format!("nested more than {limit} levels deep (`gateway.limits.nesting`)");
                Err(Evidence::sent(during, Observed::Malformed(text)).into())
            }
            Ok(reply) => reply.map(|reply| reply.message),
            Err(_) => Err(Evidence::sent(during, Observed::NoAnswer(within)).into()),
        }
    }
}

/// Returns true if arguments may have to be repeated in headers, which only a listing tells.
pub(super) fn may_need_headers(connection: &Connection) -> bool {
    connection.session.era == Era::Modern && matches!(connection.route, Route::Http | Route::Replica)
}

/// The name of the requested item, which a modern request repeats in a header.
fn name_header<'a>(
    connection: &Connection,
    method: &'a str,
    params: Option<&'a Json>,
) -> Option<Cow<'a, str>> {
    match connection.session.era {
        Era::Modern => headers::standard_headers(method, params).ok()?.name,
        Era::Legacy => None,
    }
}

/// Treats "method not found" as an empty list.
fn absent_list_or(failure: Failure, send_error: &SendError) -> Result<(), Failure> {
    let code = match &send_error.evidence.observed {
        Observed::Rpc { error, .. } => Some(error.code),
        Observed::Http(answer) => answer.rpc.as_ref().map(|rpc| rpc.code),
        _ => None,
    };
    match failure {
        Failure::Declined(_) if code == Some(codes::METHOD_NOT_FOUND) => Ok(()),
        failure => Err(failure),
    }
}

/// Returns true if the failure of one list concerns the connection, the session or the credential, which all lists
/// need.
fn concerns_link(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_) => true,
        Failure::TimedOut(_)
        | Failure::OutOfResources(_)
        | Failure::InsufficientScope(_)
        | Failure::Busy { .. }
        | Failure::ServerFault(_)
        | Failure::InvalidResponse(_)
        | Failure::HeaderMismatch(_)
        | Failure::Declined(_)
        | Failure::Blocked(_) => false,
    }
}

fn item(raw: &Json, list: List) -> Option<Item> {
    let key = Object::parse(raw).ok()?.text(list.item_key())?.into_owned();
    let hints = match list {
        List::Tools => {
            Tool::read(raw).ok().map(|tool| tool.hints).map_or_else(ToolHints::default, |hints| ToolHints {
                read_only: hints.read_only == Some(true),
                idempotent: hints.idempotent == Some(true),
                destructive: hints.destructive == Some(true),
            })
        }
        List::Resources | List::ResourceTemplates | List::Prompts => ToolHints::default(),
    };
    Some(Item { key, hints, raw: raw.to_owned() })
}

/// Parses a tool.
pub(crate) fn tool_item(raw: &Json) -> Option<Item> {
    item(raw, List::Tools)
}

/// Reads the header requirements of tools. A tool whose requirements cannot be met is left out.
fn with_param_headers(tools: Vec<Item>) -> (Vec<Item>, BTreeMap<String, ParamHeaders>) {
    let mut headers = BTreeMap::new();
    let usable = tools.into_iter().filter(|tool| {
        let schema = Tool::read(&tool.raw).ok().and_then(|tool| tool.input_schema.map(Json::to_owned));
        match schema.map(|schema| ParamHeaders::from_input_schema(&schema)) {
            None => true,
            Some(Ok(params)) => {
                if !params.is_empty() {
                    headers.insert(tool.key.clone(), params);
                }
                true
            }
            Some(Err(error)) => {
                tracing::warn!(tool = tool.key, %error, "tool left out: it needs headers that cannot be sent");
                false
            }
        }
    });
    let usable = usable.collect();
    (usable, headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_core::failure::classify::classify;
    use gripfast_core::json_text::JsonText;

    fn declined(code: i64) -> (Failure, Box<SendError>) {
        let rpc_error = RpcError { code, message: "the database is starting".to_owned() };
        let observed = Observed::Rpc { error: rpc_error, had_session: true };
        let send_error: Box<SendError> = Evidence::sent(During::Call, observed).into();
        (classify(&send_error.evidence), send_error)
    }

    #[test]
    fn b05_an_older_screening_that_finishes_late_does_not_replace_newer_tools() {
        let catalog = |key: &str| {
            let raw = JsonText::parse("{}".to_owned()).unwrap();
            let tool = Item { key: key.to_owned(), hints: ToolHints::default(), raw };
            Arc::new(Catalog { tools: vec![tool], ..Catalog::default() })
        };
        let mut listing = Listing::stored(Some(catalog("stored")), Era::Legacy);
        assert!(listing.apply_screened(2, catalog("new")));
        assert!(!listing.apply_screened(1, catalog("old")), "started before, finished after");
        assert_eq!(listing.catalog.tools[0].key, "new");
        assert!(listing.apply_screened(3, catalog("approved")));
        assert_eq!(listing.catalog.tools[0].key, "approved");
    }

    #[test]
    fn b05_an_unknown_list_is_empty_and_a_temporary_error_keeps_the_known_items() {
        let (failure, send_error) = declined(codes::METHOD_NOT_FOUND);
        assert_eq!(absent_list_or(failure, &send_error), Ok(()));
        let (failure, send_error) = declined(codes::INTERNAL_ERROR);
        let failure = absent_list_or(failure, &send_error).unwrap_err();
        assert!(!concerns_link(&failure));
        assert!(concerns_link(&Failure::Lost("reset".to_owned())), "a lost link is no answer");
    }
}
