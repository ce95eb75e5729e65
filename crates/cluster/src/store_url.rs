//! URL of the store: one server, or the Sentinels that know which server is the primary.
//!
//! | form | meaning |
//! |---|---|
//! | `redis://[USER:PASSWORD@]HOST[:PORT][/DB]` | one server |
//! | `rediss://…` | the same over TLS |
//! | `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/SERVICE[/DB]` | Sentinels, and the name of the service there |
//! | `rediss+sentinel://…` | the same over TLS, to the Sentinels too |

use std::fmt;
use url::Url;

/// The URL of the store. Its `Debug` and `Display` show no password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    pub(crate) security: StoreSecurity,
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
    /// The name of the service at the Sentinels; `None` if the host is the server itself.
    pub(crate) service: Option<String>,
}

/// Protection of the connection to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreSecurity {
    Plain,
    Tls,
}

/// A text is not the URL of a store. No variant contains the text, which may have a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// Another scheme, or none.
    #[error("the scheme of the store URL must be redis, rediss, redis+sentinel or rediss+sentinel")]
    Scheme,
    /// A host is missing or malformed.
    #[error("the store URL has no usable host: the form is redis://HOST:PORT/0")]
    Host,
    /// Several hosts without Sentinel.
    #[error("the store URL names several hosts, which only redis+sentinel URLs may")]
    ManyHosts,
    /// The database is not a number from 0 to 15.
    #[error("the database of the store URL must be a number from 0 to 15")]
    Database,
    /// A Sentinel URL without the name of the service.
    #[error("the sentinel URL names no service: the form is redis+sentinel://HOST:PORT/SERVICE")]
    Service,
    /// A query or a fragment.
    #[error(
        "the store URL has a query or a fragment, which has no meaning here; write `%3F` and `%23` in a password"
    )]
    Surplus,
    /// An escape that is not two hexadecimal digits, or not UTF-8.
    #[error("the user or password of the store URL has a malformed `%` escape")]
    Escape,
}

