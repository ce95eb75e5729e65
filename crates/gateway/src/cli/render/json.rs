//! Pretty-prints JSON without parsing it into values: numbers, escapes and the order of keys stay as the server wrote
//! them.

/// Pretty-prints a valid JSON text, with two spaces per level.
pub(crate) fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth: usize = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                out.push(letter);
                let mut escaped = false;
                for letter in letters.by_ref() {
                    out.push(letter);
                    if letter == '"' && !escaped {
                        break;
                    }
                    escaped = letter == '\\' && !escaped;
                }
            }
            '{' | '[' => {
                out.push(letter);
                while letters.next_if(char::is_ascii_whitespace).is_some() {}
                match letters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_formats_and_key_order_are_kept() {
        let text = r#"{"z":[1.0e+5, {},[ ] ,123456789012345678901234567890],"a\"{,":"x: [\\"}"#;
        let expected = "{\n  \"z\": [\n    1.0e+5,\n    {},\n    [],\n    123456789012345678901234567890\n  ],\n  \
                        \"a\\\"{,\": \"x: [\\\\\"\n}";
        assert_eq!(pretty(text), expected);
        assert_eq!(pretty(" \"a b\" "), "\"a b\"");
    }
}
