use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const EACH: Offers = Offers { level: true, follow: Way::Each };
const STREAM: Offers =
    Offers { level: false, follow: Way::Stream { lists: true, resources: true, tasks: true } };

fn at(seconds: u64) -> Mono {
    Mono::at(Duration::from_secs(seconds))
}

fn first() -> Epoch {
    Epoch::default().next()
}

fn follow(begin: &[&str], end: &[&str]) -> Errand {
    let owned = |uris: &[&str]| uris.iter().map(|uri| resource(uri)).collect();
    Errand::Follow { begin: owned(begin), end: owned(end) }
}

fn listen(uris: &[&str]) -> Errand {
    Errand::Listen { subjects: uris.iter().map(|uri| resource(uri)).collect() }
}

fn resource(uri: &str) -> Subject {
    Subject::Resource(uri.to_owned())
}

fn task(id: &str) -> Subject {
    Subject::Task(id.to_owned())
}

/// Runs every errand that is due; the server does as it is told. Answers with what it was told, and with
/// what is worth another look.
fn obey(standing: &mut Standing, now: Mono, epoch: Epoch) -> (Vec<Errand>, Vec<Subject>) {
    let (mut told, mut again) = (Vec::new(), Vec::new());
    while let Some(errand) = standing.next(now, epoch) {
        let ended = match &errand {
            Errand::SetLevel(_) => Ended::Level(Verdict::Done),
            Errand::Follow { begin, .. } => {
                Ended::Followed(begin.iter().map(|uri| (uri.clone(), Verdict::Done)).collect())
            }
            Errand::Listen { subjects } => Ended::Listening { granted: subjects.clone() },
        };
        again.extend(standing.ended(now, epoch, ended));
        told.push(errand);
    }
    assert!(standing.wake_at().is_none_or(|wake| wake > now), "awake with nothing to do");
    (told, again)
}

fn session(offers: Offers) -> Standing {
    let mut standing = Standing::default();
    standing.begin_session(first(), offers, Vec::new());
    standing
}

#[test]
fn the_first_follower_begins_and_the_last_one_ends() {
    let mut standing = session(EACH);
    standing.follow(&resource("a")).unwrap();
    standing.follow(&resource("a")).unwrap();
    assert_eq!(obey(&mut standing, at(0), first()).0, [follow(&["a"], &[])]);
    standing.follow(&resource("a")).unwrap();
    standing.unfollow(&resource("a"));
    standing.unfollow(&resource("a"));
    assert!(obey(&mut standing, at(1), first()).0.is_empty());
    assert!(standing.is_followed(&resource("a")));
    standing.unfollow(&resource("a"));
    assert_eq!(obey(&mut standing, at(2), first()).0, [follow(&[], &["a"])]);
    assert!(!standing.is_followed(&resource("a")));
    // One too many is not counted.
    standing.unfollow(&resource("a"));
    standing.follow(&resource("a")).unwrap();
    assert_eq!(obey(&mut standing, at(3), first()).0, [follow(&["a"], &[])]);
}

/// B09, D04
#[test]
fn d04_a_stream_that_cannot_be_made_smaller_goes_on_and_is_not_asked_about_in_a_storm() {
    let mut standing = session(STREAM);
    standing.follow(&resource("a")).unwrap();
    standing.follow(&resource("b")).unwrap();
    obey(&mut standing, at(0), first());
    standing.unfollow(&resource("a"));
    for (now, then) in [(10, 11), (11, 13), (13, 17)] {
        assert_eq!(standing.next(at(now), first()), Some(listen(&["b"])));
        standing.ended(at(now), first(), Ended::NotListening(Verdict::Missed("HTTP 429".to_owned())));
        assert_eq!((standing.next(at(now), first()), standing.wake_at()), (None, Some(at(then))));
        assert!(standing.is_followed(&resource("b")), "the stream goes on");
    }
    assert_eq!(obey(&mut standing, at(17), first()).0, [listen(&["b"])]);
    assert!(!standing.is_followed(&resource("a")));
    assert_eq!(standing.wake_at(), None);
}

