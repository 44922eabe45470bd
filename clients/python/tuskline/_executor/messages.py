"""The messages that an executor sends. Results are JSON already when they get here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .._app import Tuskline
from .attempts import AnyLambda

PROTOCOL = 1
#: Longest wait of a NextWork that the controller accepts.
WAIT_MS = 25_000
DEFAULT_SLOTS = 32
#: Room in a message for all but its results.
_HEAD_BYTES = 65_536
VERSION = "python/0.1.0"


def lambdas(served: Iterable[AnyLambda], slots: int, forked: bool = False) -> list[dict[str, Any]]:
    """The list of Join; `forked`: of NextFork, where an isolated lambda's slots are its processes."""
    made: list[dict[str, Any]] = []
    for one in served:
        count = one.slots or (1 if one.isolate else slots)
        entry: dict[str, Any] = {"name": one.name, "slots": 1 if one.isolate and not forked else count}
        if one.isolate:
            entry["isolate"] = True
        if one.memory_mib is not None:
            entry["memory_mib"] = one.memory_mib
        made.append(entry)
    return made


def join(served: Iterable[AnyLambda], slots: int, app_version: str | None) -> bytes:
    body: dict[str, Any] = {"protocol": PROTOCOL, "sdk": VERSION, "lambdas": lambdas(served, slots)}
    if app_version is not None:
        body["app_version"] = app_version
    return json.dumps(body).encode()


def next_fork(app: Tuskline, slots: int) -> bytes:
    served = [app.lambdas[name] for name in sorted(app.lambdas)]
    body = {"protocol": PROTOCOL, "wait_ms": WAIT_MS, "lambdas": lambdas(served, slots, forked=True)}
    return json.dumps(body).encode()


class NextWork:
    """Makes the NextWork messages of one lane, whose numbers count up."""

    def __init__(self, executor: str, lane: int, tasks: bool = True) -> None:
        self._head = f'{{"executor":{json.dumps(executor)},"lane":{lane},"no":'
        # A lane that only hears of cancels takes no tasks.
        self._tail = "}" if tasks else ',"max":0}'
        self._number = 0

    def message(self, wait_ms: int, results: list[str], progress: list[str]) -> bytes:
        self._number += 1
        made = f'{self._head}{self._number},"wait_ms":{wait_ms}'
        if results:
            made += f',"results":[{",".join(results)}]'
        if progress:
            made += f',"progress":[{",".join(progress)}]'
        return (made + self._tail).encode()


def result(handed: dict[str, Any], fields: str, max_bytes: int) -> str:
    """A result; `fields` are those of `attempts`."""
    head = f'{{"task":"{handed["task"]}","fence":"{handed["fence"]}",'
    if len(fields) * 4 > max_bytes and len(fields.encode()) > max_bytes - _HEAD_BYTES:
        said = json.dumps(f"a result of {len(fields.encode())} bytes is too large: a message has {max_bytes} at most")
        fields = f'"status":"fatal_failure","error_class":"output","message":{said}'
    return f"{head}{fields}}}"


def progress(task: str, fence: str, percent: float, text: str) -> str:
    return json.dumps({"task": task, "fence": fence, "percent": percent, "text": text})


def save(executor: str, task: str, fence: str, checkpoint: str) -> bytes:
    return json.dumps({"executor": executor, "task": task, "fence": fence, "checkpoint": checkpoint}).encode()


def take(waiting: list[str], max_bytes: int) -> list[str]:
    """Takes results off a list until a message is full. One at least goes."""
    count = size = 0
    for one in waiting:
        size += len(one) * 4  # the most that UTF-8 makes of it
        if count and size > max_bytes - _HEAD_BYTES:
            break
        count += 1
    taken = waiting[:count]
    del waiting[:count]
    return taken
