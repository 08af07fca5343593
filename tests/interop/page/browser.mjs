// Starts Chromium, and speaks its DevTools protocol.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";

export async function start(program, profile) {
  const browser = spawn(
    program,
    [
      "--headless",
      // Chromium's sandbox does not start as root, which is the user in CI. It opens only our page.
      "--no-sandbox",
      "--disable-dev-shm-usage",
      "--disable-gpu",
      "--no-first-run",
      "--hide-scrollbars",
      "--remote-debugging-port=0",
      `--user-data-dir=${profile}`,
      "about:blank",
    ],
    // A process group of its own, because Chromium is many processes.
    { detached: true, stdio: ["ignore", "ignore", "pipe"] },
  );
  let said = "";
  const address = Promise.withResolvers();
  browser.stderr.on("data", (text) => {
    said += text;
    const told = /DevTools listening on (ws:\S+)/.exec(said);
    if (told) address.resolve(told[1]);
  });
  const fail = (reason) => address.reject(new Error(`${reason}; Chromium said:\n${said}`));
  browser.on("error", (error) => fail(`Chromium did not start: ${error.message}`));
  browser.on("exit", (code, signal) => fail(`Chromium ended: ${code ?? signal}`));
  const socket = new WebSocket(await address.promise);
  await once(socket, "open");

  const waiting = new Map();
  const problems = [];
  let last = 0;
  socket.addEventListener("message", ({ data }) => {
    const { id, result, error, method, params } = JSON.parse(data);
    if (id) {
      const { resolve, reject } = waiting.get(id);
      waiting.delete(id);
      if (error) reject(new Error(error.message));
      else resolve(result);
    } else if (method === "Runtime.exceptionThrown") {
      problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === "Log.entryAdded" && params.entry.level === "error") {
      problems.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    }
  });
  const send = (method, params = {}, sessionId) => {
    const { promise, resolve, reject } = Promise.withResolvers();
    waiting.set((last += 1), { resolve, reject });
    socket.send(JSON.stringify({ id: last, method, params, sessionId }));
    return promise;
  };

  async function open(url) {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const tell = (method, params) => send(method, params, sessionId);
    for (const domain of ["Page", "Runtime", "Log"]) await tell(`${domain}.enable`);
    const page = {
      tell,
      async evaluate(expression) {
        const asked = { expression, awaitPromise: true, returnByValue: true };
        const { result, exceptionDetails } = await tell("Runtime.evaluate", asked);
        if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        return result.value;
      },
      // Repeats the question until the answer is true, and gives up after the limit.
      async until(expression, what = expression, seconds = 30) {
        const end = Date.now() + 1_000 * seconds;
        for (;;) {
          const value = await page.evaluate(expression);
          if (value) return value;
          if (Date.now() > end) throw new Error(`after ${seconds} s still not: ${what}`);
          await new Promise((wake) => setTimeout(wake, 50));
        }
      },
      async size(width, height) {
        await tell("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
      },
      async theme(value) {
        await tell("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
      },
      async screenshot(file) {
        const { cssContentSize } = await tell("Page.getLayoutMetrics");
        const clip = { x: 0, y: 0, width: cssContentSize.width, height: cssContentSize.height, scale: 1 };
        const { data } = await tell("Page.captureScreenshot", { clip, captureBeyondViewport: true });
        writeFileSync(file, Buffer.from(data, "base64"));
      },
      close: () => send("Target.closeTarget", { targetId }),
    };
    await tell("Page.navigate", { url });
    return page;
  }

  async function close() {
    socket.close();
    if (browser.exitCode !== null || browser.signalCode !== null || !browser.pid) return;
    // Closed when the last of its processes has ended. Then no process writes to the profile.
    const closed = once(browser, "close");
    process.kill(-browser.pid, "SIGKILL");
    await closed;
  }
  return { open, close, problems };
}
