"""SQLAlchemy ORM: a class that maps every column, as the page shows it."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any, Optional

from sqlalchemy import BigInteger, FetchedValue, cast, create_engine, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

PAYLOAD = {"client": "sqlalchemy_orm"}


class Base(DeclarativeBase):
    pass


def default():
    return mapped_column(server_default=FetchedValue())


class Task(Base):
    __tablename__ = "task"
    __table_args__ = {"schema": "tuskline"}
    __mapper_args__ = {"eager_defaults": False}

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    fence: Mapped[int] = default()
    created_at: Mapped[datetime] = default()
    next_trigger_at: Mapped[Optional[datetime]] = default()
    scheduled_at: Mapped[Optional[datetime]]
    started_at: Mapped[Optional[datetime]]
    finished_at: Mapped[Optional[datetime]]
    status: Mapped[str] = default()
    priority: Mapped[str] = default()
    attempt: Mapped[int] = default()
    crashes: Mapped[int] = default()
    lambda_: Mapped[str] = mapped_column("lambda")
    collection: Mapped[Optional[str]]
    payload: Mapped[Optional[Any]] = mapped_column(JSONB)
    ordering_key: Mapped[Optional[str]]
    limit_key: Mapped[Optional[str]]
    fairness_key: Mapped[Optional[str]]
    unique_key: Mapped[Optional[str]]


def insert(session, **more):
    one = Task(lambda_="work", payload=PAYLOAD, **more)
    session.add(one)
    session.flush()
    return one.id


with Session(create_engine("postgresql+psycopg://")) as session:
    hour = datetime.now(timezone.utc) + timedelta(hours=1)
    ids = {"insert": insert(session), "later": insert(session, scheduled_at=hour),
           "call": session.scalar(select(func.tuskline.schedule("work", cast(PAYLOAD, JSONB))))}
    assert insert(session, priority="high", status="enqueued", fence=0, attempt=0, crashes=0)
    many = [Task(lambda_="work", payload=PAYLOAD) for _ in range(3)]
    session.add_all(many)
    session.flush()
    assert len({one.id for one in many}) == 3
    session.commit()
print(json.dumps(ids))
