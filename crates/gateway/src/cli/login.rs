//! `gripfast login` and `gripfast logout`: a person lets gripfast use a server in their name, or no longer.

mod callback;

use super::args::{Global, LoginArgs, LogoutArgs};
use super::config::{self, Opened};
use super::exit::Exit;
use super::fleet::{self, Signals};
use super::render::{Screen, with_progress};
use super::stop::{Failure, Stop};
use callback::Callback;
use gripfast::auth::{self, DeviceLogin, LoggedOut, Login, LoginError};
use gripfast::config::ServerSpec;
use std::io::{self, BufRead};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Who has not come back by then has closed the window.
const WITHIN: Duration = Duration::from_secs(600);

/// Whom logins are asked of, for whoever waits meanwhile.
const AUTHORITY: &str = "the authorization server";

/// Sends a person to the authorization server, and keeps what it gives.
pub(crate) fn run(global: &Global, args: &LoginArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let opened = config::open(global, screen)?;
    let spec = opened.server(&args.name).and_then(config::usable)?;
    until_told(login(global, &opened, spec, args, screen))
}

/// Forgets what `login` has kept.
pub(crate) fn forget(global: &Global, args: &LogoutArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let opened = config::open(global, screen)?;
    let name = &args.name;
    let spec = opened.server(name).and_then(config::usable)?;
    let logins = opened.logins(global)?;
    let forgotten = until_told(async {
        let forgetting = auth::logout(name, spec, &logins);
        let forgotten = with_progress(screen, AUTHORITY, forgetting).await;
        forgotten.map_err(|error| failure(name, &error).into())
    })?;
    let noticed = "gateways that run notice with their next request";
    screen.talk(&match forgotten {
        LoggedOut::WasNot => format!("nobody was logged in to `{name}`"),
        LoggedOut::Revoked => format!("logged out of `{name}`, and its tokens are revoked; {noticed}"),
        LoggedOut::Forgotten => format!(
            "logged out of `{name}`; {noticed}. Its authorization server offers no revocation: the tokens stay valid there \
             until they end"
        ),
        LoggedOut::NotRevoked(why) => format!(
            "logged out of `{name}`; {noticed}. Its tokens could not be revoked, and stay valid at the authorization server \
             until they end: {why}"
        ),
    })?;
    Ok(Exit::Ok)
}

async fn login(
    global: &Global,
    opened: &Opened,
    spec: &ServerSpec,
    args: &LoginArgs,
    screen: &mut Screen,
) -> Result<Exit, Stop> {
    let name = &args.name;
    let logins = opened.logins(global)?;
    let failed = |error: LoginError| failure(name, &error);
    if args.device {
        let beginning = DeviceLogin::begin(name, spec, &logins);
        let device = with_progress(screen, AUTHORITY, beginning).await.map_err(failed)?;
        show_added_scopes(name, device.added_scopes(), screen)?;
        screen.talk(&format!("to log in to `{name}`, open this address on any device:"))?;
        screen.line(device.page_with_code().unwrap_or(device.page()))?;
        screen.talk(&format!("and enter this code, or see that it is the same: {}", device.code()))?;
        screen.flush()?;
        with_progress(screen, "somebody to enter the code", device.finish()).await.map_err(failed)?;
        return done(name, screen);
    }
    let port = spec.oauth.as_ref().map_or(0, |oauth| oauth.callback_port);
    let callback = Callback::listen(port).await.map_err(|error| {
        Failure::new(Exit::General, format!("cannot wait for the browser on port {port}: {error}"))
    })?;
    let returns_to = callback.url();
    let beginning = Login::begin(name, spec, &logins, &returns_to);
    let login = with_progress(screen, AUTHORITY, beginning).await.map_err(failed)?;
    show_added_scopes(name, login.added_scopes(), screen)?;
    screen.talk(&format!("to log in to `{name}`, open this address in a browser:"))?;
    screen.line(login.url())?;
    if args.no_browser {
        screen.talk("and if the browser cannot get back here, paste the address at which it ended:")?;
    } else if open_browser(login.url()).is_err() {
        screen.talk("(no browser could be started here)")?;
    }
    // Who has no browser here may have one elsewhere.
    let device = match args.no_browser && login.is_offered_by_device() {
        true => DeviceLogin::begin(name, spec, &logins).await.ok(),
        false => None,
    };
    if let Some(device) = &device {
        let (page, code) = (device.page(), device.code());
        screen.talk(&format!("or open {page} on any device, and enter this code: {code}"))?;
    }
    screen.flush()?;
    let returning = returned(&callback, &login, device);
    let returned = match args.no_browser {
        // Somebody may be about to paste, and what is typed would be written over.
        true => tokio::select! {
            returned = returning => returned,
            address = pasted(screen) => Returned::Here(address?),
        },
        false => with_progress(screen, "the browser to come back", returning).await,
    };
    match returned {
        Returned::Here(address) => {
            with_progress(screen, AUTHORITY, login.finish(&address)).await.map_err(failed)?;
        }
        Returned::Elsewhere(finished) => finished.map_err(failed)?,
        Returned::Never => {
            let text = format!("nobody came back from the browser to log in to `{name}`");
            return Err(Failure::new(Exit::LoginNeeded, text).into());
        }
    }
    done(name, screen)
}

