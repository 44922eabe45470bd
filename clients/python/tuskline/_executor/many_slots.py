"""Many slots: async lambdas in one event loop, sync ones in threads of their own.

Lane 0 always waits for tasks and cancels. Lane 1 brings results, as many as have come while its last message was
under way; its answer may bring the next tasks.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .._context import Context
from . import attempts, messages
from .joined import Joined, refused
from .lines import Line
from .wire import DRAINED, ENDED, WRONG, WireError

_PROGRESS_REST_SECONDS = 1.0
_Attempt = tuple[str, str]


class _Running:
    __slots__ = ("handed", "of", "arguments", "context", "task", "stopped")

    def __init__(
        self, handed: dict[str, Any], of: attempts.AnyLambda, arguments: list[Any], context: Context | None
    ) -> None:
        self.handed, self.of, self.arguments, self.context = handed, of, arguments, context
        self.task: asyncio.Task[None] | None = None
        self.stopped = False


class ManySlots:
    """Runs as many attempts at a time as the controller hands out."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined
        self._loop = asyncio.new_event_loop()
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._waiting = self._line()
        self._delivering = self._line()
        self._lanes = [messages.NextWork(joined.executor, 0), messages.NextWork(joined.executor, 1)]
        self._saving: list[Line] = []  # idle lines of Save
        self._running: dict[_Attempt, _Running] = {}
        self._results: list[str] = []
        self._flush_asked = False
        self._draining = False
        self._progress: dict[_Attempt, str] = {}
        self._progress_at = float("-inf")
        self._progress_asked = False
        self._threads = _Threads(self._run_in_thread)
        self._ended_in_threads: deque[tuple[_Running, str]] = deque()
        self._woken = False

    def run(self) -> int:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._flush)
        code = self._loop.run_until_complete(self._code)
        for line in (self._waiting, self._delivering, *self._saving):
            line.close()
        if code == 0:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
        return code

    def _line(self) -> Line:
        def gone(reason: str) -> None:
            self._end(ENDED, f"the controller at {self._joined.path} does not answer: {reason}")

        return Line(self._loop, self._joined.path, gone)

    def _end(self, code: int, text: str = "") -> None:
        if text:
            print(f"tuskline: {text}", file=sys.stderr, flush=True)
        if not self._code.done():
            self._code.set_result(code)

    # Messages.

    def _ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_asked = False
        if self._code.done():
            return
        if not self._delivering.is_busy:
            progress = self._take_progress()
            if self._results or progress:
                results = messages.take(self._results, self._joined.max_message_bytes)
                body = self._lanes[1].message(0, results, progress)
                self._delivering.send("NextWork", body, self._answered)
            elif self._draining and not self._running:
                self._end(DRAINED)
                return
        if not self._waiting.is_busy:
            self._waiting.send("NextWork", self._lanes[0].message(messages.WAIT_MS, [], []), self._answered)

    def _answered(self, status: int, body: bytes) -> None:
        if status != 200:
            error = WireError(status, body)
            return self._end(error.exit_code, str(error))
        try:
            answer = json.loads(body)
            for handed in answer.get("tasks") or ():
                self._start(handed)
            for cancel in answer.get("cancel") or ():
                self._cancel(cancel)
            self._draining = self._draining or bool(answer.get("draining"))
        except Exception as error:
            # Tasks of it may be in hand and never be begun: this process must not go on.
            return self._end(WRONG, f"an answer has no sense: {error!r}")
        self._flush()

    # Attempts.

    def _start(self, handed: dict[str, Any]) -> None:
        of = self._joined.lambdas[handed["lambda"]]
        try:
            arguments, context = attempts.arguments(of, handed, self)
        except Exception as error:
            self._results.append(self._joined.result(handed, attempts.failure(error)))
            return self._ask_flush()
        running = _Running(handed, of, arguments, context)
        self._running[(handed["task"], handed["fence"])] = running
        if of.is_async:
            running.task = self._loop.create_task(self._run(running))
        else:
            self._threads.put(running)

    async def _run(self, running: _Running) -> None:
        try:
            output = await running.of.function(*running.arguments)
        except GeneratorExit:
            raise
        except asyncio.CancelledError as error:
            fields = attempts.cancelled(error) if running.stopped else attempts.failure(error)
        except BaseException as error:
            attempts.report(running.of, running.handed, error)
            fields = attempts.failure(error)
        else:
            fields = attempts.ended(output)
        self._ended(running, fields)

    def _run_in_thread(self, running: _Running) -> None:
        try:
            # A context of its own: variables of one attempt are none of the next one's.
            output = contextvars.Context().run(running.of.function, *running.arguments)
        except BaseException as error:
            attempts.report(running.of, running.handed, error)
            fields = attempts.failure(error)
        else:
            fields = attempts.ended(output)
        self._ended_in_threads.append((running, fields))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._woken = False
        while self._ended_in_threads:
            self._ended(*self._ended_in_threads.popleft())

    def _ended(self, running: _Running, fields: str) -> None:
        handed = running.handed
        attempt = (handed["task"], handed["fence"])
        del self._running[attempt]
        if self._progress:
            self._progress.pop(attempt, None)
        self._results.append(self._joined.result(handed, fields))
        self._ask_flush()

    def _cancel(self, cancel: dict[str, Any]) -> None:
        running = self._running.get((cancel["task"], cancel["fence"]))
        if running is None or running.stopped:
            return
        running.stopped = True
        if running.context is not None:
            running.context._tell_to_stop()
        if running.task is not None:
            # A second before the controller ends the process, or a fifth of a short grace.
            grace = (cancel.get("grace_ms") or 0) / 1000
            self._loop.call_later(max(grace - 1, grace * 0.8) if grace >= 5 else grace * 0.8, running.task.cancel)

    # The context's calls.

    def progress(self, task: str, fence: str, percent: float, text: str) -> None:
        self._progress[(task, fence)] = messages.progress(task, fence, percent, text)
        if not self._progress_asked:
            self._progress_asked = True
            self._loop.call_soon_threadsafe(self._send_progress_later)

    def _send_progress_later(self) -> None:
        rest = self._progress_at + _PROGRESS_REST_SECONDS - self._loop.time()
        self._loop.call_later(max(0.0, rest), self._send_progress)

    def _send_progress(self) -> None:
        self._progress_asked = False
        self._flush()

    def _take_progress(self) -> list[str]:
        if not self._progress or self._loop.time() < self._progress_at + _PROGRESS_REST_SECONDS:
            return []
        self._progress_at = self._loop.time()
        # A thread may add one meanwhile: a whole dictionary is taken.
        taken, self._progress = self._progress, {}
        return list(taken.values())

    def save(self, task: str, fence: str, checkpoint: str) -> None:
        self._joined.save(task, fence, checkpoint)

    async def asave(self, task: str, fence: str, checkpoint: str) -> None:
        line = self._saving.pop() if self._saving else self._line()
        done: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()

        def answered(status: int, body: bytes) -> None:
            self._saving.append(line)
            if not done.done():
                done.set_result((status, body))

        line.send("Save", messages.save(self._joined.executor, task, fence, checkpoint), answered)
        status, body = await done
        if status != 200:
            raise refused(WireError(status, body))


class _Threads:
    """A thread for each slot in use, begun when one is wanted. The controller bounds their number."""

    def __init__(self, run: Callable[[_Running], None]) -> None:
        self._run = run
        self._queue: queue.SimpleQueue[_Running] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def put(self, running: _Running) -> None:
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, name="tuskline slot", daemon=True).start()
        self._queue.put(running)

    def _work(self) -> None:
        while True:
            running = self._queue.get()
            self._run(running)
            del running  # its payload may be large
            self._idle.release()
