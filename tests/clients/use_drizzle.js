// Drizzle: a schema of every column; an insert names them all, with DEFAULT for what has no value.
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, jsonb, pgSchema, smallint, text, timestamp } from "drizzle-orm/pg-core";
import pg from "pg";

const payload = { client: "drizzle" };
const time = (name) => timestamp(name, { withTimezone: true });
const tuskline = pgSchema("tuskline");
const priority = tuskline.enum("priority", ["critical", "high", "normal", "low"]);
const task = tuskline.table("task", {
  id: bigint("id", { mode: "number" }).primaryKey().default(sql`default`),
  fence: bigint("fence", { mode: "number" }),
  createdAt: time("created_at"),
  nextTriggerAt: time("next_trigger_at"),
  scheduledAt: time("scheduled_at"),
  startedAt: time("started_at"),
  finishedAt: time("finished_at"),
  status: text("status"),
  priority: priority("priority"),
  attempt: smallint("attempt"),
  crashes: smallint("crashes"),
  lambda: text("lambda"),
  collection: text("collection"),
  payload: jsonb("payload"),
  orderingKey: text("ordering_key"),
  limitKey: text("limit_key"),
  fairnessKey: text("fairness_key"),
  uniqueKey: text("unique_key"),
});

const pool = new pg.Pool({ host: process.env.PGHOST });
const db = drizzle(pool);
const insert = async (rows) => {
  const values = [rows].flat().map((more) => ({ lambda: "work", payload, ...more }));
  return (await db.insert(task).values(values).returning({ id: task.id })).map((row) => row.id);
};
const hour = new Date(Date.now() + 3_600_000);
const called = await db.execute(
  sql`select tuskline.schedule(${"work"}, ${JSON.stringify(payload)}) as id`);
const [insertId] = await insert({ priority: "high" });
const [later] = await insert({ scheduledAt: hour });
const many = await insert([{}, { priority: "low" }, { scheduledAt: hour }]);
if (new Set(many).size !== 3) throw new Error(JSON.stringify(many));
await pool.end();
console.log(JSON.stringify({ insert: insertId, later, call: called.rows[0].id }));
