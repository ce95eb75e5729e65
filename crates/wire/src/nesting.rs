//! The nesting depth of JSON, counted without recursion.

/// Returns whether arrays and objects in `json` are nested more than `limit` levels deep. Brackets inside strings do
/// not count. For bytes that are not JSON the result has no meaning, but the function does not panic.
pub fn exceeds(json: &[u8], limit: usize) -> bool {
    // Each level needs an opening bracket. Counting them is vectorized, and few messages have more than the limit.
    opening_brackets(json) > limit && depth_exceeds(json, limit)
}

fn opening_brackets(json: &[u8]) -> usize {
    /// A count of this many bytes fits into one.
    const BLOCK: usize = 255;
    // `[` and `{` differ in this bit only, and no other byte becomes `{` with it.
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{');
    // A checked sum would not be vectorized. The block is too short for this one to overflow.
    let count = |block: &[u8]| block.iter().fold(0_u8, |count, byte| count.wrapping_add(opens(byte)));
    json.chunks(BLOCK).map(|block| usize::from(count(block))).sum()
}

fn depth_exceeds(json: &[u8], limit: usize) -> bool {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(json, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The index after the closing quote of the string whose content begins at `from`.
fn end_of_string(json: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if json[at - 1] == b'"' {
            return at;
        }
        // An escaped character has no meaning of its own.
        at += 1;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nested(levels: usize) -> String {
        let open: String = (0..levels).map(|level| if level % 2 == 0 { "[" } else { "{\"a\":" }).collect();
        let close: String = (0..levels).rev().map(|level| if level % 2 == 0 { "]" } else { "}" }).collect();
        format!("{open}1{close}")
    }

    #[test]
    fn g07_nesting_at_the_limit_passes_and_one_level_more_does_not() {
        for limit in [0, 1, 128, 129, 1000] {
            assert!(!exceeds(nested(limit).as_bytes(), limit), "{limit}");
            assert!(exceeds(nested(limit + 1).as_bytes(), limit), "{limit}");
        }
        assert!(exceeds(nested(1_000_000).as_bytes(), 128));
    }

    #[test]
    fn g07_brackets_in_strings_and_side_by_side_are_not_levels() {
        for flat in [
            format!("[{}1]", "[],".repeat(1000)),
            format!("\"{}\"", "[".repeat(1000)),
            format!("{{\"\\\"{}\":1}}", "{".repeat(1000)),
            format!("[\"\\\\\",\"{}\"]", "[".repeat(1000)),
        ] {
            assert!(!exceeds(flat.as_bytes(), 2), "{flat:.20}");
        }
        // A string that does not end hides what follows.
        assert!(!exceeds(format!("\"\\{}", "[".repeat(1000)).as_bytes(), 2));
    }

    fn depth_of(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
            serde_json::Value::Object(members) => 1 + members.values().map(depth_of).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf =
            prop_oneof![any::<i32>().prop_map(Into::into), "[\\[\\]{}\"\\\\a]{0,6}".prop_map(Into::into)];
        leaf.prop_recursive(6, 64, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::vec(("[\\[{\"]{0,2}", inner), 0..4)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_depth_is_that_of_the_value(value in any_json()) {
            let (text, depth) = (value.to_string(), depth_of(&value));
            prop_assert!(!exceeds(text.as_bytes(), depth));
            prop_assert!(depth == 0 || exceeds(text.as_bytes(), depth - 1));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, limit in 0_usize..4) {
            exceeds(&bytes, limit);
        }
    }
}
