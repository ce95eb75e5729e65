"""The client of the Python SDK 2.x, controlled by a test: both eras.

    client_v2.py MODE stdio COMMAND [ARG...]
    client_v2.py MODE http URL
    client_v2.py legacy sse URL

MODE is `auto`, `legacy`, or a version of the modern era. Reads commands from stdin and answers each on stdout, one line
of JSON per command, until stdin ends. `crates/testkit/src/clients.rs` lists the commands.
"""

import json
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp_types import ElicitResult

asked: list[str] = []
answer = "accept"


async def elicit(_context, params):
    asked.append(params.message)
    return ElicitResult(action=answer, content={"ok": True} if answer == "accept" else None)


def server(transport: str, target: list[str]):
    if transport == "stdio":
        return StdioServerParameters(command=target[0], args=target[1:])
    return target[0] if transport == "http" else sse_client(target[0])


async def call(client: Client, command: dict) -> dict:
    heard: list[float] = []

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        heard.append(done)

    result = await client.call_tool(command["tool"], command["arguments"], progress_callback=progress)
    first = result.content[0] if result.content else None
    return {
        "text": getattr(first, "text", None),
        "structured": result.structured_content,
        "failed": bool(result.is_error),
        "progress": heard,
        "asked": asked[:],
    }


async def together(client: Client, commands: list[dict]) -> list[dict]:
    answers: list[dict] = [{}] * len(commands)

    async def one(at: int) -> None:
        answers[at] = await attempt(call(client, commands[at]))

    async with anyio.create_task_group() as group:
        for at in range(len(commands)):
            group.start_soon(one, at)
    return answers


async def abandon(client: Client, command: dict) -> dict:
    """Whoever stops waiting has cancelled: the SDK tells the server."""
    async with anyio.create_task_group() as group:

        async def progress(_done: float, _total: float | None, _message: str | None) -> None:
            group.cancel_scope.cancel()

        group.start_soon(client.call_tool, command["tool"], command["arguments"], None, progress)
    return {"abandoned": True}


async def attempt(work) -> dict:
    try:
        return await work
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}


async def execute(client: Client, command: dict):
    match command["do"]:
        case "meet":
            # A client that is pinned to a version does not request the server's name.
            name = client.server_info and client.server_info.name
            return {"version": client.protocol_version, "server": name}
        case "list":
            return {
                "tools": [tool.name for tool in (await client.list_tools()).tools],
                "resources": [str(resource.uri) for resource in (await client.list_resources()).resources],
                "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
            }
        case "call":
            return await attempt(call(client, command))
        case "together":
            return await together(client, command["calls"])
        case "abandon":
            return await abandon(client, command)
        case "read":
            return {"text": (await client.read_resource(command["uri"])).contents[0].text}
        case "prompt":
            prompt = await client.get_prompt(command["name"], command["arguments"])
            return {"text": prompt.messages[0].content.text}


async def main(mode: str, transport: str, *target: str) -> None:
    global answer
    opened = server(transport, list(target))
    async with Client(opened, mode=mode, read_timeout_seconds=60, elicitation_callback=elicit) as client:
        async for line in anyio.wrap_file(sys.stdin):
            command = json.loads(line)
            asked.clear()
            answer = command.get("answer", "accept")
            print(json.dumps(await execute(client, command)), flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
