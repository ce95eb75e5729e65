//! Opens links to the targets of the config. References to the environment, files and commands are expanded at connect
//! time, so a token that has changed is found.

use super::http::{HttpClient, HttpLink};
use super::inbox::LinkContext;
use super::process::{ChildLifetime, Environment, NetworkVariables, ProcessTree, Program, spawn_failure};
use super::sse::LegacySseLink;
use super::stdio::StdioLink;
use super::{BoxFuture, Dialer, Link, RenewOutcome, Route};
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

/// Dialer for a configured target.
pub(crate) struct TargetDialer {
    target: Target,
    credential: Option<Arc<Credential>>,
    max_in_flight: u32,
}

/// Expanded file paths of a TLS config.
#[derive(Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) ca_file: Option<String>,
    pub(crate) client_cert: Option<String>,
    pub(crate) client_key: Option<String>,
    pub(crate) strict_modes: StrictModes,
}

impl TargetDialer {
    pub(crate) fn new(target: Target, credential: Option<Credential>, max_in_flight: u32) -> Self {
        Self { target, credential: credential.map(Arc::new), max_in_flight }
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

    fn connect(&self, route: Route, context: LinkContext) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>> {
        Box::pin(async move {
            let opened = match &self.target {
                Target::Stdio { .. } => start_child(&self.target, context).await,
                Target::Url { .. } => self.open_url(route, context).await,
            };
            opened.map_err(|observed| Evidence::unsent(During::Handshake, observed))
        })
    }

    fn secrets(&self) -> BoxFuture<'_, KnownSecrets> {
        Box::pin(async move {
            let mut expanded = ExpandedTarget::default();
            expanded.learn_target(&self.target).await;
            expanded.secrets
        })
    }

    fn renew_credential(&self) -> BoxFuture<'_, Result<RenewOutcome, Evidence>> {
        Box::pin(async move {
            let Some(credential) = &self.credential else { return Ok(RenewOutcome::NeedsPerson(None)) };
            let renewed = credential.renew().await;
            renewed.map_err(|observed| Evidence::unsent(During::Handshake, observed))
        })
    }

    fn credential_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.credential {
                Some(credential) => credential.wait_for_change().await,
                None => std::future::pending().await,
            }
        })
    }
}

/// Secrets found while a target is expanded.
#[derive(Default)]
struct ExpandedTarget {
    secrets: KnownSecrets,
}

impl ExpandedTarget {
    /// Expands a template. Every referenced value is a secret, except a variable that all children get and the path of
    /// a file, because messages about a masked path would be unreadable.
    async fn expand(&mut self, template: &Template) -> Result<String, Observed> {
        let expanded = expand_tracked(template).await?;
        for (from, value) in expanded.references() {
            let is_harmless = match from {
                Reference::Variable { name, .. } => {
                    Environment::is_always_passed(name) || (!announces_secret(name) && is_path(value))
                }
                Reference::File { .. } | Reference::Command { .. } => false,
            };
            if !is_harmless {
                self.secrets.add_lines(value);
            }
        }
        Ok(expanded.into_revealed())
    }

    /// Learns the password and the secret query values of a URL, percent-decoded.
    fn learn_url(&mut self, url: &Url) {
        let password = url.password().unwrap_or_default();
        self.secrets.add_lines(password);
        // The form decoder gives these characters another meaning.
        let as_form = password.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
        form_urlencoded::parse(as_form.as_bytes())
            .for_each(|(password, _)| self.secrets.add_lines(&password));
        for (name, value) in url.query_pairs() {
            if announces_secret(&name) {
                self.secrets.add_lines(&value);
            }
        }
    }

