// Asks each route until it is refused; ky then waits on its own, and passes at once.
// Takes the address of examples/figures/algorithms.rs, with LIMIT=2 and WINDOW_MS=2600.

const { default: ky } = require("ky");
const { dependencies } = require("./package.json");

const LIMIT = 2;
const WINDOW = 2.6;
// Node's timers may fire a little early. These waits leave time over, since they begin with the
// client's first request; those of the other algorithms can end on a whole second by chance.
const ALGORITHMS = ["anchored-window", "sliding-log", "token-bucket", "leaky-bucket", "gcra"];
const EARLY = 0.05;

// Returns what was seen, and what is wrong with it.
async function meet(url, algorithm) {
  // What went over the wire, repetitions too.
  const sent = [];
  const noted = async (request) => {
    const at = performance.now();
    const response = await fetch(request);
    const told = response.headers.get("retry-after");
    sent.push({ at, answered: performance.now(), status: response.status, told });
    return response;
  };

  let asked = 0;
  let status = 200;
  while (status === 200 && sent.length === asked && asked < 100) {
    asked += 1;
    // All else is ky's default.
    status = await ky(`${url}/${algorithm}`, { fetch: noted }).then(
      (response) => response.status,
      (error) => `${error}`,
    );
  }

  const waits = sent.flatMap(({ status, answered, told }, i) => {
    const next = sent[i + 1];
    return status === 429 ? [{ told, slept: next ? (next.at - answered) / 1000 : 0 }] : [];
  });
  const slept = waits.map(({ told, slept }) => `told ${told} s and slept ${slept.toFixed(3)} s`);
  const seen = `${sent.length} requests, ${slept.join(", ") || "never refused"}, then ${status}`;
  const wrong = [];
  if (asked <= LIMIT) wrong.push(`refused at request ${asked}`);
  if (waits.length !== 1 || sent.length !== asked + 1)
    wrong.push("one refusal was expected, and one repetition");
  for (const { told, slept } of waits) {
    if (!/^[1-9][0-9]*$/.test(told) || told > Math.ceil(WINDOW)) wrong.push(`retry-after: ${told}`);
    if (!(slept >= told - EARLY && slept < Number(told) + 5))
      wrong.push("it slept otherwise than told");
  }
  if (status !== 200) wrong.push(`ended with ${status}`);
  return { algorithm, seen, wrong };
}

async function main(url) {
  const met = await Promise.all(ALGORITHMS.map((algorithm) => meet(url, algorithm)));
  for (const { algorithm, seen, wrong } of met) {
    console.log(`  ${algorithm}: ${seen}`);
    for (const line of wrong) console.error(`ky: ${algorithm}: ${line}`);
  }
  const failed = met.filter(({ wrong }) => wrong.length > 0).length;
  const versions = `ky ${dependencies.ky} on node ${process.versions.node}`;
  console.log(`${versions}: ${met.length - failed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}

main(process.argv[2]);
