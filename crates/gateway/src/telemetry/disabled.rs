//! Without the feature `otlp` nobody is told anything.

use crate::downstream::Told;
use crate::metrics::Facts;
use gripfast::wire::Id;
use gripfast::{Answer, CallError, RawValue};
use std::convert::Infallible;

/// What tells a collector. There is none in this build.
#[derive(Debug)]
pub struct Telemetry(Infallible);

/// Why the environment cannot be followed. In this build it is not read.
#[derive(Debug, thiserror::Error)]
#[error("this build tells no collector anything")]
pub struct Unusable;

/// A request under way.
pub(crate) struct Span(Infallible);

impl Telemetry {
    /// Nobody, whatever the environment says.
    ///
    /// # Errors
    /// None.
    pub fn from_env() -> Result<Option<Self>, Unusable> {
        Ok(None)
    }

    pub(crate) fn measure(&self, _facts: impl Fn() -> Option<Facts> + Send + Sync + 'static) {
        match self.0 {}
    }

    pub(crate) fn serving(&self, _id: Id<'_>, _method: &str, _params: Option<&RawValue>) -> Span {
        match self.0 {}
    }

    pub(crate) fn sending(&self, _server: &str, _method: &str, _params: &RawValue) -> Span {
        match self.0 {}
    }

    /// Tells what is left to tell.
    pub async fn finish(&self) {
        match self.0 {}
    }
}

impl Span {
    pub(crate) async fn around<T>(&self, _work: impl Future<Output = T>) -> T {
        match self.0 {}
    }

    #[expect(clippy::boxed_local, reason = "somebody who tells would give it back")]
    pub(crate) fn marked(&self, _params: Box<RawValue>) -> Box<RawValue> {
        match self.0 {}
    }

    pub(crate) fn served(self, _told: &Told) {
        match self.0 {}
    }

    pub(crate) fn sent(self, _outcome: &Result<Answer, CallError>) {
        match self.0 {}
    }
}