impl StoreUrl {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// If it is malformed, with the reason.
    pub fn parse(text: &str) -> Result<Self, StoreUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(StoreUrlError::Scheme)?;
        let (security, is_sentinel) = match scheme {
            "redis" => (StoreSecurity::Plain, false),
            "rediss" => (StoreSecurity::Tls, false),
            "redis+sentinel" => (StoreSecurity::Plain, true),
            "rediss+sentinel" => (StoreSecurity::Tls, true),
            _ => return Err(StoreUrlError::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(StoreUrlError::Surplus);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let (user, password) = credentials.map_or(Ok((None, None)), read_credentials)?;
        let default_port = if is_sentinel { 26379 } else { 6379 };
        let hosts: Vec<(String, u16)> =
            hosts.split(',').map(|host| read_host(host, default_port)).collect::<Result<_, _>>()?;
        let (service, database) = if is_sentinel {
            let (service, database) = path.split_once('/').unwrap_or((path, ""));
            (Some(service).filter(|service| !service.is_empty()).ok_or(StoreUrlError::Service)?, database)
        } else if hosts.len() > 1 {
            return Err(StoreUrlError::ManyHosts);
        } else {
            ("", path)
        };
        let database = match database {
            "" => 0,
            number => number
                .parse()
                .ok()
                .filter(|number| (0..=15).contains(number))
                .ok_or(StoreUrlError::Database)?,
        };
        let service = is_sentinel.then(|| service.to_owned());
        Ok(Self { security, hosts, user, password, database, service })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.security {
            StoreSecurity::Plain => "redis",
            StoreSecurity::Tls => "rediss",
        };
        let sentinel = if self.service.is_some() { "+sentinel" } else { "" };
        let hosts: Vec<String> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        write!(f, "{scheme}{sentinel}://{}", hosts.join(","))?;
        if let Some(service) = &self.service {
            write!(f, "/{service}")?;
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

type Credentials = (Option<String>, Option<String>);

fn read_credentials(text: &str) -> Result<Credentials, StoreUrlError> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, pass)| (user, Some(pass)));
    let user = if user.is_empty() { None } else { Some(unescape(user)?) };
    Ok((user, password.map(unescape).transpose()?))
}

fn read_host(text: &str, default_port: u16) -> Result<(String, u16), StoreUrlError> {
    // A special scheme, so that the host is checked like that of a web address.
    let url = Url::parse(&format!("http://{text}/")).map_err(|_| StoreUrlError::Host)?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(StoreUrlError::Host)?;
    // `Url` leaves out port 80, which is then taken from the text.
    let port = match text.rsplit_once(':') {
        Some((_, port)) if !text.ends_with(']') => port.parse().map_err(|_| StoreUrlError::Host)?,
        Some(_) | None => default_port,
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

fn unescape(text: &str) -> Result<String, StoreUrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or(StoreUrlError::Escape)?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| StoreUrlError::Escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls_are_read() {
        let url = StoreUrl::parse("redis://127.0.0.1").expect("a URL");
        assert_eq!((url.hosts.clone(), url.database), (vec![("127.0.0.1".to_owned(), 6379)], 0));
        assert_eq!(url.security, StoreSecurity::Plain);
        let url = StoreUrl::parse("rediss://me:p%40ss%2F@store.example:80/3").expect("a URL");
        assert_eq!(url.hosts, [("store.example".to_owned(), 80)]);
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss/")));
        assert_eq!((url.database, url.security), (3, StoreSecurity::Tls));
        let url = StoreUrl::parse("redis://:secret@[::1]:7000/").expect("a URL");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (None, Some("secret")));
        assert_eq!(url.hosts, [("::1".to_owned(), 7000)]);
        let url = StoreUrl::parse("redis+sentinel://one,two:26380/main/2").expect("a URL");
        assert_eq!(url.hosts, [("one".to_owned(), 26379), ("two".to_owned(), 26380)]);
        assert_eq!((url.service.as_deref(), url.database), (Some("main"), 2));
    }

    #[test]
    fn a_wrong_store_url_has_an_error_of_its_own() {
        for (text, why) in [
            ("", StoreUrlError::Scheme),
            ("localhost:6379", StoreUrlError::Scheme),
            ("http://localhost:6379", StoreUrlError::Scheme),
            ("redis://", StoreUrlError::Host),
            ("redis:///0", StoreUrlError::Host),
            ("redis://host:port", StoreUrlError::Host),
            ("redis://host:99999", StoreUrlError::Host),
            ("redis://a,b", StoreUrlError::ManyHosts),
            ("redis://host/16", StoreUrlError::Database),
            ("redis://host/x", StoreUrlError::Database),
            ("redis://host/-1", StoreUrlError::Database),
            ("redis+sentinel://a,b", StoreUrlError::Service),
            ("redis+sentinel://a,b/", StoreUrlError::Service),
            ("redis+sentinel://a,,b/main", StoreUrlError::Host),
            ("redis://host/0?protocol=3", StoreUrlError::Surplus),
            ("redis://me:a#b@host/0", StoreUrlError::Surplus),
            ("redis://me:%zz@host", StoreUrlError::Escape),
            ("redis://me:%2@host", StoreUrlError::Escape),
            ("redis://me:%ff@host", StoreUrlError::Escape),
        ] {
            assert_eq!(StoreUrl::parse(text).map(|url| url.to_string()), Err(why), "{text}");
        }
    }

    #[test]
    fn a_store_url_is_shown_without_its_password() {
        let url = StoreUrl::parse("rediss+sentinel://me:secret@one,two/main/1").expect("a URL");
        assert_eq!(url.to_string(), "rediss+sentinel://one:26379,two:26379/main/1");
        assert_eq!(format!("{url:?}"), "StoreUrl(rediss+sentinel://one:26379,two:26379/main/1)");
    }
}
