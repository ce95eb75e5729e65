//! Who may act: whoever has the token, and from a browser only our own pages. A browser sends `Origin` with
//! every POST, so a page from elsewhere is recognised by it even if it should have got hold of the token.

use super::answer::Refusal;
use super::sign_in;
use super::token::{Place, Token};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use gripfast::AuthFailure;

/// Lets a request that acts pass, or says why not.
pub(super) fn admit(headers: &HeaderMap, token: &Token) -> Result<(), Refusal> {
    check(headers, token).map_err(|reason| refusal(reason, token))
}

/// Whether a request shows what its path needs, and comes from no page of another origin.
pub(super) fn check_at(path: &str, headers: &HeaderMap, token: &Token) -> Result<(), AuthFailure> {
    // Within the routes, `/api/v1` is not in the path any more.
    match path.strip_prefix("/api/v1").unwrap_or(path).trim_end_matches('/') {
        sign_in::EXCHANGE => {
            let failed = AuthFailure::InvalidSignInCode;
            check_for(headers, failed, |code| token.is_sign_in_code(code))
        }
        // A browser that signed in by a link makes no further links.
        sign_in::LINK => check_for(headers, AuthFailure::WrongAdminToken, |shown| token.matches(shown)),
        _ => check(headers, token),
    }
}

/// Whether a request shows the token, or the key of a browser that signed in, and comes from no page of another origin.
pub(super) fn check(headers: &HeaderMap, token: &Token) -> Result<(), AuthFailure> {
    check_for(headers, AuthFailure::WrongAdminToken, |shown| token.admits(shown))
}

fn check_for(
    headers: &HeaderMap,
    otherwise: AuthFailure,
    admits: impl Fn(&str) -> bool,
) -> Result<(), AuthFailure> {
    if let Some(origin) = headers.get(ORIGIN)
        && !origin.to_str().is_ok_and(|origin| same_origin(origin, text(headers, &HOST)))
    {
        return Err(AuthFailure::ForeignOrigin);
    }
    if !headers.contains_key(AUTHORIZATION) {
        return Err(AuthFailure::NoCredential);
    }
    match text(headers, &AUTHORIZATION).and_then(bearer) {
        Some(offered) if admits(offered) => Ok(()),
        Some(_) => Err(otherwise),
        None => Err(AuthFailure::Malformed),
    }
}

/// The answer to a request that was not let pass.
pub(super) fn refusal(reason: AuthFailure, token: &Token) -> Refusal {
    match reason {
        AuthFailure::ForeignOrigin => Refusal::new(
            StatusCode::FORBIDDEN,
            "forbidden_origin",
            "a page of another origin may not operate this gateway",
        )
        .with_hint("open the gateway's own page, or use the command line"),
        AuthFailure::WrongAdminToken => unauthorized(token, "this is not the admin token"),
        AuthFailure::InvalidSignInCode => Refusal::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "this sign-in link was used already, or is older than a minute",
        )
        .with_hint("`gripfast dashboard` makes a new one"),
        AuthFailure::NoCredential
        | AuthFailure::Malformed
        | AuthFailure::UnknownKey
        | AuthFailure::Expired
        | AuthFailure::InvalidToken
        | AuthFailure::InsufficientScope
        | AuthFailure::OtherUser
        | AuthFailure::CannotCheck => unauthorized(token, "this needs the admin token"),
    }
}

/// What a request offers as the admin token.
pub(super) fn offered(headers: &HeaderMap) -> Option<&str> {
    text(headers, &AUTHORIZATION).and_then(bearer)
}

fn unauthorized(token: &Token, what: &str) -> Refusal {
    let hint = match token.place() {
        Place::Kept(path) => format!("the token is in `{}`", path.display()),
        Place::Unusable { path, why } => format!(
            "this gateway cannot use `{}` ({why}); `gripfast token rotate` makes a new one",
            path.display()
        ),
        Place::Nowhere => {
            "this gateway has no state directory to keep a token in; start it with one".to_owned()
        }
    };
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", what).with_hint(hint)
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn bearer(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a page of `origin` was served by `host`. The scheme is not compared: behind a proxy that speaks
/// TLS we do not know our own. An opaque origin (`null`) is nobody's.
fn same_origin(origin: &str, host: Option<&str>) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.parse::<Uri>(), host.map(str::parse::<Authority>)) else {
        return false;
    };
    let usual = match origin.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return false,
    };
    let Some(from) = origin.authority() else { return false };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
    from.host().eq_ignore_ascii_case(host.host()) && port(from) == port(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_very_gateway_are_of_the_same_origin() {
        let here = Some("127.0.0.1:7331");
        assert!(same_origin("http://127.0.0.1:7331", here));
        assert!(same_origin("http://LOCALHOST:7331", Some("localhost:7331")));
        assert!(same_origin("https://mcp.example.com", Some("mcp.example.com")));
        assert!(same_origin("http://[::1]:7331", Some("[::1]:7331")));
        for elsewhere in [
            "http://127.0.0.1",
            "http://127.0.0.1:8080",
            "http://localhost:7331",
            "https://evil.example",
            "ftp://127.0.0.1:7331",
            "null",
            "",
            "127.0.0.1:7331",
        ] {
            assert!(!same_origin(elsewhere, here), "{elsewhere}");
        }
        assert!(!same_origin("http://127.0.0.1:7331", None));
    }
}
