//! Runs the faults one after another and reports.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]

use std::process::ExitCode;

use clap::Parser;
use gripfast_chaos::args::{Args, Output};
use gripfast_chaos::fault::FAULTS;
use gripfast_chaos::report::Report;
use gripfast_chaos::{Result, figure, fleet, renewal, row};

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for fault in FAULTS {
            let transports: Vec<String> = fault.transports.iter().map(ToString::to_string).collect();
            println!("{:22} {:18} {}", fault.name, transports.join(", "), fault.what);
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let reported = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(report(&args)));
    match reported {
        Ok(0) => ExitCode::SUCCESS,
        Ok(complaints) => {
            eprintln!("{complaints} counts are not what they must be");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the run broke off: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn report(args: &Args) -> Result<usize> {
    let order = args.order();
    let mut report = Report::begin(&order);
    let mut complaints = 0;
    for (fault, transport) in args.plan() {
        eprintln!("{} on {transport} …", fault.name);
        let row = row::run(fault, transport, &order).await?;
        for complaint in row.complaints(fault) {
            complaints += 1;
            eprintln!("  {complaint}");
        }
        for remark in &row.remarks {
            eprintln!("  {remark}");
        }
        report.rows.push(row);
    }
    report.figures = figure::of_rows(&report.rows);
    if args.is_whole() && order.subject.peer.is_none() {
        eprintln!("a session that expires under many calls …");
        let renewal = renewal::run(&order).await?;
        report.figures.push(figure::of_renewal(&renewal));
        report.renewal = Some(renewal);
        eprintln!("one of many servers flaps …");
        let neighbours = fleet::run(&order).await?;
        for complaint in neighbours.complaints().iter().chain(&neighbours.remarks) {
            eprintln!("  {complaint}");
        }
        complaints += neighbours.complaints().len();
        report.figures.push(figure::of_neighbours(&neighbours));
        report.neighbours = Some(neighbours);
    }
    match args.output {
        Output::Text => print!("{}", report.to_text()),
        Output::Json => println!("{}", report.to_json()),
    }
    if let Some(file) = &args.write {
        std::fs::write(file, report.to_markdown())?;
    }
    Ok(complaints)
}
