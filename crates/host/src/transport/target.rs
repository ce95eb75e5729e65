//! From what the config says to an open link. References to the environment are filled in here, at the
//! moment of connecting, so a token that changed meanwhile is found.

use super::http::{HttpClient, HttpLink};
use super::inbox::Surroundings;
use super::process::{Environment, NetworkVariables, ProcessTree, Program, why_not_started};
use super::sse::LegacySseLink;
use super::stdio::StdioLink;
use super::{BoxFuture, Dialer, Link, Renewed, Route};
use crate::auth::Credential;
use crate::config::{
    ExpandError, Expanded, ProcessEnvironment, Reference, Target, Template, TlsSpec, UrlTransport, endpoint,
};
use crate::private_files::StrictModes;
use gripfast_core::failure::{During, Evidence, Observed};
use gripfast_core::redact::{KnownSecrets, announces_secret, secret_arguments};
use gripfast_core::supervise::upstream::LinkKind;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::path::Path;
use std::sync::Arc;
use url::{Url, form_urlencoded};

/// Dials what a config names.
pub(crate) struct TargetDialer {
    target: Target,
    credential: Option<Arc<Credential>>,
}

/// The files of a TLS setup, filled in.
#[derive(Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) ca_file: Option<String>,
    pub(crate) client_cert: Option<String>,
    pub(crate) client_key: Option<String>,
    pub(crate) strict_modes: StrictModes,
}

impl TargetDialer {
    pub(crate) fn new(target: Target, credential: Option<Credential>) -> Self {
        Self { target, credential: credential.map(Arc::new) }
    }
}

impl Dialer for TargetDialer {
    fn kind(&self) -> LinkKind {
        match self.target {
            Target::Stdio { .. } => LinkKind::Process,
            Target::Url { .. } => LinkKind::Remote,
        }
    }

    fn routes(&self) -> Vec<Route> {
        match &self.target {
            Target::Stdio { .. } => vec![Route::Stdio],
            Target::Url { transport, .. } => match transport {
                UrlTransport::Auto => vec![Route::Http, Route::LegacySse],
                UrlTransport::Http => vec![Route::Http],
                UrlTransport::Sse => vec![Route::LegacySse],
            },
        }
    }

    fn open(
        &self,
        route: Route,
        surroundings: Surroundings,
    ) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        Box::pin(async move {
            let opened = match &self.target {
                Target::Stdio { .. } => start_child(&self.target, surroundings).await,
                Target::Url { .. } => self.open_url(route, surroundings).await,
            };
            opened.map_err(|observed| Evidence::unsent(During::Handshake, observed))
        })
    }

    fn secrets(&self) -> BoxFuture<'_, KnownSecrets> {
        Box::pin(async move {
            let mut filling = Filling::default();
            filling.look_ahead(&self.target).await;
            filling.secrets
        })
    }

    fn renew_credential(&self) -> BoxFuture<'_, Result<Renewed, Evidence>> {
        Box::pin(async move {
            let Some(credential) = &self.credential else { return Ok(Renewed::NeedsPerson(None)) };
            let renewed = credential.renew().await;
            renewed.map_err(|observed| Evidence::unsent(During::Handshake, observed))
        })
    }

    fn credential_mended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.credential {
                Some(credential) => credential.changed_elsewhere().await,
                None => std::future::pending().await,
            }
        })
    }
}

/// What is filled in for a link, and what of it is nobody else's to read.
#[derive(Default)]
struct Filling {
    secrets: KnownSecrets,
}

impl Filling {
    /// Fills in a value. What came from elsewhere is a secret, unless every child gets it anyway or it is the path of a
    /// file, without which no message about that file could be read.
    async fn value(&mut self, template: &Template) -> Result<String, Observed> {
        let expanded = fill_in(template).await?;
        for (from, value) in expanded.filled_in() {
            let is_harmless = match from {
                Reference::Variable { name, .. } => {
                    Environment::is_usual(name) || (!announces_secret(name) && is_path(value))
                }
                Reference::File { .. } | Reference::Command { .. } => false,
            };
            if !is_harmless {
                self.secrets.learn(value);
            }
        }
        Ok(expanded.into_revealed())
    }

