//! Text output of one server: state, facts, events and stderr.

use super::labels::{
    NextStep, glyph, latency, next_step, renamed_text, short_duration, state_word, tools_text,
};
use crate::cli::render::{ago, plural};
use gripfast_gateway::api::types::{DetailView, UpstreamView};

pub(super) fn render(detail: &DetailView) -> String {
    let upstream = &detail.upstream;
    let mut lines = vec![headline(upstream)];
    let facts = facts(upstream);
    let width = facts.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    lines.extend(facts.iter().map(|(label, fact)| format!("  {label:>width$}: {fact}")));
    let ages: Vec<String> = detail.events.iter().map(|event| ago(event.at)).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let age_width = width(&mut ages.iter().map(String::len));
    let kind_width = width(&mut detail.events.iter().map(|event| event.kind.len()));
    let events = detail
        .events
        .iter()
        .zip(&ages)
        .map(|(event, age)| format!("  {age:>age_width$}  {:kind_width$}  {}", event.kind, event.text));
    section(&mut lines, "events", events);
    section(&mut lines, "stderr", detail.stderr.iter().map(|line| format!("  {line}")));
    lines.join("\n")
}

fn headline(upstream: &UpstreamView) -> String {
    let since = short_duration(upstream.since_ms);
    format!("{} {} is {} for {since}", glyph(upstream), upstream.name, state_word(upstream))
}

/// The known facts, each with a label.
fn facts(upstream: &UpstreamView) -> Vec<(&'static str, String)> {
    let known = |label, fact: &Option<String>| Some((label, fact.clone()?));
    [
        known("cause", &upstream.cause),
        known("attempt", &upstream.attempt.as_ref().map(|attempt| attempt.text.clone())),
        next_step(upstream).map(|(next, when)| match next {
            NextStep::Attempt => ("next attempt", when),
            NextStep::Trial => ("next trial", when),
        }),
        known("do", &upstream.hint),
        known("server", &upstream.server_info),
        known("via", &via(upstream)),
        known("protocol", &protocol(upstream)),
        upstream.session_age_ms.map(|age| ("session", session(upstream, age))),
        Some(("tools", tools_text(upstream))),
        known("exposure", &exposure_text(upstream)),
        known("renamed", &renamed_text(upstream)),
        Some(("calls", calls(upstream))),
        known("instances", &instances(upstream)),
        Some(("circuit", circuit(upstream))),
        Some((
            "restarts",
            format!("{}, {} within the window", upstream.restarts, upstream.restarts_in_window),
        )),
        known("spare", &upstream.spare.as_ref().map(ToString::to_string)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The exposure of its tools, unless all of them are in the list of clients.
fn exposure_text(upstream: &UpstreamView) -> Option<String> {
    match &*upstream.exposure {
        "search" => Some("clients find its tools by search".to_owned()),
        "auto" => Some("clients with a long list find its tools by search".to_owned()),
        _ => None,
    }
}

/// The age of the session, its restored state, and whether the config has changed since.
fn session(upstream: &UpstreamView, age: u64) -> String {
    let mut parts = vec![format!("{} old", short_duration(age))];
    parts.extend(match upstream.restored.as_deref() {
        Some("partly") => Some(format!("partly restored, without {}", upstream.not_restored.join("; "))),
        Some(word) => Some(word.replace('_', " ")),
        None => None,
    });
    if upstream.outdated {
        parts.push("from an older config: it could not be replaced yet".to_owned());
    }
    parts.join(", ")
}

fn via(upstream: &UpstreamView) -> Option<String> {
    let transport = upstream.transport.as_deref()?;
    let at = upstream.holder.as_ref().map(|holder| format!(", runs at replica {holder}"));
    let at = at.unwrap_or_default();
    Some(match (&upstream.pid, &upstream.url) {
        (Some(pid), _) => format!("{transport}, pid {pid}{at}"),
        (None, Some(url)) => format!("{transport}, {url}{at}"),
        (None, None) => format!("{transport}{at}"),
    })
}

fn protocol(upstream: &UpstreamView) -> Option<String> {
    let era = upstream.era.as_deref()?;
    Some(match &upstream.protocol_version {
        Some(version) => format!("{version} ({era})"),
        None => era.to_owned(),
    })
}

fn calls(upstream: &UpstreamView) -> String {
    let mut parts = vec![
        upstream.calls.to_string(),
        plural(upstream.errors, "error"),
        plural(upstream.tool_errors, "tool error"),
        format!("{} in flight", upstream.in_flight),
        format!("{} waiting", upstream.waiting),
    ];
    if upstream.p95_ms.is_some() {
        parts.push(format!("p50 {}, p95 {}", latency(upstream.p50_ms), latency(upstream.p95_ms)));
    }
    if let Some(ago) = upstream.last_ok_ms {
        parts.push(format!("last ok {} ago", short_duration(ago)));
    }
    parts.join(", ")
}

/// The instances that serve one client each, if there are any.
fn instances(upstream: &UpstreamView) -> Option<String> {
    let states: Vec<String> = upstream
        .instance_states
        .iter()
        .map(|(state, n)| format!("{n} {}", state.replace('_', " ")))
        .collect();
    let cause = upstream.instance_cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let shown = format!(
        "{} of at most {}, one per client ({}{cause})",
        upstream.instances,
        upstream.max_instances,
        states.join(", ")
    );
    (upstream.instances > 0).then_some(shown)
}

fn circuit(upstream: &UpstreamView) -> String {
    let word = upstream.circuit.replace('_', " ");
    match upstream.consecutive_failures {
        0 => word,
        failures => format!("{word}, {} in a row", plural(failures, "failure")),
    }
}

fn section(lines: &mut Vec<String>, title: &str, content: impl Iterator<Item = String>) {
    let content: Vec<String> = content.collect();
    if !content.is_empty() {
        lines.extend([String::new(), title.to_owned()]);
        lines.extend(content);
    }
}
