//! Redirects: method and body are kept, and secrets never go to another origin.

use crate::http_host::{
    call, echo, free_address, host, legacy, ready_host, serve, spec, wait_for_state, with, with_header,
};
use crate::scripted_server::{ScriptedAction, ScriptedServer, redirect, respond_normally, response};
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
        let script = ScriptedServer::new(move |request| match request.target.as_str() {
            "/old" => redirect(status, "/mcp"),
            _ => ScriptedAction::Forward(addr),
        })
        .await;
        let spec = with_header(spec(&script.url_for("/old")), "authorization", "Bearer t0ken");
        let host = ready_host(spec).await;
        assert_eq!(echo(&host, "moved").await.as_deref(), Ok("moved"), "{status}");
    }
}

/// Attack: a server redirects requests, arguments included, to any address.
#[tokio::test]
async fn b09_a_redirect_to_another_origin_is_a_config_error_and_not_followed() {
    let stranger = ScriptedServer::new(respond_normally).await;
    let target = stranger.url();
    let home = ScriptedServer::new(move |_| redirect(307, &target)).await;
    let host = host(spec(&home.url()));
    let cause = wait_for_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains(&format!("redirects to {}", stranger.url_for(""))), "{cause}");
    assert!(cause.contains("`redirects`"), "{cause}");
    assert!(stranger.requests().is_empty(), "{:?}", stranger.requests());
}

#[tokio::test]
async fn a_redirect_to_a_configured_origin_drops_the_credentials() {
    for status in [307, 308] {
        let stranger = ScriptedServer::new(respond_normally).await;
        let target = stranger.url();
        let home = ScriptedServer::new(move |_| redirect(status, &target)).await;
        let spec = with_header(spec(&home.url()), "authorization", "Bearer t0ken");
        let spec = with_redirects(spec, &[&stranger.url()]);
        let host = ready_host(with_header(spec, "x-api-key", "k3y")).await;
        call(&host, "act", json!({})).await.unwrap();
        assert!(
            home.requests().iter().all(|request| request.header("authorization") == Some("Bearer t0ken"))
        );
        let calls = stranger.requests_for("tools/call");
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].header("content-type"), Some("application/json"));
        for request in stranger.requests() {
            assert_eq!(
                (request.header("authorization"), request.header("x-api-key")),
                (None, None),
                "{request:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_redirect_back_to_the_origin_gives_others_no_credentials() {
    // The server redirects to another origin, which redirects again: still no secrets for other origins.
    let last = ScriptedServer::new(respond_normally).await;
    let to_last = last.url();
    let stranger = ScriptedServer::new(move |_| redirect(307, &to_last)).await;
    let to_stranger = stranger.url();
    let home = ScriptedServer::new(move |_| redirect(307, &to_stranger)).await;
    let spec = with_redirects(spec(&home.url()), &[&stranger.url(), &last.url()]);
    let host = ready_host(with_header(spec, "authorization", "Bearer t0ken")).await;
    call(&host, "look", json!({})).await.unwrap();
    for request in [stranger.requests(), last.requests()].concat() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}

#[tokio::test]
async fn b09_a_401_after_a_redirect_to_another_origin_is_a_config_error() {
    let stranger = ScriptedServer::new(|_| {
        ScriptedAction::Respond(response(401, &[("www-authenticate", "Bearer")], ""))
    })
    .await;
    let target = stranger.url();
    let home = ScriptedServer::new(move |_| redirect(307, &target)).await;
    let spec = with_redirects(spec(&home.url()), &[&stranger.url()]);
    let host = host(with_header(spec, "authorization", "Bearer t0ken"));
    let cause = wait_for_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains(&format!("redirects to {}", stranger.url_for(""))), "{cause}");
    assert!(cause.contains("credentials are not sent to another origin"), "{cause}");
}

#[tokio::test]
async fn b09_a_redirect_loop_is_bounded_and_is_a_config_error() {
    let script = ScriptedServer::new(|_| redirect(307, "/mcp")).await;
    let host = host(spec(&script.url()));
    let cause = wait_for_state(&host, State::ConfigError).await.supervision.cause.unwrap();
    assert!(cause.contains("redirects more than 5 times"), "{cause}");
    assert!(script.requests().len() <= 6, "{}", script.requests().len());
}

#[tokio::test]
async fn the_event_stream_follows_redirects_too() {
    let server = serve(legacy()).await;
    let addr = server.addr();
    let script = ScriptedServer::new(move |request| match request.target.as_str() {
        "/old" => redirect(307, "/mcp"),
        _ => ScriptedAction::Forward(addr),
    })
    .await;
    let host = ready_host(spec(&script.url_for("/old"))).await;
    server.add_tool("fresh").await;
    crate::http_host::wait_for_tool(&host, "fresh").await;
}

#[tokio::test]
async fn c05_a_303_is_not_followed_and_the_call_is_not_sent_again() {
    let elsewhere = free_address().await;
    let script = ScriptedServer::new(move |request| match request.rpc().as_str() {
        "tools/call" => redirect(303, &format!("http://{elsewhere}/done")),
        _ => respond_normally(request),
    })
    .await;
    let host = ready_host(spec(&script.url())).await;
    let error = call(&host, "act", json!({})).await.unwrap_err();
    assert_eq!(error.outcome.as_str(), "unknown", "it may have been executed: {error}");
    assert_eq!(script.requests_for("tools/call").len(), 1);
}
