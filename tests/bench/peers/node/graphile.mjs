// graphile-worker, as its own page on performance sets it: local queue, completions in batches.

import { makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const BULK = 1000;
const preset = {
  worker: {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

// Only what went wrong.
const quiet = (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
};
const { Logger } = await import("graphile-worker");
const logger = new Logger(() => quiet);

export async function setup(url) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  await utils.release();
}

// By its own bulk call.
export async function preload(url, tasks, payload) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  const job = { identifier: "noop", payload };
  for (let left = tasks; left > 0; left -= BULK) {
    await utils.addJobs(Array(Math.min(left, BULK)).fill(job));
  }
  await utils.release();
}

// Its utils over a pool of so many connections.
export async function sender(url, connections) {
  const pgPool = new pg.Pool({ connectionString: url, max: connections });
  const utils = await makeWorkerUtils({ pgPool, logger });
  return {
    insert: (task) => utils.addJob("noop", task),
    close: async () => {
      await utils.release();
      await pgPool.end();
    },
  };
}

export async function work(url, tally) {
  const runner = await run({
    preset,
    connectionString: url,
    logger,
    noHandleSignals: true,
    parsedCronItems: [],
    taskList: { noop: (task) => tally.start(task) },
  });
  return () => runner.stop();
}
