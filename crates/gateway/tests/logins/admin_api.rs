//! Logins that are begun through the admin API, as the dashboard's button does.

use super::{Desk, Gateway, STUCK};
use gripfast_testkit::authority::{Authority, Manners, fetch, visit, visit_and_return};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// E03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_login_that_was_begun_by_the_admin_api_revives_the_server() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    let gateway = desk.serve();
    desk.until_state(&gateway, "needs_login");
    let (status, begun) = desk.post(&gateway, "notes", &[]);
    assert_eq!((status, &begun["server"]), (200, &"notes".into()));
    visit_and_return(begun["url"].as_str().unwrap()).await;
    desk.until_state(&gateway, "ready");
    assert!(desk.call(&gateway).status.success());
}

/// E03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_browser_comes_back_from_a_login_once_and_strangers_do_not() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    let gateway = desk.serve();
    let page = |begun: &Value| begun["url"].as_str().unwrap().to_owned();
    let given_up = page(&desk.post(&gateway, "notes", &[]).1);
    let begun = page(&desk.post(&gateway, "notes", &[]).1);
    let guessed = format!("{}/callback?code=1&state=guessed", gateway.url);
    for stranger in [guessed.clone(), guessed.replace("state=", "stat="), visit(&given_up).await] {
        assert!(fetch(&stranger).await.starts_with("HTTP/1.1 404"), "{stranger}");
    }
    let back = visit(&begun).await;
    assert!(fetch(&back).await.starts_with("HTTP/1.1 200"));
    assert!(fetch(&back).await.starts_with("HTTP/1.1 404"), "it is used up");
    desk.until_state(&gateway, "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_begun_by_whoever_has_the_token_and_for_servers_that_take_one() {
    let authority = Authority::start(Manners::default()).await;
    let desk = Desk::with(&authority);
    let more = "[servers.child]\ncommand = \"no-such-program\"\n\
                [servers.fixed]\nurl = \"http://127.0.0.1:9/mcp\"\noauth = { client_id = \"x\", callback_port = 7332 }\n";
    let config = desk.dir.path().join("gripfast.toml");
    let text = std::fs::read_to_string(&config).unwrap() + more;
    std::fs::write(&config, text).unwrap();
    let gateway = desk.serve();
    let code = |(status, said): (u16, Value)| (status, said["error"]["code"].as_str().unwrap().to_owned());
    let no_token = desk.post(&gateway, "notes", &[("authorization", "Bearer guessed")]);
    assert_eq!(code(no_token), (401, "unauthorized".to_owned()));
    let elsewhere = desk.post(&gateway, "notes", &[("origin", "https://evil.example")]);
    assert_eq!(elsewhere.0, 403);
    assert_eq!(code(desk.post(&gateway, "nobody", &[])), (404, "unknown_server".to_owned()));
    assert_eq!(code(desk.post(&gateway, "child", &[])), (409, "no_login_needed".to_owned()));
    assert_eq!(code(desk.post(&gateway, "fixed", &[])), (409, "login_elsewhere".to_owned()));
}

impl Desk {
    /// Has a login begun, with the token unless the headers have another.
    fn post(&self, gateway: &Gateway, server: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let host = gateway.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        let token = std::fs::read_to_string(self.dir.path().join("admin.token")).unwrap();
        let mut head = format!("POST /api/v1/upstreams/{server}/login HTTP/1.1\r\nhost: {host}\r\n");
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            head += &format!("authorization: Bearer {}\r\n", token.trim());
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        write!(stream, "{head}content-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        // Some are turned away before the admin API has a word to say.
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}
