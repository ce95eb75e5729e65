//! The gateway as a stdio server: one message a line in, one message a line out, and nothing else.

use super::Gateway;
use super::ask::Fault;
use super::body::{LARGEST, Received};
use super::conversation::{Conversation, DRAIN_FOR};
use super::pieces;
use crate::shares::Peer;
use bytes::Bytes;
use gripfast::wire::codes;
use gripfast::wire::envelope::{self, RequestId};
use std::io;
use std::sync::Arc;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::sync::mpsc;

/// Messages that may wait for a client that does not read.
const QUEUED: usize = 1024;
/// What is kept in memory of a line that is skipped.
const SKIPPED_AT_ONCE: u64 = 64 << 10;
/// What is kept of its beginning and of its end.
const SHOWN: usize = 512;

pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, queue) = mpsc::channel(QUEUED);
    let mut writer = tokio::spawn(write(output, queue));
    let mut conversation = Conversation::new(Arc::clone(gateway), out, &Peer::here());
    let mut input = BufReader::new(input);
    loop {
        let line = tokio::select! {
            line = next_line(&mut input) => line?,
            () = gateway.leaving.cancelled() => None,
            // Nobody would hear what comes of it: what is under way ends with the conversation.
            written = &mut writer => return written.unwrap_or_else(|error| Err(io::Error::other(error))),
        };
        match line {
            None => break,
            Some(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
            Some(Line::Whole(line)) => {
                let line = Bytes::from(line);
                match Received::here(&gateway.memory, line.clone()) {
                    Ok(message) => conversation.take(&message).await,
                    Err(overload) => {
                        let end = line.len().saturating_sub(SHOWN);
                        let id = envelope::request_id(&line[..line.len().min(SHOWN)], &line[end..]);
                        conversation.turn_away(id.as_ref().map(RequestId::as_id), &overload.fault()).await;
                    }
                }
            }
            Some(Line::TooLong { beginning, end }) => {
                let text = "the message is over the limit of 16 MiB, and was not read";
                let id = envelope::request_id(&beginning, &end);
                let id = id.as_ref().map(RequestId::as_id);
                conversation.turn_away(id, &Fault::new(codes::INVALID_REQUEST, text)).await;
            }
        }
    }
    conversation.finish().await;
    let patience = async {
        gateway.leaving.cancelled().await;
        tokio::time::sleep(DRAIN_FOR).await;
    };
    tokio::select! {
        written = &mut writer => written.unwrap_or_else(|error| Err(io::Error::other(error))),
        // A client that does not read must not keep us once we were told to stop.
        () = patience => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads the answers")),
    }
}

/// A line of what a client says.
pub(crate) enum Line {
    Whole(Vec<u8>),
    /// It was over the limit, and nothing of it was kept but what shows whose answer is due.
    TooLong {
        beginning: Vec<u8>,
        end: Vec<u8>,
    },
}

/// The next line; `None` at the end of input.
pub(crate) async fn next_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let read = (&mut *input).take(LARGEST as u64 + 1).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() <= LARGEST {
        return Ok(Some(Line::Whole(line)));
    }
    let beginning = line[..SHOWN].to_vec();
    let mut end = line[line.len() - SHOWN..].to_vec();
    while !end.ends_with(b"\n") {
        if (&mut *input).take(SKIPPED_AT_ONCE).read_until(b'\n', &mut end).await? == 0 {
            break;
        }
        end.drain(..end.len().saturating_sub(SHOWN));
    }
    Ok(Some(Line::TooLong { beginning, end }))
}

async fn write(mut output: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(message) = queue.recv().await {
        let mut rest = message;
        while !rest.is_empty() {
            let piece = pieces::one_line(rest.split_to(rest.len().min(pieces::PIECE)));
            if rest.is_empty() {
                // With the end of its line, so that most messages are written at once.
                output.write_all(&[&*piece, b"\n"].concat()).await?;
            } else {
                output.write_all(&piece).await?;
            }
        }
        output.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped_and_the_next_one_is_whole() {
        let largest = [vec![b'x'; LARGEST - 1], b"\n".to_vec()].concat();
        let (over, far_over) = ([b"y", &*largest].concat(), vec![b'y'; LARGEST * 2]);
        let said = [&*largest, &*over, b"next\n", &*far_over].concat();
        let mut input = BufReader::new(&*said);
        let mut heard = Vec::new();
        while let Some(line) = next_line(&mut input).await.unwrap() {
            heard.push(match line {
                Line::Whole(line) => Some(line.len()),
                Line::TooLong { .. } => None,
            });
        }
        assert_eq!(heard, [Some(LARGEST), None, Some(5), None]);
    }
}
