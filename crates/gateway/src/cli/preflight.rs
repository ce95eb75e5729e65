//! What a config refers to outside itself, looked at as it is right now: variables, files, directories,
//! executables. Nothing is started; what is missing would keep that one server from starting.

use gripfast::config::{ExpandError, Lookup, Reference, ServerSpec, Target, Template, TlsSpec, command_hint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Something outside the config that a server needs and that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    /// The key that refers to it, within the server's table.
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// Everything that one server would miss.
pub(crate) fn missing(spec: &ServerSpec, lookup: &dyn Lookup) -> Vec<Missing> {
    let mut all: Vec<Missing> =
        keyed(&spec.target).iter().flat_map(|(key, template)| without_value(key, template, lookup)).collect();
    match &spec.target {
        Target::Stdio { command, env, cwd, .. } => {
            let dir = cwd.as_ref().and_then(|cwd| filled_in(cwd, lookup)).map(PathBuf::from);
            match dir.as_deref() {
                Some(dir) if !dir.is_dir() => all.push(no_directory(dir)),
                _ => all.extend(no_executable(command, env, dir.as_deref(), lookup)),
            }
        }
        Target::Url { .. } => {}
    }
    all
}

/// The variables of this environment that a server does not get and looks as if it needed: what is amiss, and what to
/// write.
pub(crate) fn dropped(name: &str, target: &Target, lookup: &dyn Lookup) -> Option<(String, String)> {
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

/// The templates of a target with the keys they stand under.
fn keyed(target: &Target) -> Vec<(String, &Template)> {
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

/// The references of one template that have no value. All unset variables are named, not only the first:
/// setting them one by one is tedious.
fn without_value(key: &str, template: &Template, lookup: &dyn Lookup) -> Vec<Missing> {
    let unset = template.references().filter_map(|reference| match reference {
        Reference::Variable { name, default: None } if lookup.variable(name).is_none() => {
            Some(ExpandError::Unset { name: name.clone() })
        }
        Reference::Variable { .. } | Reference::File { .. } | Reference::Command { .. } => None,
    });
    let mut errors: Vec<ExpandError> = unset.collect();
    if errors.is_empty() && !runs_something(template) {
        errors.extend(template.expand(lookup).err());
    }
    errors.into_iter().map(|error| valueless(key, &error)).collect()
}

/// Whether its value comes from a program. Nothing is started here, so nobody knows what it would say.
fn runs_something(template: &Template) -> bool {
    template.references().any(|reference| matches!(reference, Reference::Command { .. }))
}

fn valueless(key: &str, error: &ExpandError) -> Missing {
    let hint = match error {
        ExpandError::Unset { name } => {
            format!("set it for the gripfast process, or write a default: `${{env:{name}:-…}}`")
        }
        ExpandError::NotText { .. } => "give it a value in UTF-8".to_owned(),
        ExpandError::CommandFailed { .. } => "the program is run whenever the server is connected".to_owned(),
        ExpandError::LacksResources { .. } => "it is read again when there is room".to_owned(),
        ExpandError::FileUnreadable { .. } => "the file is read whenever the server is connected".to_owned(),
    };
    Missing { key: key.to_owned(), message: error.to_string(), hint }
}

fn no_directory(dir: &Path) -> Missing {
    Missing {
        key: "cwd".to_owned(),
        message: format!("`{}` is not a directory", dir.display()),
        hint: "create it, or correct `cwd`".to_owned(),
    }
}

fn no_executable(
    command: &Template,
    env: &[(String, Template)],
    dir: Option<&Path>,
    lookup: &dyn Lookup,
) -> Option<Missing> {
    let program = filled_in(command, lookup)?;
    // The child's own PATH counts, which the config may set.
    let own_path = env.iter().find(|(name, _)| name == "PATH");
    let path = match own_path {
        Some((_, template)) => filled_in(template, lookup).map(OsString::from),
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
    let hint = match own_path.and_then(|_| place_of(command, lookup)) {
        Some(place) => {
            format!("its `env` sets a PATH without it: write `command = \"{}\"`", place.display())
        }
        None => command_hint(&program).unwrap_or_else(|| "install it, or correct `command`".to_owned()),
    };
    (!found).then(|| Missing { key: "command".to_owned(), message, hint })
}

/// Where a command is, as this environment finds it.
pub(crate) fn place_of(command: &Template, lookup: &dyn Lookup) -> Option<PathBuf> {
    let program = filled_in(command, lookup)?;
    if Path::new(&program).components().count() > 1 {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    let path = lookup.variable("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(&program)).find(|place| is_executable(place))
}

/// The value of a template, unless a program would have to be run for it.
pub(crate) fn filled_in(template: &Template, lookup: &dyn Lookup) -> Option<String> {
    if runs_something(template) {
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
    // `npx` is `npx.cmd`, and the system tries these endings by itself.
    ["", "exe", "cmd", "bat", "com"].iter().any(|ending| match *ending {
        "" => path.is_file(),
        ending => path.with_added_extension(ending).is_file(),
    })
}
