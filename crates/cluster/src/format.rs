//! Format numbers: every stored value starts with one, so that two versions of gripfast can share a store. A value of a
//! newer format is never overwritten.

use crate::StoreError;

/// The newest format that this version reads, and the one that it writes.
pub(crate) const FORMAT: u32 = 1;

/// A value in the present format.
pub(crate) fn encode(payload: &str) -> String {
    format!("{FORMAT}:{payload}")
}

/// The payload of a value.
pub(crate) fn decode<'a>(key: &str, value: &'a str) -> Result<&'a str, StoreError> {
    let malformed = || StoreError::Malformed(key.to_owned());
    let (format, payload) = value.split_once(':').ok_or_else(malformed)?;
    match format.parse::<u32>() {
        Ok(found) if found > FORMAT => Err(StoreError::NewerFormat { found, known: FORMAT }),
        Ok(FORMAT) => Ok(payload),
        Ok(_) | Err(_) => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_starts_with_its_format() {
        assert_eq!(encode("x:y"), "1:x:y");
        assert_eq!(decode("k", "1:x:y"), Ok("x:y"));
        assert_eq!(decode("k", "2:x"), Err(StoreError::NewerFormat { found: 2, known: 1 }));
        for malformed in ["", "x", "0:x", "-1:x", ":x"] {
            assert_eq!(decode("k", malformed), Err(StoreError::Malformed("k".to_owned())), "{malformed}");
        }
    }
}
