"""The kinds of connection that `within=` takes, each behind one form: begin, schedule, then commit or roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

#: Does something within a transaction and returns what it gave; then commits or rolls back.
Blocking = Callable[[str, Callable[[Any], Any], bool], Any]
Awaited = Callable[[str, Callable[[Any], Any], bool], Any]


def of_psycopg(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    with psycopg.connect(url) as connection:
        done = act(connection)
        if not keep:
            connection.rollback()
        return done


def of_psycopg_with_dict_rows(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    rows: Any = dict_row
    with psycopg.connect(url, row_factory=rows) as connection:
        done = act(connection)
        if not keep:
            connection.rollback()
        return done


def of_sqlalchemy_connection(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    with _engine(url) as engine, engine.connect() as connection:
        done = act(connection)
        if keep:
            connection.commit()
        return done


def of_sqlalchemy_session(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    with _engine(url) as engine, Session(engine) as session:
        done = act(session)
        if keep:
            session.commit()
        return done


def of_django(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    with django_connection(url) as connection:
        from django.db import transaction

        with transaction.atomic():  # pyright: ignore
            done = act(connection)
            if not keep:
                transaction.set_rollback(True)
        return done


async def _psycopg_async(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        done = await act(connection)
        if not keep:
            await connection.rollback()
        return done


async def _asyncpg(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await _in_asyncpg(connection, act, keep)
    finally:
        await connection.close()


async def _asyncpg_from_a_pool(url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        return await _in_asyncpg(connection, act, keep)


async def _in_asyncpg(connection: Any, act: Callable[[Any], Any], keep: bool) -> Any:
    transaction = connection.transaction()
    await transaction.start()
    done = await act(connection)
    await (transaction.commit() if keep else transaction.rollback())
    return done


async def _sqlalchemy_async(driver: str, url: str, act: Callable[[Any], Any], keep: bool) -> Any:
    engine = create_async_engine(sqlalchemy_url(url, driver))
    try:
        async with AsyncSession(engine) if driver == "asyncpg" else engine.connect() as session:
            done = await act(session)
            if keep:
                await session.commit()
            return done
    finally:
        await engine.dispose()


def _awaited(run: Callable[[str, Callable[[Any], Any], bool], Any]) -> Awaited:
    return lambda url, act, keep: asyncio.run(run(url, act, keep))


BLOCKING: dict[str, Blocking] = {
    "psycopg": of_psycopg,
    "psycopg with dict rows": of_psycopg_with_dict_rows,
    "sqlalchemy connection": of_sqlalchemy_connection,
    "sqlalchemy session": of_sqlalchemy_session,
    "django": of_django,
}
AWAITED: dict[str, Awaited] = {
    "psycopg async": _awaited(_psycopg_async),
    "asyncpg": _awaited(_asyncpg),
    "asyncpg from a pool": _awaited(_asyncpg_from_a_pool),
    "sqlalchemy session on asyncpg": _awaited(lambda *rest: _sqlalchemy_async("asyncpg", *rest)),
    "sqlalchemy connection on psycopg": _awaited(lambda *rest: _sqlalchemy_async("psycopg", *rest)),
}


def sqlalchemy_url(url: str, driver: str) -> sqlalchemy.URL:
    parts = urlsplit(url)
    host = unquote(parts.hostname or "") or parse_qs(parts.query).get("host", [""])[0]
    host = unquote(parts.netloc.rpartition("@")[2]) or host
    return sqlalchemy.URL.create(
        f"postgresql+{driver}", parts.username, parts.password, database=parts.path[1:], query={"host": host}
    )


@contextmanager
def _engine(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    try:
        yield engine
    finally:
        engine.dispose()


def django_database(url: str) -> dict[str, Any]:
    """The settings of a database."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": unquote(parts.netloc.rpartition("@")[2]),
    }


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    """Django's default connection, on another database for each test."""
    import django
    from django.conf import settings
    from django.db import connection

    database = django_database(url)
    if not settings.configured:
        tasks = {"default": {"BACKEND": "tuskline.django.TusklineBackend", "QUEUES": []}}
        settings.configure(DATABASES={"default": database}, USE_TZ=True, TASKS=tasks)
        django.setup()
    connection.settings_dict.update(database)
    try:
        yield connection
    finally:
        connection.close()
