// Opens the page of examples/dashboard in Chromium, and compares what it shows with what the service says and with what
// clients have seen. Takes the address of the service, Chromium's program, an empty folder for its profile, a folder for
// pictures, the process of its Redis, and the address of Prometheus.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { start } from "./browser.mjs";

const [url, program, profile, pictures, redis, prometheus] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });
const HOSTILE = `<img src=x onerror="window.hit=1">'"&amp;`;

const sleep = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));
const seen = { allowed: 0, refused: 0 };
async function send(key, count = 1) {
  const statuses = [];
  for (let i = 0; i < count; i += 1) {
    const { status } = await fetch(url, { headers: { "x-api-key": key } });
    assert.ok(status === 200 || status === 429, `${key}: ${status}`);
    seen[status === 200 ? "allowed" : "refused"] += 1;
    statuses.push(status);
  }
  return statuses;
}
const snapshot = async () => (await fetch(`${url}/dashboard/snapshot`)).json();
const number = (text) => Number(text.replace(/\D/g, ""));
async function metrics() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return (name, labels) => {
    const line = text.split("\n").find((line) => line.startsWith(`${name}{`) && Object.entries(labels).every(([key, value]) => line.includes(`${key}="${value}"`)));
    assert.ok(line, `no ${name} ${JSON.stringify(labels)} in\n${text}`);
    return Number(line.split(" ").at(-1));
  };
}
const shown = (policy, count) => `document.querySelector('[data-policy="${policy}"] [data-count="${count}"]')?.textContent`;
const done = (what) => console.log(`dashboard: ${what}`);

