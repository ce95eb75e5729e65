//! Applies faults and ends them. Recovery time is measured from the end of a fault: the moment when the server itself
//! could serve again.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::environment::Testbed;
use crate::fault::{FaultAction, RunLength, Status, SuccessorFault};
use crate::fault_setup::TOKENS;
use crate::gateway::POLL_INTERVAL;
use crate::load::Load;
use crate::proxy::ProxyMode;
use crate::server::Server;
use gripfast_measure::proc;
use gripfast_measure::{MeasureError, Result};

/// One strike of a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strike {
    pub(crate) action: FaultAction,
    pub(crate) length: RunLength,
    /// Number of the strike. Faults that replace something restore it in the next strike.
    pub(crate) number: usize,
    /// Time limit for tools to come back.
    pub(crate) limit: Duration,
}

/// Times of the strikes of a fault, each with the time when its target was gone. Measurement starts with the last
/// one.
#[derive(Debug)]
pub(crate) struct Strikes {
    earlier: Earlier,
    pub(crate) last: Instant,
    ended: Instant,
}

type Earlier = Vec<(Instant, Instant)>;

impl Strikes {
    /// All strikes, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Instant, Instant)> {
        self.earlier.iter().copied().chain([(self.last, self.ended)])
    }
}

/// Pause between the pieces of a slow answer.
const TRICKLE_INTERVAL: Duration = Duration::from_millis(20);

impl Strike {
    /// Applies the fault.
    pub(crate) async fn apply(self, testbed: &mut Testbed, load: &Load) -> Result<Strikes> {
        let mut earlier = Vec::new();
        let last = self.apply_last(testbed, load, &mut earlier).await?;
        Ok(Strikes { earlier, last, ended: Instant::now() })
    }

    /// Applies the fault and returns the time of the last strike.
    async fn apply_last(self, testbed: &mut Testbed, load: &Load, earlier: &mut Earlier) -> Result<Instant> {
        match self.action {
            FaultAction::Kill
            | FaultAction::KillParent
            | FaultAction::KillOnReturn
            | FaultAction::SlowStart => proc::kill(testbed.server_pid().await?).await,
            FaultAction::KillWithStandby => proc::kill(testbed.pid_with_standby().await?).await,
            FaultAction::KillTenTimes => {
                self.kill_repeatedly(9, testbed, load, earlier).await?;
                proc::kill(testbed.server_pid().await?).await
            }
            FaultAction::KillWithFaultySuccessor(_) => {
                let pid = testbed.server_pid().await?;
                testbed.use_other_server(true)?;
                proc::kill(pid).await
            }
            FaultAction::Freeze => {
                proc::signal(testbed.server_pid().await?, Signal::STOP)?;
                Ok(Instant::now())
            }
            FaultAction::Junk => {
                for how in ["junk", "half_frame"].into_iter().cycle().take(20) {
                    // A call that hangs has shown the effect; more calls add nothing.
                    if tokio::time::timeout(
                        self.limit,
                        misbehave_through_gateway(load, json!({ "how": how })),
                    )
                    .await
                    .is_err()
                    {
                        break;
                    }
                }
                Ok(Instant::now())
            }
            FaultAction::HugeFrame => {
                let size = if self.length == RunLength::Short { 8 << 20 } else { 100 << 20 };
                testbed.misbehaving = spawn_misbehave(load, json!({ "how": "huge_frame", "size": size }));
                Ok(Instant::now())
            }
            FaultAction::FloodStderr => {
                let size = if self.length == RunLength::Short { 8 << 20 } else { 64 << 20 };
                testbed.misbehaving = spawn_misbehave(load, json!({ "how": "stderr_flood", "size": size }));
                Ok(Instant::now())
            }
            FaultAction::Restart(_) => server(testbed)?.kill().await,
            FaultAction::ExpireSession => {
                server(testbed)?.misbehave(&json!({ "how": "forget_sessions" }), None).await?;
                Ok(Instant::now())
            }
            FaultAction::BreakAnswers(how) => {
                proxy(testbed)?.break_answers(1, how);
                Ok(Instant::now())
            }
            FaultAction::BlackHole => self.set_proxy_mode(testbed, ProxyMode::BlackHole),
            FaultAction::TrickleAnswers => self.set_proxy_mode(testbed, ProxyMode::Trickle(TRICKLE_INTERVAL)),
            FaultAction::Refuse(status) => {
                let (at, ms) = (Instant::now(), self.duration().as_millis());
                let seconds = self.duration().as_secs();
                let refuse = match status {
                    Status::InternalError => json!({ "how": "refuse", "status": 500, "ms": ms }),
                    // Every refusal has the full duration, so a client that waits that long finds the fault over.
                    Status::TooManyRequests => {
                        json!({ "how": "refuse", "status": 429, "ms": ms, "retry_after": seconds })
                    }
                };
                server(testbed)?.misbehave(&refuse, None).await?;
                Ok(at)
            }
            FaultAction::ExpireToken(_) => {
                let [old, new] = self.tokens();
                testbed.set_token(new)?;
                self.demand_token(new, old, testbed).await
            }
            FaultAction::LoseToken => {
                let [old, new] = self.tokens();
                self.demand_token(new, old, testbed).await
            }
            FaultAction::FailDns => {
                testbed.set_name_resolves(false)?;
                let at = server(testbed)?.kill().await?;
                server(testbed)?.restart().await?;
                Ok(at)
            }
            FaultAction::StartLate => Ok(Instant::now()),
            FaultAction::ReplaceTools => {
                let pid = testbed.server_pid().await?;
                testbed.use_other_server(self.is_other_server())?;
                match &mut testbed.server {
                    None => proc::kill(pid).await,
                    Some(server) => {
                        let at = server.kill().await?;
                        server.restart().await?;
                        Ok(at)
                    }
                }
            }
            FaultAction::KillGateway => testbed.gateway.kill().await,
        }
    }

