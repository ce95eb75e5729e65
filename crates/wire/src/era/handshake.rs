//! Handshakes: `initialize` in the legacy era, `server/discover` in the modern one. Reads the fields that a host
//! decides on; the rest stays raw. Does not negotiate.

use std::borrow::Cow;

use gripfast_core::json_text::{Json, JsonText};

use super::{ProtocolVersion, meta};
use crate::patch::{NotAnObject, Object, Patch};
use crate::raw;
use crate::results::Freshness;

/// The parameters of a legacy `initialize`.
pub fn initialize_params(version: &ProtocolVersion, capabilities: &Json, client_info: &Json) -> JsonText {
    Patch::new()
        .set_text("protocolVersion", version.as_str())
        .set("capabilities", capabilities)
        .set("clientInfo", client_info)
        .to_object()
}

/// The parameters of a received legacy `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeParams<'a> {
    /// Version that the client requests.
    pub version: ProtocolVersion,
    /// Capabilities of the client.
    pub capabilities: Option<&'a Json>,
    /// Name and version that the client claims.
    pub client_info: Option<&'a Json>,
}

impl<'a> InitializeParams<'a> {
    /// Reads the parameters of `initialize`; a missing version reads as the oldest.
    pub fn read(params: &'a Json) -> Result<Self, NotAnObject> {
        let object = Object::parse(params)?;
        Ok(Self {
            version: version_in(&object),
            capabilities: object.get("capabilities"),
            client_info: object.get("clientInfo"),
        })
    }
}

/// Capabilities of a server: the whole object, and the flags that a host decides on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities<'a> {
    /// The object as the server sent it; `None` if it sent none.
    pub raw: Option<&'a Json>,
    /// The server has tools.
    pub tools: bool,
    /// The server notifies of changes to its tools.
    pub tools_list_changed: bool,
    /// The server has resources.
    pub resources: bool,
    /// The server accepts subscriptions to resources.
    pub resources_subscribe: bool,
    /// The server notifies of changes to its list of resources.
    pub resources_list_changed: bool,
    /// The server has prompts.
    pub prompts: bool,
    /// The server notifies of changes to its prompts.
    pub prompts_list_changed: bool,
    /// The server sends log messages.
    pub logging: bool,
    /// The server completes arguments.
    pub completions: bool,
}

impl<'a> Capabilities<'a> {
    /// Reads a `capabilities` object. A server has a capability if its member is an object; some servers write `null`
    /// or `false` for those that they lack.
    pub fn read(capabilities: Option<&'a Json>) -> Self {
        let Some(object) = capabilities.and_then(|raw| Object::parse(raw).ok()) else {
            return Self { raw: capabilities, ..Self::default() };
        };
        let has = |name| object.get(name).is_some_and(raw::is_object);
        let flag = |name, flag| object.object(name).is_some_and(|inside| inside.flag(flag));
        Self {
            raw: capabilities,
            tools: has("tools"),
            tools_list_changed: flag("tools", "listChanged"),
            resources: has("resources"),
            resources_subscribe: flag("resources", "subscribe"),
            resources_list_changed: flag("resources", "listChanged"),
            prompts: has("prompts"),
            prompts_list_changed: flag("prompts", "listChanged"),
            logging: has("logging"),
            completions: has("completions"),
        }
    }
}

/// The result of a legacy `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeResult<'a> {
    /// Version that the server chose; the oldest if it sent none.
    pub version: ProtocolVersion,
    /// Capabilities of the server.
    pub capabilities: Capabilities<'a>,
    /// `serverInfo` as sent.
    pub server_info: Option<&'a Json>,
    /// `serverInfo.name`.
    pub server_name: Option<Cow<'a, str>>,
    /// `serverInfo.version`.
    pub server_version: Option<Cow<'a, str>>,
    /// Instructions of the server for its users.
    pub instructions: Option<Cow<'a, str>>,
}

impl<'a> InitializeResult<'a> {
    /// Reads a result of `initialize`.
    pub fn read(result: &'a Json) -> Result<Self, NotAnObject> {
        let object = Object::parse(result)?;
        let server_info = object.get("serverInfo");
        let info = object.object("serverInfo");
        Ok(Self {
            version: version_in(&object),
            capabilities: Capabilities::read(object.get("capabilities")),
            server_info,
            server_name: info.as_ref().and_then(|info| info.text("name")),
            server_version: info.as_ref().and_then(|info| info.text("version")),
            instructions: object.text("instructions"),
        })
    }
}

