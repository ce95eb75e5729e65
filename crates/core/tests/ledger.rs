//! Invariants of the ledger: whatever happens to the file and its writer, each call has one row, with no more than is
//! known about it.

#![expect(clippy::unwrap_used, reason = "tests may")]

use gripfast_core::failure::{CallOutcome, Code};
use gripfast_core::json::Digest;
use gripfast_core::json_text::JsonText;
use gripfast_core::ledger::fold::{Fold, WriterState};
use gripfast_core::ledger::ledger_entry::{self, LedgerCaller, LedgerEntry};
use gripfast_core::ledger::record::Record;
use gripfast_core::ledger::{CallSubject, Query, Row, RowEnd, RowId, Selection, Settled};
use gripfast_core::time::Wall;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

fn at(millis: u64) -> Wall {
    Wall::from_unix_epoch(Duration::from_millis(millis))
}

fn settled(outcome: CallOutcome, code: Option<Code>) -> Settled {
    let took = Duration::from_micros(1500);
    Settled { ended: at(2_000), took, outcome, code, attempts: 1, replays: 0 }
}

/// The ledger lines of this call.
fn entry(call: u64) -> LedgerEntry {
    let mut entry = LedgerEntry::new(
        call,
        at(1_000),
        &LedgerCaller { principal: "alice", client: "claude-code 2.1" },
        "github",
        "create_issue",
    );
    entry.set_digest(Digest::of(b"{}"));
    entry
}

