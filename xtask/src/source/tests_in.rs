//! Test functions of a file: name, documentation, whether they are ignored, and their lines.

use super::{Kind, Token, attribute, marks_a_test, past_group, tokens};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestFn {
    pub(crate) name: String,
    /// The `///` lines directly above it.
    pub(crate) doc: String,
    /// Whether the test is marked `#[ignore]`.
    pub(crate) ignored: bool,
    /// First and last line of the function, without its attributes.
    pub(crate) lines: (usize, usize),
}

/// All test functions of a file, including those inside `proptest! { … }`.
pub(crate) fn tests_in(source: &str) -> Vec<TestFn> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    let mut above = Above::default();
    let mut at = 0;
    while at < tokens.len() {
        if let Some((content, end)) = attribute(&tokens, at) {
            above.test |= marks_a_test(content);
            above.ignored |= content.first().is_some_and(|first| first.is("ignore"));
            at = end;
            continue;
        }
        let token = &tokens[at];
        match token.text {
            doc if token.kind == Kind::Doc => above.docs.push(doc.trim()),
            // Tokens that may come between an attribute and `fn`.
            "pub" | "async" | "unsafe" | "extern" | "const" | "crate" | "(" | ")" => {}
            "fn" if above.test && token.kind == Kind::Ident => {
                let above = std::mem::take(&mut above);
                found.push(TestFn {
                    name: tokens.get(at + 1).map_or_else(String::new, |name| name.text.to_owned()),
                    doc: above.docs.join("\n"),
                    ignored: above.ignored,
                    lines: (token.line, last_line(&tokens, at)),
                });
            }
            _ => above = Above::default(),
        }
        at += 1;
    }
    found
}

#[derive(Default)]
struct Above<'s> {
    docs: Vec<&'s str>,
    test: bool,
    ignored: bool,
}

fn last_line(tokens: &[Token<'_>], function: usize) -> usize {
    let body = tokens[function..].iter().position(|token| token.is("{")).map(|offset| function + offset);
    let last = body.and_then(|open| tokens.get(past_group(tokens, open).saturating_sub(1)));
    last.map_or(tokens[function].line, |token| token.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        tests_in(source).into_iter().map(|test| test.name).collect()
    }

    #[test]
    fn every_form_of_test_is_found_and_nothing_else() {
        let source = r##"
            #[test] fn plain() {}
            #[tokio::test(start_paused = true)] async fn paused() {}
            #[test] #[should_panic(expected = "x")] pub(crate) fn panics() {}
            fn helper() {}
            #[cfg(test)] fn also_a_helper() {}
            mod m { #[test] fn nested() {} }
            /* #[test] fn commented() {} */
            const S: &str = "#[test] fn quoted() {}";
            #[test_helper] fn not_a_test() {}
        "##;
        assert_eq!(names(source), ["plain", "paused", "panics", "nested"]);
    }

    #[test]
    fn a_test_inside_proptest_is_found() {
        let source = "proptest! { #![proptest_config(c())] /// C05\n #[test] fn twice(x in 0..3u8) { } }";
        let found = tests_in(source);
        assert_eq!((found[0].name.as_str(), found[0].doc.as_str()), ("twice", "C05"));
    }

    #[test]
    fn documentation_belongs_to_the_next_item_only() {
        let source = "/// B01\nfn helper() {}\n/// B02\n/// and more\n#[test]\nfn x() {}\n#[test] fn y() {}";
        let docs: Vec<_> = tests_in(source).into_iter().map(|test| test.doc).collect();
        assert_eq!(docs, ["B02\nand more", ""]);
    }

    #[test]
    fn an_ignored_test_is_marked_and_a_test_knows_its_lines() {
        let found = tests_in("#[test]\n#[ignore = \"slow\"]\nfn x() {\n  {}\n}\n");
        assert_eq!((found[0].ignored, found[0].lines), (true, (3, 5)));
    }
}
