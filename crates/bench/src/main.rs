//! Benchmark of a gateway (`cargo xtask bench`): latency, CPU time and memory, compared with nginx in front of the
//! same server and with a plain pipe.
//!
//! All parts of a figure are measured interleaved in one run, and ratios are reported, because times depend on the
//! machine and its load. The crate uses only the gateway's command line, its config and MCP, so that any other
//! gateway can be measured beside it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]

mod args;
mod calls;
mod client;
mod echo;
mod figure;
mod http1;
mod instructions;
mod lists;
mod load;
mod observing;
mod options;
mod process;
mod processes;
mod replicas;
mod report;
mod scale;
mod startup;
mod training;

use gripfast_measure::{MeasureError, Result};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Output, Part};
use report::{Measured, Report};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(MeasureError::from).and_then(|runtime| match args.serve_pipes {
        Some(tools) => Ok(echo::over_pipes(tools)?),
        None if args.serve_http => Ok(runtime.block_on(echo::over_http(|port| println!("{port}")))?),
        None => runtime.block_on(measure(&args)),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the run failed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<()> {
    let options = args.run_options()?;
    if args.train {
        return training::run(&options).await;
    }
    let mut report = Report::begin();
    for part in args.parts() {
        eprintln!("{} …", part.word());
        report.add(match part {
            Part::Calls => Measured::Calls(calls::run(&options).await?),
            Part::Lists => Measured::Lists(lists::run(&options).await?),
            Part::Startup => Measured::Startup(startup::run(&options).await?),
            Part::Observing => Measured::Observing(observing::run(&options).await?),
            Part::Instructions => Measured::Instructions(instructions::run(&options).await?),
            Part::Scale => Measured::Scale(scale::run(&options).await?),
            Part::Replicas => Measured::Replicas(Box::new(replicas::run(&options).await?)),
        });
    }
    match args.output {
        Output::Text => print!("{}", report.to_text()),
        Output::Json => println!("{}", report.to_json()),
    }
    match &args.write {
        Some(file) => report.write(file),
        None => Ok(()),
    }
}
