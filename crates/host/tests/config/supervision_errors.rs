//! Errors in the supervision settings of a server.

use super::{TOML, report};
use insta::assert_snapshot;

#[test]
fn a_duration_without_a_unit() {
    let text = r#"[servers.github]
command = "npx"
timeouts = { call = 30 }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a duration with a unit, found a number
         --> gripfast.toml:3:21 (servers.github.timeouts.call)
          |
        3 | timeouts = { call = 30 }
          |                     ^^
          hint: write "30s" for seconds or "30ms" for milliseconds
    "#);
}

#[test]
fn a_duration_in_quotes_without_a_unit() {
    let text = r#"[servers.github]
command = "npx"
timeouts = { call = "30" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `30` is not a duration
         --> gripfast.toml:3:21 (servers.github.timeouts.call)
          |
        3 | timeouts = { call = "30" }
          |                     ^^^^
          hint: write "30s" for seconds or "30ms" for milliseconds
    "#);
}

#[test]
fn a_duration_in_words() {
    let text = r#"[servers.github]
command = "npx"
idle_timeout = "10 minutes"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `10 minutes` is not a duration
         --> gripfast.toml:3:16 (servers.github.idle_timeout)
          |
        3 | idle_timeout = "10 minutes"
          |                ^^^^^^^^^^^^
          hint: write whole numbers with units: "100ms", "30s", "5m", "1h30m"
    "#);
}

#[test]
fn a_duration_that_is_a_list() {
    let text = r#"[servers.github]
command = "npx"
idle_timeout = []
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a duration such as "30s", found a list
         --> gripfast.toml:3:16 (servers.github.idle_timeout)
          |
        3 | idle_timeout = []
          |                ^
    "#);
}

#[test]
fn a_keepalive_that_is_too_eager() {
    let text = r#"[servers.github]
command = "npx"
keepalive_interval = "1s"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: 1s is out of range; allowed: 5s to 30d, or 0s for off
         --> gripfast.toml:3:22 (servers.github.keepalive_interval)
          |
        3 | keepalive_interval = "1s"
          |                      ^^^^
    "#);
}

#[test]
fn a_call_timeout_of_zero() {
    let text = r#"[servers.github]
command = "npx"
timeouts = { call = "0s" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: 0s is out of range; allowed: 1ms to 30d
         --> gripfast.toml:3:21 (servers.github.timeouts.call)
          |
        3 | timeouts = { call = "0s" }
          |                     ^^^^
    "#);
}

#[test]
fn a_duration_that_is_too_long() {
    let text = r#"[servers.github]
command = "npx"
timeouts = { call = "365d" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: 365d is out of range; allowed: 1ms to 30d
         --> gripfast.toml:3:21 (servers.github.timeouts.call)
          |
        3 | timeouts = { call = "365d" }
          |                     ^^^^^^
    "#);
}

#[test]
fn a_threshold_of_zero() {
    let text = r#"[servers.github]
command = "npx"
circuit = { threshold = 0 }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `0` is out of range; allowed: 1 to 10000
         --> gripfast.toml:3:25 (servers.github.circuit.threshold)
          |
        3 | circuit = { threshold = 0 }
          |                         ^
    ");
}

#[test]
fn a_threshold_below_zero() {
    let text = r#"[servers.github]
command = "npx"
circuit = { threshold = -3 }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `-3` is out of range; allowed: 1 to 10000
         --> gripfast.toml:3:25 (servers.github.circuit.threshold)
          |
        3 | circuit = { threshold = -3 }
          |                         ^^
    ");
}

#[test]
fn a_fraction_of_a_restart() {
    let text = r#"[servers.github]
command = "npx"
restart = { max = 2.5 }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: expected a whole number, found `2.5`
         --> gripfast.toml:3:19 (servers.github.restart.max)
          |
        3 | restart = { max = 2.5 }
          |                   ^^^
    ");
}

#[test]
fn a_backoff_upside_down() {
    let text = r#"[servers.github]
command = "npx"
restart = { backoff_min = "1m", backoff_max = "30s" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `backoff_min` (1m) is longer than `backoff_max` (30s)
         --> gripfast.toml:3:11 (servers.github.restart)
          |
        3 | restart = { backoff_min = "1m", backoff_max = "30s" }
          |           ^
    "#);
}

#[test]
fn a_first_attempt_that_is_longer_than_the_longest_one() {
    let text = r#"[servers.github]
command = "npx"
timeouts = { connect = "2m", connect_max = "1m" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `connect` (2m) is longer than `connect_max` (1m)
         --> gripfast.toml:3:12 (servers.github.timeouts)
          |
        3 | timeouts = { connect = "2m", connect_max = "1m" }
          |            ^
    "#);
}

#[test]
fn a_backoff_above_the_default_maximum() {
    let text = r#"[servers.github]
command = "npx"
restart = { backoff_min = "31s" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `backoff_min` (31s) is longer than `backoff_max` (30s)
         --> gripfast.toml:3:11 (servers.github.restart)
          |
        3 | restart = { backoff_min = "31s" }
          |           ^
    "#);
}

#[test]
fn no_call_in_flight() {
    let text = r#"[servers.github]
command = "npx"
max_in_flight = 0
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `0` is out of range; allowed: 1 to 65536
         --> gripfast.toml:3:17 (servers.github.max_in_flight)
          |
        3 | max_in_flight = 0
          |                 ^
    ");
}

#[test]
fn a_number_in_quotes() {
    let text = r#"[servers.github]
command = "npx"
max_waiting = "10"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: expected a whole number, found a string
         --> gripfast.toml:3:15 (servers.github.max_waiting)
          |
        3 | max_waiting = "10"
          |               ^^^^
    "#);
}

#[test]
fn a_when_down_that_does_not_exist() {
    let text = r#"[servers.github]
command = "npx"
when_down = "hide"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `hide` is not one of `keep`, `withdraw`
         --> gripfast.toml:3:13 (servers.github.when_down)
          |
        3 | when_down = "hide"
          |             ^^^^^^
    "#);
}

#[test]
fn a_misspelt_key_of_a_table() {
    let text = r#"[servers.github]
command = "npx"
circuit = { treshold = 3 }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: unknown key `treshold`
         --> gripfast.toml:3:13 (servers.github.circuit.treshold)
          |
        3 | circuit = { treshold = 3 }
          |             ^^^^^^^^
          hint: did you mean `threshold`?
    ");
}

#[test]
fn a_circuit_that_is_a_flag() {
    let text = r#"[servers.github]
command = "npx"
circuit = true
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: expected a table, found a boolean
         --> gripfast.toml:3:11 (servers.github.circuit)
          |
        3 | circuit = true
          |           ^^^^
    ");
}

#[test]
fn a_spare_of_something_that_is_not_started_here() {
    let text = r#"[servers.docs]
url = "https://example.com/mcp"
spare = 1
recycle = { max_rss = "1GiB", max_lifetime = "1d" }
"#;
    assert_snapshot!(report(TOML, text), @r"
        error: `spare` needs a server with a `command`; this one has a `url`
         --> gripfast.toml:1:10 (servers.docs.spare)
          |
        1 | [servers.docs]
          |          ^^^^

        error: `recycle.max_rss` needs a server with a `command`; this one has a `url`
         --> gripfast.toml:1:10 (servers.docs.recycle.max_rss)
          |
        1 | [servers.docs]
          |          ^^^^
    ");
}

#[test]
fn a_memory_limit_that_is_too_small() {
    let text = r#"[servers.github]
command = "npx"
recycle = { max_rss = "10KiB" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `10KiB` is out of range; allowed: 1MiB to 1024GiB
         --> gripfast.toml:3:23 (servers.github.recycle.max_rss)
          |
        3 | recycle = { max_rss = "10KiB" }
          |                       ^^^^^^^
    "#);
}

#[test]
fn errors_in_defaults_are_reported_once_for_all_servers() {
    let text = r#"[defaults]
url = "https://h.example"
lazzy = true
max_in_flight = 0
[servers.a]
command = "x"
[servers.b]
command = "y"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `url` cannot be the same for all servers
         --> gripfast.toml:2:1 (defaults.url)
          |
        2 | url = "https://h.example"
          | ^^^
          hint: write it in the table of each server

        error: unknown key `lazzy`
         --> gripfast.toml:3:1 (defaults.lazzy)
          |
        3 | lazzy = true
          | ^^^^^
          hint: did you mean `lazy`?

        error: `0` is out of range; allowed: 1 to 65536
         --> gripfast.toml:4:17 (defaults.max_in_flight)
          |
        4 | max_in_flight = 0
          |                 ^
    "#);
}

#[test]
fn a_spare_of_a_server_that_must_run_once() {
    let text = r#"[servers.notes]
command = "notes"
spare = 1
placement = "one"

[servers.other]
command = "other"
placement = "two"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `spare` starts a second process, and `placement = "one"` allows one
         --> gripfast.toml:1:10 (servers.notes.spare)
          |
        1 | [servers.notes]
          |          ^^^^^
          hint: remove one of them

        error: `two` is not one of `each`, `one`
         --> gripfast.toml:8:13 (servers.other.placement)
          |
        8 | placement = "two"
          |             ^^^^^
    "#);
}
