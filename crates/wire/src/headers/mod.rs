//! The HTTP headers that mirror parts of a message, so that a load balancer need not parse bodies. Writes them for a
//! request to send, and compares them with the body of a received one. Works on names and values, without an HTTP
//! library.

mod params;

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gripfast_core::json_text::Json;

pub use self::params::{InvalidAnnotation, ParamHeaders};
use crate::envelope::Request;
use crate::era::meta;
use crate::patch::{NotAnObject, Object};
use crate::raw;

/// Legacy Streamable HTTP: the session.
pub const SESSION_ID: &str = "Mcp-Session-Id";
/// Both eras since 2025-06-18: the protocol version.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
/// Modern: the method.
pub const METHOD: &str = "Mcp-Method";
/// Modern: the name or URI of the tool, prompt, resource or task.
pub const NAME: &str = "Mcp-Name";
/// Modern: prefix of the header of an annotated tool argument.
pub const PARAM_PREFIX: &str = "Mcp-Param-";
/// Legacy Streamable HTTP: the event to resume after.
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

const ENCODED_PREFIX: &str = "=?base64?";
const ENCODED_SUFFIX: &str = "?=";

/// A header value is neither printable ASCII nor a well-formed encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header value is neither printable ASCII nor well-formed base64 of UTF-8")]
pub struct BadEncoding;

/// `text` as a header value: unchanged if that is safe, otherwise in the base64 form.
pub fn encode_value(text: &str) -> Cow<'_, str> {
    let padded = |end: Option<&u8>| matches!(end, Some(b' ' | b'\t'));
    let bytes = text.as_bytes();
    let looks_encoded = text.starts_with(ENCODED_PREFIX) && text.ends_with(ENCODED_SUFFIX);
    if is_printable(bytes) && !padded(bytes.first()) && !padded(bytes.last()) && !looks_encoded {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{ENCODED_PREFIX}{}{ENCODED_SUFFIX}", STANDARD.encode(text)))
}

/// Decodes a header value.
pub fn decode_value(value: &[u8]) -> Result<Cow<'_, str>, BadEncoding> {
    if !is_printable(value) {
        return Err(BadEncoding);
    }
    let text = std::str::from_utf8(value).map_err(|_| BadEncoding)?;
    let Some(inner) = text.strip_prefix(ENCODED_PREFIX).and_then(|text| text.strip_suffix(ENCODED_SUFFIX))
    else {
        return Ok(Cow::Borrowed(text));
    };
    let decoded = STANDARD.decode(inner).map_err(|_| BadEncoding)?;
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| BadEncoding)
}

fn is_printable(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e))
}

/// The headers that every modern request carries besides its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandardHeaders<'a> {
    /// The value of [`METHOD`]. Methods have no encoding: one that is not a valid header value cannot be sent.
    pub method: &'a str,
    /// The value of [`NAME`], encoded if necessary; `None` for methods without one.
    pub name: Option<Cow<'a, str>>,
}

/// The standard headers of a request to send.
pub fn standard_headers<'a>(
    method: &'a str,
    params: Option<&'a Json>,
) -> Result<StandardHeaders<'a>, NotAnObject> {
    let name = match (name_member(method), params) {
        (Some(member), Some(params)) => Object::parse(params)?.get_strict(member)?.and_then(raw::text),
        _ => None,
    };
    let name = name.map(|name| match encode_value(&name) {
        // Borrowed from the local variable: the name needs no encoding.
        Cow::Borrowed(_) => name,
        Cow::Owned(encoded) => Cow::Owned(encoded),
    });
    Ok(StandardHeaders { method, name })
}

/// The member of `params` that [`NAME`] mirrors.
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The mirroring headers of a received request.
#[derive(Clone, Debug, Default)]
pub struct MirroredHeaders<'h> {
    headers: Vec<(&'h str, &'h [u8])>,
}

/// Difference between headers and body. The text is sent in a `-32020` answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderMismatch {
    /// A required header is missing.
    #[error("header mismatch: {0} is missing")]
    Missing(HeaderName),
    /// A header appears twice, so that two parsers could see two different values.
    #[error("header mismatch: {0} appears more than once")]
    Repeated(HeaderName),
    /// A header value has forbidden characters or a broken encoding.
    #[error("header mismatch: {0} cannot be decoded")]
    Undecodable(HeaderName),
    /// A header and the body have different values.
    #[error("header mismatch: {header} says `{said}`, the body says `{body}`")]
    Differs {
        /// Name of the header.
        header: HeaderName,
        /// Decoded value of the header.
        said: String,
        /// Value in the body.
        body: String,
    },
    /// A header mirrors a value that the body does not have.
    #[error("header mismatch: {0} has a value, but the body does not")]
    Unbacked(HeaderName),
    /// The body cannot be parsed for the comparison.
    #[error("header mismatch: the parameters cannot be compared with the headers")]
    Body(#[from] NotAnObject),
}

