//! Resource rules against real URL parsers: Python's `urlsplit`, Node's `URL` and Rust's `url`. Servers read URIs with
//! one of these, so every spelling of a URI must get the verdict of the resource that they read.
//!
//! Needs `python3` and `node` in PATH, as other tests with real peers do.

#![expect(clippy::unwrap_used, reason = "tests may")]

use gripfast_core::failure::recovery::ToolHints;
use gripfast_core::policy::allow::{ItemKind, ListOwner, Lists, Policy, PolicyTarget, decide};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// `scheme`, `host` and `rest` of the resources that the rules are about.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("https", "host.example", "/priv/b"),
    ("https", "host.example", "/pub/b"),
    ("https", "other.example", "/priv/b"),
    ("http", "127.0.0.1", "/priv/b"),
    ("file", "", "/srv/priv/b"),
    ("file", "", "/srv/pub/b"),
    ("demo", "host", "/priv/b"),
];

/// Allow and deny lists of a server.
const LISTS: &[(&[&str], &[&str])] = &[
    (&["*"], &["https://host.example/*"]),
    (&["*"], &["https://HOST.example:443/priv/*"]),
    (&["*"], &["https://host.example/priv/b"]),
    (&["*"], &["https://*.example/priv/*"]),
    (&["*"], &["file:///srv/priv/*", "http://127.0.0.1/*"]),
    (&["*"], &["file:///srv/priv/b", "demo://host/priv/b"]),
    (&["*"], &["demo://host/*"]),
    (&["https://host.example/pub/*", "file:///srv/pub/*"], &[]),
    (&["https://Host.Example/*", "http://127.0.0.1:80/*", "demo://host/*"], &["*/priv/*"]),
    (&["https://host.example/pub/b", "file:///srv/pub/b", "http://127.0.0.1/priv/b"], &[]),
    (&["https://*/pub/*", "demo://*"], &[]),
];

