//! Listing what an upstream offers: every page of every list it has, diffed against what was known,
//! stored, published.

use super::exchange::is_response_too_deep;
use super::good_for::SaidOfLists;
use super::{Live, Upstream};
use crate::transport::{Outgoing, Route, Trouble};
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
use gripfast_wire::{Era, Outcome, RawValue, codes};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is known of an upstream's catalog, and how well.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    pub(crate) catalog: Arc<Catalog>,
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// The era in which the server said it.
    pub(crate) era: Era,
    /// Tools whose arguments are repeated in headers, in the modern era.
    pub(crate) param_headers: Arc<BTreeMap<String, ParamHeaders>>,
    /// For how long its lists are good.
    pub(crate) said: SaidOfLists,
    /// Lists that failed and are as they were known before, with the reasons.
    pub(crate) missing: Option<String>,
    /// The number of the screening that the catalog comes from.
    screened: u64,
}

/// Where a listing comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nowhere: nothing was ever listed.
    Nothing,
    /// From the last run.
    Stored,
    /// From the server, in this run.
    Server,
}

impl Listing {
    /// From the last run, when the server was spoken to in this era.
    pub(crate) fn stored(catalog: Option<Arc<Catalog>>, era: Era) -> Self {
        let origin = if catalog.is_some() { Origin::Stored } else { Origin::Nothing };
        let catalog = catalog.unwrap_or_default();
        let (param_headers, said) = Default::default();
        Self { catalog, origin, era, param_headers, said, missing: None, screened: 0 }
    }

    /// Takes what came of screening it, unless a later screening was taken already: of two that run side by side, the
    /// one that began with older tools or pins may be through last. Answers whether it was taken.
    fn take_screened(&mut self, number: u64, catalog: Arc<Catalog>) -> bool {
        let is_later = number > self.screened;
        if is_later {
            (self.screened, self.catalog) = (number, catalog);
        }
        is_later
    }
}

/// The items of a list, and for how long it is good; nothing about a list that the server does not have.
type Listed = (Vec<Item>, Option<Freshness>);

/// Tools are not published without the other lists before these had this much time.
const OTHER_LISTS_WITHIN: Duration = Duration::from_millis(500);
/// More pages than this are a server that lost count.
const MOST_PAGES: usize = 1000;
/// More items than this in one list are refused: memory is bounded.
const MOST_ITEMS: usize = 100_000;
/// What the items of one list and the cursors on the way to them may take, if they come in several pages.
const MOST_BYTES: usize = 64 << 20;

impl Upstream {
    /// Whether what is offered over `live` has to be known. What a client's own instance offers is said by everybody's;
    /// of its own it has only what its tools say, and which of their arguments it wants in headers.
    pub(super) fn has_to_list(&self, live: &Live) -> bool {
        !self.role.is_own() || self.pins.looks() || wants_headers(live)
    }

    /// Lists what the present link offers. Tools are published before the other lists if those are slow, or if asking for
    /// them costs the link.
    pub(super) async fn list_present(&self, live: &Live) -> Result<Listing, Failure> {
        let publish = |tools: Listing| {
            if self.live().is_some_and(|present| present.epoch == live.epoch) {
                self.take_listing(live.epoch, tools);
                self.tell(Input::ToolsListed { epoch: live.epoch });
                self.changed.notify_waiters();
            }
        };
        let listed = AssertUnwindSafe(self.list(live, publish)).catch_unwind().await;
        listed
            .unwrap_or_else(|_| Err(Failure::Nonsense("its lists could not be read to their end".to_owned())))
    }

