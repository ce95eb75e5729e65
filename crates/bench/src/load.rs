//! Load on one path to a server with a fixed concurrency: durations, throughput and CPU time.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::{Address, BenchRequest, Client};
use crate::echo::{CONNECTIONS, GIVE};
use crate::process::{Process, piped};
use gripfast_measure::proc::cpu_time;
use gripfast_measure::times::percentile;
use gripfast_measure::{MeasureError, Result};

/// Measurements of one load.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// Median duration in microseconds.
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) per_second: f64,
    /// CPU time of the gateway or proxy in milliseconds per 1,000 calls; zero without one.
    pub(crate) processor: f64,
    /// Connections to the server per call, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<f64>,
}

/// One path to a server, with its clients.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    connection: ServerConnection,
    /// Processes of the gateway or proxy on this path.
    gateway_pids: Vec<u32>,
    /// A client of the server itself, which asks for the number of its connections.
    counter: Option<Client>,
}

#[derive(Debug)]
enum ServerConnection {
    Http(Vec<Client>),
    Pipe(Pipe),
}

impl Lane {
    pub(crate) fn http(name: &'static str, clients: Vec<Client>, between: Vec<u32>) -> Self {
        Self { name, connection: ServerConnection::Http(clients), gateway_pids: between, counter: None }
    }

    /// Counts the connections that the server accepts during a load.
    pub(crate) async fn counting(mut self, server: &Address) -> Result<Self> {
        self.counter = Some(Client::connect_without_session(server).await?);
        Ok(self)
    }

    pub(crate) fn pipe(name: &'static str, server: &mut Command) -> Result<Self> {
        Ok(Self {
            name,
            connection: ServerConnection::Pipe(Pipe::start(server)?),
            gateway_pids: Vec::new(),
            counter: None,
        })
    }

    /// Sends `question` repeatedly for this long with `at_once` concurrent calls. Makes at least one call.
    pub(crate) async fn load(
        &mut self,
        question: BenchRequest,
        at_once: usize,
        lasting: Duration,
    ) -> Result<Sample> {
        let connections = self.connections().await?;
        let (started, spent) = (Instant::now(), cpu_time(&self.gateway_pids));
        let mut times = match &mut self.connection {
            ServerConnection::Http(clients) => {
                load_clients(clients, question, at_once, started + lasting).await?
            }
            ServerConnection::Pipe(pipe) => pipe.load(question, at_once, started + lasting)?,
        };
        let (took, spent) = (started.elapsed(), cpu_time(&self.gateway_pids).saturating_sub(spent));
        let connections = connections.zip(self.connections().await?).map(|(before, after)| after - before);
        times.sort_unstable();
        let calls = times.len() as f64;
        let at = |share: f64| percentile(&times, share).as_secs_f64() * 1e6;
        Ok(Sample {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            per_second: calls / took.as_secs_f64(),
            processor: spent.as_secs_f64() * 1e6 / calls,
            connections: connections.map(|count| count / calls),
        })
    }

    /// Number of connections that the server has accepted.
    async fn connections(&mut self) -> Result<Option<f64>> {
        let Some(counter) = &mut self.counter else { return Ok(None) };
        let count = counter.body_of(BenchRequest::File(&CONNECTIONS[1..])).await?;
        let count = std::str::from_utf8(&count).ok().and_then(|count| count.parse().ok());
        count
            .map(Some)
            .ok_or_else(|| MeasureError::new("number of connections", &"the answer is not a number"))
    }
}

async fn load_clients(
    clients: &mut Vec<Client>,
    question: BenchRequest,
    at_once: usize,
    end: Instant,
) -> Result<Vec<Duration>> {
    if clients.len() < at_once {
        return Err(MeasureError::new("load", &format!("fewer than {at_once} clients")));
    }
    let mut calling = JoinSet::new();
    for mut client in clients.drain(..at_once) {
        calling.spawn(async move {
            let mut ready = client.prepare(question);
            let mut times = Vec::new();
            loop {
                times.push(client.send(&mut ready).await?.0);
                if Instant::now() >= end {
                    return Result::Ok((client, times));
                }
            }
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = calling.join_next().await {
        let (client, times) = ended.map_err(|error| MeasureError::new("load", &error))??;
        clients.push(client);
        all.extend(times);
    }
    Ok(all)
}

/// A stdio server without a gateway.
#[derive(Debug)]
struct Pipe {
    _server: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Pipe {
    fn start(server: &mut Command) -> Result<Self> {
        let mut server = Process::start("a server on its pipes", piped(server))?;
        let (input, output) = server.pipes()?;
        Ok(Self {
            _server: server,
            input,
            output: BufReader::with_capacity(64 << 10, output),
            line: Vec::new(),
        })
    }

    /// The server answers in order, so a queue assigns answers to calls.
    fn load(&mut self, question: BenchRequest, at_once: usize, end: Instant) -> Result<Vec<Duration>> {
        let bytes = match question {
            BenchRequest::Call(bytes) | BenchRequest::Stream(bytes) => bytes,
            BenchRequest::List | BenchRequest::File(_) => {
                return Err(MeasureError::new("stdio server", &"only calls are supported"));
            }
        };
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1000000000,\"method\":\"tools/call\",\"params\":{{\"name\":\"{GIVE}\",\
             \"arguments\":{{\"bytes\":{bytes}}}}}}}\n"
        );
        let (mut waiting, mut times) = (VecDeque::new(), Vec::new());
        for _ in 0..at_once {
            waiting.push_back(Instant::now());
            self.input.write_all(request.as_bytes())?;
        }
        while let Some(started) = waiting.pop_front() {
            self.line.clear();
            if self.output.read_until(b'\n', &mut self.line)? <= bytes {
                return Err(MeasureError::new("stdio server", &"the answer is too short"));
            }
            times.push(started.elapsed());
            if Instant::now() < end {
                waiting.push_back(Instant::now());
                self.input.write_all(request.as_bytes())?;
            }
        }
        Ok(times)
    }
}
