//! Load on one way to a server, for a while: so many calls at once, and how long each took.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::{Client, Question};
use crate::echo::GIVE;
use crate::process::{Process, piped, processor_time};
use crate::{Cannot, Result};

/// What came of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// Microseconds that half of the calls did not exceed.
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) per_second: f64,
    /// Milliseconds of processor time that what stands in between took for 1,000 calls; zero if nothing does.
    pub(crate) processor: f64,
}

/// One way to a server, with those who use it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    way: Way,
    /// What stands in between.
    between: Vec<u32>,
}

#[derive(Debug)]
enum Way {
    Http(Vec<Client>),
    Pipe(Pipe),
}

impl Lane {
    pub(crate) fn http(name: &'static str, clients: Vec<Client>, between: Vec<u32>) -> Self {
        Self { name, way: Way::Http(clients), between }
    }

    pub(crate) fn pipe(name: &'static str, server: &mut Command) -> Result<Self> {
        Ok(Self { name, way: Way::Pipe(Pipe::start(server)?), between: Vec::new() })
    }

    /// Asks `question` for a while, `at_once` calls at a time. At least one is made.
    pub(crate) async fn load(
        &mut self,
        question: Question,
        at_once: usize,
        lasting: Duration,
    ) -> Result<Sample> {
        let (begun, spent) = (Instant::now(), processor_time(&self.between));
        let mut times = match &mut self.way {
            Way::Http(clients) => of_clients(clients, question, at_once, begun + lasting).await?,
            Way::Pipe(pipe) => pipe.load(question, at_once, begun + lasting)?,
        };
        let (took, spent) = (begun.elapsed(), processor_time(&self.between).saturating_sub(spent));
        times.sort_unstable();
        let calls = times.len() as f64;
        let at = |part: f64| {
            let place = ((calls * part).ceil() as usize).clamp(1, times.len()) - 1;
            times[place].as_secs_f64() * 1e6
        };
        Ok(Sample {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            per_second: calls / took.as_secs_f64(),
            processor: spent.as_secs_f64() * 1e6 / calls,
        })
    }
}

async fn of_clients(
    clients: &mut Vec<Client>,
    question: Question,
    at_once: usize,
    end: Instant,
) -> Result<Vec<Duration>> {
    if clients.len() < at_once {
        return Err(Cannot::because("a load", &format!("{at_once} at once need as many clients")));
    }
    let mut calling = JoinSet::new();
    for mut client in clients.drain(..at_once) {
        calling.spawn(async move {
            let mut ready = client.ready(question);
            let mut times = Vec::new();
            loop {
                times.push(client.ask(&mut ready).await?.0);
                if Instant::now() >= end {
                    return Result::Ok((client, times));
                }
            }
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = calling.join_next().await {
        let (client, times) = ended.map_err(|error| Cannot::because("a load", &error))??;
        clients.push(client);
        all.extend(times);
    }
    Ok(all)
}

/// A server on its pipes, with nothing in between.
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

    /// It answers in order, so a queue knows which call an answer is for.
    fn load(&mut self, question: Question, at_once: usize, end: Instant) -> Result<Vec<Duration>> {
        let bytes = match question {
            Question::Give(bytes) | Question::Stream(bytes) => bytes,
            Question::List | Question::File(_) => {
                return Err(Cannot::because("a pipe", &"it is only asked for bytes"));
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
        while let Some(begun) = waiting.pop_front() {
            self.line.clear();
            if self.output.read_until(b'\n', &mut self.line)? <= bytes {
                return Err(Cannot::because("a pipe", &"it answered too little"));
            }
            times.push(begun.elapsed());
            if Instant::now() < end {
                waiting.push_back(Instant::now());
                self.input.write_all(request.as_bytes())?;
            }
        }
        Ok(times)
    }
}
