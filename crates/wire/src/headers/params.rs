//! `x-mcp-header`: annotations in a tool's schema that require an argument to be mirrored in an HTTP header. Reads and
//! validates the annotations (a tool with invalid ones must not be offered over HTTP), and writes or checks the headers
//! of one call. Does not validate arguments against the schema.

use std::borrow::Cow;

use gripfast_core::json_text::Json;

use super::{HeaderMismatch, PARAM_PREFIX, encode_value, named};
use crate::patch::{NotAnObject, Object};
use crate::raw;

/// The headers for the annotated arguments of one tool. Most tools have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    annotated: Vec<Annotated>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Annotated {
    /// The whole header name.
    header: String,
    /// The keys that lead to the argument.
    path: Vec<String>,
}

/// Reason why a tool's annotations are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAnnotation {
    /// The annotation is not a string, or cannot be part of a header name.
    #[error("the `x-mcp-header` of `{argument}` is not an HTTP token")]
    NotAToken {
        /// The annotated argument, as a dotted path.
        argument: String,
    },
    /// Two arguments would share a header.
    #[error("two arguments have the header `{header}`")]
    Repeated {
        /// The header they share.
        header: String,
    },
    /// The argument is not a string, integer or boolean.
    #[error("`{argument}` has an `x-mcp-header` and is not a string, an integer or a boolean")]
    NotPrimitive {
        /// The annotated argument, as a dotted path.
        argument: String,
    },
    /// The annotation is not on a plain property.
    #[error("an `x-mcp-header` is not on a property that can be reached through `properties` alone")]
    Unreachable,
    /// The schema has repeated keys or is nested too deeply to be searched.
    #[error("the schema cannot be searched for `x-mcp-header`")]
    Unreadable,
}

const ANNOTATION: &str = "x-mcp-header";
/// Deeper schemas are refused. Searching costs depth times size, and the schema comes from an untrusted server.
const MAX_DEPTH: usize = 64;

impl ParamHeaders {
    /// Reads the annotations of a tool's `inputSchema`.
    pub fn from_input_schema(schema: &Json) -> Result<Self, InvalidAnnotation> {
        let text = schema.get().as_bytes();
        // Nearly all schemas have no annotation. A key may be written with escapes, hence the second search.
        let mentioned = |what: &[u8]| memchr::memmem::find(text, what).is_some();
        let mut found = Self::default();
        if mentioned(ANNOTATION.as_bytes()) || mentioned(b"\\u") {
            found.search(schema, Place::Property(Vec::new()), 0)?;
        }
        Ok(found)
    }

    /// Returns whether the tool has no annotated arguments.
    pub fn is_empty(&self) -> bool {
        self.annotated.is_empty()
    }

    /// The encoded headers of a call with these `arguments`. Absent and `null` arguments have none.
    pub fn for_arguments(&self, arguments: Option<&Json>) -> Result<Vec<(String, String)>, NotAnObject> {
        let mut headers = Vec::new();
        for Annotated { header, path } in &self.annotated {
            if let Some(value) = value_at(arguments, path)?
                && let Some(text) = mirrored_text(value)
            {
                headers.push((header.clone(), encode_value(&text).into_owned()));
            }
        }
        Ok(headers)
    }

