//! Exposure of tools to clients: which tools a client's list has, and which tools it finds by search instead. The host
//! applies the decision to its catalogs; the gateway offers the search.

use crate::policy::Pattern;

/// The key `exposure`: the way in which tools are offered to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// `all` (the default): in the list.
    #[default]
    All,
    /// `search`: found by search.
    Search,
    /// `auto`: in the list while the client's list is small enough.
    Auto,
}

impl Exposure {
    /// The word in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Search => "search",
            Self::Auto => "auto",
        }
    }
}

/// Names of the tools that the gateway offers for search. No tool of a server has one of them while tools can be
/// searched.
pub const SEARCH_TOOLS: [&str; 4] = [SEARCH, DESCRIBE, CALL_READ_ONLY, CALL];

/// Tool that searches the tools.
pub const SEARCH: &str = "search_tools";
/// Tool that returns the definitions of tools.
pub const DESCRIBE: &str = "describe_tools";
/// Tool that calls a tool that changes nothing.
pub const CALL_READ_ONLY: &str = "call_read_only_tool";
/// Tool that calls any tool.
pub const CALL: &str = "call_tool";

/// Settings for all servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureSettings {
    /// Exposure of servers that set none.
    pub exposure: Exposure,
    /// Tokens of a client's list above which tools with [`Exposure::Auto`] are found by search.
    pub limit: u32,
    /// Patterns of public names: these tools are always in the list.
    pub always: Vec<String>,
    /// Tools that a legacy client has found are added to its list.
    pub load: bool,
}

impl Default for ExposureSettings {
    fn default() -> Self {
        Self { exposure: Exposure::All, limit: 10_000, always: Vec::new(), load: false }
    }
}

/// Rule for the tools of one server.
#[derive(Debug, Clone)]
pub struct ExposureRule {
    exposure: Exposure,
    /// Over public names.
    always_public: Vec<Pattern>,
    /// Over the server's own names.
    always_own: Vec<Pattern>,
}

impl ExposureRule {
    /// Rule of a server with its own settings, if it has any.
    #[must_use]
    pub fn new(settings: &ExposureSettings, own: Option<Exposure>, always: &[String]) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(Pattern::new).collect();
        Self {
            exposure: own.unwrap_or(settings.exposure),
            always_public: patterns(&settings.always),
            always_own: patterns(always),
        }
    }

    /// Exposure of the server.
    #[must_use]
    pub fn exposure(&self) -> Exposure {
        self.exposure
    }

    /// Exposure of a tool with this public name and this name of its server.
    #[must_use]
    pub fn of_tool(&self, public: &str, own: &str) -> Exposure {
        match self.exposure {
            Exposure::All => Exposure::All,
            Exposure::Search | Exposure::Auto
                if self.always_public.iter().any(|pattern| pattern.matches(public))
                    || self.always_own.iter().any(|pattern| pattern.matches(own)) =>
            {
                Exposure::All
            }
            exposure @ (Exposure::Search | Exposure::Auto) => exposure,
        }
    }
}

/// One tool of a client's catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExposedTool {
    /// Its exposure.
    pub exposure: Exposure,
    /// Its estimated tokens. Needed only if a tool of the catalog has [`Exposure::Auto`].
    pub tokens: u32,
}

/// Places of the tools that are in a client's list. `None`: all of them.
#[must_use]
pub fn listed(tools: &[ExposedTool], limit: u32) -> Option<Vec<usize>> {
    let has = |exposure| tools.iter().any(|tool| tool.exposure == exposure);
    let exceeds = || {
        let in_list = tools.iter().filter(|tool| tool.exposure != Exposure::Search);
        in_list.map(|tool| u64::from(tool.tokens)).sum::<u64>() > limit.into()
    };
    let auto_is_listed = !has(Exposure::Auto) || !exceeds();
    if auto_is_listed && !has(Exposure::Search) {
        return None;
    }
    let is_listed = |tool: &ExposedTool| match tool.exposure {
        Exposure::All => true,
        Exposure::Search => false,
        Exposure::Auto => auto_is_listed,
    };
    Some(tools.iter().enumerate().filter(|(_, tool)| is_listed(tool)).map(|(at, _)| at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(of: &[(Exposure, u32)]) -> Vec<ExposedTool> {
        of.iter().map(|(exposure, tokens)| ExposedTool { exposure: *exposure, tokens: *tokens }).collect()
    }

    #[test]
    fn search_hides_tools_whatever_their_size() {
        let few = tools(&[(Exposure::All, 1), (Exposure::Search, 1), (Exposure::All, 1)]);
        assert_eq!(listed(&few, 10_000), Some(vec![0, 2]));
        assert_eq!(listed(&tools(&[(Exposure::All, 9), (Exposure::All, 9)]), 10), None, "all of them");
    }

    #[test]
    fn h05_auto_hides_tools_only_above_the_limit_of_the_list() {
        let list =
            |limit| listed(&tools(&[(Exposure::All, 4), (Exposure::Auto, 6), (Exposure::Auto, 1)]), limit);
        assert_eq!(list(11), None);
        assert_eq!(list(10), Some(vec![0]));
        let beside_search = tools(&[(Exposure::Search, 100), (Exposure::Auto, 6)]);
        assert_eq!(listed(&beside_search, 10), Some(vec![1]), "a hidden tool does not count");
        assert_eq!(listed(&beside_search, 5), Some(Vec::new()));
        let huge = tools(&[(Exposure::Auto, u32::MAX), (Exposure::Auto, u32::MAX)]);
        assert_eq!(listed(&huge, u32::MAX), Some(Vec::new()), "no overflow");
    }

    #[test]
    fn a_server_overrides_the_gateway_and_always_keeps_a_tool_listed() {
        let settings = ExposureSettings {
            exposure: Exposure::Search,
            always: vec!["git__status".to_owned()],
            ..ExposureSettings::default()
        };
        let rule = ExposureRule::new(&settings, None, &["log*".to_owned()]);
        assert_eq!(rule.of_tool("git__push", "push"), Exposure::Search);
        assert_eq!(rule.of_tool("git__status", "status"), Exposure::All, "by its public name");
        assert_eq!(rule.of_tool("git__log_all", "log_all"), Exposure::All, "by its server's name");
        let rule = ExposureRule::new(&settings, Some(Exposure::Auto), &[]);
        assert_eq!(rule.of_tool("git__push", "push"), Exposure::Auto);
    }
}
