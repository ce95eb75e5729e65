//! The command line: parses the arguments, runs one command and returns its exit code.
//!
//! `args` defines the arguments, each command has a file of its own, `render` is the only module that knows about
//! terminals, and `exit` the only one that knows exit codes. Data goes to stdout, messages go to stderr.

mod add;
mod address;
mod admin_client;
mod args;
mod audit;
mod audit_line;
#[cfg(unix)]
mod background;
mod call;
mod calls;
mod check;
mod complete;
mod completions;
mod config;
mod config_trust;
mod connect;
mod connector;
mod credentials;
mod dashboard;
mod demo;
mod demo_server;
mod doctor;
mod duration;
mod error;
mod events;
mod exit;
mod import;
mod key_store;
mod keys;
mod local_host;
mod log;
mod login;
mod logs;
mod man;
mod mcp_client;
mod operate;
mod pins;
mod policy;
mod preflight;
mod render;
mod replicas;
mod schema;
mod serve;
mod service;
#[cfg(unix)]
mod service_manager;
mod shared_tables;
mod status;
mod stdio;
mod token;
mod tools;
mod trust;
mod write_file;

use crate::cli::error::CommandError;
use add::Switch;
use args::{Cli, OutputFormat, Verb};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use exit::Exit;
use gripfast::AdminAction;
use render::Screen;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command line given by `words`.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (cli, form) = match parse(words) {
        Ok(parsed) => parsed,
        Err(usage) => return print_usage(&usage).into(),
    };
    let mut screen = Screen::for_process();
    let logging = log::start(&cli.verb).map_err(CommandError::from);
    let done = logging
        .and_then(|()| config_trust::ask_for_trust(&cli, &mut screen))
        .and_then(|()| run_verb(&cli, &mut screen));
    let done = done.and_then(|exit| screen.flush().map(|()| exit).map_err(CommandError::from));
    done.unwrap_or_else(|stop| stop.report(form, &mut screen)).into()
}

/// Runs the command.
fn run_verb(cli: &Cli, screen: &mut Screen) -> Result<Exit, CommandError> {
    match &cli.verb {
        Verb::Serve(args) => serve::run(&cli.global, args, screen),
        Verb::Service(verb) => service::run(&cli.global, verb, screen),
        Verb::Stdio(args) => stdio::run(&cli.global, args, screen),
        Verb::Status(args) => status::run(&cli.global, args, screen),
        Verb::Reconnect(args) => operate::run(&cli.global, AdminAction::Reconnect, args, screen),
        Verb::Reload(args) => operate::reload(&cli.global, args, screen),
        Verb::Stop(args) => operate::run(&cli.global, AdminAction::Stop, args, screen),
        Verb::Start(args) => operate::run(&cli.global, AdminAction::Start, args, screen),
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
        Verb::Replicas(args) => replicas::run(&cli.global, args, screen),
        Verb::Keys(args) => keys::run(&cli.global, args, screen),
        Verb::Audit(verb) => audit::run(&cli.global, verb, screen),
        Verb::Token(verb) => token::run(&cli.global, verb, screen),
        Verb::Login(args) => login::run(&cli.global, args, screen),
        Verb::Logout(args) => login::logout(&cli.global, args, screen),
        Verb::Completions(args) => completions::run(args, screen),
        Verb::Man(args) => man::run(args, screen),
        Verb::Complete(args) => complete::run(&cli.global, args, screen),
        Verb::Schema => schema::run(screen),
        Verb::Version => {
            screen.line(&format!("gripfast {}", env!("CARGO_PKG_VERSION")))?;
            Ok(Exit::Ok)
        }
        Verb::DemoServer(args) => demo_server::run(args, screen),
    }
}

/// The parsed command line, and the output format that it asks for.
fn parse(words: impl IntoIterator<Item = OsString>) -> Result<(Cli, OutputFormat), clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(words)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|usage| usage.format(&mut command))?;
    Ok((cli, output_format(&matches)))
}

fn output_format(matches: &ArgMatches) -> OutputFormat {
    match matches.subcommand() {
        Some((_, inner)) => output_format(inner),
        None => matches.try_get_one("form").ok().flatten().copied().unwrap_or(OutputFormat::Text),
    }
}

/// Prints help or a usage error. clap itself would exit with 2 after a usage error, which here means an invalid config.
fn print_usage(usage: &clap::Error) -> Exit {
    // If this cannot be written, the exit code is all that is left.
    let _ = usage.print();
    if usage.use_stderr() { Exit::General } else { Exit::Ok }
}
