// pg-boss: batches of 500, two loops, the next fetch at once after a full batch, and notifications.

import { PgBoss } from "pg-boss";

const QUEUE = "bench";
const BULK = 1000;

// One that only talks to the database: no maintenance, no schedules.
async function client(url, max) {
  const boss = new PgBoss({
    connectionString: url,
    max,
    supervise: false,
    schedule: false,
    useListenNotify: false,
  });
  boss.on("error", (error) => console.error(error));
  return boss.start();
}

export async function setup(url) {
  const boss = await client(url, 2);
  await boss.createQueue(QUEUE, { notify: true });
  await boss.stop();
}

// By its own bulk call.
export async function preload(url, tasks, payload) {
  const boss = await client(url, 2);
  for (let left = tasks; left > 0; left -= BULK) {
    await boss.insert(QUEUE, Array(Math.min(left, BULK)).fill({ data: payload }));
  }
  await boss.stop();
}

export async function sender(url, connections) {
  const boss = await client(url, connections);
  return {
    insert: (task) => boss.send(QUEUE, task),
    close: () => boss.stop(),
  };
}

export async function work(url, tally) {
  const boss = new PgBoss({ connectionString: url, useListenNotify: true });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  const options = { batchSize: 500, localConcurrency: 2, burstWhenBatchFull: true };
  await boss.work(QUEUE, options, async (jobs) => {
    for (const job of jobs) tally.start(job.data);
  });
  return () => boss.stop();
}
