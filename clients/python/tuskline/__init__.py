"""Tuskline for Python: schedule tasks in your own transaction, and write the lambdas that run them."""

from ._app import Tuskline
from ._chain import Chain, Link, ScheduledChain
from ._context import Context
from ._definitions import Breaker, Defined, Gate, Limit, Order, Periodic, Priority, Unique
from ._durations import Duration
from ._lambda import Lambda
from ._outcomes import Fatal, Fenced, Refused, Retry, Snooze, TusklineError, Unknown
from ._payloads import Json

__all__ = [
    "Breaker",
    "Chain",
    "Context",
    "Defined",
    "Duration",
    "Fatal",
    "Fenced",
    "Gate",
    "Json",
    "Lambda",
    "Limit",
    "Link",
    "Order",
    "Periodic",
    "Priority",
    "Refused",
    "Retry",
    "ScheduledChain",
    "Snooze",
    "Tuskline",
    "TusklineError",
    "Unique",
    "Unknown",
]
