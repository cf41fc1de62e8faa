// Node's own ways to spend time. argv[2]: nominal milliseconds. Lines as lt.h describes them.
"use strict";
const { execFile, spawnSync } = require("node:child_process");
const net = require("node:net");
const fs = require("node:fs");
const timers = require("node:timers/promises");

const ms = Number(process.argv[2]);
const say = (o) => fs.writeSync(1, JSON.stringify(o) + "\n");

async function item(name, call) {
  say({ ev: "ready", case: name });
  const start = process.hrtime.bigint();
  await call();
  const elapsed = Number(process.hrtime.bigint() - start) / 1e9;
  say({ ev: "done", case: name, elapsed, expect: ms / 1e3 });
}

const interval = () =>
  new Promise((done) => {
    let left = 5;
    const handle = setInterval(() => {
      if (--left === 0) {
        clearInterval(handle);
        done();
      }
    }, ms / 5);
  });

const killed = () =>
  new Promise((done, fail) => {
    execFile("sleep", ["1000"], { timeout: ms }, (error) =>
      error && error.killed ? done() : fail(new Error("sleep was not killed")));
  });

const socket = () =>
  new Promise((done, fail) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const client = net.connect(server.address().port, "127.0.0.1");
      client.setTimeout(ms, () => {
        client.destroy();
        server.close(done);
      });
      client.on("error", fail);
    });
  });

(async () => {
  await item("setTimeout", () => new Promise((done) => setTimeout(done, ms)));
  await item("setInterval", interval);
  await item("timers/promises", () => timers.setTimeout(ms));
  await item("AbortSignal", () => new Promise((done) => {
    const keep = setInterval(() => {}, 1e6); // the signal alone does not keep node alive
    AbortSignal.timeout(ms).addEventListener("abort", () => {
      clearInterval(keep);
      done();
    });
  }));
  await item("Atomics.wait", () =>
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms));
  await item("execFile", killed);
  await item("spawnSync", () => spawnSync("sleep", [String(ms / 1000)]));
  await item("socket", socket);
  say({ ev: "year", year: new Date().getUTCFullYear() });
  say({ ev: "end" });
})();
