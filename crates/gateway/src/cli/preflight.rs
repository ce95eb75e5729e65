//! Checks what a server's config refers to in the present environment: variables, files, directories and executables.
//! Starts nothing. A missing requirement would keep that one server from starting.

use gripfast::config::{ExpandError, Lookup, Reference, ServerSpec, Target, Template, TlsSpec, command_hint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A requirement of a server outside the config that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingRequirement {
    /// The key that refers to it, within the server's table.
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// All missing requirements of one server.
pub(crate) fn missing(spec: &ServerSpec, lookup: &dyn Lookup) -> Vec<MissingRequirement> {
    let mut all: Vec<MissingRequirement> = templates(&spec.target)
        .iter()
        .flat_map(|(key, template)| unresolved(key, template, lookup))
        .collect();
    match &spec.target {
        Target::Stdio { command, env, cwd, .. } => {
            let dir = cwd.as_ref().and_then(|cwd| expand(cwd, lookup)).map(PathBuf::from);
            match dir.as_deref() {
                Some(dir) if !dir.is_dir() => all.push(missing_directory(dir)),
                _ => all.extend(missing_executable(command, env, dir.as_deref(), lookup)),
            }
        }
        Target::Url { .. } => {}
    }
    all
}

/// The variables of this environment that a server seems to need and does not get: a message and a hint.
pub(crate) fn dropped_variables(
    name: &str,
    target: &Target,
    lookup: &dyn Lookup,
) -> Option<(String, String)> {
    let names = gripfast::config::dropped_variables(name, target, lookup.variables());
    let (first, _) = names.split_first()?;
    let list = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let (verb, quoted) = if names.len() == 1 {
        ("is", format!("\"{first}\""))
    } else {
        ("are", names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", "))
    };
    let message = format!("server `{name}` may need {list}, which {verb} set here and not passed to it");
    Some((message, format!("`inherit_env = [{quoted}]` passes what it needs")))
}

/// The templates of a target with their keys.
fn templates(target: &Target) -> Vec<(String, &Template)> {
    match target {
        Target::Stdio { command, args, env, cwd, inherit_env: _, network_env: _ } => {
            let args = args.iter().enumerate().map(|(at, arg)| (format!("args[{at}]"), arg));
            let env = env.iter().map(|(name, value)| (format!("env.{name}"), value));
            let cwd = cwd.iter().map(|cwd| ("cwd".to_owned(), cwd));
            std::iter::once(("command".to_owned(), command)).chain(args).chain(env).chain(cwd).collect()
        }
        Target::Url { url, headers, tls, transport: _, redirects: _ } => {
            let TlsSpec { ca_file, client_cert, client_key, strict_modes: _ } = tls;
            let headers = headers.iter().map(|(name, value)| (format!("headers.{name}"), value));
            let tls = [("ca_file", ca_file), ("client_cert", client_cert), ("client_key", client_key)];
            let tls = tls.into_iter().filter_map(|(key, file)| Some((key.to_owned(), file.as_ref()?)));
            std::iter::once(("url".to_owned(), url)).chain(headers).chain(tls).collect()
        }
    }
}

/// The references of one template that have no value. Names all unset variables, so that the user can set them at once.
fn unresolved(key: &str, template: &Template, lookup: &dyn Lookup) -> Vec<MissingRequirement> {
    let unset = template.references().filter_map(|reference| match reference {
        Reference::Variable { name, default: None } if lookup.variable(name).is_none() => {
            Some(ExpandError::Unset { name: name.clone() })
        }
        Reference::Variable { .. } | Reference::File { .. } | Reference::Command { .. } => None,
    });
    let mut errors: Vec<ExpandError> = unset.collect();
    if errors.is_empty() && !runs_command(template) {
        errors.extend(template.expand(lookup).err());
    }
    errors.into_iter().map(|error| unresolved_reference(key, &error)).collect()
}

/// Returns true if the value comes from a program, and so is unknown here, where nothing is started.
fn runs_command(template: &Template) -> bool {
    template.references().any(|reference| matches!(reference, Reference::Command { .. }))
}

fn unresolved_reference(key: &str, error: &ExpandError) -> MissingRequirement {
    let hint = match error {
        ExpandError::Unset { name } => {
            format!("set it for the gripfast process, or write a default: `${{env:{name}:-…}}`")
        }
        ExpandError::NotText { .. } => "set it to valid UTF-8".to_owned(),
        ExpandError::CommandFailed { .. } => "the program is run whenever the server is connected".to_owned(),
        ExpandError::LacksResources { .. } => "it is read again when resources are available".to_owned(),
        ExpandError::FileUnreadable { .. } => "the file is read whenever the server is connected".to_owned(),
    };
    MissingRequirement { key: key.to_owned(), message: error.to_string(), hint }
}

fn missing_directory(dir: &Path) -> MissingRequirement {
    MissingRequirement {
        key: "cwd".to_owned(),
        message: format!("`{}` is not a directory", dir.display()),
        hint: "create it, or correct `cwd`".to_owned(),
    }
}

fn missing_executable(
    command: &Template,
    env: &[(String, Template)],
    dir: Option<&Path>,
    lookup: &dyn Lookup,
) -> Option<MissingRequirement> {
    let program = expand(command, lookup)?;
    // The PATH of the child process counts, which the config may set.
    let own_path = env.iter().find(|(name, _)| name == "PATH");
    let path = match own_path {
        Some((_, template)) => expand(template, lookup).map(OsString::from),
        None => lookup.variable("PATH"),
    };
    let relative = |path: &Path| dir.map_or_else(|| path.to_owned(), |dir| dir.join(path));
    let (found, message) = if Path::new(&program).components().count() > 1 {
        let found = is_executable(&relative(Path::new(&program)));
        (found, format!("`{program}` is not an executable file"))
    } else {
        let path = path.unwrap_or_default();
        let found = std::env::split_paths(&path).any(|place| is_executable(&relative(&place.join(&program))));
        (found, format!("command `{program}` is not on the PATH"))
    };
    let hint = match own_path.and_then(|_| find_executable(command, lookup)) {
        Some(place) => {
            format!("its `env` sets a PATH without it; set `command = \"{}\"`", place.display())
        }
        None => command_hint(&program).unwrap_or_else(|| "install it, or correct `command`".to_owned()),
    };
    (!found).then(|| MissingRequirement { key: "command".to_owned(), message, hint })
}

/// The path of a command in this environment.
pub(crate) fn find_executable(command: &Template, lookup: &dyn Lookup) -> Option<PathBuf> {
    let program = expand(command, lookup)?;
    if Path::new(&program).components().count() > 1 {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    let path = lookup.variable("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(&program)).find(|place| is_executable(place))
}

/// The value of a template, unless a program would have to be run for it.
pub(crate) fn expand(template: &Template, lookup: &dyn Lookup) -> Option<String> {
    if runs_command(template) {
        return None;
    }
    template.expand(lookup).ok().map(gripfast::config::Expanded::into_revealed)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    // `npx` is `npx.cmd`, and the system tries these extensions by itself.
    ["", "exe", "cmd", "bat", "com"].iter().any(|ending| match *ending {
        "" => path.is_file(),
        ending => path.with_added_extension(ending).is_file(),
    })
}