fn subject() -> CallSubject {
    CallSubject {
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

fn rows(text: &[u8], owner: WriterState) -> Vec<Row> {
    let (mut fold, mut rows) = (Fold::default(), Vec::new());
    for line in text.split(|byte| *byte == b'\n') {
        fold.push_line(line, |row| rows.push(row));
    }
    fold.finish(owner, |row| rows.push(row));
    rows
}

fn taken(run: &str) -> String {
    let mut line = Vec::new();
    ledger_entry::write_run_line(run, at(1), &mut line);
    text(&line)
}

fn begun(call: u64, if_orphaned: CallOutcome) -> String {
    text(entry(call).start_line(if_orphaned))
}

fn changed(call: u64, if_orphaned: CallOutcome) -> String {
    text(entry(call).update_line(if_orphaned))
}

fn ended(call: u64, outcome: CallOutcome) -> String {
    text(entry(call).end_line(&settled(outcome, None)))
}

#[test]
fn a_written_line_parses_to_its_record() {
    assert_eq!(
        begun(7, CallOutcome::Unknown),
        "{\"call\":7,\"at_ms\":1000,\"principal\":\"alice\",\"client\":\"claude-code 2.1\",\"server\":\"github\",\"tool\":\"create_issue\",\
         \"sha256\":\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\",\"if_orphaned\":\"unknown\"}\n"
    );
    assert_eq!(changed(7, CallOutcome::Unknown), "{\"call\":7,\"if_orphaned\":\"unknown\"}\n");
    assert_eq!(
        ended(7, CallOutcome::Done),
        "{\"call\":7,\"ended_ms\":2000,\"took_us\":1500,\"outcome\":\"done\",\"attempts\":1}\n"
    );
}

#[test]
fn an_orphaned_call_is_unknown_if_it_was_sent_and_not_sent_otherwise() {
    let book = taken("a")
        + &begun(1, CallOutcome::Unknown)
        + &begun(2, CallOutcome::NotSent)
        + &begun(3, CallOutcome::NotSent);
    let book = book + &changed(3, CallOutcome::Unknown) + &ended(1, CallOutcome::Done);
    let outcomes = |owner| -> Vec<Option<CallOutcome>> {
        rows(book.as_bytes(), owner).iter().map(Row::outcome).collect()
    };
    assert_eq!(
        outcomes(WriterState::Gone),
        [Some(CallOutcome::Done), Some(CallOutcome::NotSent), Some(CallOutcome::Unknown)]
    );
    assert_eq!(outcomes(WriterState::Alive), [Some(CallOutcome::Done), None, None]);
    // The next process settles it by writing its own run line.
    let next = book.clone() + &taken("b");
    assert_eq!(rows(next.as_bytes(), WriterState::Alive), rows(book.as_bytes(), WriterState::Gone));
}

#[test]
fn only_unknown_calls_have_a_hint() {
    for row in rows((taken("a") + &begun(1, CallOutcome::Unknown)).as_bytes(), WriterState::Gone) {
        assert_eq!(row.summary(), "gripfast ended before the answer came");
        assert!(row.hint().is_some_and(|text| text.contains("`create_issue` of `github`")));
    }
    for outcome in CallOutcome::ALL {
        for code in std::iter::once(None).chain(Code::ALL.map(Some)) {
            let end = RowEnd::Settled(settled(outcome, code));
            let row =
                Row { id: RowId { run: "a".to_owned(), call: 1 }, subject: subject(), started: at(1), end };
            assert!(!row.summary().is_empty());
            assert_eq!(row.hint().is_some(), outcome == CallOutcome::Unknown);
        }
    }
}

/// A call may change its outcome any number of times, and each line is independent of the earlier ones.
#[test]
fn lines_of_one_call_do_not_depend_on_earlier_lines() {
    let mut entry = entry(7);
    for _ in 0..3 {
        assert_eq!(text(entry.start_line(CallOutcome::NotSent)), begun(7, CallOutcome::NotSent));
        assert_eq!(text(entry.update_line(CallOutcome::Unknown)), changed(7, CallOutcome::Unknown));
        let end = settled(CallOutcome::Unknown, Some(Code::Timeout));
        let settled_now = Settled { replays: 2, ..end };
        assert_eq!(
            Record::parse(entry.end_line(&settled_now)),
            Some(Record::CallEnded { call: 7, started: None, settled: settled_now })
        );
        assert_eq!(
            Record::parse(entry.single_line(&end)),
            Some(Record::CallEnded { call: 7, started: Some((at(1_000), subject())), settled: end })
        );
    }
}

#[test]
fn names_and_arguments_of_any_length_fit() {
    let raw = |json: &str| JsonText::parse(json.to_owned()).unwrap();
    let name = "ü".repeat(100_000);
    let mut entry =
        LedgerEntry::new(1, at(1), &LedgerCaller::default(), &name, &"x".repeat(LedgerEntry::MAX_NAME_CHARS));
    entry.set_arguments(&raw(&format!("\"{}\"", "x".repeat(LedgerEntry::MAX_ARGUMENT_BYTES))));
    let read = |entry: &mut LedgerEntry| match Record::parse(entry.start_line(CallOutcome::Unknown)) {
        Some(Record::CallStarted { subject, .. }) => subject,
        other => panic!("{other:?}"),
    };
    let subject = read(&mut entry);
    assert_eq!((&*subject.client, subject.server.chars().count()), ("", LedgerEntry::MAX_NAME_CHARS + 1));
    assert_eq!((subject.tool.len(), subject.arguments), (LedgerEntry::MAX_NAME_CHARS, None));
    entry.set_arguments(&raw("{\n  \"text\": \"a\\nb\"\r\n}"));
    assert_eq!(text(entry.start_line(CallOutcome::Unknown)).lines().count(), 1);
    assert_eq!(read(&mut entry).arguments.unwrap(), "{   \"text\": \"a\\nb\"  }");
}

#[test]
fn the_newest_rows_are_shown_and_the_rest_is_counted() {
    let row = |number: u64, outcome| Row {
        id: RowId { run: "a".to_owned(), call: number },
        subject: CallSubject {
            server: if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
            ..CallSubject::default()
        },
        started: at(number),
        end: RowEnd::Settled(settled(outcome, None)),
    };
    let shown = |query: Query| {
        let mut selection = Selection::new(query);
        for number in [5, 1, 4, 2, 3] {
            let outcome = if number < 3 { CallOutcome::Unknown } else { CallOutcome::Done };
            selection.push(row(number, outcome));
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

/// A step of a random ledger. Numbers select one of the open calls.
#[derive(Debug, Clone)]
enum Op {
    Begin(CallOutcome),
    Change(usize, CallOutcome),
    End(usize, CallOutcome),
    /// Ended before anything was written.
    AtOnce(CallOutcome),
    Rotate,
    /// The process dies, and another one takes over the ledger.
    Die,
    /// A foreign line.
    Junk(Vec<u8>),
    /// A line that was not written, or only in part, before the next one: this number of bytes is missing.
    Gap(Vec<u8>, usize),
}

fn any_outcome() -> impl Strategy<Value = CallOutcome> {
    prop::sample::select(CallOutcome::ALL.to_vec())
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

/// A ledger as it is written, with the expected rows after each line.
#[derive(Default)]
struct Book {
    name: &'static str,
    runs: u64,
    calls: u64,
    open: BTreeMap<u64, CallOutcome>,
    complete: BTreeMap<String, CallOutcome>,
    segments: Vec<Vec<u8>>,
    after: Vec<After>,
}

/// The expected rows after this number of bytes was written and the writer died.
struct After {
    written: usize,
    fates: BTreeMap<String, CallOutcome>,
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
                self.write(entry(self.calls).single_line(&settled(*outcome, None)));
            }
            Op::Rotate => {
                // The head of a segment is written at once; its content was known before.
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

fn fates(rows: &[Row]) -> BTreeMap<String, CallOutcome> {
    rows.iter().filter_map(|row| Some((row.id.to_string(), row.outcome()?))).collect()
}

proptest! {
    /// Killed at any byte: complete lines count, calls in flight have their last known outcome, and no row appears
    /// twice.
    #[test]
    fn any_prefix_of_a_ledger_has_the_state_of_its_time(
        ops in prop::collection::vec(any_op(), 0..60), cut in any::<prop::sample::Index>()
    ) {
        let book = Book::written("a", &ops);
        let text = book.text();
        let cut = cut.index(text.len() + 1);
        let found = rows(&text[..cut], WriterState::Gone);
        prop_assert_eq!(found.len(), fates(&found).len(), "no row twice");
        let whole = book.after.iter().take_while(|after| after.written <= cut).count();
        // A line without its line break may be complete nevertheless.
        let maybe = book.after.get(whole).filter(|after| after.written == cut + 1);
        let expected = [whole.checked_sub(1).and_then(|last| book.after.get(last)), maybe];
        let expected = expected.map(|after| after.map(|after| after.fates.clone()).unwrap_or_default());
        prop_assert!(expected.contains(&fates(&found)), "{}", String::from_utf8_lossy(&text[..cut]));
    }

    /// Old segments can be deleted at any time: the newest one contains the calls in flight.
    #[test]
    fn the_newest_segments_contain_all_calls_in_flight(
        ops in prop::collection::vec(any_op(), 0..60), kept in any::<prop::sample::Index>()
    ) {
        let book = Book::written("a", &ops);
        let kept = kept.index(book.segments.len());
        let all = rows(&book.text(), WriterState::Alive);
        let some = rows(&book.segments[kept..].concat(), WriterState::Alive);
        let open = |rows: &[Row]| -> Vec<Row> {
            rows.iter().filter(|row| row.end == RowEnd::InFlight).cloned().collect()
        };
        prop_assert_eq!(open(&all), open(&some));
        prop_assert_eq!(open(&all).len(), book.open.len());
        prop_assert!(some.iter().all(|row| all.contains(row)), "nothing is invented");
    }

    /// Ledgers of several processes are read side by side, and their rows stay separate.
    #[test]
    fn processes_do_not_mix_their_rows(
        one in prop::collection::vec(any_op(), 0..40), other in prop::collection::vec(any_op(), 0..40)
    ) {
        let (one, other) = (Book::written("a", &one), Book::written("b", &other));
        let mut selection = Selection::new(Query { limit: Query::MAX_LIMIT, ..Query::default() });
        for row in rows(&one.text(), WriterState::Gone).into_iter().chain(rows(&other.text(), WriterState::Gone)) {
            selection.push(row);
        }
        let (rows, left_out) = selection.finish();
        let calls = one.calls + other.calls;
        prop_assert_eq!((rows.len() as u64, left_out), (calls, 0));
    }

    #[test]
    fn arbitrary_bytes_do_not_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        rows(&bytes, WriterState::Gone);
    }
}
