//! Errors of a connection to a server, for both versions of HTTP.

use super::h1_response::MalformedResponse;
use super::h2_connection;
use std::io;
use thiserror::Error;

/// Reason why a connection has no response, or not all of it.
#[derive(Debug, Error)]
pub(crate) enum ConnectionError {
    #[error("the server closed the connection before the end of its response")]
    Closed,
    #[error("{0}")]
    Io(#[source] io::Error),
    #[error("{0}")]
    Malformed(#[source] MalformedResponse),
    #[error("{0}")]
    H2(#[source] hyper::Error),
}

impl ConnectionError {
    /// The peer may not speak HTTP at all.
    pub(super) fn is_malformed(&self) -> bool {
        match self {
            Self::Malformed(_) => true,
            Self::H2(error) => error.is_parse(),
            Self::Closed | Self::Io(_) => false,
        }
    }

    /// The server refused to begin with the request.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::H2(error) if h2_connection::is_refused(error))
    }
}

/// Failed request on a connection.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: ConnectionError,
    /// The server has not begun to process the request.
    pub(super) is_unprocessed: bool,
}
