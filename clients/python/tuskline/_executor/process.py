"""The process of an executor: how it begins, and what it exits with."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
from typing import Any, NoReturn

from .._app import Tuskline
from .._outcomes import TusklineError
from . import messages
from .attempts import AnyLambda
from .joined import Joined
from .many_slots import ManySlots
from .one_slot import OneSlot
from .title import set_title
from .wire import ENDED, WRONG, Gone, Wire, WireError

_PR_SET_PDEATHSIG = 1


def serve(app: Tuskline, names: list[str] | None, slots: int, app_version: str | None) -> int:
    """Joins, and runs lambdas until told to stop. Returns the exit code."""
    try:
        served = [_found(app, name) for name in names] if names else [
            one for _, one in sorted(app.lambdas.items()) if not one.isolate
        ]  # fmt: skip
        if not served:
            raise TusklineError("the app has no lambda to serve here: isolated ones come by the zygote")
        die_with_guardian()
        heed_no_signals()
        print_lines_at_once()
        joined = _join(served, slots, app_version)
        counts = messages.lambdas(served, slots)
        alone = len(counts) == 1 and counts[0]["slots"] == 1 and not served[0].is_async
        set_title(f"tuskline: executor {joined.executor.partition('.')[0]} ({', '.join(sorted(joined.lambdas))})")
        return OneSlot(joined).run() if alone else ManySlots(joined).run()
    except (WireError, Gone) as error:
        return said(error, error.exit_code)
    except TusklineError as error:
        return said(error, WRONG)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return said(TusklineError(f"an answer has no sense: {error!r}"), WRONG)


def socket_path() -> str:
    path = os.environ.get("TUSKLINE_SOCKET")
    if not path:
        raise TusklineError("TUSKLINE_SOCKET is not set: `tusk run` starts the controller, which starts executors")
    return path


def die_with_guardian() -> None:
    """The kernel ends this process when its parent ends, if that is the guardian. Linux only."""
    guardian = os.environ.get("TUSKLINE_GUARDIAN")
    if not guardian or sys.platform != "linux" or os.getppid() != int(guardian):
        return
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise TusklineError(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(guardian):  # it ended meanwhile
        os._exit(ENDED)


def heed_no_signals() -> None:
    """Ctrl-C reaches the whole group, and the controller drains. A handler, since an ignored signal would stay
    ignored in the programs that a lambda starts."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


def print_lines_at_once() -> None:
    """The controller writes each line to the log with the task that runs, and a process that is ended flushes nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def leave(code: int) -> NoReturn:
    """Ends the process. Threads of slots may still be in user code if the controller is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _found(app: Tuskline, name: str) -> AnyLambda:
    if name not in app.lambdas:
        raise TusklineError(f"TUSKLINE_LAMBDAS names {name}, which the app does not have")
    return app.lambdas[name]


def _join(served: list[AnyLambda], slots: int, app_version: str | None) -> Joined:
    path = socket_path()
    wire = Wire(path)
    answer = wire.call("Join", messages.join(served, slots, app_version))
    wire.close()
    return Joined(
        path,
        str(answer["executor"]),
        int(answer.get("max_message_bytes") or 8 << 20),
        {one.name: one for one in served},
    )


def said(error: Exception, code: int) -> int:
    """Says why the process ends; returns the code."""
    print(f"tuskline: {error}", file=sys.stderr, flush=True)
    return code
