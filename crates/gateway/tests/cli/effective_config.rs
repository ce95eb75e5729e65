//! Effective config in the admin API of a running gateway.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{Sandbox, stdio};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn the_config_in_force_is_shown_with_where_each_value_comes_from() {
    let sandbox = Sandbox::with(&(stdio("demo", &[]) + "lazy = true\n"));
    let serving = GatewayProcess::start(&sandbox, &[]);
    let address = serving.url.replace("http://", "");
    let mut connection = TcpStream::connect(&address).unwrap();
    write!(connection, "GET /api/v1/config HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let config: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert!(config["file"].as_str().unwrap().ends_with("gripfast.toml"), "{config}");
    let find = |path: &str| {
        let settings = config["settings"].as_array().unwrap();
        let one =
            settings.iter().find(|one| one["path"] == path).unwrap_or_else(|| panic!("{path}: {config}"));
        json!([one["value"], one["from"]])
    };
    assert_eq!(find("gateway.listen"), json!(["127.0.0.1:0", "command_line"]));
    assert_eq!(find("servers.demo.lazy"), json!(["true", "file"]));
    assert_eq!(find("servers.demo.max_in_flight"), json!(["64", "default"]));
}
