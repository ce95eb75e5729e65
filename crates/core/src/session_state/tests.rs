use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const EACH: SyncSupport = SyncSupport { level: true, subscribe: SubscribeMethod::Each };
const STREAM: SyncSupport = SyncSupport {
    level: false,
    subscribe: SubscribeMethod::Stream { lists: true, resources: true, tasks: true },
};

fn at(seconds: u64) -> Mono {
    Mono::from_origin(Duration::from_secs(seconds))
}

fn first() -> Epoch {
    Epoch::default().next()
}

fn update(begin: &[&str], end: &[&str]) -> SyncAction {
    let owned = |uris: &[&str]| uris.iter().map(|uri| resource(uri)).collect();
    SyncAction::UpdateSubscriptions { subscribe: owned(begin), unsubscribe: owned(end) }
}

fn open(uris: &[&str]) -> SyncAction {
    SyncAction::OpenStream { targets: uris.iter().map(|uri| resource(uri)).collect() }
}

fn resource(uri: &str) -> SubscriptionTarget {
    SubscriptionTarget::Resource(uri.to_owned())
}

fn task(id: &str) -> SubscriptionTarget {
    SubscriptionTarget::Task(id.to_owned())
}

/// Performs every due action; the server accepts all of them. Returns the actions, and the targets whose subscribers
/// have to be notified.
fn sync_all(
    desired: &mut DesiredSessionState,
    now: Mono,
    epoch: Epoch,
) -> (Vec<SyncAction>, Vec<SubscriptionTarget>) {
    let (mut actions, mut again) = (Vec::new(), Vec::new());
    while let Some(action) = desired.next_action(now, epoch) {
        let ended = match &action {
            SyncAction::SetLevel(_) => SyncEnd::Level(SyncVerdict::Done),
            SyncAction::UpdateSubscriptions { subscribe: begin, .. } => {
                SyncEnd::Subscribed(begin.iter().map(|uri| (uri.clone(), SyncVerdict::Done)).collect())
            }
            SyncAction::OpenStream { targets } => SyncEnd::StreamOpened { granted: targets.clone() },
        };
        again.extend(desired.action_ended(now, epoch, ended));
        actions.push(action);
    }
    assert!(desired.wake_at().is_none_or(|wake| wake > now), "awake with nothing to do");
    (actions, again)
}

fn session(support: SyncSupport) -> DesiredSessionState {
    let mut desired = DesiredSessionState::default();
    desired.begin_session(first(), support, Vec::new());
    desired
}

#[test]
fn the_first_subscriber_subscribes_and_the_last_unsubscribes() {
    let mut desired = session(EACH);
    desired.subscribe(&resource("a")).unwrap();
    desired.subscribe(&resource("a")).unwrap();
    assert_eq!(sync_all(&mut desired, at(0), first()).0, [update(&["a"], &[])]);
    desired.subscribe(&resource("a")).unwrap();
    desired.unsubscribe(&resource("a"));
    desired.unsubscribe(&resource("a"));
    assert!(sync_all(&mut desired, at(1), first()).0.is_empty());
    assert!(desired.is_subscribed(&resource("a")));
    desired.unsubscribe(&resource("a"));
    assert_eq!(sync_all(&mut desired, at(2), first()).0, [update(&[], &["a"])]);
    assert!(!desired.is_subscribed(&resource("a")));
    // An unsubscribe without a subscriber is not counted.
    desired.unsubscribe(&resource("a"));
    desired.subscribe(&resource("a")).unwrap();
    assert_eq!(sync_all(&mut desired, at(3), first()).0, [update(&["a"], &[])]);
}

/// B09, D04
#[test]
fn d04_a_stream_that_fails_to_narrow_is_retried_with_backoff() {
    let mut desired = session(STREAM);
    desired.subscribe(&resource("a")).unwrap();
    desired.subscribe(&resource("b")).unwrap();
    sync_all(&mut desired, at(0), first());
    desired.unsubscribe(&resource("a"));
    for (now, then) in [(10, 11), (11, 13), (13, 17)] {
        assert_eq!(desired.next_action(at(now), first()), Some(open(&["b"])));
        desired.action_ended(
            at(now),
            first(),
            SyncEnd::StreamNotOpened(SyncVerdict::Failed("HTTP 429".to_owned())),
        );
        assert_eq!((desired.next_action(at(now), first()), desired.wake_at()), (None, Some(at(then))));
        assert!(desired.is_subscribed(&resource("b")), "the stream goes on");
    }
    assert_eq!(sync_all(&mut desired, at(17), first()).0, [open(&["b"])]);
    assert!(!desired.is_subscribed(&resource("a")));
    assert_eq!(desired.wake_at(), None);
}

