//! Names of keys: all of a service start with `{namespace}:`.

/// The namespace of one service in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    prefix: String,
}

/// A text is not a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a namespace: use 1 to 63 letters, digits, hyphens, underscores and dots")]
pub struct NamespaceError(String);

impl Namespace {
    /// The namespace with this name.
    ///
    /// # Errors
    ///
    /// If the name has other characters, which could end the hash tag or reach keys of another service.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 63 || !name.bytes().all(is_allowed) {
            return Err(NamespaceError(name.to_owned()));
        }
        Ok(Self { prefix: format!("{{{name}}}:") })
    }

    /// The beginning of all keys. The scripts make the keys of replicas and leases from it.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_start_with_the_hash_tag() {
        let namespace = Namespace::new("prod.eu-1").expect("a namespace");
        assert_eq!(namespace.key("service"), "{prod.eu-1}:service");
        for refused in ["", "a}", "a:b", "a b", "ä", &"a".repeat(64)] {
            assert!(Namespace::new(refused).is_err(), "{refused}");
        }
    }
}
