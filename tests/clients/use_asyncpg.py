"""asyncpg: every statement is prepared, and a value has the type that the server says."""

import asyncio
import json

import asyncpg

PAYLOAD = json.dumps({"client": "asyncpg"})
INSERT = "insert into tuskline.task (lambda, payload, priority) values ($1, $2, 'high') returning id"
LATER = "insert into tuskline.task (lambda, payload, scheduled_at) values ($1, $2, now() + interval '1 hour') returning id"
CALL = "select tuskline.schedule($1, $2)"


async def main():
    connection = await asyncpg.connect()
    one = lambda sql: connection.fetchval(sql, "work", PAYLOAD)
    ids = {"insert": await one(INSERT), "later": await one(LATER), "call": await one(CALL)}
    assert await connection.fetchval("select tuskline.schedule($1, $2::jsonb)", "work", PAYLOAD)
    await connection.close()
    print(json.dumps(ids))


asyncio.run(main())