    /// Learns the secrets of a target without a link. References to commands are left for the link.
    async fn learn_target(&mut self, target: &Target) {
        for template in target.templates().into_iter().filter(|template| !runs_program(template)) {
            let _ = self.expand(template).await;
        }
        let pairs = match target {
            Target::Stdio { args, env, .. } => {
                let args: Vec<Template> = args.iter().filter(|arg| !runs_program(arg)).cloned().collect();
                let _ = self.expand_args(&args).await;
                env
            }
            Target::Url { url, headers, .. } => {
                if !runs_program(url)
                    && let Ok(url) = self.expand(url).await
                    && let Ok(url) = endpoint(&url)
                {
                    self.learn_url(&url);
                }
                headers
            }
        };
        for (_, value) in pairs.iter().filter(|(name, value)| announces_secret(name) && !runs_program(value))
        {
            if let Ok(value) = self.expand(value).await {
                self.secrets.add_words(&value);
            }
        }
    }

    /// Expands the arguments of a command and learns those that are secret by the flag before them.
    async fn expand_args(&mut self, args: &[Template]) -> Result<Vec<String>, Observed> {
        let mut filled_in = Vec::with_capacity(args.len());
        for arg in args {
            filled_in.push(self.expand(arg).await?);
        }
        let words: Vec<&str> = filled_in.iter().map(String::as_str).collect();
        secret_arguments(&words).into_iter().flatten().for_each(|part| self.secrets.add_words(part));
        Ok(filled_in)
    }
}

/// Returns whether a value is the path of something that exists on this machine, or of a new file in an existing
/// directory.
fn is_path(value: &str) -> bool {
    let path = Path::new(value);
    let in_directory = || path.parent().is_some_and(|folder| folder.parent().is_some() && folder.is_dir());
    path.is_absolute() && (path.exists() || in_directory())
}

fn runs_program(template: &Template) -> bool {
    template.references().any(|reference| matches!(reference, Reference::Command { .. }))
}

async fn start_child(target: &Target, context: LinkContext) -> Result<Arc<dyn Link>, Observed> {
    let Target::Stdio { command, args, env, inherit_env, network_env, cwd } = target else {
        return Err(Observed::BadConfig("not a command".to_owned()));
    };
    let mut expanded = ExpandedTarget::default();
    let program = expanded.expand(command).await?;
    let args = expanded.expand_args(args).await?;
    let ours = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let network = if *network_env { NetworkVariables::Pass } else { NetworkVariables::Drop };
    let mut environment = Environment::filtered(ours, inherit_env, network);
    for proxy in environment.proxies().filter_map(|proxy| Url::parse(proxy).ok()) {
        expanded.learn_url(&proxy);
    }
    for (name, value) in env {
        environment.set(name, &expanded.expand(value).await?);
    }
    for (_, value) in environment.iter().filter(|(name, _)| announces_secret(name)) {
        expanded.secrets.add_words(value);
    }
    context.secrets.set_for_link(expanded.secrets);
    let cwd = expand_option(cwd.as_ref()).await?;
    if let Some(cwd) = cwd.as_ref().filter(|cwd| !Path::new(cwd).is_dir()) {
        return Err(Observed::BadConfig(format!("`cwd` is not a directory: {cwd}")));
    }
    let found = Program::resolve(&program, environment.get("PATH"));
    let lifetime = if context.is_leased { ChildLifetime::Lease } else { ChildLifetime::Process };
    let started = ProcessTree::start(&found, context.children.token(), lifetime, |child| {
        child.args(&args).env_clear().envs(environment.iter());
        if let Some(cwd) = &cwd {
            child.current_dir(cwd);
        }
    });
    let (tree, pipes) = started.await.map_err(|error| spawn_failure(&error, &program))?;
    Ok(Arc::new(StdioLink::new(tree, pipes, context)))
}

