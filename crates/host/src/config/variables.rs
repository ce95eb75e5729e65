//! The environment variables that a config refers to, so that two processes can compare their values.

use super::template::{Reference, Template};
use super::{Argument, Config, OAuthSpec, ServerSpec, Target};
use std::collections::BTreeSet;

impl Config {
    /// The names of all environment variables that the servers refer to or inherit.
    #[must_use]
    pub fn variables(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for spec in self.servers.iter().flat_map(|entry| &entry.spec) {
            for template in templates(spec) {
                names.extend(template.references().filter_map(|reference| match reference {
                    Reference::Variable { name, .. } => Some(name.clone()),
                    Reference::File { .. } | Reference::Command { .. } => None,
                }));
            }
            if let Target::Stdio { inherit_env, .. } = &spec.target {
                names.extend(inherit_env.iter().cloned());
            }
        }
        names
    }
}

fn templates(spec: &ServerSpec) -> Vec<&Template> {
    let mut all = spec.target.templates();
    if let Some(OAuthSpec { issuer, client_id, client_secret, private_key, .. }) = &spec.oauth {
        all.extend([issuer, client_id, client_secret, private_key].into_iter().flatten());
    }
    spec.restore.iter().for_each(|call| argument_templates(&call.arguments, &mut all));
    all
}

fn argument_templates<'a>(argument: &'a Argument, all: &mut Vec<&'a Template>) {
    match argument {
        Argument::Text(template) => all.push(template),
        Argument::List(list) => list.iter().for_each(|item| argument_templates(item, all)),
        Argument::Table(table) => table.iter().for_each(|(_, item)| argument_templates(item, all)),
        Argument::Plain(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_that_a_server_refers_to_or_inherits_is_named_once() {
        let text = "[servers.a]\ncommand = '${A_COMMAND}'\nargs = ['${env:A_ARG:-x}', '${file:/etc/hosts}']\n\
                    env = { TOKEN = '${env:A_TOKEN}' }\ninherit_env = ['A_INHERITED', 'A_ARG']\n\
                    restore = [{ tool = 'login', arguments = { list = ['${env:A_RESTORE}'] } }]\n\
                    [servers.b]\nurl = 'https://b.example/mcp'\nheaders = { X-Key = '${env:B_KEY}' }\n\
                    oauth = { client_id = '${env:B_CLIENT}' }\n";
        let config = Config::parse(text, "gripfast.toml".as_ref()).unwrap();
        let names: Vec<String> = config.variables().into_iter().collect();
        let expected = ["A_ARG", "A_COMMAND", "A_INHERITED", "A_RESTORE", "A_TOKEN", "B_CLIENT", "B_KEY"];
        assert_eq!(names, expected);
    }
}
