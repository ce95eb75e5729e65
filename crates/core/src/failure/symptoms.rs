//! What servers write to stderr before they give up, and what it means to whoever looks into it. Nothing that
//! gripfast does by itself is decided here: it is advice.

/// Why a server does not start, as far as its own words tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// A package or module that it needs is not installed.
    MissingModule,
    /// The package that should be run does not exist in its registry.
    NoSuchPackage,
    /// It wants to listen where somebody listens already.
    PortTaken,
    /// It may not read, write or run something.
    NotAllowed,
    /// A file or directory that it wants to use is not there.
    NoSuchFile,
    /// A credential is missing or wrong.
    Credential,
    /// It cannot find a host by its name.
    NoSuchHost,
    /// It does not trust a certificate.
    Certificate,
    /// What it talks to is a daemon that does not run.
    NoDaemon,
    /// It and we do not agree on TLS. These words are our own, and so are those of the four that follow.
    Tls,
    /// It does not speak TLS at all.
    NotTls,
    /// Its certificate is too old.
    ExpiredCertificate,
    /// It hung up instead of answering.
    BrokeOff,
    /// It did not answer in time.
    Slow,
    /// Its runtime is too old for it.
    OldRuntime,
    /// It wants arguments, and got none or wrong ones.
    Usage,
}

/// One way of saying it.
#[derive(Debug)]
pub struct Saying {
    /// The telling words, in lower case.
    pub phrase: &'static str,
    /// What they mean.
    pub means: Symptom,
    /// A line as it is written.
    pub seen: &'static str,
    /// A line in nearly the same words that means something else.
    pub look_alike: &'static str,
}

const fn saying(
    phrase: &'static str,
    means: Symptom,
    seen: &'static str,
    look_alike: &'static str,
) -> Saying {
    Saying { phrase, means, seen, look_alike }
}

