use super::*;
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
use tokio::sync::Notify;

const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_millis(250);
const DATE: &str = "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";

fn limits() -> Limits {
    Limits {
        head_size: 1 << 10,
        head_timeout: HEAD_TIMEOUT,
        last_request_timeout: LAST_REQUEST_TIMEOUT,
        unix_time: || Duration::ZERO,
    }
}

type Answering = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;

/// Answers with method, target and body of the request.
fn echo(request: Request<RequestBody>) -> Answering {
    Box::pin(async move {
        let (head, body) = request.into_parts();
        match body.collect().await {
            Ok(body) => {
                let mut text = format!("{} {} ", head.method, head.uri).into_bytes();
                text.extend_from_slice(&body.to_bytes());
                Response::new(text.into())
            }
            Err(_) => answer(400, ""),
        }
    })
}

fn answer(status: u16, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Answers at once, and reads no body.
fn at_once(_: Request<RequestBody>) -> Ready<Response<Full<Bytes>>> {
    ready(answer(401, "no"))
}

/// Sends `text` to a connection with this service, and returns what comes back until it is closed.
async fn conversation<R: Future<Output = Response<Full<Bytes>>> + Unpin>(
    service: impl Fn(Request<RequestBody>) -> R,
    text: &str,
) -> String {
    let (ours, mut theirs) = duplex(1 << 20);
    let limits = limits();
    let talk = async {
        // The connection may be closed before all of it is sent.
        let _ = theirs.write_all(text.as_bytes()).await;
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.unwrap();
        drop(theirs);
        heard
    };
    tokio::join!(serve(ours, &limits, pending(), service), talk).1
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{DATE}{headers}content-length: {}\r\n\r\n{body}", body.len())
}

async fn receive(theirs: &mut DuplexStream, until: &str) -> String {
    let mut heard = String::new();
    while !heard.ends_with(until) {
        let byte = theirs.read_u8().await.unwrap_or_else(|_| panic!("the end after {heard:?}"));
        heard.push(char::from(byte));
    }
    heard
}

#[tokio::test]
async fn a_connection_answers_one_request_after_another_until_one_closes_it() {
    let text = "GET /a HTTP/1.1\r\n\r\n\
                POST /b HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc\
                POST /c HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nx: y\r\n\r\n\
                GET /d HTTP/1.1\r\nconnection: close\r\n\r\n\
                GET /e HTTP/1.1\r\n\r\n";
    let expected = [
        response("200 OK", "", "GET /a "),
        response("200 OK", "", "POST /b abc"),
        response("200 OK", "", "POST /c abc"),
        response("200 OK", "connection: close\r\n", "GET /d "),
    ];
    assert_eq!(conversation(echo, text).await, expected.concat());
}

#[tokio::test]
async fn an_older_client_gets_one_answer() {
    let text = "GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n";
    assert_eq!(conversation(echo, text).await, response("200 OK", "connection: close\r\n", "GET /a "));
}

#[tokio::test]
async fn g05_a_refused_head_is_answered_and_ends_the_connection() {
    let close = "connection: close\r\n";
    let refused = |status| response(status, close, "");
    let ambiguous = "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n";
    assert_eq!(conversation(echo, ambiguous).await, refused("400 Bad Request"));
    let large = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(2000));
    assert_eq!(conversation(echo, &large).await, refused("431 Request Header Fields Too Large"));
    let after = format!("GET /a HTTP/1.1\r\n\r\n{ambiguous}");
    let expected = response("200 OK", "", "GET /a ") + &refused("400 Bad Request");
    assert_eq!(conversation(echo, &after).await, expected);
}

#[tokio::test]
async fn g05_a_malformed_body_is_an_error_and_ends_the_connection() {
    for body in [
        "zz\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "zz\r\n0\r\n\r\n",
        " 40\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
    ] {
        let text =
            format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{body}GET /a HTTP/1.1\r\n\r\n");
        let expected = response("400 Bad Request", "connection: close\r\n", "");
        assert_eq!(conversation(echo, &text).await, expected, "{body:?}");
    }
}