    /// Compares the arguments with the decoded headers of a call.
    pub(super) fn verify<'h>(
        &self,
        arguments: Option<&Json>,
        said: impl Fn(&str) -> Result<Option<Cow<'h, str>>, HeaderMismatch>,
    ) -> Result<(), HeaderMismatch> {
        for Annotated { header, path } in &self.annotated {
            match (said(header)?, value_at(arguments, path)?) {
                (None, None) => {}
                (None, Some(_)) => return Err(HeaderMismatch::Missing(named(header))),
                (Some(_), None) => return Err(HeaderMismatch::Unbacked(named(header))),
                (Some(said), Some(value)) if is_same_value(&said, value) => {}
                (Some(said), Some(value)) => {
                    return Err(HeaderMismatch::Differs {
                        header: named(header),
                        said: said.into_owned(),
                        body: mirrored_text(value).unwrap_or_else(|| value.get().into()).into_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    fn search(&mut self, value: &Json, place: Place, depth: usize) -> Result<(), InvalidAnnotation> {
        if depth > MAX_DEPTH {
            return Err(InvalidAnnotation::Unreadable);
        }
        if let Some(items) = raw::items(value) {
            return items.into_iter().try_for_each(|item| self.search(item, Place::Elsewhere, depth + 1));
        }
        if !raw::is_object(value) {
            return Ok(());
        }
        let schema = Object::parse(value).map_err(|_| InvalidAnnotation::Unreadable)?;
        for (keyword, value) in schema.iter() {
            match keyword {
                ANNOTATION => self.annotate(&place, value, &schema)?,
                // The keys of these are names, so one called `x-mcp-header` annotates nothing.
                "properties" => self.search_named(value, |name| place.property(name), depth)?,
                "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                    self.search_named(value, |_| Place::Elsewhere, depth)?;
                }
                // Data, not schema.
                "const" | "default" | "enum" | "example" | "examples" => {}
                _ => self.search(value, Place::Elsewhere, depth + 1)?,
            }
        }
        Ok(())
    }

    fn search_named(
        &mut self,
        schemas: &Json,
        place: impl Fn(&str) -> Place,
        depth: usize,
    ) -> Result<(), InvalidAnnotation> {
        if !raw::is_object(schemas) {
            return Ok(());
        }
        let schemas = Object::parse(schemas).map_err(|_| InvalidAnnotation::Unreadable)?;
        schemas.iter().try_for_each(|(name, schema)| self.search(schema, place(name), depth + 1))
    }

    fn annotate(
        &mut self,
        place: &Place,
        annotation: &Json,
        schema: &Object<'_>,
    ) -> Result<(), InvalidAnnotation> {
        let path = match place {
            Place::Property(path) if !path.is_empty() => path,
            Place::Property(_) | Place::Elsewhere => return Err(InvalidAnnotation::Unreachable),
        };
        let argument = || path.join(".");
        let name = raw::text(annotation).filter(|name| is_token(name));
        let name = name.ok_or_else(|| InvalidAnnotation::NotAToken { argument: argument() })?;
        if !schema.get("type").is_some_and(is_primitive_type) {
            return Err(InvalidAnnotation::NotPrimitive { argument: argument() });
        }
        let header = format!("{PARAM_PREFIX}{name}");
        if self.annotated.iter().any(|earlier| earlier.header.eq_ignore_ascii_case(&header)) {
            return Err(InvalidAnnotation::Repeated { header });
        }
        self.annotated.push(Annotated { header, path: path.clone() });
        Ok(())
    }
}

/// Position of the search in a schema.
enum Place {
    /// On a chain of `properties` from the root; the root itself is the empty chain.
    Property(Vec<String>),
    /// A position that does not always describe the same argument.
    Elsewhere,
}

impl Place {
    fn property(&self, name: &str) -> Self {
        match self {
            Self::Property(path) => Self::Property(path.iter().cloned().chain([name.to_owned()]).collect()),
            Self::Elsewhere => Self::Elsewhere,
        }
    }
}

/// `tchar` of RFC 9110.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Returns whether a type is primitive, or a list of primitive types and `null`. A null argument has no header.
fn is_primitive_type(schema_type: &Json) -> bool {
    let primitive = |one: &Json| matches!(raw::text(one).as_deref(), Some("string" | "integer" | "boolean"));
    match raw::items(schema_type) {
        None => primitive(schema_type),
        Some(all) => {
            let mut named =
                all.into_iter().filter(|one| raw::text(one).as_deref() != Some("null")).peekable();
            named.peek().is_some() && named.all(primitive)
        }
    }
}

fn value_at<'a>(arguments: Option<&'a Json>, path: &[String]) -> Result<Option<&'a Json>, NotAnObject> {
    let mut at = arguments;
    for key in path {
        match at {
            Some(inside) if raw::is_object(inside) => at = Object::parse(inside)?.get(key),
            Some(_) | None => return Ok(None),
        }
    }
    Ok(at.filter(|value| !raw::is_null(value)))
}

/// The text of a header; `None` for arrays and objects, which violate the schema and which the server will refuse.
fn mirrored_text(value: &Json) -> Option<Cow<'_, str>> {
    let spelling = value.get();
    match spelling.as_bytes().first() {
        Some(b'"') => raw::text(value),
        Some(b'[' | b'{') | None => None,
        Some(b't' | b'f' | b'n') => Some(spelling.into()),
        Some(_) => Some(raw::integer(spelling).map_or(spelling.into(), |number| number.to_string().into())),
    }
}

/// Compares text as text and numbers as numbers: `42.0` in the body equals `42` in the header.
fn is_same_value(said: &str, value: &Json) -> bool {
    let spelling = value.get();
    if spelling.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return said == spelling
            || matches!((raw::integer(said), raw::integer(spelling)), (Some(said), Some(body)) if said == body);
    }
    mirrored_text(value).is_some_and(|body| body == said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Message;
    use crate::headers::MirroredHeaders;
    use gripfast_core::json_text::JsonText;

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "shard":{"type":["integer","null"],"x-mcp-header":"Shard"},
        "opts":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}}},
        "x-mcp-header":{"type":"string"},
        "query":{"type":"string","default":{"x-mcp-header":1}}}}"#;

    #[test]
    fn annotated_arguments_become_headers_and_absent_or_null_ones_do_not() {
        let tool = read(SCHEMA).unwrap();
        let headers = |arguments: &str| tool.for_arguments(Some(&json(arguments))).unwrap();
        assert_eq!(
            headers(r#"{"query":"q","region":"zürich","shard":42.0,"opts":{"dry":true}}"#),
            [
                ("Mcp-Param-Region".to_owned(), "=?base64?esO8cmljaA==?=".to_owned()),
                ("Mcp-Param-Shard".to_owned(), "42".to_owned()),
                ("Mcp-Param-Dry-Run".to_owned(), "true".to_owned()),
            ]
        );
        assert_eq!(headers(r#"{"shard":null,"opts":7,"region":[1]}"#), []);
        assert_eq!(tool.for_arguments(None).unwrap(), []);
        assert!(tool.for_arguments(Some(&json(r#"{"region":"a","region":"b"}"#))).is_err());
    }

    #[test]
    fn a_schema_without_annotations_has_no_headers() {
        assert!(read(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#).unwrap().is_empty());
        assert!(read("true").unwrap().is_empty());
    }

    #[test]
    fn an_annotation_anywhere_but_on_a_plain_property_is_invalid() {
        let one = r#"{"type":"string","x-mcp-header":"A"}"#;
        for schema in [
            one.to_owned(),
            format!(r#"{{"properties":{{"a":{{"type":"array","items":{one}}}}}}}"#),
            format!(r#"{{"oneOf":[{{"properties":{{"a":{one}}}}}]}}"#),
            format!(r#"{{"$defs":{{"a":{one}}},"properties":{{"a":{{"$ref":"\u0023/$defs/a"}}}}}}"#),
            format!(r#"{{"if":{{"properties":{{"a":{one}}}}}}}"#),
            format!(r#"{{"additionalProperties":{one}}}"#),
            r#"{"items":{"type":"string","x\u002dmcp-header":"A"}}"#.to_owned(),
        ] {
            assert_eq!(read(&schema), Err(InvalidAnnotation::Unreachable), "{schema}");
        }
    }

    #[test]
    fn an_annotation_must_be_a_token_on_a_primitive_argument() {
        let with = |annotation: &str, kind: &str| {
            read(&format!(
                r#"{{"properties":{{"o":{{"properties":{{"a":{{{kind}"x-mcp-header":{annotation}}}}}}}}}}}"#
            ))
        };
        for bad in [r#""""#, r#""a b""#, r#""a\r\nEvil: 1""#, r#""ä""#, r#""a:b""#, "7", "null"] {
            let argument = "o.a".to_owned();
            assert_eq!(
                with(bad, r#""type":"string","#),
                Err(InvalidAnnotation::NotAToken { argument }),
                "{bad}"
            );
        }
        for bad in [
            r#""type":"number","#,
            r#""type":"object","#,
            r#""type":["string","array"],"#,
            r#""type":["null"],"#,
            "",
        ] {
            let argument = "o.a".to_owned();
            assert_eq!(with(r#""A""#, bad), Err(InvalidAnnotation::NotPrimitive { argument }), "{bad}");
        }
    }

    #[test]
    fn two_arguments_may_not_share_a_header_in_any_letter_case() {
        let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"Tenant"},"b":{"type":"string","x-mcp-header":"tenant"}}}"#;
        assert_eq!(read(schema), Err(InvalidAnnotation::Repeated { header: "Mcp-Param-tenant".into() }));
    }

    #[test]
    fn a_very_deep_schema_is_refused() {
        let deep =
            format!("{}{}{}", r#"{"not":"#.repeat(50_000), r#"{"x-mcp-header":1}"#, "}".repeat(50_000));
        assert_eq!(read(&deep), Err(InvalidAnnotation::Unreadable));
    }

    #[test]
    fn a_call_is_checked_against_the_tools_annotations() {
        let body = |arguments: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
            )
        };
        let check = |arguments: &str, param: &[(&str, &str)]| {
            let body = body(arguments);
            let Ok(Message::Request(request)) = Message::parse(body.as_bytes()) else { panic!("no request") };
            let standard =
                [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
            let headers = standard.iter().chain(param).map(|(name, value)| (*name, value.as_bytes()));
            MirroredHeaders::collect(headers)
                .verify(&request, Some(&read(SCHEMA).unwrap()))
                .map_err(|e| e.to_string())
        };
        assert_eq!(
            check(r#"{"region":"eu"}"#, &[("mcp-param-region", "eu"), ("mcp-param-other", "x")]),
            Ok(())
        );
        assert_eq!(check(r#"{"shard":42.0}"#, &[("mcp-param-shard", "42")]), Ok(()));
        assert_eq!(check(r#"{"shard":null}"#, &[]), Ok(()));
        assert_eq!(
            check(r#"{"region":"eu"}"#, &[]),
            Err("header mismatch: Mcp-Param-Region is missing".to_owned())
        );
        assert_eq!(
            check(r#"{"region":"eu"}"#, &[("mcp-param-region", "us")]),
            Err("header mismatch: Mcp-Param-Region says `us`, the body says `eu`".to_owned())
        );
        assert_eq!(
            check("{}", &[("mcp-param-region", "us")]),
            Err("header mismatch: Mcp-Param-Region has a value, but the body does not".to_owned())
        );
        assert_eq!(
            check(r#"{"region":"42"}"#, &[("mcp-param-region", "42.0")]),
            Err("header mismatch: Mcp-Param-Region says `42.0`, the body says `42`".to_owned()),
            "text is not compared as a number"
        );
    }

    fn read(schema: &str) -> Result<ParamHeaders, InvalidAnnotation> {
        ParamHeaders::from_input_schema(&json(schema))
    }

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }
}
