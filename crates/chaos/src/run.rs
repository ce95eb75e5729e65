//! Runs the faults one after another and reports.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gripfast_chaos::args::{Args, Output};
use gripfast_chaos::fault::FAULTS;
use gripfast_chaos::report::Report;
use gripfast_chaos::row::{self, Order, Progress, Row};
use gripfast_chaos::{Result, figure, fleet, renewal};

/// A row that takes longer than this says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);

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

/// Says now and then how far a row is that takes long.
async fn watched(row: impl Future<Output = Result<Row>>, progress: &Progress) -> Result<Row> {
    let mut row = std::pin::pin!(row);
    loop {
        tokio::select! {
            row = &mut row => return row,
            () = tokio::time::sleep(TELL_EVERY) => {
                let (times, of) = progress.read();
                if times > 0 {
                    eprintln!("  {times} of {of} times");
                }
            }
        }
    }
}

async fn report(args: &Args) -> Result<usize> {
    let order = args.order();
    let mut report = Report::begin(&order);
    let mut complaints = 0;
    let plan: Vec<_> = args.plan().collect();
    for (number, (fault, transport)) in plan.iter().enumerate() {
        eprintln!("{} of {}: {} on {transport} …", number + 1, plan.len(), fault.name);
        let order = Order { progress: Progress::default(), ..order.clone() };
        let row = watched(row::run(fault, *transport, &order), &order.progress).await?;
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
