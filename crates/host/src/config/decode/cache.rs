//! Decodes the table `cache` of a server.

use super::fields::{Field, Fields, Problems};
use crate::cache::{CacheSpec, ToolRule};
use crate::config::node::Value;
use crate::config::units::DurationRange;

pub(super) fn cache(fields: &mut Fields<'_>, problems: &mut Problems) -> CacheSpec {
    let mut spec = CacheSpec::default();
    let Some(mut table) = fields.table("cache", problems) else { return spec };
    table.flag("reads", &mut spec.reads, problems);
    let span = table.duration_range("tools");
    if let Some(tools) = table.take("tools") {
        for (pattern, field) in tools.pairs(problems) {
            spec.tools.extend(rule(&field, span, problems).map(|rule| (pattern.name.clone(), rule)));
        }
    }
    table.duration("lists", &mut spec.lists, problems);
    table.duration("stale_lists", &mut spec.stale_lists, problems);
    table.finish(problems);
    spec
}

fn rule(field: &Field<'_>, span: DurationRange, problems: &mut Problems) -> Option<ToolRule> {
    match &field.node.value {
        Value::Str(word) if word == "hinted" => Some(ToolRule::AsHinted),
        _ => field.duration(span, problems).map(ToolRule::Fixed),
    }
}
