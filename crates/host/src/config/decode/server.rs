//! Decodes one server's table.

use super::FileDialect;
use super::cache::cache;
use super::fields::{Field, Fields, Problems};
use super::oauth::{is_misplaced, oauth};
use super::policy::policy_of_server;
use super::restore::restore;
use super::supervision::supervision;
use super::target::target;
use crate::config::ServerEntry;
use crate::config::diagnostic::Diagnostic;
use crate::config::keys::{SERVER, choices};
use crate::config::node::{KeyNode, Node};
use crate::config::spec::{Isolation, PinMode, ProtocolChoice, ReplayRules, ServerSpec, Target};
use gripfast_core::supervise::spec::SupervisionSpec;

/// Decodes one server. Its errors are kept in the entry; its warnings are added to those of the file.
pub(super) fn entry(
    key: &KeyNode,
    node: &Node,
    root: &str,
    origin: FileDialect,
    warnings: &mut Vec<Diagnostic>,
) -> ServerEntry {
    let mut problems = Problems::default();
    let path = format!("{root}.{}", key.name);
    if let Err(message) = check_name(&key.name) {
        let error = Diagnostic::error(&path, key.at, message);
        problems.error(match suggested_name(&key.name) {
            Some(name) => error.with_hint(format!("use `{name}`")),
            None => error,
        });
    }
    let field = Field { path, key_at: key.at, node, dialect: origin };
    let spec =
        Fields::open(&field, &SERVER, &mut problems).and_then(|fields| spec(fields, key, &mut problems));
    warnings.append(&mut problems.warnings);
    let spec = match spec {
        Some(spec) if problems.errors.is_empty() => Ok(spec),
        _ => Err(problems.errors),
    };
    ServerEntry { name: key.name.clone(), position: key.at, spec }
}

fn spec(mut fields: Fields<'_>, key: &KeyNode, problems: &mut Problems) -> Option<ServerSpec> {
    let target = target(&mut fields, key, problems);
    let mut protocol = ProtocolChoice::Auto;
    fields.choice("protocol", choices::PROTOCOLS, &mut protocol, problems);
    let oauth = oauth(&mut fields, problems);
    let disabled = disabled(&mut fields, problems);
    let supervision = supervision(&mut fields, target.as_ref(), problems);
    let prefix = prefix(&mut fields, problems);
    let mut isolation = Isolation::Auto;
    fields.choice("isolation", choices::ISOLATIONS, &mut isolation, problems);
    let mut max_instances = ServerSpec::DEFAULT_MAX_INSTANCES;
    fields.whole_number("max_instances", &mut max_instances, problems);
    let policy = policy_of_server(&mut fields, problems);
    let mut pins = PinMode::Enforce;
    fields.choice("pins", choices::PIN_MODES, &mut pins, problems);
    let mut max_tools = ServerSpec::DEFAULT_MAX_TOOLS;
    fields.whole_number("max_tools", &mut max_tools, problems);
    let cache = cache(&mut fields, problems);
    let mut replay = ReplayRules::default();
    if let Some(mut table) = fields.table("replay", problems) {
        table.words("safe", &mut replay.safe, problems);
        table.words("never", &mut replay.never, problems);
        table.finish(problems);
    }
    let restore = restore(&mut fields, problems);
    let max_message = max_message(&mut fields, problems);
    fields.finish(problems);
    let target = target?;
    if is_misplaced(&oauth, &target) {
        let message = "`oauth` needs a server with a `url`; this one has a `command`";
        problems.error(Diagnostic::error(format!("servers.{}.oauth", key.name), key.at, message));
    }
    if let Target::Url { .. } = target {
        reject_child_only_keys(&supervision, key, problems);
    }
    Some(ServerSpec {
        target,
        protocol,
        oauth,
        disabled,
        supervision,
        prefix,
        isolation,
        max_instances,
        policy,
        pins,
        max_tools,
        cache,
        replay,
        restore,
        max_message,
    })
}

