//! Logins sealed with a key in a real desktop keyring.

use super::Workspace;
use gripfast_testkit::authority::{Authority, AuthorityOptions};
use gripfast_testkit::keyring::{Keyring, RunningKeyring};

/// E04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_a_real_keyring_keeps_the_key_and_is_waited_for_while_it_is_locked() {
    if !Keyring::Gnome.require() {
        return;
    }
    let mut keyring = RunningKeyring::start(Keyring::Gnome);
    let authority = Authority::start(AuthorityOptions::default()).await;
    let mut workspace = Workspace::with(&authority);
    workspace.seal_by_keyring();
    workspace.env = keyring.env();
    workspace.log_in().await;
    assert!(!workspace.dir.path().join("logins/key").exists());
    let gateways = [workspace.serve(), workspace.serve()];
    gateways.iter().for_each(|gateway| workspace.until_state(gateway, "ready"));
    drop(gateways);

    keyring.lock();
    let gateway = workspace.serve();
    workspace.until_said(&gateway, "the keyring is locked");
    assert!(!workspace.status(&gateway).contains("needs_login"), "no new login is needed");
    keyring.unlock();
    workspace.until_state(&gateway, "ready");
    assert!(workspace.call(&gateway).status.success());
    assert_eq!(authority.counts().reuse_detected, 0);
}
