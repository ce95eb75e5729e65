//! Unit tests of the envelope.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use super::*;
use gripfast_core::json_text::JsonText;

#[test]
fn the_three_kinds_of_message_are_distinguished() {
    let bytes = br#" {"jsonrpc":"2.0","id":"a","method":"tools\/call","params":{"x":1},"future":[1]} "#;
    let Ok(Message::Request(request)) = Message::parse(bytes) else { panic!("no request") };
    assert_eq!((request.id.as_raw(), &*request.method), ("\"a\"", "tools/call"));
    assert_eq!(request.params.map(Json::get), Some(r#"{"x":1}"#));

    let Ok(Message::Notification(note)) = Message::parse(br#"{"jsonrpc":"2.0","method":"n","params":null}"#)
    else {
        panic!("no notification")
    };
    assert!(note.params.is_none());

    let Ok(Message::Response(response)) = Message::parse(br#"{"result":{},"jsonrpc":"2.0","id":7}"#) else {
        panic!("no response")
    };
    assert_eq!(response.id.and_then(|id| id.as_u64()), Some(7));
    assert!(matches!(response.outcome, Outcome::Result(result) if result.get() == "{}"));
}

#[test]
fn the_members_of_a_result_are_found_with_the_envelope() {
    let members = |result: &str| {
        let bytes = format!(r#"{{"jsonrpc":"2.0","result":{result},"id":1}}"#);
        let (message, result) = Message::parse_with_result(bytes.as_bytes()).unwrap();
        assert!(matches!(message, Message::Response(_)));
        result.map(|result| {
            result.iter().map(|(key, value)| format!("{key}={}", value.get())).collect::<Vec<_>>()
        })
    };
    assert_eq!(members(r#" { "a" : [ 1 ] , "\u0062":{"c":2}} "#).unwrap(), ["a=[ 1 ]", r#"b={"c":2}"#]);
    assert_eq!(members("{}"), Some(Vec::new()));
    for other in ["[1]", "null", r#"{"a":1,"a":2}"#, r#"{"\ud800":1,"b":2}"#] {
        assert_eq!(members(other), None, "{other}");
    }
    assert_eq!(
        Message::parse_with_result(br#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#).err(),
        Some(Malformed::DuplicateKey("result"))
    );
}

#[test]
fn an_error_without_an_id_is_a_response() {
    for id in ["", r#","id":null"#] {
        let bytes = format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"no session"}}{id}}}"#);
        let response = answer(&bytes);
        assert!(response.id.is_none());
        assert_eq!(error(&response), (-32000, "no session".to_owned()));
    }
}

#[test]
fn an_error_of_any_shape_still_ends_its_request() {
    for (shape, code, message) in [
        (r#""boom""#, -32603, "boom"),
        ("7", -32603, ""),
        ("null", -32603, ""),
        ("{}", -32603, ""),
        (r#"{"code":"x","message":1}"#, -32603, ""),
        (r#"{"code":-32001.0,"message":"a\nb"}"#, -32001, "a\nb"),
        (r#"{"code":1,"code":2}"#, -32603, ""),
    ] {
        let bytes = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{shape}}}"#);
        let response = answer(&bytes);
        assert_eq!(error(&response), (code, message.to_owned()), "{shape}");
    }
}

#[test]
fn a_null_member_beside_result_or_error_is_ignored() {
    let bytes = r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":5,"message":"m"}}"#;
    assert_eq!(error(&answer(bytes)).0, 5);
    let bytes = r#"{"jsonrpc":"2.0","id":1,"result":3,"error":null}"#;
    assert!(matches!(answer(bytes).outcome, Outcome::Result(_)));
}

#[test]
fn a_duplicate_key_is_refused() {
    for (twice, name) in [
        (r#""method":"tools/list","method":"tools/call""#, "method"),
        (r#""method":"m","params":{},"params":{}"#, "params"),
        (r#""method":"m","id":1,"\u0069d":2"#, "id"),
        (r#""method":"m","jsonrpc":"2.0""#, "jsonrpc"),
        (r#""result":1,"result":1"#, "result"),
        (r#""error":1,"error":1"#, "error"),
    ] {
        assert_eq!(fault(&format!(r#"{{"jsonrpc":"2.0",{twice}}}"#)), Malformed::DuplicateKey(name));
    }
}

#[test]
fn a_member_that_differs_from_a_known_one_only_in_case_is_refused() {
    for (evil, name) in [("Method", "method"), ("PARAMS", "params"), ("param\u{17f}", "params"), ("iD", "id")]
    {
        let message = format!(r#"{{"jsonrpc":"2.0","method":"m","{evil}":"x"}}"#);
        assert_eq!(fault(&message), Malformed::LookAlikeKey(name));
    }
}

#[test]
fn each_way_to_be_malformed_has_its_error() {
    for (bytes, expected) in [
        ("", Malformed::NotJson { line: 1, column: 0 }),
        ("{\"a\":\n 1,}", Malformed::NotJson { line: 2, column: 4 }),
        ("{} x", Malformed::NotJson { line: 1, column: 4 }),
        ("Starting server...", Malformed::NotJson { line: 1, column: 1 }),
        ("42", Malformed::NotObject),
        (" [1]", Malformed::Batch),
        ("{}", Malformed::NotJsonRpc),
        (r#"{"jsonrpc":"1.0","method":"m"}"#, Malformed::NotJsonRpc),
        (r#"{"jsonrpc":2.0,"method":"m"}"#, Malformed::NotJsonRpc),
        (r#"{"jsonrpc":"2.0"}"#, Malformed::NeitherKind),
        (r#"{"jsonrpc":"2.0","id":1}"#, Malformed::NeitherKind),
        (r#"{"jsonrpc":"2.0","method":7}"#, Malformed::BadMethod),
        (r#"{"jsonrpc":"2.0","method":"\ud800"}"#, Malformed::BadMethod),
        (r#"{"jsonrpc":"2.0","method":"m","id":null}"#, Malformed::BadId),
        (r#"{"jsonrpc":"2.0","method":"m","id":{}}"#, Malformed::BadId),
        (r#"{"jsonrpc":"2.0","method":"m","id":true}"#, Malformed::BadId),
        (r#"{"jsonrpc":"2.0","result":1,"id":[]}"#, Malformed::BadId),
        (r#"{"jsonrpc":"2.0","method":"m","result":1}"#, Malformed::Mixed),
        (r#"{"jsonrpc":"2.0","error":{},"result":1}"#, Malformed::Mixed),
    ] {
        assert_eq!(fault(bytes), expected, "{bytes}");
    }
}

#[test]
fn invalid_utf8_is_refused() {
    assert!(matches!(
        Message::parse(b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"a\":\"\xff\"}}"),
        Err(Malformed::NotJson { .. })
    ));
}

#[test]
fn a_hundred_thousand_nested_arrays_do_not_overflow_the_stack() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{deep}}}"#);
    let small_stack = std::thread::Builder::new().stack_size(128 * 1024);
    let handle = small_stack.spawn(move || {
        let parsed =
            Message::parse(message.as_bytes()).map(|parsed| parsed.params().map(|raw| raw.get().len()));
        let with_id = with_id(message.as_bytes(), RequestId::from(2).as_id()).map(|bytes| bytes.len());
        let split = crate::batch::split(deep.as_bytes(), 9).map(|messages| messages[0].len());
        (parsed, with_id.is_ok(), split)
    });
    assert_eq!(handle.unwrap().join().unwrap(), (Ok(Some(200_000)), true, Ok(199_998)));
}

#[test]
fn a_new_id_leaves_every_other_byte_unchanged() {
    let source = b" {\"future\" : 1.0e+5,\"id\" :  \"a\\u0062\" ,\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n";
    let expected = b" {\"future\" : 1.0e+5,\"id\" :  42 ,\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n";
    let new = RequestId::from(42);
    assert_eq!(with_id(source, new.as_id()).unwrap(), expected);
    let id = Message::parse(source).unwrap().id().unwrap();
    let elsewhere = source.to_vec();
    assert_eq!(id.replace_in(source, new.as_id()).unwrap(), expected);
    assert_eq!(id.replace_in(&elsewhere, new.as_id()), None, "an id of other bytes has no place in these");
}

#[test]
fn an_answer_without_an_id_gets_one_and_a_notification_does_not() {
    let new = RequestId::from("x");
    let with =
        |bytes: &str| with_id(bytes.as_bytes(), new.as_id()).map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(
        with(r#"{"jsonrpc":"2.0","error":{} } "#).as_deref(),
        Ok(r#"{"jsonrpc":"2.0","error":{} ,"id":"x"} "#)
    );
    assert_eq!(
        with(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#).as_deref(),
        Ok(r#"{"jsonrpc":"2.0","id":"x","error":{}}"#)
    );
    assert_eq!(with(r#"{"jsonrpc":"2.0","method":"m"}"#), Err(Malformed::NoId));
    assert_eq!(with("{}"), Err(Malformed::NeitherKind));
}

#[test]
fn ids_are_equal_by_value_and_keep_their_spelling() {
    let id = |text: &str| RequestId::from_raw(&JsonText::parse(text.to_owned()).unwrap()).unwrap();
    let same = |one: &str, other: &str| {
        let hash = |id: &RequestId| BuildHasherDefault::<DefaultHasher>::default().hash_one(id);
        let (one, other) = (id(one), id(other));
        assert!(one != other || hash(&one) == hash(&other), "equal ids hash alike");
        one == other
    };
    assert!(same("7", "7.0") && same("7", "7e0") && same(r#""é""#, r#""\u00e9""#));
    assert!(!same("7", "\"7\"") && !same("7", "8") && !same("0.5", "0.25") && !same("\"a\"", "\"b\""));
    // Too big for exact arithmetic: these differ, and a double would not notice.
    assert!(!same("123456789012345678901", "123456789012345678902"));
    assert_eq!(id("7.0").as_raw(), "7.0");
    assert_eq!(id(&u64::MAX.to_string()).as_id().as_u64(), Some(u64::MAX));
    assert_eq!(id("-1").as_id().as_u64(), None);
    assert_eq!(id(r#""7""#).as_id().as_u64(), None);
    for (spelling, minted) in [("7", Some(7)), (r#""7""#, Some(7)), (r#""+7""#, None), (r#""seven""#, None)] {
        assert_eq!(id(spelling).as_id().as_minted(), minted, "{spelling}");
    }
    assert_eq!(id("\"7\"").as_id().as_u64(), None);
}

#[test]
fn built_messages_can_be_parsed() {
    let params = JsonText::parse(r#"{"a":[1.0e+5]}"#.to_owned()).unwrap();
    assert_eq!(
        text(request(7, "m\"", Some(&params))),
        r#"{"jsonrpc":"2.0","id":7,"method":"m\"","params":{"a":[1.0e+5]}}"#
    );
    assert_eq!(text(notification("n", None)), r#"{"jsonrpc":"2.0","method":"n"}"#);
    let id = RequestId::from("x");
    assert_eq!(text(response(id.as_id(), &params)), r#"{"jsonrpc":"2.0","id":"x","result":{"a":[1.0e+5]}}"#);
    assert_eq!(
        text(error_response(None, -32700, "line\nbreak", Some(&params))),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"line\nbreak","data":{"a":[1.0e+5]}}}"#
    );
    assert_eq!(
        text(forwarded_error(id.as_id(), &params)),
        r#"{"jsonrpc":"2.0","id":"x","error":{"a":[1.0e+5]}}"#
    );
}

#[test]
fn an_owned_request_equals_the_borrowed_one() {
    let message =
        r#"{"jsonrpc":"2.0","id":7.0,"method":"tools\/call","params":{"n":1.0, "x":[]}}"#.to_owned();
    let Ok(Message::Request(request)) = Message::parse(message.as_bytes()) else { panic!("{message}") };
    let own = request.to_owned_request();
    drop(message);
    let request = own.as_request();
    assert_eq!((request.id.as_raw(), &*request.method), ("7.0", "tools/call"));
    assert_eq!(request.params.map(Json::get), Some(r#"{"n":1.0, "x":[]}"#));
    let Ok(Message::Request(bare)) = Message::parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#) else {
        panic!("it is a request")
    };
    assert!(bare.to_owned_request().as_request().params.is_none());
}

#[test]
fn an_answer_to_this_request_is_recognised_by_its_beginning() {
    let (seven, seventy) = (RequestId::from(7), RequestId::from(70));
    let result = raw::owned(b"{}".to_vec());
    let answer = response(seven.as_id(), &result);
    assert!(is_answer_to(&answer, seven.as_id()));
    assert!(is_answer_to(&error_response(Some(seven.as_id()), 1, "no", None), seven.as_id()));
    assert!(!is_answer_to(&response(seventy.as_id(), &result), seven.as_id()));
    assert!(!is_answer_to(&answer, seventy.as_id()) && !is_answer_to(b"", seven.as_id()));
    assert!(!is_answer_to(br#"{"id":7,"jsonrpc":"2.0","result":{}}"#, seven.as_id()), "another spelling");
}

#[test]
fn a_batch_is_recognised_by_its_first_byte() {
    assert!(is_batch(b"\r\n\t [") && is_batch(b"[]"));
    assert!(!is_batch(b"{}") && !is_batch(b"") && !is_batch(b"\xef\xbb\xbf["));
}

fn fault(bytes: &str) -> Malformed {
    Message::parse(bytes.as_bytes()).unwrap_err()
}

fn answer(bytes: &str) -> Response<'_> {
    match Message::parse(bytes.as_bytes()).unwrap() {
        Message::Response(response) => response,
        Message::Request(_) | Message::Notification(_) => panic!("no response: {bytes}"),
    }
}

fn error(response: &Response<'_>) -> (i64, String) {
    match &response.outcome {
        Outcome::Error(error) => (error.code, error.message.clone().into_owned()),
        Outcome::Result(result) => panic!("no error: {result}"),
    }
}

fn text(bytes: Vec<u8>) -> String {
    Message::parse(&bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_request_gets_a_meta_whatever_its_parameters() {
    let json = |text: &str| JsonText::parse(text.to_owned()).unwrap();
    let (version, empty) = (json(r#""2026""#), json("{}"));
    let meta = [("v", &*version), ("c", &*empty)];
    let params = |params: Option<&str>| {
        let params = params.map(json);
        let message = request_with_meta(7, "m", params.as_deref(), meta.into_iter())?;
        let Ok(Message::Request(request)) = Message::parse(&message) else { panic!("it is a request") };
        assert_eq!((request.id.as_u64(), &*request.method), (Some(7), "m"));
        request.params.map(|params| params.get().to_owned())
    };
    let only = r#"{"_meta":{"v":"2026","c":{}}}"#;
    for none in [None, Some("null"), Some("{}"), Some(" { } ")] {
        assert_eq!(params(none).as_deref(), Some(only), "{none:?}");
    }
    assert_eq!(
        params(Some("{ \"a\":[1 ] , \"b\":\"}\"\n} ")).as_deref(),
        Some(r#"{ "a":[1 ] , "b":"}","_meta":{"v":"2026","c":{}}}"#)
    );
    assert_eq!(params(Some("[1]")), None);
    assert_eq!(params(Some("\"{}\"")), None);
}
