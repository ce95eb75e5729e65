//! Where a request goes whose method nobody here knows: to the one server that its parameters can mean, under that
//! server's own names. What it does there is that server's business.

use gripfast::wire::patch::{NotAnObject, Object, Patch};
use gripfast::{Destination, Menu, RawValue};

/// The server that is meant, and the parameters as it knows them.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) server: String,
    pub(super) params: Box<RawValue>,
}

/// Finds the one server that `params` can mean. `None` if it could be more than one, or none. What they do not say,
/// `by_method` may know: the server that has the extension of the method, or the only one there is.
///
/// # Errors
/// The parameters name something in two ways, of which another reader may take the other one.
pub(super) fn route(
    menu: &Menu,
    by_method: Option<&str>,
    params: Option<&RawValue>,
) -> Result<Option<Route>, NotAnObject> {
    let empty = RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
    let params = params.unwrap_or(&empty);
    let object = Object::parse(params)?;
    let mut found = Found::default();
    let mut patch = Patch::new();
    if let Some(key) = found.named(menu, &object)? {
        patch = patch.set_text("name", &key);
    }
    if let Some(key) = found.addressed(menu, &object, resource_or_directory)? {
        patch = patch.set_text("uri", &key);
    }
    if let Some(reference) = object.get_deciding("ref")?.and_then(|inside| Object::parse(inside).ok()) {
        let mut inside = Patch::new();
        if let Some(key) = found.named(menu, &reference)? {
            inside = inside.set_text("name", &key);
        }
        if let Some(key) = found.addressed(menu, &reference, Menu::template_or_resource)? {
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

fn resource_or_directory<'m>(menu: &'m Menu, uri: &'m str) -> Option<Destination<'m>> {
    menu.resource(uri).or_else(|| menu.directory(uri))
}

/// The servers that were found to be meant.
#[derive(Default)]
struct Found {
    servers: Vec<String>,
}

impl Found {
    /// A tool or a prompt that `name` names; answers with its server's own name for it.
    fn named(&mut self, menu: &Menu, object: &Object<'_>) -> Result<Option<String>, NotAnObject> {
        if object.get_deciding("name")?.is_none() {
            return Ok(None);
        }
        let Some(name) = object.text("name") else { return Ok(None) };
        let tool = menu.tool(&name).map(|(to, _)| self.note(to));
        let prompt = menu.prompt(&name).map(|(to, _)| self.note(to));
        Ok(tool.or(prompt))
    }

    /// A resource that `uri` names; answers with its server's own URI for it.
    fn addressed(
        &mut self,
        menu: &Menu,
        object: &Object<'_>,
        find: for<'m> fn(&'m Menu, &'m str) -> Option<Destination<'m>>,
    ) -> Result<Option<String>, NotAnObject> {
        if object.get_deciding("uri")?.is_none() {
            return Ok(None);
        }
        let Some(uri) = object.text("uri") else { return Ok(None) };
        Ok(find(menu, &uri).map(|to| self.note(to)))
    }

    fn note(&mut self, to: Destination<'_>) -> String {
        if !self.servers.iter().any(|known| known == to.server) {
            self.servers.push(to.server.to_owned());
        }
        to.key.to_owned()
    }
}
