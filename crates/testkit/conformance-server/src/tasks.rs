//! Tasks extension of the modern era. Nothing runs in the background: the state of a task follows from the time and
//! from the client's requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::caller::{Caller, lock};
use crate::rpc::{INVALID_PARAMS, Request, RpcError};
use crate::state::ServerState;

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Duration of a second of task time. The suite waits for slow tasks, and sees all their states at this speed too.
pub(crate) const SCALED_SECOND: Duration = Duration::from_millis(100);

pub(crate) struct Task {
    created: SystemTime,
    due: Instant,
    cancelled: bool,
    /// Requests for input that are still open.
    wanted: BTreeMap<String, Value>,
    end: Result<Value, RpcError>,
}

impl Task {
    /// Creates a task that ends with this result after this time, once everything in `wanted` is answered.
    pub(crate) fn new(
        seconds: f64,
        wanted: impl IntoIterator<Item = (String, Value)>,
        end: Result<Value, RpcError>,
    ) -> Self {
        Self {
            created: SystemTime::now(),
            due: Instant::now() + SCALED_SECOND.mul_f64(seconds.clamp(0.0, 3600.0)),
            cancelled: false,
            wanted: wanted.into_iter().collect(),
            end,
        }
    }

    /// Result of the call that creates the task.
    pub(crate) fn begin(self, shared: &ServerState) -> Value {
        let mut tasks = lock(&shared.tasks);
        let id = format!("task-{}", tasks.len() + 1);
        let mut result = self.summary(&id);
        result["resultType"] = "task".into();
        tasks.insert(id, self);
        result
    }

    fn is_over(&self) -> bool {
        self.cancelled || (self.wanted.is_empty() && Instant::now() >= self.due)
    }

    fn summary(&self, id: &str) -> Value {
        let status = match (self.cancelled, self.is_over(), &self.end) {
            (true, ..) => "cancelled",
            (_, true, Ok(_)) => "completed",
            (_, true, Err(_)) => "failed",
            (_, false, _) if !self.wanted.is_empty() => "input_required",
            (_, false, _) => "working",
        };
        json!({
            "taskId": id,
            "status": status,
            "createdAt": to_rfc3339(self.created),
            "lastUpdatedAt": to_rfc3339(SystemTime::now()),
            "ttlMs": 600_000,
            "pollIntervalMs": 100,
        })
    }

    fn details(&self, id: &str) -> Value {
        let mut details = self.summary(id);
        match (details["status"].as_str(), &self.end) {
            (Some("completed"), Ok(result)) => details["result"] = result.clone(),
            (Some("failed"), Err(error)) => {
                details["error"] = json!({ "code": error.code, "message": error.message });
            }
            (Some("input_required"), _) => details["inputRequests"] = json!(self.wanted),
            (_, _) => {}
        }
        details
    }
}

/// True if the client supports tasks.
pub(crate) fn supported_by(caller: &Caller) -> bool {
    caller.capabilities()["extensions"][EXTENSION].is_object()
}

pub(crate) fn missing() -> RpcError {
    RpcError::missing_capability(json!({ "extensions": { EXTENSION: {} } }))
}

pub(crate) fn answer(shared: &ServerState, caller: &Caller, request: &Request) -> Result<Value, RpcError> {
    if !supported_by(caller) {
        return Err(missing());
    }
    let id = request.text("taskId")?;
    let mut tasks = lock(&shared.tasks);
    let unknown = || RpcError::new(INVALID_PARAMS, "there is no such task");
    let task = tasks.get_mut(id).ok_or_else(unknown)?;
    match request.method.as_str() {
        "tasks/get" => return Ok(task.details(id)),
        "tasks/cancel" => task.cancelled |= !task.is_over(),
        _ => {
            if let Some(responses) = request.params["inputResponses"].as_object() {
                task.wanted.retain(|key, _| !responses.contains_key(key));
            }
        }
    }
    Ok(json!({}))
}

/// Formats a time with a precision of one second.
fn to_rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut month) = (1970, 0);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_in = |year| {
        let february = if is_leap(year) { 29 } else { 28 };
        [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    };
    while days >= days_in(year).iter().sum() {
        days -= days_in(year).iter().sum::<u64>();
        year += 1;
    }
    while days >= days_in(year)[month] {
        days -= days_in(year)[month];
        month += 1;
    }
    let (day, month) = (days + 1, month + 1);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted() {
        let at = |seconds| to_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
    }
}
