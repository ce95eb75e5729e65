//! `gripfast man`: man pages from the definition of the command line.

use super::args::Cli;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::Screen;
use clap::{Args, CommandFactory};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Writes one page for gripfast and one for each command, such as gripfast-serve.1.

Examples:
  gripfast man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: &ManArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| {
            let text = format!("cannot write man pages into `{}`: {error}", directory.display());
            FailureReport::new(Exit::General, text)
        })?;
    screen.line(&format!("wrote man pages into {}", directory.display()))?;
    Ok(Exit::Ok)
}
