"""The lambdas of the conformance kit by the Python package:

tuskline conform --zygote -- python -m tuskline zygote app:tusk
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tuskline import Context, Fatal, Retry, Snooze, Tuskline

tusk = Tuskline()


class Text(str):
    """JSON text as it is. The package reads and writes it as it does models of pydantic, by these two names."""

    class _Itself:
        validate_json = staticmethod(lambda text: Text(text))
        to_json = staticmethod(str.encode)

    __pydantic_validator__ = __pydantic_serializer__ = _Itself


@tusk("echo")
async def echo(payload: Text) -> Text | None:
    return None if payload == "null" else payload


@tusk("outcome")
async def outcome(payload: dict[str, Any], context: Context) -> Text | None:
    results = payload["results"]
    result = results[min(context.attempt, len(results)) - 1]
    after = result.get("after_ms")
    seconds = None if after is None else after / 1000
    message, kind = result.get("message", ""), result.get("error_class", "Error")
    if result["status"] == "retriable_failure":
        raise type(kind, (Retry,), {})(message, after=seconds)
    if result["status"] == "fatal_failure":
        raise type(kind, (Fatal,), {})(message)
    if result["status"] == "snoozed":
        raise Snooze(seconds)
    return Text(result["output"]) if "output" in result else None


@tusk("hold")
async def hold(payload: dict[str, Any], context: Context) -> None:
    begin(payload, context)
    if "percent" in payload:
        context.progress(payload["percent"], payload["text"])
    while not Path(payload["dir"], f"{context.task}.go").exists():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            if not payload.get("deaf"):
                raise


@tusk("busy")
async def busy(payload: dict[str, Any], context: Context) -> None:
    begin(payload, context)
    while True:
        pass


@tusk("crash")
async def crash(payload: dict[str, Any]) -> None:
    if "signal" in payload:
        os.kill(os.getpid(), getattr(signal, "SIG" + payload["signal"]))
    os._exit(payload["exit"])


@tusk("memory", memory="128 MiB")
async def memory(payload: dict[str, Any], context: Context) -> None:
    held = b"x" * (payload["mib"] * 1024 * 1024)
    await hold(payload, context)
    del held


@tusk("run")
async def run(payload: dict[str, Any]) -> None:
    subprocess.Popen(payload["command"], start_new_session=True, stdin=subprocess.DEVNULL)


@tusk("save")
async def save(payload: dict[str, Any], context: Context) -> Text:
    checkpoint = context.checkpoint(Text)
    if checkpoint is not None:
        return checkpoint
    if "dir" in payload:
        await hold(payload, context)
    await context.asave(Text(payload["checkpoint"]))
    raise Retry("saved", after=0)


def begin(payload: dict[str, Any], context: Context) -> None:
    with Path(payload["dir"], f"{context.task}.begun").open("a") as file:
        file.write(f"{context.fence}\n")
