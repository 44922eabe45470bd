"""The lambdas that the fault course executes in processes, and what their bodies do to these.

Each body takes the kernel's lock of its task, writes down its beginning with the lock's answer, and its end. So two
bodies of a task at once are proven without a clock. A body that ends its process, or has it ended, does so in the
first attempt that reaches it; the next one succeeds.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import json
import mmap
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tuskline import Context, Retry, Tuskline

tusk = Tuskline()

_ORDER = json.loads(os.environ["TUSKLINE_FAULT_ORDER"])
_GUARDIAN = int(os.environ["TUSKLINE_GUARDIAN"])
#: As in role/body.rs.
_DIRECTORIES = 256
#: A process ends when the kernel has taken off each of its pages. These are one piece of memory, again and again.
_PIECE = 32 << 20
_PIECES = 256
#: A lambda's limit is lower by far.
_FEAST = 1 << 30
#: Lives until its executor ends. Where the guardian is killed, nothing else ends it.
_DAEMON = f"n=0; while kill -0 {_GUARDIAN} && [ $((n += 1)) -lt 600 ]; do sleep 0.05; done"


class _History:
    """The file of this process, made with its first line: a fork must not write to that of its zygote."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file = -1
        self._pid = 0

    def note(self, name: str, **fields: Any) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._open()
            self._write(name, fields)

    def _open(self) -> None:
        self._pid = os.getpid()
        path = Path(_ORDER["history"]) / f"hosted-{self._pid}-{time.monotonic_ns()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._write("opened", {"actor": "hosted", "pid": self._pid})
        self._write("guarded", {"guardian": _GUARDIAN})

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        line = json.dumps({"at": time.monotonic_ns(), "e": name, **fields}) + "\n"
        os.write(self._file, line.encode())


_history = _History()


class _Body:
    """A body that runs: from the lock of its task to its end, however it ends."""

    def __init__(self, payload: Any, context: Context) -> None:
        self.op, self.n, self.what = payload["op"], payload["n"], payload.get("what")
        self.seconds = payload["ms"] / 1000
        self._context = context
        self._path = Path(_ORDER["locks"]) / str(context.task % _DIRECTORIES) / f"{context.task}-{self.op}"
        self.ended = "stopped"

    def __enter__(self) -> _Body:
        self._path.parent.mkdir(exist_ok=True)
        self.file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        before = os.pread(self.file, 64, 0).split()
        lock: Any = "free"
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, f"{os.getpid()} {self._context.fence}".encode(), 0)
        except BlockingIOError:
            lock = {"held": {"pid": int(before[0]) if before else 0, "fence": int(before[1]) if before else 0}}
        self._is_locked = lock == "free"
        self.is_first = not before
        _history.note(
            "body_start", task=self._context.task, fence=self._context.fence, attempt=self._context.attempt,
            op=self.op, n=self.n, lock=lock,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        """The end is written down before the lock goes with the file."""
        _history.note("body_end", task=self._context.task, fence=self._context.fence, ended=self.ended)
        if self._is_locked and self.ended == "success":
            self._path.unlink(missing_ok=True)
        os.close(self.file)

    def misbehave(self) -> None:
        """What the task is for, if this is its first attempt."""
        if not self.is_first or self.what is None:
            return
        if self.what == "fail":
            self.ended = "retriable"
            raise Retry("as it was told", after="100 ms")
        if self.what == "leave":
            _leave(self.file)
        if self.what == "exit" or (self.what == "leave" and self.op % 2 == 0):
            os._exit(1)
        if self.what == "signal":
            os.kill(os.getpid(), signal.SIGSEGV if self.op % 2 == 0 else signal.SIGABRT)
        if self.what in ("hold", "leave"):
            _hold()
        if self.what == "eat":
            _eat()


def _leave(file: int) -> None:
    """Starts a daemon, which holds the lock of the task as long as it runs."""
    command = f"setsid sh -c '{_DAEMON}' 2>/dev/null &"
    subprocess.run(["sh", "-c", command], pass_fds=(file,), check=True)


@functools.cache
def _take_long_to_end() -> list[mmap.mmap]:
    """From a kill to the end of this process, 50 ms and more pass. The attempts in it must wait for the end."""
    file = os.memfd_create("ballast")
    os.ftruncate(file, _PIECE)
    return [mmap.mmap(file, _PIECE, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) for _ in range(_PIECES)]


def _hold() -> None:
    """Holds the interpreter's lock in C code, past any deadline."""
    _take_long_to_end()
    sum(range(10**11))


def _eat() -> None:
    eaten = []
    while len(eaten) < _FEAST >> 23:
        eaten.append(b"\1" * (1 << 23))
        time.sleep(0.005)


@tusk("executed")
async def executed(payload: Any, context: Context) -> None:
    with _Body(payload, context) as body:
        body.misbehave()
        await asyncio.sleep(body.seconds)
        body.ended = "success"


@tusk("executed_long")
def executed_long(payload: Any, context: Context) -> None:
    """It does not ask whether it shall stop."""
    _take_long_to_end()
    with _Body(payload, context) as body:
        time.sleep(body.seconds)
        body.ended = "success"


@tusk("executed_alone", isolate=True, slots=2, memory="128 MiB")
def executed_alone(payload: Any, context: Context) -> None:
    with _Body(payload, context) as body:
        body.misbehave()
        time.sleep(body.seconds)
        body.ended = "success"
