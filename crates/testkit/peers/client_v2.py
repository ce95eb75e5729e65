"""The client of the Python SDK 2.x against any server, as a real peer for the tests: both eras.

    client_v2.py MODE stdio COMMAND [ARG...]
    client_v2.py MODE http URL

MODE is `auto`, `legacy`, or a version of the modern era. Does what every client does, with the tools that the sample
server offers, and prints what came of it as one line of JSON.
"""

import json
import sys

import anyio
from mcp import Client, StdioServerParameters


async def main(mode: str, transport: str, *target: str) -> None:
    server = StdioServerParameters(command=target[0], args=list(target[1:])) if transport == "stdio" else target[0]
    async with Client(server, mode=mode, read_timeout_seconds=60) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        prompts = await client.list_prompts()
        echo = await client.call_tool("echo", {"text": "hello"})
        add = await client.call_tool("add", {"a": 2, "b": 3})
        failed = await client.call_tool("fail", {})
        heard: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            heard.append(done)

        await client.call_tool("sleep", {"ms": 300}, progress_callback=progress)
        read = await client.read_resource("demo://greeting")
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        came = {
            "version": client.protocol_version,
            # A client that is pinned to a version does not ask who it talks to.
            "server": client.server_info and client.server_info.name,
            "tools": [tool.name for tool in tools.tools],
            "resources": [str(resource.uri) for resource in resources.resources],
            "prompts": [prompt.name for prompt in prompts.prompts],
            "echo": echo.structured_content,
            "add": add.structured_content,
            "fail": failed.is_error,
            "progress": len(heard) > 0,
            "read": read.contents[0].text,
            "prompt": prompt.messages[0].content.text,
        }
    print(json.dumps(came))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
