//! One server's table: its name, how it is reached and what else may be said about it.

use super::Origin;
use super::cache::cache;
use super::fields::{Field, Fields, Problems};
use super::oauth::{misplaced, oauth};
use super::policy::policy_of_server;
use super::restore::restore;
use super::supervision::supervision;
use super::target::target;
use crate::config::ServerEntry;
use crate::config::diagnostic::Diagnostic;
use crate::config::keys::{SERVER, words};
use crate::config::node::{Key, Node};
use crate::config::spec::{Isolation, PinMode, ProtocolChoice, ReplayRules, ServerSpec, Target};
use gripfast_core::supervise::spec::SupervisionSpec;

/// Decodes one server. What is wrong inside it stays with it; warnings are the file's.
pub(super) fn entry(
    key: &Key,
    node: &Node,
    root: &str,
    origin: Origin,
    warnings: &mut Vec<Diagnostic>,
) -> ServerEntry {
    let mut problems = Problems::default();
    let path = format!("{root}.{}", key.name);
    if let Err(message) = check_name(&key.name) {
        let error = Diagnostic::error(&path, key.at, message);
        problems.error(match usable_name(&key.name) {
            Some(name) => error.with_hint(format!("`{name}` would do")),
            None => error,
        });
    }
    let field = Field { path, key_at: key.at, node, origin };
    let spec =
        Fields::open(&field, &SERVER, &mut problems).and_then(|fields| spec(fields, key, &mut problems));
    warnings.append(&mut problems.warnings);
    let spec = match spec {
        Some(spec) if problems.errors.is_empty() => Ok(spec),
        _ => Err(problems.errors),
    };
    ServerEntry { name: key.name.clone(), at: key.at, spec }
}

fn spec(mut fields: Fields<'_>, key: &Key, problems: &mut Problems) -> Option<ServerSpec> {
    let target = target(&mut fields, key, problems);
    let mut protocol = ProtocolChoice::Auto;
    fields.choice("protocol", words::PROTOCOLS, &mut protocol, problems);
    let oauth = oauth(&mut fields, problems);
    let disabled = disabled(&mut fields, problems);
    let supervision = supervision(&mut fields, target.as_ref(), problems);
    let prefix = prefix(&mut fields, problems);
    let mut isolation = Isolation::Auto;
    fields.choice("isolation", words::ISOLATIONS, &mut isolation, problems);
    let mut max_instances = ServerSpec::DEFAULT_MAX_INSTANCES;
    fields.whole_number("max_instances", &mut max_instances, problems);
    let policy = policy_of_server(&mut fields, problems);
    let mut pins = PinMode::Enforce;
    fields.choice("pins", words::PIN_MODES, &mut pins, problems);
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
    if misplaced(&oauth, &target) {
        let message = "`oauth` needs a server with a `url`; this one has a `command`";
        problems.error(Diagnostic::error(format!("servers.{}.oauth", key.name), key.at, message));
    }
    if let Target::Url { .. } = target {
        children_only(&supervision, key, problems);
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

/// Some wishes make sense only for a process that gripfast starts itself.
fn children_only(supervision: &SupervisionSpec, key: &Key, problems: &mut Problems) {
    let wishes = [("spare", supervision.spare), ("recycle.max_rss", supervision.recycle.max_rss.is_some())];
    for (wish, _) in wishes.into_iter().filter(|(_, wished)| *wished) {
        let message = format!("`{wish}` needs a server with a `command`; this one has a `url`");
        problems.error(Diagnostic::error(format!("servers.{}.{wish}", key.name), key.at, message));
    }
}

/// The names that clients see are `server__tool`, of letters that every client accepts. A name with `__` in
/// it, or with `_` at its end, would make two ways to read one of those.
fn check_name(name: &str) -> Result<(), String> {
    let strange = |letter: &char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    if name.is_empty() {
        return Err("expected a name, found an empty one".to_owned());
    }
    if let Some(letter) = name.chars().find(strange) {
        let letter = if letter == ' ' { "a space".to_owned() } else { format!("`{letter}`") };
        return Err(format!("{letter} cannot be in a name; letters, digits, `_` and `-` can"));
    }
    if name.len() > LONGEST_NAME {
        return Err(format!("a name of {} characters is too long; allowed: 1 to {LONGEST_NAME}", name.len()));
    }
    if name.contains("__") {
        return Err("`__` cannot be in a name, because it separates server and tool".to_owned());
    }
    if name.ends_with('_') {
        return Err("a name cannot end in `_`, because `__` separates server and tool".to_owned());
    }
    Ok(())
}

const LONGEST_NAME: usize = 64;

/// The nearest name that would be accepted, when there is one.
fn usable_name(name: &str) -> Option<String> {
    let mut usable = String::new();
    for letter in name.chars().take(LONGEST_NAME) {
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
        let message = "`enabled` and `disabled` are both given";
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
        problems
            .error(field.error(message).with_hint("`prefix = \"\"` leaves the names as the server has them"));
        return None;
    }
    Some(prefix.to_owned())
}

fn max_message(fields: &mut Fields<'_>, problems: &mut Problems) -> usize {
    let size = fields.some_size("max_message", problems);
    size.map_or(ServerSpec::DEFAULT_MAX_MESSAGE, |size| usize::try_from(size).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_proposed_name_is_accepted(name in ".{0,80}") {
            if let Some(usable) = usable_name(&name) {
                prop_assert_eq!(check_name(&usable), Ok(()), "{}", usable);
            }
        }
    }
}
