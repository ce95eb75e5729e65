//! `gripfast completions`: what a shell needs to know to complete words.

use super::args::Cli;
use super::exit::Exit;
use super::render::Screen;
use super::stop::Stop;
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

pub(crate) fn run(args: &CompletionsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gripfast", &mut script);
    screen.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Ok)
}
