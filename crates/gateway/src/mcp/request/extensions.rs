//! Extensions of the protocol: what the servers have of them, as one set.
//!
//! An extension that several servers have is declared once, with all that any of them says about it. What it means
//! is between the server and the client.

use gripfast::wire::patch::Object;
use gripfast::wire::{Era, apps, tasks};
use gripfast::{Extended, RawValue};
use serde_json::{Map, Value, json};

/// Capabilities nest this deep at the most; what is deeper is taken from the first server that says it.
const DEEPEST: usize = 16;

/// The extensions that a client of this era can use; `None` if there are none. `has_apps`: a tool names an app, which says
/// as much for a server that is not up to declare it.
pub(super) fn union(era: Era, servers: &[Extended], has_apps: bool) -> Option<Value> {
    let mut all = Map::new();
    for Extended { era: spoken, extensions, .. } in servers {
        let Ok(extensions) = Object::parse(extensions) else { continue };
        // The legacy era has tasks in another form.
        let crosses = |id: &str| id != tasks::EXTENSION || (era == Era::Modern && *spoken == Era::Modern);
        for (id, settings) in extensions.iter().filter(|(id, _)| crosses(id)) {
            let settings = value(settings);
            match all.get_mut(id) {
                Some(known) => merge(known, settings, 0),
                None => drop(all.insert(id.to_owned(), settings)),
            }
        }
    }
    if has_apps {
        all.entry(apps::EXTENSION).or_insert_with(about_apps);
    }
    (!all.is_empty()).then_some(all.into())
}

/// Whether a modern client declares that it has tasks.
pub(super) fn has_tasks(capabilities: Option<&RawValue>) -> bool {
    let said = capabilities.and_then(|said| Object::parse(said).ok()?.object("extensions"));
    said.is_some_and(|extensions| extensions.has(tasks::EXTENSION))
}

/// What is said about apps by those who have them.
pub(super) fn about_apps() -> Value {
    json!({ "mimeTypes": [apps::MIME_TYPE] })
}

/// The only server that has the extension to which a method belongs: `skills/list` is a method of an extension that
/// is called `…/skills`.
pub(super) fn owner_of<'s>(servers: &'s [Extended], method: &str) -> Option<&'s str> {
    let (first, _) = method.split_once('/')?;
    let has = |extended: &&Extended| {
        let ids = Object::parse(&extended.extensions).ok();
        let mut ids = ids.iter().flat_map(Object::iter).map(|(id, _)| id);
        ids.any(|id| id.rsplit_once('/').is_some_and(|(_, last)| last == first))
    };
    let mut owners = servers.iter().filter(has).map(|extended| &*extended.server);
    owners.next().filter(|_| owners.next().is_none())
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Adds what is new: members of objects, elements of lists. Of two other values the first one stays.
fn merge(known: &mut Value, more: Value, depth: usize) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) if depth < DEEPEST => {
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

    fn server(name: &str, era: Era, extensions: Value) -> Extended {
        let extensions = RawValue::from_string(extensions.to_string()).unwrap();
        Extended { server: name.to_owned(), era, extensions }
    }

    #[test]
    fn what_several_servers_say_about_an_extension_is_said_once_and_whole() {
        let servers = [
            server("a", Era::Legacy, json!({ "x/ui": { "mimeTypes": ["a"], "n": 1 } })),
            server(
                "b",
                Era::Modern,
                json!({ "x/ui": { "mimeTypes": ["a", "b"], "n": 2, "more": {} }, "x/y": {} }),
            ),
            server("c", Era::Modern, json!(7)),
        ];
        let all = json!({ "x/ui": { "mimeTypes": ["a", "b"], "n": 1, "more": {} }, "x/y": {} });
        assert_eq!(union(Era::Legacy, &servers, false), Some(all));
        assert_eq!(union(Era::Legacy, &[], false), None);
        assert_eq!(union(Era::Legacy, &[], true), Some(json!({ apps::EXTENSION: about_apps() })));
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
        assert_eq!(owner_of(&one, "skills/list"), Some("a"));
        assert_eq!(owner_of(&one, "example.com/list"), None);
        assert_eq!(owner_of(&one, "skills"), None);
        let two = [one[0].clone(), server("c", Era::Legacy, json!({ "other.example/skills": {} }))];
        assert_eq!(owner_of(&two, "skills/list"), None);
    }
}
