"""The app: the decorator, and the lambdas that it makes."""

from __future__ import annotations

import json
import re
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Optional, ParamSpec, TypeVar, overload

from ._chain import Chain
from ._connections import Arguments, AsyncConnection, Connection, acall, call
from ._context import Context
from ._definitions import Defined, Settings, definition
from ._durations import mebibytes
from ._lambda import Lambda
from ._own import OwnAsyncConnection, OwnConnection, address

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
#: The apps of this process, for the test fixture.
APPS: weakref.WeakSet[Tuskline] = weakref.WeakSet()
_ROWS = "coalesce(json_agg(r), '[]')::text"


class _Decorator:
    """`@tusk("name", ..)`. The overloads keep the payload's type, and the rest of the signature by ParamSpec."""

    def __init__(self, app: Tuskline, name: str, isolate: bool, memory: Optional[str], slots: Optional[int]) -> None:
        self._app, self._name = app, name
        self._isolate, self._slots = isolate, slots
        self._memory_mib = None if memory is None else mebibytes(memory)

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Lambda[None, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], R], /) -> Lambda[T, P, R]: ...
    @overload
    def __call__(self, function: Callable[[], R], /) -> Lambda[None, [], R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        # A payload's type may be local to the function that decorates, as in tests.
        made: Lambda[Any, Any, Any] = Lambda(self._app, self._name, function, sys._getframe(1).f_locals)
        made.isolate, made.memory_mib, made.slots = self._isolate, self._memory_mib, self._slots
        self._app.lambdas[self._name] = made
        return made


class Tuskline:
    """An application's lambdas. The app is the decorator, because `lambda` is a keyword.

    `url` is the database for calls without `within=`; else TUSKLINE_DATABASE_URL."""

    def __init__(self, url: Optional[str] = None) -> None:
        self.url = url
        self.lambdas: dict[str, Lambda[Any, Any, Any]] = {}
        self.definitions: dict[str, dict[str, Any]] = {}
        self.own = OwnConnection()
        self.aown = OwnAsyncConnection()
        APPS.add(self)

    def __call__(
        self,
        name: str,
        /,
        *,
        isolate: bool = False,
        memory: Optional[str] = None,
        slots: Optional[int] = None,
        **settings: Unpack[Settings],
    ) -> _Decorator:
        """Makes a lambda of a function.

        `isolate`: each attempt has a process to itself, so a crash or a kill has no neighbours. `memory`: the process
        is ended above this size, as "512 MiB". `slots`: attempts at a time in one process; with `isolate`, its
        processes. The rest is what `tusk define` brings to the database."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name: it must match [a-z][a-z0-9_]{{0,62}}")
        if name in self.definitions:
            raise ValueError(f"lambda {name!r} is there already")
        if slots is not None and slots < 1:
            raise ValueError(f"{name}: slots must be 1 or more, got {slots}")
        made = _Decorator(self, name, isolate, memory, slots)
        self.definitions[name] = definition(name, settings)
        return made

    @property
    def address(self) -> str:
        """The address of the database: `url`, or the environment's."""
        return address(self.url)

    def chain(self) -> Chain:
        """Tasks that wait for each other, to be scheduled in one call."""
        return Chain(self)

    def define(
        self, *, within: Optional[Connection] = None, version: Optional[str] = None, dry_run: bool = False
    ) -> list[Defined]:
        """Brings the lambdas with their settings to the database, as `tusk define` does. Each deploy may call it."""
        arguments = self._define(version, dry_run)
        if not self.lambdas:
            return []
        if within is None:
            return _defined(self.own.call(self.url, "define", arguments, _ROWS))
        return _defined(call(within, "define", arguments, _ROWS))

    async def adefine(
        self, *, within: Optional[AsyncConnection] = None, version: Optional[str] = None, dry_run: bool = False
    ) -> list[Defined]:
        """The same, awaited, on an async connection."""
        arguments = self._define(version, dry_run)
        if not self.lambdas:
            return []
        if within is None:
            return _defined(await self.aown.call(self.url, "define", arguments, _ROWS))
        return _defined(await acall(within, "define", arguments, _ROWS))

    def cancel(self, task: int, reason: Optional[str] = None, *, within: Optional[Connection] = None) -> str:
        """Cancels a task. Returns `cancelled`, `requested` (an executor runs it), `too_late` or `unknown`."""
        arguments = _cancel(task, reason)
        if within is None:
            return str(self.own.call(self.url, "cancel", arguments))
        return str(call(within, "cancel", arguments))

    async def acancel(
        self, task: int, reason: Optional[str] = None, *, within: Optional[AsyncConnection] = None
    ) -> str:
        """The same, awaited, on an async connection."""
        arguments = _cancel(task, reason)
        if within is None:
            return str(await self.aown.call(self.url, "cancel", arguments))
        return str(await acall(within, "cancel", arguments))

    def close(self) -> None:
        """Closes the app's own blocking connection, if there is one. The next call opens another."""
        self.own.close()

    async def aclose(self) -> None:
        """The same for the async connection of this event loop."""
        await self.aown.close()

    def _define(self, version: Optional[str], dry_run: bool) -> Arguments:
        missing = sorted(self.definitions.keys() - self.lambdas.keys())
        if missing:
            raise TypeError(f"@tusk({missing[0]!r}) decorates no function")
        definitions = json.dumps(list(self.definitions.values()), allow_nan=False)
        return {
            "definitions": (definitions, "json"),
            "version": (version, "text"),
            "dry_run": ("true" if dry_run else "false", "boolean"),
        }


def _cancel(task: int, reason: Optional[str]) -> Arguments:
    return {"task": (str(task), "bigint"), "reason": (reason, "text")}


def _defined(text: str) -> list[Defined]:
    rows: list[Mapping[str, Any]] = json.loads(text)
    return [Defined(row["lambda"], row["outcome"], row["changes"]) for row in rows]
