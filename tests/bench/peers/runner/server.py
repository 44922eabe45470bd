"""The PostgreSQL under all of them: one of our own, or a given one; and what it counts."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from .proc import die_with_parent, family_cpu_us, stat
from .session import Session

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "max_connections": "300",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
}
# What moves figures, for the report.
REPORTED = (
    "server_version fsync full_page_writes synchronous_commit wal_level shared_buffers "
    "max_wal_size checkpoint_timeout max_connections autovacuum jit data_checksums"
)
START_LIMIT_S = 60
# Longest time between two reports of PostgreSQL 14's backends to its collector.
COLLECTOR_DELAY_S = 0.6
CPU_READINGS = 4


class Server:
    """A server to make databases on. Close it."""

    def __init__(self, url, postmaster=None, data=None):
        self.base = url
        self._process, self._data = postmaster, data
        self.admin = Session(libpq_environment(self.url("postgres")))
        self.pid = self._local_postmaster()

    def url(self, database):
        """Address of a database on it."""
        return urlsplit(self.base)._replace(path=f"/{database}").geturl()

    def session(self, database):
        """A session on a database of it."""
        return Session(libpq_environment(self.url(database)))

    def create(self, database):
        """Makes an empty database."""
        self.drop(database)
        self.admin.ask(f"create database {database}")

    def drop(self, database):
        """Takes it away, with its connections."""
        self.admin.ask(f"drop database if exists {database} with (force)")

    def rest(self):
        """Writes a checkpoint, so that every run has the same page images to write."""
        self.admin.ask("checkpoint")
        self._publish()

    def settings(self):
        """Version and settings that move figures."""
        return {name: self.admin.ask(f"show {name}") for name in REPORTED.split()}

    def counters(self, database):
        """WAL of the server, commits of the database, CPU of the server's processes."""
        self._publish()
        wal, commits = self.admin.ask(
            "select w.wal_bytes, d.xact_commit from pg_stat_wal w, pg_stat_database d "
            f"where d.datname = '{database}'"
        ).split("|")
        return {"wal_bytes": int(wal), "commits": int(commits), "server_cpu_us": self._cpu_us()}

    def alone(self, database, limit_s=30):
        """Waits until no session is connected to the database: only then are its counters complete."""
        sql = (
            "select count(*) from pg_stat_activity "
            f"where datname = '{database}' and backend_type = 'client backend'"
        )
        deadline = time.monotonic() + limit_s
        while self.admin.ask(sql) != "0" and time.monotonic() < deadline:
            time.sleep(0.05)

    def close(self):
        """Ends a server of our own, and takes its files away."""
        self.admin.close()
        if self._process:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                self._process.wait(START_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._data:
            shutil.rmtree(self._data, ignore_errors=True)

    def _cpu_us(self):
        """The most of some readings: one misses a backend that is reaped while it reads."""
        readings = []
        for _ in range(CPU_READINGS):
            readings.append(family_cpu_us(self.pid))
            time.sleep(0.05)
        return max((us for us in readings if us is not None), default=None)

    def _publish(self):
        """Has our own session's counters counted now, not in the middle of a run."""
        if int(self.admin.ask("show server_version_num")) >= 150_000:
            self.admin.ask("select pg_stat_force_next_flush()")
        else:
            time.sleep(COLLECTOR_DELAY_S)

    def _local_postmaster(self):
        """The server's process, if it is on this machine: the parent of our own backend."""
        pid = int(self.admin.ask("select pg_backend_pid()"))
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        if not line.startswith(b"postgres: ") or b" postgres " not in line:
            return None
        return int(stat(pid)[1])


def start_private():
    """A server of our own in a temporary directory, on a free port of the loopback interface."""
    bin_dir = find_binaries()
    data = Path(tempfile.mkdtemp(prefix="tuskline-peers-"))
    user = {}
    if os.geteuid() == 0:  # which it refuses to run as
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(data, "postgres", "postgres")
    log = data / "log"
    try:
        initdb = [bin_dir / "initdb", "-D", data / "db", "-U", "postgres", "-A", "trust"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=data, **user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [bin_dir / "postgres", "-D", data / "db", "-p", str(port), "-k", data, *options]
        with open(log, "wb") as out:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                cwd=data,
                process_group=0,
                preexec_fn=lambda: die_with_parent(signal.SIGINT),
                **user,
            )
        wait_until_ready(bin_dir, port, process, log)
    except BaseException:
        if "process" in locals():
            process.kill()
            process.wait()
        shutil.rmtree(data, ignore_errors=True)
        raise
    return Server(f"postgresql://postgres@127.0.0.1:{port}/postgres", process, data)


def wait_until_ready(bin_dir, port, process, log):
    """Until it takes connections."""
    ready = [bin_dir / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    deadline = time.monotonic() + START_LIMIT_S
    while subprocess.run(ready).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"PostgreSQL did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def find_binaries():
    """TUSKLINE_PG_BIN, else pg_config's, else the newest of Debian's places."""
    if given := os.environ.get("TUSKLINE_PG_BIN"):
        return Path(given)
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: place.parent.name)
    for place in reversed(places):
        if (place / "initdb").exists():
            return place
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    raise SystemExit("no PostgreSQL found: set TUSKLINE_PG_BIN or give --database-url")


def libpq_environment(url):
    """A URL as libpq's variables, so that no password is seen among the arguments of a process."""
    parts = urlsplit(url)
    found = {
        "PGHOST": parts.hostname,
        "PGPORT": parts.port,
        "PGUSER": parts.username and unquote(parts.username),
        "PGPASSWORD": parts.password and unquote(parts.password),
        "PGDATABASE": parts.path.lstrip("/"),
    }
    found |= {f"PG{name.upper()}": value for name, value in parse_qsl(parts.query)}
    return {name: str(value) for name, value in found.items() if value}
