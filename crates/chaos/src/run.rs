//! Runs the faults and reports.

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
use gripfast_chaos::plan::{Done, LANES, Part, Rows};
use gripfast_chaos::report::{Other, Report};
use gripfast_chaos::row::{Order, Row};
use gripfast_chaos::{Result, figure, fleet, renewal, soak};

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
    let ran = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(Run::of(&args).whole()));
    match ran {
        Ok(0) => ExitCode::SUCCESS,
        Ok(complaints) => {
            eprintln!("{complaints} counts are not what they must be");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the report cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A run: what is asked for, what has come of it so far, and how much of that must not be.
struct Run<'a> {
    args: &'a Args,
    order: Order,
    report: Report,
    complaints: usize,
}

impl<'a> Run<'a> {
    fn of(args: &'a Args) -> Self {
        Self { args, order: args.order(), report: Report::begin(), complaints: 0 }
    }

    /// Runs it all. Answers with the number of complaints.
    async fn whole(mut self) -> Result<usize> {
        let plan = self.args.plan();
        let with_figures = self.args.is_whole();
        let of_peer: Vec<Part> = plan.iter().copied().filter(Part::fits_any).collect();
        let peer = self.args.peer();
        let figures = if with_figures { 3 } else { 0 };
        self.report.missing = plan.len() + figures + peer.as_ref().map_or(0, |_| of_peer.len());
        self.keep()?;
        self.rows(&plan).await?;
        if with_figures {
            self.figures().await?;
        }
        if let Some(peer) = peer {
            self.report.other = Some(Other { command: peer.command.clone(), rows: Vec::new() });
            let subject = Subject { peer: Some(peer), ..self.order.subject.clone() };
            self.rows_of_other(&of_peer, &Order { subject, ..self.order.clone() }).await?;
        }
        match self.args.output {
            Output::Text => print!("{}", self.report.to_text()),
            Output::Json => println!("{}", self.report.to_json()),
        }
        Ok(self.complaints)
    }

    async fn rows(&mut self, plan: &[Part]) -> Result<()> {
        let mut rows = Rows::of(plan, &self.order, LANES);
        let mut found: Vec<Option<Row>> = plan.iter().map(|_| None).collect();
        while let Some(done) = next(&mut rows, &self.order).await {
            let Done { place, part, .. } = done;
            if let Some(mut row) = self.told(done) {
                let complaints = row.complaints(part.fault);
                if complaints.is_empty() {
                    // They explain bad numbers, and what is as promised needs no explanation.
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
            self.keep()?;
        }
        Ok(())
    }

    /// What another gateway does is told, and nobody complains of it. It has the machine to itself in each row.
    async fn rows_of_other(&mut self, plan: &[Part], order: &Order) -> Result<()> {
        eprintln!("the other gateway:");
        let mut rows = Rows::of(plan, order, 1);
        let mut found: Vec<Option<Row>> = plan.iter().map(|_| None).collect();
        while let Some(done) = next(&mut rows, order).await {
            let Done { place, part, .. } = done;
            // What it does not come through is a finding about it, and the next row begins with a fresh one.
            found[place] = match &done.row {
                Ok(_) => self.told(done),
                Err(error) => {
                    let why = in_a_line(&error.to_string());
                    self.report.missing -= 1;
                    eprintln!("{} on {} broke off: {why}", part.fault.name, part.transport);
                    Some(Row::broken_off(part.fault, part.transport, why))
                }
            };
            if let Some(other) = &mut self.report.other {
                other.rows = found.iter().flatten().cloned().collect();
            }
            self.keep()?;
        }
        Ok(())
    }

    /// The figures that no single row shows.
    async fn figures(&mut self) -> Result<()> {
        eprintln!("a session that expires under many calls …");
        match renewal::run(&self.order).await {
            Ok(renewal) => {
                self.report.figures.push(figure::of_renewal(&renewal));
                self.report.renewal = Some(renewal);
                self.report.missing -= 1;
            }
            Err(error) => self.broke("the session that expires under many calls", &error),
        }
        self.keep()?;
        eprintln!("one of many servers flaps …");
        match fleet::run(&self.order).await {
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
            Err(error) => self.broke("the server that flaps among others", &error),
        }
        self.keep()?;
        eprintln!("honest clients beside hostile ones …");
        match soak::run(&self.order).await {
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
            Err(error) => self.broke("the soak with hostile clients", &error),
        }
        self.keep()
    }

    /// Says that a row is done, and hands it over if it came to its end.
    fn told(&mut self, Done { part, row, took, .. }: Done) -> Option<Row> {
        let name = format!("{} on {}", part.fault.name, part.transport);
        match row {
            Ok(row) => {
                self.report.missing -= 1;
                eprintln!("{name}: {} s, {} to go", took.as_secs(), self.report.missing);
                Some(row)
            }
            Err(error) => {
                self.broke(&name, &error);
                None
            }
        }
    }

    fn complain(&mut self, complaint: &str) {
        self.complaints += 1;
        eprintln!("  MUST NOT BE: {complaint}");
    }

    /// A part that broke off is missing in the report, which says so.
    fn broke(&mut self, what: &str, error: &dyn std::fmt::Display) {
        self.complaints += 1;
        eprintln!("{what} broke off: {error}");
        self.report.broken.push(format!("{what}: {}", error.to_string().lines().next().unwrap_or_default()));
    }

    /// Writes down what there is, so that a run that is broken off is not lost.
    fn keep(&self) -> Result<()> {
        match &self.args.write {
            Some(file) => Ok(std::fs::write(file, self.report.to_markdown())?),
            None => Ok(()),
        }
    }
}

/// What went wrong, and below it the end of a log: the last line of it says most.
fn in_a_line(error: &str) -> String {
    let mut lines = error.lines().filter(|line| !line.trim().is_empty());
    let what = lines.next().unwrap_or_default().to_owned();
    lines.next_back().map_or(what.clone(), |last| format!("{what}; {}", last.trim()))
}

/// The next row that is done. Says now and then how far one is that runs alone and takes long.
async fn next(rows: &mut Rows, order: &Order) -> Option<Done> {
    loop {
        tokio::select! {
            done = rows.next() => return done,
            () = tokio::time::sleep(TELL_EVERY) => {
                let (times, of) = order.progress.read();
                if rows.under_way() == 1 && times > 0 && times < of {
                    eprintln!("  {times} of {of} times");
                }
            }
        }
    }
}