/// Reports keys that are allowed only for a process that gripfast starts itself.
fn reject_child_only_keys(supervision: &SupervisionSpec, key: &KeyNode, problems: &mut Problems) {
    let keys = [("spare", supervision.spare), ("recycle.max_rss", supervision.recycle.max_rss.is_some())];
    for (name, _) in keys.into_iter().filter(|(_, is_set)| *is_set) {
        let message = format!("`{name}` needs a server with a `command`; this one has a `url`");
        problems.error(Diagnostic::error(format!("servers.{}.{name}", key.name), key.at, message));
    }
}

/// Checks a server name. Clients see `server__tool`, in letters that every client accepts; a server name with `__` in
/// it, or with `_` at its end, would make that name ambiguous.
fn check_name(name: &str) -> Result<(), String> {
    let strange = |letter: &char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    if name.is_empty() {
        return Err("expected a name, found an empty string".to_owned());
    }
    if let Some(letter) = name.chars().find(strange) {
        let letter = if letter == ' ' { "a space".to_owned() } else { format!("`{letter}`") };
        return Err(format!("{letter} is not allowed in a name; allowed: letters, digits, `_` and `-`"));
    }
    if name.len() > MAX_NAME_LENGTH {
        return Err(format!(
            "a name of {} characters is too long; allowed: 1 to {MAX_NAME_LENGTH}",
            name.len()
        ));
    }
    if name.contains("__") {
        return Err("`__` is not allowed in a name, because it separates server and tool".to_owned());
    }
    if name.ends_with('_') {
        return Err("a name cannot end in `_`, because `__` separates server and tool".to_owned());
    }
    Ok(())
}

const MAX_NAME_LENGTH: usize = 64;

/// The nearest valid name, if there is one.
fn suggested_name(name: &str) -> Option<String> {
    let mut usable = String::new();
    for letter in name.chars().take(MAX_NAME_LENGTH) {
        match letter {
            '_' if !usable.ends_with('_') => usable.push('_'),
            '_' => {}
            letter if letter.is_ascii_alphanumeric() => usable.push(letter),
            _ if !usable.ends_with('-') => usable.push('-'),
            _ => {}
        }
    }
    let usable = usable.trim_matches(['-', '_']);
    (!usable.is_empty()).then(|| usable.to_owned())
}

fn disabled(fields: &mut Fields<'_>, problems: &mut Problems) -> bool {
    let disabled = fields.take("disabled");
    let enabled = fields.take("enabled");
    if let (Some(_), Some(enabled)) = (&disabled, &enabled) {
        let message = "`enabled` and `disabled` are both set";
        problems
            .error(Diagnostic::error(&enabled.path, enabled.key_at, message).with_hint("keep one of them"));
    }
    let disabled = disabled.and_then(|field| field.flag(problems));
    let enabled = enabled.and_then(|field| field.flag(problems));
    disabled.unwrap_or(false) || !enabled.unwrap_or(true)
}

fn prefix(fields: &mut Fields<'_>, problems: &mut Problems) -> Option<String> {
    let field = fields.take("prefix")?;
    let prefix = field.text(problems)?;
    if !prefix.is_empty()
        && let Err(message) = check_name(prefix)
    {
        problems.error(field.error(message).with_hint("`prefix = \"\"` leaves the names unchanged"));
        return None;
    }
    Some(prefix.to_owned())
}

fn max_message(fields: &mut Fields<'_>, problems: &mut Problems) -> usize {
    let size = fields.optional_size("max_message", problems);
    size.map_or(ServerSpec::DEFAULT_MAX_MESSAGE, |size| usize::try_from(size).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_suggested_name_is_valid(name in ".{0,80}") {
            if let Some(usable) = suggested_name(&name) {
                prop_assert_eq!(check_name(&usable), Ok(()), "{}", usable);
            }
        }
    }
}