impl TargetDialer {
    async fn open_url(&self, route: Route, context: LinkContext) -> Result<Arc<dyn Link>, Observed> {
        let Target::Url { url, headers, tls, redirects, .. } = &self.target else {
            return Err(Observed::BadConfig("not a URL".to_owned()));
        };
        let mut expanded = ExpandedTarget::default();
        let url: Url = endpoint(&expanded.expand(url).await?)
            .map_err(|error| Observed::BadConfig(format!("`url` cannot be used: {error}")))?;
        expanded.learn_url(&url);
        let headers = header_map(headers, &mut expanded).await?;
        let ExpandedTarget { secrets } = expanded;
        context.secrets.set_for_link(secrets);
        if let Some(credential) = &self.credential {
            credential.reload().await?;
        }
        let redirects = redirects.iter().map(|origin| endpoint(origin)).collect::<Result<Vec<Url>, _>>();
        let redirects = redirects.map_err(|error| Observed::BadConfig(format!("`redirects`: {error}")))?;
        let tls = TlsFiles::from_spec(tls).await?;
        let client = HttpClient::new(&url, &redirects, headers, tls, self.credential.clone())?
            .with_secrets(Arc::clone(&context.secrets))
            .with_kept_connections(self.max_in_flight as usize);
        match route {
            Route::LegacySse => Ok(Arc::new(LegacySseLink::open(client, url, context).await?)),
            Route::Http | Route::Stdio | Route::Replica | Route::Custom => {
                Ok(Arc::new(HttpLink::new(client, url, context)?))
            }
        }
    }
}

/// Expands all headers but `Authorization`, which belongs to the credential and may be replaced.
async fn header_map(
    headers: &[(String, Template)],
    expanded: &mut ExpandedTarget,
) -> Result<HeaderMap, Observed> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = |what: &str| Observed::BadConfig(format!("header `{name}` {what}"));
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("is not a valid name"))?;
        if parsed == AUTHORIZATION {
            continue;
        }
        let value = expanded.expand(value).await?;
        if announces_secret(name) {
            expanded.secrets.add_words(&value);
        }
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| bad("contains characters that are not allowed in a header"))?;
        map.insert(parsed, value);
    }
    Ok(map)
}

impl TlsFiles {
    pub(crate) async fn from_spec(tls: &TlsSpec) -> Result<Self, Observed> {
        Ok(Self {
            ca_file: expand_option(tls.ca_file.as_ref()).await?,
            client_cert: expand_option(tls.client_cert.as_ref()).await?,
            client_key: expand_option(tls.client_key.as_ref()).await?,
            strict_modes: tls.strict_modes,
        })
    }
}

/// Expands a template. Files and commands may be slow, so they are read on a blocking thread.
pub(crate) async fn expand(template: &Template) -> Result<String, Observed> {
    expand_tracked(template).await.map(Expanded::into_revealed)
}

async fn expand_tracked(template: &Template) -> Result<Expanded, Observed> {
    let is_slow = |reference: &Reference| match reference {
        Reference::Variable { .. } => false,
        Reference::File { .. } | Reference::Command { .. } => true,
    };
    let expanded = if template.references().any(is_slow) {
        let template = template.clone();
        let result = tokio::task::spawn_blocking(move || template.expand(&ProcessEnvironment)).await;
        result.map_err(|error| Observed::BadConfig(format!("a reference cannot be expanded: {error}")))?
    } else {
        template.expand(&ProcessEnvironment)
    };
    expanded.map_err(|error| match error {
        ExpandError::Unset { name } => Observed::UnsetVariable(name),
        ExpandError::LacksResources { what } => Observed::OutOfResources(what.to_owned()),
        ExpandError::NotText { .. }
        | ExpandError::FileUnreadable { .. }
        | ExpandError::CommandFailed { .. } => Observed::BadConfig(error.to_string()),
    })
}

async fn expand_option(template: Option<&Template>) -> Result<Option<String>, Observed> {
    match template {
        Some(template) => expand(template).await.map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_in_a_variable_is_no_secret_and_other_values_are() {
        let mut expanded = ExpandedTarget::default();
        let filled = |text: &str| Template::parse(text).unwrap();
        // Cargo sets both variables for tests.
        let script = expanded.expand(&filled("${env:CARGO_MANIFEST_DIR}/no-such.py")).await.unwrap();
        let said = format!("can't open file '{script}'");
        assert_eq!(expanded.secrets.mask(&said), said);
        let name = expanded.expand(&filled("${env:CARGO_PKG_NAME}")).await.unwrap();
        assert_eq!(expanded.secrets.mask(&name), "*".repeat(name.len()));
        for secret in ["/x7Hk2mQ9", "/x7Hk/2mQ9", "x7Hk2mQ9", ""] {
            assert!(!is_path(secret), "{secret}");
        }
    }
}
