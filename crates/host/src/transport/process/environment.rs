//! The environment a child gets: what every program needs, and what the config names. Nothing else of
//! ours: a token of one server is none of another server's business.

use std::collections::BTreeMap;

/// Variables that every child gets if we have them.
const ALWAYS: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "SHELL", "TMPDIR"];
/// And those whose names begin like this.
const ALWAYS_PREFIXES: &[&str] = &["LC_", "XDG_"];
/// Variables that say how to reach the network from here: certificate authorities and proxies.
const AUTHORITIES: &[&str] =
    &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// Proxies, each in upper and in lower case.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
/// Without these nothing starts on Windows.
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

/// What becomes of the variables that say how to reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkVariables {
    /// The child gets them.
    Pass,
    /// The child gets only those that the config names.
    Drop,
}

/// A filtered environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Whether every child gets the variable of this name.
    pub(crate) fn is_usual(name: &str) -> bool {
        ALWAYS.contains(&name)
            || ALWAYS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || (cfg!(windows) && WINDOWS.contains(&name.to_ascii_uppercase().as_str()))
    }

    /// Whether the variable says how to reach the network.
    pub(crate) fn is_network(name: &str) -> bool {
        AUTHORITIES.contains(&name) || Self::names_proxy(name)
    }

    /// Whether a child gets this variable of ours.
    pub(crate) fn passes(name: &str, inherit: &[String], network: NetworkVariables) -> bool {
        Self::is_usual(name)
            || (network == NetworkVariables::Pass && Self::is_network(name))
            || inherit.iter().any(|wanted| wanted == name)
    }

    /// Whether the variable names a proxy.
    pub fn names_proxy(name: &str) -> bool {
        PROXIES.iter().any(|proxy| name == *proxy || name == proxy.to_ascii_lowercase())
    }

    /// What passes from `ours` to a child: the usual, the way to the network, and the names that the config asks for.
    pub fn filtered(
        ours: impl IntoIterator<Item = (String, String)>,
        inherit: &[String],
        network: NetworkVariables,
    ) -> Self {
        let passes = |name: &str| Self::passes(name, inherit, network);
        Self(ours.into_iter().filter(|(name, _)| passes(name)).collect())
    }

    /// Sets what the config sets.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// The values of the proxy variables.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(name, _)| Self::names_proxy(name)).map(|(_, value)| value.as_str())
    }

    /// What this variable is, if it is set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The variables, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g06_a_child_gets_the_usual_variables_and_those_the_config_names_and_no_others() {
        let ours =
            ["PATH", "HOME", "LC_ALL", "XDG_CONFIG_HOME", "AWS_SECRET_ACCESS_KEY", "HTTPSX_PROXY", "WANTED"]
                .map(|name| (name.to_owned(), format!("value of {name}")));
        let mut theirs = Environment::filtered(ours, &["WANTED".to_owned()], NetworkVariables::Pass);
        theirs.set("TOKEN", "secret");
        let names: Vec<&str> = theirs.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH", "TOKEN", "WANTED", "XDG_CONFIG_HOME"]);
    }

    #[test]
    fn g06_a_child_gets_certificate_authorities_and_proxies_unless_the_config_says_no() {
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
            "what the config names passes all the same"
        );
    }
}
