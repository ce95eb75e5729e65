//! `gripfast schema`: prints the JSON Schema of the config, for editors.

use super::error::CommandError;
use super::exit::Exit;
use super::render::Screen;

pub(crate) fn run(screen: &mut Screen) -> Result<Exit, CommandError> {
    screen.line(&format!("{:#}", gripfast::config::schema()))?;
    Ok(Exit::Ok)
}
