//! `/metrics`: what is counted and measured, as Prometheus text or OpenMetrics. Nothing is counted here: every scrape reads
//! the same facts that status shows, so the two cannot disagree.
//!
//! `families` says which metrics there are, `text` writes them, `reference` describes them.

mod families;
mod reference;
mod text;

pub use families::{Facts, Family, Kind, families};
#[cfg(feature = "otlp")]
pub(crate) use families::{Series, Value};
pub use reference::page;

use crate::downstream::Gateway;
use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gripfast::Host;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is asked at each scrape.
pub(crate) struct Meter {
    host: Host,
    gateway: Arc<Gateway>,
    /// Seconds since the Unix epoch.
    begun: f64,
}

impl Meter {
    /// Of a gateway that begins now.
    pub(crate) fn new(host: Host, gateway: Arc<Gateway>) -> Self {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self { host, gateway, begun }
    }

    /// The route `/metrics`.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        Router::new().route("/metrics", get(scrape)).with_state(self)
    }

    /// All that is counted and measured, now.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            version: env!("CARGO_PKG_VERSION"),
            begun: self.begun,
            servers: self.host.status(),
            ledger: self.host.ledger_status(),
            sessions: self.gateway.sessions.count(),
            cache: self.host.cache_counts(),
            budgets: self.host.budgets(),
            audit: self.host.audit_status(),
            security: self.host.security_counts(),
        }
    }
}

async fn scrape(State(meter): State<Arc<Meter>>, headers: HeaderMap) -> Response {
    let format =
        text::Format::accepted(headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()));
    match text::written(meter.facts(), format) {
        Ok(text) => {
            let kind = HeaderValue::from_static(format.content_type());
            ([(CONTENT_TYPE, kind), (CACHE_CONTROL, HeaderValue::from_static("no-store"))], text)
                .into_response()
        }
        // Writing to memory does not fail; a scraper is told rather than shown half.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
