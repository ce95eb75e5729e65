#!/usr/bin/env node
// Starts the gripfast binary of this platform. The binary comes with an optional dependency, so no install script is
// needed. It gets the standard streams of this process, which reads and writes nothing itself.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { isatty } = require("node:tty");

const name = `@gripfast/${process.platform}-${process.arch}`;

function binary() {
  try {
    return require.resolve(`${name}/bin/gripfast`);
  } catch {
    process.stderr.write(
      `error: the package ${name} is not installed\n` +
        "  hint: install gripfast again without `--omit=optional`; if there is no such package for this platform, " +
        "build gripfast from source\n",
    );
    process.exit(1);
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });

// A terminal sends Ctrl-C to the binary too, and gripfast takes a second signal as an order to end at once.
const atTerminal = [0, 1, 2].some((stream) => isatty(stream));
for (const signal of ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT"]) {
  process.on(signal, () => {
    if (!atTerminal || signal === "SIGTERM" || signal === "SIGHUP") child.kill(signal);
  });
}

child.on("error", (error) => {
  process.stderr.write(`error: cannot start ${child.spawnfile}: ${error.message}\n`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  // Ends in the same way as the binary, so that the caller sees the signal.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // A signal that does not end this process.
  process.exit(128 + (constants.signals[signal] ?? 0));
});
