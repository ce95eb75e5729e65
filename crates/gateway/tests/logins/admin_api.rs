//! Logins started through the admin API, as the button of the dashboard does.

use super::{Gateway, STUCK, Workspace};
use gripfast_testkit::authority::{
    Authority, AuthorityOptions, authorize_in_browser, complete_authorization, fetch,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// E03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_login_started_by_the_admin_api_revives_the_server() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    let gateway = workspace.serve();
    workspace.until_state(&gateway, "needs_login");
    let (status, begun) = workspace.post(&gateway, "notes", &[]);
    assert_eq!((status, &begun["server"]), (200, &"notes".into()));
    complete_authorization(begun["url"].as_str().unwrap()).await;
    workspace.until_state(&gateway, "ready");
    assert!(workspace.call(&gateway).status.success());
}

/// E03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_the_login_redirect_is_accepted_once_and_a_forged_one_never() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    let gateway = workspace.serve();
    let page = |begun: &Value| begun["url"].as_str().unwrap().to_owned();
    let given_up = page(&workspace.post(&gateway, "notes", &[]).1);
    let begun = page(&workspace.post(&gateway, "notes", &[]).1);
    let guessed = format!("{}/callback?code=1&state=guessed", gateway.url);
    for stranger in
        [guessed.clone(), guessed.replace("state=", "stat="), authorize_in_browser(&given_up).await]
    {
        assert!(fetch(&stranger).await.starts_with("HTTP/1.1 404"), "{stranger}");
    }
    let back = authorize_in_browser(&begun).await;
    assert!(fetch(&back).await.starts_with("HTTP/1.1 200"));
    assert!(fetch(&back).await.starts_with("HTTP/1.1 404"), "it is used up");
    workspace.until_state(&gateway, "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_needs_the_token_and_a_server_that_supports_logins() {
    let authority = Authority::start(AuthorityOptions::default()).await;
    let workspace = Workspace::with(&authority);
    let more = "[servers.child]\ncommand = \"no-such-program\"\n\
                [servers.fixed]\nurl = \"http://127.0.0.1:9/mcp\"\noauth = { client_id = \"x\", callback_port = 7332 }\n";
    let config = workspace.dir.path().join("gripfast.toml");
    let text = std::fs::read_to_string(&config).unwrap() + more;
    std::fs::write(&config, text).unwrap();
    let gateway = workspace.serve();
    let code = |(status, said): (u16, Value)| (status, said["error"]["code"].as_str().unwrap().to_owned());
    let no_token = workspace.post(&gateway, "notes", &[("authorization", "Bearer guessed")]);
    assert_eq!(code(no_token), (401, "unauthorized".to_owned()));
    let elsewhere = workspace.post(&gateway, "notes", &[("origin", "https://evil.example")]);
    assert_eq!(elsewhere.0, 403);
    assert_eq!(code(workspace.post(&gateway, "nobody", &[])), (404, "unknown_server".to_owned()));
    assert_eq!(code(workspace.post(&gateway, "child", &[])), (409, "no_login_needed".to_owned()));
    assert_eq!(code(workspace.post(&gateway, "fixed", &[])), (409, "login_elsewhere".to_owned()));
}

impl Workspace {
    /// Starts a login, with the admin token unless `headers` contain another.
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
