//! Memory budget for answers, implemented by the program that embeds the host. The host reserves memory when an
//! answer arrives, and the answer keeps the reservation; the program decides the limits.

use std::fmt;
use std::sync::Arc;

/// Memory budget of one caller.
pub trait AnswerMemory: Send + Sync {
    /// Reserves memory until the reservation is dropped. It must not block.
    ///
    /// # Errors
    /// The budget is exhausted.
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, OutOfMemory>;
}

/// Memory that stays reserved until this is dropped.
pub trait Reservation: fmt::Debug + Send + Sync {
    /// Extends the reservation.
    ///
    /// # Errors
    /// The budget is exhausted. The existing reservation stays.
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory>;
}

/// Extends the reservation of an answer that is being read, and so has no other owner.
pub(crate) fn grow(reserved: &mut Arc<dyn Reservation>, bytes: usize) -> Result<(), OutOfMemory> {
    Arc::get_mut(reserved).expect("only the reader holds it").grow(bytes)
}

/// Error of an exhausted memory budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfMemory(
    /// The exhausted budget, and the config key that limits it.
    pub String,
);
