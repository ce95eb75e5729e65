//! Which answers of a server may be given again.

use super::fields::{Field, Fields, Problems};
use super::units::Span;
use crate::cache::{CacheSpec, ToolRule};
use crate::config::node::Value;
use std::time::Duration;

pub(super) fn cache(fields: &mut Fields<'_>, problems: &mut Problems) -> CacheSpec {
    let mut spec = CacheSpec::default();
    let Some(mut table) = fields.table("cache", problems) else { return spec };
    if let Some(reads) = table.take("reads").and_then(|field| field.flag(problems)) {
        spec.reads = reads;
    }
    if let Some(tools) = table.take("tools") {
        for (pattern, field) in tools.pairs(problems) {
            spec.tools.extend(rule(&field, problems).map(|rule| (pattern.name.clone(), rule)));
        }
    }
    table.finish(problems);
    spec
}

fn rule(field: &Field<'_>, problems: &mut Problems) -> Option<ToolRule> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    match &field.node.value {
        Value::Str(word) if word == "hinted" => Some(ToolRule::AsHinted),
        _ => field.duration(Span::between(Duration::from_millis(1), DAY), problems).map(ToolRule::For),
    }
}
