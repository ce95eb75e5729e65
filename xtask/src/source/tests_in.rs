//! Test functions of a file: name, documentation, whether they are ignored, and their lines.

use super::marks_a_test;
use proc_macro2::Group;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, File, Ident, ItemFn, Lit, Macro, Meta, Token, Visibility};

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

/// All test functions of a file, including those inside `proptest! { … }`. A file that does not parse has none;
/// `cargo xtask names` reports it.
pub(crate) fn tests_in(source: &str) -> Vec<TestFn> {
    syn::parse_file(source).map(|parsed| tests_of(&parsed)).unwrap_or_default()
}

/// The same for a file that has been parsed.
pub(crate) fn tests_of(parsed: &File) -> Vec<TestFn> {
    let mut found = Found::default();
    found.visit_file(parsed);
    found.0
}

#[derive(Default)]
struct Found(Vec<TestFn>);

impl Found {
    fn add(&mut self, attributes: &[Attribute], name: &Ident, lines: (usize, usize)) {
        if attributes.iter().any(marks_a_test) {
            let doc: Vec<String> = attributes.iter().filter_map(doc_line).collect();
            let ignored = attributes.iter().any(|attribute| attribute.path().is_ident("ignore"));
            self.0.push(TestFn { name: name.to_string(), doc: doc.join("\n"), ignored, lines });
        }
    }
}

impl Visit<'_> for Found {
    fn visit_item_fn(&mut self, function: &ItemFn) {
        let first = function.sig.fn_token.span().start().line;
        self.add(&function.attrs, &function.sig.ident, (first, function.block.span().end().line));
        visit::visit_item_fn(self, function);
    }

    fn visit_macro(&mut self, invoked: &Macro) {
        if invoked.path.is_ident("proptest") {
            let functions = |input: ParseStream<'_>| {
                Attribute::parse_inner(input)?;
                while !input.is_empty() {
                    let attributes = Attribute::parse_outer(input)?;
                    input.parse::<Visibility>()?;
                    let first = input.parse::<Token![fn]>()?.span().start().line;
                    let name: Ident = input.parse()?;
                    // Its arguments are patterns with strategies, which are no Rust.
                    let (_, body): (Group, Group) = (input.parse()?, input.parse()?);
                    self.add(&attributes, &name, (first, body.span_close().end().line));
                }
                Ok(())
            };
            // A body of another form has no test functions.
            let _ = functions.parse2(invoked.tokens.clone());
        }
    }
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if pair.path.is_ident("doc") => {
            Some(text.value().trim().to_owned())
        }
        _ => None,
    }
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
