//! The ledger's promise: whatever happens to the file and to the one who wrote it, the rows say what became
//! of each call, once, and never more than is known.

#![expect(clippy::unwrap_used, reason = "tests may")]

use gripfast_core::failure::{Code, Outcome};
use gripfast_core::json::Digest;
use gripfast_core::ledger::entry::{self, Entry, LedgerCaller};
use gripfast_core::ledger::fold::{Fold, Owner};
use gripfast_core::ledger::record::Record;
use gripfast_core::ledger::{End, Query, Row, RowId, Selection, Settled, Subject};
use gripfast_core::time::Wall;
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

fn at(millis: u64) -> Wall {
    Wall::at(Duration::from_millis(millis))
}

fn settled(outcome: Outcome, code: Option<Code>) -> Settled {
    let took = Duration::from_micros(1500);
    Settled { ended: at(2_000), took, outcome, code, attempts: 1, replays: 0 }
}

/// What is written about this call.
fn entry(call: u64) -> Entry {
    let mut entry = Entry::of(
        call,
        at(1_000),
        &LedgerCaller { principal: "alice", client: "claude-code 2.1" },
        "github",
        "create_issue",
    );
    entry.digest(Digest::of(b"{}"));
    entry
}

fn subject() -> Subject {
    Subject {
        principal: "alice".to_owned(),
        client: "claude-code 2.1".to_owned(),
        server: "github".to_owned(),
        tool: "create_issue".to_owned(),
        digest: Some(Digest::of(b"{}").into()),
        arguments: None,
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8(line.to_vec()).unwrap()
}

fn rows(text: &[u8], owner: Owner) -> Vec<Row> {
    let (mut fold, mut rows) = (Fold::default(), Vec::new());
    for line in text.split(|byte| *byte == b'\n') {
        fold.line(line, |row| rows.push(row));
    }
    fold.finish(owner, |row| rows.push(row));
    rows
}

fn taken(run: &str) -> String {
    let mut line = Vec::new();
    entry::taken(run, at(1), &mut line);
    text(&line)
}

fn begun(call: u64, if_orphaned: Outcome) -> String {
    text(entry(call).begun(if_orphaned))
}

fn changed(call: u64, if_orphaned: Outcome) -> String {
    text(entry(call).changed(if_orphaned))
}

fn ended(call: u64, outcome: Outcome) -> String {
    text(entry(call).ended(&settled(outcome, None)))
}

#[test]
fn a_line_reads_like_what_it_says() {
    assert_eq!(
        begun(7, Outcome::Unknown),
        "{\"call\":7,\"at_ms\":1000,\"principal\":\"alice\",\"client\":\"claude-code 2.1\",\"server\":\"github\",\"tool\":\"create_issue\",\
         \"sha256\":\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\",\"if_orphaned\":\"unknown\"}\n"
    );
    assert_eq!(changed(7, Outcome::Unknown), "{\"call\":7,\"if_orphaned\":\"unknown\"}\n");
    assert_eq!(
        ended(7, Outcome::Done),
        "{\"call\":7,\"ended_ms\":2000,\"took_us\":1500,\"outcome\":\"done\",\"attempts\":1}\n"
    );
}

#[test]
fn a_call_in_flight_when_its_process_died_is_unknown_if_it_was_sent_and_not_sent_if_it_was_held() {
    let book =
        taken("a") + &begun(1, Outcome::Unknown) + &begun(2, Outcome::NotSent) + &begun(3, Outcome::NotSent);
    let book = book + &changed(3, Outcome::Unknown) + &ended(1, Outcome::Done);
    let outcomes =
        |owner| -> Vec<Option<Outcome>> { rows(book.as_bytes(), owner).iter().map(Row::outcome).collect() };
    assert_eq!(
        outcomes(Owner::IsGone),
        [Some(Outcome::Done), Some(Outcome::NotSent), Some(Outcome::Unknown)]
    );
    assert_eq!(outcomes(Owner::Lives), [Some(Outcome::Done), None, None]);
    // Whoever takes the book next settles it by writing its own name.
    let next = book.clone() + &taken("b");
    assert_eq!(rows(next.as_bytes(), Owner::Lives), rows(book.as_bytes(), Owner::IsGone));
}

#[test]
fn what_to_do_is_said_of_unknown_calls_alone() {
    for row in rows((taken("a") + &begun(1, Outcome::Unknown)).as_bytes(), Owner::IsGone) {
        assert_eq!(row.what_happened(), "gripfast ended before the answer came");
        assert!(row.what_to_do().is_some_and(|text| text.contains("`create_issue` of `github`")));
    }
    for outcome in Outcome::ALL {
        for code in std::iter::once(None).chain(Code::ALL.map(Some)) {
            let end = End::Settled(settled(outcome, code));
            let row =
                Row { id: RowId { run: "a".to_owned(), call: 1 }, subject: subject(), started: at(1), end };
            assert!(!row.what_happened().is_empty());
            assert_eq!(row.what_to_do().is_some(), outcome == Outcome::Unknown);
        }
    }
}

/// A call may change its mind any number of times, and each line says what it would say if it were the first.
#[test]
fn lines_of_one_call_do_not_depend_on_those_before() {
    let mut entry = entry(7);
    for _ in 0..3 {
        assert_eq!(text(entry.begun(Outcome::NotSent)), begun(7, Outcome::NotSent));
        assert_eq!(text(entry.changed(Outcome::Unknown)), changed(7, Outcome::Unknown));
        let end = settled(Outcome::Unknown, Some(Code::Timeout));
        let settled_now = Settled { replays: 2, ..end };
        assert_eq!(
            Record::read(entry.ended(&settled_now)),
            Some(Record::Ended { call: 7, begun: None, settled: settled_now })
        );
        assert_eq!(
            Record::read(entry.ended_at_once(&end)),
            Some(Record::Ended { call: 7, begun: Some((at(1_000), subject())), settled: end })
        );
    }
}

#[test]
fn names_and_arguments_of_any_length_fit() {
    let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
    let name = "ü".repeat(100_000);
    let mut entry = Entry::of(1, at(1), &LedgerCaller::default(), &name, &"x".repeat(Entry::LONGEST_NAME));
    entry.arguments(&raw(&format!("\"{}\"", "x".repeat(Entry::LONGEST_ARGUMENTS))));
    let read = |entry: &mut Entry| match Record::read(entry.begun(Outcome::Unknown)) {
        Some(Record::Begun { subject, .. }) => subject,
        other => panic!("{other:?}"),
    };
    let subject = read(&mut entry);
    assert_eq!((&*subject.client, subject.server.chars().count()), ("", Entry::LONGEST_NAME + 1));
    assert_eq!((subject.tool.len(), subject.arguments), (Entry::LONGEST_NAME, None));
    entry.arguments(&raw("{\n  \"text\": \"a\\nb\"\r\n}"));
    assert_eq!(text(entry.begun(Outcome::Unknown)).lines().count(), 1);
    assert_eq!(read(&mut entry).arguments.unwrap(), "{   \"text\": \"a\\nb\"  }");
}

#[test]
fn the_newest_rows_are_shown_and_the_rest_is_counted() {
    let row = |number: u64, outcome| Row {
        id: RowId { run: "a".to_owned(), call: number },
        subject: Subject {
            server: if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
            ..Subject::default()
        },
        started: at(number),
        end: End::Settled(settled(outcome, None)),
    };
    let shown = |query: Query| {
        let mut selection = Selection::new(query);
        for number in [5, 1, 4, 2, 3] {
            let outcome = if number < 3 { Outcome::Unknown } else { Outcome::Done };
            selection.consider(row(number, outcome));
        }
        let (rows, left_out) = selection.finish();
        (rows.iter().map(|row| row.started.since_epoch().as_millis()).collect::<Vec<_>>(), left_out)
    };
    assert_eq!(shown(Query::default()), (vec![5, 4, 3, 2, 1], 0));
    assert_eq!(shown(Query { limit: 2, ..Query::default() }), (vec![5, 4], 3));
    assert_eq!(shown(Query { limit: 0, ..Query::default() }), (vec![], 5));
    assert_eq!(shown(Query { unknown: true, ..Query::default() }), (vec![2, 1], 0));
    assert_eq!(shown(Query { server: Some("odd".to_owned()), ..Query::default() }), (vec![5, 3, 1], 0));
    assert_eq!(shown(Query { since: Some(at(4)), ..Query::default() }), (vec![5, 4], 0));
    assert_eq!(shown(Query { limit: usize::MAX, ..Query::default() }).0.len(), 5);
}

/// What may happen to a book. Numbers pick one of the calls that are open.
#[derive(Debug, Clone)]
enum Op {
    Begin(Outcome),
    Change(usize, Outcome),
    End(usize, Outcome),
    /// Ended before anything was written of it.
    AtOnce(Outcome),
    Rotate,
    /// The process dies, and another one takes the book.
    Die,
    /// Somebody else's line.
    Junk(Vec<u8>),
    /// A line that was not written, or not to its end, where the next one was: so many letters of it are missing.
    Gap(Vec<u8>, usize),
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(Outcome::ALL.to_vec())
}

fn any_junk() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>().prop_filter("one line", |byte| *byte != b'\n'), 0..40);
    let nearly = prop::sample::select(vec![
        "{}",
        "{\"call\":1}",
        "{\"call\":1,\"outcome\":\"done\"}",
        "{\"call\":1,\"if_orphaned\":\"eaten\"}",
        "{\"run\":\"x\"}",
        "{\"call\":-1,\"at_ms\":1,\"server\":\"s\",\"if_orphaned\":\"unknown\"}",
        "{\"call\":1,\"at_ms\":1,\"if_orphaned\":\"unknown\"}",
        "null",
        "[[[[",
    ]);
    prop_oneof![bytes, nearly.prop_map(|text| text.as_bytes().to_vec())]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => any_outcome().prop_map(Op::Begin),
        2 => (any::<usize>(), any_outcome()).prop_map(|(which, fate)| Op::Change(which, fate)),
        5 => (any::<usize>(), any_outcome()).prop_map(|(which, outcome)| Op::End(which, outcome)),
        1 => any_outcome().prop_map(Op::AtOnce),
        1 => Just(Op::Rotate),
        1 => Just(Op::Die),
        2 => any_junk().prop_map(Op::Junk),
        2 => (any_junk(), 1..300_usize).prop_map(|(junk, missing)| Op::Gap(junk, missing)),
    ]
}

