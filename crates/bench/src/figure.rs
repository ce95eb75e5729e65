//! Goals of a run: each with its measured value, met or missed.

use crate::calls::{
    CallRow, Calls, DIRECT, GRIPFAST, LARGE, NGINX, PACKAGED, PACKAGED_TO_PIPE, PIPE, SMALL, TO_PIPE,
};
use crate::instructions::{self, CallCost};
use crate::lists::Lists;
use crate::load::Sample;
use crate::observing::Observing;
use crate::replicas::Replicas;
use crate::scale::{Dimension, Scale};
use crate::startup::Startup;
use gripfast_measure::Era;
use gripfast_measure::figure::Figure;
use gripfast_measure::times::median;

fn at_most(goal: &str, value: f64, most: f64, unit: &str) -> Figure {
    let (goal, measured) = (format!("{goal}: at most {most}{unit}"), format!("{}{unit}", round(value)));
    Figure { goal, measured, met: value <= most }
}

fn at_least(goal: &str, value: f64, least: f64, unit: &str) -> Figure {
    let (goal, measured) = (format!("{goal}: at least {least}{unit}"), format!("{}{unit}", round(value)));
    Figure { goal, measured, met: value >= least }
}

fn round(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Goals of calls for one build. Those of a format are: added latency and throughput over nginx's, CPU time with 64 calls
/// at a time over nginx's.
struct BuildGoals {
    lane: &'static str,
    lane_to_pipe: &'static str,
    events: [f64; 3],
    json: [f64; 3],
    processor_at_1: f64,
    to_pipe: f64,
}

const BUILDS: [BuildGoals; 2] = [
    BuildGoals {
        lane: GRIPFAST,
        lane_to_pipe: TO_PIPE,
        events: [1.5, 0.8, 1.4],
        json: [2.0, 0.65, 2.0],
        processor_at_1: 1.5,
        to_pipe: 1.4,
    },
    BuildGoals {
        lane: PACKAGED,
        lane_to_pipe: PACKAGED_TO_PIPE,
        events: [1.2, 0.85, 1.2],
        json: [1.4, 0.72, 1.6],
        processor_at_1: 1.2,
        to_pipe: 1.2,
    },
];

pub(crate) fn of_calls(calls: &Calls) -> Vec<Figure> {
    let find = |server: Era, bytes: usize, events: bool, at_once: usize, lane: &str| {
        calls.rows.iter().find(|row| {
            let case = row.case;
            (case.era, case.server, case.bytes, case.events, case.at_once)
                == (Era::Legacy, server, bytes, events, at_once)
                && row.lanes.iter().any(|(name, _)| *name == lane)
        })
    };
    let added = |row: &CallRow, lane: &'static str| {
        let [direct, nginx, gripfast] =
            [DIRECT, NGINX, lane].map(|lane| row.median_of(lane, |sample| sample.p50).unwrap_or(f64::NAN));
        (gripfast - direct) / (nginx - direct)
    };
    let over_nginx = |row: &CallRow, lane: &str, figure: fn(&Sample) -> f64| {
        row.ratio([lane, NGINX], |[ours, theirs]| figure(&ours) / figure(&theirs)).unwrap_or(f64::NAN)
    };
    let mut figures = Vec::new();
    for build in &BUILDS {
        let lane = build.lane;
        // A legacy client and a modern server: today's clients, and servers of current SDKs.
        for (events, form, [latency, throughput, processor]) in
            [(true, "event stream", build.events), (false, "JSON", build.json)]
        {
            let what = |at_once: usize| format!("{lane}, modern server, {form}, concurrency {at_once}");
            if let Some(row) = find(Era::Modern, SMALL, events, 1, lane) {
                let goal = format!("{}: added latency (p50) over nginx's added latency", what(1));
                figures.push(at_most(&goal, added(row, lane), latency, " ×"));
                let goal = format!("{}: CPU time over nginx's", what(1));
                let measured = over_nginx(row, lane, |sample| sample.processor);
                figures.push(at_most(&goal, measured, build.processor_at_1, " ×"));
            }
            if let Some(row) = find(Era::Modern, SMALL, events, 64, lane) {
                let goal = format!("{}: throughput over nginx's", what(64));
                let measured = over_nginx(row, lane, |sample| sample.per_second);
                figures.push(at_least(&goal, measured, throughput, " ×"));
                let goal = format!("{}: CPU time over nginx's", what(64));
                let measured = over_nginx(row, lane, |sample| sample.processor);
                figures.push(at_most(&goal, measured, processor, " ×"));
                let goal = format!("{}: connections to the server per call", what(64));
                let opened = row.median_of(lane, |sample| sample.connections.unwrap_or(f64::NAN));
                figures.push(at_most(&goal, opened.unwrap_or(f64::NAN), 0.02, ""));
            }
        }
        if let Some(row) = find(Era::Legacy, SMALL, false, 1, build.lane_to_pipe) {
            let goal = format!(
                "{}, concurrency 1: p50 over that of a plain pipe plus direct HTTP",
                build.lane_to_pipe
            );
            let ratio = row.ratio([build.lane_to_pipe, PIPE, DIRECT], |[ours, pipe, direct]| {
                ours.p50 / (pipe.p50 + direct.p50)
            });
            figures.push(at_most(&goal, ratio.unwrap_or(f64::NAN), build.to_pipe, " ×"));
        }
    }
    if let Some(row) = find(Era::Legacy, LARGE, false, 1, GRIPFAST) {
        let goal = "1 MB, concurrency 1: added latency (p50) over nginx's added latency";
        figures.push(at_most(goal, added(row, GRIPFAST), 1.5, " ×"));
        let [before, after] = calls.memory.gripfast_large;
        let goal = "memory after several times as many 1 MB results over memory after the first ones";
        figures.push(at_most(goal, after as f64 / before as f64, 1.2, " ×"));
    }
    let goal = "idle memory with one server";
    figures.push(at_most(goal, calls.memory.gripfast_idle as f64 / 1e6, 18.0, " MB"));
    figures
}

