"""SQLAlchemy Core: a table of a few columns, texts without an enum type, and the function with JSONB."""

import json
from datetime import datetime, timedelta, timezone

from sqlalchemy import (BigInteger, Column, DateTime, MetaData, String, Table, cast, create_engine,
                        func, select)
from sqlalchemy.dialects.postgresql import JSONB

PAYLOAD = {"client": "sqlalchemy_core"}
task = Table(
    "task", MetaData(),
    Column("id", BigInteger, primary_key=True),
    Column("lambda", String, key="lambda_"),
    Column("payload", JSONB),
    Column("priority", String),
    Column("scheduled_at", DateTime(timezone=True)),
    schema="tuskline")

with create_engine("postgresql+psycopg://").begin() as connection:
    row = {"lambda_": "work", "payload": PAYLOAD, "priority": "high"}
    one = lambda statement: connection.execute(statement).scalar_one()
    hour = datetime.now(timezone.utc) + timedelta(hours=1)
    ids = {"insert": one(task.insert().values(row).returning(task.c.id)),
           "later": one(task.insert().values(**row, scheduled_at=hour).returning(task.c.id)),
           "call": one(select(func.tuskline.schedule("work", cast(PAYLOAD, JSONB))))}
    many = connection.execute(task.insert().returning(task.c.id), [row] * 3).scalars().all()
    assert len(set(many)) == 3, many
print(json.dumps(ids))
