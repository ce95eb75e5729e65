//! The command line: words in, one verb done, an exit code out.
//!
//! `args` says what may be typed, each verb has a file of its own, `render` is the only place that knows
//! about terminals, and `exit` the only one that knows exit codes. stdout is data, stderr is talk.

mod add;
mod address;
mod args;
mod audit;
mod audited;
#[cfg(unix)]
mod background;
mod call;
mod calls;
mod channel;
mod check;
mod client;
mod complete;
mod completions;
mod config;
mod config_trust;
mod connect;
mod credentials;
mod dashboard;
mod demo;
mod demo_server;
mod doctor;
mod duration;
mod edit;
mod events;
mod exit;
mod fleet;
mod gateway;
mod import;
mod keys;
mod log;
mod login;
mod logs;
mod operate;
mod pins;
mod policy;
mod render;
mod schema;
mod serve;
mod status;
mod stdio;
mod stop;
mod surroundings;
mod token;
mod tools;
mod trust;

use add::Switch;
use args::{Cli, Form, Verb};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use exit::Exit;
use operate::Action;
use render::Screen;
use std::ffi::OsString;
use std::process::ExitCode;
use stop::Stop;

/// Does what the words say.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (cli, form) = match parsed(words) {
        Ok(parsed) => parsed,
        Err(usage) => return told_usage(&usage).into(),
    };
    let mut screen = Screen::of_this_process();
    let logging = log::start(&cli.verb).map_err(Stop::from);
    let done =
        logging.and_then(|()| config_trust::ask(&cli, &mut screen)).and_then(|()| done(&cli, &mut screen));
    let done = done.and_then(|exit| screen.flush().map(|()| exit).map_err(Stop::from));
    done.unwrap_or_else(|stop| stop.tell(form, &mut screen)).into()
}

/// Does what the verb says.
fn done(cli: &Cli, screen: &mut Screen) -> Result<Exit, Stop> {
    match &cli.verb {
        Verb::Serve(args) => serve::run(&cli.global, args, screen),
        Verb::Stdio(args) => stdio::run(&cli.global, args, screen),
        Verb::Status(args) => status::run(&cli.global, args, screen),
        Verb::Reconnect(args) => operate::run(&cli.global, Action::Reconnect, args, screen),
        Verb::Reload(args) => operate::reload(&cli.global, args, screen),
        Verb::Stop(args) => operate::run(&cli.global, Action::Stop, args, screen),
        Verb::Start(args) => operate::run(&cli.global, Action::Start, args, screen),
        Verb::Logs(args) => logs::run(&cli.global, args, screen),
        Verb::Events(args) => events::run(&cli.global, args, screen),
        Verb::Dashboard(args) => dashboard::run(&cli.global, args, screen),
        Verb::Doctor(args) => doctor::run(&cli.global, args, screen),
        Verb::Trust(args) => config_trust::run(&cli.global, args, screen),
        Verb::Check(args) => check::run(&cli.global, args, screen),
        Verb::Import(args) => import::run(&cli.global, args, screen),
        Verb::Connect(args) => connect::run(&cli.global, args, screen),
        Verb::Add(args) => add::add(&cli.global, args, screen),
        Verb::Remove(args) => add::remove(&cli.global, args, screen),
        Verb::Enable(args) => add::switch(&cli.global, Switch::On, args, screen),
        Verb::Disable(args) => add::switch(&cli.global, Switch::Off, args, screen),
        Verb::Tools(args) => tools::run(&cli.global, args, screen),
        Verb::Resources(args) => tools::resources(&cli.global, args, screen),
        Verb::Prompts(args) => tools::prompts(&cli.global, args, screen),
        Verb::Call(args) => call::run(&cli.global, args, screen),
        Verb::Pins(args) => pins::run(&cli.global, args, screen),
        Verb::Policy(args) => policy::run(&cli.global, args, screen),
        Verb::Calls(args) => calls::run(&cli.global, args, screen),
        Verb::Keys(args) => keys::run(&cli.global, args, screen),
        Verb::Audit(verb) => audit::run(&cli.global, verb, screen),
        Verb::Token(verb) => token::run(&cli.global, verb, screen),
        Verb::Login(args) => login::run(&cli.global, args, screen),
        Verb::Logout(args) => login::forget(&cli.global, args, screen),
        Verb::Completions(args) => completions::run(args, screen),
        Verb::Complete(args) => complete::run(&cli.global, args, screen),
        Verb::Schema => schema::run(screen),
        Verb::Version => {
            screen.line(&format!("gripfast {}", env!("CARGO_PKG_VERSION")))?;
            Ok(Exit::Ok)
        }
        Verb::DemoServer(args) => demo_server::run(args, screen),
    }
}

/// What was typed, and the form in which whoever typed it wants data.
fn parsed(words: impl IntoIterator<Item = OsString>) -> Result<(Cli, Form), clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(words)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|usage| usage.format(&mut command))?;
    Ok((cli, form(&matches)))
}

fn form(matches: &ArgMatches) -> Form {
    match matches.subcommand() {
        Some((_, inner)) => form(inner),
        None => matches.try_get_one("form").ok().flatten().copied().unwrap_or(Form::Text),
    }
}

/// clap ends the process with 2 after a usage error, which here means an invalid config.
fn told_usage(usage: &clap::Error) -> Exit {
    // If not even this can be written there is nobody to tell.
    let _ = usage.print();
    if usage.use_stderr() { Exit::General } else { Exit::Ok }
}