    /// Lists everything over `live`, or the tools if that is all that has to be known. Each list stands for itself: one
    /// that fails stays as it was known. `early` gets the tools if the other lists keep everybody waiting.
    pub(super) async fn list(&self, live: &Live, early: impl FnOnce(Listing)) -> Result<Listing, Failure> {
        let known = Arc::clone(&self.listing.borrow().catalog);
        let at = self.clock.mono();
        let (tools, of_tools) = self.list_one(live, List::Tools).await?;
        let (tools, param_headers) = match live.session.era {
            Era::Modern => with_param_headers(tools),
            Era::Legacy => (tools, BTreeMap::new()),
        };
        let unsaid = Some(Freshness::UNSAID);
        let (resources, templates, prompts) =
            (known.resources.clone(), known.templates.clone(), known.prompts.clone());
        let mut listing = Listing {
            catalog: Arc::new(Catalog { tools, resources, templates, prompts }),
            origin: Origin::Server,
            era: live.session.era,
            param_headers: Arc::new(param_headers),
            said: SaidOfLists { at, tools: of_tools, resources: unsaid, templates: unsaid, prompts: unsaid },
            missing: None,
            screened: 0,
        };
        let mut early = Some(early);
        let mut publish_early = |listing: &Listing| {
            if let Some(early) = early.take() {
                early(listing.clone());
            }
        };
        let others = self.list_others(live);
        tokio::pin!(others);
        let others = match tokio::time::timeout(OTHER_LISTS_WITHIN, &mut others).await {
            Ok(others) => others,
            Err(_) => {
                publish_early(&listing);
                others.await
            }
        };
        let catalog = Arc::make_mut(&mut listing.catalog);
        let said = &mut listing.said;
        let places = [
            (List::Resources, &mut catalog.resources, &mut said.resources),
            (List::ResourceTemplates, &mut catalog.templates, &mut said.templates),
            (List::Prompts, &mut catalog.prompts, &mut said.prompts),
        ];
        let (mut missing, mut link_failure) = (Vec::new(), None);
        for ((list, items, good_for), listed) in places.into_iter().zip(others) {
            match listed {
                Ok(listed) => (*items, *good_for) = listed,
                Err(failure) if concerns_link(&failure) => link_failure = Some(failure),
                // Declined for a reason of the server's own: what is known stays, and is not asked for again.
                Err(Failure::Declined(_)) => {}
                Err(failure) => missing.push(format!("`{}`: {failure}", list.method())),
            }
        }
        if let Some(failure) = link_failure {
            publish_early(&listing);
            return Err(failure);
        }
        listing.missing = (!missing.is_empty()).then(|| missing.join("; "));
        Ok(listing)
    }

    /// The lists besides the tools, one after another. None is asked for any more once the link is in question.
    async fn list_others(&self, live: &Live) -> Vec<Result<Listed, Failure>> {
        let mut all = Vec::new();
        for list in [List::Resources, List::ResourceTemplates, List::Prompts] {
            let listed = self.list_one(live, list).await;
            let ends = listed.as_ref().is_err_and(concerns_link);
            all.push(listed);
            if ends {
                break;
            }
        }
        all
    }

    /// Whether the server has a list that has to be known.
    fn wants(&self, live: &Live, list: List) -> bool {
        let offers = live.server.capabilities;
        let offered = match list {
            List::Tools => offers.tools,
            List::Resources | List::ResourceTemplates => offers.resources && !self.role.is_own(),
            List::Prompts => offers.prompts && !self.role.is_own(),
        };
        offered || (offers.unsaid && (list == List::Tools || !self.role.is_own()))
    }

    /// Which tools want which of their arguments repeated in headers, as the server itself says at this moment.
    /// Without its word, none do.
    pub(super) async fn wanted_headers(&self, live: &Live) -> BTreeMap<String, ParamHeaders> {
        if !wants_headers(live) {
            return BTreeMap::new();
        }
        let (tools, _) = self.every_page(live, List::Tools).await.unwrap_or_default();
        with_param_headers(tools).1
    }

    /// Takes a fresh listing of the link of this epoch.
    pub(super) fn take_listing(&self, epoch: Epoch, listing: Listing) {
        if self.role.is_own() {
            self.compare(listing);
        } else {
            self.publish(listing);
        }
        self.pins.were_compared_on(epoch);
        self.changed.notify_waiters();
    }

    /// Holds what the tools of a client's own instance say up against what was approved. Nobody is shown it.
    fn compare(&self, listing: Listing) {
        let screened = self.pins.compare(listing.catalog);
        self.tell_about_pins(screened.events, screened.cause);
        self.listing.send_replace(Listing { catalog: Arc::default(), ..listing });
    }

