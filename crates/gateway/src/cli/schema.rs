//! `gripfast schema`: what a config may say, for editors.

use super::exit::Exit;
use super::render::Screen;
use super::stop::Stop;

pub(crate) fn run(screen: &mut Screen) -> Result<Exit, Stop> {
    screen.line(&format!("{:#}", gripfast::config::schema()))?;
    Ok(Exit::Ok)
}