/// A book as it is written, with what it ought to say after each of its lines.
#[derive(Default)]
struct Book {
    name: &'static str,
    runs: u64,
    calls: u64,
    open: BTreeMap<u64, Outcome>,
    complete: BTreeMap<String, Outcome>,
    segments: Vec<Vec<u8>>,
    after: Vec<After>,
}

/// What a book ought to say once so many bytes of it were written and its owner died.
struct After {
    written: usize,
    fates: BTreeMap<String, Outcome>,
}

impl Book {
    fn written(name: &'static str, ops: &[Op]) -> Self {
        let mut book = Self { name, segments: vec![Vec::new()], ..Self::default() };
        book.take();
        ops.iter().for_each(|op| book.apply(op));
        book
    }

    fn run(&self) -> String {
        format!("{}{}", self.name, self.runs)
    }

    fn id(&self, call: u64) -> String {
        format!("{}-{call}", self.run())
    }

    fn write(&mut self, line: &[u8]) {
        self.segments.last_mut().unwrap().extend_from_slice(line);
        let written = self.segments.iter().map(Vec::len).sum();
        let open = self.open.iter().map(|(call, fate)| (self.id(*call), *fate));
        let fates = open.chain(self.complete.clone()).collect();
        self.after.push(After { written, fates });
    }