    /// Learns the password and the secret query values of a URL, without their percent-encoding.
    fn learn_url(&mut self, url: &Url) {
        let password = url.password().unwrap_or_default();
        self.secrets.learn(password);
        // The decoder is that of forms, where these letters mean something else.
        let as_form = password.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
        form_urlencoded::parse(as_form.as_bytes()).for_each(|(password, _)| self.secrets.learn(&password));
        for (name, value) in url.query_pairs() {
            if announces_secret(&name) {
                self.secrets.learn(&value);
            }
        }
    }

    /// Learns what a target will be filled in with. References to programs are left for the link.
    async fn look_ahead(&mut self, target: &Target) {
        for template in target.templates().into_iter().filter(|template| !runs_program(template)) {
            let _ = self.value(template).await;
        }
        let pairs = match target {
            Target::Stdio { args, env, .. } => {
                let args: Vec<Template> = args.iter().filter(|arg| !runs_program(arg)).cloned().collect();
                let _ = self.arguments(&args).await;
                env
            }
            Target::Url { url, headers, .. } => {
                if !runs_program(url)
                    && let Ok(url) = self.value(url).await
                    && let Ok(url) = endpoint(&url)
                {
                    self.learn_url(&url);
                }
                headers
            }
        };
        for (_, value) in pairs.iter().filter(|(name, value)| announces_secret(name) && !runs_program(value))
        {
            if let Ok(value) = self.value(value).await {
                self.secrets.learn_words(&value);
            }
        }
    }

    /// The arguments of a command, some of which are secret by the flag before them.
    async fn arguments(&mut self, args: &[Template]) -> Result<Vec<String>, Observed> {
        let mut filled_in = Vec::with_capacity(args.len());
        for arg in args {
            filled_in.push(self.value(arg).await?);
        }
        let words: Vec<&str> = filled_in.iter().map(String::as_str).collect();
        secret_arguments(&words).into_iter().flatten().for_each(|part| self.secrets.learn_words(part));
        Ok(filled_in)
    }
}

/// Whether a value is the path of something that exists on this machine, or could be made in a directory that does.
fn is_path(value: &str) -> bool {
    let path = Path::new(value);
    let in_directory = || path.parent().is_some_and(|folder| folder.parent().is_some() && folder.is_dir());
    path.is_absolute() && (path.exists() || in_directory())
}

fn runs_program(template: &Template) -> bool {
    template.references().any(|reference| matches!(reference, Reference::Command { .. }))
}

async fn start_child(target: &Target, surroundings: Surroundings) -> Result<Arc<dyn Link>, Observed> {
    let Target::Stdio { command, args, env, inherit_env, network_env, cwd } = target else {
        return Err(Observed::BadConfig("not a command".to_owned()));
    };
    let mut filling = Filling::default();
    let program = filling.value(command).await?;
    let args = filling.arguments(args).await?;
    let ours = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let network = if *network_env { NetworkVariables::Pass } else { NetworkVariables::Drop };
    let mut environment = Environment::filtered(ours, inherit_env, network);
    for proxy in environment.proxies().filter_map(|proxy| Url::parse(proxy).ok()) {
        filling.learn_url(&proxy);
    }
    for (name, value) in env {
        environment.set(name, &filling.value(value).await?);
    }
    for (_, value) in environment.iter().filter(|(name, _)| announces_secret(name)) {
        filling.secrets.learn_words(value);
    }
    surroundings.secrets.filled_in(filling.secrets);
    let cwd = expand_any(cwd.as_ref()).await?;
    if let Some(cwd) = cwd.as_ref().filter(|cwd| !Path::new(cwd).is_dir()) {
        return Err(Observed::BadConfig(format!("`cwd` is not a directory: {cwd}")));
    }
    let found = Program::of(&program, environment.get("PATH"));
    let started = ProcessTree::start(&found, surroundings.children.token(), |child| {
        child.args(&args).env_clear().envs(environment.iter());
        if let Some(cwd) = &cwd {
            child.current_dir(cwd);
        }
    });
    let (tree, pipes) = started.await.map_err(|error| why_not_started(&error, &program))?;
    Ok(Arc::new(StdioLink::over(tree, pipes, surroundings)))
}

