"""The lambdas of the executor's tests. Each says in a file that it is there, and waits for a file to go on."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuskline import Context, Fatal, Json, Retry, Snooze, Tuskline

app = Tuskline()
seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


@dataclass
class Step:
    #: Touched when the lambda is there.
    there: str
    #: It goes on when this exists.
    on: str


def _reached(step: Step) -> None:
    print("there")
    Path(step.there).write_text(str(os.getpid()))


@app("noop")
async def noop(number: int) -> None: ...


@app("noop_sync")
def noop_sync(number: int) -> None: ...


@app("echo")
async def echo(value: Json) -> Json:
    return value


@app("echo_sync")
def echo_sync(value: Json, context: Context) -> dict[str, Any]:
    before = seen.get()
    seen.set("dirty")
    return {"value": value, "thread": threading.current_thread().name, "context": before, "attempt": context.attempt}


@app("fails")
async def fails(how: str) -> Any:
    return _fails(how)


@app("fails_sync")
def fails_sync(how: str) -> Any:
    return _fails(how)


def _fails(how: str) -> Any:
    if how == "retry":
        raise Retry("busy", after="10 s")
    if how == "fatal":
        raise Fatal("never")
    if how == "snooze":
        raise Snooze("1 h")
    if how == "cause":
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error
    if how == "exit":
        sys.exit(4)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "cancelled":
        raise asyncio.CancelledError("of its own")
    if how == "nan":
        return float("nan")
    if how == "object":
        return object()
    if how == "surrogate":
        raise RuntimeError("half \ud800 \x00")
    if how == "long":
        raise RuntimeError("é" * 20_000)
    if how == "huge":
        return "x" * (9 << 20)
    raise AssertionError(how)


@app("waits")
async def waits(step: Step, context: Context) -> str:
    _reached(step)
    while not os.path.exists(step.on):
        if context.cancelled:
            await context.until_cancelled()
            return "told"
        await asyncio.sleep(0.005)
    return "went on"


@app("sleeps")
async def sleeps(step: Step) -> None:
    _reached(step)
    await asyncio.sleep(3600)


@app("waits_sync")
def waits_sync(step: Step, context: Context) -> str:
    _reached(step)
    while not os.path.exists(step.on):
        if context.cancelled:
            return "told"
        time.sleep(0.005)
    return "went on"


@app("keeps")
async def keeps(row: int, context: Context) -> Any:
    before = context.checkpoint(dict[str, int])
    context.progress(50, "half")
    await context.asave({"row": row})
    return [before, context.checkpoint(dict[str, int])]


@app("keeps_sync")
def keeps_sync(row: int, context: Context) -> Any:
    before = context.checkpoint(dict[str, int])
    context.progress(50, "half")
    context.save({"row": row})
    return [before, context.checkpoint(dict[str, int])]


@app("counts")
async def counts(to: int, context: Context) -> None:
    for number in range(to):
        context.progress(100 * number / to, str(number))
        await asyncio.sleep(0.005)


@app("alone", isolate=True, memory="256 MiB", slots=3)
def alone(step: Step, context: Context) -> dict[str, Any]:
    context.progress(1, "begun")
    _reached(step)
    while not os.path.exists(step.on) and not context.cancelled:
        time.sleep(0.005)
    return {
        "told": context.cancelled,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "process": os.environ.get("TUSKLINE_PROCESS"),
        "threads": sorted(one.name for one in threading.enumerate()),
    }


@app("starts_a_program")
def starts_a_program(nothing: None) -> list[int]:
    """The dispositions of SIGTERM and SIGINT in a program that a lambda starts."""
    said = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    ignored = int(next(line.split()[1] for line in said.splitlines() if line.startswith("SigIgn")), 16)
    return [number for number in (signal.SIGTERM, signal.SIGINT) if ignored >> (number - 1) & 1]


@app("hogs", timeout="1 s", max_attempts=1, isolate=True)
def hogs(nothing: None) -> int:
    """C code that holds the interpreter lock for minutes."""
    return sum(range(10**11))


@app("dies", max_crashes=2)
async def dies(step: Step) -> None:
    _reached(step)
    os._exit(3)


@app("books", isolate=True)
def books(amount: int, context: Context) -> int:
    import psycopg

    with psycopg.connect(os.environ["TUSKLINE_DATABASE_URL"]) as connection:
        connection.execute("insert into booking values (%s, %s)", [context.task, amount])
        return context.complete_in(connection, amount)
