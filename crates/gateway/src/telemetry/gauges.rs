//! The metrics of `/metrics`, for a collector. They are read from the same facts, under the same names; histograms are
//! told by [`super::span`] as they happen, since there is no other way to tell them.

use crate::metrics::{Facts, Family, Kind, Series, Value, families};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tells every family that has a value at each moment.
pub(super) fn register(meter: &Meter, facts: impl Fn() -> Option<Facts> + Send + Sync + 'static) {
    let glance = Arc::new(Glance { facts, last: Mutex::default() });
    for family in families() {
        let glance = Arc::clone(&glance);
        match family.kind {
            Kind::Counter => {
                let instrument = meter.u64_observable_counter(family.name).with_description(family.help);
                instrument
                    .with_callback(move |to| {
                        glance.each(family, |value, labels| {
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
                        glance.each(family, |value, labels| match value {
                            Value::Count(count) => to.observe(count as f64, labels),
                            Value::Number(number) => to.observe(number, labels),
                            Value::Spread(_) => {}
                        });
                    })
                    .build();
            }
            Kind::Histogram => {}
        }
    }
}

/// One look at the facts for all families that are read together.
struct Glance<F> {
    facts: F,
    last: Mutex<Option<(Instant, Facts)>>,
}

impl<F: Fn() -> Option<Facts>> Glance<F> {
    /// Those who ask within this long are told the same.
    const LASTS: Duration = Duration::from_secs(1);

    fn each(&self, family: &Family, mut tell: impl FnMut(Value, &[KeyValue])) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() > Self::LASTS) {
            *last = (self.facts)().map(|facts| (Instant::now(), facts));
        }
        let Some((_, facts)) = &*last else { return };
        for Series { labels, value } in (family.read)(facts) {
            let names = family.labels.iter().copied();
            let labels: Vec<KeyValue> =
                names.zip(labels).map(|(name, label)| KeyValue::new(name, label)).collect();
            tell(value, &labels);
        }
    }
}
