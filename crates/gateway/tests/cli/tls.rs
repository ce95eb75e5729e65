//! Gateway with https: certificate verification of the command line, and its errors.

#[cfg(unix)]
use crate::gateway_process::GatewayProcess;
use crate::sandbox::{Sandbox, stdio};
use insta::assert_snapshot;
use rcgen::{CertificateParams, KeyPair};

/// State directory in which commands do not look for the control socket, so that they use TCP.
#[cfg(unix)]
const ELSEWHERE: &[&str] = &["--state-dir", "elsewhere"];

/// Self-signed certificate for this name and its key, in PEM form.
pub(crate) fn certificate_and_key(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn config(more: &str) -> String {
    format!("[gateway]\n{more}tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n\n{}", stdio("demo", &[]))
}

#[cfg(unix)]
#[test]
fn an_https_gateway_is_reached_with_a_trusted_certificate() {
    let (cert, key) = certificate_and_key("127.0.0.1");
    let sandbox = Sandbox::with(&config("")).file("cert.pem", &cert).file("key.pem", &key);
    let gateway = GatewayProcess::start(&sandbox, ELSEWHERE);
    assert!(gateway.url.starts_with("https://127.0.0.1:"), "{}", gateway.url);
    let told = sandbox.run_with(&["status", "--url", &gateway.url], &[("GRIPFAST_CA", "cert.pem")]);
    assert!(told.code == Some(0) && told.stdout.contains("demo"), "{told}");
    let called = sandbox.run_with(
        &["call", "demo", "add", r#"{"a":1,"b":2}"#, "--url", &gateway.url],
        &[("GRIPFAST_CA", "cert.pem")],
    );
    assert!(called.code == Some(0) && called.stdout.trim() == "3", "{called}");
    assert_snapshot!(sandbox.run(&["status", "--url", &gateway.url]), @"
    exit 4
    --- stderr
    error: the certificate at https://127.0.0.1:[PORT] is not trusted: its certificate was not issued by an authority that this machine trusts
      hint: $GRIPFAST_CA names a PEM file with certificates to trust, of an authority or of the gateway itself
    ");
    let plainly = gateway.url.replace("https://", "http://");
    assert_snapshot!(sandbox.run(&["status", "--url", &plainly]), @"
    exit 4
    --- stderr
    error: the program at http://127.0.0.1:[PORT] is not a gripfast gateway (HTTP 400: this gateway uses TLS; its address begins with `https://`)
      hint: `--url` names another gateway
    ");
    let wrong = sandbox.run_with(&["status", "--url", &gateway.url], &[("GRIPFAST_CA", "key.pem")]);
    assert_snapshot!(wrong, @"
    exit 1
    --- stderr
    error: cannot connect to the gateway at https://127.0.0.1:[PORT]: $GRIPFAST_CA: `key.pem` contains no PEM certificate
    ");
}

#[cfg(unix)]
#[test]
fn the_certificate_of_the_config_is_trusted_for_its_own_gateway() {
    let (cert, key) = certificate_and_key("mcp.example.com");
    let sandbox = Sandbox::with(&config("")).file("cert.pem", &cert).file("key.pem", &key);
    let gateway = GatewayProcess::start(&sandbox, ELSEWHERE);
    let address = gateway.url.strip_prefix("https://").unwrap();
    let mine = config(&format!("listen = \"{address}\"\n"));
    let sandbox = sandbox.file("mine.toml", &mine);
    let told = sandbox.run_with(&["status", "--config", "mine.toml"], &[("GRIPFAST_URL", "")]);
    assert!(told.code == Some(0) && told.stdout.contains("demo"), "{told}");
    let sandbox = sandbox.file("other.pem", &certificate_and_key("mcp.example.com").0);
    let sandbox = sandbox.file("other.toml", &mine.replace("cert.pem", "other.pem"));
    let told = sandbox.run_with(&["status", "--config", "other.toml"], &[("GRIPFAST_URL", "")]);
    assert!(told.code == Some(4) && told.stderr.contains("is not trusted"), "{told}");
}

#[cfg(unix)]
#[test]
fn an_https_url_does_not_reach_an_http_gateway() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = GatewayProcess::start(&sandbox, ELSEWHERE);
    assert_snapshot!(sandbox.run(&["status", "--url", &gateway.url.replace("http://", "https://")]), @"
    exit 4
    --- stderr
    error: the program at https://127.0.0.1:[PORT] is not a gripfast gateway (it does not speak https)
      hint: `--url` names another gateway
    ");
}

#[test]
fn a_missing_and_an_unusable_certificate_file() {
    let sandbox = Sandbox::with(&config(""));
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 0
    --- stdout
    ok, 1 warning: 1 server (1 stdio)
    --- stderr
    warning: cannot read `cert.pem`: No such file or directory (os error 2)
     --> ./gripfast.toml:2:16 (gateway.tls.cert)
      hint: `gripfast serve` does not start without a valid certificate and key
    ");
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]);
    let why = "error: the TLS certificate of the listener cannot be used: cannot read `cert.pem`";
    assert!(refused.code == Some(1) && refused.stderr.contains(why), "{refused}");
    let ((cert, _), (_, another)) = (certificate_and_key("127.0.0.1"), certificate_and_key("127.0.0.1"));
    let sandbox = sandbox.file("cert.pem", &cert).file("key.pem", &another);
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 2
    --- stdout
    invalid, 1 error: 1 server (1 stdio)
    --- stderr
    error: the key in `key.pem` does not match the certificate in `cert.pem`
     --> ./gripfast.toml:2:34 (gateway.tls.key)
      hint: `gripfast serve` does not start without a valid certificate and key
    ");
    let sandbox = sandbox.file("cert.pem", "no certificate");
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 2
    --- stdout
    invalid, 1 error: 1 server (1 stdio)
    --- stderr
    error: `cert.pem` is not a PEM certificate: the file contains no certificate
     --> ./gripfast.toml:2:16 (gateway.tls.cert)
      hint: `gripfast serve` does not start without a valid certificate and key
    ");
}
