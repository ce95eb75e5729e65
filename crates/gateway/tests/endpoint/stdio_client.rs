//! MCP client over an in-memory stdio transport, for tests that need no child process.

use crate::test_gateway::TestGateway;
use gripfast_gateway::mcp::{Gateway, Limits, TokenCipher};
use gripfast_testkit::wait::within;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};

/// Client connected to the stdio transport of a gateway by two in-memory pipes.
pub(crate) struct StdioClient {
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
}

impl StdioClient {
    pub(crate) fn to(test_gateway: &TestGateway) -> Self {
        let gateway =
            Gateway::new(test_gateway.host.clone(), TokenCipher::ephemeral().unwrap(), &Limits::default());
        let (input, theirs) = tokio::io::duplex(1 << 16);
        let (ours, output) = tokio::io::duplex(1 << 16);
        // It ends when the input does.
        tokio::spawn(async move { gateway.serve_stdio(theirs, ours).await });
        Self { input, output: BufReader::new(output).lines() }
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let line = within("a line", self.output.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}
