// An executor for Node 20, without packages: `tuskline controller -- node executor.mjs`, or `tuskline conform -- ..`.
//
// Lane 0 always waits for tasks. Lane 1 delivers results and progress when there are some. `CONFORM_BROKEN`
// names a fault that the kit must find.

import { spawn } from 'node:child_process';
import { appendFileSync, existsSync } from 'node:fs';
import http from 'node:http';

const BROKEN = process.env.CONFORM_BROKEN ?? '';
const SLOTS = 32;
const agent = new http.Agent({ keepAlive: true });

// ---- the wire

function send(message, body) {
  const text = Buffer.from(JSON.stringify(body));
  const options = {
    socketPath: process.env.TUSKLINE_SOCKET,
    path: `/tuskline.v1.Controller/${message}`,
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': text.length },
    agent,
  };
  return new Promise((resolve, reject) => {
    const request = http.request(options, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', reject);
      response.on('end', () => {
        if (!response.complete) return reject(new Error('the answer was cut off'));
        resolve({ status: response.statusCode, body: JSON.parse(Buffer.concat(parts).toString()) });
      });
    });
    request.on('error', reject);
    request.end(text);
  });
}

// The connection broke: the same message again, for a second.
async function call(message, body) {
  for (const until = Date.now() + 1000; ; ) {
    try {
      return await send(message, body);
    } catch (error) {
      if (Date.now() > until) exit(1, `the controller is gone: ${error.message}`);
      if (BROKEN === 'runs_twice' && body.no) body = { ...body, lane: body.lane + 2, no: 1 };
      if (BROKEN === 'skips_a_number' && body.no) body = { ...body, no: body.no + 1 };
      if (BROKEN === 'forgets_results' && body.results) body = { ...body, results: undefined };
      await sleep(10);
    }
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function exit(code, why) {
  if (why) console.error(why);
  process.exit(code);
}

function accepted({ status, body }) {
  if (status < 400) return body;
  const wrong = BROKEN === 'tries_again' ? 1 : 2;
  exit(status === 410 ? 1 : wrong, `${body.name}: ${body.message}`);
}

// ---- the lambdas: each returns its result, without task and fence

const success = (output) => ({ status: 'success', output });

const lambdas = {
  async echo(task) {
    return success(BROKEN === 'rounds_numbers' ? JSON.stringify(JSON.parse(task.payload)) : task.payload);
  },

  async outcome(task, { results }) {
    return results[Math.min(task.attempt, results.length) - 1];
  },

  async hold(task, payload) {
    begin(task, payload);
    if (payload.percent !== undefined) say(task, payload.percent, payload.text);
    while (!existsSync(`${payload.dir}/${task.task}.go`)) {
      if (task.cancelled && !payload.deaf) return { status: 'cancelled' };
      await sleep(10);
    }
    return success();
  },

  async busy(task, payload) {
    begin(task, payload);
    for (;;);
  },

  async crash(task, payload) {
    if (payload.signal) process.kill(process.pid, `SIG${payload.signal}`);
    else process.exit(payload.exit);
    return new Promise(() => {});
  },

  async memory(task, payload) {
    const held = Buffer.alloc(payload.mib * 1024 * 1024, 1);
    const result = await lambdas.hold(task, payload);
    return held.length > 0 ? result : success();
  },

  async run(task, { command: [program, ...rest] }) {
    spawn(program, rest, { detached: true, stdio: 'ignore' }).unref();
    return success();
  },

  async save(task, payload) {
    if (task.checkpoint !== undefined && BROKEN !== 'forgets_checkpoints') return success(task.checkpoint);
    if (payload.dir) await lambdas.hold(task, payload);
    const { task: id, fence } = task;
    const saved = await call('Save', { executor, task: id, fence, checkpoint: payload.checkpoint });
    if (saved.status === 409) return { status: 'returned' };
    accepted(saved);
    return { status: 'retriable_failure', message: 'saved', after_ms: 0 };
  },
};

function begin(task, payload) {
  appendFileSync(`${payload.dir}/${task.task}.begun`, `${task.fence}\n`);
}

// ---- the executor

const inHand = new Map();
let executor;
let results = [];
let progress = [];
let draining = false;
let turn = Promise.resolve();

async function run(task) {
  inHand.set(task.fence, task);
  let result;
  if (BROKEN === 'holds_back') {
    const before = turn;
    let next;
    turn = new Promise((resolve) => (next = resolve));
    await before;
    result = await lambdas[task.lambda](task, JSON.parse(task.payload ?? 'null'));
    next();
  } else {
    result = await lambdas[task.lambda](task, JSON.parse(task.payload ?? 'null'));
  }
  if (BROKEN === 'ends_cancelled_with_success' && task.cancelled) result = success('"cancelled"');
  inHand.delete(task.fence);
  results.push({ task: task.task, fence: task.fence, ...result });
  if (BROKEN === 'waits_for_its_batch' && inHand.size > 0) return;
  deliver();
}

function say({ task, fence }, percent, text) {
  progress.push({ task, fence, percent, text });
  deliver();
}

function take(answer) {
  draining ||= answer.draining;
  for (const { fence } of answer.cancel ?? []) {
    const task = inHand.get(fence);
    if (task) task.cancelled = true;
  }
  let tasks = answer.tasks ?? [];
  if (BROKEN === 'loses_tasks' && tasks.length > 1) tasks = tasks.slice(1);
  tasks.forEach(run);
  if (BROKEN === 'leaves_at_once' && draining) process.exit(0);
}

// Lane 1, one message at a time.
let delivering = false;
let sent = 0;
async function deliver() {
  if (delivering) return;
  delivering = true;
  let again = [];
  while (results.length + progress.length + again.length > 0) {
    const body = { executor, lane: 1, no: ++sent, wait_ms: 0, results: [...again, ...results], progress };
    again = BROKEN === 'repeats_results' ? results : [];
    [results, progress] = [[], []];
    take(accepted(await call('NextWork', body)));
  }
  delivering = false;
  leave();
}

function leave() {
  if (draining && inHand.size === 0 && results.length === 0 && !delivering && BROKEN !== 'ignores_drain') exit(0);
}

const served = Object.keys(lambdas).map((name) => ({ name, slots: SLOTS, memory_mib: name === 'memory' ? 128 : undefined }));
({ executor } = accepted(await call('Join', { protocol: 1, sdk: 'node/conformance', lambdas: served })));
for (let no = 1; ; no++) {
  take(accepted(await call('NextWork', { executor, lane: 0, no, wait_ms: 25000 })));
  leave();
  if (BROKEN === 'asks_once') await new Promise(() => setInterval(() => {}, 1000));
}
