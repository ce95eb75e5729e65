//! The gateway as a stdio server: one message a line in, one message a line out, and nothing else.

use super::Gateway;
use super::body::{LARGEST, Received};
use super::conversation::{Conversation, DRAIN_FOR};
use crate::shares::Peer;
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

/// Messages that may wait for a client that does not read.
const QUEUED: usize = 1024;

pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, queue) = mpsc::channel(QUEUED);
    let mut writer = tokio::spawn(write(output, queue));
    let mut conversation = Conversation::new(Arc::clone(gateway), out, &Peer::default());
    let mut input = BufReader::new(input);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut input).take(LARGEST as u64 + 1);
        let read = tokio::select! {
            read = limited.read_until(b'\n', &mut line) => read?,
            () = gateway.leaving.cancelled() => 0,
        };
        if read == 0 {
            break;
        }
        if line.len() > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is over the limit of 16 MiB"));
        }
        if !line.trim_ascii().is_empty() {
            match Received::here(&gateway.bodies, Bytes::from(line)) {
                Ok(message) => conversation.take(&message).await,
                Err(overload) => conversation.turn_away(&overload).await,
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

async fn write(mut output: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(message) = queue.recv().await {
        // A server's own line breaks can only stand between tokens.
        let mut line: Vec<u8> =
            message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        line.push(b'\n');
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}
