//! Security events: audit lines, events and counters, and their limits under a flood.

use crate::memory_server::run_ready_tasks;
use gripfast::{
    AdminAction, AuditOptions, AuthFailure, AuthFailures, AuthTarget, Event, Host, KeyChange, RecordDetail,
    RequestSource, SecurityEvent, TrustDecision, UpstreamEvent,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;

fn host(directory: &Path, keeps: RecordDetail) -> Host {
    let options = AuditOptions { detail: keeps, ..AuditOptions::default() };
    Host::builder().state_dir(Some(directory.to_owned())).audit(options).build()
}

fn wrong_key() -> AuthFailures {
    AuthFailures {
        target: AuthTarget::Mcp,
        reason: AuthFailure::UnknownKey,
        principal: None,
        source: RequestSource::Address([192, 0, 2, 1].into()),
        count: 1,
    }
}

fn drain_security_events(events: &mut Receiver<UpstreamEvent>) -> Vec<SecurityEvent> {
    let told = std::iter::from_fn(|| events.try_recv().ok());
    told.filter_map(|told| match told.event {
        Event::Security(event) if told.server.is_none() => Some(event),
        _ => None,
    })
    .collect()
}

/// The audit log without times and hash chain.
fn lines(directory: &Path) -> Vec<Value> {
    let Ok(files) = std::fs::read_dir(directory.join("audit")) else { return Vec::new() };
    let texts: Vec<String> =
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            for key in ["at_ms", "prev", "chain"] {
                line.as_object_mut().unwrap().remove(key);
            }
            line
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn g05_a_flood_of_failed_authentications_has_few_audit_lines_and_events() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(directory.path(), RecordDetail::Digest);
    let mut events = host.subscribe_events();
    let delays: Vec<Duration> = (0..1000).map(|_| host.record_auth_failure(wrong_key())).collect();
    assert_eq!((delays[0], delays[999]), (Duration::ZERO, Duration::from_secs(5)));
    assert_eq!(drain_security_events(&mut events), vec![SecurityEvent::AuthFailed(wrong_key()); 3]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    let summary = SecurityEvent::AuthFailed(AuthFailures { count: 997, ..wrong_key() });
    assert_eq!(drain_security_events(&mut events), [summary], "though no request followed");
    host.record_auth_failure(wrong_key());
    host.shutdown().await;
    let counts = host.security_counts().auth_failures;
    assert_eq!(counts[&(AuthTarget::Mcp, AuthFailure::UnknownKey)], 1001, "each is counted");
    let written: Vec<u64> =
        lines(directory.path()).iter().map(|line| line["count"].as_u64().unwrap()).collect();
    assert_eq!(written, [1, 1, 1, 997, 1], "what was only counted is written at the end");
}

fn everything() -> [SecurityEvent; 3] {
    [
        SecurityEvent::AdminAction {
            action: AdminAction::Stop,
            server: Some("demo".to_owned()),
            tool: None,
            source: RequestSource::ControlSocket,
            status: Some(202),
        },
        SecurityEvent::KeysChanged {
            change: KeyChange::Added,
            names: vec!["laptop".to_owned(), "ci".to_owned()],
            actor: Some("uid 7".to_owned()),
        },
        SecurityEvent::TrustChanged {
            decision: TrustDecision::Untrusted,
            path: "/srv/gripfast.toml".to_owned(),
            actor: None,
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn g05_security_events_have_an_audit_line_an_event_and_a_count() {
    for keeps in [RecordDetail::Digest, RecordDetail::Nothing] {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path(), keeps);
        let mut events = host.subscribe_events();
        host.record_auth_failure(wrong_key());
        everything().into_iter().for_each(|event| host.record_security_event(event));
        let mut expected = vec![SecurityEvent::AuthFailed(wrong_key())];
        expected.extend(everything());
        assert_eq!(drain_security_events(&mut events), expected, "{keeps:?}");
        assert_eq!(host.security_events().len(), 4);
        let counts = host.security_counts();
        assert_eq!(counts.admin_actions[&AdminAction::Stop], 1);
        assert_eq!(counts.key_changes[&KeyChange::Added], 2);
        assert_eq!(counts.trust_decisions[&TrustDecision::Untrusted], 1);
        run_ready_tasks().await;
        host.shutdown().await;
        let expected = match keeps {
            RecordDetail::Nothing => Vec::new(),
            RecordDetail::Digest | RecordDetail::Arguments => vec![
                json!({ "event": "auth_failed", "target": "mcp", "reason": "unknown_key", "client": null,
                        "source": "192.0.2.1", "count": 1 }),
                json!({ "event": "admin_action", "actor": "admin", "action": "stop", "server": "demo",
                        "item": null, "source": "control socket", "status": 202 }),
                json!({ "event": "keys_changed", "change": "added", "names": ["laptop", "ci"], "actor": "uid 7" }),
                json!({ "event": "trust_changed", "decision": "untrusted", "path": "/srv/gripfast.toml",
                        "actor": null }),
            ],
        };
        assert_eq!(lines(directory.path()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn g05_names_in_security_events_hold_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(directory.path(), RecordDetail::Digest);
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    host.record_security_event(SecurityEvent::AdminAction {
        action: AdminAction::Unknown,
        server: Some(secret.clone()),
        tool: Some(secret.clone()),
        source: RequestSource::ControlSocket,
        status: None,
    });
    assert!(!format!("{:?}", host.security_events()).contains(&secret));
    host.shutdown().await;
    assert!(!lines(directory.path())[0].to_string().contains(&secret));
}
