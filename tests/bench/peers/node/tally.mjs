// What a worker did, and how it is said: one JSON object a line.

import { writeSync } from "node:fs";

// The host's monotonic clock in ns, the same for every process on it; far below 2^53.
export const monotonicNs = () => Number(process.hrtime.bigint());

// Says that something happened; whole, also where a pipe takes it in pieces.
export function say(event, what) {
  const bytes = Buffer.from(`${JSON.stringify({ event, what })}\n`);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

// Starts of one worker process.
export class Tally {
  #seen = { executed: 0, first_ns: 0, late: [] };
  #expected;

  // Says so when so many tasks have started.
  constructor(expected) {
    this.#expected = expected;
  }

  // A task starts.
  start(task) {
    const now = monotonicNs();
    const seen = this.#seen;
    seen.executed += 1;
    if (seen.executed === 1) seen.first_ns = now;
    if (task.at_ns) seen.late.push([task.at_ns, Math.floor((now - task.at_ns) / 1000)]);
    if (seen.executed === this.#expected) say("all_started", {});
  }

  // Says what there was.
  end() {
    say("end", this.#seen);
  }
}

// Says that the worker runs, and waits until standard input closes.
export function untilToldToEnd() {
  say("ready", {});
  return new Promise((resolve) => process.stdin.on("end", resolve).resume());
}
