//! Memory budget for answers, implemented by the program that embeds the host. The host reserves memory when an
//! answer arrives, and the answer keeps the reservation; the program decides the limits.

use std::fmt;

/// Memory budget of one caller.
pub trait AnswerMemory: Send + Sync {
    /// Reserves memory until the reservation is dropped. It must not block.
    ///
    /// # Errors
    /// The budget is exhausted.
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Reservation>, OutOfMemory>;
}

/// Memory that stays reserved until this is dropped.
pub trait Reservation: fmt::Debug + Send + Sync {
    /// Extends the reservation.
    ///
    /// # Errors
    /// The budget is exhausted. The existing reservation stays.
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory>;
}

/// Error of an exhausted memory budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfMemory(
    /// The exhausted budget, and the config key that limits it.
    pub String,
);
