//! Errors in references (`${…}`).

use super::{TOML, report};
use insta::assert_snapshot;

#[test]
fn an_input_of_vs_code() {
    let text = r#"[servers.github]
command = "npx"
env = { TOKEN = "${input:token}" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${input:token}` uses `input:`, which gripfast does not support
         --> gripfast.toml:3:17 (servers.github.env.TOKEN)
          |
        3 | env = { TOKEN = "${input:token}" }
          |                 ^^^^^^^^^^^^^^^^
          hint: write `${env:NAME}` or `${file:/path}`
    "#);
}

#[test]
fn a_folder_of_an_editor() {
    let text = r#"[servers.github]
command = "npx"
args = ["${workspaceFolder}/x"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${workspaceFolder}` is a variable of editors, which gripfast does not support
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = ["${workspaceFolder}/x"]
          |         ^^^^^^^^^^^^^^^^^^^^^^
          hint: write the path itself
    "#);
}

#[test]
fn the_home_of_an_editor() {
    let text = r#"[servers.github]
command = "npx"
cwd = "${userHome}"
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${userHome}` is a variable of editors, which gripfast does not support
         --> gripfast.toml:3:7 (servers.github.cwd)
          |
        3 | cwd = "${userHome}"
          |       ^^^^^^^^^^^^^
          hint: write `${HOME}`
    "#);
}

#[test]
fn a_reference_that_does_not_end() {
    let text = r#"[servers.github]
command = "npx"
args = ["${HOME"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${` without a closing `}`
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = ["${HOME"]
          |         ^^^^^^^^
          hint: write `$${` for a literal `${`
    "#);
}

#[test]
fn a_reference_to_nothing() {
    let text = r#"[servers.github]
command = "npx"
args = ["${}"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${}` is empty
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = ["${}"]
          |         ^^^^^
    "#);
}

#[test]
fn a_reference_to_a_variable_without_a_name() {
    let text = r#"[servers.github]
command = "npx"
args = ["${env:}"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${env:}` does not name a variable
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = ["${env:}"]
          |         ^^^^^^^^^
          hint: write `${env:NAME}`
    "#);
}

#[test]
fn a_reference_to_a_relative_file() {
    let text = r#"[servers.github]
command = "npx"
env = { TOKEN = "${file:token.txt}" }
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${file:token.txt}` needs an absolute path
         --> gripfast.toml:3:17 (servers.github.env.TOKEN)
          |
        3 | env = { TOKEN = "${file:token.txt}" }
          |                 ^^^^^^^^^^^^^^^^^^^
          hint: write `${file:/run/secrets/name}`
    "#);
}

#[test]
fn a_reference_inside_a_default() {
    let text = r#"[servers.github]
command = "npx"
args = ["${A:-${B}}"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${A}` has a reference inside its default
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = ["${A:-${B}}"]
          |         ^^^^^^^^^^^^
          hint: write the default out
    "#);
}

#[test]
fn a_reference_of_an_unknown_form() {
    let text = r#"[servers.github]
command = "npx"
args = ["${user_config.key}"]
"#;
    assert_snapshot!(report(TOML, text), @r#"
        error: `${user_config.key}` is not a reference that gripfast knows
         --> gripfast.toml:3:9 (servers.github.args[0])
          |
        3 | args = ["${user_config.key}"]
          |         ^^^^^^^^^^^^^^^^^^^^
          hint: write `$${` for a literal `${`
    "#);
}
