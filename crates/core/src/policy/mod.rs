//! What an operator allows: who may see and use what, which descriptions were approved, how many calls are
//! spent, what may be sent twice. Each file is a decision of its own; none of them knows where its rules
//! come from or what is done about its verdict.

pub mod allow;
pub mod budget;
pub mod difference;
mod pattern;
pub mod pins;
mod replay;
pub mod suspicion;
mod uri;

pub use pattern::Pattern;
pub use replay::ReplayRules;
pub use uri::is_refused_uri;