/// Spellings of a URI that some parser does not distinguish from the plain one, or that lead elsewhere.
type Spell = fn(&str, &str, &str) -> String;
const SPELLINGS: &[Spell] = &[
    |scheme, host, rest| format!("{scheme}://{host}{rest}"),
    |scheme, host, rest| format!("{}://{host}{rest}", scheme.to_uppercase()),
    |scheme, host, rest| format!("{scheme}://{}{rest}", host.to_uppercase()),
    |scheme, host, rest| format!("{scheme}://{host}:443{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}:80{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}:00443{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}:{rest}"),
    |scheme, host, rest| format!("{scheme}://u:p@{host}{rest}"),
    |scheme, host, rest| format!("{scheme}://u@v@{host}{rest}"),
    |scheme, host, rest| format!("{scheme}://other.example@{host}{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}\\@other.example{rest}"),
    |scheme, host, rest| format!("{scheme}://other.example\\@{host}{rest}"),
    |scheme, host, rest| format!("{scheme}://other.example#@{host}{rest}"),
    |scheme, host, rest| format!("{scheme}:/{host}{rest}"),
    |scheme, host, rest| format!("{scheme}:{host}{rest}"),
    |scheme, host, rest| format!("{scheme}:///{host}{rest}"),
    |scheme, host, rest| format!("{scheme}:////{host}{rest}"),
    |scheme, host, rest| format!("{scheme}:\\\\{host}{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace('/', "\\")),
    |scheme, host, rest| format!("{scheme}://{host}?{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}#{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}.{rest}"),
    |scheme, host, rest| {
        format!("{scheme}://{}{rest}", host.replace('o', "\u{ff4f}").replace('1', "\u{ff11}"))
    },
    |scheme, host, rest| format!("{scheme}://{}{rest}", host.replace('.', "\u{3002}")),
    |scheme, host, rest| format!("{scheme}://{}{rest}", host.replace('o', "%6f")),
    |scheme, host, rest| format!("{scheme}://{}{rest}", host.replace("127.0.0.1", "0x7f.1")),
    |scheme, host, rest| format!("{scheme}://{}{rest}", host.replace("127.0.0.1", "2130706433")),
    |scheme, host, rest| format!("{scheme}://{host}/pub/..{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}/pub/%2e%2E{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}/pub/.\t.{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace("pub/", "pub/../priv/")),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace("pub/", "pub/.%2e/priv/")),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace("pub/", "pub/.\t./priv/")),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace("pub/", "pub/.\r\n./priv/")),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace("pub/", "pub/.%09./priv/")),
    |scheme, host, rest| format!("{scheme}://{host}{}", rest.replace('v', "%76")),
    |scheme, host, rest| format!("{scheme}://{host}/.{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}{rest}?"),
    |scheme, host, rest| format!("{scheme}://{host}{rest}#"),
    |scheme, host, rest| format!("{scheme}://{host}{rest}?#"),
    |scheme, host, rest| format!("{scheme}://{host}{rest}#/pub/b"),
    |scheme, host, rest| format!("{scheme}://{host}{rest}?/pub/b"),
    |scheme, host, rest| format!(" {scheme}://{host}{rest}"),
    |scheme, host, rest| format!("{scheme}://{host}{rest} "),
    |scheme, host, rest| format!("\u{1}{scheme}://{host}{rest}\n"),
    |scheme, host, rest| format!("{}\t{}://{host}{rest}", &scheme[..1], &scheme[1..]),
    |scheme, host, rest| format!("{scheme}://localhost{host}{rest}"),
    |scheme, host, rest| format!("{scheme}:{rest}{host}"),
];

/// Every spelling of every resource, and every spelling of a host combined with every spelling of a path.
fn spellings() -> Vec<String> {
    let mut all = Vec::new();
    for (scheme, host, rest) in RESOURCES {
        for first in SPELLINGS {
            let once = first(scheme, host, rest);
            for second in SPELLINGS.iter().step_by(7) {
                all.push(match once.split_once("://") {
                    Some((scheme, behind)) if scheme.len() > 1 && !scheme.contains(char::is_whitespace) => {
                        let (host, rest) =
                            behind.split_at(behind.find(['/', '?', '#', '\\']).unwrap_or(behind.len()));
                        second(scheme, host, rest)
                    }
                    Some(_) | None => once.clone(),
                });
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

fn policy((allow, deny): &(&[&str], &[&str])) -> Policy {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Policy { resources: Lists::of_server(&words(allow), &words(deny)).unwrap(), ..Policy::default() }
}

fn may(policy: &Policy, uri: &str) -> bool {
    let subject =
        PolicyTarget { server: "s", kind: ItemKind::Resource, name: uri, hints: ToolHints::default() };
    decide([(ListOwner::Server("s"), policy)], &subject).allowed
}

fn is_refused(uri: &str) -> bool {
    uri.contains(char::is_control) || uri.trim() != uri
}

const PYTHON: &str = r##"
import json, sys
from urllib.parse import urlsplit
IMPLIED = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
def read(uri):
    try:
        u = urlsplit(uri)
        port = u.port
    except ValueError:
        return None
    # It does not tell an empty host from none.
    if not u.netloc and u.path[:1] in ("", "/") and u.scheme != "file":
        return None
    host = u.hostname or ""
    port = "" if port is None or port == IMPLIED.get(u.scheme) else ":%d" % port
    there = "//" + host + port if u.netloc or u.scheme == "file" else ""
    return (u.scheme + ":" if u.scheme else "") + there + u.path + ("?" + u.query if u.query else "") \
        + ("#" + u.fragment if u.fragment else "")
json.dump([read(uri) for uri in json.load(sys.stdin)], sys.stdout)
"##;

const NODE: &str = r#"
const uris = JSON.parse(require("fs").readFileSync(0, "utf8"));
const read = (uri) => {
  try {
    const u = new URL(uri);
    const there = u.host || u.href.startsWith(u.protocol + "//") ? "//" + u.host : "";
    return u.protocol + there + u.pathname + u.search + u.hash;
  } catch { return null; }
};
process.stdout.write(JSON.stringify(uris.map(read)));
"#;

fn asked(program: &str, flag: &str, script: &str, uris: &[String]) -> Vec<Option<String>> {
    let mut child = Command::new(program)
        .args([flag, script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs `{program}` in PATH: {error}"));
    let question = serde_json::to_vec(uris).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&question).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{program}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn by_rust(uri: &str) -> Option<String> {
    let mut url = url::Url::parse(uri).ok()?;
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if url.query() == Some("") {
        url.set_query(None);
    }
    if url.fragment() == Some("") {
        url.set_fragment(None);
    }
    Some(url.into())
}

#[test]
fn g01_spellings_of_one_resource_get_one_verdict() {
    let uris = spellings();
    let python = asked("python3", "-c", PYTHON, &uris);
    let node = asked("node", "-e", NODE, &uris);
    let mut wrong = Vec::new();
    for lists in LISTS {
        let policy = policy(lists);
        let mut verdicts: BTreeMap<[Option<String>; 3], (bool, &str)> = BTreeMap::new();
        for ((uri, python), node) in uris.iter().zip(&python).zip(&node) {
            let allowed = may(&policy, uri);
            if is_refused(uri) {
                assert!(!allowed, "{uri:?} is to be refused");
                continue;
            }
            let resources = [python.clone(), node.clone(), by_rust(uri)];
            // The result of a parser is a resource if Rust's `url` leaves it unchanged.
            let is_plain = |resource: &&String| by_rust(resource).as_ref() == Some(*resource);
            for resource in resources.iter().flatten().filter(is_plain) {
                if allowed && !may(&policy, resource) {
                    wrong.push(format!("{lists:?}: {uri:?} is allowed, but may be read as {resource:?}"));
                }
            }
            if resources.iter().any(Option::is_none) {
                continue;
            }
            let (first, spelled) = *verdicts.entry(resources).or_insert((allowed, uri));
            if first != allowed {
                wrong.push(format!("{lists:?}: {uri:?} is allowed: {allowed}, and {spelled:?} is not alike"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        uris.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(texts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// No text is allowed if a parser reads it as a denied resource.
    #[test]
    fn g01_no_spelling_of_a_denied_resource_is_allowed(
        head in (one_of(&["https:", "HTTPS:", "http:", "file:", "demo:"]), one_of(&["//", "/", "", "///", "\\\\"])),
        authority in (
            one_of(&["", "u:p@", "u@"]),
            one_of(&["host.example", "HOST.example", "127.1", "\u{ff48}ost.example", "ho\u{ad}st.example", "host", ""]),
            one_of(&["", ":443", ":80", ":"]),
        ),
        path in proptest::collection::vec(one_of(&[
            "/", "\\", "?", "#", "..", ".", "%2e", "%2F", "%252e", "/priv/", "/pub/", "/srv", "b", "@", "%09", ":",
        ]), 0..8),
        lists in 0..LISTS.len(),
    ) {
        let uri = format!("{}{}{}{}{}{}", head.0, head.1, authority.0, authority.1, authority.2, path.concat());
        let policy = policy(&LISTS[lists]);
        let (_, deny) = LISTS[lists];
        if let Some(resource) = by_rust(&uri).filter(|_| !deny.is_empty() && may(&policy, &uri)) {
            prop_assert!(may(&policy, &resource), "{:?} may be read as {:?}", uri, resource);
        }
    }
}