#[test]
fn d04_a_stream_that_the_server_declines_to_make_smaller_is_left_alone_until_more_is_to_end() {
    let mut standing = session(STREAM);
    for uri in ["a", "b", "c"] {
        standing.follow(&resource(uri)).unwrap();
    }
    obey(&mut standing, at(0), first());
    let declined = || Ended::NotListening(Verdict::Declined("one stream only".to_owned()));
    standing.unfollow(&resource("a"));
    assert_eq!(standing.next(at(1), first()), Some(listen(&["b", "c"])));
    standing.ended(at(1), first(), declined());
    assert_eq!((standing.next(at(9000), first()), standing.wake_at()), (None, None));
    standing.unfollow(&resource("b"));
    assert_eq!(obey(&mut standing, at(9001), first()).0, [listen(&["c"])]);
}

#[test]
fn whoever_changes_his_mind_while_the_server_is_told_is_heard_afterwards() {
    let mut standing = session(EACH);
    standing.follow(&resource("a")).unwrap();
    assert_eq!(standing.next(at(0), first()), Some(follow(&["a"], &[])));
    assert_eq!(standing.next(at(0), first()), None, "one at a time");
    standing.unfollow(&resource("a"));
    standing.ended(at(0), first(), Ended::Followed(vec![(resource("a"), Verdict::Done)]));
    assert_eq!(standing.next(at(0), first()), Some(follow(&[], &["a"])));
    standing.follow(&resource("a")).unwrap();
    standing.ended(at(0), first(), Ended::Followed(Vec::new()));
    assert_eq!(standing.next(at(0), first()), Some(follow(&["a"], &[])));
}

#[test]
fn d04_a_new_session_is_told_everything_again_and_followers_look_again() {
    let mut standing = session(EACH);
    standing.set_level("info");
    standing.follow(&resource("a")).unwrap();
    standing.follow(&resource("b")).unwrap();
    let everything = [Errand::SetLevel("info".to_owned()), follow(&["a", "b"], &[])];
    assert_eq!(obey(&mut standing, at(0), first()), (everything.to_vec(), Vec::new()));
    standing.end_session();
    assert!(!standing.is_followed(&resource("a")));
    standing.unfollow(&resource("b"));
    standing.follow(&resource("c")).unwrap();
    let second = first().next();
    standing.begin_session(second, EACH, Vec::new());
    assert_eq!(standing.next(at(9), first()), None, "a straggler of the old session");
    let (told, again) = obey(&mut standing, at(9), second);
    assert_eq!(told, [Errand::SetLevel("info".to_owned()), follow(&["a", "c"], &[])]);
    assert_eq!(again, [resource("a")], "it may have changed meanwhile; `c` was not followed before");
}

#[test]
fn the_level_is_told_once_and_only_where_it_can_be() {
    let mut standing = session(EACH);
    standing.set_level("info");
    standing.set_level("debug");
    assert_eq!(obey(&mut standing, at(0), first()).0, [Errand::SetLevel("debug".to_owned())]);
    standing.set_level("debug");
    assert!(obey(&mut standing, at(1), first()).0.is_empty());
    standing.begin_session(first().next(), Offers { level: false, follow: Way::None }, Vec::new());
    assert!(obey(&mut standing, at(2), first().next()).0.is_empty());
}

#[test]
fn what_was_missed_is_told_again_ever_more_patiently_and_what_was_declined_only_when_asked() {
    let mut standing = session(EACH);
    standing.follow(&resource("a")).unwrap();
    let mut now = at(0);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(standing.next(now, first()), Some(follow(&["a"], &[])));
        let missed = Verdict::Missed("HTTP 500".to_owned());
        standing.ended(now, first(), Ended::Followed(vec![(resource("a"), missed)]));
        assert_eq!(standing.next(now, first()), None);
        assert_eq!(standing.wake_at(), Some(now + Duration::from_secs(pause)));
        now = now + Duration::from_secs(pause);
    }
    assert_eq!(standing.next(now, first()), Some(follow(&["a"], &[])));
    let declined = Verdict::Declined("no such resource".to_owned());
    standing.ended(now, first(), Ended::Followed(vec![(resource("a"), declined)]));
    assert_eq!((standing.next(now, first()), standing.wake_at()), (None, None));
    standing.follow(&resource("a")).unwrap();
    assert_eq!(standing.next(now, first()), Some(follow(&["a"], &[])));
}

