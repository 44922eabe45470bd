"""The zygote: imports the application once, and forks executors when the controller asks.

It has one thread and no connection of the application's: a fork copies neither a thread nor a session. A fork is
made twice, and the process between exits, so that the guardian is the executor's parent and alone reaps it.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
import threading
import time
from pathlib import Path

from .._app import Tuskline
from .._outcomes import TusklineError
from . import messages, process
from .title import set_title
from .wire import DRAINED, WRONG, Gone, Wire, WireError

_ADOPTED_SECONDS = 5.0


def serve(app: Tuskline, slots: int, app_version: str | None) -> int:
    """Forks until told to stop. Returns the exit code."""
    path = process.socket_path()
    guardian = _guardian()
    refuse_what_no_fork_keeps()
    process.die_with_guardian()
    process.heed_no_signals()
    gc.collect()
    gc.freeze()  # else the first collection in an executor copies every object
    set_title("tuskline: zygote")
    wire, ask = Wire(path), messages.next_fork(app, slots)
    try:
        while True:
            answer = wire.call("NextFork", ask)
            for one in answer.get("fork") or ():
                _fork(wire, guardian, app, list(one["lambdas"]), slots, app_version)
            if answer.get("draining"):
                return DRAINED
    except (WireError, Gone) as error:
        return process.said(error, error.exit_code)


def refuse_what_no_fork_keeps() -> None:
    """A thread or a session that the import has made is broken in each fork, so it is refused by name."""
    threads = [one.name for one in threading.enumerate() if one is not threading.main_thread()]
    if threads:
        raise TusklineError(
            f"the import of the app has started threads ({', '.join(threads)}), which a fork does not keep:"
            " start them in the lambda, or use `tusk run --spawn`"
        )
    count = _kernel_threads() - 1
    if count > 0:
        raise TusklineError(
            f"a library that the app imports has started {count} threads outside Python, which a fork does not keep:"
            " set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 if it is numpy, or use `tusk run --spawn`"
        )
    sockets = _sockets()
    if sockets:
        raise TusklineError(
            f"the import of the app has opened connections ({', '.join(sockets)}), which forks would share:"
            " open them in the lambda, or use `tusk run --spawn`"
        )


def _guardian() -> int:
    number = os.environ.get("TUSKLINE_GUARDIAN", "")
    if not number.isdigit():
        raise TusklineError("TUSKLINE_GUARDIAN is not set: the controller starts the zygote")
    return int(number)


def _kernel_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _sockets() -> list[str]:
    """The sockets of this process but its standard streams, each by its peer."""
    found = []
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        try:
            if int(name) > 2 and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(_peer(int(name)))
        except OSError:
            continue  # the directory's own
    return found


def _peer(number: int) -> str:
    with socket.socket(fileno=os.dup(number)) as one:
        try:
            peer = one.getpeername()
        except OSError:
            return f"file descriptor {number}"
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or f"file descriptor {number}")


def _fork(
    wire: Wire, guardian: int, app: Tuskline, names: list[str], slots: int, app_version: str | None
) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    between = os.fork()
    if between != 0:
        os.waitpid(between, 0)
        return
    try:
        if os.fork() != 0:
            os._exit(0)
        wire.close()
        code = WRONG
        if _is_adopted(guardian):
            _begin()
            code = process.serve(app, names, slots, app_version)
        process.leave(code)
    except BaseException as error:
        print(f"tuskline: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(WRONG)


def _is_adopted(guardian: int) -> bool:
    """Waits until the kernel has made the guardian the parent."""
    until = time.monotonic() + _ADOPTED_SECONDS
    while os.getppid() != guardian:
        if time.monotonic() > until:
            print(f"tuskline: the parent is {os.getppid()}, not the guardian {guardian}", file=sys.stderr, flush=True)
            return False
        time.sleep(0.0005)
    return True


def _begin() -> None:
    """A session of its own, so that what a lambda starts is known by it; and streams of its own."""
    os.setsid()
    os.environ["TUSKLINE_PROCESS"] = str(os.getpid())
    output = os.environ.pop("TUSKLINE_OUTPUT", "")
    if Path(output).is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.connect(output)
            os.dup2(one.fileno(), 1)
            os.dup2(one.fileno(), 2)
