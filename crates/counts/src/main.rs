//! Runs the pure parts of a call a given number of times. `cargo xtask counts` runs this under valgrind and counts
//! instructions, which do not depend on the load of the machine, so that a more expensive part is noticed.
//!
//! The difference between many and few runs is reported, so that start-up is excluded.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use gripfast_core::cache::CacheKey;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence, HttpAnswer, Observed, RpcError};
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::upstream::{
    Action, Admission, CallEnd, Command, Input, LinkKind, UpstreamMachine,
};
use gripfast_core::time::{Mono, Now, Wall};
use gripfast_wire::envelope::Message;
use gripfast_wire::patch::{Patch, patch_payload};

const REQUEST: &[u8] = br#"{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"github__search_issues","arguments":{"query":"is:open label:bug","limit":20},"_meta":{"progressToken":7}}}"#;
const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":12345,"result":{"content":[{"type":"text","text":"one \"issue\" was found: it is about something that takes a line to tell"}],"isError":false}}"#;

/// Runs a part this many times.
type Rounds = fn(usize);

/// Parts by name.
const PARTS: [(&str, Rounds); 6] = [
    ("envelope-request", |times| parse(REQUEST, times)),
    ("envelope-response", |times| parse(RESPONSE, times)),
    ("patch", patch),
    ("admit-and-settle", admit_and_settle),
    ("classify", classify_all),
    ("cache-key", cache_key),
];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let part = args.next().and_then(|name| PARTS.iter().find(|(known, _)| *known == name));
    let times = args.next().and_then(|times| times.parse().ok());
    match part.zip(times) {
        Some(((_, run), times)) => {
            run(times);
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

/// Parsing of a message envelope.
fn parse(message: &[u8], times: usize) {
    for _ in 0..times {
        let _ = black_box(Message::parse(black_box(message)));
    }
}

/// Replacement of the public tool name with the server's own.
fn patch(times: usize) {
    let Ok(message) = Message::parse(REQUEST) else { return };
    for _ in 0..times {
        let names = Patch::new().set_text("name", black_box("search_issues"));
        let _ = black_box(patch_payload(black_box(message.params()), &names, &Patch::new()));
    }
}

/// Admission and end of one call to a connected server.
fn admit_and_settle(times: usize) {
    let mut clock = Duration::from_secs(1000);
    let now = |clock| Now { mono: Mono::from_origin(clock), wall: Wall::from_unix_epoch(clock) };
    let mut machine = UpstreamMachine::new(SupervisionSpec::default(), LinkKind::Remote, 42, now(clock));
    machine.handle(now(clock), Input::Command(Command::Start));
    while let Some(action) = machine.poll_action() {
        if let Action::Connect { epoch } = action {
            machine.handle(now(clock), Input::LinkUp { epoch, probe: Probe::Ping });
            machine.handle(now(clock), Input::CatalogListed { epoch });
        }
    }
    for _ in 0..times {
        clock += Duration::from_millis(1);
        match machine.admit(now(clock)) {
            Admission::Go(ticket) => machine.end_call(now(clock), ticket, CallEnd::Answered),
            Admission::Wait(place) => machine.leave_queue(now(clock), place),
            Admission::Refuse(_) => {}
        }
        while let Some(event) = machine.poll_event() {
            black_box(event);
        }
        black_box((machine.poll_timeout(), machine.has_actions(), machine.can_be_answered()));
    }
}

/// Classification of an expired session and of a similar error text that is not one.
fn classify_all(times: usize) {
    let said = |status, message: &str| {
        let rpc = Some(RpcError { code: -32000, message: message.to_owned() });
        let answer =
            HttpAnswer { status, rpc, body: message.to_owned(), had_session: true, ..HttpAnswer::default() };
        Evidence::sent(During::Call, Observed::Http(answer))
    };
    let gone = said(400, "Bad Request: No valid session ID provided");
    let other = said(400, "the session of the parliament was not found in the archive");
    for _ in 0..times {
        black_box(classify(black_box(&gone)));
        black_box(classify(black_box(&other)));
    }
}

/// Cache key of a call.
fn cache_key(times: usize) {
    let params =
        r#"{"name":"search","arguments":{"query":"is:open","limit":20.0},"_meta":{"progressToken":7}}"#;
    for _ in 0..times {
        black_box(CacheKey::for_request(Some("ann"), "github", "tools/call", Some(black_box(params))));
    }
}
