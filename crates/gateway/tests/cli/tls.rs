//! A gateway that speaks https: the command line finds and believes it, and says what is wrong where it does not.

use crate::sandbox::{Sandbox, stdio};
#[cfg(unix)]
use crate::serving::Serving;
use insta::assert_snapshot;
use rcgen::{CertificateParams, KeyPair};

/// Has a gateway keep its state where commands do not look for it, so that they reach it over TCP.
#[cfg(unix)]
const ELSEWHERE: &[&str] = &["--state-dir", "elsewhere"];

/// A certificate that vouches for itself, for this name, in PEM form, and its key.
pub(crate) fn papers(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn config(more: &str) -> String {
    format!("[gateway]\n{more}tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n\n{}", stdio("demo", &[]))
}

#[cfg(unix)]
#[test]
fn a_gateway_that_speaks_https_is_asked_by_whoever_believes_it() {
    let (cert, key) = papers("127.0.0.1");
    let sandbox = Sandbox::with(&config("")).file("cert.pem", &cert).file("key.pem", &key);
    let gateway = Serving::start(&sandbox, ELSEWHERE);
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
    error: what listens at https://127.0.0.1:[PORT] is not believed: nobody whom this machine believes vouches for its certificate
      hint: $GRIPFAST_CA names a file with certificates to believe, of an authority or of the gateway itself
    ");
    let plainly = gateway.url.replace("https://", "http://");
    assert_snapshot!(sandbox.run(&["status", "--url", &plainly]), @"
    exit 4
    --- stderr
    error: what listens at http://127.0.0.1:[PORT] is not a gripfast gateway (HTTP 400: this gateway speaks https: begin the address with `https://`)
      hint: `--url` names another
    ");
    let wrong = sandbox.run_with(&["status", "--url", &gateway.url], &[("GRIPFAST_CA", "key.pem")]);
    assert_snapshot!(wrong, @"
    exit 1
    --- stderr
    error: cannot ask the gateway at https://127.0.0.1:[PORT]: $GRIPFAST_CA: `key.pem` holds no certificate in PEM form
    ");
}

#[cfg(unix)]
#[test]
fn the_gateway_of_a_config_is_believed_by_the_certificate_that_the_config_names() {
    let (cert, key) = papers("mcp.example.com");
    let sandbox = Sandbox::with(&config("")).file("cert.pem", &cert).file("key.pem", &key);
    let gateway = Serving::start(&sandbox, ELSEWHERE);
    let address = gateway.url.strip_prefix("https://").unwrap();
    let mine = config(&format!("listen = \"{address}\"\n"));
    let sandbox = sandbox.file("mine.toml", &mine);
    let told = sandbox.run_with(&["status", "--config", "mine.toml"], &[("GRIPFAST_URL", "")]);
    assert!(told.code == Some(0) && told.stdout.contains("demo"), "{told}");
    let sandbox = sandbox.file("other.pem", &papers("mcp.example.com").0);
    let sandbox = sandbox.file("other.toml", &mine.replace("cert.pem", "other.pem"));
    let told = sandbox.run_with(&["status", "--config", "other.toml"], &[("GRIPFAST_URL", "")]);
    assert!(told.code == Some(4) && told.stderr.contains("not believed"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_gateway_that_does_not_speak_https_is_no_gateway_there() {
    let sandbox = Sandbox::with_demo(&[]);
    let gateway = Serving::start(&sandbox, ELSEWHERE);
    assert_snapshot!(sandbox.run(&["status", "--url", &gateway.url.replace("http://", "https://")]), @"
    exit 4
    --- stderr
    error: what listens at https://127.0.0.1:[PORT] is not a gripfast gateway (it does not speak https)
      hint: `--url` names another
    ");
}

#[test]
fn a_certificate_that_is_not_there_and_one_that_is_of_no_use() {
    let sandbox = Sandbox::with(&config(""));
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 0
    --- stdout
    ok, 1 warning: 1 server (1 stdio)
    --- stderr
    warning: cannot read `cert.pem`: No such file or directory (os error 2)
     --> ./gripfast.toml:2:16 (gateway.tls.cert)
      hint: `gripfast serve` does not start without it
    ");
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]);
    let why = "error: the listener has no certificate that can be used: cannot read `cert.pem`";
    assert!(refused.code == Some(1) && refused.stderr.contains(why), "{refused}");
    let ((cert, _), (_, another)) = (papers("127.0.0.1"), papers("127.0.0.1"));
    let sandbox = sandbox.file("cert.pem", &cert).file("key.pem", &another);
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 2
    --- stdout
    invalid, 1 error: 1 server (1 stdio)
    --- stderr
    error: the key in `key.pem` is not that of the certificate in `cert.pem`
     --> ./gripfast.toml:2:34 (gateway.tls.key)
      hint: `gripfast serve` does not start without it
    ");
    let sandbox = sandbox.file("cert.pem", "no certificate");
    assert_snapshot!(sandbox.run(&["check"]), @"
    exit 2
    --- stdout
    invalid, 1 error: 1 server (1 stdio)
    --- stderr
    error: `cert.pem` is no certificate in PEM form: there is none in it
     --> ./gripfast.toml:2:16 (gateway.tls.cert)
      hint: `gripfast serve` does not start without it
    ");
}
