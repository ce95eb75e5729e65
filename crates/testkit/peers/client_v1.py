"""The client of the Python SDK 1.x, controlled by a test: legacy era.

    client_v1.py legacy stdio COMMAND [ARG...]
    client_v1.py legacy http URL
    client_v1.py legacy sse URL

Reads commands from stdin and answers each on stdout, one line of JSON per command, until stdin ends.
`crates/testkit/src/clients.rs` lists the commands.
"""

import json
import sys
from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

asked: list[str] = []
answer = "accept"


async def elicit(_context, params):
    asked.append(params.message)
    return types.ElicitResult(action=answer, content={"ok": True} if answer == "accept" else None)


@asynccontextmanager
async def connected(transport: str, target: list[str]):
    if transport == "stdio":
        opened = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    elif transport == "http":
        opened = streamable_http_client(target[0])
    else:
        opened = sse_client(target[0])
    async with opened as streams:
        async with ClientSession(streams[0], streams[1], elicitation_callback=elicit) as session:
            yield session, await session.initialize()


async def call(session: ClientSession, command: dict) -> dict:
    heard: list[float] = []

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        heard.append(done)

    result = await session.call_tool(command["tool"], command["arguments"], progress_callback=progress)
    first = result.content[0] if result.content else None
    return {
        "text": getattr(first, "text", None),
        "structured": result.structuredContent,
        "failed": bool(result.isError),
        "progress": heard,
        "asked": asked[:],
    }


async def together(session: ClientSession, commands: list[dict]) -> list[dict]:
    answers: list[dict] = [{}] * len(commands)

    async def one(at: int) -> None:
        answers[at] = await attempt(call(session, commands[at]))

    async with anyio.create_task_group() as group:
        for at in range(len(commands)):
            group.start_soon(one, at)
    return answers


async def abandon(session: ClientSession, command: dict) -> dict:
    """This SDK leaves it to the caller to tell the server, and to know the request's number."""
    number = session._request_id
    async with anyio.create_task_group() as group:

        async def progress(_done: float, _total: float | None, _message: str | None) -> None:
            group.cancel_scope.cancel()

        group.start_soon(session.call_tool, command["tool"], command["arguments"], None, progress)
    params = types.CancelledNotificationParams(requestId=number, reason="the test says so")
    cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(cancelled))
    return {"abandoned": True}


async def attempt(work) -> dict:
    try:
        return await work
    except McpError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}


async def execute(session: ClientSession, initialized: types.InitializeResult, command: dict):
    match command["do"]:
        case "meet":
            await session.send_ping()
            return {"version": initialized.protocolVersion, "server": initialized.serverInfo.name}
        case "list":
            return {
                "tools": [tool.name for tool in (await session.list_tools()).tools],
                "resources": [str(resource.uri) for resource in (await session.list_resources()).resources],
                "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
            }
        case "call":
            return await attempt(call(session, command))
        case "together":
            return await together(session, command["calls"])
        case "abandon":
            return await abandon(session, command)
        case "read":
            return {"text": (await session.read_resource(command["uri"])).contents[0].text}
        case "prompt":
            prompt = await session.get_prompt(command["name"], command["arguments"])
            return {"text": prompt.messages[0].content.text}


async def main(_mode: str, transport: str, *target: str) -> None:
    global answer
    async with connected(transport, list(target)) as (session, initialized):
        async for line in anyio.wrap_file(sys.stdin):
            command = json.loads(line)
            asked.clear()
            answer = command.get("answer", "accept")
            print(json.dumps(await execute(session, initialized, command)), flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
