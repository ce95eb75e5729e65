//! `/metrics` as Prometheus text or OpenMetrics. Nothing is counted here: every scrape reads the same values as the
//! status, so that the two cannot disagree.
//!
//! `families` is the table of metrics, `text` writes them, `reference` generates their documentation.

mod families;
mod reference;
mod text;

pub use families::{ClusterFacts, Facts, Family, Kind, families};
#[cfg(feature = "otlp")]
pub(crate) use families::{Series, Value};
pub use reference::reference_page;

use crate::mcp::Gateway;
use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gripfast::Host;
use std::sync::Arc;

/// Source of the values of a scrape.
pub(crate) struct Meter {
    host: Host,
    gateway: Arc<Gateway>,
    /// Start of the gateway, in seconds since the Unix epoch.
    started_at: f64,
}

impl Meter {
    /// For a gateway that starts now.
    pub(crate) fn new(host: Host, gateway: Arc<Gateway>) -> Self {
        let started_at = gripfast::unix_time().as_secs_f64();
        Self { host, gateway, started_at }
    }

    /// The route `/metrics`.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        Router::new().route("/metrics", get(scrape)).with_state(self)
    }

    /// Current values of all metrics.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            version: env!("CARGO_PKG_VERSION"),
            started_at: self.started_at,
            servers: self.host.status(),
            ledger: self.host.ledger_status(),
            sessions: self.gateway.sessions.count(),
            cache: self.host.cache_counts(),
            budgets: self.host.budgets(),
            audit: self.host.audit_status(),
            security: self.host.security_counts(),
            cluster: self.gateway.sessions.member().map(|member| member.facts()),
        }
    }
}

async fn scrape(State(meter): State<Arc<Meter>>, headers: HeaderMap) -> Response {
    let format =
        text::Format::from_accept(headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()));
    match text::render(meter.facts(), format) {
        Ok(text) => {
            let kind = HeaderValue::from_static(format.content_type());
            ([(CONTENT_TYPE, kind), (CACHE_CONTROL, HeaderValue::from_static("no-store"))], text)
                .into_response()
        }
        // Writing to memory does not fail; an error is better than half of the metrics.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
