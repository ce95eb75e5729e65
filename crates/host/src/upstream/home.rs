//! Whose an instance is, and so whom it means when it asks, or says something, outside any call.

use super::listen::own_answer;
use super::{Live, Upstream};
use crate::client::Client;
use crate::transport::{Listener, Route};
use bytes::Bytes;
use gripfast_core::event::Event;
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{Apart, Caller, Whose};
use gripfast_wire::envelope::{self, Message, Request};
use gripfast_wire::{Era, roots};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// What an instance is to its server.
pub(crate) enum Role {
    /// Everybody's: it knows what the server offers.
    Base {
        /// Told when it cannot be known whom the server means, with the clients that need to be kept apart. Answers
        /// whether that is news.
        separate: Box<dyn Fn(Apart) -> bool + Send + Sync>,
    },
    /// One client's.
    Own {
        /// The client.
        home: Arc<Home>,
    },
}

impl Role {
    pub(super) fn is_own(&self) -> bool {
        match self {
            Self::Base { .. } => false,
            Self::Own { .. } => true,
        }
    }

    /// The client whose own it is.
    pub(crate) fn client(&self) -> Option<&ClientKey> {
        match self {
            Self::Base { .. } => None,
            Self::Own { home } => home.caller.key(),
        }
    }
}

/// The client of an own instance.
pub(crate) struct Home {
    caller: Caller,
    ear: Mutex<Option<Arc<dyn Listener>>>,
}

impl Home {
    pub(crate) fn of(client: &Client) -> Self {
        Self { caller: client.caller.clone(), ear: Mutex::new(client.ear.clone()) }
    }

    /// The client is heard here from now on.
    pub(crate) fn is_heard_by(&self, ear: Option<Arc<dyn Listener>>) {
        *self.ear.lock().unwrap_or_else(PoisonError::into_inner) = ear;
    }

    /// The client, if it is one that may be told on any way what concerns any of its calls.
    fn client(&self) -> Option<&ClientKey> {
        match &self.caller {
            Caller::One(client) => Some(client),
            Caller::Many(_) | Caller::Unnamed => None,
        }
    }

    /// Who hears for the client outside its calls: nobody can for programs that only count as one.
    fn ear(&self) -> Option<Arc<dyn Listener>> {
        self.client()?;
        self.ear.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Live {
    /// Takes note of a question of the server.
    pub(super) fn note(&self, request: &Request<'_>) {
        if is_for_a_person(&request.method) {
            self.has_asked.store(true, Ordering::Release);
        }
        if request.method == roots::LIST {
            self.knows_roots.store(true, Ordering::Release);
        }
    }
}

impl Upstream {
    /// Whether its server may ask without saying about which call: a modern one never asks, and over Streamable HTTP a
    /// question comes on the stream of its call.
    pub(crate) fn mixes_up_questions(&self) -> bool {
        let route = self.live().map(|live| live.route).or_else(|| self.only_route());
        route != Some(Route::Http) && self.listing.borrow().era == Era::Legacy
    }

    /// Whether its server is one that asks, and is at work on something that it may ask about.
    pub(crate) fn is_asking(&self) -> bool {
        let asks = |live: &Arc<Live>| live.has_asked.load(Ordering::Acquire);
        self.live().filter(asks).is_some_and(|live| !live.underway.is_quiet())
    }

    /// Whether its server is at work on nothing that it may ask about.
    pub(crate) fn is_quiet(&self) -> bool {
        self.live().is_none_or(|live| live.underway.is_quiet())
    }

    /// The roots of a client have changed. A session that never asked for any has nothing to forget, and one that comes
    /// later will ask; the modern era asks each time.
    pub(crate) fn roots_changed(&self) {
        let knows =
            |live: &Arc<Live>| live.session.era == Era::Legacy && live.knows_roots.load(Ordering::Acquire);
        if let Some(live) = self.live().filter(knows) {
            live.answers.put(envelope::notification(roots::CHANGED, None));
        }
    }

    /// The server asks something that is not certainly about one call. It is put to the client that is meant,
    /// on the newest of its calls, or else outside of them; where nobody certainly is, it is declined.
    pub(super) fn asked(&self, live: &Live, message: Bytes, whose: Whose) {
        let Ok(Message::Request(request)) = Message::parse(&message) else { return };
        live.note(&request);
        if is_for_a_person(&request.method) && whose.calls_for_separation() {
            self.separate(if whose == Whose::SeveralPrincipals { Apart::All } else { Apart::Asked });
        }
        let home = match &self.role {
            Role::Base { .. } => None,
            Role::Own { home } => Some(home),
        };
        let client = match &whose {
            Whose::Client(client) => Some(client),
            Whose::Call
            | Whose::NoCall
            | Whose::Withdrawn
            | Whose::Mingled
            | Whose::Indistinct
            | Whose::Unclear => home.and_then(|home| home.client()),
            Whose::SeveralPrincipals => None,
        };
        // Any of its calls may wait for the answer: the time of all of them stands still meanwhile.
        let calls = client.map(|client| live.underway.of(client)).unwrap_or_default();
        let ask = || match calls.last() {
            Some(newest) => newest.asked(message.clone()),
            None if whose == Whose::SeveralPrincipals => None,
            None => home?.ear()?.asked(message.clone()),
        };
        let pauses = || calls.iter().map(|call| call.pause()).collect::<Vec<_>>();
        if !live.thinking.about(&live.answers, ask, pauses) {
            live.answers.put(own_answer(&request));
        }
    }

    /// The server said something that may be about the calls of any of several principals. It is dropped and counted.
    pub(super) fn unattributed(&self, beside_calls: bool) {
        let dropped = self.stats.dropped();
        if dropped == 10u64.pow(dropped.ilog10()) {
            self.announce(self.clock.now(), Event::MessagesDropped { dropped });
        }
        // Without a call there is no client that would have heard it, with an instance of its own or without.
        if beside_calls {
            self.separate(Apart::All);
        }
    }

    /// Clients that share this instance need instances of their own from now on.
    fn separate(&self, apart: Apart) {
        if let Role::Base { separate } = &self.role
            && separate(apart)
        {
            self.announce(self.clock.now(), Event::ClientsSeparated);
        }
    }

    /// The server says something outside any call that only its client could want to hear.
    pub(super) fn said_to_client(&self, message: &[u8]) {
        match &self.role {
            Role::Base { .. } => {}
            Role::Own { home } => {
                if let Some(ear) = home.ear() {
                    ear.said(message);
                }
            }
        }
    }
}

/// Whether this is a question that some client may have to answer.
fn is_for_a_person(method: &str) -> bool {
    matches!(method, "elicitation/create" | "sampling/createMessage" | roots::LIST)
}
