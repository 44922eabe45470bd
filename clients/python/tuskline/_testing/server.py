"""Where tests make their databases: a private PostgreSQL of this run, or a server that was named."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit, urlunsplit

from .._binary import binary
from .._dev import Dev
from .._outcomes import TusklineError

#: Names a PostgreSQL to make the databases on. Its role must be allowed to create databases.
URL_VARIABLE = "TUSKLINE_TEST_DATABASE_URL"

_PREFIX = "tuskline-test-"
_DROP_SECONDS = 20.0

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
        named = os.environ.get(URL_VARIABLE)
        self._private = None if named else _Private()
        self.url = self._private.url if self._private else str(named)
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
        if self._private is not None:
            self._private.stop()
        else:
            self._drop(self._template)

    def _make_template(self) -> None:
        self._run(f"create database {self._template}")
        url = _with_database(self.url, self._template)
        done = subprocess.run([binary(), "--database-url", url, "migrate"], capture_output=True, text=True)
        if done.returncode != 0:
            raise TusklineError(f"tuskline migrate failed: {done.stderr.strip()}")
        with connect(url) as connection:
            connection.execute(_CLOCK)

    def _drop(self, name: str) -> None:
        until = time.monotonic() + _DROP_SECONDS
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


class _Private:
    """A PostgreSQL in a directory that goes with it."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
        base = str(memory) if roomy and os.access(memory, os.W_OK) else tempfile.gettempdir()
        _remove_abandoned(base)
        self._directory = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        self._owner = open(f"{self._directory}/owner", "w")
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        os.chmod(self._directory, 0o755)  # as root, PostgreSQL runs under another account
        self._log = open(f"{self._directory}/log", "w+b")
        self._dev: Optional[Dev] = None
        try:
            self._dev = Dev("--data-dir", f"{self._directory}/cluster", "--listen", "127.0.0.1:0", log=self._log)
        except BaseException:
            self.stop()
            raise
        self.url = self._dev.url

    def stop(self) -> None:
        if self._dev is not None:
            self._dev.stop()
        self._log.close()
        self._owner.close()
        shutil.rmtree(self._directory, ignore_errors=True)


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
