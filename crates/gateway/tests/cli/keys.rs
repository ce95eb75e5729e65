//! `gripfast keys`: creating, listing and removing keys.

use crate::sandbox::Sandbox;

#[test]
fn a_key_is_shown_once_and_later_only_its_name() {
    let sandbox = Sandbox::empty();
    let made = sandbox.run(&["keys", "add", "laptop", "--state-dir", "state"]);
    assert_eq!(made.code, Some(0), "{made}");
    let key = made.stdout.trim();
    assert!(key.starts_with("gfk_") && made.stdout.lines().count() == 1, "stdout is the key alone: {made}");
    assert!(!made.stderr.contains(key) && made.stderr.contains("not shown again"), "{made}");
    let listed = sandbox.run(&["keys", "ls", "-o", "json", "--state-dir", "state"]);
    assert!(listed.stdout.contains(r#""name":"laptop""#) && !listed.stdout.contains(key), "{listed}");
    let kept = std::fs::read_to_string(sandbox.path("state").join("keys.json")).unwrap();
    assert!(!kept.contains(key));
}

#[test]
fn keys_of_the_same_name_and_keys_that_are_not_there() {
    let sandbox = Sandbox::empty();
    assert_eq!(sandbox.run(&["keys", "add", "laptop", "--state-dir", "state"]).code, Some(0));
    insta::assert_snapshot!(sandbox.run(&["keys", "add", "laptop", "--state-dir", "state"]), @"
    exit 1
    --- stderr
    error: a key named `laptop` already exists
      hint: `gripfast keys rm laptop` removes it
    ");
    insta::assert_snapshot!(sandbox.run(&["keys", "add", "local", "--state-dir", "state"]), @"
    exit 1
    --- stderr
    error: `local` is not a valid key name
      hint: a name has up to 64 letters, digits, `.`, `_`, `@` and `-`; `local` is reserved for clients of this machine without a key, and `admin` for the holder of the admin token
    ");
    insta::assert_snapshot!(sandbox.run(&["keys", "rm", "labtop", "--state-dir", "state"]), @"
    exit 1
    --- stderr
    error: there is no key `labtop`
      hint: did you mean `laptop`?
    ");
    insta::assert_snapshot!(sandbox.run(&["keys", "rm", "laptop", "--state-dir", "state"]), @"
    exit 0
    --- stderr
    removed the key of `laptop`; it is no longer valid
    ");
    insta::assert_snapshot!(sandbox.run(&["keys", "ls", "--state-dir", "state"]), @"
    exit 0
    --- stderr
    no keys; `gripfast keys add NAME` creates one
    ");
}
