//! Test setup: an authorization server, hosts that share a state directory, and a simulated user who logs in.

use gripfast::auth::{Login, Logins};
use gripfast::config::{LoginKey, ServerSpec, Target, Template, TlsSpec, UrlTransport};
use gripfast::{CallError, Host, ServerStatus, State};
use gripfast_testkit::authority::{Authority, AuthorityOptions, authorize_in_browser};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) const NAME: &str = "notes";
/// Redirect URI without a listener; the test plays the browser.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:1/callback";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct AuthTest {
    pub(crate) authority: Authority,
    state: TempDir,
}

impl AuthTest {
    pub(crate) async fn new(options: AuthorityOptions) -> Self {
        Self { authority: Authority::start(options).await, state: tempfile::tempdir().unwrap() }
    }

    /// Setup with a completed login.
    pub(crate) async fn logged_in(options: AuthorityOptions) -> Self {
        let setup = Self::new(options).await;
        setup.log_in().await;
        setup
    }

    pub(crate) fn spec(&self) -> ServerSpec {
        let url = Template::parse(&self.authority.mcp_url()).unwrap();
        let transport = UrlTransport::Http;
        let (headers, redirects) = (Vec::new(), Vec::new());
        let target = Target::Url { url, transport, headers, tls: TlsSpec::default(), redirects };
        let mut spec = ServerSpec::new(target);
        spec.supervision.timeouts.connect = Duration::from_secs(10);
        spec
    }

    pub(crate) fn logins(&self) -> Logins {
        Logins::new(Some(self.state.path()), LoginKey::File)
    }

    pub(crate) async fn log_in(&self) {
        let login = Login::begin(NAME, &self.spec(), &self.logins(), REDIRECT).await.unwrap();
        let came_back_to = authorize_in_browser(login.url()).await;
        login.finish(&came_back_to).await.unwrap();
    }

    pub(crate) fn host(&self) -> Host {
        self.host_of(self.spec())
    }

    pub(crate) fn host_of(&self, spec: ServerSpec) -> Host {
        let host = Host::builder().state_dir(Some(self.state.path().to_owned())).build();
        host.spawn(NAME, spec).unwrap();
        host
    }

    pub(crate) async fn ready_host(&self) -> Host {
        let host = self.host();
        wait_until(&host, State::Ready).await;
        host
    }

    /// Makes it impossible to store logins: a file takes the place of their directory.
    pub(crate) fn block_login_storage(&self) {
        std::fs::write(self.state.path().join("logins"), "").unwrap();
    }

    /// State directory.
    pub(crate) fn state(&self) -> &std::path::Path {
        self.state.path()
    }

    /// All files about logins.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let logins = std::fs::read_dir(self.state.path().join("logins")).unwrap();
        logins.map(|file| file.unwrap().path()).collect()
    }

    /// File that holds the login.
    pub(crate) fn login_file(&self) -> PathBuf {
        self.files()
            .into_iter()
            .find(|file| file.extension().is_some_and(|extension| extension == "json"))
            .unwrap()
    }
}

pub(crate) async fn call(host: &Host) -> Result<(), CallError> {
    let called = tokio::time::timeout(TIMEOUT, host.call(NAME, "whoami", None)).await.expect("it hangs");
    called.map(|answer| assert!(!answer.is_error(), "{:?}", answer.result()))
}

pub(crate) async fn wait_until(host: &Host, state: State) -> ServerStatus {
    let mut events = host.subscribe_events();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = host.server_status(NAME).unwrap();
        if status.supervision.state == state {
            return status;
        }
        assert!(Instant::now() < deadline, "it never became {state:?}: {status:#?}");
        let _ = tokio::time::timeout(Duration::from_millis(20), events.recv()).await;
    }
}
