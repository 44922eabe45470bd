"""An executor that has joined: its number, its bounds, and its calls that belong to no lane."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from .._outcomes import Fenced, TusklineError
from . import messages
from .attempts import AnyLambda
from .wire import Gone, Wire, WireError


class _PerThread(threading.local):
    wire: Wire | None = None


@dataclass(frozen=True)
class Joined:
    """An executor that has joined."""

    path: str
    executor: str
    max_message_bytes: int
    lambdas: dict[str, AnyLambda]
    _per_thread: _PerThread = field(default_factory=_PerThread)

    def result(self, handed: dict[str, Any], fields: str) -> str:
        return messages.result(handed, fields, self.max_message_bytes)

    def save(self, task: str, fence: str, checkpoint: str) -> None:
        """Blocks until the checkpoint is durable."""
        if self._per_thread.wire is None:
            self._per_thread.wire = Wire(self.path)
        body = messages.save(self.executor, task, fence, checkpoint)
        try:
            self._per_thread.wire.call("Save", body)
        except WireError as error:
            raise refused(error) from error
        except Gone as error:
            raise TusklineError(str(error)) from error


def refused(error: WireError) -> TusklineError:
    """An error of Save, for the lambda."""
    code = str(error.code) if error.code is not None else None
    return (Fenced if error.name == "not_current" else TusklineError)(error.text, code)