#[test]
fn d04_a_declined_narrower_stream_is_retried_after_the_next_unsubscribe() {
    let mut desired = session(STREAM);
    for uri in ["a", "b", "c"] {
        desired.subscribe(&resource(uri)).unwrap();
    }
    sync_all(&mut desired, at(0), first());
    let declined = || SyncEnd::StreamNotOpened(SyncVerdict::Declined("one stream only".to_owned()));
    desired.unsubscribe(&resource("a"));
    assert_eq!(desired.next_action(at(1), first()), Some(open(&["b", "c"])));
    desired.action_ended(at(1), first(), declined());
    assert_eq!((desired.next_action(at(9000), first()), desired.wake_at()), (None, None));
    desired.unsubscribe(&resource("b"));
    assert_eq!(sync_all(&mut desired, at(9001), first()).0, [open(&["c"])]);
}

#[test]
fn a_change_during_an_action_is_applied_after_it() {
    let mut desired = session(EACH);
    desired.subscribe(&resource("a")).unwrap();
    assert_eq!(desired.next_action(at(0), first()), Some(update(&["a"], &[])));
    assert_eq!(desired.next_action(at(0), first()), None, "one at a time");
    desired.unsubscribe(&resource("a"));
    desired.action_ended(at(0), first(), SyncEnd::Subscribed(vec![(resource("a"), SyncVerdict::Done)]));
    assert_eq!(desired.next_action(at(0), first()), Some(update(&[], &["a"])));
    desired.subscribe(&resource("a")).unwrap();
    desired.action_ended(at(0), first(), SyncEnd::Subscribed(Vec::new()));
    assert_eq!(desired.next_action(at(0), first()), Some(update(&["a"], &[])));
}

#[test]
fn d04_a_new_session_is_synced_again_and_subscribers_are_notified() {
    let mut desired = session(EACH);
    desired.set_level("info");
    desired.subscribe(&resource("a")).unwrap();
    desired.subscribe(&resource("b")).unwrap();
    let everything = [SyncAction::SetLevel("info".to_owned()), update(&["a", "b"], &[])];
    assert_eq!(sync_all(&mut desired, at(0), first()), (everything.to_vec(), Vec::new()));
    desired.end_session();
    assert!(!desired.is_subscribed(&resource("a")));
    desired.unsubscribe(&resource("b"));
    desired.subscribe(&resource("c")).unwrap();
    let second = first().next();
    desired.begin_session(second, EACH, Vec::new());
    assert_eq!(desired.next_action(at(9), first()), None, "a straggler of the old session");
    let (actions, again) = sync_all(&mut desired, at(9), second);
    assert_eq!(actions, [SyncAction::SetLevel("info".to_owned()), update(&["a", "c"], &[])]);
    assert_eq!(again, [resource("a")], "it may have changed meanwhile; `c` was not wanted before");
}

#[test]
fn the_log_level_is_sent_once_and_only_if_supported() {
    let mut desired = session(EACH);
    desired.set_level("info");
    desired.set_level("debug");
    assert_eq!(sync_all(&mut desired, at(0), first()).0, [SyncAction::SetLevel("debug".to_owned())]);
    desired.set_level("debug");
    assert!(sync_all(&mut desired, at(1), first()).0.is_empty());
    desired.begin_session(
        first().next(),
        SyncSupport { level: false, subscribe: SubscribeMethod::None },
        Vec::new(),
    );
    assert!(sync_all(&mut desired, at(2), first().next()).0.is_empty());
}

