//! Text format of a scrape. `prometheus_client` does the escaping, the suffixes and the order of lines.

use super::families::{Facts, Family, Kind, Value};
use gripfast::DurationHistogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashMap;
use std::fmt;

/// One scrape.
#[derive(Debug)]
struct Scrape(Facts);

/// The format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus text 0.0.4, which every scraper reads.
    Prometheus,
    /// OpenMetrics 1.0.0, for scrapers that ask for it.
    OpenMetrics,
}

impl Format {
    /// The format that these `Accept` headers ask for.
    pub(super) fn from_accept<'h>(headers: impl Iterator<Item = &'h str>) -> Self {
        const OPEN_METRICS: &str = "application/openmetrics-text";
        let mut ranges = headers.flat_map(|header| header.split(','));
        let is_accepted = ranges.any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_named = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(OPEN_METRICS));
            is_named && !parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)))
        });
        if is_accepted { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(super) fn render(facts: Facts, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(facts)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(match format {
        Format::Prometheus => to_prometheus(&written),
        Format::OpenMetrics => written,
    })
}

/// Converts OpenMetrics to Prometheus text, in which a counter is described under the name of its samples, an info
/// metric is a gauge, and units and the end marker are left out.
fn to_prometheus(open_metrics: &str) -> String {
    let kinds: HashMap<&str, &str> =
        open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|start| {
            let (name, rest) = line.strip_prefix(start)?.split_once(' ')?;
            Some((start, name, rest))
        });
        match described {
            Some((start, name, rest)) => {
                let (suffix, kind) = match kinds.get(name) {
                    Some(&"counter") => ("_total", rest),
                    Some(&"info") => ("_info", if start == "# TYPE " { "gauge" } else { rest }),
                    Some(_) | None => ("", rest),
                };
                text += &format!("{start}{name}{suffix} {kind}\n");
            }
            None if line.starts_with('#') => {}
            None => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in super::families() {
            let units = [("_seconds", &Unit::Seconds), ("_bytes", &Unit::Bytes)];
            let with_unit =
                units.into_iter().find_map(|(end, unit)| Some((family.name.strip_suffix(end)?, Some(unit))));
            let (name, unit) = with_unit.unwrap_or((family.name, None));
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            let mut metric = encoder.encode_descriptor(name, family.help, unit, kind)?;
            write(family, &self.0, &mut metric)?;
        }
        Ok(())
    }
}

fn write(family: &Family, facts: &Facts, metric: &mut MetricEncoder<'_>) -> fmt::Result {
    for series in family.read(facts) {
        let names = family.labels.iter().copied();
        let labels: Vec<(&str, String)> = names.zip(series.labels).collect();
        if family.kind == Kind::Info {
            metric.encode_info(&labels)?;
            continue;
        }
        if labels.is_empty() {
            write_value(family.kind, &series.value, metric)?;
        } else {
            write_value(family.kind, &series.value, &mut metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn write_value(kind: Kind, value: &Value, metric: &mut MetricEncoder<'_>) -> fmt::Result {
    match (value, kind) {
        (Value::Count(count), Kind::Counter) => metric.encode_counter::<NoLabelSet, u64, u64>(count, None),
        (Value::Count(count), _) => metric.encode_gauge(count),
        (Value::Number(number), _) => metric.encode_gauge(number),
        (Value::Histogram(spread), _) => {
            let bounds = DurationHistogram::BOUNDS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts).collect();
            let count = spread.counts.iter().sum();
            metric.encode_histogram::<NoLabelSet>(spread.sum.as_secs_f64(), count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_sent_only_if_accept_asks_for_it() {
        let accepted = |header: &str| Format::from_accept([header].into_iter());
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(accepted(prometheus), Format::OpenMetrics);
        for other in
            ["", "*/*", "text/plain", "application/openmetrics-text;q=0", "text/html,application/xml"]
        {
            assert_eq!(accepted(other), Format::Prometheus, "{other}");
        }
    }

    #[test]
    fn prometheus_text_has_counter_suffixes_and_no_units_or_end_marker() {
        let open_metrics = "# HELP a Calls.\n# TYPE a counter\na_total{s=\"# HELP x\"} 1\n# HELP b_seconds Time.\n\
                            # TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 2\n# HELP c Build.\n\
                            # TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n";
        let expected = "# HELP a_total Calls.\n# TYPE a_total counter\na_total{s=\"# HELP x\"} 1\n# HELP b_seconds Time.\n\
                        # TYPE b_seconds gauge\nb_seconds 2\n# HELP c_info Build.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n";
        assert_eq!(to_prometheus(open_metrics), expected);
    }
}