    /// Makes a listing the one that everybody sees, as far as it is approved, and keeps it for the next start.
    fn publish(&self, mut listing: Listing) {
        let known = self.listing.borrow().clone();
        let shelf_is_new = self.shelf_is_new.swap(false, Ordering::AcqRel);
        let says_the_same = self.pins.said().is_some_and(|said| said.diff(&listing.catalog).is_empty());
        if known.origin == Origin::Nothing || shelf_is_new || !says_the_same {
            self.settings().shelf.keep_catalog(&listing.catalog);
        }
        self.cache.forget_server(&self.name);
        let screened = self.pins.screen(Arc::clone(&listing.catalog));
        listing.catalog = screened.catalog;
        let diff = known.catalog.diff(&listing.catalog);
        if !diff.is_empty() {
            let (added, removed, changed) = diff.counts();
            self.announce(self.clock.now(), Event::CatalogChanged { added, removed, changed });
        }
        self.tell_about_pins(screened.events, screened.cause);
        // Rung while the listing is locked: whoever sees the listing finds the bell rung, and so never takes
        // a menu that was made before for the present one. A server that has come back as it was is not worth a
        // new menu, for which the calls to all servers would wait.
        self.listing.send_modify(|known| {
            // Somebody approved something since, and has screened this listing again.
            let later =
                (known.screened > screened.number).then(|| (known.screened, Arc::clone(&known.catalog)));
            let (number, catalog) = later.unwrap_or((screened.number, listing.catalog));
            let reads_alike = known.era == listing.era && known.catalog.reads_like(&catalog);
            let catalog = if reads_alike { Arc::clone(&known.catalog) } else { catalog };
            *known = Listing { catalog, screened: number, ..listing };
            if !reads_alike {
                self.bell.ring();
            }
        });
    }

    /// Somebody may have approved something, here or in another process.
    pub(crate) fn screen_again(&self) {
        let Some(screened) = self.pins.screen_again() else { return };
        if !self.role.is_own() {
            self.listing.send_if_modified(|known| {
                let differs = !known.catalog.diff(&screened.catalog).is_empty();
                let taken = known.take_screened(screened.number, screened.catalog);
                if differs && taken {
                    self.bell.ring();
                }
                differs && taken
            });
        }
        self.tell_about_pins(screened.events, screened.cause);
    }

    /// A person approves what a tool says now, or what all tools say but those that were dealt with. Answers with
    /// their names.
    pub(crate) fn approve(&self, tool: Option<&str>, done: &[String]) -> Vec<String> {
        let approved = self.pins.approve(tool, done);
        if !approved.is_empty() {
            self.announce(self.clock.now(), Event::ToolsApproved { tools: approved.clone() });
            self.screen_again();
        }
        approved
    }

    pub(super) fn tell_about_pins(&self, events: Vec<Event>, cause: Option<String>) {
        for event in events {
            self.announce(self.clock.now(), event);
        }
        let cause = cause.map(|cause| self.secrets.mask(&cause));
        self.tell(Input::HeldBack { cause });
    }

    /// A list of the server, if it is wanted, in the time of a call: each page has a limit of its own, and there may be many.
    async fn list_one(&self, live: &Live, list: List) -> Result<Listed, Failure> {
        if !self.wants(live, list) {
            return Ok((Vec::new(), None));
        }
        let within = self.settings().supervision.timeouts.call;
        let listed = tokio::time::timeout(within, self.every_page(live, list)).await;
        listed.unwrap_or(Err(Failure::TimedOut(within)))
    }

    /// Every page of a list, and for how long it is good.
    async fn every_page(&self, live: &Live, list: List) -> Result<Listed, Failure> {
        let mut items = Vec::new();
        let mut seen_keys = BTreeSet::new();
        let mut seen_cursors = BTreeSet::new();
        let mut cursor: Option<String> = None;
        let (mut bytes, mut said) = (0, Vec::new());
        for _ in 0..MOST_PAGES {
            let known = items.len();
            let page = self.list_page(live, list, cursor.as_deref(), &mut items, &mut seen_keys).await?;
            let (next, good) = page.unwrap_or((None, Freshness::UNSAID));
            said.push(good);
            let Some(next) = next else { return Ok((items, Some(Freshness::of_all(said)))) };
            if items.len() > MOST_ITEMS {
                return Err(Failure::Nonsense(format!(
                    "`{}` has more than {MOST_ITEMS} items",
                    list.method()
                )));
            }
            bytes += next.len() + items[known..].iter().map(|item| item.raw.get().len()).sum::<usize>();
            if bytes > MOST_BYTES {
                return Err(Failure::Nonsense(format!(
                    "`{}` is larger than {} MiB",
                    list.method(),
                    MOST_BYTES >> 20
                )));
            }
            if !seen_cursors.insert(next.clone()) {
                return Err(Failure::Nonsense(format!("`{}` goes round in circles", list.method())));
            }
            cursor = Some(next);
        }
        Err(Failure::Nonsense(format!("`{}` has more than {MOST_PAGES} pages", list.method())))
    }

