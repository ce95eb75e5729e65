//! Health of the embeddings endpoint: when it is asked again after a failure, and which failures are logged.

use std::time::Duration;

use crate::time::Mono;

/// Failures of an endpoint that search can do without.
#[derive(Debug, Clone, Default)]
pub struct EndpointHealth {
    failure: Option<EndpointFailure>,
    logged_at: Option<Mono>,
}

#[derive(Debug, Clone)]
struct EndpointFailure {
    cause: String,
    pause: Duration,
    retry_at: Mono,
}

impl EndpointHealth {
    /// Pause after the first failure.
    pub const FIRST_PAUSE: Duration = Duration::from_secs(5);
    /// Longest pause.
    pub const MAX_PAUSE: Duration = Duration::from_secs(300);
    /// Least time between two log lines about failures.
    pub const LOG_PAUSE: Duration = Duration::from_secs(600);

    /// Notes a failure. Returns true if it should be logged. Failures of requests that were sent before the pause do not
    /// make it longer.
    pub fn failed(&mut self, cause: String, now: Mono) -> bool {
        let pause = match &self.failure {
            None => Some(Self::FIRST_PAUSE),
            Some(before) if now >= before.retry_at => Some((before.pause * 2).min(Self::MAX_PAUSE)),
            Some(_) => None,
        };
        if let Some(pause) = pause {
            self.failure = Some(EndpointFailure { cause, pause, retry_at: now + pause });
        }
        let is_due = self.logged_at.is_none_or(|at| now.since(at) >= Self::LOG_PAUSE);
        if is_due {
            self.logged_at = Some(now);
        }
        is_due
    }

    /// Notes an answer. Returns true if it ends a failure.
    pub fn answered(&mut self) -> bool {
        self.failure.take().is_some()
    }

    /// Time of the next request after a failure.
    #[must_use]
    pub fn retry_at(&self) -> Option<Mono> {
        self.failure.as_ref().map(|failure| failure.retry_at)
    }

    /// Cause of the failure.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.cause.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn pauses_grow_from_five_seconds_to_five_minutes() {
        let mut health = EndpointHealth::default();
        assert_eq!((health.retry_at(), health.cause()), (None, None));
        let mut now = at(100);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            health.failed("refused".to_owned(), now);
            let next = health.retry_at().unwrap();
            pauses.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn requests_that_fail_together_are_one_failure() {
        let mut health = EndpointHealth::default();
        for _ in 0..50 {
            health.failed("slow".to_owned(), at(100));
        }
        assert_eq!(health.retry_at(), Some(at(105)));
    }

    #[test]
    fn an_answer_ends_the_failure_once() {
        let mut health = EndpointHealth::default();
        health.failed("slow".to_owned(), at(1));
        assert_eq!(health.cause(), Some("slow"));
        assert!(health.answered() && !health.answered());
        assert_eq!((health.retry_at(), health.cause()), (None, None));
    }

    #[test]
    fn an_endpoint_that_fails_all_night_is_logged_every_ten_minutes() {
        let mut health = EndpointHealth::default();
        let logged = (0..3600).filter(|second| health.failed("slow".to_owned(), at(*second))).count();
        assert_eq!(logged, 6);
        let mut flapping = EndpointHealth::default();
        let logged = (0..3600).filter(|second| {
            flapping.answered();
            flapping.failed("slow".to_owned(), at(*second))
        });
        assert_eq!(logged.count(), 6, "also if it answers in between");
    }
}
