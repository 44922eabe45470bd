"""A controller in memory: a fixture of the executor's tests, and of a benchmark. The real one judges executors.

    python -m tests.fake_controller 200000 32     no-op tasks, slots: tasks per second of one executor
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Longest wait of a test for anything.
PATIENCE_SECONDS = 20.0
HERE = Path(__file__).parent


class Executor:
    """A process that has joined, as the fake sees it."""

    def __init__(self, join: dict[str, Any]) -> None:
        self.join = join
        self.numbers: dict[int, int] = {}
        #: Number and answer of each lane's last message that was answered.
        self.answers: dict[int, tuple[int, bytes]] = {}
        #: The connection that waits for the answer to each lane's last message.
        self.waiting: dict[int, object] = {}
        self.cancels: dict[int, list[dict[str, Any]]] = {}
        self.told_draining: set[int] = set()
        self.free = sum(one["slots"] for one in join["lambdas"])


class FakeController:
    """Hands out what a test puts, and remembers each message."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tusk-")
        self.path = f"{self._directory.name}/socket"
        self.changed = threading.Condition()
        self.executors: dict[str, Executor] = {}
        self.tasks: deque[dict[str, Any]] = deque()
        self.results: list[dict[str, Any]] = []
        self.progress: list[dict[str, Any]] = []
        self.saved: list[dict[str, Any]] = []
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.forks: list[dict[str, Any]] = []
        self.draining = False
        #: May answer in place of the fake: a status and a body; 0 breaks the connection without an answer.
        self.instead: Callable[[str, dict[str, Any]], tuple[int, Any] | None] = lambda message, body: None
        #: The answer is made, then the connection breaks before it is sent.
        self.lose: Callable[[str, dict[str, Any]], bool] = lambda message, body: False
        #: Bytes in place of an answer.
        self.raw: Callable[[str], bytes | None] = lambda message: None
        self._fence = 0
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.path)
        self._server.listen(64)
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def put(self, name: str, payload: object = None, **more: Any) -> dict[str, Any]:
        """Puts a task; returns it."""
        with self.changed:
            self._fence += 1
            task = {
                "task": str(1_000 + self._fence),
                "fence": str(self._fence),
                "lambda": name,
                "attempt": 1,
                "timeout_ms": 60_000,
                "payload": json.dumps(payload),
                **more,
            }
            self.tasks.append(task)
            self.changed.notify_all()
            return task

    def cancel(self, task: dict[str, Any], grace_ms: int = 5_000) -> None:
        """Tells each lane once."""
        cancel = {"task": task["task"], "fence": task["fence"], "reason": "cancelled", "grace_ms": grace_ms}
        with self.changed:
            for executor in self.executors.values():
                for lane in executor.numbers:
                    executor.cancels.setdefault(lane, []).append(cancel)
            self.changed.notify_all()

    def drain(self) -> None:
        with self.changed:
            self.draining = True
            self.changed.notify_all()

    def wait(self, until: Callable[[], Any]) -> Any:
        """Waits until something is so; returns what it gives."""
        with self.changed:
            if not self.changed.wait_for(until, PATIENCE_SECONDS):
                raise AssertionError(f"not within {PATIENCE_SECONDS} s; results: {self.results}")
            return until()

    def result_of(self, task: dict[str, Any]) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((one for one in self.results if one["task"] == task["task"]), None)

        result: dict[str, Any] = self.wait(found)
        return result

    def break_connections(self) -> None:
        with self.changed:
            for one in self._open:
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        self.break_connections()
        self._directory.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self.changed:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")
        try:
            while True:
                line = reader.readline()
                if not line:
                    return
                message, length = line.split(b" ")[1].rpartition(b"/")[2].decode(), 0
                while (field := reader.readline()) not in (b"\r\n", b""):
                    if field.lower().startswith(b"content-length:"):
                        length = int(field.split(b":")[1])
                body: dict[str, Any] = json.loads(reader.read(length))
                raw = self.raw(message)
                if raw is not None:
                    connection.sendall(raw)
                    continue
                status, answer = self._answer(message, body)
                if status == 0 or self.lose(message, body):
                    return
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                connection.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)
        except OSError:
            pass
        finally:
            with self.changed:
                self._open.discard(connection)
            reader.close()
            connection.close()

    def _answer(self, message: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self.changed:
            self.messages.append((message, body))
            self.changed.notify_all()
            given = self.instead(message, body)
            if given is not None:
                return given
            if message == "Join":
                name = f"{len(self.executors) + 1}.x"
                self.executors[name] = Executor(body)
                return 200, {"executor": name, "protocol": 1, "cancel_grace_ms": 5000, "max_message_bytes": 8388608}
            if message == "Save":
                self.saved.append(body)
                return 200, {}
            if message == "NextFork":
                self.changed.wait_for(lambda: self.forks or self.draining, body["wait_ms"] / 1000)
                forks, self.forks = self.forks, []
                return 200, {"fork": forks, "draining": self.draining}
            return self._next_work(self.executors[body["executor"]], body)

    def _next_work(self, executor: Executor, body: dict[str, Any]) -> tuple[int, Any]:
        lane, number = body.get("lane", 0), body["no"]
        if executor.numbers.get(lane, 0) != number:
            if executor.numbers.get(lane, 0) + 1 != number:
                # Harmless from a connection that broke: its message is read after the repeat of it.
                return 400, {"name": "wrong_number", "message": f"lane {lane}: {number} is out of turn"}
            executor.numbers[lane] = number
            results = body.get("results") or []
            self.results += results
            executor.free += len(results)
            self.progress += body.get("progress") or []
        elif executor.answers.get(lane, (0,))[0] == number:
            return 200, executor.answers[lane][1]  # a repeat: the same again
        # A repeat of one that still waits takes its place.
        me = executor.waiting[lane] = object()
        self.changed.notify_all()

        def something() -> bool:
            if executor.waiting[lane] is not me:
                return True
            cancels = bool(executor.cancels.get(lane))
            tasks = bool(self.tasks and executor.free and body.get("max") != 0)
            return cancels or tasks or self.draining and lane not in executor.told_draining

        self.changed.wait_for(something, body["wait_ms"] / 1000)
        if executor.waiting[lane] is not me:
            return 0, None
        answer: dict[str, Any] = {"draining": self.draining, "cancel": executor.cancels.pop(lane, [])}
        if self.draining:
            executor.told_draining.add(lane)
        tasks = answer["tasks"] = []
        while self.tasks and executor.free and body.get("max") != 0:
            executor.free -= 1
            tasks.append(self.tasks.popleft())
        executor.answers[lane] = (number, json.dumps(answer).encode())
        return 200, executor.answers[lane][1]


def start(controller: FakeController, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """An executor or zygote of `tests/executed.py`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuskline", *arguments],
        cwd=HERE.parent,
        env={**os.environ, "PYTHONUNBUFFERED": "", "TUSKLINE_SOCKET": controller.path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _benchmark(count: int, slots: int, name: str) -> None:
    controller = FakeController()
    for number in range(count):
        controller.put(name, number)
    process = start(controller, "executor", "tests.executed:app", "--slots", str(slots), TUSKLINE_LAMBDAS=name)
    controller.wait(lambda: controller.results)
    began = time.monotonic()
    while len(controller.results) < count:
        time.sleep(0.01)
    spent = time.monotonic() - began
    controller.drain()
    process.wait()
    cpu = os.times()
    print(
        f"{name}, {slots} slots: {count / spent:,.0f} tasks/s;"
        f" the executor's processor time {(cpu.children_user + cpu.children_system) / count * 1e6:.1f} us a task"
    )
    controller.close()


if __name__ == "__main__":
    _benchmark(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "noop")
