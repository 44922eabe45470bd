// knex: its query builder, one row and several, and raw SQL.
import knex from "knex";

const payload = { client: "knex" };
const db = knex({ client: "pg", connection: { host: process.env.PGHOST } });
const row = { lambda: "work", payload, priority: "high" };
const tasks = () => db.withSchema("tuskline").table("task");

const ids = await db.transaction(async (transaction) => {
  const insert = (rows) => tasks().transacting(transaction).insert(rows, "id");
  const called = await transaction.raw("select tuskline.schedule(?, ?) as id", ["work", payload]);
  const hour = new Date(Date.now() + 3_600_000);
  const found = {
    insert: (await insert(row))[0].id,
    later: (await insert({ ...row, scheduled_at: hour }))[0].id,
    call: called.rows[0].id,
  };
  // Columns that one row has and another has not are DEFAULT there.
  const many = await insert([row, { lambda: "work", payload }, { ...row, scheduled_at: hour }]);
  if (new Set(many.map((one) => one.id)).size !== 3) throw new Error(JSON.stringify(many));
  return found;
});
await db.destroy();
console.log(JSON.stringify(ids));
