"""Durations and sizes: a timedelta, seconds, or a text as "30 s"; a text as "512 MiB"."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Union

Duration = Union[timedelta, float, str]

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d+) ?(MiB|GiB)", re.ASCII)


def seconds(duration: Duration) -> float:
    """The duration in seconds. One grammar: a number and one of ms, s, min, h, d."""
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, str):
        found = _DURATION.fullmatch(duration)
        if found is None:
            raise ValueError(f"{duration!r} is no duration: write a number and one of ms, s, min, h, d, as '30 s'")
        value = float(found[1]) * _UNITS[found[2]]
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        value = float(duration)
    else:
        raise TypeError(f"a duration is a timedelta, seconds, or a text as '30 s', not {duration!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"a duration must be finite and not negative, got {duration!r}")
    return value


def interval(duration: Duration) -> str:
    """The duration as PostgreSQL reads it, to the microsecond."""
    return f"{seconds(duration):.6f} s"


def milliseconds(duration: Duration) -> int:
    """The duration in whole milliseconds, rounded up: nothing comes early."""
    return math.ceil(round(seconds(duration) * 1000, 3))


def mebibytes(size: str) -> int:
    """A size in MiB."""
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{size!r} is no size: write a number and MiB or GiB, as '512 MiB'")
    return int(found[1]) * (1024 if found[2] == "GiB" else 1)
