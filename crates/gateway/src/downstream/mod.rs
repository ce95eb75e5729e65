//! The side that clients see.
