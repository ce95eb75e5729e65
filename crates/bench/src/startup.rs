//! From exec to the first answered `tools/list` that has everything.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::client::{Client, Era};
use crate::order::Order;
use crate::stage::{self, FIRST, Gateway, Home};
use crate::{Cannot, Result, median};

/// Milliseconds, the medians over the repeats.
#[derive(Debug, Serialize)]
pub(crate) struct Startup {
    /// A process that does nothing.
    pub(crate) nothing: f64,
    pub(crate) lazy_servers: usize,
    /// Lazy servers whose catalogs are known from the last run.
    pub(crate) lazy: f64,
    /// How many of them were started for the list.
    pub(crate) started: usize,
    pub(crate) eager_servers: usize,
    /// Sample servers that are all started, and listed for the first time.
    pub(crate) eager: f64,
    /// The same with one of them.
    pub(crate) one: f64,
    /// The median over the repeats of `eager` over `one`.
    pub(crate) ratio: f64,
}

pub(crate) async fn run(order: &Order) -> Result<Startup> {
    let repeats = order.pick(1, 3, 9);
    let (lazy_servers, eager_servers) = order.pick((5, 3), (100, 20), (100, 20));
    let (mut nothing, mut lazy, mut eager, mut one, mut ratios) = (vec![], vec![], vec![], vec![], vec![]);
    let home = Home::new()?;
    remember(order, &home, lazy_servers).await?;
    let mut started = 0;
    for _ in 0..repeats {
        nothing.push(millis(run_true()?));
        let gateway = Gateway::start(&order.gripfast, &home, &lazily(lazy_servers)?)?;
        lazy.push(millis(first_list(&gateway, lazy_servers * TOOLS).await?));
        started = started.max(crate::process::children(gateway.pids()[0]).len());
        gateway.stop()?;
        let many = first_of_fresh(order, eager_servers).await?;
        let single = first_of_fresh(order, 1).await?;
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
async fn remember(order: &Order, home: &Home, servers: usize) -> Result<()> {
    let config: String =
        (0..servers).map(|n| stage::entry_on_pipes(&name(n), TOOLS)).collect::<Result<_>>()?;
    let gateway = Gateway::start(&order.gripfast, home, &config)?;
    crate::scale::complete(&gateway, servers * TOOLS).await?;
    gateway.stop()
}

fn lazily(servers: usize) -> Result<String> {
    let entry = |n| Ok(stage::entry_on_pipes(&name(n), TOOLS)? + "lazy = true\n");
    (0..servers).map(entry).collect()
}

/// The time until the first list, which has to be complete.
async fn first_list(gateway: &Gateway, tools: usize) -> Result<Duration> {
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    let listed = client.count_tools().await?;
    let took = gateway.began.elapsed();
    if listed == tools {
        Ok(took)
    } else {
        Err(Cannot::because("the first list", &format!("it has {listed} of {tools} tools")))
    }
}

/// So many sample servers, in a state directory that knows none of them.
async fn first_of_fresh(order: &Order, servers: usize) -> Result<f64> {
    let home = Home::new()?;
    let path = order.gripfast.display();
    let entry = |n| format!("[servers.{}]\ncommand = \"{path}\"\nargs = [\"demo-server\"]\n", name(n));
    let config: String = (0..servers).map(entry).collect();
    let gateway = Gateway::start(&order.gripfast, &home, &config)?;
    let mut client = Client::connect(&gateway.address, Era::Legacy).await?;
    let tools = client.count_tools().await?;
    let took = gateway.began.elapsed();
    if tools == 0 || !tools.is_multiple_of(servers) {
        return Err(Cannot::because("the first list", &format!("{tools} tools of {servers} servers alike")));
    }
    gateway.stop()?;
    Ok(millis(took))
}

fn name(n: usize) -> String {
    if n == 0 { FIRST.to_owned() } else { format!("more{n}") }
}

fn run_true() -> Result<Duration> {
    let began = Instant::now();
    Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    Ok(began.elapsed())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
