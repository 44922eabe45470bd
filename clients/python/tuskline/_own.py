"""One small connection of the app's own, for calls without `within=`. It commits each call."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import weakref
from typing import Any, Optional

from ._connections import Arguments, acall, call
from ._outcomes import TusklineError, Unknown

_CONNECT_SECONDS = 10
_UNKNOWN = "the connection broke during the call, which may be done or not: repeat it with the same unique key"


def address(url: Optional[str]) -> str:
    """The database's address: the app's, or the environment's."""
    found = url or os.environ.get("TUSKLINE_DATABASE_URL") or os.environ.get("DATABASE_URL")
    if not found:
        raise TusklineError("no database: pass within=, Tuskline(url), or set TUSKLINE_DATABASE_URL")
    return found


class OwnConnection:
    """A blocking one, of psycopg, shared by all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Any = None
        self._opened_for: Optional[tuple[int, str]] = None  # process and address

    def call(self, url: Optional[str], verb: str, arguments: Arguments, answer: str = "r") -> Any:
        with self._lock:
            connection = self._opened(address(url))
            try:
                return call(connection, verb, arguments, answer)
            except TusklineError:
                raise
            except Exception as error:
                if not connection.closed:
                    raise
                raise Unknown(_UNKNOWN) from error

    def close(self) -> None:
        with self._lock:
            if _is_ours(self._opened_for):
                self._connection.close()
            self._opened_for = None

    def _opened(self, url: str) -> Any:
        # A fork shares its parent's socket: the child takes a connection of its own.
        if self._opened_for != (os.getpid(), url) or self._connection.closed or _has_ended(self._connection):
            if _is_ours(self._opened_for):
                self._connection.close()
            self._connection = _psycopg().connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
            self._opened_for = (os.getpid(), url)
        return self._connection


class OwnAsyncConnection:
    """An async one, of psycopg or asyncpg, for each event loop."""

    def __init__(self) -> None:
        self._of_loop: weakref.WeakKeyDictionary[Any, _OfLoop] = weakref.WeakKeyDictionary()

    async def call(self, url: Optional[str], verb: str, arguments: Arguments, answer: str = "r") -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            self._of_loop[loop] = _OfLoop()
        return await self._of_loop[loop].call(address(url), verb, arguments, answer)

    async def close(self) -> None:
        own = self._of_loop.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.close()


class _OfLoop:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._connection: Any = None
        self._opened_for: Optional[tuple[int, str]] = None

    async def call(self, url: str, verb: str, arguments: Arguments, answer: str) -> Any:
        async with self._lock:
            wanted = (os.getpid(), url)
            if self._opened_for != wanted or _is_closed(self._connection) or _has_ended(self._connection):
                if _is_ours(self._opened_for):
                    await _drop(self._connection)
                self._connection = await _connect(url)
                self._opened_for = wanted
            connection = self._connection
            try:
                return await acall(connection, verb, arguments, answer)
            except TusklineError:
                raise
            except asyncio.CancelledError:
                # The statement may be under way: the next call takes another connection.
                self._opened_for = None
                await _drop(connection)
                raise
            except Exception as error:
                if not _is_closed(connection):
                    raise
                raise Unknown(_UNKNOWN) from error

    async def close(self) -> None:
        async with self._lock:
            if _is_ours(self._opened_for):
                await self._connection.close()
            self._opened_for = None


async def _connect(url: str) -> Any:
    try:
        import psycopg
    except ImportError:
        pass
    else:
        return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
    try:
        import asyncpg
    except ImportError:
        raise TusklineError(_no_driver("psycopg or asyncpg")) from None
    return await asyncpg.connect(url, timeout=_CONNECT_SECONDS)


async def _drop(connection: Any) -> None:
    """Closes without a word to a server that may be gone."""
    if hasattr(connection, "terminate"):
        connection.terminate()
    else:
        await connection.close()


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise TusklineError(_no_driver("psycopg")) from None
    return psycopg


def _no_driver(name: str) -> str:
    return f"a call without within= needs {name}: pip install 'tuskline[psycopg]', or pass within="


def _is_ours(opened_for: Optional[tuple[int, str]]) -> bool:
    """One that this process has opened, not its parent before a fork."""
    return opened_for is not None and opened_for[0] == os.getpid()


def _is_closed(connection: Any) -> bool:
    closed = getattr(connection, "is_closed", None)
    return bool(closed() if closed is not None else connection.closed)


def _has_ended(connection: Any) -> bool:
    """The server has ended an idle connection: there is something to read, which is no answer."""
    if hasattr(connection, "fileno"):
        socket = connection.fileno()
    else:
        # asyncpg hears of it only when the loop has turned; its socket knows.
        socket = getattr(connection, "_transport").get_extra_info("socket").fileno()
    return bool(select.select([socket], [], [], 0)[0])
