"""One attempt: from the hand-out to its result."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any, Optional

from .. import _payloads
from .._context import Context, Door
from .._lambda import Lambda
from .._outcomes import BadPayload, Fatal, Retry, Snooze

AnyLambda = Lambda[Any, Any, Any]

#: The JSON of a text, quickly.
_text = json.JSONEncoder(ensure_ascii=False).encode
_LOG = logging.getLogger("tuskline")

#: Longest reason that the database keeps.
_MESSAGE_BYTES = 8192


def arguments(of: AnyLambda, handed: dict[str, Any], door: Door) -> tuple[list[Any], Optional[Context]]:
    """The arguments of the function. Raises BadPayload."""
    context = Context(door, handed) if of.takes_context else None
    made: list[Any] = []
    if of.takes_payload:
        made.append(of.decode(handed.get("payload") or "null"))
    if context is not None:
        made.append(context)
    return made, context


def success(output: Any) -> str:
    """The fields of a result behind its task and fence, as JSON."""
    if output is None:
        return '"status":"success"'
    return f'"status":"success","output":{_text(_payloads.encode(output))}'


def failure(error: BaseException) -> str:
    """The same for an exception."""
    if isinstance(error, Snooze):
        return f'"status":"snoozed","after_ms":{error.after_ms}'
    if isinstance(error, BadPayload):
        return _failed("fatal_failure", "payload", str(error))
    kind = type(error).__name__
    if isinstance(error, Fatal):
        return _failed("fatal_failure", kind, str(error))
    if isinstance(error, Retry):
        after = "" if error.after_ms is None else f',"after_ms":{error.after_ms}'
        return _failed("retriable_failure", kind, str(error)) + after
    return _failed("retriable_failure", kind, _reason(error))


def cancelled(error: BaseException) -> str:
    """The same for one that ended because it was told to stop. The controller knows the reason."""
    return _failed("cancelled", type(error).__name__, str(error))


def ended(output: Any) -> str:
    """The result of a function that has returned. An output that is no JSON can never succeed."""
    try:
        return success(output)
    except Exception as error:
        return _failed("fatal_failure", "output", f"the output is no JSON: {error}")


def _failed(status: str, kind: str, message: str) -> str:
    cut = message.encode(errors="replace")[:_MESSAGE_BYTES].decode(errors="ignore")
    return f'"status":"{status}","error_class":{_text(kind)},"message":{_text(cut)}'


def _reason(error: BaseException) -> str:
    """The text with its causes, and where in the application it was raised."""
    texts: list[str] = []
    cause: Optional[BaseException] = error
    while cause is not None and len(texts) < 10:
        texts.append(str(cause) or type(cause).__name__)
        cause = cause.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    # The first frame is ours.
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
    return ": ".join(texts) + where


def report(of: AnyLambda, handed: dict[str, Any], error: BaseException) -> None:
    """Writes an unexpected exception to the application's log, with the task and the attempt."""
    if not isinstance(error, (Retry, Fatal, Snooze)):
        _LOG.warning("task %s of %s, attempt %s failed", handed["task"], of.name, handed.get("attempt"), exc_info=error)
