// node-pg: parameters without a type, plain and prepared.
import pg from "pg";

const payload = { client: "node_pg" };
const client = new pg.Client({ host: process.env.PGHOST });
await client.connect();
const one = async (text, name) =>
  Object.values((await client.query({ name, text, values: ["work", payload] })).rows[0])[0];

const insert = "insert into tuskline.task (lambda, payload) values ($1, $2) returning id";
const later =
  "insert into tuskline.task (lambda, payload, scheduled_at) values ($1, $2, now() + interval '1 hour') returning id";
const call = "select tuskline.schedule($1, $2)";
const ids = { insert: await one(insert), later: await one(later), call: await one(call) };
await one(call, "prepared");
await one("select tuskline.schedule($1, $2, p_delay => '1 hour')");
await client.end();
console.log(JSON.stringify(ids));