#[test]
fn failed_subscriptions_back_off_and_declined_ones_wait_for_a_subscriber() {
    let mut desired = session(EACH);
    desired.subscribe(&resource("a")).unwrap();
    let mut now = at(0);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(desired.next_action(now, first()), Some(update(&["a"], &[])));
        let missed = SyncVerdict::Failed("HTTP 500".to_owned());
        desired.action_ended(now, first(), SyncEnd::Subscribed(vec![(resource("a"), missed)]));
        assert_eq!(desired.next_action(now, first()), None);
        assert_eq!(desired.wake_at(), Some(now + Duration::from_secs(pause)));
        now = now + Duration::from_secs(pause);
    }
    assert_eq!(desired.next_action(now, first()), Some(update(&["a"], &[])));
    let declined = SyncVerdict::Declined("no such resource".to_owned());
    desired.action_ended(now, first(), SyncEnd::Subscribed(vec![(resource("a"), declined)]));
    assert_eq!((desired.next_action(now, first()), desired.wake_at()), (None, None));
    desired.subscribe(&resource("a")).unwrap();
    assert_eq!(desired.next_action(now, first()), Some(update(&["a"], &[])));
}

#[test]
fn a_stream_names_all_targets_and_is_replaced_when_they_change() {
    let mut desired = session(STREAM);
    assert_eq!(sync_all(&mut desired, at(0), first()).0, [open(&[])], "the stream carries list changes too");
    desired.subscribe(&resource("a")).unwrap();
    desired.subscribe(&resource("b")).unwrap();
    assert_eq!(sync_all(&mut desired, at(1), first()).0, [open(&["a", "b"])]);
    desired.unsubscribe(&resource("a"));
    assert_eq!(sync_all(&mut desired, at(2), first()).0, [open(&["b"])]);
    desired.unsubscribe(&resource("b"));
    assert_eq!(sync_all(&mut desired, at(3), first()).0, [open(&[])]);
}

#[test]
fn unacknowledged_targets_do_not_block_the_others() {
    let mut desired = session(STREAM);
    desired.subscribe(&resource("a")).unwrap();
    desired.subscribe(&resource("b")).unwrap();
    desired.next_action(at(0), first()).unwrap();
    desired.action_ended(at(0), first(), SyncEnd::StreamOpened { granted: vec![resource("b")] });
    assert!(!desired.is_subscribed(&resource("a")) && desired.is_subscribed(&resource("b")));
    assert_eq!(desired.next_action(at(1), first()), None);
    desired.subscribe(&resource("c")).unwrap();
    assert_eq!(desired.next_action(at(2), first()), Some(open(&["b", "c"])));
}

#[test]
fn an_ended_stream_is_reopened_and_subscribers_are_notified() {
    let mut desired = session(STREAM);
    desired.subscribe(&resource("a")).unwrap();
    sync_all(&mut desired, at(0), first());
    desired.stream_ended(at(1), first());
    assert_eq!((desired.next_action(at(5), first()), desired.is_subscribed(&resource("a"))), (None, false));
    assert_eq!(desired.wake_at(), Some(at(6)));
    assert_eq!(sync_all(&mut desired, at(6), first()), (vec![open(&["a"])], vec![resource("a")]));
}

#[test]
fn a_refused_stream_leaves_the_old_one_open() {
    let mut desired = session(STREAM);
    desired.subscribe(&resource("a")).unwrap();
    sync_all(&mut desired, at(0), first());
    desired.subscribe(&resource("b")).unwrap();
    assert_eq!(desired.next_action(at(1), first()), Some(open(&["a", "b"])));
    let refused = SyncVerdict::Declined("no such resource".to_owned());
    desired.action_ended(at(1), first(), SyncEnd::StreamNotOpened(refused));
    assert!(desired.is_subscribed(&resource("a")) && !desired.is_subscribed(&resource("b")));
    assert_eq!((desired.next_action(at(2), first()), desired.wake_at()), (None, None));
}

#[test]
fn a_server_that_declines_streams_gets_no_further_attempt() {
    let mut desired = session(STREAM);
    desired.next_action(at(0), first()).unwrap();
    desired.action_ended(
        at(0),
        first(),
        SyncEnd::StreamNotOpened(SyncVerdict::Declined("unknown method".to_owned())),
    );
    assert_eq!((desired.next_action(at(100), first()), desired.wake_at()), (None, None));
}

fn concerned<'a>(desired: &'a DesiredSessionState, uri: &str) -> Vec<&'a str> {
    let name = |target: &'a SubscriptionTarget| match target {
        SubscriptionTarget::Resource(name) | SubscriptionTarget::Task(name) => name.as_str(),
    };
    desired.matching_targets(uri).into_iter().map(name).collect()
}

