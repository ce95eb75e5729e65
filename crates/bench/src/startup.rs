//! Time from exec to the first complete `tools/list`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::client::Client;
use crate::options::RunOptions;
use crate::processes::{self, FIRST, Gateway, GatewayDir};
use gripfast_measure::Era;
use gripfast_measure::times::median;
use gripfast_measure::{MeasureError, Result};

/// Median durations over the repeats, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Startup {
    /// A process that does nothing (`true`).
    pub(crate) nothing: f64,
    pub(crate) lazy_servers: usize,
    /// Lazy servers with a stored catalog.
    pub(crate) lazy: f64,
    /// Number of them that were started for the list.
    pub(crate) started: usize,
    pub(crate) eager_servers: usize,
    /// Sample servers that are all started and listed for the first time.
    pub(crate) eager: f64,
    /// One such server.
    pub(crate) one: f64,
    /// Median over the repeats of `eager` divided by `one`.
    pub(crate) ratio: f64,
}

pub(crate) async fn run(options: &RunOptions) -> Result<Startup> {
    let repeats = options.pick(1, 3, 9);
    let (lazy_servers, eager_servers) = options.pick((5, 3), (100, 20), (100, 20));
    let (mut nothing, mut lazy, mut eager, mut one, mut ratios) = (vec![], vec![], vec![], vec![], vec![]);
    let home = GatewayDir::new()?;
    fill_catalog(options, &home, lazy_servers).await?;
    let mut started = 0;
    for _ in 0..repeats {
        nothing.push(millis(spawn_baseline()?));
        let gateway = Gateway::start(&options.gripfast, &home, &lazy_config(lazy_servers)?)?;
        lazy.push(millis(first_list(&gateway, lazy_servers * TOOLS).await?));
        started = started.max(gripfast_measure::proc::children_of(gateway.pids()[0]).len());
        gateway.stop()?;
        let many = first_list_cold(options, eager_servers).await?;
        let single = first_list_cold(options, 1).await?;
        ratios.push(many / single);
        eager.push(many);
        one.push(single);
    }
    Ok(Startup {
        nothing: median(nothing.into_iter()),
        lazy_servers,
        lazy: median(lazy.into_iter()),
        started,
        eager_servers,
        eager: median(eager.into_iter()),
        one: median(one.into_iter()),
        ratio: median(ratios.into_iter()),
    })
}

const TOOLS: usize = 5;

/// Runs all servers once, so that their catalogs are stored.
async fn fill_catalog(options: &RunOptions, home: &GatewayDir, servers: usize) -> Result<()> {
    let config: String =
        (0..servers).map(|n| processes::stdio_entry(&name(n), TOOLS)).collect::<Result<_>>()?;
    let gateway = Gateway::start(&options.gripfast, home, &config)?;
    crate::scale::wait_for_tools(&gateway, servers * TOOLS).await?;
    gateway.stop()
}

fn lazy_config(servers: usize) -> Result<String> {
    let entry = |n| Ok(processes::stdio_entry(&name(n), TOOLS)? + "lazy = true\n");
    (0..servers).map(entry).collect()
}

/// Time until the first list. Fails if it is incomplete.
async fn first_list(gateway: &Gateway, tools: usize) -> Result<Duration> {
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    let listed = client.count_tools().await?;
    let took = gateway.began.elapsed();
    if listed == tools {
        Ok(took)
    } else {
        Err(MeasureError::new("the first list", &format!("only {listed} of {tools} tools")))
    }
}

/// Time until the first list of this many sample servers, with an empty state directory.
async fn first_list_cold(options: &RunOptions, servers: usize) -> Result<f64> {
    let home = GatewayDir::new()?;
    let path = options.gripfast.display();
    let entry = |n| format!("[servers.{}]\ncommand = \"{path}\"\nargs = [\"demo-server\"]\n", name(n));
    let config: String = (0..servers).map(entry).collect();
    let gateway = Gateway::start(&options.gripfast, &home, &config)?;
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    let tools = client.count_tools().await?;
    let took = gateway.began.elapsed();
    if tools == 0 || !tools.is_multiple_of(servers) {
        return Err(MeasureError::new(
            "the first list",
            &format!("{tools} tools is not a multiple of {servers} equal servers"),
        ));
    }
    gateway.stop()?;
    Ok(millis(took))
}

fn name(n: usize) -> String {
    if n == 0 { FIRST.to_owned() } else { format!("more{n}") }
}

fn spawn_baseline() -> Result<Duration> {
    let began = Instant::now();
    Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    Ok(began.elapsed())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
