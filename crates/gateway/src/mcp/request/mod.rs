//! Handling of one request: its era, the server that it goes to, forwarding, translation between eras, and the
//! response.

pub(crate) mod cursor;
pub(crate) mod dispatch;
pub(crate) mod era;
pub(crate) mod extensions;
pub(crate) mod forward;
pub(crate) mod overload;
pub(crate) mod respond;
pub(crate) mod route;
pub(crate) mod translate;