    /// Ends the fault. Returns the time from which only the gateway delays answers.
    pub(crate) async fn heal(self, testbed: &mut Testbed, struck: Instant) -> Result<Instant> {
        match self.action {
            FaultAction::Kill
            | FaultAction::KillWithStandby
            | FaultAction::KillTenTimes
            | FaultAction::KillParent
            | FaultAction::KillOnReturn
            | FaultAction::SlowStart
            | FaultAction::Junk
            | FaultAction::ExpireSession
            | FaultAction::ExpireToken(_)
            | FaultAction::ReplaceTools => Ok(struck),
            FaultAction::HugeFrame | FaultAction::FloodStderr => {
                // The fault ends with the call; its result is not measured.
                if let Some(call) = testbed.misbehaving.take() {
                    let _ = tokio::time::timeout(self.limit, call).await;
                }
                Ok(struck)
            }
            FaultAction::KillWithFaultySuccessor(_) => {
                tokio::time::sleep(self.duration()).await;
                testbed.use_other_server(false)?;
                Ok(Instant::now())
            }
            FaultAction::Freeze => match &testbed.server {
                None => Ok(struck),
                Some(_) => {
                    tokio::time::sleep(self.duration()).await;
                    proc::signal(testbed.server_pid().await?, Signal::CONT)?;
                    Ok(Instant::now())
                }
            },
            FaultAction::Restart(_) => {
                tokio::time::sleep_until((struck + self.duration()).into()).await;
                server(testbed)?.restart().await
            }
            FaultAction::StartLate => {
                tokio::time::sleep(self.duration()).await;
                server(testbed)?.restart().await
            }
            FaultAction::BreakAnswers(_) => {
                while proxy(testbed)?.broken() <= self.number as u64 && struck.elapsed() < self.limit {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Ok(struck)
            }
            FaultAction::BlackHole => {
                tokio::time::sleep(self.duration()).await;
                self.set_proxy_mode(testbed, ProxyMode::PassThrough)
            }
            FaultAction::TrickleAnswers => {
                tokio::time::sleep(self.duration()).await;
                self.set_proxy_mode(testbed, ProxyMode::PassThrough)?;
                Ok(struck)
            }
            FaultAction::Refuse(_) => {
                tokio::time::sleep_until((struck + self.duration()).into()).await;
                Ok(Instant::now())
            }
            FaultAction::LoseToken => {
                tokio::time::sleep(self.duration()).await;
                testbed.set_token(self.tokens()[1])?;
                Ok(Instant::now())
            }
            FaultAction::FailDns => {
                tokio::time::sleep(self.duration()).await;
                testbed.set_name_resolves(true)?;
                Ok(Instant::now())
            }
            FaultAction::KillGateway => {
                testbed.gateway.restart().await?;
                Ok(Instant::now())
            }
        }
    }

    /// True if the listed tools are those of the current server.
    pub(crate) fn is_listed(self, names: &[String]) -> bool {
        names.iter().any(|name| name.ends_with("extra_2")) == self.is_other_server()
    }

    /// Duration of the fault, if the harness determines it.
    fn duration(self) -> Duration {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        match self.action {
            FaultAction::KillWithFaultySuccessor(SuccessorFault::Exits | SuccessorFault::CrashLoops) => {
                self.length.pick(seconds(2), seconds(5), seconds(60))
            }
            FaultAction::KillWithFaultySuccessor(SuccessorFault::NeverHandshakes) => {
                self.length.pick(millis(1500), seconds(3), seconds(30))
            }
            // Less than the two seconds of the goal, including the start of the server.
            FaultAction::Restart(_) => self.length.pick(seconds(1), millis(1950), millis(1950)),
            _ => self.length.pick(seconds(1), seconds(2), seconds(5)),
        }
    }

    async fn kill_repeatedly(
        self,
        times: usize,
        testbed: &Testbed,
        load: &Load,
        strikes: &mut Earlier,
    ) -> Result<()> {
        let every =
            self.length.pick(Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(1));
        for _ in 0..times {
            let at = proc::kill(testbed.server_pid().await?).await?;
            strikes.push((at, Instant::now()));
            // Wait until it is back: a busy machine that starts a child late must not cause a crash loop.
            load.wait_until_back(self.limit).await;
            tokio::time::sleep_until((at + every).into()).await;
        }
        Ok(())
    }

    async fn demand_token(self, token: &str, shown: &str, testbed: &mut Testbed) -> Result<Instant> {
        let demand = json!({ "how": "demand_token", "name": token });
        server(testbed)?.misbehave(&demand, Some(shown)).await?;
        Ok(Instant::now())
    }

    fn set_proxy_mode(self, testbed: &Testbed, mode: ProxyMode) -> Result<Instant> {
        proxy(testbed)?.set_mode(mode);
        Ok(Instant::now())
    }

    fn is_other_server(self) -> bool {
        self.number.is_multiple_of(2)
    }

    /// Token that was valid until now, and token that is valid from now on.
    fn tokens(self) -> [&'static str; 2] {
        let [first, second] = TOKENS;
        if self.is_other_server() { [first, second] } else { [second, first] }
    }
}

fn server(testbed: &mut Testbed) -> Result<&mut Server> {
    testbed
        .server
        .as_mut()
        .ok_or_else(|| MeasureError::new("the server", &"it is a child of the gateway, not a remote server"))
}

fn proxy(testbed: &Testbed) -> Result<&crate::proxy::Proxy> {
    testbed.proxy.as_ref().ok_or_else(|| MeasureError::new("the proxy", &"this fault has no proxy"))
}

/// Makes the server misbehave by a call through the gateway.
async fn misbehave_through_gateway(load: &Load, arguments: Value) {
    if let Some(client) = load.client() {
        // The result of this call is not measured.
        let _ = client.call(&load.tools().misbehave, &arguments).await;
    }
}

fn spawn_misbehave(load: &Load, arguments: Value) -> Option<JoinHandle<()>> {
    let (client, tool) = (load.client()?, load.tools().misbehave.clone());
    Some(tokio::spawn(async move { drop(client.call(&tool, &arguments).await) }))
}