#[tokio::test]
async fn an_unread_body_is_skipped_if_it_has_arrived_and_is_small() {
    let no = response("401 Unauthorized", "", "no");
    let last = response("401 Unauthorized", "connection: close\r\n", "no");
    let end = "GET / HTTP/1.1\r\nconnection: close\r\n\r\n";
    let small = format!("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc{end}");
    assert_eq!(conversation(at_once, &small).await, format!("{no}{last}"));
    let large = format!("POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n{}{end}", "x".repeat(100_000));
    assert_eq!(conversation(at_once, &large).await, last);
    let unfinished = "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nabc";
    assert_eq!(conversation(at_once, unfinished).await, last);
    let malformed = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{end}");
    assert_eq!(conversation(at_once, &malformed).await, last);
}

#[tokio::test]
async fn a_client_can_read_the_answer_to_a_request_that_it_is_still_sending() {
    // A real socket: its system drops what was sent if a socket with unread bytes is closed.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut theirs = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (ours, _) = listener.accept().await.unwrap();
    let limits = limits();
    let talk = async {
        let head = "POST / HTTP/1.1\r\ncontent-length: 200000\r\n\r\n";
        theirs.write_all(head.as_bytes()).await.unwrap();
        let expected = response("401 Unauthorized", "connection: close\r\n", "no");
        theirs.readable().await.unwrap();
        for _ in 0..10 {
            tokio::task::yield_now().await;
            theirs.write_all(&[b'x'; 20_000]).await.unwrap();
        }
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, expected);
        drop(theirs);
    };
    tokio::join!(serve(ours, &limits, pending(), at_once), talk);
}

#[tokio::test(start_paused = true)]
async fn c07_a_client_that_goes_away_is_noticed_after_an_unread_body_and_empty_lines() {
    let service = |request: Request<RequestBody>| {
        drop(request);
        Box::pin(pending::<Response<Full<Bytes>>>())
    };
    let head = "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n";
    let waits = head.replace("content", "expect: 100-continue\r\ncontent");
    for pieces in [
        [&format!("{head}{{"), "}"],
        [&waits, ""],
        [&waits, "{}"],
        [&format!("{head}{{}}\r\n"), ""],
        [&format!("{head}{{}}"), "\r\n\r\n"],
    ] {
        let (ours, mut theirs) = duplex(1 << 20);
        // A task of its own is polled only when something wakes it.
        let serving = tokio::spawn(async move { serve(ours, &limits(), pending(), service).await });
        for piece in pieces {
            theirs.write_all(piece.as_bytes()).await.unwrap();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
        drop(theirs);
        let begun = Instant::now();
        assert!(timeout(HEAD_TIMEOUT, serving).await.is_ok() && begun.elapsed().is_zero(), "{pieces:?}");
    }
}

#[tokio::test]
async fn a_body_outlives_neither_its_connection_nor_its_response() {
    let kept = Arc::new(Mutex::new(None::<RequestBody>));
    let service = |request: Request<RequestBody>| {
        *kept.lock().unwrap() = Some(request.into_body());
        ready(answer(200, "done"))
    };
    let head = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
    for text in [format!("{head}abc"), head.replace("expect", "x") + "abc"] {
        let (ours, mut theirs) = duplex(1 << 20);
        let limits = limits();
        let talk = async {
            theirs.write_all(text.as_bytes()).await.unwrap();
            assert_eq!(receive(&mut theirs, "done").await, response("200 OK", "", "done"));
            let mut body = kept.lock().unwrap().take().unwrap();
            assert_eq!(body.frame().await.unwrap().unwrap_err(), BodyError::Closed, "{text}");
            *kept.lock().unwrap() = Some(body);
            drop(theirs);
        };
        tokio::join!(serve(ours, &limits, pending(), service), talk);
        let mut body = kept.lock().unwrap().take().unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap_err(), BodyError::Closed);
    }
}

