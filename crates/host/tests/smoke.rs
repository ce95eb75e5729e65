use gripfast::Host;
use gripfast::config::{ProtocolChoice, ServerSpec, Target, Template, TlsSpec, UrlTransport};
use std::time::Duration;
async fn run(era: gripfast_demo::EraChoice, transport: UrlTransport, sse: bool) {
    let server = gripfast_demo::start_http(
        "127.0.0.1:0".parse().unwrap(),
        gripfast_demo::Options { era, ..Default::default() },
    )
    .await
    .unwrap();
    let host = Host::builder().build();
    let url = if sse { server.sse_url() } else { server.url() };
    let mut spec = ServerSpec::new(Target::Url {
        url: Template::parse(&url).unwrap(),
        transport,
        headers: vec![],
        tls: TlsSpec::default(),
    });
    spec.protocol = ProtocolChoice::Auto;
    host.spawn("demo", spec).unwrap();
    let catalog = host.catalog("demo", Duration::from_secs(5)).await.unwrap();
    println!("{} tools", catalog.tools.len());
    let args = serde_json::value::to_raw_value(&serde_json::json!({"text": "hi"})).unwrap();
    let answer = host.call("demo", "echo", Some(args)).await.unwrap();
    println!("{:?}", answer.result());
    println!("{:#?}", host.status());
    server.forget_sessions();
    let args = serde_json::value::to_raw_value(&serde_json::json!({"text": "hi2"})).unwrap();
    let answer = host.call("demo", "echo", Some(args)).await.unwrap();
    println!("{:?}", answer.result());
    host.shutdown().await;
}
#[tokio::test]
async fn legacy() {
    run(gripfast_demo::EraChoice::Legacy, UrlTransport::Auto, false).await
}
#[tokio::test]
async fn modern() {
    run(gripfast_demo::EraChoice::Modern, UrlTransport::Auto, false).await
}
#[tokio::test]
async fn sse() {
    run(gripfast_demo::EraChoice::Both, UrlTransport::Sse, true).await
}
