// Serves the page from an origin of its own, has Chromium open it, and checks what it reports.
// Takes the address of examples/figures/algorithms.rs, with LIMIT=2 and WINDOW_MS=2600, Chromium's program
// and an empty folder for its profile.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { json } from "node:stream/consumers";

const LIMIT = 2;
const POLICY = `"sliding-log";q=${LIMIT};w=3`;
const [url, program, profile] = process.argv.slice(2);
const page = readFileSync(new URL("page.html", import.meta.url));

const reported = Promise.withResolvers();
const server = createServer((request, response) => {
  if (request.method === "POST") json(request).then(reported.resolve, reported.reject);
  response.setHeader("content-type", "text/html");
  response.end(request.method === "GET" ? page : "");
});
await once(server.listen(0, "127.0.0.1"), "listening");
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = spawn(
  program,
  [
    "--headless",
    // Chromium's sandbox does not start as root, which is the user in CI. It opens only our page.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--remote-debugging-port=0",
    `--user-data-dir=${profile}`,
    `${origin}/?${new URLSearchParams({ url, limit: LIMIT })}`,
  ],
  // A process group of its own, because Chromium is many processes.
  { detached: true, stdio: ["ignore", "ignore", "pipe"] },
);
let said = "";
browser.stderr.on("data", (text) => (said += text));
const fail = (reason) => reported.reject(new Error(`${reason}; Chromium said:\n${said}`));
browser.on("error", (error) => fail(`Chromium did not start: ${error.message}`));
browser.on("exit", (code, signal) => fail(`Chromium ended: ${code ?? signal}`));
const deadline = setTimeout(() => fail("no report within 60 s"), 60_000);

try {
  const { preflighted, plain, afterwards } = await reported.promise;
  for (const { status, policy, rateLimit, retryAfter } of [...preflighted, ...plain, afterwards])
    console.log(`  ${status}, policy ${policy}, limit ${rateLimit}, retry after ${retryAfter}`);

  const refusal = plain.at(-1);
  for (const answer of preflighted) assert.equal(answer.status, 200, "after a preflight");
  assert.equal(refusal.status, 429, "a refusal can be read");
  assert.ok(plain.length > LIMIT, "no refusal below the limit");
  for (const { policy } of [...preflighted, ...plain])
    assert.equal(policy, POLICY, `the policy is ${policy}`);
  const first = new RegExp(`^"sliding-log";r=${LIMIT - 1};t=[1-3]$`);
  assert.ok(first.test(preflighted[0].rateLimit), "one is taken of a full quota");
  assert.ok(first.test(plain[0].rateLimit), "preflights cost the address nothing");
  assert.ok(/^[1-3]$/.test(refusal.retryAfter), `retry-after is ${refusal.retryAfter}`);
  assert.equal(refusal.rateLimit, `"sliding-log";r=0;t=${refusal.retryAfter}`, "t is the wait");
  assert.equal(afterwards.status, 200, `after the ${refusal.retryAfter} s that were told`);
  console.log(`browser: a page of ${origin} read every field of ${url}, waited and passed`);
} catch (error) {
  console.error(`browser: ${error.message}`);
  process.exitCode = 1;
} finally {
  clearTimeout(deadline);
  if (browser.exitCode === null && browser.signalCode === null && browser.pid) {
    // Closed when the last of its processes has ended. Then no process writes to the profile.
    const closed = once(browser, "close");
    process.kill(-browser.pid, "SIGKILL");
    await closed;
  }
  server.close();
  server.closeAllConnections();
}
