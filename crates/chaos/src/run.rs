//! Runs the planned rows and figures and reports the results.

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
use gripfast_chaos::gateway::Subject;
use gripfast_chaos::plan::{FinishedRow, LANES, PlannedRow, Rows};
use gripfast_chaos::replicas::fault::REPLICA_FAULTS;
use gripfast_chaos::replicas::page::ReplicaReport;
use gripfast_chaos::report::{Other, Report};
use gripfast_chaos::row::{Row, RunOptions};
use gripfast_chaos::{figure, neighbours, renewal, replicas, soak};
use gripfast_measure::Result;

/// Interval of progress output for a long row.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for fault in FAULTS {
            let transports: Vec<String> = fault.transports.iter().map(ToString::to_string).collect();
            println!("{:28} {:16} {}", fault.name, transports.join(", "), fault.description);
        }
        for fault in REPLICA_FAULTS {
            println!("{:28} {:16} {}", fault.name, "replicas", fault.description);
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ran = runtime.map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            if args.plan_of_replicas().is_empty() {
                Run::new(&args).run().await
            } else {
                replica_rows(&args).await
            }
        })
    });
    match ran {
        Ok(0) => ExitCode::SUCCESS,
        Ok(complaints) => {
            eprintln!("{complaints} violations");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot write the report: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the faults of a service, one after the other. Returns the number of violations.
async fn replica_rows(args: &Args) -> Result<usize> {
    let (options, plan) = (args.run_options(), args.plan_of_replicas());
    let (mut report, mut violations) = (ReplicaReport::begin(), 0);
    report.missing = plan.len();
    for fault in plan {
        match replicas::row::run(fault, &options).await {
            Ok(mut row) => {
                let complaints = row.complaints(fault);
                violations += complaints.len();
                eprintln!("{}: {} takeovers", fault.name, row.takeovers);
                for line in row.remarks.iter().filter(|_| !complaints.is_empty()) {
                    eprintln!("  {line}");
                }
                for complaint in complaints {
                    eprintln!("  VIOLATION: {complaint}");
                }
                row.remarks.clear();
                report.rows.push(row);
                report.missing -= 1;
            }
            Err(error) => {
                violations += 1;
                eprintln!("{} failed: {error}", fault.name);
            }
        }
        if let Some(file) = &args.write {
            std::fs::write(file, report.to_markdown())?;
        }
    }
    match args.output {
        Output::Text => print!("{}", report.to_text()),
        Output::Json => println!("{}", report.to_json()),
    }
    Ok(violations)
}

/// State of a run: options, report so far, and number of violations.
struct Run<'a> {
    args: &'a Args,
    options: RunOptions,
    report: Report,
    complaints: usize,
}

impl<'a> Run<'a> {
    fn new(args: &'a Args) -> Self {
        Self { args, options: args.run_options(), report: Report::begin(), complaints: 0 }
    }

    /// Runs everything. Returns the number of violations.
    async fn run(mut self) -> Result<usize> {
        let plan = self.args.plan();
        let with_figures = self.args.is_complete();
        let of_peer: Vec<PlannedRow> =
            plan.iter().copied().filter(PlannedRow::works_with_any_gateway).collect();
        let peer = self.args.peer();
        let figures = if with_figures { 3 } else { 0 };
        self.report.missing = plan.len() + figures + peer.as_ref().map_or(0, |_| of_peer.len());
        self.write_report()?;
        self.rows(&plan).await?;
        if with_figures {
            self.figures().await?;
        }
        if let Some(peer) = peer {
            self.report.other = Some(Other { command: peer.command.clone(), rows: Vec::new() });
            let subject = Subject { peer: Some(peer), ..self.options.subject.clone() };
            self.rows_of_other_gateway(&of_peer, &RunOptions { subject, ..self.options.clone() }).await?;
        }
        match self.args.output {
            Output::Text => print!("{}", self.report.to_text()),
            Output::Json => println!("{}", self.report.to_json()),
        }
        Ok(self.complaints)
    }

    async fn rows(&mut self, plan: &[PlannedRow]) -> Result<()> {
        let mut rows = Rows::new(plan, &self.options, LANES);
        let mut found: Vec<Option<Row>> = plan.iter().map(|_| None).collect();
        while let Some(done) = next_row(&mut rows, &self.options).await {
            let FinishedRow { index: place, part, .. } = done;
            if let Some(mut row) = self.record(done) {
                let complaints = row.complaints(part.fault);
                if complaints.is_empty() {
                    // Remarks explain violations; without a violation they are noise.
                    row.remarks.clear();
                }
                for remark in &row.remarks {
                    eprintln!("  {remark}");
                }
                for complaint in complaints {
                    self.complain(&complaint);
                }
                found[place] = Some(row);
            }
            self.report.rows = found.iter().flatten().cloned().collect();
            self.report.figures = figure::of_rows(&self.report.rows);
            self.write_report()?;
        }
        Ok(())
    }

    /// Runs the rows with another gateway, one at a time. Its failures are reported but do not fail the run.
    async fn rows_of_other_gateway(&mut self, plan: &[PlannedRow], options: &RunOptions) -> Result<()> {
        eprintln!("the other gateway:");
        let mut rows = Rows::new(plan, options, 1);
        let mut found: Vec<Option<Row>> = plan.iter().map(|_| None).collect();
        while let Some(done) = next_row(&mut rows, options).await {
            let FinishedRow { index: place, part, .. } = done;
            // A failure is a finding about the other gateway; the next row starts a fresh one.
            found[place] = match &done.row {
                Ok(_) => self.record(done),
                Err(error) => {
                    let why = one_line(&error.to_string());
                    self.report.missing -= 1;
                    eprintln!("{} on {} failed: {why}", part.fault.name, part.transport);
                    Some(Row::failed(part.fault, part.transport, why))
                }
            };
            if let Some(other) = &mut self.report.other {
                other.rows = found.iter().flatten().cloned().collect();
            }
            self.write_report()?;
        }
        Ok(())
    }

    /// Measures the figures that no single row shows.
    async fn figures(&mut self) -> Result<()> {
        eprintln!("session expiry under many calls …");
        match renewal::run(&self.options).await {
            Ok(renewal) => {
                self.report.figures.push(figure::of_renewal(&renewal));
                self.report.renewal = Some(renewal);
                self.report.missing -= 1;
            }
            Err(error) => self.record_failure("session expiry under many calls", &error),
        }
        self.write_report()?;
        eprintln!("one flapping server among many …");
        match neighbours::run(&self.options).await {
            Ok(neighbours) => {
                for remark in &neighbours.remarks {
                    eprintln!("  {remark}");
                }
                for complaint in neighbours.complaints() {
                    self.complain(&complaint);
                }
                self.report.figures.push(figure::of_neighbours(&neighbours));
                self.report.neighbours = Some(neighbours);
                self.report.missing -= 1;
            }
            Err(error) => self.record_failure("one flapping server among many", &error),
        }
        self.write_report()?;
        eprintln!("soak with hostile clients …");
        match soak::run(&self.options).await {
            Ok(soak) => {
                for remark in &soak.remarks {
                    eprintln!("  {remark}");
                }
                for complaint in soak.complaints() {
                    self.complain(&complaint);
                }
                self.report.figures.push(figure::of_soak(&soak));
                self.report.soak = Some(soak);
                self.report.missing -= 1;
            }
            Err(error) => self.record_failure("soak with hostile clients", &error),
        }
        self.write_report()
    }

    /// Reports that a row is finished; returns it unless it failed.
    fn record(&mut self, FinishedRow { part, row, took, .. }: FinishedRow) -> Option<Row> {
        let name = format!("{} on {}", part.fault.name, part.transport);
        match row {
            Ok(row) => {
                self.report.missing -= 1;
                eprintln!("{name}: {} s, {} remaining", took.as_secs(), self.report.missing);
                Some(row)
            }
            Err(error) => {
                self.record_failure(&name, &error);
                None
            }
        }
    }

    fn complain(&mut self, complaint: &str) {
        self.complaints += 1;
        eprintln!("  VIOLATION: {complaint}");
    }

    /// Records a failed part, which is then missing in the report.
    fn record_failure(&mut self, what: &str, error: &dyn std::fmt::Display) {
        self.complaints += 1;
        eprintln!("{what} failed: {error}");
        self.report.broken.push(format!("{what}: {}", error.to_string().lines().next().unwrap_or_default()));
    }

    /// Writes the report so far, so that an interrupted run keeps its results.
    fn write_report(&self) -> Result<()> {
        match &self.args.write {
            Some(file) => Ok(std::fs::write(file, self.report.to_markdown())?),
            None => Ok(()),
        }
    }
}

/// Shortens an error that ends with a log to its first and last line; the last one says most.
fn one_line(error: &str) -> String {
    let mut lines = error.lines().filter(|line| !line.trim().is_empty());
    let what = lines.next().unwrap_or_default().to_owned();
    lines.next_back().map_or(what.clone(), |last| format!("{what}; {}", last.trim()))
}

/// Waits for the next finished row. Prints the progress of a long row that runs alone.
async fn next_row(rows: &mut Rows, options: &RunOptions) -> Option<FinishedRow> {
    loop {
        tokio::select! {
            done = rows.next() => return done,
            () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                let (times, of) = options.progress.read();
                if rows.running_count() == 1 && times > 0 && times < of {
                    eprintln!("  strike {times} of {of}");
                }
            }
        }
    }
}