#[test]
fn a_stream_names_everything_at_once_and_is_replaced_when_that_changes() {
    let mut standing = session(STREAM);
    assert_eq!(obey(&mut standing, at(0), first()).0, [listen(&[])], "lists are told of too");
    standing.follow(&resource("a")).unwrap();
    standing.follow(&resource("b")).unwrap();
    assert_eq!(obey(&mut standing, at(1), first()).0, [listen(&["a", "b"])]);
    standing.unfollow(&resource("a"));
    assert_eq!(obey(&mut standing, at(2), first()).0, [listen(&["b"])]);
    standing.unfollow(&resource("b"));
    assert_eq!(obey(&mut standing, at(3), first()).0, [listen(&[])]);
}

#[test]
fn what_is_not_acknowledged_does_not_stand_in_the_way_of_the_rest() {
    let mut standing = session(STREAM);
    standing.follow(&resource("a")).unwrap();
    standing.follow(&resource("b")).unwrap();
    standing.next(at(0), first()).unwrap();
    standing.ended(at(0), first(), Ended::Listening { granted: vec![resource("b")] });
    assert!(!standing.is_followed(&resource("a")) && standing.is_followed(&resource("b")));
    assert_eq!(standing.next(at(1), first()), None);
    standing.follow(&resource("c")).unwrap();
    assert_eq!(standing.next(at(2), first()), Some(listen(&["b", "c"])));
}

#[test]
fn a_stream_that_ends_is_opened_again_after_a_while_and_followers_look_again() {
    let mut standing = session(STREAM);
    standing.follow(&resource("a")).unwrap();
    obey(&mut standing, at(0), first());
    standing.stream_ended(at(1), first());
    assert_eq!((standing.next(at(5), first()), standing.is_followed(&resource("a"))), (None, false));
    assert_eq!(standing.wake_at(), Some(at(6)));
    assert_eq!(obey(&mut standing, at(6), first()), (vec![listen(&["a"])], vec![resource("a")]));
}

#[test]
fn a_new_stream_that_is_refused_leaves_the_old_one_as_it_was() {
    let mut standing = session(STREAM);
    standing.follow(&resource("a")).unwrap();
    obey(&mut standing, at(0), first());
    standing.follow(&resource("b")).unwrap();
    assert_eq!(standing.next(at(1), first()), Some(listen(&["a", "b"])));
    let refused = Verdict::Declined("no such resource".to_owned());
    standing.ended(at(1), first(), Ended::NotListening(refused));
    assert!(standing.is_followed(&resource("a")) && !standing.is_followed(&resource("b")));
    assert_eq!((standing.next(at(2), first()), standing.wake_at()), (None, None));
}

#[test]
fn a_server_without_streams_is_not_asked_for_one_again() {
    let mut standing = session(STREAM);
    standing.next(at(0), first()).unwrap();
    standing.ended(at(0), first(), Ended::NotListening(Verdict::Declined("unknown method".to_owned())));
    assert_eq!((standing.next(at(100), first()), standing.wake_at()), (None, None));
}

fn concerned<'a>(standing: &'a Standing, uri: &str) -> Vec<&'a str> {
    let name = |subject: &'a Subject| match subject {
        Subject::Resource(name) | Subject::Task(name) => name.as_str(),
    };
    standing.concerned(uri).into_iter().map(name).collect()
}

