//! stdio transport: one message per line, answered in order.

use std::io::{self, BufRead, Write};

use super::answer;

/// Serves on stdin and stdout until the input ends.
pub(crate) fn serve(tools: usize) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if let Some(mut answer) = answer(&line, tools) {
            answer.message.push('\n');
            output.write_all(answer.message.as_bytes())?;
            output.flush()?;
        }
    }
}