impl TargetDialer {
    async fn open_url(&self, route: Route, surroundings: Surroundings) -> Result<Arc<dyn Link>, Observed> {
        let Target::Url { url, headers, tls, redirects, .. } = &self.target else {
            return Err(Observed::BadConfig("not a URL".to_owned()));
        };
        let mut filling = Filling::default();
        let url: Url = endpoint(&filling.value(url).await?)
            .map_err(|error| Observed::BadConfig(format!("`url` cannot be used: {error}")))?;
        filling.learn_url(&url);
        let headers = header_map(headers, &mut filling).await?;
        let Filling { secrets } = filling;
        surroundings.secrets.filled_in(secrets);
        if let Some(credential) = &self.credential {
            credential.look_again().await?;
        }
        let redirects = redirects.iter().map(|origin| endpoint(origin)).collect::<Result<Vec<Url>, _>>();
        let redirects = redirects.map_err(|error| Observed::BadConfig(format!("`redirects`: {error}")))?;
        let tls = TlsFiles::of(tls).await?;
        let client = HttpClient::new(&url, &redirects, headers, tls, self.credential.clone())?
            .telling(Arc::clone(&surroundings.secrets));
        match route {
            Route::LegacySse => Ok(Arc::new(LegacySseLink::open(client, url, surroundings).await?)),
            Route::Http | Route::Stdio | Route::Custom => {
                Ok(Arc::new(HttpLink::new(client, url, surroundings)?))
            }
        }
    }
}

/// All headers but `Authorization`, which is the credential's: it knows when to show another.
async fn header_map(headers: &[(String, Template)], filling: &mut Filling) -> Result<HeaderMap, Observed> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = |what: &str| Observed::BadConfig(format!("header `{name}` {what}"));
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("is not a valid name"))?;
        if parsed == AUTHORIZATION {
            continue;
        }
        let value = filling.value(value).await?;
        if announces_secret(name) {
            filling.secrets.learn_words(&value);
        }
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| bad("holds characters that a header cannot carry"))?;
        map.insert(parsed, value);
    }
    Ok(map)
}

impl TlsFiles {
    pub(crate) async fn of(tls: &TlsSpec) -> Result<Self, Observed> {
        Ok(Self {
            ca_file: expand_any(tls.ca_file.as_ref()).await?,
            client_cert: expand_any(tls.client_cert.as_ref()).await?,
            client_key: expand_any(tls.client_key.as_ref()).await?,
            strict_modes: tls.strict_modes,
        })
    }
}

/// Fills a template in. Files may be far away and programs slow, so those are asked where nobody else waits.
pub(crate) async fn expand(template: &Template) -> Result<String, Observed> {
    fill_in(template).await.map(Expanded::into_revealed)
}

async fn fill_in(template: &Template) -> Result<Expanded, Observed> {
    let waits = |reference: &Reference| match reference {
        Reference::Variable { .. } => false,
        Reference::File { .. } | Reference::Command { .. } => true,
    };
    let expanded = if template.references().any(waits) {
        let template = template.clone();
        let asked = tokio::task::spawn_blocking(move || template.expand(&ProcessEnvironment)).await;
        asked.map_err(|error| Observed::BadConfig(format!("a reference cannot be filled in: {error}")))?
    } else {
        template.expand(&ProcessEnvironment)
    };
    expanded.map_err(|error| match error {
        ExpandError::Unset { name } => Observed::UnsetVariable(name),
        ExpandError::LacksResources { what } => Observed::LacksResources(what.to_owned()),
        ExpandError::NotText { .. }
        | ExpandError::FileUnreadable { .. }
        | ExpandError::CommandFailed { .. } => Observed::BadConfig(error.to_string()),
    })
}

async fn expand_any(template: Option<&Template>) -> Result<Option<String>, Observed> {
    match template {
        Some(template) => expand(template).await.map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_that_a_variable_names_is_no_secret_and_other_values_are() {
        let mut filling = Filling::default();
        let filled = |text: &str| Template::parse(text).unwrap();
        // Cargo sets both for tests.
        let script = filling.value(&filled("${env:CARGO_MANIFEST_DIR}/no-such.py")).await.unwrap();
        let said = format!("can't open file '{script}'");
        assert_eq!(filling.secrets.mask(&said), said);
        let name = filling.value(&filled("${env:CARGO_PKG_NAME}")).await.unwrap();
        assert_eq!(filling.secrets.mask(&name), "*".repeat(name.len()));
        for secret in ["/x7Hk2mQ9", "/x7Hk/2mQ9", "x7Hk2mQ9", ""] {
            assert!(!is_path(secret), "{secret}");
        }
    }
}
