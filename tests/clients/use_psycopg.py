"""psycopg 3: rows with a payload of its Jsonb type, and the function with Json, Jsonb and plain text."""

import json

import psycopg
from psycopg.types.json import Json, Jsonb

PAYLOAD = {"client": "psycopg"}
INSERT = "insert into tuskline.task (lambda, payload) values (%s, %s) returning id"
LATER = "insert into tuskline.task (lambda, payload, scheduled_at) values (%s, %s, now() + interval '1 hour') returning id"
CALL = "select tuskline.schedule(%s, %s)"

with psycopg.connect() as connection:
    one = lambda sql, payload: connection.execute(sql, ("work", payload)).fetchone()[0]
    ids = {"insert": one(INSERT, Jsonb(PAYLOAD)), "later": one(LATER, Json(PAYLOAD)),
           "call": one(CALL, Jsonb(PAYLOAD))}
    assert one(CALL, Json(PAYLOAD)) and one(CALL, json.dumps(PAYLOAD))
    # The server's own parameters in place of literals: the sixth execution is prepared.
    for _ in range(6):
        one(CALL, Jsonb(PAYLOAD))
    # The statement is psycopg's own loop over rows with ids to read back.
    cursor = connection.cursor()
    cursor.executemany(INSERT, [("work", Jsonb(PAYLOAD))] * 3, returning=True)
print(json.dumps(ids))
