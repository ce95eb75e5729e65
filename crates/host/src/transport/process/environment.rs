//! Environment of a child process: variables that every program needs, and those that the config names. Nothing else is
//! inherited, so that no server sees the token of another.

use std::collections::BTreeMap;

/// Variables that every child inherits.
const ALWAYS: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "SHELL", "TMPDIR"];
/// Prefixes of variables that every child inherits.
const ALWAYS_PREFIXES: &[&str] = &["LC_", "XDG_"];
/// Variables that name certificate authorities.
const AUTHORITIES: &[&str] =
    &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// Variables that name proxies, each in upper and in lower case.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
/// Variables without which no program starts on Windows.
const WINDOWS: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Handling of the variables that name proxies and certificate authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkVariables {
    /// The child inherits them.
    Pass,
    /// The child inherits only those that the config names.
    Drop,
}

/// Filtered environment of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns whether every child inherits this variable.
    pub(crate) fn is_always_passed(name: &str) -> bool {
        ALWAYS.contains(&name)
            || ALWAYS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || (cfg!(windows) && WINDOWS.contains(&name.to_ascii_uppercase().as_str()))
    }

    /// Returns whether the variable names a proxy or certificate authorities.
    pub(crate) fn is_network(name: &str) -> bool {
        AUTHORITIES.contains(&name) || Self::is_proxy(name)
    }

    /// Returns whether a child inherits this variable of ours.
    pub(crate) fn is_passed(name: &str, inherit: &[String], network: NetworkVariables) -> bool {
        Self::is_always_passed(name)
            || (network == NetworkVariables::Pass && Self::is_network(name))
            || inherit.iter().any(|wanted| wanted == name)
    }

    /// Returns whether the variable names a proxy.
    pub fn is_proxy(name: &str) -> bool {
        PROXIES.iter().any(|proxy| name == *proxy || name == proxy.to_ascii_lowercase())
    }

    /// Filters our environment for a child: the usual variables, those of the network, and those that the config names.
    pub fn filtered(
        ours: impl IntoIterator<Item = (String, String)>,
        inherit: &[String],
        network: NetworkVariables,
    ) -> Self {
        let passes = |name: &str| Self::is_passed(name, inherit, network);
        Self(ours.into_iter().filter(|(name, _)| passes(name)).collect())
    }

    /// Sets a variable of the config.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Returns the values of the proxy variables.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(name, _)| Self::is_proxy(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g06_a_child_inherits_only_usual_and_configured_variables() {
        let ours =
            ["PATH", "HOME", "LC_ALL", "XDG_CONFIG_HOME", "AWS_SECRET_ACCESS_KEY", "HTTPSX_PROXY", "WANTED"]
                .map(|name| (name.to_owned(), format!("value of {name}")));
        let mut theirs = Environment::filtered(ours, &["WANTED".to_owned()], NetworkVariables::Pass);
        theirs.set("TOKEN", "secret");
        let names: Vec<&str> = theirs.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH", "TOKEN", "WANTED", "XDG_CONFIG_HOME"]);
    }

    #[test]
    fn g06_a_child_inherits_network_variables_unless_the_config_says_no() {
        let network = [
            "ALL_PROXY",
            "CURL_CA_BUNDLE",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "NODE_EXTRA_CA_CERTS",
            "NO_PROXY",
            "REQUESTS_CA_BUNDLE",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
            "all_proxy",
            "http_proxy",
            "https_proxy",
            "no_proxy",
        ];
        let ours = || network.map(|name| (name.to_owned(), "x".to_owned()));
        let names = |inherit: &[String], variables| {
            let theirs = Environment::filtered(ours(), inherit, variables);
            theirs.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], NetworkVariables::Pass), network);
        assert_eq!(names(&[], NetworkVariables::Drop), Vec::<String>::new());
        let wanted = ["NO_PROXY".to_owned()];
        assert_eq!(
            names(&wanted, NetworkVariables::Drop),
            wanted,
            "a configured variable is inherited all the same"
        );
    }
}
