"""The pytest plugin (entry point `pytest11`): a private PostgreSQL, a clock to turn, tasks run when you say so.

It needs the program `tuskline` (the extra `worker`), PostgreSQL's programs, and psycopg."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar

import pytest

from ._app import APPS, Tuskline
from ._durations import Duration, seconds
from ._lambda import Lambda
from ._testing import drain as _drain
from ._testing.drain import Ran, Status
from ._testing.server import Server, connect

__all__ = ["Clock", "Ran", "Status", "Tusk", "tusk", "tusk_server"]

T = TypeVar("T")


class Clock:
    """The clock of the test's database. It stands still from the beginning of the test."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.forward(0)

    def forward(self, by: Duration) -> None:
        """Turns the clock forward. Tasks that come due by that run at the next drain."""
        sql = "update tuskline_test.pin set at = tuskline.clock() + make_interval(secs => %s)"
        self._connection.execute(sql, [seconds(by)])

    def now(self) -> datetime:
        """The time that decides what is due."""
        now: datetime = self._connection.execute("select tuskline.clock()").fetchone()[0]
        return now


class Tusk:
    """The fixture `tusk`: a database of this test, with the lambdas of each app that is imported."""

    def __init__(self, url: str) -> None:
        #: Where it is, for whatever takes an address.
        self.url = url
        #: A connection for SQL of your own, which commits each statement.
        self.connection = connect(url)
        self.clock = Clock(self.connection)

    def define(self, app: Tuskline) -> None:
        """Defines the lambdas of an app that was made after the test began."""
        app.define(within=self.connection)

    def drain(self, app: Tuskline, *, limit: int = 1_000) -> list[Ran]:
        """Runs what is due, in this process and thread (breakpoints work), until nothing is. Claims and results
        are the real verbs. Returns each attempt in order."""
        self.define(app)
        return _drain.drain(self.connection, app, limit)

    async def adrain(self, app: Tuskline, *, limit: int = 1_000) -> list[Ran]:
        """The same in a test that has an event loop."""
        self.define(app)
        return await _drain.adrain(self.connection, app, limit)

    def scheduled(self, of: Lambda[T, Any, Any]) -> list[T]:
        """The payloads that wait, decoded, in the order of their ids."""
        sql = """select payload::text from tuskline.tasks
                  where lambda = %s and status in ('new', 'enqueued', 'retriable_failure') order by id"""
        return [of.decode(row[0] or "null") for row in self.connection.execute(sql, [of.name]).fetchall()]


@pytest.fixture(scope="session")
def tusk_server() -> Iterator[Server]:
    """The PostgreSQL of this run."""
    server = Server()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def tusk(tusk_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tusk]:
    """A database of the test's own. Calls without `within=` go to it, too, whatever address an app has."""
    url = tusk_server.create_database()
    monkeypatch.setenv("TUSKLINE_DATABASE_URL", url)
    made = Tusk(url)
    try:
        for app in list(APPS):
            monkeypatch.setattr(app, "url", url)
            made.define(app)
        yield made
    finally:
        for app in list(APPS):
            app.close()
        made.connection.close()
        tusk_server.drop_database(url)
