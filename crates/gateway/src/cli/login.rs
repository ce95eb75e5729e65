//! `gripfast login` and `gripfast logout`: OAuth logins of the user at servers.

mod callback;

use super::args::{GlobalArgs, LoginArgs, LogoutArgs};
use super::config;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host;
use super::local_host::Signals;
use super::render::{Screen, with_progress};
use callback::Callback;
use gripfast::auth::{self, DeviceLogin, Login, LoginError, Logins, LogoutOutcome};
use gripfast::config::ServerSpec;
use std::io::{self, BufRead};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time for the user to finish a login in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Name in the progress line.
const AUTHORITY: &str = "the authorization server";

/// Sends the user to the authorization server, and stores the login.
pub(crate) fn run(global: &GlobalArgs, args: &LoginArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let opened = config::open(global, screen)?;
    let spec = opened.server(&args.name).and_then(config::server_spec)?;
    let logins = opened.logins(global)?;
    until_signal(login(&logins, spec, args, screen))
}

/// Removes the stored login, and revokes its tokens if possible.
pub(crate) fn logout(
    global: &GlobalArgs,
    args: &LogoutArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let opened = config::open(global, screen)?;
    let name = &args.name;
    let spec = opened.server(name).and_then(config::server_spec)?;
    let logins = opened.logins(global)?;
    let forgotten = until_signal(async {
        let forgetting = auth::logout(name, spec, &logins);
        let forgotten = with_progress(screen, AUTHORITY, forgetting).await;
        forgotten.map_err(|error| failure(name, &error).into())
    })?;
    let noticed = "running gateways notice it with their next request";
    screen.message(&match forgotten {
        LogoutOutcome::NotLoggedIn => format!("not logged in to `{name}`"),
        LogoutOutcome::Revoked => format!("logged out of `{name}` and revoked its tokens; {noticed}"),
        LogoutOutcome::Forgotten => format!(
            "logged out of `{name}`; {noticed}. The authorization server does not support revocation: the tokens stay valid \
             there until they expire"
        ),
        LogoutOutcome::NotRevoked(why) => format!(
            "logged out of `{name}`; {noticed}. The tokens could not be revoked and stay valid at the authorization server \
             until they expire: {why}"
        ),
    })?;
    Ok(Exit::Ok)
}

async fn login(
    logins: &Logins,
    spec: &ServerSpec,
    args: &LoginArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let name = &args.name;
    let failed = |error: LoginError| failure(name, &error);
    if args.device {
        let beginning = DeviceLogin::begin(name, spec, logins);
        let device = with_progress(screen, AUTHORITY, beginning).await.map_err(failed)?;
        show_added_scopes(name, device.added_scopes(), screen)?;
        screen.message(&format!("to log in to `{name}`, open this address on any device:"))?;
        screen.line(device.verification_uri_complete().unwrap_or(device.verification_uri()))?;
        screen.message(&format!(
            "and enter this code, or check that the page shows it: {}",
            device.user_code()
        ))?;
        screen.flush()?;
        with_progress(screen, "the login code", device.finish()).await.map_err(failed)?;
        return report_success(name, screen);
    }
    let port = spec.oauth.as_ref().map_or(0, |oauth| oauth.callback_port);
    let callback = Callback::listen(port).await.map_err(|error| {
        FailureReport::new(Exit::General, format!("cannot wait for the browser on port {port}: {error}"))
    })?;
    let returns_to = callback.url();
    let beginning = Login::begin(name, spec, logins, &returns_to);
    let login = with_progress(screen, AUTHORITY, beginning).await.map_err(failed)?;
    show_added_scopes(name, login.added_scopes(), screen)?;
    screen.message(&format!("to log in to `{name}`, open this address in a browser:"))?;
    screen.line(login.url())?;
    if args.no_browser {
        screen.message("if the browser runs on another machine, paste the address where it ends up:")?;
    } else if open_browser(login.url()).is_err() {
        screen.message("(no browser could be started)")?;
    }
    // A user without a browser here may have one on another device.
    let device = match args.no_browser && login.supports_device_login() {
        true => DeviceLogin::begin(name, spec, logins).await.ok(),
        false => None,
    };
    if let Some(device) = &device {
        let (page, code) = (device.verification_uri(), device.user_code());
        screen.message(&format!("or open {page} on any device and enter this code: {code}"))?;
    }
    screen.flush()?;
    let returning = wait_for_return(&callback, &login, device);
    let returned = match args.no_browser {
        // No progress line: it would overwrite the address that the user pastes.
        true => tokio::select! {
            returned = returning => returned,
            address = read_pasted_address(screen) => LoginReturn::Callback(address?),
        },
        false => Box::pin(with_progress(screen, "the browser callback", returning)).await,
    };
    match returned {
        LoginReturn::Callback(address) => {
            with_progress(screen, AUTHORITY, login.finish(&address)).await.map_err(failed)?;
        }
        LoginReturn::OnDevice(finished) => finished.map_err(failed)?,
        LoginReturn::Never => {
            let limit = gripfast::text::duration(LOGIN_TIMEOUT);
            let text = format!("the login to `{name}` was not finished in the browser within {limit}");
            return Err(FailureReport::new(Exit::LoginNeeded, text).into());
        }
    }
    report_success(name, screen)
}

/// The end of a login in a browser.
enum LoginReturn {
    /// The browser returned to this address of the callback listener.
    Callback(String),
    /// The login on another device ended with this result.
    OnDevice(Result<(), LoginError>),
    Never,
}

