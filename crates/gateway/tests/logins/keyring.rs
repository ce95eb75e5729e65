//! The keyring of a real desktop, as far as a login is sealed with a key in it.

use super::Desk;
use gripfast_testkit::authority::{Authority, Manners};
use gripfast_testkit::keyring::{Keyring, Running};

/// E04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_a_real_keyring_keeps_the_key_and_is_waited_for_while_it_is_locked() {
    if !Keyring::Gnome.require() {
        return;
    }
    let mut keyring = Running::start(Keyring::Gnome);
    let authority = Authority::start(Manners::default()).await;
    let mut desk = Desk::with(&authority);
    desk.seal_by_keyring();
    desk.env = keyring.env();
    desk.log_in().await;
    assert!(!desk.dir.path().join("logins/key").exists());
    let gateways = [desk.serve(), desk.serve()];
    gateways.iter().for_each(|gateway| desk.until_state(gateway, "ready"));
    drop(gateways);

    keyring.lock();
    let gateway = desk.serve();
    desk.until_said(&gateway, "the keyring is locked");
    assert!(!desk.status(&gateway).contains("needs_login"), "nobody has to log in anew");
    keyring.unlock();
    desk.until_state(&gateway, "ready");
    assert!(desk.call(&gateway).status.success());
    assert_eq!(authority.counts().thefts, 0);
}
