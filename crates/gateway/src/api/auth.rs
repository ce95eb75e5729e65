//! Authorization of admin requests by the admin token and, for browsers, by the same origin. A browser sends `Origin`
//! with every POST, so that a page of another origin is refused even if it has the token.

use super::handlers::sign_in;
use super::response::ApiError;
use super::token::{Token, TokenLocation};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use gripfast::AuthFailure;

/// Refuses a request without a valid credential.
pub(super) fn require_token(headers: &HeaderMap, token: &Token) -> Result<(), ApiError> {
    check(headers, token).map_err(|reason| error_for(reason, token))
}

/// Checks the credential that the path requires, and the origin.
pub(super) fn check_path(path: &str, headers: &HeaderMap, token: &Token) -> Result<(), AuthFailure> {
    // Inside the nested router the path has no `/api/v1` prefix.
    match path.strip_prefix("/api/v1").unwrap_or(path).trim_end_matches('/') {
        sign_in::EXCHANGE_PATH => {
            let failed = AuthFailure::InvalidSignInCode;
            check_with(headers, failed, |code| token.is_sign_in_code(code))
        }
        // A session key cannot create sign-in links; only the token can.
        sign_in::LINK_PATH => check_with(headers, AuthFailure::WrongAdminToken, |shown| token.matches(shown)),
        _ => check(headers, token),
    }
}

/// Checks the admin token or the key of a signed-in browser, and the origin.
pub(super) fn check(headers: &HeaderMap, token: &Token) -> Result<(), AuthFailure> {
    check_with(headers, AuthFailure::WrongAdminToken, |shown| token.accepts(shown))
}

fn check_with(
    headers: &HeaderMap,
    otherwise: AuthFailure,
    admits: impl Fn(&str) -> bool,
) -> Result<(), AuthFailure> {
    if let Some(origin) = headers.get(ORIGIN)
        && !origin.to_str().is_ok_and(|origin| is_same_origin(origin, header_text(headers, &HOST)))
    {
        return Err(AuthFailure::ForeignOrigin);
    }
    if !headers.contains_key(AUTHORIZATION) {
        return Err(AuthFailure::NoCredential);
    }
    match header_text(headers, &AUTHORIZATION).and_then(bearer) {
        Some(offered) if admits(offered) => Ok(()),
        Some(_) => Err(otherwise),
        None => Err(AuthFailure::Malformed),
    }
}

/// The response to a refused request.
pub(super) fn error_for(reason: AuthFailure, token: &Token) -> ApiError {
    match reason {
        AuthFailure::ForeignOrigin => ApiError::new(
            StatusCode::FORBIDDEN,
            "forbidden_origin",
            "requests from a web page of another origin are refused",
        )
        .with_hint("use the dashboard of this gateway or the command line"),
        AuthFailure::WrongAdminToken => unauthorized(token, "wrong admin token"),
        AuthFailure::InvalidSignInCode => ApiError::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "the sign-in link was already used or is older than one minute",
        )
        .with_hint("`gripfast dashboard` creates a new link"),
        AuthFailure::NoCredential
        | AuthFailure::Malformed
        | AuthFailure::UnknownKey
        | AuthFailure::Expired
        | AuthFailure::InvalidToken
        | AuthFailure::InsufficientScope
        | AuthFailure::OtherUser
        | AuthFailure::CannotCheck => unauthorized(token, "the admin token is required"),
    }
}

/// The bearer token of a request.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    header_text(headers, &AUTHORIZATION).and_then(bearer)
}

fn unauthorized(token: &Token, message: &str) -> ApiError {
    let hint = match token.location() {
        TokenLocation::File(path) => format!("the token is in `{}`", path.display()),
        TokenLocation::Unusable { path, why } => format!(
            "this gateway cannot use the token file `{}` ({why}); `gripfast token rotate` creates a new token",
            path.display()
        ),
        TokenLocation::NoStateDirectory => {
            "this gateway has no state directory for a token; start it with one".to_owned()
        }
    };
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).with_hint(hint)
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn bearer(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// True if a page of `origin` was served by `host`. The scheme is not compared: behind a proxy that terminates TLS, the
/// gateway does not know its own. An opaque origin (`null`) never matches.
fn is_same_origin(origin: &str, host: Option<&str>) -> bool {
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
    fn only_pages_of_this_gateway_have_the_same_origin() {
        let here = Some("127.0.0.1:7331");
        assert!(is_same_origin("http://127.0.0.1:7331", here));
        assert!(is_same_origin("http://LOCALHOST:7331", Some("localhost:7331")));
        assert!(is_same_origin("https://mcp.example.com", Some("mcp.example.com")));
        assert!(is_same_origin("http://[::1]:7331", Some("[::1]:7331")));
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
            assert!(!is_same_origin(elsewhere, here), "{elsewhere}");
        }
        assert!(!is_same_origin("http://127.0.0.1:7331", None));
    }
}
