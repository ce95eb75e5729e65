//! Policy of the operator: allow lists, approved descriptions, call budgets and replay rules. Each file makes one kind
//! of decision; reading the config and acting on the decision happen elsewhere.

pub mod allow;
pub mod budget;
pub mod diff;
mod pattern;
pub mod pins;
mod replay;
pub mod suspicious_text;
mod uri;

pub use pattern::Pattern;
pub use replay::ReplayRules;
pub use uri::is_refused_uri;
