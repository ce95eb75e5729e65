// The client of the TypeScript SDK v1, controlled by a test: legacy era.
//
//     node client-v1.mjs legacy stdio COMMAND [ARG...]
//     node client-v1.mjs legacy http URL
//     node client-v1.mjs legacy sse URL
//
// Reads commands from stdin and answers each on stdout, one line of JSON per command, until stdin ends.
// `crates/testkit/src/clients.rs` lists the commands. PEER_MODULES is as in modern-server.mjs.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const require = createRequire(join(process.env.PEER_MODULES ?? '.', 'index.js'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

const [, kind, target, ...args] = process.argv.slice(2);

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

let asked = [];
let answer = 'accept';
const client = new Client({ name: 'client-v1', version: '1.0.0' }, { capabilities: { elicitation: { form: { applyDefaults: true } } } });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.message);
    return answer === 'accept' ? { action: answer, content: { ok: true } } : { action: answer };
});
const opened = transport();
// The SDK passes the negotiated version only to the transport.
let version;
const told = opened.setProtocolVersion?.bind(opened);
opened.setProtocolVersion = (agreed) => {
    version = agreed;
    told?.(agreed);
};
await client.connect(opened);

async function call({ tool, arguments: given }) {
    const progress = [];
    const onprogress = (heard) => progress.push(heard.progress);
    try {
        const result = await client.callTool({ name: tool, arguments: given }, undefined, { onprogress });
        return {
            text: result.content[0]?.text ?? null,
            structured: result.structuredContent ?? null,
            failed: result.isError ?? false,
            progress,
            asked,
        };
    } catch (error) {
        return { error: { code: error.code ?? null, message: error.message } };
    }
}

async function abandon({ tool, arguments: given }) {
    const controller = new AbortController();
    const options = { onprogress: () => controller.abort('the test says so'), signal: controller.signal };
    try {
        await client.callTool({ name: tool, arguments: given }, undefined, options);
        return { abandoned: false };
    } catch {
        return { abandoned: controller.signal.aborted };
    }
}

async function execute(command) {
    switch (command.do) {
        case 'meet':
            await client.ping();
            return { version, server: client.getServerVersion()?.name };
        case 'list':
            return {
                tools: (await client.listTools()).tools.map((tool) => tool.name),
                resources: (await client.listResources()).resources.map((resource) => resource.uri),
                prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
            };
        case 'tools':
            return (await client.listTools()).tools;
        case 'call':
            return call(command);
        case 'together':
            return Promise.all(command.calls.map(call));
        case 'abandon':
            return abandon(command);
        case 'read':
            return { text: (await client.readResource({ uri: command.uri })).contents[0]?.text ?? null };
        case 'prompt': {
            const prompt = await client.getPrompt({ name: command.name, arguments: command.arguments });
            return { text: prompt.messages[0]?.content.text ?? null };
        }
    }
}

for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    asked = [];
    answer = command.answer ?? 'accept';
    console.log(JSON.stringify(await execute(command)));
}
await client.close();
