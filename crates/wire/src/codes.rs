//! JSON-RPC error codes with a meaning in MCP. Callers decide how to react to them.
//!
//! `-32020..=-32099` belongs to the specification, and old implementations use `-32000..=-32019` in different ways, so
//! errors of the gateway use [`INTERNAL_ERROR`] and put their machine-readable part into `data`.

/// The bytes were not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON, but not a JSON-RPC message that this endpoint accepts.
pub const INVALID_REQUEST: i64 = -32600;
/// Unknown method. Over HTTP: status 404 in the modern era, 200 in the legacy one.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong; also an unknown tool, prompt or (modern) resource.
pub const INVALID_PARAMS: i64 = -32602;
/// The receiver failed. The code of every error that the gateway creates itself.
pub const INTERNAL_ERROR: i64 = -32603;
/// Legacy era: unknown resource. The modern era uses [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Revision 2025-11-25: the user has to visit a URL first; `data.elicitations` lists them.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Modern era: HTTP headers and body disagree, or a required header is missing.
pub const HEADER_MISMATCH: i64 = -32020;
/// Modern era: the request's declared capabilities are not enough; `data.requiredCapabilities` lists the missing ones.
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// Modern era: the requested version is not supported; `data.supported` lists those that are.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// Returns whether only servers of the modern era answer with this code.
pub const fn is_modern(code: i64) -> bool {
    matches!(code, HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION)
}