    /// One page; answers with the next cursor, and for how long the page is good. `None` from a server that does not
    /// know the list.
    async fn list_page(
        &self,
        live: &Live,
        list: List,
        cursor: Option<&str>,
        items: &mut Vec<Item>,
        seen: &mut BTreeSet<String>,
    ) -> Result<Option<(Option<String>, Freshness)>, Failure> {
        let params = cursor.map(|cursor| Patch::new().set_text("cursor", cursor).to_object());
        let message = match self.own_request(live, list.method(), params.as_deref(), During::Call).await {
            Ok(message) => message,
            Err(trouble) => {
                return absent_or(self.secrets.classify(&trouble.evidence), &trouble).map(|()| None);
            }
        };
        let nonsense = |what: &str| Failure::Nonsense(format!("its answer to `{}` {what}", list.method()));
        let Ok(Message::Response(response)) = Message::parse(&message) else {
            return Err(nonsense("is not a JSON-RPC response"));
        };
        let result = match response.outcome {
            Outcome::Result(result) => result,
            Outcome::Error(error) => {
                let said = RpcError { code: error.code, message: error.message.into_owned() };
                let observed = Observed::Rpc { error: said, had_session: live.has_session() };
                let trouble: Box<Trouble> = Evidence::sent(During::Call, observed).into();
                return absent_or(self.secrets.classify(&trouble.evidence), &trouble).map(|()| None);
            }
        };
        let page = Page::read(result, list).map_err(|_| nonsense("is not a list"))?;
        for raw in page.items {
            let Some(item) = item(raw, list) else { continue };
            // Two of the same name cannot be told apart by anybody; the first one stays.
            if seen.insert(item.key.clone()) {
                items.push(item);
            }
        }
        Ok(Some((page.next_cursor.map(Into::into), crate::cache::said(page.freshness))))
    }

    /// A request of our own on the present link: not admitted, not counted, but bounded.
    pub(super) async fn own_request(
        &self,
        live: &Live,
        method: &str,
        params: Option<&RawValue>,
        during: During,
    ) -> Result<bytes::Bytes, Box<Trouble>> {
        self.own_request_as(live, &live.context, method, params, during).await
    }

    /// The same, where a modern server is told something else about us than usual.
    pub(super) async fn own_request_as(
        &self,
        live: &Live,
        context: &RequestContext,
        method: &str,
        params: Option<&RawValue>,
        during: During,
    ) -> Result<bytes::Bytes, Box<Trouble>> {
        self.request_of_ours(live, context, method, params, Vec::new(), during).await
    }

    /// The same for a tool, with arguments repeated in headers.
    pub(super) async fn own_call(
        &self,
        live: &Live,
        params: &RawValue,
        param_headers: Vec<(String, String)>,
    ) -> Result<bytes::Bytes, Box<Trouble>> {
        let (context, during) = (&live.context, During::Call);
        self.request_of_ours(live, context, "tools/call", Some(params), param_headers, during).await
    }

    async fn request_of_ours(
        &self,
        live: &Live,
        context: &RequestContext,
        method: &str,
        params: Option<&RawValue>,
        param_headers: Vec<(String, String)>,
        during: During,
    ) -> Result<bytes::Bytes, Box<Trouble>> {
        let id = self.mint_id();
        let with_context = match live.session.era {
            Era::Modern => context.apply_to(params).ok(),
            Era::Legacy => None,
        };
        let request = Outgoing {
            id,
            method: method.to_owned(),
            message: envelope::request(id, method, with_context.as_deref().or(params)),
            name: own_name(live, method, params),
            headers: param_headers,
            during,
            safety: crate::transport::Safety::of_method(method),
            sent: Arc::default(),
            listener: None,
            memory: None,
        };
        let (rules, limit) = (self.settings().supervision.clone(), self.settings().nesting);
        let within = match during {
            // A server that pauses has as long as the config gives it; whoever asks may give up sooner.
            During::Probe => rules.timeouts.connect.max(rules.keepalive.timeout),
            During::Handshake | During::Call => rules.timeouts.connect,
        };
        match tokio::time::timeout(within, live.link.request(&live.session, request)).await {
            Ok(Ok(reply)) if is_response_too_deep(&reply.message, limit) => {
                let text = format!("nested more than {limit} levels deep (`gateway.limits.nesting`)");
                Err(Evidence::sent(during, Observed::Garbled(text)).into())
            }
            Ok(reply) => reply.map(|reply| reply.message),
            Err(_) => Err(Evidence::sent(during, Observed::Silence(within)).into()),
        }
    }
}

