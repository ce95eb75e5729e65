//! `/metrics` of a gateway that serves: what a scraper gets, and what the files in `deploy/` ask for.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[cfg(all(unix, feature = "otlp"))]
mod collector;
mod deploy;
mod scrape;
