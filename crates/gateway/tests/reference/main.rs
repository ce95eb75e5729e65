//! Compares the generated pages under `docs/reference` with the code. `cargo xtask reference --write` updates them: it
//! runs these tests with a variable that makes them write instead of compare.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::Path;

/// Checks that the page has the wanted text, or writes it if `GRIPFAST_WRITE_REFERENCE` is set.
#[track_caller]
fn check(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    if std::env::var_os("GRIPFAST_WRITE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/reference/{file} does not match the code; `cargo xtask reference --write` updates it"
    );
}

#[test]
fn the_document_of_the_admin_api_is_up_to_date() {
    let document = serde_json::to_string_pretty(&gripfast_gateway::api::document()).unwrap();
    check("openapi.json", &format!("{document}\n"));
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    check("metrics.md", &gripfast_gateway::metrics::reference_page());
}

#[test]
fn the_page_of_the_config_is_up_to_date() {
    check("config.md", &gripfast::config::manual());
}

#[test]
fn the_page_of_error_codes_is_up_to_date() {
    let mut page = String::from(
        "# Error codes\n\nThe `code` of a failure: in `_meta[\"gripfast/failure\"]` of a tool result, in `data` of a \
         JSON-RPC error, in the admin API, the\nledger, logs and metrics. The set is closed.\n\nThis page is \
         generated from the code; `cargo xtask reference --write` updates it.\n\n| code | meaning |\n|---|---|\n",
    );
    for code in gripfast::Code::ALL {
        page += &format!("| `{}` | {} |\n", code.as_str(), code.description());
    }
    check("errors.md", &page);
}

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let help = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gripfast"));
        let output = command.args(words).arg("--help").env_remove("COLUMNS").output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let overview = help(&[]);
    let verbs = overview.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = verbs.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let mut page = format!(
        "# The command line\n\nThis page is generated from `--help`; `cargo xtask reference --write` updates it.\n\n\
         ```text\n{}\n```\n",
        overview.trim_end()
    );
    for verb in verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help") {
        page += &format!("\n## gripfast {verb}\n\n```text\n{}\n```\n", help(&[verb]).trim_end());
    }
    check("cli.md", &page);
}
