// What the conformance suite starts as the client under test: it hands everything that the suite told it to the test,
// which is the client, and stays until the test is done.
//
//     node handover.mjs PORT URL
//
// The test listens on PORT of the loopback interface. It gets a line of JSON, and closes the connection when it is done.

import { connect } from 'node:net';

const [port, url] = process.argv.slice(2);
const context = process.env.MCP_CONFORMANCE_CONTEXT;
const test = connect(Number(port), '127.0.0.1');
test.write(`${JSON.stringify({ url, context: context ? JSON.parse(context) : null })}\n`);
test.on('error', () => process.exit(1));
test.on('close', () => process.exit(0));
test.resume();
