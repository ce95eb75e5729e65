//! `/metrics` of a running gateway, OTLP export, and the queries of the files in `deploy/`.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[cfg(all(unix, feature = "otlp"))]
mod collector;
mod deploy;
mod scrape;
