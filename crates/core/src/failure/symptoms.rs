//! Symptoms: known stderr messages of servers that fail to start, and their meaning. They are used for advice in
//! `gripfast doctor` and never for automatic decisions.

/// The reason for which a server does not start, as far as its messages tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// A package or module that it needs is not installed.
    MissingModule,
    /// The package does not exist in its registry.
    NoSuchPackage,
    /// Its port is already in use.
    PortInUse,
    /// It lacks the permission to read, write or run something.
    PermissionDenied,
    /// A file or directory that it needs does not exist.
    NoSuchFile,
    /// A credential is missing or wrong.
    Credential,
    /// A host name does not resolve.
    NoSuchHost,
    /// It does not trust a certificate.
    Certificate,
    /// A daemon that it talks to does not run.
    NoDaemon,
    /// The TLS handshake failed. This message and those of the next four symptoms are gripfast's own.
    Tls,
    /// The server does not speak TLS.
    NotTls,
    /// The server's certificate has expired.
    ExpiredCertificate,
    /// The server closed the connection instead of answering.
    ConnectionBroken,
    /// The server did not answer in time.
    Timeout,
    /// Its runtime is too old for it.
    OldRuntime,
    /// Its arguments are missing or wrong.
    Usage,
}

/// One phrase that identifies a symptom.
#[derive(Debug)]
pub struct SymptomPhrase {
    /// The phrase, in lower case.
    pub phrase: &'static str,
    /// The symptom.
    pub symptom: Symptom,
    /// A line as it is written.
    pub example: &'static str,
    /// A similar line that means something else.
    pub look_alike: &'static str,
}

const fn phrase(
    phrase: &'static str,
    means: Symptom,
    seen: &'static str,
    look_alike: &'static str,
) -> SymptomPhrase {
    SymptomPhrase { phrase, symptom: means, example: seen, look_alike }
}

