//! A token that two replicas want to refresh. The authorization server ends a login whose refresh token is sent twice,
//! and its counts decide.

use std::process::Stdio;
use std::time::{Duration, Instant};

use gripfast_testkit::authority::{Authority, Counts, complete_authorization};
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::service::{NAMES, Service};
use super::strike::{RECOVERY_LIMIT, StrikeTimes, UNDER_FAULT, others, until};
use crate::client::{Client, Reply};
use crate::load::Load;
use crate::proxy::ProxyMode;
use gripfast_measure::{Era, MeasureError, Result};
use tokio::task::JoinHandle;

/// Name of the server that needs a login.
pub(super) const SERVER: &str = "notes";
/// Delay of the store's replies, in which a replica is stopped.
const REPLY_DELAY: Duration = Duration::from_millis(400);

/// Logs in at the machine of a replica, and waits until all replicas use the login.
pub(super) async fn log_in(service: &Service, replica: usize) -> Result<()> {
    let fail = |what: &str| MeasureError::new("gripfast login", &what);
    let mut command = service.command_at(replica, &["login", SERVER, "--no-browser"]);
    let mut login = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
    let stdout = login.stdout.take().ok_or_else(|| fail("stdout is not piped"))?;
    let url = BufReader::new(stdout).lines().next_line().await?.ok_or_else(|| fail("it prints no URL"))?;
    complete_authorization(url.trim()).await;
    if !login.wait().await?.success() {
        return Err(fail("it failed"));
    }
    for replica in 0..NAMES.len() {
        until_state(service, replica, "ready").await?;
    }
    Ok(())
}

/// Stops the replica between its right to refresh and its request, until another replica has refreshed the token.
pub(super) async fn stop_before_request(service: &mut Service, load: &Load) -> Result<StrikeTimes> {
    let target = service.target;
    let before = counts(service)?;
    // Its store is slow: it learns late that it may refresh the token.
    service.store_proxies[target].set_mode(ProxyMode::Delay(REPLY_DELAY));
    authority(service)?.expire_access_tokens();
    let stopped_call = call(service, target)?;
    until("a replica may refresh the token", async || leases(service).is_ok_and(|count| count > 0)).await?;
    let began = Instant::now();
    // It learns of its right after one delay, asks the store about its replicas, and then for the login once more. After
    // four delays that request is at the store: the replica is stopped before it gets the answer and confirms its right.
    tokio::time::sleep(REPLY_DELAY * 4).await;
    service.signal(target, Signal::STOP)?;
    let struck = Instant::now();
    if struck - began > REPLY_DELAY * 5 {
        // This process was too slow, and the replica may have asked for the confirmation. It does not get it.
        service.store_proxies[target].set_mode(ProxyMode::BlackHole);
    }
    let sent = |counts: Counts| counts.presented_refresh_tokens - before.presented_refresh_tokens;
    let mut others_calls = Vec::new();
    for other in others(target) {
        others_calls.push(call(service, other)?);
    }
    // Shorter than the time limit of the request for the login.
    tokio::time::sleep(UNDER_FAULT / 2).await;
    let early = sent(counts(service)?);
    end_leases(service)?;
    for call in others_calls {
        let answered = call.await.is_ok_and(|answered| answered);
        service.check(answered, "a call through another replica was not answered");
    }
    service.store_proxies[target].set_mode(ProxyMode::PassThrough);
    service.signal(target, Signal::CONT)?;
    let answered = stopped_call.await.is_ok_and(|answered| answered);
    let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
    service.check(early == 0, "a refresh token was sent while a stopped replica had the right to send it");
    service.check(answered, "the call through the stopped replica was not answered");
    let after = counts(service)?;
    service.check(
        sent(after) == 1 && after.reuse_detected == before.reuse_detected,
        &format!("refresh tokens were sent more than once: {after:?} after {before:?}"),
    );
    Ok(StrikeTimes { struck, back })
}

/// Kills the replica that has refreshed the token, before it gets the answer. The new token is lost, and so is the login.
pub(super) async fn kill_after_answer(service: &mut Service, load: &Load) -> Result<StrikeTimes> {
    let target = service.target;
    let before = counts(service)?;
    authority(service)?.hold_token_answers(true);
    authority(service)?.expire_access_tokens();
    let killed_call = call(service, target)?;
    let refreshed = |service: &Service| counts(service).map(|now| now.refreshes - before.refreshes);
    until("the token is refreshed", async || refreshed(service).is_ok_and(|count| count == 1)).await?;
    let struck = service.kill(target).await?;
    killed_call.abort();
    authority(service)?.hold_token_answers(false);
    let other = others(target)[0];
    let early_call = call(service, other)?;
    let back = load.wait_until_all_back(RECOVERY_LIMIT).await;
    tokio::time::sleep(UNDER_FAULT).await;
    let sent = |counts: Counts| counts.presented_refresh_tokens - before.presented_refresh_tokens;
    let early = sent(counts(service)?);
    service.check(early == 1, "a refresh token was sent while a lost replica had the right to send it");
    service.check(leases(service)? > 0, "the right of a lost replica to refresh a token ended early");
    end_leases(service)?;
    let answered = early_call.await.is_ok_and(|answered| answered);
    service.check(!answered, "a call was answered without a valid token");
    until_state(service, other, "needs_login").await?;
    let after = counts(service)?;
    service.check(
        sent(after) <= 1 + others(target).len() && refreshed(service)? == 1,
        &format!("refresh tokens were sent too often: {after:?} after {before:?}"),
    );
    service.restart(target).await?;
    service.until_complete().await?;
    log_in(service, other).await?;
    for replica in 0..NAMES.len() {
        let answered = call(service, replica)?.await.is_ok_and(|answered| answered);
        service.check(answered, "a replica does not use the new login");
    }
    Ok(StrikeTimes { struck, back })
}

fn authority(service: &Service) -> Result<&Authority> {
    service.authority.as_ref().ok_or_else(|| MeasureError::new("the authorization server", &"there is none"))
}

fn counts(service: &Service) -> Result<Counts> {
    Ok(authority(service)?.counts())
}

/// Starts a call of the server through one replica. Its result is true if it is answered.
fn call(service: &Service, replica: usize) -> Result<JoinHandle<bool>> {
    let client = Client::new(&service.replica_urls()[replica], Era::Modern)?;
    Ok(tokio::spawn(async move {
        let reply = client.call(&format!("{SERVER}__whoami"), &json!({})).await;
        matches!(reply, Reply::Result(result) if result["isError"] != true)
    }))
}

const LEASES: &str = "{gripfast}:lease:refresh:*";

/// Number of rights to refresh a token in the store.
fn leases(service: &Service) -> Result<usize> {
    let count = service.store.command(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", LEASES])?;
    Ok(count.parse().unwrap_or(0))
}

/// Ends the rights to refresh a token, as if their time was over.
fn end_leases(service: &Service) -> Result<()> {
    let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end return 0";
    service.store.command(&["EVAL", script, "0", LEASES]).map(drop)
}

async fn until_state(service: &Service, replica: usize, state: &str) -> Result<()> {
    let what = format!("the server is in the state {state} at {}", NAMES[replica]);
    until(&what, async || service.seen_by(replica, SERVER).await["state"] == state).await
}
