//! Device flow logins.

use crate::auth_test::{AuthTest, NAME, TIMEOUT, call, wait_until};
use gripfast::State;
use gripfast::auth::{DeviceLogin, LoginError};
use gripfast_testkit::authority::{AuthorityOptions, fetch};
use std::time::Duration;

async fn setup() -> AuthTest {
    let device_codes_last = Some(Duration::from_secs(600));
    AuthTest::new(AuthorityOptions { device_code_lifetime: device_codes_last, ..AuthorityOptions::default() })
        .await
}

async fn begin(setup: &AuthTest) -> Result<DeviceLogin, LoginError> {
    DeviceLogin::begin(NAME, &setup.spec(), &setup.logins()).await
}

async fn finish(login: DeviceLogin) -> Result<(), LoginError> {
    tokio::time::timeout(TIMEOUT, login.finish()).await.expect("it hangs")
}

#[tokio::test]
async fn e04_a_device_code_login_succeeds_and_renews_itself() {
    let setup = setup().await;
    let host = setup.host();
    wait_until(&host, State::NeedsLogin).await;
    let login = begin(&setup).await.unwrap();
    assert!(login.verification_uri_complete().unwrap().ends_with(login.user_code()));
    let page = login.verification_uri_complete().unwrap().to_owned();
    let agreeing = async {
        // Not before the first poll.
        while setup.authority.counts().device_polls == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fetch(&page).await;
    };
    // A login that fails early must not wait for the approval.
    let finishing = async { finish(login).await.unwrap() };
    tokio::join!(finishing, agreeing);
    assert_eq!(setup.authority.counts().device_polls, 2, "it polls until the approval");
    wait_until(&host, State::Ready).await;
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 1);
}

#[tokio::test]
async fn e04_a_denied_or_expired_device_code_is_no_login() {
    let setup = setup().await;
    let login = begin(&setup).await.unwrap();
    fetch(&format!("{}&no", login.verification_uri_complete().unwrap())).await;
    let denied = finish(login).await.unwrap_err();
    assert_eq!(denied.to_string(), "the login was denied");
    let short = AuthorityOptions {
        device_code_lifetime: Some(Duration::from_secs(2)),
        ..AuthorityOptions::default()
    };
    let setup = AuthTest::new(short).await;
    let expired = finish(begin(&setup).await.unwrap()).await.unwrap_err();
    assert_eq!(expired.to_string(), "the code was not entered in time");
    wait_until(&setup.host(), State::NeedsLogin).await;
}

#[tokio::test]
async fn a_server_without_device_flow_reports_that() {
    let setup = AuthTest::new(AuthorityOptions::default()).await;
    assert!(matches!(begin(&setup).await.err(), Some(LoginError::NotOffered(_))));
}