pub(crate) fn of_lists(lists: &Lists) -> Vec<Figure> {
    let ratio = |row: &crate::lists::ListRow| {
        let [(_, nginx), (_, gripfast)] = &row.lanes;
        median(nginx.iter().zip(gripfast).map(|(theirs, ours)| ours.p50 / theirs.p50))
    };
    let goal =
        format!("listing of {} tools: p50 over that of nginx with the same bytes in a file", lists.tools);
    lists.rows.iter().take(1).map(|row| at_most(&goal, ratio(row), 2.0, " ×")).collect()
}

pub(crate) fn of_startup(startup: &Startup) -> Vec<Figure> {
    let Startup { nothing, lazy_servers, lazy, eager_servers, ratio, .. } = startup;
    let goal = format!(
        "exec to the first list, {lazy_servers} lazy servers with a stored catalog: time in addition to that of `true`"
    );
    let eager = format!(
        "first complete list of {eager_servers} sample servers that start together: time over that of one"
    );
    vec![at_most(&goal, lazy - nothing, 150.0, " ms"), at_most(&eager, *ratio, 3.0, " ×")]
}

pub(crate) fn of_observing(observing: &Observing) -> Vec<Figure> {
    let goal = "throughput with ledger, audit log and a metrics reader over throughput without them";
    vec![at_least(goal, observing.throughput_ratio(), 0.9, " ×")]
}

pub(crate) fn of_instructions(costs: &[CallCost]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cost in costs {
        let Some(goals) = instructions::goals(cost.case, cost.build) else { continue };
        let goal = |what: &str| format!("{}, one call, {}: {what}", cost.build, cost.case);
        figures.push(at_most(&goal("instructions"), cost.instructions, goals.instructions, ""));
        figures.push(at_most(&goal("cache lines"), cost.cache_lines, goals.cache_lines, ""));
        if let Some(allocations) = cost.allocations {
            figures.push(at_most(&goal("allocations"), allocations, goals.allocations, ""));
        }
    }
    figures
}

pub(crate) fn of_scale(scale: &Scale) -> Vec<Figure> {
    let mut figures = vec![
        at_most(
            &format!("memory per session with {} idle legacy sessions", scale.sessions.count),
            scale.sessions.each / 1024.0,
            6.0,
            " KB",
        ),
        at_most(
            &format!("memory per stream with {} open streams, including sessions", scale.streams.count),
            scale.streams.each / 1024.0,
            40.0,
            " KB",
        ),
    ];
    let upstreams = scale.growth.iter().find(|growth| growth.over == Dimension::Upstreams);
    if let Some([first, .., last]) = upstreams.map(|growth| growth.points.as_slice()) {
        let each = (last.memory as f64 - first.memory as f64) / (last.count - first.count) as f64;
        figures.push(at_most("memory per additional server with 10 tools", each / 1024.0, 150.0, " KB"));
    }
    for flat in &scale.flat {
        let goal = format!("p50 of a call with {} over that with one of each", flat.what);
        figures.push(at_most(&goal, flat.ratio(|sample| sample.p50), 1.15, " ×"));
    }
    figures
}

pub(crate) fn of_replicas(replicas: &Replicas) -> Vec<Figure> {
    let Replicas { overhead, heartbeats: _, takeovers, restarts } = replicas;
    let mut figures = Vec::new();
    for row in &overhead.rows {
        let goal = |what: &str| format!("`[cluster]` on over off, concurrency {}: {what}", row.at_once);
        figures.push(at_most(&goal("p50"), row.ratio(|sample| sample.p50), 1.05, " ×"));
        let processor = row.ratio(|sample| sample.processor);
        figures.push(at_most(&goal("CPU time per call"), processor, 1.05, " ×"));
    }
    figures.push(Figure {
        goal: "store commands per call at the owner: 0".to_owned(),
        measured: format!("{:.4} in {} calls", overhead.store_commands, overhead.counted_calls),
        // A heartbeat more or less in one of the two windows.
        met: overhead.store_commands < 0.01,
    });
    figures.push(at_most(
        &format!("store memory per session that was taken over, {} sessions", takeovers.sessions),
        takeovers.memory,
        600.0,
        " B",
    ));
    figures.push(Figure {
        goal: format!("rolling restart of {} replicas: no failed call", restarts.replicas),
        measured: format!(
            "{} of {} failed, {} connections refused",
            restarts.failed, restarts.calls, restarts.refused
        ),
        met: restarts.failed == 0,
    });
    figures
}
