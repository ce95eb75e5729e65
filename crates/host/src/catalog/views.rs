//! What each audience sees of the menu. Views are cut out of the menu that everybody's lists leave, so that a
//! name means the same to all, and each is made once for all clients that the same lists are about.

use super::Kitchen;
use super::render::Served;
use crate::client::Principal;
use crate::host::Host;
use crate::policy::{Audience, Kind, subject};
use gripfast_core::catalog::merge::Offer;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The views that were made, by audience.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<BTreeMap<Vec<usize>, View>>);

#[derive(Debug)]
struct View {
    /// The revision of the menu that it was cut out of.
    of: u64,
    /// Whose it is. A view that was cut while the lists were replaced is not one of the new lists.
    audience: Audience,
    served: Arc<Served>,
}

impl Views {
    /// Views that are kept. There are as many as lists of clients meet in different ways, so a few.
    const MOST: usize = 64;
}

impl Host {
    /// The menu as clients of this principal see it.
    pub fn menu_for(&self, principal: &Principal) -> Arc<Served> {
        let menu = self.menu();
        let audience = self.audience(Some(principal));
        if audience.is_everybody() {
            return menu;
        }
        self.kitchen().view(&menu, &audience)
    }
}

impl Kitchen {
    fn view(&self, menu: &Served, audience: &Audience) -> Arc<Served> {
        let mut views = self.views.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = views.get(audience.places()).filter(|view| view.audience.is(audience));
        if let Some(view) = before.filter(|view| view.of == menu.revision) {
            return Arc::clone(&view.served);
        }
        let mut served = cut(menu, audience);
        let served = match before {
            Some(before) if before.served.reads_like(&served) => Arc::clone(&before.served),
            Some(_) | None => {
                served.revision = self.revisions.fetch_add(1, Ordering::Relaxed) + 1;
                Arc::new(served)
            }
        };
        if views.len() >= Views::MOST && !views.contains_key(audience.places()) {
            views.pop_first();
        }
        let view = View { of: menu.revision, audience: audience.clone(), served: Arc::clone(&served) };
        views.insert(audience.places().to_vec(), view);
        served
    }

    /// The lists have changed.
    pub(crate) fn forget_views(&self) {
        self.views.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn cut(menu: &Served, audience: &Audience) -> Served {
    menu.only(&menu.menu.shown(|offer, server, item| {
        let kind = match offer {
            Offer::Tool => Kind::Tool,
            Offer::Resource | Offer::Template => Kind::Resource,
            Offer::Prompt => Kind::Prompt,
        };
        audience.sees(&subject(server, kind, &item.key, item.hints))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ClientLists, ClientPolicy, Policy};

    fn audience() -> Audience {
        let policies = vec![ClientPolicy { clients: "*".to_owned(), policy: Policy::default() }];
        Arc::new(ClientLists::new(policies)).concerning(Some(&Principal::local()))
    }

    /// G01
    #[test]
    fn g01_a_view_that_was_cut_by_replaced_lists_is_not_one_of_the_new_lists() {
        let (kitchen, menu) = (Kitchen::default(), Served::default());
        let (old, new) = (audience(), audience());
        let cut = kitchen.view(&menu, &old);
        assert!(Arc::ptr_eq(&cut, &kitchen.view(&menu, &old)));
        assert!(!Arc::ptr_eq(&cut, &kitchen.view(&menu, &new)));
    }
}