/// A stream that counts its writes.
struct CountedWrites(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for CountedWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedWrites {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn frames_that_are_there_at_once_are_written_together() {
    let small: Vec<&str> = vec!["event"; 20];
    let large: Vec<&str> = vec!["x"; 100_000];
    for (frames, most) in [(small, 1), (large, 30)] {
        let (ours, mut theirs) = duplex(1 << 22);
        let (writes, limits) = (Arc::<AtomicUsize>::default(), limits());
        let text = frames.concat();
        let service = |_: Request<RequestBody>| {
            let frames =
                frames.clone().into_iter().map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
            ready(Response::new(StreamBody::new(stream::iter(frames))))
        };
        let talk = async {
            theirs.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut heard = String::new();
            theirs.read_to_string(&mut heard).await.unwrap();
            heard
        };
        let ours = CountedWrites(ours, Arc::clone(&writes));
        let heard = tokio::join!(serve(ours, &limits, pending(), service), talk).1;
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        let data: String = body.split("\r\n").skip(1).step_by(2).collect();
        assert_eq!(data, text);
        let writes = writes.load(Ordering::Relaxed);
        assert!((1..=most).contains(&writes), "{writes} writes");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_an_interim_response_gets_one_if_its_body_is_read() {
    let head = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
    let (ours, mut theirs) = duplex(1 << 20);
    let limits = limits();
    let serving = serve(ours, &limits, pending(), echo);
    let talk = async {
        theirs.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(receive(&mut theirs, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        theirs.write_all(b"abc").await.unwrap();
        let expected = response("200 OK", "", "POST / abc");
        assert_eq!(receive(&mut theirs, "abc").await, expected);
        // The next one does not wait for it.
        theirs.write_all(format!("{head}abc").as_bytes()).await.unwrap();
        assert_eq!(receive(&mut theirs, "abc").await, expected);
        drop(theirs);
    };
    tokio::join!(serving, talk);
    let refused = response("401 Unauthorized", "connection: close\r\n", "no");
    assert_eq!(conversation(at_once, head).await, refused, "it would send no body");
}

#[tokio::test(start_paused = true)]
async fn an_interim_response_is_flushed_although_the_stream_takes_it_in_parts() {
    // Smaller than the interim response, and it holds back what is not flushed, like TLS.
    let (ours, mut theirs) = duplex(16);
    let ours = tokio::io::BufWriter::new(ours);
    let limits = limits();
    let talk = async {
        let head = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
        theirs.write_all(head.as_bytes()).await.unwrap();
        let interim = timeout(HEAD_TIMEOUT, receive(&mut theirs, "\r\n\r\n")).await;
        assert_eq!(interim.as_deref(), Ok("HTTP/1.1 100 Continue\r\n\r\n"));
        theirs.write_all(b"abc").await.unwrap();
        assert_eq!(receive(&mut theirs, "abc").await, response("200 OK", "", "POST / abc"));
        drop(theirs);
    };
    tokio::join!(serve(ours, &limits, pending(), echo), talk);
}

#[tokio::test]
async fn a_waiting_stream_keeps_no_large_output() {
    let (ours, mut theirs) = duplex(1 << 20);
    let mut connection = Connection {
        io: Arc::new(ConnectionIo::new(ours)),
        output: Output::default(),
        date: DateHeader::new(limits().unix_time),
    };
    connection.output.gathered = vec![b'x'; 40_000];
    let mut body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    assert!(matches!(connection.next_step(&mut body).await, Some(Step::Write)));
    connection.write().await.unwrap();
    theirs.read_exact(&mut [0; 40_000]).await.unwrap();
    {
        let mut waiting = pin!(connection.next_step(&mut body));
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
    }
    assert_eq!(connection.output.gathered.capacity(), 0, "it waits without the buffer");
}

/// Counts when it is dropped.
struct DropCount(Arc<AtomicUsize>);

impl Drop for DropCount {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn c07_a_client_that_goes_away_drops_its_request_and_its_stream() {
    let dropped = Arc::<AtomicUsize>::default();
    for is_answered in [false, true] {
        let service = |request: Request<RequestBody>| {
            let guard = DropCount(Arc::clone(&dropped));
            Box::pin(async move {
                if !is_answered {
                    pending::<()>().await;
                }
                let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("first")))]);
                let frames = futures_util::StreamExt::chain(
                    first,
                    stream::once(async move {
                        let _until_dropped = (guard, request);
                        pending().await
                    }),
                );
                Response::new(StreamBody::new(Box::pin(frames)))
            })
        };
        let (ours, mut theirs) = duplex(1 << 20);
        let limits = limits();
        let talk = async {
            theirs.write_all(b"POST / HTTP/1.1\r\n").await.unwrap();
            // The rest of a body is not waited for once there is a response.
            let length: &[u8] = if is_answered { b"content-length: 3\r\n\r\n" } else { b"\r\n" };
            theirs.write_all(length).await.unwrap();
            if is_answered {
                let heard = receive(&mut theirs, "first\r\n").await;
                assert!(heard.contains("transfer-encoding: chunked\r\n\r\n5\r\nfirst"), "{heard:?}");
            }
            drop(theirs);
        };
        tokio::join!(serve(ours, &limits, pending(), service), talk);
        assert_eq!(dropped.swap(0, Ordering::Relaxed), 1, "{is_answered}");
    }
}

/// Response with these frames; an empty one is an error.
async fn streamed(request: &str, frames: Vec<&'static str>) -> String {
    let (ours, mut theirs) = duplex(1 << 20);
    let limits = limits();
    let service = |_: Request<RequestBody>| {
        let frames = frames.clone().into_iter().map(|text| match text {
            "" => Err("broken"),
            text => Ok(Frame::data(Bytes::from(text.trim_start_matches('-')))),
        });
        ready(Response::new(StreamBody::new(stream::iter(frames))))
    };
    let talk = async {
        theirs.write_all(request.as_bytes()).await.unwrap();
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.unwrap();
        heard.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    };
    tokio::join!(serve(ours, &limits, pending(), service), talk).1
}

#[tokio::test]
async fn a_body_of_unknown_length_is_chunked_or_ends_with_the_connection() {
    let (new, old) = ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n");
    // A frame without data is left out.
    let frames = || vec!["abc", "-", "defghijklmnop"];
    assert_eq!(streamed(new, frames()).await, "3\r\nabc\r\nd\r\ndefghijklmnop\r\n0\r\n\r\n");
    assert_eq!(streamed(old, frames()).await, "abcdefghijklmnop");
    assert_eq!(streamed(new, vec!["abc", ""]).await, "3\r\nabc\r\n", "no end after an error");
    assert_eq!(streamed(&new.replace("GET", "HEAD"), frames()).await, "");
}

#[tokio::test]
async fn a_body_reads_nothing_of_a_later_request() {
    let kept = Arc::new(Mutex::new(None::<RequestBody>));
    let service = |request: Request<RequestBody>| {
        let before = kept.lock().unwrap().replace(request.into_body());
        Box::pin(async move {
            match before {
                Some(mut before) => {
                    assert_eq!(before.frame().await.unwrap().unwrap_err(), BodyError::Closed);
                    assert!(!before.is_end_stream());
                    answer(200, "second")
                }
                None => answer(200, "first"),
            }
        })
    };
    let text = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc\
                POST / HTTP/1.1\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc";
    let expected = response("200 OK", "", "first") + &response("200 OK", "connection: close\r\n", "second");
    assert_eq!(conversation(service, text).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_head_has_its_time_from_the_end_of_the_response_before_it() {
    let slow = |_: Request<RequestBody>| {
        Box::pin(async {
            sleep(HEAD_TIMEOUT * 3).await;
            answer(200, "slow")
        })
    };
    for (text, answers) in [("", 0), ("GET / HT", 0), ("GET / HTTP/1.1\r\n\r\nGET /", 1)] {
        let begun = Instant::now();
        let heard = conversation(slow, text).await;
        assert_eq!(heard, response("200 OK", "", "slow").repeat(answers), "no answer to an incomplete head");
        assert_eq!(begun.elapsed().as_secs(), (HEAD_TIMEOUT * (1 + 3 * answers as u32)).as_secs());
    }
}

/// Sends `before`, closes the connection with `at_close` in the socket, and sends `after` a little later.
async fn closed(before: &str, at_close: &str, after: &str) -> (String, Duration) {
    let (ours, mut theirs) = duplex(1 << 20);
    let (close, limits) = (Notify::new(), limits());
    let talk = async {
        if !before.is_empty() {
            theirs.write_all(before.as_bytes()).await.unwrap();
            receive(&mut theirs, "GET /before ").await;
        }
        theirs.write_all(at_close.as_bytes()).await.unwrap();
        close.notify_one();
        tokio::task::yield_now().await;
        sleep(Duration::from_millis(10)).await;
        let _ = theirs.write_all(after.as_bytes()).await;
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.unwrap();
        heard
    };
    let begun = Instant::now();
    let (_, heard) = tokio::join!(serve(ours, &limits, close.notified(), echo), talk);
    (heard, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_on_its_way_is_answered_before_the_connection_closes() {
    let before = "GET /before HTTP/1.1\r\n\r\n";
    let request = "GET /last HTTP/1.1\r\n\r\n";
    let last = response("200 OK", "connection: close\r\n", "GET /last ");
    assert_eq!(closed(before, "", "").await.0, "");
    assert_eq!(closed(before, "", request).await.0, "", "it is closed by then");
    assert_eq!(closed(before, request, "").await.0, last);
    assert_eq!(closed(before, &request[..5], &request[5..]).await.0, last);
    assert_eq!(closed("", "", request).await.0, last, "its first request");
    let (heard, waited) = closed("", "", "").await;
    assert_eq!((heard.as_str(), waited), ("", LAST_REQUEST_TIMEOUT));
}

/// Method, target, headers and body of the requests in `pieces`, as our connection reads them.
async fn ours(pieces: &[&[u8]]) -> Vec<Seen> {
    let (ours, theirs) = duplex(1 << 20);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, limits) = (Arc::clone(&seen), limits());
    let service = move |request: Request<RequestBody>| {
        let log = Arc::clone(&log);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let seen = (head.method, head.uri.to_string(), head.headers, body.to_bytes().to_vec());
                log.lock().unwrap().push(seen);
            }
            answer(200, "")
        })
    };
    tokio::join!(serve(ours, &limits, pending(), service), send(theirs, pieces));
    std::mem::take(&mut *seen.lock().unwrap())
}

type Seen = (Method, String, HeaderMap, Vec<u8>);

/// The same, as hyper reads them.
async fn by_hyper(pieces: &[&[u8]]) -> Vec<Seen> {
    let (ours, theirs) = duplex(1 << 20);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let log = Arc::clone(&log);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let seen = (head.method, head.uri.to_string(), head.headers, body.to_bytes().to_vec());
                log.lock().unwrap().push(seen);
            }
            Ok::<_, Infallible>(answer(200, ""))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(ours), service);
    let _ = tokio::join!(connection, send(theirs, pieces));
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Sends all pieces, and closes the connection once nothing more happens.
async fn send(mut theirs: DuplexStream, pieces: &[&[u8]]) {
    for piece in pieces {
        // A connection that has seen enough may be gone.
        let _ = theirs.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let mut answers = Vec::new();
    let _ = timeout(Duration::from_secs(1), theirs.read_to_end(&mut answers)).await;
}

/// Pieces of requests that matter for their framing, valid and not.
fn requests_text() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "content-length: 3",
        "content-length: 3",
        "Content-Length: 12",
        "content-length: x",
        "content-length: 3,3",
        "transfer-encoding: chunked",
        "Transfer-Encoding: Chunked",
        "transfer-encoding: gzip",
        "transfer-encoding: gzip, chunked",
        "connection: close",
        "connection: keep-alive",
        "expect: 100-continue",
        "x: y",
        "x : y",
        "host: a",
        " folded",
        "",
    ]);
    let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r"]);
    let lines = prop::collection::vec((line, end).prop_map(|(line, end)| format!("{line}{end}")), 0..4);
    let start = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /mcp HTTP/1.1\r\n",
        "POST /mcp HTTP/1.1\r\n",
        "POST http://a/b HTTP/1.1\r\n",
        "POST /mcp HTTP/1.0\r\n",
        "\r\nGET / HTTP/1.1\r\n",
        "HEAD / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET / HTTP/2.0\r\n",
        "get",
    ]);
    let body = prop::sample::select(vec![
        "",
        "",
        "abc",
        "abc",
        "3\r\nabc\r\n",
        "3;x=y\r\nabc\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "0\r\nt: 1\r\n\r\n",
        "0\r\nt\r\n\r\n",
        "0\r\nt : 1\r\n\r\n",
        "abcdefghijkl",
        "3\nabc\r\n0\r\n\r\n",
        "zz\r\n",
        "zz\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "\r\n",
    ]);
    let request =
        (start, lines, body).prop_map(|(start, lines, body)| format!("{start}{}\r\n{body}", lines.concat()));
    prop::collection::vec(request, 1..4).prop_map(|requests| requests.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// hyper's server is the reference: it was tested by many. Ours may refuse more, and never reads another request.
    #[test]
    fn g05_requests_are_read_as_hyper_reads_them_or_refused(text in requests_text(), piece in 1_usize..60) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
        let (ours, theirs) = runtime.block_on(async { (ours(&pieces).await, by_hyper(&pieces).await) });
        prop_assert!(theirs.starts_with(&ours), "ours: {ours:?}\nhyper's: {theirs:?}");
    }
}
