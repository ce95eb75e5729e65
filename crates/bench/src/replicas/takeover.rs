//! Loss of a replica with many sessions: time until the last session is served, and memory in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use super::service::Service;
use crate::client::{Address, Client};
use crate::options::RunOptions;
use crate::processes::Server;
use gripfast_measure::{Era, MeasureError, Result, proc};

#[derive(Debug, Serialize)]
pub(crate) struct TakeoverCost {
    pub(crate) sessions: usize,
    /// Milliseconds from the kill until the last session was served.
    pub(crate) last_served: f64,
    /// Answers 503 meanwhile, after which the client tried again.
    pub(crate) retried: usize,
    /// Bytes of the store per session that was taken over.
    pub(crate) memory: f64,
    /// Processor time of both other replicas in microseconds per session, with the call.
    pub(crate) processor: f64,
    /// Processor time of the store in microseconds per session.
    pub(crate) store_processor: f64,
}

/// Clients that call at the same time.
const WORKERS: usize = 64;
/// Pause after an answer 503, much less than it asks for, so that the time of the service is measured.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Limit for the last session.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) async fn run(options: &RunOptions, server: &Server) -> Result<TakeoverCost> {
    let count = options.pick(100, 2_000, 10_000);
    let mut service = Service::start(options, server, 3).await?;
    let sessions = Arc::new(open_sessions(&service.gateway(0)?.address.clone(), count).await?);
    let others = [service.gateway(1)?.address.clone(), service.gateway(2)?.address.clone()];
    let store: Vec<u32> = service.store.pid().into_iter().collect();
    let memory = service.store.used_memory()?;
    let killed = service.kill(0);
    let (pids, spent, spent_by_store) =
        (service.pids(), proc::cpu_time(&service.pids()), proc::cpu_time(&store));
    let (next, retried) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let client = Client::connect_without_session(&others[worker % others.len()]).await?;
        workers.spawn(serve(client, Arc::clone(&sessions), Arc::clone(&next), Arc::clone(&retried)));
    }
    let served = async {
        while let Some(ended) = workers.join_next().await {
            ended.map_err(|error| MeasureError::new("takeovers", &error))??;
        }
        Ok(killed.elapsed())
    };
    let served: Result<Duration> = tokio::time::timeout(LIMIT, served)
        .await
        .map_err(|_| MeasureError::new("takeovers", &"not all sessions are served after two minutes"))?;
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / count as f64;
    Ok(TakeoverCost {
        sessions: count,
        last_served: served?.as_secs_f64() * 1e3,
        retried: retried.load(Ordering::Relaxed),
        memory: service.store.used_memory()?.saturating_sub(memory) as f64 / count as f64,
        processor: each(proc::cpu_time(&pids).saturating_sub(spent)),
        store_processor: each(proc::cpu_time(&store).saturating_sub(spent_by_store)),
    })
}

/// Opens this many sessions and returns their ids.
async fn open_sessions(address: &Address, count: usize) -> Result<Vec<String>> {
    let mut client = Client::connect(address, Era::Legacy).await?;
    let mut sessions = Vec::with_capacity(count);
    while sessions.len() < count {
        client.initialize().await?;
        sessions.extend(client.session().map(str::to_owned));
    }
    Ok(sessions)
}

/// Makes one call of each session that no other worker has taken.
async fn serve(
    mut client: Client,
    sessions: Arc<Vec<String>>,
    next: Arc<AtomicUsize>,
    retried: Arc<AtomicUsize>,
) -> Result<()> {
    while let Some(session) = sessions.get(next.fetch_add(1, Ordering::Relaxed)) {
        let began = Instant::now();
        loop {
            match client.call_as(session).await? {
                200 => break,
                503 if began.elapsed() < LIMIT => {
                    retried.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                status => {
                    return Err(MeasureError::new("a session after the kill", &format!("status {status}")));
                }
            }
        }
    }
    Ok(())
}
