//! Serves the files of the dashboard, which are part of the binary, with their security headers. The page gets all its
//! data from the admin API.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;

/// One file of the dashboard.
struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard/", $path)),
        }
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const INDEX: Asset = asset!("index.html", "text/html; charset=utf-8");

const ASSETS: &[Asset] = &[
    asset!("icon.svg", "image/svg+xml"),
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("api.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("main.js", SCRIPT),
    asset!("model.js", SCRIPT),
    asset!("notices.js", SCRIPT),
    asset!("words.js", SCRIPT),
    asset!("pages/actions.js", SCRIPT),
    asset!("pages/calls.js", SCRIPT),
    asset!("pages/changes.js", SCRIPT),
    asset!("pages/clients.js", SCRIPT),
    asset!("pages/config.js", SCRIPT),
    asset!("pages/locked.js", SCRIPT),
    asset!("pages/overview.js", SCRIPT),
    asset!("pages/replicas.js", SCRIPT),
    asset!("pages/server.js", SCRIPT),
    asset!("pages/try.js", SCRIPT),
];

/// Content Security Policy: only files of this gateway; no inline scripts, other sites or frames. `data:` images are
/// allowed, because tools return them.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Router of `/` and the files under `/dashboard/`.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/", get(async |headers: HeaderMap| serve(&INDEX, &headers)))
        .route("/dashboard/{*path}", get(file))
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.path == path) {
        Some(asset) => serve(asset, &headers),
        None => {
            let mut response = Response::new(Body::from("there is no such file in the dashboard"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

fn serve(asset: &Asset, request: &HeaderMap) -> Response {
    // Files change only with the binary.
    let tag = format!("\"{}-{}\"", env!("CARGO_PKG_VERSION"), checksum(asset.bytes));
    let is_current = request.get(IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == tag.as_bytes());
    let mut response = if is_current {
        let mut unchanged = Response::new(Body::empty());
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        Response::new(Body::from(asset.bytes))
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, asset.kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// FNV-1a in hexadecimal: enough to distinguish the files of different builds.
fn checksum(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_imported_file_is_part_of_the_binary() {
        for asset in ASSETS.iter().filter(|asset| asset.kind == SCRIPT) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            let folder = asset.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let named = line.split('"').nth(1).unwrap();
                let path = match (folder, named.strip_prefix("../")) {
                    (_, Some(above)) => above.to_owned(),
                    ("", None) => named.trim_start_matches("./").to_owned(),
                    (folder, None) => format!("{folder}/{}", named.trim_start_matches("./")),
                };
                assert!(ASSETS.iter().any(|known| known.path == path), "{} imports `{path}`", asset.path);
            }
        }
        let index = std::str::from_utf8(INDEX.bytes).unwrap();
        for named in index.split('"').filter_map(|text| text.strip_prefix("/dashboard/")) {
            assert!(ASSETS.iter().any(|known| known.path == named), "index.html names `{named}`");
        }
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        let first = serve(&INDEX, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut request = HeaderMap::new();
        request.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(serve(&INDEX, &request).status(), StatusCode::NOT_MODIFIED);
    }

    /// A machine without emoji fonts must show all symbols.
    #[test]
    fn no_symbol_needs_an_emoji_font() {
        let is_emoji = |sign: char| {
            matches!(sign, '\u{231a}'..='\u{231b}' | '\u{23cf}' | '\u{23e9}'..='\u{23fa}' | '\u{25aa}'..='\u{25ab}' | '\u{25b6}'
                | '\u{25c0}' | '\u{25fb}'..='\u{25fe}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{fe0f}'
                | '\u{1f000}'..)
                && sign != '✗'
        };
        for asset in ASSETS.iter().chain([&INDEX]) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            assert_eq!(text.chars().find(|sign| is_emoji(*sign)), None, "{}", asset.path);
        }
    }
}
