// Counts the tokens of texts with gpt-tokenizer.
//
//     node count-tokens.mjs < TEXTS
//
// Reads a JSON list of texts from stdin and prints a JSON object: for each encoding, the list of counts. PEER_MODULES is
// as in modern-server.mjs.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { readFileSync } from 'node:fs';

const require = createRequire(join(process.env.PEER_MODULES ?? '.', 'index.js'));
const texts = JSON.parse(readFileSync(0, 'utf8'));
const counts = {};
for (const name of ['o200k_base', 'cl100k_base']) {
    const { encode } = require(`gpt-tokenizer/encoding/${name}`);
    counts[name] = texts.map((text) => encode(text).length);
}
console.log(JSON.stringify(counts));
