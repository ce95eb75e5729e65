//! Records on disk: the ledger of tool calls and the audit log.

pub(crate) mod audit;
mod journal;
pub mod ledger;
pub(crate) mod request_summary;

pub use journal::RecordDetail;
