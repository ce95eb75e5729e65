// Started by the conformance suite as the client under test. Passes the parameters of the suite to the test, which
// acts as the client, and waits until the test has finished.
//
//     node handover.mjs PORT URL
//
// The test listens on PORT of the loopback interface. It gets one line of JSON and closes the connection when it has
// finished.

import { connect } from 'node:net';

const [port, url] = process.argv.slice(2);
const context = process.env.MCP_CONFORMANCE_CONTEXT;
const test = connect(Number(port), '127.0.0.1');
test.write(`${JSON.stringify({ url, context: context ? JSON.parse(context) : null })}\n`);
test.on('error', () => process.exit(1));
test.on('close', () => process.exit(0));
test.resume();
