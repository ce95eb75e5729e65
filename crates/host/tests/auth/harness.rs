//! An authorization server, a host or two that share a state directory, and a person who logs in when asked to.

use gripfast::auth::{Login, Logins};
use gripfast::config::{LoginKey, ServerSpec, Target, Template, TlsSpec, UrlTransport};
use gripfast::{CallError, Host, ServerStatus, State};
use gripfast_testkit::authority::{Authority, Manners, visit};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) const NAME: &str = "notes";
/// Nobody listens there, and nobody has to: the person's browser is played by the test.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:1/callback";
pub(crate) const STUCK: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) authority: Authority,
    state: TempDir,
}

impl Stage {
    pub(crate) async fn with(manners: Manners) -> Self {
        Self { authority: Authority::start(manners).await, state: tempfile::tempdir().unwrap() }
    }

    /// Where somebody has logged in already.
    pub(crate) async fn logged_in(manners: Manners) -> Self {
        let stage = Self::with(manners).await;
        stage.log_in().await;
        stage
    }

    pub(crate) fn spec(&self) -> ServerSpec {
        let url = Template::parse(&self.authority.mcp()).unwrap();
        let transport = UrlTransport::Http;
        let (headers, redirects) = (Vec::new(), Vec::new());
        let target = Target::Url { url, transport, headers, tls: TlsSpec::default(), redirects };
        let mut spec = ServerSpec::new(target);
        spec.supervision.timeouts.connect = Duration::from_secs(10);
        spec
    }

    pub(crate) fn logins(&self) -> Logins {
        Logins::of(Some(self.state.path()), LoginKey::File)
    }

    pub(crate) async fn log_in(&self) {
        let login = Login::begin(NAME, &self.spec(), &self.logins(), REDIRECT).await.unwrap();
        let came_back_to = visit(login.url()).await;
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
        until(&host, State::Ready).await;
        host
    }

    /// From now on no login can be kept, whoever asks for it: there is a file where their directory should be.
    pub(crate) fn keep_nothing(&self) {
        std::fs::write(self.state.path().join("logins"), "").unwrap();
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &std::path::Path {
        self.state.path()
    }

    /// Everything that is kept about logins.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let logins = std::fs::read_dir(self.state.path().join("logins")).unwrap();
        logins.map(|file| file.unwrap().path()).collect()
    }

    /// The file in which the login is kept.
    pub(crate) fn kept(&self) -> PathBuf {
        self.files()
            .into_iter()
            .find(|file| file.extension().is_some_and(|extension| extension == "json"))
            .unwrap()
    }
}

pub(crate) async fn call(host: &Host) -> Result<(), CallError> {
    let called = tokio::time::timeout(STUCK, host.call(NAME, "whoami", None)).await.expect("it hangs");
    called.map(|answer| assert!(!answer.is_error(), "{:?}", answer.result()))
}

pub(crate) async fn until(host: &Host, state: State) -> ServerStatus {
    let mut events = host.events();
    let deadline = Instant::now() + STUCK;
    loop {
        let status = host.status_of(NAME).unwrap();
        if status.supervision.state == state {
            return status;
        }
        assert!(Instant::now() < deadline, "it never became {state:?}: {status:#?}");
        let _ = tokio::time::timeout(Duration::from_millis(20), events.recv()).await;
    }
}