/// The name of a header, as the specification spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderName(Cow<'static, str>);

impl HeaderName {
    /// The spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'h> MirroredHeaders<'h> {
    /// Collects the mirroring headers from all headers of a request. A repeated header must be passed once per value.
    pub fn collect(headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> Self {
        let mirrors = |name: &str| {
            [PROTOCOL_VERSION, METHOD, NAME].iter().any(|known| known.eq_ignore_ascii_case(name))
                || is_param(name)
        };
        Self { headers: headers.into_iter().filter(|(name, _)| mirrors(name)).collect() }
    }

    /// The `Mcp-Param-*` headers as received. Unknown ones have to be passed on.
    pub fn params(&self) -> impl Iterator<Item = (&'h str, &'h [u8])> {
        self.headers.iter().copied().filter(|(name, _)| is_param(name))
    }

    /// Compares the headers with the body of a modern request. `annotated` are the mirrored arguments of the called
    /// tool, if the method is `tools/call` and the tool is known.
    ///
    /// A version that is missing in the body is not reported here, but by [`crate::era::ModernContext`].
    pub fn verify(
        &self,
        request: &Request<'_>,
        annotated: Option<&ParamHeaders>,
    ) -> Result<(), HeaderMismatch> {
        let params = request.params.map(Object::parse).transpose()?;
        let version = self.plain(PROTOCOL_VERSION)?;
        if let Some(meta) = params.as_ref().map(|params| params.get_strict("_meta")).transpose()?.flatten()
            && let Some(body) = Object::parse(meta)?.text(meta::PROTOCOL_VERSION)
        {
            require_equal(PROTOCOL_VERSION, version, &body)?;
        }
        require_equal(METHOD, self.plain(METHOD)?, &request.method)?;
        if let Some(member) = name_member(&request.method) {
            let body = params.as_ref().map(|params| params.get_strict(member)).transpose()?.flatten();
            match (self.decoded(NAME)?, body.and_then(raw::text)) {
                (Some(said), Some(body)) => require_equal(NAME, &said, &body)?,
                (None, Some(_)) => return Err(HeaderMismatch::Missing(standard(NAME))),
                (Some(_), None) => return Err(HeaderMismatch::Unbacked(standard(NAME))),
                // The name is missing in the body, which the check of the parameters reports.
                (None, None) => {}
            }
        }
        match annotated {
            Some(annotated) => {
                let arguments = params.as_ref().and_then(|params| params.get("arguments"));
                annotated.verify(arguments, |header| self.decoded(header))
            }
            None => Ok(()),
        }
    }

    /// The value of a required header without encoding.
    fn plain(&self, name: &'static str) -> Result<&'h str, HeaderMismatch> {
        let value = self.single(name)?.ok_or_else(|| HeaderMismatch::Missing(standard(name)))?;
        let text = std::str::from_utf8(value).ok().filter(|text| is_printable(text.as_bytes()));
        text.ok_or_else(|| HeaderMismatch::Undecodable(standard(name)))
    }

    fn decoded(&self, name: &str) -> Result<Option<Cow<'h, str>>, HeaderMismatch> {
        let Some(value) = self.single(name)? else { return Ok(None) };
        decode_value(value).map(Some).map_err(|BadEncoding| HeaderMismatch::Undecodable(named(name)))
    }

    fn single(&self, name: &str) -> Result<Option<&'h [u8]>, HeaderMismatch> {
        let mut values = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        match (values.next(), values.next()) {
            (first, None) => Ok(first.map(|(_, value)| *value)),
            (_, Some(_)) => Err(HeaderMismatch::Repeated(named(name))),
        }
    }
}

fn is_param(name: &str) -> bool {
    name.get(..PARAM_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PARAM_PREFIX))
}

fn require_equal(header: &'static str, said: &str, body: &str) -> Result<(), HeaderMismatch> {
    if said == body {
        return Ok(());
    }
    Err(HeaderMismatch::Differs { header: standard(header), said: said.to_owned(), body: body.to_owned() })
}

const fn standard(name: &'static str) -> HeaderName {
    HeaderName(Cow::Borrowed(name))
}

