//! Memory for answers, as the program around the host bounds it. The host reserves memory for an answer when it comes, and
//! the answer keeps the reservation; how much there is, and for whom, is decided elsewhere.

use std::fmt;

/// The memory that answers to one caller may take.
pub trait AnswerMemory: Send + Sync {
    /// Reserves memory until the reservation is dropped. It must not block.
    ///
    /// # Errors
    /// There is not that much left.
    fn reserve(&self, bytes: usize) -> Result<Box<dyn Reservation>, OutOfMemory>;
}

/// Memory that is reserved until this is dropped.
pub trait Reservation: fmt::Debug + Send + Sync {
    /// Reserves more.
    ///
    /// # Errors
    /// There is not that much left. What was reserved before stays reserved.
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory>;
}

/// There is not enough memory left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfMemory(
    /// Whose memory is used up, and the key that bounds it.
    pub String,
);
