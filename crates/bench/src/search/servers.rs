//! The table of public MCP servers, `crates/bench/search/servers.tsv`.

use gripfast_measure::{MeasureError, Result};

const TABLE: &str = include_str!("../../search/servers.tsv");

/// Registry that a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registry {
    Npm,
    Pypi,
}

/// A public server and the way to start it.
#[derive(Debug, Clone)]
pub(crate) struct PublicServer {
    pub(crate) name: &'static str,
    pub(crate) registry: Registry,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Another requirement of its installation.
    pub(crate) other: Option<&'static str>,
    pub(crate) program: &'static str,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
}

/// All servers of the table.
pub(crate) fn all() -> Result<Vec<PublicServer>> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| parse(line).ok_or_else(|| MeasureError::new("servers.tsv", &line))).collect()
}

fn parse(line: &'static str) -> Option<PublicServer> {
    let columns: Vec<&'static str> = line.split('\t').collect();
    let [name, registry, package, version, other, program, arguments, environment] = columns[..] else {
        return None;
    };
    let registry = match registry {
        "npm" => Registry::Npm,
        "pypi" => Registry::Pypi,
        _ => return None,
    };
    let words = |column: &'static str| column.split(' ').filter(|word| *word != "-");
    let environment = words(environment).map(|entry| entry.split_once('=')).collect::<Option<_>>()?;
    let other = (other != "-").then_some(other);
    let arguments = words(arguments).collect();
    Some(PublicServer { name, registry, package, version, other, program, arguments, environment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_enough_servers_with_fixed_versions_and_different_names() {
        let servers = all().unwrap();
        let names: std::collections::BTreeSet<&str> = servers.iter().map(|server| server.name).collect();
        assert!(servers.len() >= crate::MIN_SERVERS, "{}", servers.len());
        assert_eq!(names.len(), servers.len());
        assert!(servers.iter().all(|server| server.version.starts_with(|char: char| char.is_ascii_digit())));
    }
}
