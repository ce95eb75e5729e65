//! Dashboard and alert rules in `deploy/` use only metrics and labels that exist.

use gripfast_gateway::metrics::families;
use std::collections::BTreeSet;
use std::path::Path;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything in a text that looks like one of our metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let is_name = |char: char| char.is_ascii_lowercase() || char == '_';
    text.split(|char| !is_name(char)).filter(|word| word.starts_with("gripfast_")).collect()
}

fn known() -> BTreeSet<String> {
    let series = families().iter().flat_map(|family| {
        family.kind.suffixes().iter().map(move |suffix| format!("{}{suffix}", family.name))
    });
    series.collect()
}

#[test]
fn the_dashboard_and_the_alerts_use_existing_metrics() {
    for file in ["grafana-dashboard.json", "prometheus-alerts.yaml"] {
        let (text, known) = (read(file), known());
        let unknown: Vec<_> = named(&text).into_iter().filter(|name| !known.contains(*name)).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
        assert!(named(&text).len() >= 5, "{file} asks for something");
    }
}

/// Each query of the dashboard only groups by and selects labels that its metrics have.
#[test]
fn the_dashboard_is_json_and_its_queries_use_existing_labels() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana-dashboard.json")).unwrap();
    let labels: BTreeSet<&str> = families().iter().flat_map(|family| family.labels).copied().collect();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut count = 0;
    for target in targets {
        let query = target["expr"].as_str().unwrap();
        for part in query.split("by (").skip(1) {
            for label in part.split(')').next().unwrap().split(", ") {
                assert!(label == "le" || labels.contains(label), "`{label}` in {query}");
            }
        }
        count += 1;
    }
    assert!(count >= 8, "there are queries: {count}");
}
