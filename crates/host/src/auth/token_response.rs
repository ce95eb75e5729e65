//! Normalises token answers to the standard form (RFC 6749, sections 5.1 and 5.2). Authorization servers also send
//! numbers as text, lists of scopes, and errors under HTTP 200; a spelling must not cost the next refresh token when
//! the last one is spent.

use ::http::StatusCode;
use serde_json::{Map, Value};

/// Returns the standard form of an answer to a POST. Anything but a token answer is unchanged.
pub(super) fn normalize(status: StatusCode, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let Ok(Value::Object(mut answer)) = serde_json::from_slice(&body) else { return (status, body) };
    if status.is_success() && answer.get("access_token").is_some_and(Value::is_string) {
        repair(&mut answer);
        return (status, Value::Object(answer).to_string().into_bytes());
    }
    if status.is_success() && error(&answer).is_some() {
        return (StatusCode::BAD_REQUEST, body);
    }
    (status, body)
}

/// Returns the error code of a refusal, whatever its status.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    let answer: Map<String, Value> = serde_json::from_slice(body).ok()?;
    error(&answer).map(|code| {
        if is_code(code) { code.to_owned() } else { "an error without a readable code".to_owned() }
    })
}

/// Returns whether a text is an error code as in RFC 6749, and not a message, a token or a flood. It is shown to
/// people.
fn is_code(text: &str) -> bool {
    const LONGEST: usize = 64;
    text.len() <= LONGEST
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn error(answer: &Map<String, Value>) -> Option<&str> {
    if answer.contains_key("access_token") {
        return None;
    }
    answer.get("error")?.as_str().filter(|code| !code.is_empty())
}

fn repair(answer: &mut Map<String, Value>) {
    match answer.remove("expires_in").as_ref().and_then(seconds) {
        Some(seconds) => answer.insert("expires_in".to_owned(), seconds.into()),
        None => None,
    };
    if !answer.get("token_type").is_some_and(Value::is_string) {
        answer.insert("token_type".to_owned(), "Bearer".into());
    }
    match answer.remove("scope") {
        Some(Value::Array(scopes)) => {
            let scopes: Vec<&str> = scopes.iter().filter_map(Value::as_str).collect();
            answer.insert("scope".to_owned(), scopes.join(" ").into());
        }
        Some(Value::String(scope)) => {
            answer.insert("scope".to_owned(), scope.into());
        }
        Some(_) | None => {}
    }
    if answer.get("refresh_token").and_then(Value::as_str).is_none_or(str::is_empty) {
        answer.remove("refresh_token");
    }
}

/// Returns whole seconds, from a number or its text.
fn seconds(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    // No token is used for longer than this.
    const MOST: f64 = 4_294_967_295.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within bounds")]
    (number >= 0.0).then(|| number.min(MOST) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn repaired(answer: &Value) -> Value {
        let (status, body) = normalize(StatusCode::OK, answer.to_string().into_bytes());
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice(&body).unwrap()
    }

    /// E02
    #[test]
    fn e02_token_answers_with_odd_numbers_and_lists_are_normalised() {
        let good = json!({ "access_token": "a", "token_type": "Bearer", "expires_in": 3600, "scope": "r w" });
        assert_eq!(repaired(&good), good);
        for expires_in in [json!("3600"), json!(3600.0), json!(3600.7), json!(" 3600 "), json!("3600.5")] {
            let mut answer = good.clone();
            answer["expires_in"] = expires_in;
            assert_eq!(repaired(&answer), good, "{answer}");
        }
        let odd = json!({ "access_token": "a", "token_type": null, "expires_in": "soon", "scope": ["r", "w", 1],
                          "refresh_token": null });
        assert_eq!(repaired(&odd), json!({ "access_token": "a", "token_type": "Bearer", "scope": "r w" }));
        let odd = json!({ "access_token": "a", "token_type": "mac", "expires_in": -1, "scope": null,
                          "refresh_token": "" });
        assert_eq!(repaired(&odd), json!({ "access_token": "a", "token_type": "mac" }));
        let long = json!({ "access_token": "a", "token_type": "Bearer", "expires_in": 1e300 });
        assert_eq!(repaired(&long)["expires_in"], 4_294_967_295_u64);
    }

    #[test]
    fn an_error_is_a_refusal_with_any_status() {
        let said = |body: &str| error_code(body.as_bytes());
        assert_eq!(said(r#"{"error":"invalid_grant"}"#).as_deref(), Some("invalid_grant"));
        for odd in ["rt 123 is spent", &"x".repeat(65)] {
            let code = said(&format!(r#"{{"error":"{odd}"}}"#));
            assert_eq!(code.as_deref(), Some("an error without a readable code"));
        }
        assert_eq!(
            said(r#"{"error":"bad_refresh_token","error_description":"x"}"#).as_deref(),
            Some("bad_refresh_token")
        );
        for none in
            ["<html>", r#"{"error":42}"#, r#"{"error":""}"#, "[]", "", r#"{"access_token":"a","error":"x"}"#]
        {
            assert_eq!(said(none), None, "{none}");
        }
        let (status, _) = normalize(StatusCode::OK, br#"{"error":"invalid_grant"}"#.to_vec());
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn other_answers_are_not_changed() {
        for body in [r#"{"client_id" : "x"}"#, "<html>", "", r#"{"access_token": 1}"#] {
            assert_eq!(normalize(StatusCode::OK, body.into()), (StatusCode::OK, body.into()));
        }
        let body = br#"{ "access_token": "a", "expires_in": "1" }"#.to_vec();
        assert_eq!(normalize(StatusCode::BAD_GATEWAY, body.clone()), (StatusCode::BAD_GATEWAY, body));
    }
}