/// The known phrases, the more specific ones first.
pub const PHRASES: &[SymptomPhrase] = &[
    phrase(
        "cannot find module",
        Symptom::MissingModule,
        "Error: Cannot find module '/app/dist/index.js'",
        "cannot find the module you mentioned, asking the user",
    ),
    phrase(
        "modulenotfounderror",
        Symptom::MissingModule,
        "ModuleNotFoundError: No module named 'mcp'",
        "module found, no error",
    ),
    phrase(
        ": no module named ",
        Symptom::MissingModule,
        "/usr/bin/python3: No module named mcp_server_time",
        "there is no module named like this",
    ),
    phrase(
        "err_module_not_found",
        Symptom::MissingModule,
        "code: 'ERR_MODULE_NOT_FOUND'",
        "err: module x not found in the sitemap",
    ),
    phrase(
        "npm error code e404",
        Symptom::NoSuchPackage,
        "npm error code E404",
        "npm error log: GET /page answered 404",
    ),
    phrase(
        "no solution found when resolving",
        Symptom::NoSuchPackage,
        "  × No solution found when resolving tool dependencies:",
        "no solution found for the puzzle",
    ),
    phrase(
        "was not found in the package registry",
        Symptom::NoSuchPackage,
        "Because no-such was not found in the package registry and you require no-such, we can conclude",
        "the file was not found in the package",
    ),
    phrase(
        "pull access denied",
        Symptom::NoSuchPackage,
        "docker: Error response from daemon: pull access denied for mcp/none, repository does not exist",
        "access to the pull request was denied",
    ),
    phrase(
        "eaddrinuse",
        Symptom::PortInUse,
        "Error: listen EADDRINUSE: address already in use :::3000",
        "the address is in use by its owner",
    ),
    phrase(
        "address already in use",
        Symptom::PortInUse,
        "OSError: [Errno 98] Address already in use",
        "e-mail address already used by another account",
    ),
    phrase(
        "permission denied",
        Symptom::PermissionDenied,
        "sh: 1: ./server: Permission denied",
        "permission was denied to nobody",
    ),
    phrase(
        "eacces",
        Symptom::PermissionDenied,
        "Error: EACCES: permission denied, open '/data'",
        "he accesses the data",
    ),
    phrase(
        "can't open file ",
        Symptom::NoSuchFile,
        "python3: can't open file '/srv/server.py': [Errno 2] No such file or directory",
        "the file can't open itself",
    ),
    phrase(
        "no such file or directory",
        Symptom::NoSuchFile,
        "Error: ENOENT: no such file or directory, open '/srv/config.json'",
        "there is no such file in this directory",
    ),
    phrase(
        "invalid api key",
        Symptom::Credential,
        "401 Invalid API key provided",
        "the API has an invalid key order",
    ),
    phrase(
        "bad credentials",
        Symptom::Credential,
        "RequestError [HttpError]: Bad credentials",
        "a bad day for credential managers",
    ),
    phrase(
        "environment variable is required",
        Symptom::Credential,
        "Error: BRAVE_API_KEY environment variable is required",
        "no environment variable was required so far",
    ),
    phrase(
        "environment variable is not set",
        Symptom::Credential,
        "GITHUB_TOKEN environment variable is not set",
        "an environment variable is set",
    ),
    phrase(
        "getaddrinfo enotfound",
        Symptom::NoSuchHost,
        "Error: getaddrinfo ENOTFOUND api.example.com",
        "getaddrinfo found it",
    ),
    phrase(
        "name or service not known",
        Symptom::NoSuchHost,
        "socket.gaierror: [Errno -2] Name or service not known",
        "a service by this name is known",
    ),
    phrase(
        "unable to verify the first certificate",
        Symptom::Certificate,
        "Error: unable to verify the first certificate",
        "was able to verify the first of two certificates",
    ),
    phrase(
        "certificate verify failed",
        Symptom::Certificate,
        "ssl.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        "verified the certificate",
    ),
    phrase(
        "invalid peer certificate",
        Symptom::Certificate,
        "  Caused by: invalid peer certificate: UnknownIssuer",
        "the certificate of a peer is invalid on Sundays",
    ),
    phrase(
        "unable to get local issuer certificate",
        Symptom::Certificate,
        "npm error unable to get local issuer certificate",
        "unable to find a local issuer of certificates",
    ),
    phrase(
        "self-signed certificate in certificate chain",
        Symptom::Certificate,
        "npm error request failed, reason: self-signed certificate in certificate chain",
        "made a self-signed certificate",
    ),
    phrase(
        "cannot connect to the docker daemon",
        Symptom::NoDaemon,
        "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "cannot connect two daemons in docker",
    ),
    phrase(
        "does not speak tls",
        Symptom::NotTls,
        "TLS failed: the peer does not speak TLS",
        "does not speak of TLS",
    ),
    phrase(
        "its certificate has expired",
        Symptom::ExpiredCertificate,
        "TLS failed: its certificate has expired",
        "a certificate that has expired was removed",
    ),
    phrase(
        "tls failed: ",
        Symptom::Tls,
        "TLS failed: its certificate is for another name",
        "TLS failed over to the second certificate",
    ),
    phrase(
        "the connection broke: ",
        Symptom::ConnectionBroken,
        "the connection broke: Connection reset by peer (os error 104)",
        "the connection broke nothing",
    ),
    phrase("no answer within ", Symptom::Timeout, "no answer within 30 s", "no answers within"),
    phrase(
        "unsupported engine",
        Symptom::OldRuntime,
        "npm warn EBADENGINE Unsupported engine {",
        "the engine is supported",
    ),
    phrase(
        "requires-python",
        Symptom::OldRuntime,
        "because the requested Python version does not satisfy Requires-Python >=3.12",
        "this requires Python",
    ),
    phrase(
        "usage:",
        Symptom::Usage,
        "Usage: mcp-server-filesystem <allowed-directory> [additional-directories...]",
        "memory usage: 12 MB",
    ),
];

/// The symptom of a server's stderr lines. The last line with a known phrase wins.
pub fn symptom<'l>(lines: impl DoubleEndedIterator<Item = &'l str>) -> Option<Symptom> {
    lines.rev().find_map(symptom_of_line)
}

/// The symptom of one line.
pub(super) fn symptom_of_line(line: &str) -> Option<Symptom> {
    let line = line.to_ascii_lowercase();
    // `usage:` is common in the middle of a line, so it counts only at the start.
    let begins = |phrase: &SymptomPhrase| line.trim_start().starts_with(phrase.phrase);
    let matched = PHRASES.iter().find(|phrase| {
        line.contains(phrase.phrase) && (phrase.symptom != Symptom::Usage || begins(phrase))
    })?;
    Some(matched.symptom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_is_recognised_and_its_look_alike_is_not() {
        for SymptomPhrase { phrase, symptom: means, example: seen, look_alike } in PHRASES {
            assert_eq!(*phrase, phrase.to_ascii_lowercase());
            assert!(seen.to_ascii_lowercase().contains(phrase), "{seen} holds {phrase}");
            assert_eq!(symptom_of_line(seen), Some(*means), "{seen}");
            assert_eq!(symptom_of_line(look_alike), None, "{look_alike}");
        }
    }

    #[test]
    fn the_last_line_with_a_known_phrase_wins() {
        let lines = ["npm error code E404", "ModuleNotFoundError: No module named 'x'", "", "bye"];
        assert_eq!(symptom(lines.into_iter()), Some(Symptom::MissingModule));
        assert_eq!(symptom(["hello"].into_iter()), None);
        assert_eq!(symptom(std::iter::empty()), None);
    }
}
