"""A small MCP server on the Python SDK 1.x, as a real peer for the tests: legacy era only.

    echo_v1.py [stdio | streamable-http | sse] [--port PORT]

HTTP is served on 127.0.0.1 at /mcp, legacy HTTP+SSE at /sse. PEER_COUNTER_FILE names the file that `counter` appends to.
"""

import argparse
import os
from pathlib import Path

import anyio
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

READ_ONLY = ToolAnnotations(readOnlyHint=True)


def build(port: int) -> FastMCP:
    server = FastMCP("echo-v1", instructions="A peer for tests.", host="127.0.0.1", port=port, log_level="WARNING")

    @server.tool(annotations=READ_ONLY)
    def echo(text: str) -> str:
        """Say the text back."""
        return text

    @server.tool(annotations=READ_ONLY)
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    @server.tool()
    async def counter(ms: int = 0) -> int:
        """Append a line to the counter file and return the number of lines, after this many milliseconds."""
        path = Path(os.environ["PEER_COUNTER_FILE"])
        with path.open("a") as file:
            file.write("+\n")
        lines = len(path.read_text().splitlines())
        await anyio.sleep(ms / 1000)
        return lines

    @server.tool(annotations=READ_ONLY)
    async def sleep(ms: int) -> str:
        """Wait for this many milliseconds, then answer."""
        await anyio.sleep(ms / 1000)
        return f"slept {ms} ms"

    @server.resource("peer://greeting")
    def greeting() -> str:
        """A greeting."""
        return "hello from python 1"

    @server.prompt()
    def greet(name: str) -> str:
        """Ask for a greeting."""
        return f"Greet {name}."

    return server


def main() -> None:
    arguments = argparse.ArgumentParser(description="a peer for tests on the Python SDK 1.x")
    arguments.add_argument("transport", nargs="?", default="stdio", choices=["stdio", "streamable-http", "sse"])
    arguments.add_argument("--port", type=int, default=8000)
    chosen = arguments.parse_args()
    build(chosen.port).run(transport=chosen.transport)


if __name__ == "__main__":
    main()
