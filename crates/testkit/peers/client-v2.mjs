// The client of the TypeScript SDK v2 against any server, as a real peer for the tests: both eras.
//
//     node client-v2.mjs MODE stdio COMMAND [ARG...]
//     node client-v2.mjs MODE http URL
//     node client-v2.mjs legacy sse URL
//
// MODE is `auto`, `legacy`, or a version of the modern era. Does what every client does, with the tools that the sample
// server offers, and prints what came of it as one line of JSON. PEER_MODULES is as in modern-server.mjs.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.PEER_MODULES ?? '.', 'index.js'));
const { Client, SSEClientTransport, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const [mode, kind, target, ...args] = process.argv.slice(2);

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

const client = new Client(
    { name: 'client-v2', version: '1.0.0' },
    { versionNegotiation: { mode: mode === 'auto' || mode === 'legacy' ? mode : { pin: mode } } },
);
await client.connect(transport());
const { tools } = await client.listTools();
const { resources } = await client.listResources();
const { prompts } = await client.listPrompts();
const echo = await client.callTool({ name: 'echo', arguments: { text: 'hello' } });
const add = await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } });
const failed = await client.callTool({ name: 'fail', arguments: {} });
let heard = 0;
await client.callTool({ name: 'sleep', arguments: { ms: 300 } }, { onprogress: () => (heard += 1) });
const read = await client.readResource({ uri: 'demo://greeting' });
const prompt = await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } });
console.log(
    JSON.stringify({
        version: client.getNegotiatedProtocolVersion(),
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
