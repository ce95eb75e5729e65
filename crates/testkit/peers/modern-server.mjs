// A small MCP server on the TypeScript SDK v2, as a real peer for the tests: both eras, stdio and Streamable HTTP.
//
//     node modern-server.mjs [--port PORT] [--modern-only]
//
// Without --port it uses stdio; with it, HTTP on 127.0.0.1 at /mcp. --modern-only refuses the legacy era.
// PEER_COUNTER_FILE is the file that `counter` appends to; PEER_MODULES is the directory whose node_modules has the SDK
// (an ES module looks for packages next to itself, and this file is in another directory).

import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const require = createRequire(join(process.env.PEER_MODULES ?? '.', 'index.js'));
const { McpServer, createMcpHandler } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const READ_ONLY = { readOnlyHint: true };
const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });

function peer() {
    const server = new McpServer(
        { name: 'typescript-v2', version: '1.0.0' },
        { capabilities: { tools: {} }, instructions: 'A peer for tests.' },
    );
    server.registerTool(
        'echo',
        { description: 'Say the text back.', inputSchema: z.object({ text: z.string() }), annotations: READ_ONLY },
        async (args) => text(args.text),
    );
    server.registerTool(
        'add',
        {
            description: 'Add two whole numbers.',
            inputSchema: z.object({ a: z.int(), b: z.int() }),
            annotations: READ_ONLY,
        },
        async ({ a, b }) => text(a + b),
    );
    server.registerTool(
        'counter',
        {
            description:
                'Append a line to the counter file and return the number of lines, after this many milliseconds.',
            inputSchema: z.object({ ms: z.int().default(0) }),
        },
        async ({ ms }) => {
            const path = process.env.PEER_COUNTER_FILE;
            appendFileSync(path, '+\n');
            const lines = readFileSync(path, 'utf8').split('\n').length - 1;
            await sleep(ms);
            return text(lines);
        },
    );
    server.registerTool(
        'sleep',
        {
            description: 'Wait for this many milliseconds, then answer.',
            inputSchema: z.object({ ms: z.int() }),
            annotations: READ_ONLY,
        },
        async ({ ms }) => {
            await sleep(ms);
            return text(`slept ${ms} ms`);
        },
    );
    server.registerResource('greeting', 'peer://greeting', { mimeType: 'text/plain' }, async (uri) => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'hello from typescript 2' }],
    }));
    server.registerPrompt(
        'greet',
        { description: 'Ask for a greeting.', argsSchema: z.object({ name: z.string() }) },
        async ({ name }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Greet ${name}.` } }] }),
    );
    return server;
}

// Converts between node:http and the web-standard requests of the SDK. A client that disconnects aborts the request,
// which is how the modern era cancels.
async function answer(handler, request, response) {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const bodiless = request.method === 'GET' || request.method === 'HEAD' || request.method === 'DELETE';
    const reply = await handler.fetch(
        new Request(`http://${request.headers.host}${request.url}`, {
            method: request.method,
            headers: Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
            body: bodiless ? undefined : Readable.toWeb(request),
            duplex: 'half',
            signal: gone.signal,
        }),
    );
    response.writeHead(reply.status, Object.fromEntries(reply.headers));
    if (reply.body === null) {
        response.end();
        return;
    }
    Readable.fromWeb(reply.body).on('error', () => response.destroy()).pipe(response);
}

const { values: options } = parseArgs({
    options: { port: { type: 'string' }, 'modern-only': { type: 'boolean', default: false } },
});

if (options.port === undefined) {
    serveStdio(peer, options['modern-only'] ? { legacy: 'reject' } : {});
} else {
    const handler = createMcpHandler(peer, options['modern-only'] ? { legacy: 'reject' } : {});
    createServer((request, response) => {
        if (new URL(request.url, 'http://localhost').pathname !== '/mcp') {
            response.writeHead(404).end();
            return;
        }
        answer(handler, request, response).catch(() => response.destroy());
    }).listen(Number(options.port), '127.0.0.1');
}
