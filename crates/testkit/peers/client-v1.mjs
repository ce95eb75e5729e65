// The client of the TypeScript SDK v1 against any server, as a real peer for the tests: the legacy era.
//
//     node client-v1.mjs stdio COMMAND [ARG...]
//     node client-v1.mjs http URL
//     node client-v1.mjs sse URL
//
// Does what every client does, with the tools that the sample server offers, and prints what came of it as one line of
// JSON. PEER_MODULES is as in modern-server.mjs.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.PEER_MODULES ?? '.', 'index.js'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const [kind, target, ...args] = process.argv.slice(2);

function transport() {
    switch (kind) {
        case 'stdio':
            return new StdioClientTransport({ command: target, args });
        case 'http':
            return new StreamableHTTPClientTransport(new URL(target));
        default:
            return new SSEClientTransport(new URL(target));
    }
}

const client = new Client({ name: 'client-v1', version: '1.0.0' });
const opened = transport();
// The agreed version is told to the transport alone.
let version;
const told = opened.setProtocolVersion?.bind(opened);
opened.setProtocolVersion = (agreed) => {
    version = agreed;
    told?.(agreed);
};
await client.connect(opened);
await client.ping();
const { tools } = await client.listTools();
const { resources } = await client.listResources();
const { prompts } = await client.listPrompts();
const echo = await client.callTool({ name: 'echo', arguments: { text: 'hello' } });
const add = await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } });
const failed = await client.callTool({ name: 'fail', arguments: {} });
let heard = 0;
await client.callTool({ name: 'sleep', arguments: { ms: 300 } }, undefined, { onprogress: () => (heard += 1) });
const read = await client.readResource({ uri: 'demo://greeting' });
const prompt = await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } });
console.log(
    JSON.stringify({
        version,
        server: client.getServerVersion()?.name,
        tools: tools.map((tool) => tool.name),
        resources: resources.map((resource) => resource.uri),
        prompts: prompts.map((prompt) => prompt.name),
        echo: echo.structuredContent,
        add: add.structuredContent,
        fail: failed.isError,
        progress: heard > 0,
        read: read.contents[0].text,
        prompt: prompt.messages[0].content.text,
    }),
);
await client.close();
