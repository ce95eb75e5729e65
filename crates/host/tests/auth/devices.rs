//! Logins on another device.

use crate::stage::{NAME, STUCK, Stage, call, until};
use gripfast::State;
use gripfast::auth::{DeviceLogin, LoginError};
use gripfast_testkit::authority::{Manners, fetch};
use std::time::Duration;

async fn stage() -> Stage {
    let device_codes_last = Some(Duration::from_secs(600));
    Stage::with(Manners { device_codes_last, ..Manners::default() }).await
}

async fn begin(stage: &Stage) -> Result<DeviceLogin, LoginError> {
    DeviceLogin::begin(NAME, &stage.spec(), &stage.logins()).await
}

async fn finish(login: DeviceLogin) -> Result<(), LoginError> {
    tokio::time::timeout(STUCK, login.finish()).await.expect("it hangs")
}

#[tokio::test]
async fn e04_a_code_that_is_entered_on_another_device_logs_in_and_the_login_renews_itself() {
    let stage = stage().await;
    let host = stage.host();
    until(&host, State::NeedsLogin).await;
    let login = begin(&stage).await.unwrap();
    assert!(login.page_with_code().unwrap().ends_with(login.code()));
    let page = login.page_with_code().unwrap().to_owned();
    let agreeing = async {
        // Not before it was asked for the first time.
        while stage.authority.counts().device_polls == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fetch(&page).await;
    };
    // A login that fails before that must not wait for somebody who agrees.
    let finishing = async { finish(login).await.unwrap() };
    tokio::join!(finishing, agreeing);
    assert_eq!(stage.authority.counts().device_polls, 2, "it is patient, and asks until somebody has agreed");
    until(&host, State::Ready).await;
    stage.authority.end_tokens();
    call(&host).await.unwrap();
    assert_eq!(stage.authority.counts().refreshes, 1);
}

#[tokio::test]
async fn e04_a_code_that_is_denied_or_not_entered_in_time_is_no_login() {
    let stage = stage().await;
    let login = begin(&stage).await.unwrap();
    fetch(&format!("{}&no", login.page_with_code().unwrap())).await;
    let denied = finish(login).await.unwrap_err();
    assert_eq!(denied.to_string(), "the login was denied");
    let short = Manners { device_codes_last: Some(Duration::from_secs(2)), ..Manners::default() };
    let stage = Stage::with(short).await;
    let expired = finish(begin(&stage).await.unwrap()).await.unwrap_err();
    assert_eq!(expired.to_string(), "nobody has entered the code in time");
    until(&stage.host(), State::NeedsLogin).await;
}

#[tokio::test]
async fn a_server_without_logins_by_a_code_says_so() {
    let stage = Stage::with(Manners::default()).await;
    assert!(matches!(begin(&stage).await.err(), Some(LoginError::NotOffered(_))));
}
