//! Redirects: the request stays what it is, and nothing secret goes to another party.

use crate::script::{Act, Script, good_manners, redirect, response};
use crate::stage::{
    call, echo, free_address, host, legacy, ready_host, serve, spec, until_state, with, with_header,
};
use gripfast::State;
use gripfast::config::{ServerSpec, Target};
use gripfast_demo::Faults;
use serde_json::json;

fn with_redirects(mut spec: ServerSpec, origins: &[&str]) -> ServerSpec {
    if let Target::Url { redirects, .. } = &mut spec.target {
        redirects.extend(origins.iter().map(|origin| (*origin).to_owned()));
    }
    spec
}

#[tokio::test]
async fn a_redirect_on_the_same_origin_keeps_method_body_and_headers() {
    for status in [301, 302, 307, 308] {
        let server =
            serve(with(Faults { require_bearer: Some("t0ken".to_owned()), ..Faults::default() })).await;
        let addr = server.addr();
        let script = Script::new(move |heard| match heard.target.as_str() {
            "/old" => redirect(status, "/mcp"),
            _ => Act::PassOn(addr),
        })
        .await;
        let spec = with_header(spec(&script.at("/old")), "authorization", "Bearer t0ken");
        let host = ready_host(spec).await;
        assert_eq!(echo(&host, "moved").await.as_deref(), Ok("moved"), "{status}");
    }
}

/// The attack: a server sends requests, arguments included, to whoever it likes.
#[tokio::test]
async fn b09_a_redirect_to_another_origin_is_a_config_error_that_says_what_to_write_and_nothing_goes_there() {
    let stranger = Script::new(good_manners).await;
    let target = stranger.url();
    let home = Script::new(move |_| redirect(307, &target)).await;
    let host = host(spec(&home.url()));
    let cause = until_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains(&format!("redirects to {}", stranger.at(""))), "{cause}");
    assert!(cause.contains("`redirects`"), "{cause}");
    assert!(stranger.heard().is_empty(), "{:?}", stranger.heard());
}

#[tokio::test]
async fn a_redirect_to_an_origin_that_the_config_names_takes_the_request_and_leaves_the_credentials() {
    for status in [307, 308] {
        let stranger = Script::new(good_manners).await;
        let target = stranger.url();
        let home = Script::new(move |_| redirect(status, &target)).await;
        let spec = with_header(spec(&home.url()), "authorization", "Bearer t0ken");
        let spec = with_redirects(spec, &[&stranger.url()]);
        let host = ready_host(with_header(spec, "x-api-key", "k3y")).await;
        call(&host, "act", json!({})).await.unwrap();
        assert!(home.heard().iter().all(|heard| heard.header("authorization") == Some("Bearer t0ken")));
        let calls = stranger.calls_of("tools/call");
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].header("content-type"), Some("application/json"));
        for heard in stranger.heard() {
            assert_eq!((heard.header("authorization"), heard.header("x-api-key")), (None, None), "{heard:?}");
        }
    }
}

#[tokio::test]
async fn a_redirect_that_comes_home_again_brings_no_credentials_back_to_anybody_else() {
    // Home sends us away, and the stranger sends us on: still nothing for strangers.
    let last = Script::new(good_manners).await;
    let to_last = last.url();
    let stranger = Script::new(move |_| redirect(307, &to_last)).await;
    let to_stranger = stranger.url();
    let home = Script::new(move |_| redirect(307, &to_stranger)).await;
    let spec = with_redirects(spec(&home.url()), &[&stranger.url(), &last.url()]);
    let host = ready_host(with_header(spec, "authorization", "Bearer t0ken")).await;
    call(&host, "look", json!({})).await.unwrap();
    for heard in [stranger.heard(), last.heard()].concat() {
        assert_eq!(heard.header("authorization"), None, "{heard:?}");
    }
}

#[tokio::test]
async fn b09_a_redirect_to_another_origin_that_wants_a_credential_is_a_config_error_and_no_login_is_asked_for()
 {
    let stranger = Script::new(|_| Act::Say(response(401, &[("www-authenticate", "Bearer")], ""))).await;
    let target = stranger.url();
    let home = Script::new(move |_| redirect(307, &target)).await;
    let spec = with_redirects(spec(&home.url()), &[&stranger.url()]);
    let host = host(with_header(spec, "authorization", "Bearer t0ken"));
    let cause = until_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains(&format!("redirects to {}", stranger.at(""))), "{cause}");
    assert!(cause.contains("none goes to another origin"), "{cause}");
}

#[tokio::test]
async fn b09_a_redirect_loop_is_bounded_and_is_a_config_error() {
    let script = Script::new(|_| redirect(307, "/mcp")).await;
    let host = host(spec(&script.url()));
    let cause = until_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("redirects more than 5 times"), "{cause}");
    assert!(script.heard().len() <= 6, "{}", script.heard().len());
}

#[tokio::test]
async fn the_stream_is_redirected_as_well() {
    let server = serve(legacy()).await;
    let addr = server.addr();
    let script = Script::new(move |heard| match heard.target.as_str() {
        "/old" => redirect(307, "/mcp"),
        _ => Act::PassOn(addr),
    })
    .await;
    let host = ready_host(spec(&script.at("/old"))).await;
    server.add_tool("fresh").await;
    crate::stage::until_tool(&host, "fresh").await;
}

#[tokio::test]
async fn c05_a_redirect_that_says_it_is_done_is_not_followed_and_the_call_is_not_sent_again() {
    let elsewhere = free_address().await;
    let script = Script::new(move |heard| match heard.rpc().as_str() {
        "tools/call" => redirect(303, &format!("http://{elsewhere}/done")),
        _ => good_manners(heard),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let error = call(&host, "act", json!({})).await.unwrap_err();
    assert_eq!(error.outcome.word(), "unknown", "it may have been carried out: {error}");
    assert_eq!(script.calls_of("tools/call").len(), 1);
}
