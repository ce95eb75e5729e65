//! Protocol extensions of all servers, merged into one set.
//!
//! An extension that several servers declare is declared once, with the settings of all of them. The gateway does not
//! interpret the settings.

use gripfast::wire::patch::Object;
use gripfast::wire::{Era, apps, tasks};
use gripfast::{Json, ServerExtensions};
use serde_json::{Map, Value, json};

/// Maximum depth of the merge; deeper values are taken from the first server.
const MAX_DEPTH: usize = 16;

/// Extensions that a client of this era can use; `None` if there are none. `has_apps`: a tool refers to an app, which
/// implies the extension even if its server is not connected to declare it.
pub(crate) fn union(era: Era, servers: &[ServerExtensions], has_apps: bool) -> Option<Value> {
    let mut merged = Map::new();
    for ServerExtensions { era: spoken, extensions, .. } in servers {
        let Ok(extensions) = Object::parse(extensions) else { continue };
        // The legacy era has tasks in another form.
        let crosses = |id: &str| id != tasks::EXTENSION || (era == Era::Modern && *spoken == Era::Modern);
        for (id, settings) in extensions.iter().filter(|(id, _)| crosses(id)) {
            let settings = value(settings);
            match merged.get_mut(id) {
                Some(known) => merge(known, settings, 0),
                None => drop(merged.insert(id.to_owned(), settings)),
            }
        }
    }
    if has_apps {
        merged.entry(apps::EXTENSION).or_insert_with(apps_capability);
    }
    (!merged.is_empty()).then_some(merged.into())
}

/// Tests if a modern client declares the tasks extension.
pub(crate) fn has_tasks(capabilities: Option<&Json>) -> bool {
    let declared = capabilities.and_then(|declared| Object::parse(declared).ok()?.object("extensions"));
    declared.is_some_and(|extensions| extensions.has(tasks::EXTENSION))
}

/// Settings of the apps extension.
pub(crate) fn apps_capability() -> Value {
    json!({ "mimeTypes": [apps::MIME_TYPE] })
}

/// The only server with the extension to which a method belongs: `skills/list` belongs to an extension named
/// `…/skills`.
pub(crate) fn server_of<'s>(servers: &'s [ServerExtensions], method: &str) -> Option<&'s str> {
    let (first, _) = method.split_once('/')?;
    let has = |extended: &&ServerExtensions| {
        let ids = Object::parse(&extended.extensions).ok();
        let mut ids = ids.iter().flat_map(Object::iter).map(|(id, _)| id);
        ids.any(|id| id.rsplit_once('/').is_some_and(|(_, last)| last == first))
    };
    let mut owners = servers.iter().filter(has).map(|extended| &*extended.server);
    owners.next().filter(|_| owners.next().is_none())
}

fn value(raw: &Json) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Adds members of objects and elements of arrays that are missing. Of two different scalars the first one stays.
fn merge(known: &mut Value, more: Value, depth: usize) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) if depth < MAX_DEPTH => {
            for (key, value) in more {
                match known.get_mut(&key) {
                    Some(inside) => merge(inside, value, depth + 1),
                    None => drop(known.insert(key, value)),
                }
            }
        }
        (Value::Array(known), Value::Array(more)) => {
            for value in more {
                if !known.contains(&value) {
                    known.push(value);
                }
            }
        }
        (_, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::JsonText;

    fn server(name: &str, era: Era, extensions: Value) -> ServerExtensions {
        let extensions = JsonText::parse(extensions.to_string()).unwrap();
        ServerExtensions { server: name.to_owned(), era, extensions }
    }

    #[test]
    fn extensions_of_several_servers_are_merged_into_one_declaration() {
        let servers = [
            server("a", Era::Legacy, json!({ "x/ui": { "mimeTypes": ["a"], "n": 1 } })),
            server(
                "b",
                Era::Modern,
                json!({ "x/ui": { "mimeTypes": ["a", "b"], "n": 2, "more": {} }, "x/y": {} }),
            ),
            server("c", Era::Modern, json!(7)),
        ];
        let merged = json!({ "x/ui": { "mimeTypes": ["a", "b"], "n": 1, "more": {} }, "x/y": {} });
        assert_eq!(union(Era::Legacy, &servers, false), Some(merged));
        assert_eq!(union(Era::Legacy, &[], false), None);
        assert_eq!(union(Era::Legacy, &[], true), Some(json!({ apps::EXTENSION: apps_capability() })));
    }

    #[test]
    fn tasks_are_declared_between_modern_peers_only() {
        let with = |era| [server("a", era, json!({ tasks::EXTENSION: {} }))];
        assert_eq!(union(Era::Modern, &with(Era::Modern), false), Some(json!({ tasks::EXTENSION: {} })));
        assert_eq!(union(Era::Legacy, &with(Era::Modern), false), None);
        assert_eq!(union(Era::Modern, &with(Era::Legacy), false), None);
    }

    #[test]
    fn a_method_of_an_extension_belongs_to_the_only_server_that_has_it() {
        let one = [
            server("a", Era::Modern, json!({ "example.com/skills": {} })),
            server("b", Era::Modern, json!({ "example.com/other": {} })),
        ];
        assert_eq!(server_of(&one, "skills/list"), Some("a"));
        assert_eq!(server_of(&one, "example.com/list"), None);
        assert_eq!(server_of(&one, "skills"), None);
        let two = [one[0].clone(), server("c", Era::Legacy, json!({ "other.example/skills": {} }))];
        assert_eq!(server_of(&two, "skills/list"), None);
    }
}
