"""Answers questions with FastMCP's search transform. `cargo xtask bench search` runs this script.

stdin has the tools and the questions as JSON; stdout gets the keys of the found tools for each question. The tools are
mounted under the names of their servers, as FastMCP does it, and the questions go through an in-memory client.
"""

import asyncio
import json
import sys

from fastmcp import Client, FastMCP
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool, ToolResult


class Listed(Tool):
    async def run(self, arguments):
        return ToolResult(content="")


async def main():
    asked = json.load(sys.stdin)
    server = FastMCP("bench")
    keys = {}
    for tool in asked["tools"]:
        name = f"{tool['server']}_{tool['name']}"
        keys[name] = f"{tool['server']}/{tool['name']}"
        properties = {
            parameter["name"]: {"type": "string", "description": parameter["description"] or ""}
            for parameter in tool["parameters"]
        }
        schema = {"type": "object", "properties": properties}
        server.add_tool(
            Listed(name=name, title=tool["title"], description=tool["description"], parameters=schema)
        )
    server.add_transform(BM25SearchTransform(max_results=asked["limit"]))
    answers = []
    async with Client(server) as client:
        for question in asked["questions"]:
            result = await client.call_tool("search_tools", {"query": question})
            found = (result.structured_content or {}).get("result") or []
            answers.append([keys[tool["name"]] for tool in found])
    json.dump(answers, sys.stdout)


asyncio.run(main())