#[test]
fn tasks_and_resources_share_a_stream_but_not_a_namespace() {
    let mut desired = session(STREAM);
    desired.subscribe(&resource("a")).unwrap();
    desired.subscribe(&task("a")).unwrap();
    desired.subscribe(&task("a")).unwrap();
    let both = SyncAction::OpenStream { targets: vec![resource("a"), task("a")] };
    assert_eq!(sync_all(&mut desired, at(0), first()).0, [both]);
    assert_eq!(
        desired.matching_targets("a"),
        [&resource("a")],
        "a change of the resource is nothing to the task"
    );
    desired.unsubscribe(&task("a"));
    assert!(sync_all(&mut desired, at(1), first()).0.is_empty(), "it still has a subscriber");
    desired.stream_ended(at(2), first());
    let again = SyncAction::OpenStream { targets: vec![resource("a"), task("a")] };
    assert_eq!(sync_all(&mut desired, at(7), first()), (vec![again], vec![resource("a"), task("a")]));
    desired.unsubscribe(&task("a"));
    assert_eq!(sync_all(&mut desired, at(8), first()).0, [open(&["a"])]);
}

#[test]
fn unsupported_task_subscriptions_are_not_sent() {
    for way in
        [SubscribeMethod::Each, SubscribeMethod::Stream { lists: false, resources: true, tasks: false }]
    {
        let mut desired = session(SyncSupport { level: false, subscribe: way });
        desired.subscribe(&task("a")).unwrap();
        assert!(sync_all(&mut desired, at(0), first()).0.is_empty());
        let missing = vec!["subscription to task `a`: the server does not support it".to_owned()];
        assert_eq!(desired.restored(), Some(Restored::Partly { missing }));
    }
}

#[test]
fn a_change_concerns_the_resource_and_its_parents() {
    let mut desired = DesiredSessionState::default();
    for uri in ["file:///a", "file:///a/b", "file:///a/b/", "file:///ab", "db://t?q", "x"] {
        desired.subscribe(&resource(uri)).unwrap();
    }
    assert_eq!(concerned(&desired, "file:///a/b"), ["file:///a", "file:///a/b"]);
    assert_eq!(concerned(&desired, "file:///a/b/c"), ["file:///a", "file:///a/b", "file:///a/b/"]);
    assert_eq!(concerned(&desired, "file:///abc"), [""; 0]);
    assert_eq!(concerned(&desired, "db://t?q#7"), ["db://t?q"]);
    assert_eq!(concerned(&desired, "db://t"), [""; 0]);
    assert_eq!(concerned(&desired, "ümlaut/x"), [""; 0]);
    desired.unsubscribe(&resource("x"));
    assert_eq!(concerned(&desired, "x"), [""; 0]);
}

#[test]
fn subscriptions_are_bounded() {
    let mut desired = DesiredSessionState::default();
    for number in 0..10_000 {
        desired.subscribe(&resource(&number.to_string())).unwrap();
    }
    assert_eq!(desired.subscribe(&resource("one more")), Err(QuotaExceeded));
    for _ in 0..90_000 {
        desired.subscribe(&resource("7")).unwrap();
    }
    assert_eq!(desired.subscribe(&resource("7")), Err(QuotaExceeded), "subscribers are counted too");
    desired.unsubscribe(&resource("9"));
    desired.subscribe(&resource("one more")).unwrap();
}

#[test]
fn d04_a_log_level_set_by_a_call_is_not_sent_again_in_its_session() {
    let mut desired = session(EACH);
    sync_all(&mut desired, at(0), first());
    desired.note_level_set(first(), "info");
    assert!(sync_all(&mut desired, at(1), first()).0.is_empty());
    let second = first().next();
    desired.begin_session(second, EACH, Vec::new());
    assert_eq!(sync_all(&mut desired, at(2), second).0, [SyncAction::SetLevel("info".to_owned())]);
    desired.note_level_set(first(), "debug");
    assert_eq!(
        sync_all(&mut desired, at(3), second).0,
        [SyncAction::SetLevel("debug".to_owned())],
        "another session was"
    );
}

#[test]
fn d04_the_restored_state_is_reported_once() {
    let mut desired = session(EACH);
    assert_eq!(desired.restored(), None, "too early to tell");
    sync_all(&mut desired, at(0), first());
    assert_eq!((desired.take_restored(), desired.restored()), (None, Some(Restored::Nothing)));
    desired.subscribe(&resource("a")).unwrap();
    sync_all(&mut desired, at(0), first());
    assert_eq!((desired.take_restored(), desired.restored()), (None, Some(Restored::Everything)));
    let second = first().next();
    desired.begin_session(second, EACH, Vec::new());
    assert_eq!((desired.take_restored(), desired.restored()), (None, None));
    sync_all(&mut desired, at(1), second);
    assert_eq!(desired.take_restored(), Some(Restored::Everything));
    assert_eq!(desired.take_restored(), None, "once");
    desired.end_session();
    assert_eq!(desired.restored(), None);
}

