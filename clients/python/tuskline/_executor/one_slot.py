"""One slot: results and the next task go in the thread that runs the lambda; a second thread hears of cancels."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from .._context import Context
from . import attempts, messages
from .joined import Joined
from .wire import Gone, Wire, WireError

#: Between two messages of progress.
_PROGRESS_REST_SECONDS = 1.0


class OneSlot:
    """Runs one attempt after the other."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined
        self._lock = threading.Lock()
        self._current: tuple[tuple[str, str], Context | None] | None = None
        self._early: set[tuple[str, str]] = set()  # cancels that came before their task began
        self._progress = _Progress(joined)

    def run(self) -> int:
        threading.Thread(target=self._listen, name="tuskline cancels", daemon=True).start()
        wire, lane = Wire(self._joined.path), messages.NextWork(self._joined.executor, 0)
        results: list[str] = []
        while True:
            answer = wire.call("NextWork", lane.message(messages.WAIT_MS, results, []))
            results = [self._execute(handed) for handed in answer.get("tasks") or ()]
            if not results and answer.get("draining"):
                return 0

    def _execute(self, handed: dict[str, Any]) -> str:
        of = self._joined.lambdas[handed["lambda"]]
        try:
            arguments, context = attempts.arguments(of, handed, self)
            self._begin(handed, context)
            output = of.function(*arguments)
        except BaseException as error:
            attempts.report(of, handed, error)
            fields = attempts.failure(error)
        else:
            fields = attempts.ended(output)
        with self._lock:
            self._current = None
        return self._joined.result(handed, fields)

    def _begin(self, handed: dict[str, Any], context: Context | None) -> None:
        attempt = (handed["task"], handed["fence"])
        with self._lock:
            self._current = (attempt, context)
            cancelled = attempt in self._early
            self._early.clear()
        if cancelled and context is not None:
            context._tell_to_stop()

    def _listen(self) -> None:
        wire, lane = Wire(self._joined.path), messages.NextWork(self._joined.executor, 1, tasks=False)
        try:
            while True:
                answer = wire.call("NextWork", lane.message(messages.WAIT_MS, [], []))
                for cancel in answer.get("cancel") or ():
                    self._cancel((cancel["task"], cancel["fence"]))
        except (Gone, WireError) as error:
            # The lambda runs in the other thread, maybe for long. Its result has no reader any more.
            print(f"tuskline: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)

    def _cancel(self, attempt: tuple[str, str]) -> None:
        with self._lock:
            current = self._current
            if current is None or current[0] != attempt:
                self._early.add(attempt)
                return
        if current[1] is not None:
            current[1]._tell_to_stop()

    # The context's calls.

    def progress(self, task: str, fence: str, percent: float, text: str) -> None:
        self._progress.tell(messages.progress(task, fence, percent, text))

    def save(self, task: str, fence: str, checkpoint: str) -> None:
        self._joined.save(task, fence, checkpoint)

    async def asave(self, task: str, fence: str, checkpoint: str) -> None:
        self._joined.save(task, fence, checkpoint)


class _Progress:
    """Sends the newest progress from a thread that begins with the first one."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined
        self._newest: str | None = None
        self._there = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, newest: str) -> None:
        self._newest = newest
        self._there.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._send, name="tuskline progress", daemon=True)
            self._thread.start()

    def _send(self) -> None:
        wire, lane = Wire(self._joined.path), messages.NextWork(self._joined.executor, 2, tasks=False)
        while True:
            self._there.wait()
            self._there.clear()
            newest, self._newest = self._newest, None
            if newest is not None:
                try:
                    wire.call("NextWork", lane.message(0, [], [newest]))
                except (Gone, WireError):
                    return  # the other lanes say so
            time.sleep(_PROGRESS_REST_SECONDS)
