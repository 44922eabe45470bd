"""The attempt as its lambda sees it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Optional, Protocol, TypeVar

from . import _payloads
from ._connections import Arguments, AsyncConnection, Connection, acall, call

T = TypeVar("T")


class Door(Protocol):
    """The calls of a context: to the socket of the controller, or to a test."""

    def progress(self, task: str, fence: str, percent: float, text: str) -> None: ...
    def save(self, task: str, fence: str, checkpoint: str) -> None: ...
    async def asave(self, task: str, fence: str, checkpoint: str) -> None: ...


class Context:
    """The attempt at hand."""

    def __init__(self, door: Door, handed: dict[str, Any]) -> None:
        self._door = door
        self._checkpoint: Optional[str] = handed.get("checkpoint")
        self._stopped = False
        self._lock = threading.Lock()
        self._stops: list[Callable[[], Any]] = []
        timeout_ms = handed.get("timeout_ms")
        self._deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        #: The task.
        self.task = int(handed["task"])
        #: Differs between any two executions of the task, and only grows. Send it along to partners.
        self.fence = int(handed["fence"])
        #: Number of this attempt, from 1.
        self.attempt: int = handed.get("attempt", 1)
        #: The collection with which the task was scheduled.
        self.collection: Optional[str] = handed.get("collection")
        #: Seconds that the task had been due, or in its queue again, before this attempt.
        self.waited: float = (handed.get("waited_ms") or 0) / 1000
        #: Trace context with which the task was scheduled, as W3C Trace Context writes it.
        self.traceparent: Optional[str] = handed.get("traceparent")

    @property
    def remaining(self) -> float:
        """Seconds until this attempt is told to stop; infinite without a deadline."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def deadline(self) -> float:
        """When that is, on `time.monotonic()`, as `asyncio.timeout_at` and sockets take it."""
        return self._deadline

    @property
    def cancelled(self) -> bool:
        """The attempt shall stop: cancel, deadline, shutdown past its grace. A sync lambda asks now and then."""
        return self._stopped

    async def until_cancelled(self) -> None:
        """Completes when the attempt shall stop."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._stopped:
                return
            self._stops.append(lambda: loop.call_soon_threadsafe(event.set))
        await event.wait()

    def progress(self, percent: float, text: str = "") -> None:
        """For people to see. It never waits: the newest value goes along with the next message."""
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be 0 to 100, got {percent}")
        self._door.progress(str(self.task), str(self.fence), percent, text)

    def save(self, checkpoint: object) -> None:
        """Keeps a value for the next attempt. It is durable when this returns."""
        text = _payloads.encode(checkpoint)
        self._door.save(str(self.task), str(self.fence), text)
        self._checkpoint = text

    async def asave(self, checkpoint: object) -> None:
        """The same, in an async lambda."""
        text = _payloads.encode(checkpoint)
        await self._door.asave(str(self.task), str(self.fence), text)
        self._checkpoint = text

    def checkpoint(self, kind: type[T]) -> Optional[T]:
        """The value that was saved last, by this attempt or one before it. No call is made."""
        return None if self._checkpoint is None else _payloads.decode(self._checkpoint, kind)

    def assert_current(self, connection: Connection) -> None:
        """Lets the transaction of `connection` commit only while this attempt holds the task."""
        call(connection, "assert_current", self._attempt(), "null")

    async def aassert_current(self, connection: AsyncConnection) -> None:
        """The same on an async connection."""
        await acall(connection, "assert_current", self._attempt(), "null")

    def complete_in(self, connection: Connection, output: T) -> T:
        """Records the success of this attempt in your transaction: it commits with your writes or not at all.

        Includes `assert_current`. Commit, then return what it returns."""
        call(connection, "complete", self._completion(output), "null")
        return output

    async def acomplete_in(self, connection: AsyncConnection, output: T) -> T:
        """The same on an async connection."""
        await acall(connection, "complete", self._completion(output), "null")
        return output

    def _attempt(self) -> Arguments:
        return {"task": (str(self.task), "bigint"), "fence": (str(self.fence), "bigint")}

    def _completion(self, output: object) -> Arguments:
        text = None if output is None else _payloads.encode(output)
        return {**self._attempt(), "output": (text, "json")}

    def _tell_to_stop(self) -> None:
        with self._lock:
            self._stopped = True
            stops, self._stops = self._stops, []
        for stop in stops:
            stop()