#[test]
fn d04_missing_parts_are_named_with_their_cause_until_restored() {
    let mut desired = DesiredSessionState::default();
    desired.set_level("info");
    desired.subscribe(&resource("a")).unwrap();
    let refused = vec![
        ("login".to_owned(), SyncVerdict::Declined("wrong password".to_owned())),
        ("select".to_owned(), SyncVerdict::Done),
    ];
    desired.begin_session(first(), EACH, refused);
    desired.next_action(at(0), first()).unwrap();
    desired.action_ended(at(0), first(), SyncEnd::Level(SyncVerdict::Failed("HTTP 500".to_owned())));
    desired.next_action(at(0), first()).unwrap();
    desired.action_ended(at(0), first(), SyncEnd::Subscribed(vec![(resource("a"), SyncVerdict::Done)]));
    assert_eq!(desired.next_action(at(0), first()), None);
    let missing =
        |texts: &[&str]| Restored::Partly { missing: texts.iter().map(|t| (*t).to_owned()).collect() };
    let partly = missing(&["call of `login`: wrong password", "log level `info`: HTTP 500"]);
    assert_eq!((partly.as_str(), desired.take_restored()), ("partly", Some(partly)));
    sync_all(&mut desired, at(1), first());
    assert_eq!(desired.restored(), Some(missing(&["call of `login`: wrong password"])));
    let done = vec![("login".to_owned(), SyncVerdict::Done)];
    desired.begin_session(
        first().next(),
        SyncSupport { level: false, subscribe: SubscribeMethod::None },
        done,
    );
    assert_eq!(desired.next_action(at(2), first().next()), None);
    assert_eq!(desired.restored(), Some(missing(&["subscription to `a`: the server does not support it"])));
}

