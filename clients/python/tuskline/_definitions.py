"""The definition of a lambda, which a deploy brings along. docs/definitions.md has the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Optional, TypedDict

from . import _payloads
from ._durations import Duration, interval

Priority = Literal["critical", "high", "normal", "low"]


class Unique(TypedDict, total=False):
    """The meaning of a unique key."""

    scope: Literal["queued", "running", "period", "forever"]
    outcome: Literal["keep", "replace", "postpone", "reject"]
    period: Duration


class Order(TypedDict, total=False):
    """Tasks of one ordering key run in order."""

    on_failure: Literal["block", "skip", "dead"]


class Breaker(TypedDict, total=False):
    """The lambda pauses itself when its attempts fail."""

    failures: int
    window: Duration
    share: float
    probe_after: Duration


class Limit(TypedDict, total=False):
    """At most so many at a time, or in a second."""

    max_concurrency: int
    per_second: float
    collection: str
    priority: Priority
    by_key: bool
    burst: float
    fair: bool


# `for` is a keyword of Python, so this one is made by a call.
Gate = TypedDict(
    "Gate",
    {
        "action": Literal["pause", "drop", "divert"],
        "reason": str,
        "collection": str,
        "priority": Priority,
        "until": datetime,
        "for": Duration,
    },
    total=False,
)


class _Periodic(TypedDict):
    name: str
    cron: str


class Periodic(_Periodic, total=False):
    """A task at each tick of a cron."""

    payload: Any
    zone: str
    collection: str
    priority: Priority
    missed: Literal["skip", "once", "all"]
    missed_most: int
    grace: Duration
    overlap: Literal["allow", "skip", "queue"]
    starts_at: datetime
    ends_at: datetime


class Settings(TypedDict, total=False):
    """The options of `@tusk(..)` that `define` brings to the database."""

    max_attempts: int
    max_crashes: int
    timeout: Duration
    retry_base: Duration
    retry_cap: Duration
    retention: Duration
    dead_retention: Duration
    cancelled_retention: Duration
    dropped_retention: Duration
    fatal_retention: Duration
    archive: Literal["none", "table", "file"]
    direct: bool
    max_payload_bytes: int
    max_backlog: int
    order: Order
    unique: Unique
    breaker: Breaker
    limits: Sequence[Limit]
    gates: Sequence[Gate]
    schedules: Sequence[Periodic]


@dataclass(frozen=True)
class Defined:
    """The result of a definition: `created`, `changed`, `unchanged`, or `newer`: a newer version has defined it."""

    name: str
    outcome: str
    #: Each setting that changed, before and after.
    changes: dict[str, list[Any]]


_NAMES = frozenset(Settings.__annotations__)
_DURATIONS = frozenset(name for name in _NAMES if "retention" in name or name.startswith("retry")) | {"timeout"}
_DURATIONS_OF_PARTS = frozenset({"period", "window", "probe_after", "for", "grace"})


def definition(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The object that `tuskline.define` reads."""
    unknown = sorted(set(settings) - _NAMES)
    if unknown:
        raise TypeError(f"{name}: there is no option {', '.join(unknown)}; there are {', '.join(sorted(_NAMES))}")
    made: dict[str, Any] = {"lambda": name}
    for key, value in settings.items():
        if value is None:
            continue
        if key in _DURATIONS:
            made["attempt_timeout" if key == "timeout" else key] = interval(value)
        elif key in ("limits", "gates", "schedules"):
            made[key] = [_part(one) for one in value]
        else:
            made[key] = _part(value) if isinstance(value, Mapping) else value
    return made


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _field(key, value) for key, value in part.items()}


def _field(key: str, value: Any) -> Any:
    if key in _DURATIONS_OF_PARTS:
        return interval(value)
    if key == "payload":
        import json

        return json.loads(_payloads.encode(value))
    return moment(key, value) if isinstance(value, datetime) else value


def moment(name: str, at: Optional[datetime]) -> Optional[str]:
    """An instant as text. One without a time zone is refused."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise ValueError(f"{name}= needs a time zone: datetime.now(timezone.utc), not datetime.now()")
    return at.isoformat()
