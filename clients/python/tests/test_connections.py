"""`within=` on each kind of connection: the task belongs to the caller's transaction."""

import asyncio
import os
import sys
import threading
from typing import Any

import asyncpg
import psycopg
import pytest

from tuskline import Context, Fenced, Refused, Tuskline, TusklineError, Unknown
from tuskline.testing import Tusk

from .connections import AWAITED, BLOCKING

app = Tuskline()
PAYLOAD = {"exact": 9007199254740993, "text": 'naïve "☃" \\ %s :name', "none": None}


@app("store")
def store(payload: dict[str, Any]) -> None:
    """Runs nowhere in these tests."""


@app("book")
def book(url: str, context: Context) -> str:
    with psycopg.connect(url) as connection:
        context.assert_current(connection)
        connection.execute("insert into booking values (%s)", [context.task])
        return context.complete_in(connection, "booked")


def _rows(tusk: Tusk) -> list[Any]:
    sql = "select id, payload::text, unique_key, due_at > tuskline.clock() from tuskline.tasks order by id"
    return list(tusk.connection.execute(sql).fetchall())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_commit_keeps_the_task_and_a_rollback_leaves_none(tusk: Tusk, kind: str) -> None:
    BLOCKING[kind](tusk.url, lambda one: store.schedule(PAYLOAD, within=one), False)
    assert _rows(tusk) == []
    task = BLOCKING[kind](
        tusk.url, lambda one: store.schedule(PAYLOAD, within=one, delay="1 h", collection="new"), True
    )
    text = '{"exact":9007199254740993,"text":"naïve \\"☃\\" \\\\ %s :name","none":null}'
    assert _rows(tusk) == [(task, text, None, True)]
    assert tusk.scheduled(store) == [PAYLOAD]


@pytest.mark.parametrize("kind", AWAITED)
def test_the_same_awaited(tusk: Tusk, kind: str) -> None:
    AWAITED[kind](tusk.url, lambda one: store.aschedule(PAYLOAD, within=one), False)
    assert _rows(tusk) == []
    task = AWAITED[kind](tusk.url, lambda one: store.aschedule(PAYLOAD, within=one, delay="1 h"), True)
    assert [row[0] for row in _rows(tusk)] == [task]
    assert tusk.scheduled(store) == [PAYLOAD]


@pytest.mark.parametrize("kind", BLOCKING)
def test_batches_chains_and_definitions_take_each_connection(tusk: Tusk, kind: str) -> None:
    def all_of_them(one: Any) -> list[int]:
        app.define(within=one, version="2")
        ids = store.schedule_many([PAYLOAD, {"a": '{"b", null}'}], within=one, priority="low")
        chain = app.chain()
        first = chain.add(store, PAYLOAD)
        chain.add(store, {}, after=[first])
        return ids + chain.schedule(within=one).tasks

    assert sorted(BLOCKING[kind](tusk.url, all_of_them, True)) == [row[0] for row in _rows(tusk)]
    assert tusk.scheduled(store) == [PAYLOAD, {"a": '{"b", null}'}, PAYLOAD, {}]


@pytest.mark.parametrize("kind", AWAITED)
def test_the_same_awaited_too(tusk: Tusk, kind: str) -> None:
    async def all_of_them(one: Any) -> list[int]:
        await app.adefine(within=one, version="2")
        ids = await store.aschedule_many([PAYLOAD, {}], within=one)
        chain = app.chain()
        first = chain.add(store, PAYLOAD)
        chain.add(store, {}, after=[first])
        chained = await chain.aschedule(within=one)
        assert await app.acancel(chained[first], within=one) == "cancelled"
        return ids + chained.tasks

    assert sorted(AWAITED[kind](tusk.url, all_of_them, True)) == [row[0] for row in _rows(tusk)]


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_refusal_keeps_its_code_and_hint(tusk: Tusk, kind: str) -> None:
    def wrong(one: Any) -> None:
        with pytest.raises(Refused, match="TK002 invalid_name: ") as refused:
            store.schedule(PAYLOAD, within=one, collection="No Name")
        assert refused.value.code == "TK002"

    BLOCKING[kind](tusk.url, wrong, False)


@pytest.mark.parametrize("kind", AWAITED)
def test_a_refusal_keeps_its_code_awaited(tusk: Tusk, kind: str) -> None:
    async def wrong(one: Any) -> None:
        with pytest.raises(Refused) as refused:
            await store.aschedule(PAYLOAD, within=one, collection="No Name")
        assert refused.value.code == "TK002" and str(refused.value).startswith("TK002 invalid_name: ")

    AWAITED[kind](tusk.url, wrong, False)


def test_a_refusal_has_the_remedy(tusk: Tusk) -> None:
    other = Tuskline(tusk.url)

    @other("stroe")
    def stroe(payload: int) -> None: ...

    with pytest.raises(Refused) as refused:
        stroe.schedule(1)
    assert refused.value.code == "TK001"
    assert refused.value.hint is not None and "did you mean 'store'" in refused.value.hint
    other.close()


def test_business_writes_and_the_success_are_one_transaction(tusk: Tusk) -> None:
    tusk.connection.execute("create table booking (task bigint)")
    task = book.schedule(tusk.url)
    (ran,) = tusk.drain(app)
    assert (ran.id, ran.status, ran.output) == (task, "success", "booked")
    assert tusk.connection.execute("select task from booking").fetchall() == [(task,)]