/// The result of a modern `server/discover`.
#[derive(Clone, Debug)]
pub struct DiscoverResult<'a> {
    /// Versions that the server supports, in its order.
    pub supported: Vec<ProtocolVersion>,
    /// Capabilities of the server.
    pub capabilities: Capabilities<'a>,
    /// `_meta["io.modelcontextprotocol/serverInfo"]` as sent.
    pub server_info: Option<&'a Json>,
    /// Name in `server_info`.
    pub server_name: Option<Cow<'a, str>>,
    /// Version in `server_info`.
    pub server_version: Option<Cow<'a, str>>,
    /// Instructions of the server for its users.
    pub instructions: Option<Cow<'a, str>>,
    /// Cache hints of the result.
    pub freshness: Freshness,
}

impl<'a> DiscoverResult<'a> {
    /// Reads a result of `server/discover`; `None` for any other result, as sent by servers that answer every method
    /// with some object.
    pub fn read(result: &'a Json) -> Option<Self> {
        let object = Object::parse(result).ok()?;
        let supported = raw::items(object.get("supportedVersions")?)?;
        let meta = object.object("_meta");
        let info = meta.as_ref().and_then(|meta| meta.object(meta::SERVER_INFO));
        Some(Self {
            supported: supported
                .into_iter()
                .filter_map(raw::text)
                .map(|text| ProtocolVersion::new(&text))
                .collect(),
            capabilities: Capabilities::read(object.get("capabilities")),
            server_info: meta.as_ref().and_then(|meta| meta.get(meta::SERVER_INFO)),
            server_name: info.as_ref().and_then(|info| info.text("name")),
            server_version: info.as_ref().and_then(|info| info.text("version")),
            instructions: object.text("instructions"),
            freshness: Freshness::read(&object),
        })
    }
}

fn version_in(object: &Object<'_>) -> ProtocolVersion {
    object.text("protocolVersion").map_or(ProtocolVersion::V2024_11_05, |text| ProtocolVersion::new(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initialize_result_is_read() {
        let result = json(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},
                "prompts":{},"logging":null,"tasks":{"list":{}}},"serverInfo":{"name":"every\u0074hing","version":"2","icon":1},
                "instructions":"be kind"}"#,
        );
        let read = InitializeResult::read(&result).unwrap();
        let can = read.capabilities;
        assert_eq!(read.version, ProtocolVersion::LATEST_LEGACY);
        assert!(
            can.tools && can.tools_list_changed && can.resources && can.resources_subscribe && can.prompts
        );
        assert!(!can.resources_list_changed && !can.prompts_list_changed && !can.logging && !can.completions);
        assert!(can.raw.unwrap().get().contains("tasks"));
        assert_eq!(read.server_name.as_deref(), Some("everything"));
        assert_eq!(read.server_info.unwrap().get(), r#"{"name":"every\u0074hing","version":"2","icon":1}"#);
        assert_eq!(read.instructions.as_deref(), Some("be kind"));
    }

    #[test]
    fn a_discover_result_is_recognised_by_its_versions() {
        let result = json(
            r#"{"supportedVersions":["2026-07-28","2027-01-01"],"capabilities":{"tools":{}},
                "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"1"}}}"#,
        );
        let read = DiscoverResult::read(&result).unwrap();
        assert_eq!(read.supported, [ProtocolVersion::MODERN, ProtocolVersion::new("2027-01-01")]);
        assert_eq!(read.server_name.as_deref(), Some("m"));
        for other in
            ["{}", "[]", r#"{"supportedVersions":"2026-07-28"}"#, r#"{"protocolVersion":"2025-11-25"}"#]
        {
            assert!(DiscoverResult::read(&json(other)).is_none(), "{other}");
        }
    }

    #[test]
    fn initialize_params_read_back() {
        let params =
            initialize_params(&ProtocolVersion::LATEST_LEGACY, &json("{}"), &json(r#"{"name":"c"}"#));
        assert_eq!(
            params.get(),
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c"}}"#
        );
        assert_eq!(InitializeParams::read(&params).unwrap().version, ProtocolVersion::LATEST_LEGACY);
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }
}