#[test]
fn a_long_list_of_missing_parts_is_cut() {
    let mut desired = DesiredSessionState::default();
    for number in 0..500 {
        desired.subscribe(&resource(&number.to_string())).unwrap();
    }
    desired.begin_session(first(), SyncSupport { level: true, subscribe: SubscribeMethod::None }, Vec::new());
    desired.next_action(at(0), first());
    match desired.restored() {
        Some(Restored::Partly { missing }) => {
            assert_eq!((missing.len(), &*missing[10]), (11, "and 490 more"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn targets_unsubscribed_while_a_stream_is_replaced_are_dropped() {
    let mut desired = session(STREAM);
    desired.subscribe(&resource("a")).unwrap();
    assert_eq!(desired.next_action(at(0), first()), Some(open(&["a"])));
    desired.unsubscribe(&resource("a"));
    desired.stream_ended(at(1), first());
    desired.action_ended(at(1), first(), SyncEnd::StreamOpened { granted: vec![resource("a")] });
    assert_eq!(sync_all(&mut desired, at(2), first()).0, [open(&[])]);
}

/// A step of a random history of one upstream.
#[derive(Debug, Clone)]
enum Happens {
    Subscribes(u8),
    Unsubscribes(u8),
    /// An action is performed, and these of its resources fail.
    Action {
        missed: u8,
    },
    /// An action starts; the next steps happen before its end.
    ActionStarts,
    NewSession,
    StreamEnds,
    Passes(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..6_u8).prop_map(Happens::Subscribes),
        4 => (0..6_u8).prop_map(Happens::Unsubscribes),
        3 => any::<u8>().prop_map(|missed| Happens::Action { missed }),
        2 => Just(Happens::ActionStarts),
        1 => Just(Happens::NewSession),
        1 => Just(Happens::StreamEnds),
        2 => (1..100_u64).prop_map(Happens::Passes),
    ]
}

/// A server that applies the actions that reach it.
#[derive(Default)]
struct TestServer {
    subscribed: BTreeSet<SubscriptionTarget>,
    in_progress: Option<SyncAction>,
}

impl TestServer {
    /// Ends the action in progress. `missed` has a bit for each resource, by its last digit.
    fn end(&mut self, missed: u8) -> Option<SyncEnd> {
        let is_missed = |target: &SubscriptionTarget| {
            (0..8).any(|bit| missed >> bit & 1 == 1 && *target == numbered(bit))
        };
        Some(match self.in_progress.take()? {
            SyncAction::SetLevel(_) => SyncEnd::Level(SyncVerdict::Done),
            SyncAction::UpdateSubscriptions { subscribe: begin, unsubscribe: end } => {
                for target in &end {
                    self.subscribed.remove(target);
                }
                SyncEnd::Subscribed(
                    begin
                        .into_iter()
                        .map(|target| {
                            if is_missed(&target) {
                                return (target, SyncVerdict::Failed("noise".to_owned()));
                            }
                            self.subscribed.insert(target.clone());
                            (target, SyncVerdict::Done)
                        })
                        .collect(),
                )
            }
            SyncAction::OpenStream { .. } if missed & 1 == 1 => {
                SyncEnd::StreamNotOpened(SyncVerdict::Failed("noise".to_owned()))
            }
            SyncAction::OpenStream { targets } => {
                self.subscribed = targets.iter().cloned().collect();
                SyncEnd::StreamOpened { granted: targets }
            }
        })
    }
}

/// One of a few targets.
fn numbered(number: u8) -> SubscriptionTarget {
    resource(&format!("a:/{number}"))
}

proptest! {
    /// For any history of subscribers, losses and session ends: once everything is synced, the server is subscribed to
    /// exactly the targets with subscribers.
    #[test]
    fn any_history_ends_with_exactly_the_wanted_subscriptions(
        is_stream in any::<bool>(),
        history in prop::collection::vec(happens(), 1..80),
    ) {
        let support = if is_stream { STREAM } else { EACH };
        let (mut desired, mut epoch, mut now) = (session(support), first(), 0);
        let (mut server, mut subscribers) = (TestServer::default(), BTreeMap::<SubscriptionTarget, u32>::new());
        for one in history {
            match one {
                Happens::Subscribes(number) => {
                    desired.subscribe(&numbered(number)).unwrap();
                    *subscribers.entry(numbered(number)).or_default() += 1;
                }
                Happens::Unsubscribes(number) => {
                    desired.unsubscribe(&numbered(number));
                    let left = subscribers.entry(numbered(number)).or_default();
                    *left = left.saturating_sub(1);
                }
                Happens::ActionStarts => {
                    if let Some(action) = desired.next_action(at(now), epoch) {
                        prop_assert!(server.in_progress.replace(action).is_none(), "one at a time");
                    }
                }
                Happens::Action { missed } => {
                    if server.in_progress.is_none() {
                        server.in_progress = desired.next_action(at(now), epoch);
                    }
                    if let Some(ended) = server.end(missed) {
                        desired.action_ended(at(now), epoch, ended);
                    }
                }
                Happens::NewSession => {
                    epoch = epoch.next();
                    server = TestServer::default();
                    desired.begin_session(epoch, support, Vec::new());
                }
                Happens::StreamEnds if is_stream => {
                    server.subscribed.clear();
                    desired.stream_ended(at(now), epoch);
                }
                Happens::StreamEnds => {}
                Happens::Passes(seconds) => now += seconds,
            }
        }
        let mut sync_rest = |desired: &mut DesiredSessionState, server: &mut TestServer| {
            for _ in 0..100 {
                // The pause after a failure has passed.
                now += 120;
                if server.in_progress.is_none() {
                    server.in_progress = desired.next_action(at(now), epoch);
                }
                match server.end(0) {
                    Some(ended) => drop(desired.action_ended(at(now), epoch, ended)),
                    None => return,
                }
            }
            panic!("the sync does not end");
        };
        sync_rest(&mut desired, &mut server);
        let wanted: BTreeSet<SubscriptionTarget> =
            subscribers.iter().filter(|(_, count)| **count > 0).map(|(target, _)| target.clone()).collect();
        prop_assert_eq!(&server.subscribed, &wanted);
        for target in subscribers.keys() {
            prop_assert_eq!(desired.is_subscribed(target), wanted.contains(target));
        }
        for (target, count) in &subscribers {
            for _ in 0..*count {
                desired.unsubscribe(target);
            }
        }
        sync_rest(&mut desired, &mut server);
        prop_assert!(server.subscribed.is_empty() && desired.subscriptions.wanted(support.subscribe).is_empty());
    }
}
