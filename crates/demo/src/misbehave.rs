//! The tool `misbehave`: faults of real servers, shown on purpose. Each fault is one match arm; those that damage the
//! answer itself only choose a [`Delivery`], which the writers perform.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    frame::{Delivery, Frame, Part, Then},
    methods::Reply,
    options::{Faults, Refusal, RefusalDuration},
    peer::Request,
    process::{self, Group},
    rpc::RpcError,
    state::{Change, Flow, ServerState},
    tools::{self, failure, plain, structured},
};

/// The faults, as the tool's schema lists them.
pub(crate) const WAYS: [&str; 20] = [
    "add_tool",
    "ask",
    "black_hole",
    "change_tool",
    "cut_sse",
    "demand_token",
    "env",
    "forget_sessions",
    "grandchild",
    "half_frame",
    "hang",
    "huge_frame",
    "junk",
    "refuse",
    "remove_tool",
    "reset",
    "slow_drip",
    "stderr_flood",
    "stop_reading",
    "unanswered",
];

/// One line of text and one of invalid UTF-8. Neither looks like JSON or like an event.
const JUNK: &[u8] = b"npm warn deprecated: this line is not JSON\n\xff\xfe\x00\x01\n";

const MEBIBYTE: usize = 1024 * 1024;

pub(crate) async fn call(state: &Arc<ServerState>, request: &Request, arguments: &Value) -> Reply {
    let how = match tools::required(arguments, "how", Value::as_str) {
        Ok(how) => how,
        Err(error) => return Err(error).into(),
    };
    let name = arguments["name"].as_str();
    let time = arguments["ms"].as_u64().map(Duration::from_millis);
    let size = arguments["size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(MEBIBYTE);
    let done = || plain(how);
    let delivered = |part, then| Reply { outcome: Ok(done()), delivery: Delivery::new(part, then) };
    match how {
        "junk" => {
            request.outlet.send(Frame::Junk(Bytes::from_static(JUNK))).await;
            Ok(done()).into()
        }
        "half_frame" => delivered(Part::HalfThenWhole, Then::Continue),
        "cut_sse" => delivered(Part::Half, Then::End),
        "reset" if arguments["before"] == true => delivered(Part::Nothing, Then::Reset),
        "reset" => delivered(Part::Half, Then::Reset),
        "slow_drip" => {
            let pause = time.unwrap_or(Duration::from_millis(100));
            delivered(Part::Drip(pause), Then::Continue)
        }
        "unanswered" => delivered(Part::Nothing, Then::End),
        "huge_frame" => Ok(plain(&"x".repeat(size))).into(),
        "hang" => std::future::pending().await,
        "stderr_flood" => io_done(process::flood_stderr(size).await, done()),
        "grandchild" => {
            let group = if arguments["own_group"] == true { Group::Own } else { Group::Inherited };
            match process::spawn_grandchild(group) {
                Ok(pid) => Ok(structured(&pid.to_string(), json!({ "pid": pid }))).into(),
                Err(error) => Ok(failure(&format!("no grandchild could be started: {error}"))).into(),
            }
        }
        "forget_sessions" => {
            state.sessions.forget_all();
            Ok(done()).into()
        }
        "stop_reading" => {
            state.set_flow(Flow::NotReading, time);
            Ok(done()).into()
        }
        "black_hole" => {
            state.set_flow(Flow::BlackHole, time);
            Ok(done()).into()
        }
        "refuse" => {
            let status = arguments["status"].as_u64().and_then(|status| u16::try_from(status).ok());
            let lasts = time.map_or(RefusalDuration::Forever, RefusalDuration::For);
            let retry_after = arguments["retry_after"].as_u64().map(Duration::from_secs);
            let refuse = Some(Refusal { status: status.unwrap_or(500), lasts });
            state.set_faults(Faults { refuse, retry_after, ..(*state.faults()).clone() });
            Ok(done()).into()
        }
        "demand_token" => {
            let require_bearer = name.map(str::to_owned);
            state.set_faults(Faults { require_bearer, ..(*state.faults()).clone() });
            Ok(done()).into()
        }
        "add_tool" => {
            let name = state.add_tool(name);
            state.announce(Change::Tools).await;
            Ok(plain(&name)).into()
        }
        "remove_tool" => {
            let name = name.unwrap_or("added_1");
            changed(state, name, state.remove_tool(name)).await
        }
        "change_tool" => {
            let name = name.unwrap_or("echo");
            let description = format!("Not what it was {} calls ago.", state.calls());
            changed(state, name, state.change_tool(name, &description)).await
        }
        "env" => {
            let names: std::collections::BTreeSet<String> =
                std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
            let text = names.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
            Ok(structured(&text, json!({ "names": names }))).into()
        }
        "ask" => tools::ask(state, request, arguments).await.into(),
        other => Err(RpcError::invalid(format!("`{other}` is not a way to misbehave"))).into(),
    }
}

fn io_done(outcome: std::io::Result<()>, done: Value) -> Reply {
    Ok(outcome.map_or_else(|error| failure(&error.to_string()), |()| done)).into()
}

async fn changed(state: &ServerState, name: &str, found: bool) -> Reply {
    if found {
        state.announce(Change::Tools).await;
        Ok(plain(name)).into()
    } else {
        Ok(failure(&format!("there is no tool `{name}`"))).into()
    }
}
