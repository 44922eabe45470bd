// Single inserts at a fixed rate, as Tuskline's own bench sends them: each connection on a beat of
// its own, the next insert only after the last one was answered, and late ones at once.

import { setTimeout as sleep } from "node:timers/promises";

import { monotonicNs } from "./tally.mjs";

// Bytes of padding, as Tuskline's own bench has them.
const PAD = "x".repeat(140);

// A payload that is not timed.
export const payload = () => ({ pad: PAD });

// One promise a connection; `insert` takes a payload that says when it was made.
export function stampedBeats(rate, seconds, connections, insert) {
  const tasks = rate * seconds;
  const gapMs = (1000 * connections) / rate;
  const began = performance.now();
  return Array.from({ length: connections }, async (_, number) => {
    const share = Math.floor(tasks / connections) + (number < tasks % connections ? 1 : 0);
    for (let turn = 0; turn < share; turn += 1) {
      const due = began + (number / connections + turn) * gapMs;
      const early = due - performance.now();
      if (early > 0) await sleep(early);
      await insert({ at_ns: monotonicNs(), pad: PAD });
    }
  });
}
