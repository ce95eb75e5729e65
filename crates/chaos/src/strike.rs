//! How each fault strikes, and how it passes. The blow is what the clock starts with; healing is the time until the
//! server could serve again, were it not for the gateway.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fault::{Act, Form, Sickness, Status};
use crate::gateway::LOOK_AGAIN;
use crate::load::Load;
use crate::proc;
use crate::proxy::Weather;
use crate::scene::Scene;
use crate::server::Server;
use crate::stage::TOKENS;
use crate::{Cannot, Result};

/// One strike of a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strike {
    pub(crate) act: Act,
    pub(crate) form: Form,
    /// Which repeat it is: what is swapped is swapped back by the next one.
    pub(crate) number: usize,
    /// How long tools may be away at all.
    pub(crate) limit: Duration,
}

/// When a fault struck: each moment, and when what was hit was gone. The clock starts with the last.
#[derive(Debug)]
pub(crate) struct Blows {
    earlier: Earlier,
    pub(crate) last: Instant,
    over: Instant,
}

type Earlier = Vec<(Instant, Instant)>;

impl Blows {
    /// In order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Instant, Instant)> {
        self.earlier.iter().copied().chain([(self.last, self.over)])
    }
}

/// Between two pieces of a dripping answer.
const DRIP: Duration = Duration::from_millis(20);

impl Strike {
    /// Strikes.
    pub(crate) async fn blow(self, scene: &mut Scene, load: &Load) -> Result<Blows> {
        let mut earlier = Vec::new();
        let last = self.blows(scene, load, &mut earlier).await?;
        Ok(Blows { earlier, last, over: Instant::now() })
    }

    /// Answers with the moment of the last blow.
    async fn blows(self, scene: &mut Scene, load: &Load, earlier: &mut Earlier) -> Result<Instant> {
        match self.act {
            Act::Kill | Act::KillParent | Act::KillOver | Act::SlowStart => {
                proc::kill(scene.pid().await?).await
            }
            Act::KillSpared => proc::kill(scene.spared().await?).await,
            Act::KillTenTimes => {
                self.kill_often(9, scene, load, earlier).await?;
                proc::kill(scene.pid().await?).await
            }
            Act::Relapse(_) => {
                let pid = scene.pid().await?;
                scene.becomes_another(true)?;
                proc::kill(pid).await
            }
            Act::Freeze => {
                proc::signal(scene.pid().await?, Signal::STOP)?;
                Ok(Instant::now())
            }
            Act::Junk => {
                for how in ["junk", "half_frame"].into_iter().cycle().take(20) {
                    // One that hangs has nothing more to show.
                    if tokio::time::timeout(self.limit, through_gateway(load, json!({ "how": how })))
                        .await
                        .is_err()
                    {
                        break;
                    }
                }
                Ok(Instant::now())
            }
            Act::HugeFrame => {
                let size = if self.form == Form::Short { 8 << 20 } else { 100 << 20 };
                scene.misbehaving = begin_through_gateway(load, json!({ "how": "huge_frame", "size": size }));
                Ok(Instant::now())
            }
            Act::FloodStderr => {
                let size = if self.form == Form::Short { 8 << 20 } else { 64 << 20 };
                scene.misbehaving =
                    begin_through_gateway(load, json!({ "how": "stderr_flood", "size": size }));
                Ok(Instant::now())
            }
            Act::Restart(_) => server(scene)?.kill().await,
            Act::ExpireSession => {
                server(scene)?.misbehave(&json!({ "how": "forget_sessions" }), None).await?;
                Ok(Instant::now())
            }
            Act::BreakAnswers(how) => {
                relay(scene)?.break_answers(1, how);
                Ok(Instant::now())
            }
            Act::BlackHole => self.under(scene, Weather::BlackHole),
            Act::Drip => self.under(scene, Weather::Drip(DRIP)),
            Act::Refuse(status) => {
                let (at, ms) = (Instant::now(), self.lasts().as_millis());
                let seconds = self.lasts().as_secs();
                let refuse = match status {
                    Status::Fault => json!({ "how": "refuse", "status": 500, "ms": ms }),
                    // Named by every refusal, so that whoever waits for as long finds it over.
                    Status::TooMany => {
                        json!({ "how": "refuse", "status": 429, "ms": ms, "retry_after": seconds })
                    }
                };
                server(scene)?.misbehave(&refuse, None).await?;
                Ok(at)
            }
            Act::ExpireToken(_) => {
                let [old, new] = self.tokens();
                scene.has_token(new)?;
                self.demand(new, old, scene).await
            }
            Act::LoseToken => {
                let [old, new] = self.tokens();
                self.demand(new, old, scene).await
            }
            Act::LoseName => {
                scene.name_resolves(false)?;
                let at = server(scene)?.kill().await?;
                server(scene)?.start_again().await?;
                Ok(at)
            }
            Act::StartLate => Ok(Instant::now()),
            Act::OtherTools => {
                let pid = scene.pid().await?;
                scene.becomes_another(self.is_another())?;
                match &mut scene.server {
                    None => proc::kill(pid).await,
                    Some(server) => {
                        let at = server.kill().await?;
                        server.start_again().await?;
                        Ok(at)
                    }
                }
            }
            Act::KillGateway => scene.gateway.kill().await,
        }
    }

