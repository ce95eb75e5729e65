//! Dashboard in a real Chromium, served by a running gateway. The steps of each test are in `drive.mjs`; screenshots
//! are written to `target/browser`.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod test_gateway;
mod test_service;

use gripfast_testkit::authority::{Authority, AuthorityOptions};
use gripfast_testkit::browser::Browser;
use gripfast_testkit::store_server::StoreServer;
use test_gateway::TestGateway;
use test_service::TestService;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleet_shows_a_crash_and_the_recovery_live() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("crash").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_sign_in_link_signs_in_one_browser_and_leaves_no_secret_behind() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("signin").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_gone_is_shown_grey_and_not_as_healthy() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("lost").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_narrow_screen_tables_show_that_they_scroll() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("narrow").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_array_of_objects_is_filled_in_item_by_item() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("objects").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_button_reconnects_a_server_once_the_token_is_given() {
    if Browser::Chromium.require() {
        let gateway = TestGateway::start().await;
        let before = gateway.pid("steady");
        gateway.run_story("reconnect").await;
        assert_ne!(gateway.pid("steady"), before, "it has another process");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_from_another_machine_the_page_asks_for_the_token_and_then_follows() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("elsewhere").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ribbon_shows_the_last_day_to_scale_and_in_words() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("ribbon").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_calls_a_tool() {
    if Browser::Chromium.require() {
        let gateway = TestGateway::start().await;
        gateway.run_story("form").await;
        assert_eq!(
            gateway.host.server_status("steady").unwrap().calls.calls,
            2,
            "one that adds, one that fails"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_shown_as_they_are_made_and_can_be_filtered() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("calls").await;
    }
}

/// A tool that says something else than before is shown with the difference, and approved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g02_a_changed_tool_is_approved_by_a_button() {
    if Browser::Chromium.require() {
        let gateway = TestGateway::start().await;
        gateway.change("upgraded").await;
        gateway.run_story("approve").await;
        assert!(gateway.host.pins("upgraded").unwrap().iter().all(|pin| pin.change.is_none()));
    }
}

/// A server that needs a login has a button for it, and revives by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_button_logs_in_and_the_server_revives() {
    if Browser::Chromium.require() {
        let authority = Authority::start(AuthorityOptions::default()).await;
        let gateway = TestGateway::start().await;
        gateway.wants_login("notes", &authority.mcp_url()).await;
        gateway.run_story("login").await;
        gateway.host.call("notes", "whoami", None).await.unwrap();
    }
}

/// Everything that each page is for, by the names that a screen reader says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_has_named_regions_with_their_content() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("contents").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_can_be_used_without_a_mouse() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("keyboard").await;
    }
}

/// No message on the console, no violation of the content policy, nothing serious for axe; light and dark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_passes_the_accessibility_check_in_light_and_dark() {
    if Browser::Chromium.require() {
        let gateway = TestGateway::start().await;
        gateway.change("upgraded").await;
        gateway.run_story("pages").await;
    }
}

/// The page has to be able to tell its own mistakes, or the test above would always pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_on_a_page_is_found() {
    if Browser::Chromium.require() {
        TestGateway::start().await.run_story("mistakes").await;
    }
}

/// Two gateways on a real store, with different configs; one is lost, then the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicas_page_shows_differences_a_lost_replica_and_a_lost_store() {
    if Browser::Chromium.require() && StoreServer::Valkey.require() {
        let mut service = TestService::start();
        service.run_story("replicas").await;
        service.kill_other();
        service.run_story("lost_replica").await;
        service.store.kill();
        service.run_story("lost_store").await;
    }
}

/// A replica with the key of the service writes its own version and config digest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_hostile_text_of_a_replica_is_only_text() {
    if Browser::Chromium.require() && StoreServer::Valkey.require() {
        let service = TestService::start();
        service.add_replica("<img src=x onerror=\"window.ran = true\">").await;
        service.run_story("hostile_replica").await;
    }
}
