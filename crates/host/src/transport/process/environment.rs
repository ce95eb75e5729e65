//! The environment a child gets: what every program needs, and what the config names. Nothing else of
//! ours: a token of one server is none of another server's business.

use std::collections::BTreeMap;

/// Variables that every child gets if we have them.
const ALWAYS: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "SHELL", "TMPDIR"];
/// And those whose names begin like this.
const ALWAYS_PREFIXES: &[&str] = &["LC_", "XDG_"];
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

    /// What passes from `ours` to a child: the usual, and the names that the config asks for.
    pub fn filtered(ours: impl IntoIterator<Item = (String, String)>, inherit: &[String]) -> Self {
        let passes = |name: &str| Self::is_usual(name) || inherit.iter().any(|wanted| wanted == name);
        Self(ours.into_iter().filter(|(name, _)| passes(name)).collect())
    }

    /// Sets what the config sets.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
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
            ["PATH", "HOME", "LC_ALL", "XDG_CONFIG_HOME", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "WANTED"]
                .map(|name| (name.to_owned(), format!("value of {name}")));
        let mut theirs = Environment::filtered(ours, &["WANTED".to_owned()]);
        theirs.set("TOKEN", "secret");
        let names: Vec<&str> = theirs.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH", "TOKEN", "WANTED", "XDG_CONFIG_HOME"]);
    }
}