    fn take(&mut self) {
        for (call, fate) in std::mem::take(&mut self.open) {
            self.complete.insert(self.id(call), fate);
        }
        self.runs += 1;
        let line = taken(&self.run());
        self.write(line.as_bytes());
    }

    fn pick(&self, which: usize) -> Option<u64> {
        self.open.keys().copied().nth(which.checked_rem(self.open.len())?)
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Begin(fate) => {
                self.calls += 1;
                self.open.insert(self.calls, *fate);
                self.write(begun(self.calls, *fate).as_bytes());
            }
            Op::Change(which, fate) => {
                let Some(call) = self.pick(*which) else { return };
                self.open.insert(call, *fate);
                self.write(changed(call, *fate).as_bytes());
            }
            Op::End(which, outcome) => {
                let Some(call) = self.pick(*which) else { return };
                self.open.remove(&call);
                self.complete.insert(self.id(call), *outcome);
                self.write(ended(call, *outcome).as_bytes());
            }
            Op::AtOnce(outcome) => {
                self.calls += 1;
                self.complete.insert(self.id(self.calls), *outcome);
                self.write(entry(self.calls).ended_at_once(&settled(*outcome, None)));
            }
            Op::Rotate => {
                // The head of a segment is written as one piece; what it says was known before.
                let open = self.open.iter().map(|(call, fate)| begun(*call, *fate));
                let head = std::iter::once(taken(&self.run())).chain(open).collect::<String>();
                self.segments.push(Vec::new());
                self.write(head.as_bytes());
            }
            Op::Die => self.take(),
            Op::Junk(bytes) => self.write(&[bytes.as_slice(), b"\n"].concat()),
            Op::Gap(bytes, missing) => self.write(&[bytes.as_slice(), &vec![0; *missing]].concat()),
        }
    }

    fn text(&self) -> Vec<u8> {
        self.segments.concat()
    }
}