async fn wait_for_return(callback: &Callback, login: &Login, device: Option<DeviceLogin>) -> LoginReturn {
    tokio::select! {
        finished = finish_on_device(device) => LoginReturn::OnDevice(finished),
        address = callback.wait_for(login.url()) => LoginReturn::Callback(address),
        () = tokio::time::sleep(LOGIN_TIMEOUT) => LoginReturn::Never,
    }
}

/// Shows the scopes that the server asks for beyond those granted before.
fn show_added_scopes(name: &str, scopes: &[String], screen: &mut Screen) -> Result<(), CommandError> {
    if !scopes.is_empty() {
        let scopes = scopes.join(", ");
        screen.message(&format!("server `{name}` asks for more than at the last login: {scopes}"))?;
    }
    Ok(())
}

fn report_success(name: &str, screen: &mut Screen) -> Result<Exit, CommandError> {
    screen.message(&format!("logged in to `{name}`; running gateways pick it up automatically"))?;
    Ok(Exit::Ok)
}

/// Waits for a login on another device. A refused one does not end the wait: the browser here may still return.
async fn finish_on_device(device: Option<DeviceLogin>) -> Result<(), LoginError> {
    match device {
        Some(device) => match device.finish().await {
            Err(LoginError::Refused(_)) => std::future::pending().await,
            finished => finished,
        },
        None => std::future::pending().await,
    }
}

/// Runs `work` until it is done or a signal arrives.
fn until_signal<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = local_host::runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(local_host::runtime_failure)?;
        tokio::select! {
            exit = signals.next() => Err(CommandError::Reported(exit)),
            done = work => done,
        }
    });
    runtime.shutdown_timeout(local_host::SHUTDOWN_TIMEOUT);
    done
}

fn failure(name: &str, error: &LoginError) -> FailureReport {
    match error {
        LoginError::NotNeeded(text) => FailureReport::new(Exit::General, text.clone()),
        LoginError::BadConfig(text) => FailureReport::new(
            Exit::ConfigInvalid,
            format!("server `{name}` cannot work as configured: {text}"),
        ),
        LoginError::Refused(text) => {
            FailureReport::new(Exit::LoginNeeded, format!("cannot log in to `{name}`: {text}"))
        }
        LoginError::NotOffered(text) => FailureReport::new(Exit::General, text.clone())
            .with_hint(format!("`gripfast login {name} --no-browser` works with a browser on any machine")),
        LoginError::NotStored(_) => FailureReport::new(Exit::General, format!("{error}")),
    }
}

/// Reads the address that the user pastes, and asks again after any other line. If stdin ends first, waits forever.
async fn read_pasted_address(screen: &mut Screen) -> Result<String, CommandError> {
    let (found, mut lines) = tokio::sync::mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        // Ends when the receiver is dropped.
        lines.map(|line| found.blocking_send(line)).take_while(Result::is_ok).for_each(drop);
    });
    while let Some(line) = lines.recv().await {
        match line.trim() {
            "" => {}
            line if is_return_address(line) => return Ok(line.to_owned()),
            _ => {
                screen.message("this is not the return address, which starts with `http` and contains `code=`; paste it again:")?;
                screen.flush()?;
            }
        }
    }
    std::future::pending().await
}

/// Returns true if a text is an address to which an authorization server may have redirected a browser.
fn is_return_address(text: &str) -> bool {
    let answer =
        |query: &str| query.split('&').any(|pair| pair.starts_with("code=") || pair.starts_with("error="));
    let is_web = |uri: &http::Uri| uri.scheme_str().is_some_and(|scheme| scheme.starts_with("http"));
    text.parse().is_ok_and(|uri: http::Uri| is_web(&uri) && uri.query().is_some_and(answer))
}

/// Starts a browser and does not wait for it.
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
    use crate::cli::render::CapturedTerminal;
    use gripfast_testkit::authority::{Authority, AuthorityOptions, fetch};

    #[test]
    fn a_return_address_is_told_apart_from_other_lines() {
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
    async fn e04_a_login_at_a_terminal_shows_what_it_waits_for() {
        let device_codes_last = Some(Duration::from_secs(600));
        let authority = Authority::start(AuthorityOptions {
            device_code_lifetime: device_codes_last,
            ..AuthorityOptions::default()
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("gripfast.toml");
        std::fs::write(&config, format!("[servers.notes]\nurl = {:?}\n", authority.mcp_url())).unwrap();
        let global = GlobalArgs { config: Some(config), state_dir: Some(dir.path().to_owned()) };
        let terminal = CapturedTerminal::default();
        let mut screen = Screen::captured(&terminal);
        let opened = config::open(&global, &mut screen).unwrap();
        let spec = opened.server("notes").and_then(config::server_spec).unwrap();
        let logins = opened.logins(&global).unwrap();
        let args = LoginArgs { name: "notes".to_owned(), no_browser: false, device: true };
        let person = async {
            let seen = async {
                while !terminal.text().contains("\rwaiting for the login code, ") {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            // Times out if the terminal shows nothing.
            tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap();
            let text = terminal.text();
            let page = text.lines().find(|line| line.starts_with("http://")).unwrap();
            fetch(page).await
        };
        let (logged_in, _) = tokio::join!(login(&logins, spec, &args, &mut screen), person);
        assert_eq!(logged_in.unwrap(), Exit::Ok);
        assert!(
            terminal.text().ends_with("logged in to `notes`; running gateways pick it up automatically\n")
        );
    }
}