#[test]
fn a_task_is_followed_on_the_stream_of_the_resources_and_by_another_name_than_theirs() {
    let mut standing = session(STREAM);
    standing.follow(&resource("a")).unwrap();
    standing.follow(&task("a")).unwrap();
    standing.follow(&task("a")).unwrap();
    let both = Errand::Listen { subjects: vec![resource("a"), task("a")] };
    assert_eq!(obey(&mut standing, at(0), first()).0, [both]);
    assert_eq!(standing.concerned("a"), [&resource("a")], "a change of the resource is nothing to the task");
    standing.unfollow(&task("a"));
    assert!(obey(&mut standing, at(1), first()).0.is_empty(), "somebody still follows it");
    standing.stream_ended(at(2), first());
    let again = Errand::Listen { subjects: vec![resource("a"), task("a")] };
    assert_eq!(obey(&mut standing, at(7), first()), (vec![again], vec![resource("a"), task("a")]));
    standing.unfollow(&task("a"));
    assert_eq!(obey(&mut standing, at(8), first()).0, [listen(&["a"])]);
}

#[test]
fn a_server_is_not_asked_for_tasks_that_it_could_not_tell_of() {
    for way in [Way::Each, Way::Stream { lists: false, resources: true, tasks: false }] {
        let mut standing = session(Offers { level: false, follow: way });
        standing.follow(&task("a")).unwrap();
        assert!(obey(&mut standing, at(0), first()).0.is_empty());
        let missing = vec!["what becomes of the task `a`: the server does not tell of changes".to_owned()];
        assert_eq!(standing.restored(), Some(Restored::Partly { missing }));
    }
}

#[test]
fn a_change_concerns_the_resource_and_what_it_is_a_part_of() {
    let mut standing = Standing::default();
    for uri in ["file:///a", "file:///a/b", "file:///a/b/", "file:///ab", "db://t?q", "x"] {
        standing.follow(&resource(uri)).unwrap();
    }
    assert_eq!(concerned(&standing, "file:///a/b"), ["file:///a", "file:///a/b"]);
    assert_eq!(concerned(&standing, "file:///a/b/c"), ["file:///a", "file:///a/b", "file:///a/b/"]);
    assert_eq!(concerned(&standing, "file:///abc"), [""; 0]);
    assert_eq!(concerned(&standing, "db://t?q#7"), ["db://t?q"]);
    assert_eq!(concerned(&standing, "db://t"), [""; 0]);
    assert_eq!(concerned(&standing, "ümlaut/x"), [""; 0]);
    standing.unfollow(&resource("x"));
    assert_eq!(concerned(&standing, "x"), [""; 0]);
}

#[test]
fn nobodys_appetite_fills_our_memory() {
    let mut standing = Standing::default();
    for number in 0..10_000 {
        standing.follow(&resource(&number.to_string())).unwrap();
    }
    assert_eq!(standing.follow(&resource("one more")), Err(Full));
    for _ in 0..90_000 {
        standing.follow(&resource("7")).unwrap();
    }
    assert_eq!(standing.follow(&resource("7")), Err(Full), "followers are counted too");
    standing.unfollow(&resource("9"));
    standing.follow(&resource("one more")).unwrap();
}

#[test]
fn d04_a_level_that_a_call_has_told_is_not_told_again_before_the_next_session() {
    let mut standing = session(EACH);
    obey(&mut standing, at(0), first());
    standing.level_told(first(), "info");
    assert!(obey(&mut standing, at(1), first()).0.is_empty());
    let second = first().next();
    standing.begin_session(second, EACH, Vec::new());
    assert_eq!(obey(&mut standing, at(2), second).0, [Errand::SetLevel("info".to_owned())]);
    standing.level_told(first(), "debug");
    assert_eq!(
        obey(&mut standing, at(3), second).0,
        [Errand::SetLevel("debug".to_owned())],
        "another session was"
    );
}

#[test]
fn d04_it_is_told_once_how_much_was_put_back() {
    let mut standing = session(EACH);
    assert_eq!(standing.restored(), None, "too early to tell");
    obey(&mut standing, at(0), first());
    assert_eq!((standing.take_restored(), standing.restored()), (None, Some(Restored::Nothing)));
    standing.follow(&resource("a")).unwrap();
    obey(&mut standing, at(0), first());
    assert_eq!((standing.take_restored(), standing.restored()), (None, Some(Restored::Everything)));
    let second = first().next();
    standing.begin_session(second, EACH, Vec::new());
    assert_eq!((standing.take_restored(), standing.restored()), (None, None));
    obey(&mut standing, at(1), second);
    assert_eq!(standing.take_restored(), Some(Restored::Everything));
    assert_eq!(standing.take_restored(), None, "once");
    standing.end_session();
    assert_eq!(standing.restored(), None);
}