    /// Lets it pass. Answers with the moment from which only the gateway stands between a caller and its answer.
    pub(crate) async fn heal(self, scene: &mut Scene, struck: Instant) -> Result<Instant> {
        match self.act {
            Act::Kill
            | Act::KillSpared
            | Act::KillTenTimes
            | Act::KillParent
            | Act::KillOver
            | Act::SlowStart
            | Act::Junk
            | Act::ExpireSession
            | Act::ExpireToken(_)
            | Act::OtherTools => Ok(struck),
            Act::HugeFrame | Act::FloodStderr => {
                // Over when the call is; how it ends is no part of what is measured.
                if let Some(call) = scene.misbehaving.take() {
                    let _ = tokio::time::timeout(self.limit, call).await;
                }
                Ok(struck)
            }
            Act::Relapse(_) => {
                tokio::time::sleep(self.lasts()).await;
                scene.becomes_another(false)?;
                Ok(Instant::now())
            }
            Act::Freeze => match &scene.server {
                None => Ok(struck),
                Some(_) => {
                    tokio::time::sleep(self.lasts()).await;
                    proc::signal(scene.pid().await?, Signal::CONT)?;
                    Ok(Instant::now())
                }
            },
            Act::Restart(_) => {
                tokio::time::sleep_until((struck + self.lasts()).into()).await;
                server(scene)?.start_again().await
            }
            Act::StartLate => {
                tokio::time::sleep(self.lasts()).await;
                server(scene)?.start_again().await
            }
            Act::BreakAnswers(_) => {
                while relay(scene)?.broken() <= self.number as u64 && struck.elapsed() < self.limit {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Ok(struck)
            }
            Act::BlackHole => {
                tokio::time::sleep(self.lasts()).await;
                self.under(scene, Weather::Clear)
            }
            Act::Drip => {
                tokio::time::sleep(self.lasts()).await;
                self.under(scene, Weather::Clear)?;
                Ok(struck)
            }
            Act::Refuse(_) => {
                tokio::time::sleep_until((struck + self.lasts()).into()).await;
                Ok(Instant::now())
            }
            Act::LoseToken => {
                tokio::time::sleep(self.lasts()).await;
                scene.has_token(self.tokens()[1])?;
                Ok(Instant::now())
            }
            Act::LoseName => {
                tokio::time::sleep(self.lasts()).await;
                scene.name_resolves(true)?;
                Ok(Instant::now())
            }
            Act::KillGateway => {
                scene.gateway.start_again().await?;
                Ok(Instant::now())
            }
        }
    }

    /// Whether the tools that are listed are those that should be, where that is what the fault is about.
    pub(crate) fn is_listed(self, names: &[String]) -> bool {
        names.iter().any(|name| name.ends_with("extra_2")) == self.is_another()
    }

    /// How long the fault lasts, where that is for us to say.
    fn lasts(self) -> Duration {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        match self.act {
            Act::Relapse(Sickness::Exits | Sickness::CrashLoops) => {
                self.form.span(seconds(2), seconds(5), seconds(60))
            }
            Act::Relapse(Sickness::Mute) => self.form.span(millis(1500), seconds(3), seconds(30)),
            // Less than two seconds, of which a promise is, with the time that it takes to start.
            Act::Restart(_) => self.form.span(seconds(1), millis(1950), millis(1950)),
            _ => self.form.span(seconds(1), seconds(2), seconds(5)),
        }
    }

    async fn kill_often(self, times: usize, scene: &Scene, load: &Load, blows: &mut Earlier) -> Result<()> {
        let every =
            self.form.span(Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(1));
        for _ in 0..times {
            let at = proc::kill(scene.pid().await?).await?;
            blows.push((at, Instant::now()));
            // A machine that is too busy to start a child in time does not make it a crash loop.
            load.until_back(self.limit).await;
            tokio::time::sleep_until((at + every).into()).await;
        }
        Ok(())
    }

    async fn demand(self, token: &str, shown: &str, scene: &mut Scene) -> Result<Instant> {
        let demand = json!({ "how": "demand_token", "name": token });
        server(scene)?.misbehave(&demand, Some(shown)).await?;
        Ok(Instant::now())
    }

    fn under(self, scene: &Scene, weather: Weather) -> Result<Instant> {
        relay(scene)?.set(weather);
        Ok(Instant::now())
    }

    fn is_another(self) -> bool {
        self.number.is_multiple_of(2)
    }

    /// The token that was good until now, and the one that is good from now on.
    fn tokens(self) -> [&'static str; 2] {
        let [first, second] = TOKENS;
        if self.is_another() { [first, second] } else { [second, first] }
    }
}

fn server(scene: &mut Scene) -> Result<&mut Server> {
    scene.server.as_mut().ok_or_else(|| Cannot::because("the server", &"it is a child of the gateway"))
}

fn relay(scene: &Scene) -> Result<&crate::proxy::Proxy> {
    scene.proxy.as_ref().ok_or_else(|| Cannot::because("the relay", &"there is none"))
}

/// Has the server misbehave by a call that goes the way of all calls.
async fn through_gateway(load: &Load, arguments: Value) {
    if let Some(client) = load.client() {
        // Whether it is answered is no part of what is measured.
        let _ = client.call(&load.tools().misbehave, &arguments).await;
    }
}

fn begin_through_gateway(load: &Load, arguments: Value) -> Option<JoinHandle<()>> {
    let (client, tool) = (load.client()?, load.tools().misbehave.clone());
    Some(tokio::spawn(async move { drop(client.call(&tool, &arguments).await) }))
}
