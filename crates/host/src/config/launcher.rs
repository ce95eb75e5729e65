//! Programs that usually start MCP servers, and the hint for a `command` that is not found.

use super::suggest::nearest;

/// Launchers, each with the product that installs it.
const LAUNCHERS: &[(&str, &str)] = &[
    ("npx", "Node.js"),
    ("npm", "Node.js"),
    ("node", "Node.js"),
    ("pnpm", "pnpm"),
    ("uvx", "uv"),
    ("uv", "uv"),
    ("python", "Python"),
    ("python3", "Python"),
    ("pipx", "pipx"),
    ("docker", "Docker"),
    ("podman", "Podman"),
    ("bunx", "Bun"),
    ("bun", "Bun"),
    ("deno", "Deno"),
    ("dotnet", ".NET"),
    ("java", "Java"),
    ("go", "Go"),
    ("cargo", "Rust"),
];

/// The hint for a `command` that is not found: it is a whole command line, a known launcher that is not installed, or a
/// misspelled one. The arguments are not repeated: they may hold a secret.
#[must_use]
pub fn command_hint(command: &str) -> Option<String> {
    if let Some((program, _)) = command_line(command) {
        return Some(format!(
            "`command` names one program: write `command = \"{program}\"` and the other words into `args`, one string for each"
        ));
    }
    if let Some((launcher, brings)) = LAUNCHERS.iter().find(|(launcher, _)| *launcher == command) {
        return Some(match brings.eq_ignore_ascii_case(launcher) {
            true => format!("install {brings}, or write the full path as `command`"),
            false => {
                format!("install {brings}, which brings `{launcher}`, or write the full path as `command`")
            }
        });
    }
    let near = nearest(command, LAUNCHERS.iter().map(|(launcher, _)| *launcher))?;
    Some(format!("did you mean `{near}`?"))
}

/// The program and the arguments of a whole command line in `command`: a launcher, or a word without a path, and more
/// words. Other paths may hold spaces, and quotes are for a shell.
#[must_use]
pub fn command_line(command: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = command.split_whitespace();
    let program = words.next()?;
    let arguments: Vec<&str> = words.collect();
    let is_name = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let is_plain = !command.contains(['"', '\'', '\\', '`', '|', ';', '&', '>', '<']);
    (is_name && is_plain && !arguments.is_empty()).then_some((program, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_not_found_gets_the_hint_that_fits() {
        let hint = |command: &str| command_hint(command).unwrap_or_default();
        assert_eq!(hint("npxx"), "did you mean `npx`?");
        assert_eq!(hint("uxv"), "did you mean `uvx`?");
        assert_eq!(hint("uvx"), "install uv, which brings `uvx`, or write the full path as `command`");
        assert_eq!(hint("docker"), "install Docker, or write the full path as `command`");
        let line = hint("npx -y some-server --api-key hunter22");
        assert!(line.starts_with("`command` names one program: write `command = \"npx\"`"), "{line}");
        assert!(!line.contains("hunter22"), "{line}");
        for other in ["my-own-server", "/opt/my server/bin", "C:\\Program Files\\x.exe", "", "sh"] {
            assert_eq!(command_hint(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_line_is_a_name_and_more_words() {
        assert_eq!(command_line("npx  -y @a/b@1.2"), Some(("npx", vec!["-y", "@a/b@1.2"])));
        for other in ["npx", " npx ", "/opt/a b", "sh -c 'a b'", "a | b", ""] {
            assert_eq!(command_line(other), None, "{other}");
        }
    }
}