def _context(task: int, fence: int) -> Context:
    return Context(None, {"task": str(task), "fence": str(fence), "attempt": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", BLOCKING)
def test_an_attempt_that_is_over_cannot_commit(tusk: Tusk, kind: str) -> None:
    task = store.schedule(PAYLOAD)

    def late(one: Any) -> None:
        with pytest.raises(Fenced) as fenced:
            _context(task, 7).complete_in(one, None)
        assert fenced.value.code == "TK014"

    BLOCKING[kind](tusk.url, late, False)


@pytest.mark.parametrize("kind", AWAITED)
def test_an_attempt_that_is_over_cannot_commit_awaited(tusk: Tusk, kind: str) -> None:
    task = store.schedule(PAYLOAD)

    async def late(one: Any) -> None:
        with pytest.raises(Fenced):
            await _context(task, 7).aassert_current(one)

    AWAITED[kind](tusk.url, late, False)


def test_a_pool_of_asyncpg_commits_each_call(tusk: Tusk) -> None:
    async def schedule() -> int:
        async with asyncpg.create_pool(tusk.url, min_size=1, max_size=1) as pool:
            return await store.aschedule(PAYLOAD, within=pool)

    task = asyncio.run(schedule())
    assert [row[0] for row in _rows(tusk)] == [task]


def test_a_connection_of_another_library_is_refused() -> None:
    with pytest.raises(TypeError, match="psycopg 3, asyncpg, SQLAlchemy or Django, not builtins.dict"):
        store.schedule(PAYLOAD, within={})  # type: ignore[arg-type]


def test_an_awaited_connection_in_a_blocking_call_is_refused(tusk: Tusk) -> None:
    async def wrong(one: Any) -> None:
        with pytest.raises(TypeError, match="aschedule"):
            store.schedule(PAYLOAD, within=one)

    AWAITED["asyncpg"](tusk.url, wrong, False)


# Without `within=`: a connection of the app's own.


def test_without_a_connection_the_task_exists_when_the_call_returns(tusk: Tusk) -> None:
    ids = [store.schedule(PAYLOAD), store.schedule(PAYLOAD)]
    assert [row[0] for row in _rows(tusk)] == ids
    assert app.cancel(ids[0], "no more") == "cancelled"


def test_threads_share_the_own_connection(tusk: Tusk) -> None:
    def schedule() -> None:
        for _ in range(20):
            store.schedule(PAYLOAD)

    threads = [threading.Thread(target=schedule) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(_rows(tusk)) == 80
    sql = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    assert tusk.connection.execute(sql).fetchone() == (1,)


def _end_sessions(tusk: Tusk) -> None:
    tusk.connection.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )


def test_a_session_that_ended_while_idle_is_replaced(tusk: Tusk) -> None:
    store.schedule(PAYLOAD)
    _end_sessions(tusk)
    store.schedule(PAYLOAD)

    assert len(_rows(tusk)) == 2


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_awaited_session_that_ended_while_idle_is_replaced(
    tusk: Tusk, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def awaited() -> None:
        await store.aschedule(PAYLOAD)
        _end_sessions(tusk)
        await asyncio.wait_for(asyncio.gather(*(store.aschedule(PAYLOAD) for _ in range(5))), 30)
        await app.aclose()

    with monkeypatch.context() as without:
        if driver == "asyncpg":
            without.setitem(sys.modules, "psycopg", None)
        asyncio.run(awaited())
    assert len(_rows(tusk)) == 6


_DIES = """
    create function dies() returns trigger language plpgsql as
      'begin perform pg_terminate_backend(pg_backend_pid()); return new; end';
    create trigger dies before insert on tuskline_core.task_store for each row execute function dies()"""


def test_a_connection_that_breaks_in_a_call_leaves_the_outcome_unknown(
    tusk: Tusk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tusk.connection.execute(_DIES)
    with pytest.raises(Unknown, match="repeat it with the same unique key"):
        store.schedule(PAYLOAD)

    async def awaited() -> None:
        with pytest.raises(Unknown):
            await store.aschedule(PAYLOAD)
        await app.aclose()

    asyncio.run(awaited())
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "psycopg", None)
        asyncio.run(awaited())
    tusk.connection.execute("drop trigger dies on tuskline_core.task_store")
    store.schedule(PAYLOAD)
    assert len(_rows(tusk)) == 1


def test_a_fork_takes_a_connection_of_its_own(tusk: Tusk) -> None:
    store.schedule(PAYLOAD)
    session = app.own._connection.info.backend_pid
    child = os.fork()
    if child == 0:
        try:
            store.schedule(PAYLOAD)
            os._exit(0 if app.own._connection.info.backend_pid != session else 3)
        finally:
            os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    store.schedule(PAYLOAD)
    assert len(_rows(tusk)) == 3


def test_no_database_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUSKLINE_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    alone = Tuskline()

    @alone("lonely")
    def lonely() -> None: ...

    with pytest.raises(TusklineError, match="no database: pass within="):
        lonely.schedule(None)


def test_no_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    alone = Tuskline("postgresql://nowhere/x")

    @alone("lonely")
    def lonely() -> None: ...

    with pytest.raises(TusklineError, match="needs psycopg: pip install"):
        lonely.schedule(None)
    with pytest.raises(TusklineError, match="needs psycopg or asyncpg"):
        asyncio.run(lonely.aschedule(None))
