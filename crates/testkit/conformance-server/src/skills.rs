//! Skills extension: one skill with two files, one of them in a subdirectory.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::inputs::hex;
use crate::rpc::{INVALID_PARAMS, Request, RpcError};

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/skills";

const NAME: &str = "tidy-desk";
const DESCRIPTION: &str = "How to tidy a desk";
const DIRECTORY: &str = "skill://tidy-desk";
const SUBDIRECTORY: &str = "skill://tidy-desk/references";
const MANIFEST: &str = "skill://tidy-desk/SKILL.md";
const REFERENCE: &str = "skill://tidy-desk/references/drawers.md";

const FILES: [(&str, &str); 2] = [
    (MANIFEST, "---\nname: tidy-desk\ndescription: How to tidy a desk\n---\n\nBegin with the papers.\n"),
    (REFERENCE, "The upper drawer is for pens.\n"),
];

pub(crate) fn answer(request: &Request) -> Result<Value, RpcError> {
    match request.method.as_str() {
        "skills/list" => Ok(json!({ "skills": [entry()] })),
        "skills/get" if request.text("uri")? == MANIFEST => Ok(json!({ "skill": entry() })),
        "resources/directory/read" => match request.text("uri")? {
            DIRECTORY => Ok(json!({ "resources": [resource(MANIFEST), subdirectory()] })),
            SUBDIRECTORY => Ok(json!({ "resources": [resource(REFERENCE)] })),
            uri => Err(unknown(uri)),
        },
        _ => Err(unknown(request.text("uri")?)),
    }
}

fn unknown(uri: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, "there is no such skill or directory").with(json!({ "uri": uri }))
}

fn entry() -> Value {
    let files = FILES.map(|(uri, text)| {
        let digest = format!("sha256:{}", hex(&Sha256::digest(text)));
        json!({ "uri": uri, "digest": digest, "size": text.len() })
    });
    let frontmatter = json!({ "name": NAME, "description": DESCRIPTION });
    json!({ "uri": MANIFEST, "frontmatter": frontmatter, "resources": files })
}

/// Files of the skill as ordinary resources.
pub(crate) fn resources() -> [Value; 2] {
    [resource(MANIFEST), resource(REFERENCE)]
}

fn resource(uri: &str) -> Value {
    let (name, description) = match uri {
        MANIFEST => (NAME, DESCRIPTION),
        _ => ("drawers.md", "Which drawer is for what"),
    };
    json!({ "uri": uri, "name": name, "description": description, "mimeType": "text/markdown" })
}

fn subdirectory() -> Value {
    json!({ "uri": SUBDIRECTORY, "name": "references", "mimeType": "inode/directory" })
}

pub(crate) fn content(uri: &str) -> Option<Value> {
    let (_, text) = FILES.iter().find(|(known, _)| *known == uri)?;
    Some(json!({ "uri": uri, "mimeType": "text/markdown", "text": text }))
}
