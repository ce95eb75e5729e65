//! The text of a scrape. Escapes, suffixes and the order of lines are `prometheus_client`'s business.

use super::families::{Facts, Family, Kind, Value};
use gripfast::Spread;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// One scrape.
#[derive(Debug)]
struct Scrape(Facts);

pub(super) fn written(facts: Facts) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(facts)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
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
    for series in (family.read)(facts) {
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
        (Value::Spread(spread), _) => {
            let bounds = Spread::BOUNDS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts).collect();
            let count = spread.counts.iter().sum();
            metric.encode_histogram::<NoLabelSet>(spread.sum.as_secs_f64(), count, &buckets, None)
        }
    }
}
