//! JSON-RPC error codes that carry a meaning in MCP. This file names them; what to do about one is decided
//! elsewhere.
//!
//! `-32020..=-32099` belongs to the specification and `-32000..=-32019` means whatever an old implementation
//! meant, so errors of our own use [`INTERNAL_ERROR`] and put their machine-readable part into `data`.

/// The bytes were not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON, but not a JSON-RPC message this endpoint can take.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method here. Over HTTP: status 404 in the modern era, 200 in the legacy one.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong; also an unknown tool, prompt or (modern) resource.
pub const INVALID_PARAMS: i64 = -32602;
/// The receiver failed. The code of every error a gateway makes up itself.
pub const INTERNAL_ERROR: i64 = -32603;
/// Legacy era: no such resource. The modern era says [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Revision 2025-11-25: the user has to visit a URL first; `data.elicitations` lists them.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Modern era: HTTP headers and body disagree, or a required header is missing.
pub const HEADER_MISMATCH: i64 = -32020;
/// Modern era: the request's declared capabilities are not enough; `data.requiredCapabilities` says what is.
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// Modern era: the requested version is not spoken here; `data.supported` lists those that are.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// Whether only a server of the modern era answers with this code.
pub const fn is_modern(code: i64) -> bool {
    matches!(code, HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION)
}
