//! Variables of gripfast's own environment that a server probably needs but does not get. `check`, `import` and
//! `doctor` name them, because the error of a server without such a variable does not.

use super::sections::Target;
use crate::transport::{Environment, NetworkVariables};

/// Prefixes of the variables that configure a program.
const SETTINGS: &[(&str, &[&str])] = &[
    ("npx", &["NPM_CONFIG_", "npm_config_", "NODE_OPTIONS", "NVM_"]),
    ("node", &["NODE_"]),
    ("bunx", &["BUN_", "NPM_CONFIG_"]),
    ("uvx", &["UV_", "PIP_"]),
    ("uv", &["UV_", "PIP_"]),
    ("pipx", &["PIPX_", "PIP_"]),
    ("python", &["PYTHON", "VIRTUAL_ENV"]),
    ("python3", &["PYTHON", "VIRTUAL_ENV"]),
    ("docker", &["DOCKER_"]),
    ("java", &["JAVA_", "JDK_"]),
    ("go", &["GO"]),
];

/// Last words in the names of variables that hold credentials of a server or the address of its service.
const CREDENTIALS: &[&str] = &[
    "TOKEN",
    "KEY",
    "SECRET",
    "PASSWORD",
    "PAT",
    "URL",
    "HOST",
    "ENDPOINT",
    "PROFILE",
    "REGION",
    "CREDENTIALS",
];

/// The variables among `set` that the server `name` probably needs but does not get: those that configure its program,
/// and credentials that are named after the server or its package.
#[must_use]
pub fn dropped_variables(name: &str, target: &Target, set: impl IntoIterator<Item = String>) -> Vec<String> {
    let Target::Stdio { command, args, env, inherit_env, network_env, cwd: _ } = target else {
        return Vec::new();
    };
    let file = command.source().rsplit(['/', '\\']).next().unwrap_or_default();
    let settings = SETTINGS.iter().find(|(program, _)| *program == file).map_or(&[][..], |(_, names)| names);
    let sources = std::iter::once(name).chain(args.iter().map(super::Template::source));
    let subjects: Vec<String> = sources.flat_map(subjects).collect();
    let is_needed = |variable: &str| {
        settings.iter().any(|start| variable.starts_with(start)) || is_credential_of(variable, &subjects)
    };
    let network = if *network_env { NetworkVariables::Pass } else { NetworkVariables::Drop };
    let passes = |variable: &str| {
        Environment::is_passed(variable, inherit_env, network) || env.iter().any(|(own, _)| own == variable)
    };
    // A variable that the config refers to is passed under another name, or left out on purpose.
    let is_referred_to =
        |variable: &str| {
            target.templates().iter().flat_map(|template| template.references()).any(
                |reference| matches!(reference, super::Reference::Variable { name, .. } if name == variable),
            )
        };
    let mut dropped: Vec<String> = set
        .into_iter()
        .filter(|variable| is_needed(variable) && !passes(variable) && !is_referred_to(variable))
        .collect();
    dropped.sort_unstable();
    dropped
}

/// The distinctive words of a server name or package: `GITHUB` for `@modelcontextprotocol/server-github`.
fn subjects(source: &str) -> Vec<String> {
    /// Words that do not distinguish servers.
    const COMMON: &[&str] = &[
        "MCP",
        "SERVER",
        "MODELCONTEXTPROTOCOL",
        "MODEL",
        "CONTEXT",
        "PROTOCOL",
        "LATEST",
        "STDIO",
        "API",
        "NPM",
    ];
    let words = source.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.map(str::to_ascii_uppercase);
    words.filter(|word| word.len() >= 3 && !COMMON.contains(&word.as_str())).collect()
}

fn is_credential_of(variable: &str, subjects: &[String]) -> bool {
    let words: Vec<&str> = variable.split('_').collect();
    let ends = words.last().is_some_and(|last| CREDENTIALS.contains(last));
    ends && words.iter().any(|word| subjects.iter().any(|subject| subject == word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn dropped(server: &str, set: &[&str]) -> Vec<String> {
        let config = Config::parse(server, "gripfast.toml".as_ref()).unwrap();
        let entry = &config.servers[0];
        let target = &entry.spec.as_ref().unwrap().target;
        dropped_variables(&entry.name, target, set.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn credentials_named_after_the_server_or_its_package_are_reported() {
        let set = ["GITHUB_TOKEN", "GITHUB_PERSONAL_ACCESS_TOKEN", "GITHUB_ACTIONS", "GITLAB_TOKEN", "PATH"];
        let server =
            "[servers.work]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-github\"]\n";
        assert_eq!(dropped(server, &set), ["GITHUB_PERSONAL_ACCESS_TOKEN", "GITHUB_TOKEN"]);
        let server = "[servers.gitlab]\ncommand = \"/opt/run\"\n";
        assert_eq!(dropped(server, &set), ["GITLAB_TOKEN"]);
    }

    #[test]
    fn settings_of_the_program_are_reported() {
        let set = ["UV_INDEX_URL", "NPM_CONFIG_REGISTRY", "SSL_CERT_FILE", "DOCKER_HOST"];
        assert_eq!(dropped("[servers.a]\ncommand = \"uvx\"\n", &set), ["UV_INDEX_URL"]);
        assert_eq!(dropped("[servers.a]\ncommand = \"npx\"\n", &set), ["NPM_CONFIG_REGISTRY"]);
        assert_eq!(dropped("[servers.a]\ncommand = \"/usr/bin/docker\"\n", &set), ["DOCKER_HOST"]);
    }

    #[test]
    fn variables_that_the_config_passes_or_mentions_are_not_reported() {
        let set = ["GITHUB_TOKEN"];
        for line in [
            "inherit_env = [\"GITHUB_TOKEN\"]",
            "env = { GITHUB_TOKEN = \"x\" }",
            "env = { TOKEN = \"${env:GITHUB_TOKEN}\" }",
        ] {
            let server = format!("[servers.github]\ncommand = \"x\"\n{line}\n");
            assert_eq!(dropped(&server, &set), [""; 0], "{line}");
        }
        assert_eq!(dropped("[servers.github]\nurl = \"https://h.example\"\n", &set), [""; 0]);
    }
}