fn fates(rows: &[Row]) -> BTreeMap<String, Outcome> {
    rows.iter().filter_map(|row| Some((row.id.to_string(), row.outcome()?))).collect()
}

proptest! {
    /// Killed at any byte: what was written whole counts, what was in flight is found with the fate that
    /// was known, nothing is found twice.
    #[test]
    fn any_prefix_of_a_book_says_what_was_known_then(
        ops in prop::collection::vec(any_op(), 0..60), cut in any::<prop::sample::Index>()
    ) {
        let book = Book::written("a", &ops);
        let text = book.text();
        let cut = cut.index(text.len() + 1);
        let found = rows(&text[..cut], Owner::IsGone);
        prop_assert_eq!(found.len(), fates(&found).len(), "no row twice");
        let whole = book.after.iter().take_while(|after| after.written <= cut).count();
        // A line without its end may be whole all the same.
        let maybe = book.after.get(whole).filter(|after| after.written == cut + 1);
        let expected = [whole.checked_sub(1).and_then(|last| book.after.get(last)), maybe];
        let expected = expected.map(|after| after.map(|after| after.fates.clone()).unwrap_or_default());
        prop_assert!(expected.contains(&fates(&found)), "{}", String::from_utf8_lossy(&text[..cut]));
    }

    /// Old segments can be thrown away at any time: what is in flight is in the newest one.
    #[test]
    fn the_newest_segments_alone_know_everything_that_is_in_flight(
        ops in prop::collection::vec(any_op(), 0..60), kept in any::<prop::sample::Index>()
    ) {
        let book = Book::written("a", &ops);
        let kept = kept.index(book.segments.len());
        let all = rows(&book.text(), Owner::Lives);
        let some = rows(&book.segments[kept..].concat(), Owner::Lives);
        let open = |rows: &[Row]| -> Vec<Row> {
            rows.iter().filter(|row| row.end == End::InFlight).cloned().collect()
        };
        prop_assert_eq!(open(&all), open(&some));
        prop_assert_eq!(open(&all).len(), book.open.len());
        prop_assert!(some.iter().all(|row| all.contains(row)), "nothing is invented");
    }

    /// Books of several processes are read side by side: their rows stay apart.
    #[test]
    fn processes_do_not_get_into_each_others_rows(
        one in prop::collection::vec(any_op(), 0..40), other in prop::collection::vec(any_op(), 0..40)
    ) {
        let (one, other) = (Book::written("a", &one), Book::written("b", &other));
        let mut selection = Selection::new(Query { limit: Query::MOST, ..Query::default() });
        for row in rows(&one.text(), Owner::IsGone).into_iter().chain(rows(&other.text(), Owner::IsGone)) {
            selection.consider(row);
        }
        let (rows, left_out) = selection.finish();
        let calls = one.calls + other.calls;
        prop_assert_eq!((rows.len() as u64, left_out), (calls, 0));
    }

    #[test]
    fn no_bytes_harm_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        rows(&bytes, Owner::IsGone);
    }
}
