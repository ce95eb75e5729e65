//! OTLP export of the metrics of `/metrics`, with the same values and names. Histograms are recorded by [`super::span`]
//! for each request, because OpenTelemetry has no observable histograms.

use crate::metrics::{Facts, Family, Kind, Series, Value, families};
use gripfast::sync::Mutex;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Registers every counter, gauge and info metric.
pub(super) fn register(meter: &Meter, facts: impl Fn() -> Option<Facts> + Send + Sync + 'static) {
    let snapshot = Arc::new(FactsSnapshot { facts, last: Mutex::default() });
    for family in families() {
        let snapshot = Arc::clone(&snapshot);
        match family.kind {
            Kind::Counter => {
                let instrument = meter.u64_observable_counter(family.name).with_description(family.help);
                instrument
                    .with_callback(move |to| {
                        snapshot.for_each_series(family, |value, labels| {
                            if let Value::Count(count) = value {
                                to.observe(count, labels);
                            }
                        });
                    })
                    .build();
            }
            Kind::Gauge | Kind::Info => {
                let instrument = meter.f64_observable_gauge(family.name).with_description(family.help);
                instrument
                    .with_callback(move |to| {
                        snapshot.for_each_series(family, |value, labels| match value {
                            Value::Count(count) => to.observe(count as f64, labels),
                            Value::Number(number) => to.observe(number, labels),
                            Value::Histogram(_) => {}
                        });
                    })
                    .build();
            }
            Kind::Histogram => {}
        }
    }
}

/// Cached values for all families that are read together.
struct FactsSnapshot<F> {
    facts: F,
    last: Mutex<Option<(Instant, Facts)>>,
}

impl<F: Fn() -> Option<Facts>> FactsSnapshot<F> {
    /// Reads within this time get the same values.
    const MAX_AGE: Duration = Duration::from_secs(1);

    fn for_each_series(&self, family: &Family, mut observe: impl FnMut(Value, &[KeyValue])) {
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() > Self::MAX_AGE) {
            *last = (self.facts)().map(|facts| (Instant::now(), facts));
        }
        let Some((_, facts)) = &*last else { return };
        for Series { labels, value } in family.read(facts) {
            let names = family.labels.iter().copied();
            let labels: Vec<KeyValue> =
                names.zip(labels).map(|(name, label)| KeyValue::new(name, label)).collect();
            observe(value, &labels);
        }
    }
}
