//! Small SVG plots: duration of a call and memory over a count on a logarithmic axis.

use std::fmt::Write;

use crate::scale::{Growth, Point};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 28.0;

/// Value of a point for a panel, if the point has it.
type Series = fn(&Point) -> Option<f64>;

pub(super) fn svg(growth: &Growth) -> String {
    let over = growth.over.label();
    let panels: [(&str, Series); 3] = [
        ("p50 of a call, µs", |point| Some(point.call)),
        ("memory, MB", |point| Some(point.memory as f64 / 1e6)),
        ("first complete list, ms", |point| point.ready),
    ];
    let panels: Vec<String> = panels
        .iter()
        .filter_map(|(title, value)| {
            let points: Option<Vec<(f64, f64)>> =
                growth.points.iter().map(|point| Some((point.count as f64, value(point)?))).collect();
            points.map(|points| panel(title, over, &points))
        })
        .collect();
    let mut text = String::new();
    let width = WIDTH * panels.len() as f64;
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" \
         height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"white\"/>"
    );
    for (at, panel) in panels.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate({} 0)\">\n{panel}</g>", WIDTH * at as f64);
    }
    text.push_str("</svg>\n");
    text
}

fn panel(title: &str, over: &str, points: &[(f64, f64)]) -> String {
    let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max) * 1.25;
    let (first, last) =
        (points.first().map_or(1.0, |point| point.0), points.last().map_or(1.0, |point| point.0));
    let span = (last / first).log10().max(0.1);
    let x = |count: f64| LEFT + (count / first).log10() / span * (WIDTH - LEFT - 24.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - TOP);
    let mut text = String::new();
    let (floor, right) = (HEIGHT - BOTTOM, WIDTH - 16.0);
    let _ =
        writeln!(text, "<text x=\"{LEFT}\" y=\"16\" font-size=\"12\" font-weight=\"bold\">{title}</text>");
    let _ = writeln!(text, "<path d=\"M{LEFT} {TOP}V{floor}H{right}\" fill=\"none\" stroke=\"#888\"/>");
    for part in [0.5, 1.0] {
        let (value, at) = (most * part, y(most * part));
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(value)
        );
    }
    let line: Vec<String> =
        points.iter().map(|(count, value)| format!("{:.1},{:.1}", x(*count), y(*value))).collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"2\"/>",
        line.join(" ")
    );
    for (count, value) in points {
        let (x, y) = (x(*count), y(*value));
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#1f6feb\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
            y - 7.0,
            short(*value),
            floor + 15.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{over}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0
    );
    text
}

fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
