"""A drain: claims and results are the real verbs, and the functions run in the caller's process and thread."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, Optional

from .._app import Tuskline
from .._executor import attempts
from .._outcomes import Fenced, TusklineError

Status = Literal[
    "new", "enqueued", "processing", "success", "retriable_failure", "fatal_failure", "dead", "cancelled", "dropped"
]

#: Timers or parked tasks that one call moves.
_BATCH = 1_000

_CLAIM = """
    select c.task_id[1], c.lease_id, c.attempt[1], c.payload[1]::text, c.collection[1], c.waited_ms[1],
           c.traceparent[1], c.queue_index[1]
      from tuskline.claim(%s, %s, array_fill(0::bigint, array[%s]), array_fill(1::smallint, array[%s]), '{1}') c
     where exists (select from unnest(c.popped) p where p > 0)"""

_SEEN = "select status, attempt, output::text, error from tuskline.task_status(%s)"


@dataclass(frozen=True)
class Ran:
    """A task as the database has it after its attempt."""

    id: int
    name: str
    status: Status
    attempt: int
    output: Any
    error: Optional[str]


@dataclass
class Attempt:
    """An attempt that a drain gives its caller to run."""

    of: attempts.AnyLambda
    arguments: list[Any]


class DatabaseDoor:
    """The context's calls, on the connection of the fixture."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def progress(self, task: str, fence: str, percent: float, text: str) -> None:
        self._set(task, fence, percent, text, None)

    def save(self, task: str, fence: str, checkpoint: str) -> None:
        if not self._set(task, fence, None, None, checkpoint):
            raise Fenced("TK014 not_current: the attempt is over", "TK014")

    async def asave(self, task: str, fence: str, checkpoint: str) -> None:
        self.save(task, fence, checkpoint)

    def _set(self, task: str, fence: str, percent: Any, text: Any, checkpoint: Optional[str]) -> bool:
        sql = "select tuskline.set_progress(%s::bigint, %s::bigint, %s::real, %s::text, %s::text::json)"
        return bool(self._connection.execute(sql, [task, fence, percent, text, checkpoint]).fetchone()[0])


#: Hands out an attempt, takes the output or the exception, and returns what ran.
Steps = Generator[Attempt, Any, list[Ran]]


def steps(connection: Any, app: Tuskline, limit: int) -> Steps:
    """The drain itself; it does not know whether its caller awaits."""
    names = sorted(app.lambdas)
    if not names:
        return []
    executor = _register(connection, names)
    queues = _queues(connection, names)
    door = DatabaseDoor(connection)
    ran: list[Ran] = []
    while True:
        _enqueue_due(connection)
        numbers = [number for number, _, _ in queues]
        row = connection.execute(_CLAIM, [executor, numbers, len(numbers), len(numbers)]).fetchone()
        if row is None:
            break
        if row[0] is None:
            continue  # a queue had a row of a task that was cancelled
        if len(ran) == limit:
            raise TusklineError(f"after {limit} attempts there is still more: does a lambda schedule itself again?")
        task, lease, attempt, payload, collection, waited_ms, traceparent, index = row
        _, name, timeout_ms = queues[index - 1]
        handed = {
            "task": task,
            "fence": lease,
            "attempt": attempt,
            "payload": payload,
            "collection": collection,
            "waited_ms": waited_ms,
            "traceparent": traceparent,
            "timeout_ms": timeout_ms,
            "checkpoint": _checkpoint(connection, task),
        }
        result = yield from _attempt(app.lambdas[name], handed, door)
        note = f'[{{"task":{task},"fence":{lease},{result}}}]'
        connection.execute(
            "select tuskline.set_results(%s::bigint, '{}', '{}', %s::text::json, array[%s]::bigint[])",
            [executor, note, lease],
        )
        ran.append(_seen(connection, task, name))
    connection.execute("select tuskline.end_executor(%s)", [executor])
    return ran


def drain(connection: Any, app: Tuskline, limit: int) -> list[Ran]:
    """Runs what is due in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("drain() blocks, and this test has an event loop: write `await tusk.adrain(app)`")
    loop = asyncio.new_event_loop()

    def run(attempt: Attempt) -> Any:
        output = attempt.of.function(*attempt.arguments)
        return loop.run_until_complete(output) if attempt.of.is_async else output

    try:
        return _driven(steps(connection, app, limit), run)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _driven(one: Steps, run: Any) -> list[Ran]:
    try:
        attempt = next(one)
        while True:
            try:
                output = run(attempt)
            except Exception as error:
                attempt = one.throw(error)
            else:
                attempt = one.send(output)
    except StopIteration as end:
        return list(end.value)


async def adrain(connection: Any, app: Tuskline, limit: int) -> list[Ran]:
    """The same in the event loop of the test."""
    one = steps(connection, app, limit)
    try:
        attempt = next(one)
        while True:
            try:
                output = attempt.of.function(*attempt.arguments)
                output = await output if attempt.of.is_async else output
            except Exception as error:
                attempt = one.throw(error)
            else:
                attempt = one.send(output)
    except StopIteration as end:
        return list(end.value)


def _attempt(of: attempts.AnyLambda, handed: dict[str, Any], door: DatabaseDoor) -> Generator[Attempt, Any, str]:
    try:
        arguments, _ = attempts.arguments(of, handed, door)
        output = yield Attempt(of, arguments)
    except Exception as error:
        attempts.report(of, handed, error)
        return attempts.failure(error)
    result = attempts.ended(output)
    # Here the output is JSON in JSON; on the wire it is text.
    head, found, text = result.partition(',"output":')
    return f'{head},"output":{json.loads(text)}' if found else result


def _register(connection: Any, names: list[str]) -> int:
    sql = "select tuskline.register_executor(%s::text, %s::int, %s::text[], 'python/test', '1 minute')"
    return int(connection.execute(sql, [socket.gethostname(), os.getpid(), names]).fetchone()[0])


def _queues(connection: Any, names: list[str]) -> list[tuple[int, str, int]]:
    """Number, lambda and timeout of each queue; the higher priority first."""
    sql = """select queue_id, lambda, attempt_timeout_ms from tuskline.executor_lambdas(%s::text[])
              order by array_position('{critical,high,normal,low}', priority::text), lambda"""
    return [(int(number), str(name), int(ms)) for number, name, ms in connection.execute(sql, [names]).fetchall()]


def _enqueue_due(connection: Any) -> None:
    while True:
        moved, gates = connection.execute(
            "select d.moved, d.gates from tuskline.enqueue_due(p_limit => %s) d", [_BATCH]
        ).fetchone()
        looked = 0
        if gates:
            looked = connection.execute("select p.moved from tuskline.run_policies(%s) p", [_BATCH]).fetchone()[0]
        if not moved and not looked:
            return


def _checkpoint(connection: Any, task: int) -> Optional[str]:
    row = connection.execute("select checkpoint::text from tuskline.task_status(%s)", [task]).fetchone()
    return None if row is None or row[0] is None else str(row[0])


def _seen(connection: Any, task: int, name: str) -> Ran:
    status, attempt, output, error = connection.execute(_SEEN, [task]).fetchone()
    return Ran(task, name, status, attempt, None if output is None else json.loads(output), error)