/// How somebody came back who was sent to log in.
enum Returned {
    /// To this address of ours.
    Here(String),
    /// On another device, and this came of it.
    Elsewhere(Result<(), LoginError>),
    Never,
}

async fn returned(callback: &Callback, login: &Login, device: Option<DeviceLogin>) -> Returned {
    tokio::select! {
        finished = elsewhere(device) => Returned::Elsewhere(finished),
        address = callback.wait_for(login.url()) => Returned::Here(address),
        () = tokio::time::sleep(WITHIN) => Returned::Never,
    }
}

/// Shows the person what the server wants beyond what was granted before.
fn show_added_scopes(name: &str, scopes: &[String], screen: &mut Screen) -> Result<(), Stop> {
    if !scopes.is_empty() {
        let scopes = scopes.join(", ");
        screen.talk(&format!("server `{name}` asks for more than at the last login: {scopes}"))?;
    }
    Ok(())
}

fn done(name: &str, screen: &mut Screen) -> Result<Exit, Stop> {
    screen.talk(&format!("logged in to `{name}`; a gateway that runs notices by itself"))?;
    Ok(Exit::Ok)
}

/// A login on another device, which the browser here may be faster than. One that nobody makes is no reason to stop.
async fn elsewhere(device: Option<DeviceLogin>) -> Result<(), LoginError> {
    match device {
        Some(device) => match device.finish().await {
            Err(LoginError::Refused(_)) => std::future::pending().await,
            finished => finished,
        },
        None => std::future::pending().await,
    }
}

/// Carries on until it is done or a signal comes.
fn until_told<T>(work: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    let runtime = fleet::runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(fleet::no_runtime)?;
        tokio::select! {
            exit = signals.next() => Err(Stop::Told(exit)),
            done = work => done,
        }
    });
    runtime.shutdown_timeout(fleet::LEFTOVERS);
    done
}

fn failure(name: &str, error: &LoginError) -> Failure {
    match error {
        LoginError::NotNeeded(text) => Failure::new(Exit::General, text.clone()),
        LoginError::BadConfig(text) => {
            Failure::new(Exit::ConfigInvalid, format!("server `{name}` cannot work as configured: {text}"))
        }
        LoginError::Refused(text) => {
            Failure::new(Exit::LoginNeeded, format!("cannot log in to `{name}`: {text}"))
        }
        LoginError::NotOffered(text) => Failure::new(Exit::General, text.clone())
            .with_hint(format!("`gripfast login {name} --no-browser` takes a browser on any machine")),
        LoginError::NotKept(_) => Failure::new(Exit::General, format!("{error}")),
    }
}

