//! The gateway as a stdio server: one message per line in, one message per line out.

use super::body::{MAX_BODY, ReceivedMessage};
use super::channel::{ChannelClient, DRAIN_TIMEOUT};
use super::chunks;
use crate::mcp::Gateway;
use crate::mcp::request::dispatch::RpcFault;
use crate::server::quota::Peer;
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
const QUEUE_LEN: usize = 1024;
/// Chunk size for skipping an overlong line.
const SKIP_CHUNK: u64 = 64 << 10;
/// Bytes of the beginning and end of an overlong line that are searched for the request id.
const ID_SEARCH_BYTES: usize = 512;

pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, queue) = mpsc::channel(QUEUE_LEN);
    let mut writer = tokio::spawn(write(output, queue));
    let mut client = ChannelClient::new(Arc::clone(gateway), out, &Peer::local());
    let mut input = BufReader::new(input);
    loop {
        let line = tokio::select! {
            line = next_line(&mut input) => line?,
            () = gateway.shutting_down.cancelled() => None,
            // The client can no longer receive answers, so its calls end with the channel.
            written = &mut writer => return written.unwrap_or_else(|error| Err(io::Error::other(error))),
        };
        match line {
            None => break,
            Some(ClientLine::Whole(line)) if line.trim_ascii().is_empty() => {}
            Some(ClientLine::Whole(line)) => {
                let line = Bytes::from(line);
                match ReceivedMessage::local(&gateway.memory, line.clone()) {
                    Ok(message) => client.handle(&message).await,
                    Err(overload) => {
                        let end = line.len().saturating_sub(ID_SEARCH_BYTES);
                        let id = envelope::request_id(&line[..line.len().min(ID_SEARCH_BYTES)], &line[end..]);
                        client.reject(id.as_ref().map(RequestId::as_id), &overload.fault()).await;
                    }
                }
            }
            Some(ClientLine::TooLong { beginning, end }) => {
                let text = "the message exceeds the limit of 16 MiB and was not read";
                let id = envelope::request_id(&beginning, &end);
                let id = id.as_ref().map(RequestId::as_id);
                client.reject(id, &RpcFault::new(codes::INVALID_REQUEST, text)).await;
            }
        }
    }
    client.finish().await;
    let drain_timeout = async {
        gateway.shutting_down.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        written = &mut writer => written.unwrap_or_else(|error| Err(io::Error::other(error))),
        // During shutdown, a client that does not read must not block.
        () = drain_timeout => Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answers")),
    }
}

/// One line from the client.
pub(crate) enum ClientLine {
    Whole(Vec<u8>),
    /// Above the size limit. Only the parts that may contain the request id are kept.
    TooLong {
        beginning: Vec<u8>,
        end: Vec<u8>,
    },
}

/// Next line; `None` at the end of input.
pub(crate) async fn next_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<ClientLine>> {
    let mut line = Vec::new();
    let read = (&mut *input).take(MAX_BODY as u64 + 1).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() <= MAX_BODY {
        return Ok(Some(ClientLine::Whole(line)));
    }
    let beginning = line[..ID_SEARCH_BYTES].to_vec();
    let mut end = line[line.len() - ID_SEARCH_BYTES..].to_vec();
    while !end.ends_with(b"\n") {
        if (&mut *input).take(SKIP_CHUNK).read_until(b'\n', &mut end).await? == 0 {
            break;
        }
        end.drain(..end.len().saturating_sub(ID_SEARCH_BYTES));
    }
    Ok(Some(ClientLine::TooLong { beginning, end }))
}

async fn write(mut output: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(message) = queue.recv().await {
        let mut rest = message;
        while !rest.is_empty() {
            let piece = chunks::one_line(rest.split_to(rest.len().min(chunks::CHUNK_SIZE)));
            if rest.is_empty() {
                // Together with the line end, so that most messages are one write.
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
    async fn an_overlong_line_is_skipped_and_the_next_one_is_complete() {
        let largest = [vec![b'x'; MAX_BODY - 1], b"\n".to_vec()].concat();
        let (over, far_over) = ([b"y", &*largest].concat(), vec![b'y'; MAX_BODY * 2]);
        let text = [&*largest, &*over, b"next\n", &*far_over].concat();
        let mut input = BufReader::new(&*text);
        let mut lengths = Vec::new();
        while let Some(line) = next_line(&mut input).await.unwrap() {
            lengths.push(match line {
                ClientLine::Whole(line) => Some(line.len()),
                ClientLine::TooLong { .. } => None,
            });
        }
        assert_eq!(lengths, [Some(MAX_BODY), None, Some(5), None]);
    }
}