#[test]
fn d04_what_could_not_be_put_back_is_named_with_its_cause_until_it_is() {
    let mut standing = Standing::default();
    standing.set_level("info");
    standing.follow(&resource("a")).unwrap();
    let refused = vec![
        ("login".to_owned(), Verdict::Declined("wrong password".to_owned())),
        ("select".to_owned(), Verdict::Done),
    ];
    standing.begin_session(first(), EACH, refused);
    standing.next(at(0), first()).unwrap();
    standing.ended(at(0), first(), Ended::Level(Verdict::Missed("HTTP 500".to_owned())));
    standing.next(at(0), first()).unwrap();
    standing.ended(at(0), first(), Ended::Followed(vec![(resource("a"), Verdict::Done)]));
    assert_eq!(standing.next(at(0), first()), None);
    let missing =
        |texts: &[&str]| Restored::Partly { missing: texts.iter().map(|t| (*t).to_owned()).collect() };
    let told = missing(&["the call of `login`: wrong password", "the log level `info`: HTTP 500"]);
    assert_eq!((told.word(), standing.take_restored()), ("partly", Some(told)));
    obey(&mut standing, at(1), first());
    assert_eq!(standing.restored(), Some(missing(&["the call of `login`: wrong password"])));
    let done = vec![("login".to_owned(), Verdict::Done)];
    standing.begin_session(first().next(), Offers { level: false, follow: Way::None }, done);
    assert_eq!(standing.next(at(2), first().next()), None);
    assert_eq!(standing.restored(), Some(missing(&["changes of `a`: the server does not tell of changes"])));
}

