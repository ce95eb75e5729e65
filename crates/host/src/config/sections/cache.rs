//! The table `cache` of a server.

use crate::cache::{CacheSpec, ToolRule};
use crate::config::fields::{Field, Problems};
use crate::config::keys::{ValueKind, impl_codec, keys};
use crate::config::node::Value;
use crate::config::units::DurationRange;
use std::time::Duration;

const A_DAY: Duration = Duration::from_secs(24 * 3600);
const UP_TO_A_DAY: DurationRange = DurationRange::between(Duration::ZERO, A_DAY);

keys! {
    /// Answers of a server that may be cached.
    impl CacheSpec {
        /// Cache resources for as long as the server states. Legacy servers state no time, so nothing of theirs is
        /// cached.
        reads: bool;
        /// Tools whose results may be cached, by pattern, and for how long; `hinted` means as long as the server
        /// states. Only tools that declare themselves read-only are cached, regardless of this key. The first matching
        /// pattern applies. Too long: clients get outdated results.
        tools: ToolRules;
        /// Time that clients may cache the lists of a server that states none, as legacy servers do, but notifies of
        /// changes. Too long: a client that does not listen for changes works with old lists.
        lists: Duration [UP_TO_A_DAY];
        /// Time that an expired list is still returned if the server fails, to programs that request lists through the
        /// library. With `0s` they get the failure. Too long: they work with outdated lists.
        stale_lists: Duration [UP_TO_A_DAY];
    }
}

/// Codec of `cache.tools`.
struct ToolRules;

impl ToolRules {
    const RANGE: DurationRange = DurationRange::between(Duration::from_millis(1), A_DAY);
    const HINTED: &str = "hinted";
}

impl_codec!(
    ToolRules => Vec<(String, ToolRule)>,
    ValueKind::map(ValueKind::DurationOr(Self::RANGE, Self::HINTED)),
    read_tool_rules
);

fn read_tool_rules(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<(String, ToolRule)>> {
    let mut rules = Vec::new();
    for (pattern, field) in field.pairs(problems) {
        let rule = match &field.node.value {
            Value::Str(word) if word == ToolRules::HINTED => Some(ToolRule::AsHinted),
            _ => field.duration(ToolRules::RANGE, problems).map(ToolRule::Fixed),
        };
        rules.extend(rule.map(|rule| (pattern.name.clone(), rule)));
    }
    Some(rules)
}