const browser = await start(program, profile);
try {
  // A client, before any page is open: 10 of 15 pass.
  const statuses = await send("free-ann", 15);
  assert.equal(statuses.filter((status) => status === 200).length, 10);
  await send("pro-dan", 7);

  const page = await browser.open(`${url}/dashboard`);
  await page.size(1280, 2400);
  await page.until(`document.getElementById("live").dataset.state === "live"`);
  const agree = async (when) => {
    const { requests, policies } = await snapshot();
    const minute = policies.find(({ name }) => name === "minute");
    assert.deepEqual([requests.allowed, requests.refused], [seen.allowed, seen.refused], "the snapshot and the client");
    const metric = await metrics();
    assert.equal(metric("ratelimit_requests_total", { outcome: "allowed" }), seen.allowed, "/metrics and the client");
    assert.equal(metric("ratelimit_requests_total", { outcome: "refused" }), seen.refused);
    for (const outcome of ["allowed", "refused"])
      assert.equal(metric("ratelimit_decisions_total", { policy: "minute", outcome }), minute[outcome]);
    for (const [name, counts] of [["admitted", minute.allowed], ["refused", minute.refused]]) {
      const digits = `(${shown("minute", name)} ?? "").replace(/\\D/g, "")`;
      await page.until(`${digits} === "${counts}"`, `the page shows ${counts} ${name}`);
    }
    done(`${when}: the page, the snapshot, /metrics and the client agree on ${seen.allowed} allowed and ${seen.refused} refused`);
  };
  await agree("at first");

  // One client, in a sentence.
  const inspect = (key) => page.evaluate(`(() => {
    document.getElementById("why").textContent = "";
    document.getElementById("key").value = ${JSON.stringify(key)};
    document.getElementById("ask").requestSubmit();
  })()`);
  await inspect("free-ann");
  const why = await page.until(`document.getElementById("why").textContent`);
  assert.match(why, /^free-ann: The next request is refused by minute \(plan free\): 10 of 10 used, none remains\. One more in \d+/);
  done(why);

  // A slider changes a limit, and the usage stays.
  await page.evaluate(`(() => {
    const slider = document.querySelector('[data-policy="minute"] [data-plan="free"] input[type="range"]');
    slider.focus();
    slider.value = 20;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    slider.dispatchEvent(new Event("change", { bubbles: true }));
  })()`);
  await page.until(`document.getElementById("said").textContent.includes("20/minute")`);
  assert.equal((await snapshot()).limits.find(({ policy, plan }) => policy === "minute" && plan === "free").limit, 20);
  const more = await send("free-ann", 12);
  assert.deepEqual([more.filter((status) => status === 200).length, more.at(-1)], [10, 429]);
  await agree("after the slider");
  // By key too: one step down.
  await page.evaluate(`document.querySelector('[data-policy="minute"] [data-plan="free"] input[type="range"]').focus()`);
  for (const type of ["keyDown", "keyUp"]) await page.tell("Input.dispatchKeyEvent", { type, key: "ArrowLeft", code: "ArrowLeft", windowsVirtualKeyCode: 37 });
  await page.until(`document.getElementById("said").textContent.includes("19/minute")`);
  done("a slider moved a limit from 10 to 20, and an arrow key to 19");

  // The client is out of quota, and not blocked: the page says so, and a reset lets it pass.
  const click = (id) => page.evaluate(`document.getElementById("${id}").click()`);
  await inspect("free-ann");
  await page.until(`document.querySelector("#reset.main") !== null && document.querySelector("#unblock.main") === null`);
  await click("unblock");
  await page.until(`document.getElementById("said").textContent.includes("It was not blocked")`);
  assert.deepEqual(await send("free-ann", 1), [429]);
  await click("reset");
  await page.until(`document.getElementById("said").textContent.includes("is given back: minute 19 of 19")`);
  assert.deepEqual(await send("free-ann", 1), [200]);
  await agree("after the reset");
  done("an unblock said that there was no block, and a reset let a client pass");

  // A hostile key is text.
  await send(HOSTILE.replace(/[^ -~]/g, ""), 3);
  await inspect(HOSTILE);
  await page.until(`document.getElementById("why").textContent.includes("onerror")`);
  assert.equal(await page.evaluate(`window.hit ?? document.querySelectorAll("main img, main script").length`), 0);
  await agree("with a hostile key");
  done("a hostile key stayed text");

  // Names for screen readers, and a narrow window.
  const nameless = await page.evaluate(`[...document.querySelectorAll("input, select, button, svg[role=img], section")]
    .filter((node) => !(node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.labels?.length || node.textContent.trim()))
    .map((node) => node.outerHTML.slice(0, 90))`);
  assert.deepEqual(nameless, []);
  await send("free-bob", 15);
  await page.until(`document.querySelector("#tile-rule .big").textContent === "minute"`);
  for (const theme of ["light", "dark"]) {
    await page.theme(theme);
    await page.screenshot(`${pictures}/${theme}.png`);
  }
  const back = (theme) => page.evaluate(`(() => {
    const choice = document.getElementById("theme");
    choice.value = "${theme}";
    choice.dispatchEvent(new Event("change"));
    return getComputedStyle(document.body).backgroundColor;
  })()`);
  assert.notEqual(await back("light"), await back("dark"), "the themes");
  await back("");
  await page.size(360, 740);
  assert.equal(await page.evaluate(`document.documentElement.scrollWidth`), 360, "nothing is wider than the window");
  await page.theme("light");
  await page.screenshot(`${pictures}/narrow.png`);
  done(`pictures of both themes, and of 360 pixels, are in ${pictures}`);

  // A hidden page closes its stream, and a visible page has all data again.
  await page.evaluate(`(() => {
    Object.defineProperty(document, "hidden", { configurable: true, value: true });
    document.dispatchEvent(new Event("visibilitychange"));
  })()`);
  assert.equal(await page.evaluate(`source === null && document.getElementById("live").dataset.state`), "wait");
  await send("pro-dan", 3);
  await page.evaluate(`(() => {
    delete document.hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  })()`);
  await page.until(`document.getElementById("live").dataset.state === "live"`);
  await agree("after it was hidden");

  // Prometheus has the same.
  const query = encodeURIComponent(`ratelimit_decisions_total{policy="minute",outcome="refused"}`);
  const { policies } = await snapshot();
  const refused = policies.find(({ name }) => name === "minute").refused;
  for (let tries = 0; ; tries += 1) {
    const { data } = await (await fetch(`${prometheus}/api/v1/query?query=${query}`)).json();
    const value = Number(data.result[0]?.value[1]);
    if (value === refused) break;
    assert.ok(tries < 300, `Prometheus has ${value} refusals, and the snapshot ${refused}`);
    await sleep(100);
  }
  const { data } = await (await fetch(`${prometheus}/api/v1/rules`)).json();
  const rules = data.groups.flatMap(({ rules }) => rules);
  assert.ok(rules.length >= 5 && rules.every(({ health }) => health !== "err"), JSON.stringify(rules));
  done(`Prometheus has scraped the same ${refused} refusals, and loaded ${rules.length} rules`);

  // Redis is killed under requests: the page says so within two seconds.
  let goes = true;
  const traffic = (async () => {
    while (goes) {
      await fetch(url, { headers: { "x-api-key": "pro-out" } }).then((answer) => answer.text());
      await sleep(20);
    }
  })();
  await page.until(`document.querySelector("#tile-store .big").textContent === "up"`);
  const killed = Date.now();
  process.kill(Number(redis), "SIGKILL");
  await page.until(`document.querySelector("#tile-store .big").textContent === "away"`, "the store is away");
  const took = Date.now() - killed;
  assert.ok(took <= 2_000, `the page said so after ${took} ms`);
  assert.match(await page.evaluate(`document.getElementById("alarms").textContent`), /does not answer/);
  await page.theme("dark");
  await page.size(1280, 1000);
  await page.screenshot(`${pictures}/away.png`);
  goes = false;
  await traffic;
  done(`Redis was killed, and the page said so after ${took} ms`);

  assert.deepEqual(browser.problems, [], "the browser complains of nothing");
} catch (error) {
  console.error(`dashboard: ${error.stack}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