fn named(name: &str) -> HeaderName {
    HeaderName(Cow::Owned(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Message;
    use gripfast_core::json_text::JsonText;

    #[test]
    fn values_are_encoded_as_the_specification_says() {
        for (plain, header) in [
            ("us-west1", "us-west1"),
            ("file:///a b.json", "file:///a b.json"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
            ("", ""),
        ] {
            assert_eq!(encode_value(plain), header);
            assert_eq!(decode_value(header.as_bytes()).unwrap(), plain);
        }
    }

    #[test]
    fn an_invalid_encoding_is_refused_and_never_taken_literally() {
        for broken in
            [&b"=?base64?!!?="[..], b"=?base64?SGk?=", b"=?base64?/w==?=", b"caf\xc3\xa9", b"a\nb", b"\0"]
        {
            assert_eq!(decode_value(broken), Err(BadEncoding), "{broken:?}");
        }
        assert_eq!(
            decode_value(b"=?BASE64?SGk=?=").unwrap(),
            "=?BASE64?SGk=?=",
            "the markers are case-sensitive"
        );
    }

    #[test]
    fn the_name_header_mirrors_the_name_or_uri_in_the_params() {
        let name = |method, params: &str| {
            let params = JsonText::parse(params.to_owned()).unwrap();
            standard_headers(method, Some(&params)).unwrap().name.map(Cow::into_owned)
        };
        assert_eq!(name("tools/call", r#"{"name":"ec\u0068o"}"#).as_deref(), Some("echo"));
        assert_eq!(name("prompts/get", r#"{"name":"é"}"#).as_deref(), Some("=?base64?w6k=?="));
        assert_eq!(name("resources/read", r#"{"uri":"file:///a","name":"b"}"#).as_deref(), Some("file:///a"));
        assert_eq!(name("tasks/cancel", r#"{"taskId":"t1"}"#).as_deref(), Some("t1"));
        assert_eq!(name("tools/list", r#"{"name":"x"}"#), None);
        assert_eq!(standard_headers("ping", None).unwrap(), StandardHeaders { method: "ping", name: None });
    }

    #[test]
    fn matching_headers_pass_in_any_letter_case_and_encoding() {
        assert_eq!(verify(CALL, &[VERSION, ("mcp-method", "tools/call"), ("MCP-NAME", "echo")]), Ok(()));
        assert_eq!(
            verify(CALL, &[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?ZWNobw==?=")]),
            Ok(())
        );
    }

    #[test]
    fn each_standard_header_is_compared_with_the_body() {
        let error = |headers: &[(&str, &str)]| verify(CALL, headers).unwrap_err().to_string();
        let method = ("Mcp-Method", "tools/call");
        assert_eq!(
            error(&[method, ("Mcp-Name", "echo")]),
            "header mismatch: MCP-Protocol-Version is missing"
        );
        assert_eq!(error(&[VERSION, ("Mcp-Name", "echo")]), "header mismatch: Mcp-Method is missing");
        assert_eq!(error(&[VERSION, method]), "header mismatch: Mcp-Name is missing");
        assert_eq!(
            error(&[VERSION, method, ("Mcp-Name", "rm")]),
            "header mismatch: Mcp-Name says `rm`, the body says `echo`"
        );
        assert_eq!(
            error(&[VERSION, ("Mcp-Method", "tools/list"), ("Mcp-Name", "echo")]),
            "header mismatch: Mcp-Method says `tools/list`, the body says `tools/call`"
        );
        assert_eq!(
            error(&[("MCP-Protocol-Version", "2025-11-25"), method, ("Mcp-Name", "echo")]),
            "header mismatch: MCP-Protocol-Version says `2025-11-25`, the body says `2026-07-28`"
        );
        assert_eq!(
            error(&[VERSION, method, ("Mcp-Name", "echo"), ("mcp-name", "rm")]),
            "header mismatch: Mcp-Name appears more than once"
        );
    }

    #[test]
    fn a_body_with_a_second_name_in_another_case_is_refused() {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"rm"}}"#;
        let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo")];
        assert!(matches!(verify(body, &headers), Err(HeaderMismatch::Body(NotAnObject::LookAlikeKey(..)))));
    }

    #[test]
    fn only_param_headers_are_returned_to_be_passed_on() {
        let headers = [
            ("Mcp-Param-X", &b"1"[..]),
            ("mcp-name", b"n"),
            ("authorization", b"secret"),
            ("mcp-param-y", b"2"),
        ];
        let mirrored = MirroredHeaders::collect(headers);
        assert_eq!(mirrored.params().collect::<Vec<_>>(), [headers[0], headers[3]]);
    }

    const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},
        "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;

    fn verify(body: &str, headers: &[(&str, &str)]) -> Result<(), HeaderMismatch> {
        let Ok(Message::Request(request)) = Message::parse(body.as_bytes()) else {
            panic!("no request: {body}")
        };
        MirroredHeaders::collect(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
            .verify(&request, None)
    }
}
