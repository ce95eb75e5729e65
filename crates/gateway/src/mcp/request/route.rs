//! Routing of methods that the gateway does not know: finds the one server that the parameters refer to, and translates
//! names to that server's own.

use gripfast::wire::patch::{NotAnObject, Object, Patch};
use gripfast::{Destination, Json, JsonText, MergedCatalog};

/// Server, and the parameters with its own names.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) server: String,
    pub(crate) params: JsonText,
}

/// Finds the one server that `params` refer to. `None` if there is none, or more than one. If the parameters name
/// nothing, `by_method` decides: the server with the extension of the method, or the only server.
///
/// # Errors
/// A member occurs in two spellings, so that the server might read another one than the gateway.
pub(crate) fn route(
    catalog: &MergedCatalog,
    by_method: Option<&str>,
    params: Option<&Json>,
) -> Result<Option<Route>, NotAnObject> {
    let empty = JsonText::parse("{}".to_owned()).expect("an empty object is JSON");
    let params = params.unwrap_or(&empty);
    let object = Object::parse(params)?;
    let mut found = Candidates::default();
    let mut patch = Patch::new();
    if let Some(key) = found.named(catalog, &object)? {
        patch = patch.set_text("name", &key);
    }
    if let Some(key) = found.addressed(catalog, &object, resource_or_directory)? {
        patch = patch.set_text("uri", &key);
    }
    if let Some(reference) = object.get_strict("ref")?.and_then(|inside| Object::parse(inside).ok()) {
        let mut inside = Patch::new();
        if let Some(key) = found.named(catalog, &reference)? {
            inside = inside.set_text("name", &key);
        }
        if let Some(key) = found.addressed(catalog, &reference, MergedCatalog::template_or_resource)? {
            inside = inside.set_text("uri", &key);
        }
        if !inside.is_empty() {
            patch = patch.set_owned("ref", inside.apply(&reference));
        }
    }
    let server = match (found.servers.as_slice(), by_method) {
        ([only], _) => only.clone(),
        ([], Some(server)) => server.to_owned(),
        (_, _) => return Ok(None),
    };
    let params = if patch.is_empty() { params.to_owned() } else { patch.apply(&object) };
    Ok(Some(Route { server, params }))
}

fn resource_or_directory<'m>(catalog: &'m MergedCatalog, uri: &'m str) -> Option<Destination<'m>> {
    catalog.resource(uri).or_else(|| catalog.directory(uri))
}

/// Servers that the parameters refer to.
#[derive(Default)]
struct Candidates {
    servers: Vec<String>,
}

impl Candidates {
    /// Looks up the tool or prompt in `name`; returns the server's own name for it.
    fn named(&mut self, catalog: &MergedCatalog, object: &Object<'_>) -> Result<Option<String>, NotAnObject> {
        if object.get_strict("name")?.is_none() {
            return Ok(None);
        }
        let Some(name) = object.text("name") else { return Ok(None) };
        let tool = catalog.tool(&name).map(|(to, _)| self.note(to));
        let prompt = catalog.prompt(&name).map(|(to, _)| self.note(to));
        Ok(tool.or(prompt))
    }

    /// Looks up the resource in `uri`; returns the server's own URI for it.
    fn addressed(
        &mut self,
        catalog: &MergedCatalog,
        object: &Object<'_>,
        find: for<'m> fn(&'m MergedCatalog, &'m str) -> Option<Destination<'m>>,
    ) -> Result<Option<String>, NotAnObject> {
        if object.get_strict("uri")?.is_none() {
            return Ok(None);
        }
        let Some(uri) = object.text("uri") else { return Ok(None) };
        Ok(find(catalog, &uri).map(|to| self.note(to)))
    }

    fn note(&mut self, to: Destination<'_>) -> String {
        if !self.servers.iter().any(|known| known == to.server) {
            self.servers.push(to.server.to_owned());
        }
        to.key.to_owned()
    }
}
