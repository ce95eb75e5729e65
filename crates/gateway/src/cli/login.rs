//! `gripfast login` and `gripfast logout`: a person lets gripfast use a server in their name, or no longer.

mod callback;

use super::args::{Global, LoginArgs, LogoutArgs};
use super::config::{self, Opened};
use super::exit::Exit;
use super::fleet::{self, Signals};
use super::render::Screen;
use super::stop::{Failure, Stop};
use callback::Callback;
use gripfast::auth::{self, DeviceLogin, Login, LoginError};
use gripfast::config::ServerSpec;
use std::io::{self, BufRead};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Who has not come back by then has closed the window.
const WITHIN: Duration = Duration::from_secs(600);

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
    let logins = opened.logins(global);
    let forgotten = until_told(async {
        auth::logout(name, spec, &logins).await.map_err(|error| failure(name, &error).into())
    })?;
    screen.talk(&match forgotten {
        true => format!(
            "logged out of `{name}`; what a gateway holds in memory is used until the server refuses it"
        ),
        false => format!("nobody was logged in to `{name}`"),
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
    let logins = opened.logins(global);
    if args.device {
        let device = DeviceLogin::begin(name, spec, &logins).await.map_err(|error| failure(name, &error))?;
        screen.talk(&format!("to log in to `{name}`, open this address on any device:"))?;
        screen.line(device.page_with_code().unwrap_or(device.page()))?;
        screen.talk(&format!("and enter this code, or see that it is the same: {}", device.code()))?;
        screen.flush()?;
        device.finish().await.map_err(|error| failure(name, &error))?;
        return done(name, screen);
    }
    let port = spec.oauth.as_ref().map_or(0, |oauth| oauth.callback_port);
    let callback = Callback::listen(port).await.map_err(|error| {
        Failure::new(Exit::General, format!("cannot wait for the browser on port {port}: {error}"))
    })?;
    let begun = Login::begin(name, spec, &logins, &callback.url()).await;
    let login = begun.map_err(|error| failure(name, &error))?;
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
    let came_back = tokio::select! {
        elsewhere = elsewhere(device) => {
            elsewhere.map_err(|error| failure(name, &error))?;
            return done(name, screen);
        }
        came_back = callback.wait_for(login.url()) => came_back,
        pasted = pasted(), if args.no_browser => pasted,
        () = tokio::time::sleep(WITHIN) => {
            let text = format!("nobody came back from the browser to log in to `{name}`");
            return Err(Failure::new(Exit::LoginNeeded, text).into());
        }
    };
    login.finish(&came_back).await.map_err(|error| failure(name, &error))?;
    done(name, screen)
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

/// The address that a person pastes. A stdin that ends without one says nothing.
async fn pasted() -> String {
    let line = tokio::task::spawn_blocking(|| {
        let mut lines = io::stdin().lock().lines().map_while(Result::ok);
        lines.find(|line| !line.trim().is_empty())
    });
    match line.await {
        Ok(Some(line)) => line.trim().to_owned(),
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Starts whatever shows web pages here, and leaves it alone.
fn open_browser(url: &str) -> io::Result<()> {
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
