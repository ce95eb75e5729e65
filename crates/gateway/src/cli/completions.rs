//! `gripfast completions`: generates shell completion scripts.

use super::args::Cli;
use super::error::CommandError;
use super::exit::Exit;
use super::render::Screen;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gripfast completions bash > ~/.local/share/bash-completion/completions/gripfast
  gripfast completions zsh > ~/.zfunc/_gripfast
  gripfast completions fish > ~/.config/fish/completions/gripfast.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gripfast", &mut script);
    screen.line(&with_names(args.shell, String::from_utf8_lossy(&script).trim_end()))?;
    Ok(Exit::Ok)
}

const BASH: &str = r#"
# Names of servers, tools and prompts.
_gripfast_names() {
    local IFS=$'\n'
    COMPREPLY=($(gripfast complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || { IFS=$' \t\n'; _gripfast "$@"; }
}
complete -F _gripfast_names -o bashdefault -o default gripfast"#;

const FISH: &str = r#"
# Names of servers, tools and prompts.
complete -c gripfast -a '(gripfast complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'"#;

/// Inserted before the last lines, which call `_gripfast` or register it.
const ZSH: &str = r#"# Names of servers, tools and prompts.
_gripfast_names() {
    local -a names
    names=(${(f)"$(gripfast complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#names )); then compadd -a names; else _gripfast "$@"; fi
}

"#;

/// Extends a script so that it completes names of servers, tools and prompts, for bash, fish and zsh.
fn with_names(shell: Shell, script: &str) -> String {
    const LAST: &str = "if [ \"$funcstack[1]\" = \"_gripfast\" ]; then";
    match (shell, script.rsplit_once(LAST)) {
        (Shell::Bash, _) => format!("{script}\n{BASH}"),
        (Shell::Fish, _) => format!("{script}\n{FISH}"),
        (Shell::Zsh, Some((before, last))) => {
            let last = last.replace("    _gripfast \"$@\"", "    _gripfast_names \"$@\"");
            let last = last.replace("compdef _gripfast gripfast", "compdef _gripfast_names gripfast");
            format!("{before}{ZSH}{LAST}{last}")
        }
        (_, _) => script.to_owned(),
    }
}