#[test]
fn a_long_list_of_what_is_missing_is_cut() {
    let mut standing = Standing::default();
    for number in 0..500 {
        standing.follow(&resource(&number.to_string())).unwrap();
    }
    standing.begin_session(first(), Offers { level: true, follow: Way::None }, Vec::new());
    standing.next(at(0), first());
    match standing.restored() {
        Some(Restored::Partly { missing }) => {
            assert_eq!((missing.len(), &*missing[10]), (11, "and 490 more"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_left_while_one_stream_ends_and_another_begins_is_told_of_no_more() {
    let mut standing = session(STREAM);
    standing.follow(&resource("a")).unwrap();
    assert_eq!(standing.next(at(0), first()), Some(listen(&["a"])));
    standing.unfollow(&resource("a"));
    standing.stream_ended(at(1), first());
    standing.ended(at(1), first(), Ended::Listening { granted: vec![resource("a")] });
    assert_eq!(obey(&mut standing, at(2), first()).0, [listen(&[])]);
}

/// What may happen to the wishes of one upstream.
#[derive(Debug, Clone)]
enum Happens {
    Follows(u8),
    Leaves(u8),
    /// An errand is run, and these of its resources are missed.
    Errand {
        missed: u8,
    },
    /// An errand begins; what happens next happens before its end.
    Begins,
    NewSession,
    StreamEnds,
    Passes(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..6_u8).prop_map(Happens::Follows),
        4 => (0..6_u8).prop_map(Happens::Leaves),
        3 => any::<u8>().prop_map(|missed| Happens::Errand { missed }),
        2 => Just(Happens::Begins),
        1 => Just(Happens::NewSession),
        1 => Just(Happens::StreamEnds),
        2 => (1..100_u64).prop_map(Happens::Passes),
    ]
}

/// A server that does what it is told, if it hears it.
#[derive(Default)]
struct Obedient {
    tells_of: BTreeSet<Subject>,
    under_way: Option<Errand>,
}

impl Obedient {
    /// Ends the errand under way. A bit of `missed` for each resource, by its last digit.
    fn end(&mut self, missed: u8) -> Option<Ended> {
        let is_missed =
            |subject: &Subject| (0..8).any(|bit| missed >> bit & 1 == 1 && *subject == numbered(bit));
        Some(match self.under_way.take()? {
            Errand::SetLevel(_) => Ended::Level(Verdict::Done),
            Errand::Follow { begin, end } => {
                for subject in &end {
                    self.tells_of.remove(subject);
                }
                Ended::Followed(
                    begin
                        .into_iter()
                        .map(|subject| {
                            if is_missed(&subject) {
                                return (subject, Verdict::Missed("noise".to_owned()));
                            }
                            self.tells_of.insert(subject.clone());
                            (subject, Verdict::Done)
                        })
                        .collect(),
                )
            }
            Errand::Listen { .. } if missed & 1 == 1 => {
                Ended::NotListening(Verdict::Missed("noise".to_owned()))
            }
            Errand::Listen { subjects } => {
                self.tells_of = subjects.iter().cloned().collect();
                Ended::Listening { granted: subjects }
            }
        })
    }
}

/// One of a few.
fn numbered(number: u8) -> Subject {
    resource(&format!("a:/{number}"))
}

proptest! {
    /// However followers come and go, whatever gets lost and whenever sessions end: once all is told, a server tells
    /// of exactly what somebody follows.
    #[test]
    fn a_server_tells_in_the_end_of_what_is_followed_and_of_nothing_else(
        is_stream in any::<bool>(),
        history in prop::collection::vec(happens(), 1..80),
    ) {
        let offers = if is_stream { STREAM } else { EACH };
        let (mut standing, mut epoch, mut now) = (session(offers), first(), 0);
        let (mut server, mut followers) = (Obedient::default(), BTreeMap::<Subject, u32>::new());
        for one in history {
            match one {
                Happens::Follows(number) => {
                    standing.follow(&numbered(number)).unwrap();
                    *followers.entry(numbered(number)).or_default() += 1;
                }
                Happens::Leaves(number) => {
                    standing.unfollow(&numbered(number));
                    let left = followers.entry(numbered(number)).or_default();
                    *left = left.saturating_sub(1);
                }
                Happens::Begins => {
                    if let Some(errand) = standing.next(at(now), epoch) {
                        prop_assert!(server.under_way.replace(errand).is_none(), "one at a time");
                    }
                }
                Happens::Errand { missed } => {
                    if server.under_way.is_none() {
                        server.under_way = standing.next(at(now), epoch);
                    }
                    if let Some(ended) = server.end(missed) {
                        standing.ended(at(now), epoch, ended);
                    }
                }
                Happens::NewSession => {
                    epoch = epoch.next();
                    server = Obedient::default();
                    standing.begin_session(epoch, offers, Vec::new());
                }
                Happens::StreamEnds if is_stream => {
                    server.tells_of.clear();
                    standing.stream_ended(at(now), epoch);
                }
                Happens::StreamEnds => {}
                Happens::Passes(seconds) => now += seconds,
            }
        }
        let mut tell_all = |standing: &mut Standing, server: &mut Obedient| {
            for _ in 0..100 {
                // The pause after a failure is over.
                now += 120;
                if server.under_way.is_none() {
                    server.under_way = standing.next(at(now), epoch);
                }
                match server.end(0) {
                    Some(ended) => drop(standing.ended(at(now), epoch, ended)),
                    None => return,
                }
            }
            panic!("it is told without end");
        };
        tell_all(&mut standing, &mut server);
        let followed: BTreeSet<Subject> =
            followers.iter().filter(|(_, count)| **count > 0).map(|(subject, _)| subject.clone()).collect();
        prop_assert_eq!(&server.tells_of, &followed);
        for subject in followers.keys() {
            prop_assert_eq!(standing.is_followed(subject), followed.contains(subject));
        }
        for (subject, count) in &followers {
            for _ in 0..*count {
                standing.unfollow(subject);
            }
        }
        tell_all(&mut standing, &mut server);
        prop_assert!(server.tells_of.is_empty() && standing.following.wanted(offers.follow).is_empty());
    }
}