/// The address that a person pastes, who is asked again after a line that is none. A stdin that ends without one says nothing.
async fn pasted(screen: &mut Screen) -> Result<String, Stop> {
    let (found, mut lines) = tokio::sync::mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        // It ends when nobody waits for it any more.
        lines.map(|line| found.blocking_send(line)).take_while(Result::is_ok).for_each(drop);
    });
    while let Some(line) = lines.recv().await {
        match line.trim() {
            "" => {}
            line if is_return_address(line) => return Ok(line.to_owned()),
            _ => {
                screen.talk("that is not the address: it begins with `http` and has `code=` in it; paste it once more:")?;
                screen.flush()?;
            }
        }
    }
    std::future::pending().await
}

/// Whether a text is an address at which a browser may have ended that came back from a login.
fn is_return_address(text: &str) -> bool {
    let answer =
        |query: &str| query.split('&').any(|pair| pair.starts_with("code=") || pair.starts_with("error="));
    let is_web = |uri: &http::Uri| uri.scheme_str().is_some_and(|scheme| scheme.starts_with("http"));
    text.parse().is_ok_and(|uri: http::Uri| is_web(&uri) && uri.query().is_some_and(answer))
}

/// Starts whatever shows web pages here, and leaves it alone.
pub(super) fn open_browser(url: &str) -> io::Result<()> {
    let mut command = match std::env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        Some(browser) => Command::new(browser),
        None if cfg!(target_os = "macos") => Command::new("open"),
        None if cfg!(windows) => {
            let mut command = Command::new("rundll32");
            command.arg("url.dll,FileProtocolHandler");
            command
        }
        None => Command::new("xdg-open"),
    };
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::Heard;
    use gripfast_testkit::authority::{Authority, Manners, fetch};

    #[test]
    fn an_address_that_a_browser_came_back_to_is_told_from_other_lines() {
        for good in [
            "http://127.0.0.1:4711/callback?code=x&state=y",
            "http://127.0.0.1:4711/callback?state=y&error=access_denied",
        ] {
            assert!(is_return_address(good), "{good}");
        }
        for bad in [
            "yes",
            "code=x",
            "http://127.0.0.1:4711/callback",
            "https://id.example/authorize?client_id=1",
            "?",
        ] {
            assert!(!is_return_address(bad), "{bad}");
        }
    }

    /// E04
    #[tokio::test]
    async fn e04_whoever_logs_in_at_a_terminal_sees_that_somebody_is_waited_for() {
        let device_codes_last = Some(Duration::from_secs(600));
        let authority = Authority::start(Manners { device_codes_last, ..Manners::default() }).await;
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("gripfast.toml");
        std::fs::write(&config, format!("[servers.notes]\nurl = {:?}\n", authority.mcp())).unwrap();
        let global = Global { config: Some(config), state_dir: Some(dir.path().to_owned()) };
        let heard = Heard::default();
        let mut screen = Screen::heard_by(&heard);
        let opened = config::open(&global, &mut screen).unwrap();
        let spec = opened.server("notes").and_then(config::usable).unwrap();
        let args = LoginArgs { name: "notes".to_owned(), no_browser: false, device: true };
        let person = async {
            let seen = async {
                while !heard.text().contains("\rwaiting for somebody to enter the code, ") {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            // A terminal that gets here shows nothing.
            tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap();
            let said = heard.text();
            let page = said.lines().find(|line| line.starts_with("http://")).unwrap();
            fetch(page).await
        };
        let (logged_in, _) = tokio::join!(login(&global, &opened, spec, &args, &mut screen), person);
        assert_eq!(logged_in.unwrap(), Exit::Ok);
        assert!(heard.text().ends_with("logged in to `notes`; a gateway that runs notices by itself\n"));
    }
}