/// Whether arguments may have to be repeated in headers, which only a listing tells.
pub(super) fn wants_headers(live: &Live) -> bool {
    live.session.era == Era::Modern && live.route == Route::Http
}

/// What a modern request is about, which it repeats in a header.
fn own_name(live: &Live, method: &str, params: Option<&RawValue>) -> Option<String> {
    match live.session.era {
        Era::Modern => headers::standard_headers(method, params).ok()?.name.map(Into::into),
        Era::Legacy => None,
    }
}

/// A server that does not know a list has none.
fn absent_or(failure: Failure, trouble: &Trouble) -> Result<(), Failure> {
    let code = match &trouble.evidence.observed {
        Observed::Rpc { error, .. } => Some(error.code),
        Observed::Http(answer) => answer.rpc.as_ref().map(|rpc| rpc.code),
        _ => None,
    };
    match failure {
        Failure::Declined(_) if code == Some(codes::METHOD_NOT_FOUND) => Ok(()),
        failure => Err(failure),
    }
}

/// Whether the failure of one list says something about the link, the session or the credential, which all lists need.
fn concerns_link(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_) => true,
        Failure::TimedOut(_)
        | Failure::LacksResources(_)
        | Failure::BeyondScope(_)
        | Failure::Busy { .. }
        | Failure::ServerFault(_)
        | Failure::Nonsense(_)
        | Failure::Outdated(_)
        | Failure::Declined(_)
        | Failure::Blocked(_) => false,
    }
}

fn item(raw: &RawValue, list: List) -> Option<Item> {
    let key = Object::parse(raw).ok()?.text(list.key())?.into_owned();
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

/// A tool in its server's own bytes.
pub(crate) fn tool_item(raw: &RawValue) -> Option<Item> {
    item(raw, List::Tools)
}

/// Tools whose schema asks for headers. A tool that asks for impossible ones must not be offered.
fn with_param_headers(tools: Vec<Item>) -> (Vec<Item>, BTreeMap<String, ParamHeaders>) {
    let mut headers = BTreeMap::new();
    let usable = tools.into_iter().filter(|tool| {
        let schema = Tool::read(&tool.raw).ok().and_then(|tool| tool.input_schema.map(RawValue::to_owned));
        match schema.map(|schema| ParamHeaders::from_input_schema(&schema)) {
            None => true,
            Some(Ok(params)) => {
                if !params.is_empty() {
                    headers.insert(tool.key.clone(), params);
                }
                true
            }
            Some(Err(error)) => {
                tracing::warn!(tool = tool.key, %error, "a tool asks for headers that cannot be sent; it is left out");
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

    fn declined(code: i64) -> (Failure, Box<Trouble>) {
        let said = RpcError { code, message: "the database is starting".to_owned() };
        let observed = Observed::Rpc { error: said, had_session: true };
        let trouble: Box<Trouble> = Evidence::sent(During::Call, observed).into();
        (classify(&trouble.evidence), trouble)
    }

    #[test]
    fn b05_an_older_screening_that_is_through_late_does_not_put_old_tools_over_new_ones() {
        let catalog = |key: &str| {
            let raw = RawValue::from_string("{}".to_owned()).unwrap();
            let tool = Item { key: key.to_owned(), hints: ToolHints::default(), raw };
            Arc::new(Catalog { tools: vec![tool], ..Catalog::default() })
        };
        let mut listing = Listing::stored(Some(catalog("stored")), Era::Legacy);
        assert!(listing.take_screened(2, catalog("new")));
        assert!(!listing.take_screened(1, catalog("old")), "begun before, through after");
        assert_eq!(listing.catalog.tools[0].key, "new");
        assert!(listing.take_screened(3, catalog("approved")));
        assert_eq!(listing.catalog.tools[0].key, "approved");
    }

    #[test]
    fn b05_a_server_that_does_not_know_a_list_has_none_and_a_passing_error_empties_nothing() {
        let (failure, trouble) = declined(codes::METHOD_NOT_FOUND);
        assert_eq!(absent_or(failure, &trouble), Ok(()));
        let (failure, trouble) = declined(codes::INTERNAL_ERROR);
        let failure = absent_or(failure, &trouble).unwrap_err();
        assert!(!concerns_link(&failure));
        assert!(concerns_link(&Failure::Lost("reset".to_owned())), "a lost link is no answer");
    }
}
