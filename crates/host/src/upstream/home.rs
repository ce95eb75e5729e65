//! Whose an instance is, and so whom it means when it asks, or says something, outside any call.

use super::listen::own_answer;
use super::{Live, Upstream};
use crate::client::Client;
use crate::transport::Listener;
use bytes::Bytes;
use gripfast_core::event::Event;
use gripfast_core::isolation::{Caller, Whose};
use gripfast_wire::envelope::Message;
use std::sync::{Arc, Mutex, PoisonError};

/// What an instance is to its server.
pub(crate) enum Role {
    /// Everybody's: it knows what the server offers.
    Base {
        /// Told when it cannot be known whom the server means. Answers whether that is news.
        separate: Box<dyn Fn() -> bool + Send + Sync>,
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

    /// Who hears for the client outside its calls: nobody can for programs that only count as one.
    fn ear(&self) -> Option<Arc<dyn Listener>> {
        match self.caller {
            Caller::One(_) => self.ear.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Caller::Many(_) | Caller::Unnamed => None,
        }
    }
}

impl Upstream {
    /// The server asks something outside any call that could be told. It is put to whomever this instance
    /// belongs to; otherwise it is declined.
    pub(super) fn asked(&self, live: &Live, message: Bytes, whose: Whose) {
        let Ok(Message::Request(request)) = Message::parse(&message) else { return };
        let put = match &self.role {
            Role::Base { separate } => {
                let of_a_person = matches!(
                    &*request.method,
                    "elicitation/create" | "sampling/createMessage" | "roots/list"
                );
                if of_a_person && whose.calls_for_separation() && separate() {
                    self.observer.tell(self.clock.now(), Event::ClientsSeparated);
                }
                false
            }
            Role::Own { home } => {
                let ask = || home.ear()?.asked(message.clone());
                live.thinking.about(&live.answers, ask, || ())
            }
        };
        if !put {
            live.answers.put(own_answer(&request));
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
