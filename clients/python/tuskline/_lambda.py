"""A lambda: a function known by name, and how its tasks are scheduled."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Optional, ParamSpec, TypedDict, TypeVar, get_type_hints

from . import _payloads
from ._connections import Arguments, AsyncConnection, Connection, acall, call, sql_array
from ._context import Context
from ._definitions import Priority, moment
from ._durations import Duration, interval

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._app import Tuskline

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Options(TypedDict, total=False):
    """The options of a task, all of them keywords."""

    #: Due so long after now; or `at`, an instant with a time zone.
    delay: Optional[Duration]
    at: Optional[datetime]
    priority: Priority
    collection: Optional[str]
    ordering_key: Optional[str]
    limit_key: Optional[str]
    fairness_key: Optional[str]
    traceparent: Optional[str]


class TaskOptions(Options, total=False):
    """The options of one task."""

    unique_key: Optional[str]


class ManyOptions(Options, total=False):
    """The options of a batch: they hold for each task, and `unique_keys` has one for each."""

    unique_keys: Optional[Sequence[Optional[str]]]


_OPTIONS = frozenset(Options.__annotations__)
_TEXTS = ("priority", "collection", "ordering_key", "limit_key", "fairness_key", "unique_key", "traceparent")


class Lambda(Generic[T, P, R]):
    """A function that executors run, known by name. It stays the function that it was: call it in your tests."""

    def __init__(
        self, app: Tuskline, name: str, function: Callable[Concatenate[T, P], R], local: Mapping[str, Any]
    ) -> None:
        self.app = app
        self.name = name
        self.is_async = inspect.iscoroutinefunction(function)
        self.payload_type, self.takes_payload, self.takes_context = _shape(function, local)
        self.decode: Callable[[str], Any] = _decoder(self.payload_type, name)
        self.function = function
        # Set by the decorator.
        self.isolate = False
        self.memory_mib: Optional[int] = None
        self.slots: Optional[int] = None
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, payload: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(payload, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<lambda {self.name}>"

    def schedule(
        self, payload: T, /, *, within: Optional[Connection] = None, **options: Unpack[TaskOptions]
    ) -> int:
        """Schedules a task in the transaction of `within`: it exists when that commits. Returns its id.

        Without `within`, on a connection of the app: it exists when this returns."""
        arguments = self._arguments(payload, options)
        if within is None:
            return int(self.app.own.call(self.app.url, "schedule", arguments))
        return int(call(within, "schedule", arguments))

    async def aschedule(
        self, payload: T, /, *, within: Optional[AsyncConnection] = None, **options: Unpack[TaskOptions]
    ) -> int:
        """The same, awaited, on an async connection."""
        arguments = self._arguments(payload, options)
        if within is None:
            return int(await self.app.aown.call(self.app.url, "schedule", arguments))
        return int(await acall(within, "schedule", arguments))

    def schedule_many(
        self, payloads: Sequence[T], /, *, within: Optional[Connection] = None, **options: Unpack[ManyOptions]
    ) -> list[int]:
        """Schedules a task for each payload, all or none, 10,000 at most. Returns the ids in their order."""
        arguments = self._many(payloads, options)
        if within is None:
            return _ids(self.app.own.call(self.app.url, "schedule_many", arguments, _IDS))
        return _ids(call(within, "schedule_many", arguments, _IDS))

    async def aschedule_many(
        self, payloads: Sequence[T], /, *, within: Optional[AsyncConnection] = None, **options: Unpack[ManyOptions]
    ) -> list[int]:
        """The same, awaited, on an async connection."""
        arguments = self._many(payloads, options)
        if within is None:
            return _ids(await self.app.aown.call(self.app.url, "schedule_many", arguments, _IDS))
        return _ids(await acall(within, "schedule_many", arguments, _IDS))

    def encode(self, payload: T) -> Optional[str]:
        """The JSON text of a payload. None is no payload."""
        return None if payload is None else _payloads.encode(payload)

    def _arguments(self, payload: T, options: Mapping[str, Any]) -> Arguments:
        check_options(options, _OPTIONS | {"unique_key"})
        arguments: Arguments = {"lambda": (self.name, "text"), "payload": (self.encode(payload), "text")}
        if options:
            for name in _TEXTS:
                if options.get(name) is not None:
                    arguments[name] = (options[name], "text")
            if options.get("delay") is not None:
                arguments["delay"] = (interval(options["delay"]), "interval")
            if options.get("at") is not None:
                arguments["scheduled_at"] = (moment("at", options["at"]), "timestamptz")
        return arguments

    def _many(self, payloads: Sequence[T], options: Mapping[str, Any]) -> Arguments:
        check_options(options, _OPTIONS | {"unique_keys"})
        size = len(payloads)

        def column(value: Optional[str], kind: str) -> tuple[str, str]:
            return sql_array([value] * size), kind + "[]"

        arguments: Arguments = {
            "lambdas": column(self.name, "text"),
            "payloads": (sql_array([self.encode(one) for one in payloads]), "json[]"),
        }
        several = {"priority": "priorities", **{name: name + "s" for name in _TEXTS if name != "priority"}}
        for name, parameter in several.items():
            if options.get(name) is not None:
                arguments[parameter] = column(options[name], "text")
        if options.get("delay") is not None:
            arguments["delays"] = column(interval(options["delay"]), "interval")
        if options.get("at") is not None:
            arguments["scheduled_at"] = column(moment("at", options["at"]), "timestamptz")
        keys = options.get("unique_keys")
        if keys is not None:
            arguments["unique_keys"] = (sql_array(list(keys)), "text[]")
        return arguments


#: One form in all drivers.
_IDS = "array_to_json(r)::text"


def _ids(text: str) -> list[int]:
    return [int(one) for one in json.loads(text)]


def check_options(options: Mapping[str, Any], known: frozenset[str]) -> None:
    """A misspelt option must not be lost where no type checker looks."""
    if not options.keys() <= known:
        wrong = ", ".join(sorted(options.keys() - known))
        raise TypeError(f"there is no option {wrong}; there are within, {', '.join(sorted(known))}")


def _shape(function: Callable[..., Any], local: Mapping[str, Any]) -> tuple[Any, bool, bool]:
    """The payload's type, and whether there is a payload, a context. A wrong shape is told where it was written."""
    where = getattr(function, "__qualname__", "the function")
    try:
        hints = get_type_hints(function, localns=dict(local))
    except NameError as error:
        raise TypeError(f"{where}: a type is not there at run time ({error}): import it outside TYPE_CHECKING") from None
    parameters = list(inspect.signature(function).parameters.values())
    kinds = [hints.get(one.name, Any) for one in parameters]
    takes_context = Context in kinds
    rest = kinds[:-1] if takes_context else kinds
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(rest) > 1 or Context in rest or any(one.kind not in positional for one in parameters):
        raise TypeError(f"{where} takes a payload, then a Context, and nothing else: put more into the payload")
    return (rest[0] if rest else type(None)), bool(rest), takes_context


def _decoder(kind: Any, name: str) -> Callable[[str], Any]:
    try:
        return _payloads.decoder(kind)
    except TypeError as error:
        raise TypeError(f"the payload of {name}: {error}") from None
