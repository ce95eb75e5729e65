"""The client of the Python SDK 1.x against any server, as a real peer for the tests: the legacy era.

    client_v1.py stdio COMMAND [ARG...]
    client_v1.py http URL
    client_v1.py sse URL

Does what every client does, with the tools that the sample server offers, and prints what came of it as one line of JSON.
"""

import json
import sys
from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def connected(transport: str, target: list[str]):
    if transport == "stdio":
        opened = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    elif transport == "http":
        opened = streamable_http_client(target[0])
    else:
        opened = sse_client(target[0])
    async with opened as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            yield session


async def main(transport: str, *target: str) -> None:
    async with connected(transport, list(target)) as session:
        greeted = await session.initialize()
        await session.send_ping()
        tools = await session.list_tools()
        resources = await session.list_resources()
        prompts = await session.list_prompts()
        echo = await session.call_tool("echo", {"text": "hello"})
        add = await session.call_tool("add", {"a": 2, "b": 3})
        failed = await session.call_tool("fail", {})
        heard: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            heard.append(done)

        await session.call_tool("sleep", {"ms": 300}, progress_callback=progress)
        read = await session.read_resource("demo://greeting")
        prompt = await session.get_prompt("greet", {"name": "Ada"})
        came = {
            "version": greeted.protocolVersion,
            "server": greeted.serverInfo.name,
            "tools": [tool.name for tool in tools.tools],
            "resources": [str(resource.uri) for resource in resources.resources],
            "prompts": [prompt.name for prompt in prompts.prompts],
            "echo": echo.structuredContent,
            "add": add.structuredContent,
            "fail": failed.isError,
            "progress": len(heard) > 0,
            "read": read.contents[0].text,
            "prompt": prompt.messages[0].content.text,
        }
    print(json.dumps(came))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
