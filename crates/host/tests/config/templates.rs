//! Syntax and expansion of references (`${…}`).

use super::TestLookup;
use gripfast::config::{ExpandError, Lookup, ProcessEnvironment, Reference, Template};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn lookup() -> TestLookup {
    TestLookup::default()
        .with_variable("TOKEN", "secret")
        .with_variable("EMPTY", "")
        .with_file("/run/secrets/key", "line\r\n\n")
}

fn expand(text: &str) -> Result<String, ExpandError> {
    let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    template.expand(&lookup()).map(|value| value.into_revealed())
}

#[test]
fn a_program_runs_only_on_demand_and_its_arguments_are_hidden() {
    let template = Template::parse("Bearer ${cmd:pass show s3cr3t-path}").unwrap().into_secret();
    assert_eq!(format!("{template}"), "[redacted]${cmd:pass …}");
    let error = template.expand(&TestLookup::default()).unwrap_err();
    assert_eq!(error.to_string(), "program `pass` did not provide the value: programs are not run here");
    assert!(Template::parse("${cmd: }").is_err());
}

#[test]
fn every_form_has_its_meaning() {
    for (text, value) in [
        ("", ""),
        ("plain $ and $$ and %VAR% and $TOKEN", "plain $ and $$ and %VAR% and $TOKEN"),
        ("${TOKEN}", "secret"),
        ("${env:TOKEN}", "secret"),
        ("Bearer ${env:TOKEN}!", "Bearer secret!"),
        ("${TOKEN}${TOKEN}", "secretsecret"),
        ("${UNSET:-d e f}", "d e f"),
        ("${env:UNSET:-}", ""),
        ("${TOKEN:-x}", "secret"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${file:/run/secrets/key}", "line"),
        ("$${TOKEN}", "${TOKEN}"),
        ("a$${b} ${TOKEN}", "a${b} secret"),
        ("pa$$word", "pa$$word"),
    ] {
        assert_eq!(expand(text).as_deref(), Ok(value), "{text}");
    }
}

#[test]
fn shell_forms_are_left_to_the_shell() {
    for text in [
        "${v%x}", "${v%%.*}", "${v#x}", "${v/a/b}", "${#v}", "${!v}", "${v^^}", "${v[0]}", "${1}", "${@}",
        "${?}", "${v:1:2}", "${v:=x}", "${v:?x}", "${v:+x}", "${v-x}", "${v+x}",
    ] {
        assert_eq!(expand(text).as_deref(), Ok(text));
    }
}

#[test]
fn a_missing_value_is_named() {
    assert_eq!(expand("a ${NOPE}"), Err(ExpandError::Unset { name: "NOPE".to_owned() }));
    insta::assert_snapshot!(expand("${env:NOPE}").unwrap_err(), @"environment variable `NOPE` is not set");
    insta::assert_snapshot!(expand("${file:/nope}").unwrap_err(), @"cannot read `/nope`: entity not found");
}

#[cfg(unix)]
#[test]
fn a_value_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let world = TestLookup::default().with_variable("BYTES", std::ffi::OsString::from_vec(vec![0xff]));
    let error = Template::parse("${BYTES}").unwrap().expand(&world).unwrap_err();
    insta::assert_snapshot!(error, @"environment variable `BYTES` is not valid text");
}

#[test]
fn references_can_be_listed_before_connecting() {
    let template = Template::parse("${A:-x} ${env:B} ${file:/c}").unwrap();
    let names: Vec<_> = template.references().map(ToString::to_string).collect();
    assert_eq!(names, ["${env:A:-…}", "${env:B}", "${file:/c}"]);
    assert!(template.references().any(|one| *one == Reference::File { path: PathBuf::from("/c") }));
    assert_eq!(template.literal(), None);
    assert_eq!(Template::parse("$${x}").unwrap().literal(), Some("${x}"));
}

#[test]
fn the_process_environment_reads_variables_and_small_files() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::write(&small, "value\n").unwrap();
    let large = dir.path().join("large");
    std::fs::write(&large, vec![b'x'; 2 << 20]).unwrap();
    assert!(ProcessEnvironment.variable("PATH").is_some());
    assert_eq!(ProcessEnvironment.file(&small).unwrap(), "value\n");
    assert_eq!(ProcessEnvironment.file(&large).unwrap_err().to_string(), "larger than 1048576 bytes");
    assert!(ProcessEnvironment.file(Path::new("/does/not/exist")).is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>(), dollars in "[$]{0,3}[{]{0,2}[a-z:%}$ {-]{0,20}") {
        for text in [text.as_str(), &dollars] {
            if let Ok(template) = Template::parse(text) {
                let _ = (template.expand(&lookup()), template.to_string());
                prop_assert_eq!(template.source(), text);
            }
        }
    }

    #[test]
    fn text_without_references_is_itself(text in "[^{]*") {
        prop_assert_eq!(expand(&text), Ok(text));
    }

    #[test]
    fn any_text_can_be_escaped(text in any::<String>()) {
        let escaped = text.replace("${", "$${");
        prop_assert_eq!(expand(&escaped), Ok(text));
    }

    #[test]
    fn a_reference_becomes_its_value_wherever_it_stands(before in "[^${]*", after in "[^${]*") {
        prop_assert_eq!(expand(&format!("{before}${{TOKEN}}{after}")), Ok(format!("{before}secret{after}")));
    }
}