/// The known ones, the more telling first.
pub const SAYINGS: &[Saying] = &[
    saying(
        "cannot find module",
        Symptom::MissingModule,
        "Error: Cannot find module '/app/dist/index.js'",
        "cannot find the module you mentioned, asking the user",
    ),
    saying(
        "modulenotfounderror",
        Symptom::MissingModule,
        "ModuleNotFoundError: No module named 'mcp'",
        "module found, no error",
    ),
    saying(
        ": no module named ",
        Symptom::MissingModule,
        "/usr/bin/python3: No module named mcp_server_time",
        "there is no module named like this",
    ),
    saying(
        "err_module_not_found",
        Symptom::MissingModule,
        "code: 'ERR_MODULE_NOT_FOUND'",
        "err: module x not found in the sitemap",
    ),
    saying(
        "npm error code e404",
        Symptom::NoSuchPackage,
        "npm error code E404",
        "npm error log: GET /page answered 404",
    ),
    saying(
        "no solution found when resolving",
        Symptom::NoSuchPackage,
        "  × No solution found when resolving tool dependencies:",
        "no solution found for the puzzle",
    ),
    saying(
        "was not found in the package registry",
        Symptom::NoSuchPackage,
        "Because no-such was not found in the package registry and you require no-such, we can conclude",
        "the file was not found in the package",
    ),
    saying(
        "pull access denied",
        Symptom::NoSuchPackage,
        "docker: Error response from daemon: pull access denied for mcp/none, repository does not exist",
        "access to the pull request was denied",
    ),
    saying(
        "eaddrinuse",
        Symptom::PortTaken,
        "Error: listen EADDRINUSE: address already in use :::3000",
        "the address is in use by its owner",
    ),
    saying(
        "address already in use",
        Symptom::PortTaken,
        "OSError: [Errno 98] Address already in use",
        "e-mail address already used by another account",
    ),
    saying(
        "permission denied",
        Symptom::NotAllowed,
        "sh: 1: ./server: Permission denied",
        "permission was denied to nobody",
    ),
    saying(
        "eacces",
        Symptom::NotAllowed,
        "Error: EACCES: permission denied, open '/data'",
        "he accesses the data",
    ),
    saying(
        "can't open file ",
        Symptom::NoSuchFile,
        "python3: can't open file '/srv/server.py': [Errno 2] No such file or directory",
        "the file can't open itself",
    ),
    saying(
        "no such file or directory",
        Symptom::NoSuchFile,
        "Error: ENOENT: no such file or directory, open '/srv/config.json'",
        "there is no such file in this directory",
    ),
    saying(
        "invalid api key",
        Symptom::Credential,
        "401 Invalid API key provided",
        "the API has an invalid key order",
    ),
    saying(
        "bad credentials",
        Symptom::Credential,
        "RequestError [HttpError]: Bad credentials",
        "a bad day for credential managers",
    ),
    saying(
        "environment variable is required",
        Symptom::Credential,
        "Error: BRAVE_API_KEY environment variable is required",
        "no environment variable was required so far",
    ),
    saying(
        "environment variable is not set",
        Symptom::Credential,
        "GITHUB_TOKEN environment variable is not set",
        "an environment variable is set",
    ),
    saying(
        "getaddrinfo enotfound",
        Symptom::NoSuchHost,
        "Error: getaddrinfo ENOTFOUND api.example.com",
        "getaddrinfo found it",
    ),
    saying(
        "name or service not known",
        Symptom::NoSuchHost,
        "socket.gaierror: [Errno -2] Name or service not known",
        "a service by this name is known",
    ),
    saying(
        "unable to verify the first certificate",
        Symptom::Certificate,
        "Error: unable to verify the first certificate",
        "was able to verify the first of two certificates",
    ),
    saying(
        "certificate verify failed",
        Symptom::Certificate,
        "ssl.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        "verified the certificate",
    ),
    saying(
        "invalid peer certificate",
        Symptom::Certificate,
        "  Caused by: invalid peer certificate: UnknownIssuer",
        "the certificate of a peer is invalid on Sundays",
    ),
    saying(
        "unable to get local issuer certificate",
        Symptom::Certificate,
        "npm error unable to get local issuer certificate",
        "unable to find a local issuer of certificates",
    ),
    saying(
        "self-signed certificate in certificate chain",
        Symptom::Certificate,
        "npm error request failed, reason: self-signed certificate in certificate chain",
        "made a self-signed certificate",
    ),
    saying(
        "cannot connect to the docker daemon",
        Symptom::NoDaemon,
        "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "cannot connect two daemons in docker",
    ),
    saying(
        "does not speak tls",
        Symptom::NotTls,
        "TLS failed: what answers there does not speak TLS",
        "does not speak of TLS",
    ),
    saying(
        "its certificate has expired",
        Symptom::ExpiredCertificate,
        "TLS failed: its certificate has expired",
        "a certificate that has expired was removed",
    ),
    saying(
        "tls failed: ",
        Symptom::Tls,
        "TLS failed: its certificate is for another name",
        "TLS failed over to the second certificate",
    ),
    saying(
        "the connection broke: ",
        Symptom::BrokeOff,
        "the connection broke: Connection reset by peer (os error 104)",
        "the connection broke nothing",
    ),
    saying("no answer within ", Symptom::Slow, "no answer within 30 s", "no answers within"),
    saying(
        "unsupported engine",
        Symptom::OldRuntime,
        "npm warn EBADENGINE Unsupported engine {",
        "the engine is supported",
    ),
    saying(
        "requires-python",
        Symptom::OldRuntime,
        "because the requested Python version does not satisfy Requires-Python >=3.12",
        "this requires Python",
    ),
    saying(
        "usage:",
        Symptom::Usage,
        "Usage: mcp-server-filesystem <allowed-directory> [additional-directories...]",
        "memory usage: 12 MB",
    ),
];

/// What the last words of a server mean. The last line that says something telling counts.
pub fn symptom<'l>(lines: impl DoubleEndedIterator<Item = &'l str>) -> Option<Symptom> {
    lines.rev().find_map(meaning)
}

/// What one line means.
pub(super) fn meaning(line: &str) -> Option<Symptom> {
    let line = line.to_ascii_lowercase();
    // A word that is common in the middle of a line counts at its beginning.
    let begins = |saying: &Saying| line.trim_start().starts_with(saying.phrase);
    let said = SAYINGS
        .iter()
        .find(|saying| line.contains(saying.phrase) && (saying.means != Symptom::Usage || begins(saying)))?;
    Some(said.means)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_saying_is_recognised_and_its_look_alike_is_not() {
        for Saying { phrase, means, seen, look_alike } in SAYINGS {
            assert_eq!(*phrase, phrase.to_ascii_lowercase());
            assert!(seen.to_ascii_lowercase().contains(phrase), "{seen} holds {phrase}");
            assert_eq!(meaning(seen), Some(*means), "{seen}");
            assert_eq!(meaning(look_alike), None, "{look_alike}");
        }
    }

    #[test]
    fn the_last_telling_line_counts() {
        let lines = ["npm error code E404", "ModuleNotFoundError: No module named 'x'", "", "bye"];
        assert_eq!(symptom(lines.into_iter()), Some(Symptom::MissingModule));
        assert_eq!(symptom(["hello"].into_iter()), None);
        assert_eq!(symptom(std::iter::empty()), None);
    }
}
