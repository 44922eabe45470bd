"""The workloads for the peers: what Tuskline's own bench does, done to them."""

import contextlib
import math
import time

from .process import Failed, Process

# As Tuskline's bench: connections that insert, rate and longest window under a held snapshot.
CONNECTIONS = 8
HELD_RATE = 500
WINDOW_S = 30
# Until a fresh worker listens and sleeps.
CALM_S = 1.0
START_LIMIT_S = 60
END_LIMIT_S = 60
HOLD = "begin isolation level repeatable read; select txid_current()"


def patience_s(tasks):
    """Longest time so many tasks may take: that of Tuskline's bench."""
    return 60 + tasks / 2000


class Site:
    """One peer in a database of its own."""

    def __init__(self, server, peer, database):
        self.server, self.peer, self.database = server, peer, database
        self.environment = {"PEER_URL": server.url(database), "DATABASE_URL": ""}
        self._open = contextlib.ExitStack()
        self._session, self._asked = None, 0

    def __enter__(self):
        self.server.create(self.database)
        self._open.callback(self._hang_up)
        self.run("setup", limit_s=START_LIMIT_S)
        return self

    def __exit__(self, *_):
        self._open.close()
        self.server.drop(self.database)

    def start(self, *words):
        """A process of the peer, which ends with this site at the latest."""
        process = Process((*self.peer.command, *(str(word) for word in words)), self.environment)
        self._open.callback(process.close)
        return process

    def run(self, *words, limit_s):
        """A process of the peer, to its end; all that it says."""
        return self.start(*words).text(limit_s)

    def ask(self, sql):
        """The rows of a statement; it is not counted."""
        self._session = self._session or self.server.session(self.database)
        self._asked += 1
        return self._session.ask(sql)

    def settle(self):
        """Brings the server to rest, as Tuskline's bench does before it drains."""
        self.ask("vacuum analyze")
        self.server.rest()

    def counters(self, alone=True):
        """What the server has counted. Complete only once no session is connected."""
        self._hang_up()
        if alone:
            self.server.alone(self.database)
        counted = self.server.counters(self.database)
        return counted | {"commits": counted["commits"] - self._asked}

    def done(self, tasks):
        """How many of so many tasks are done."""
        return int(self.ask(self.peer.done.format(tasks=tasks)))

    def until_done(self, tasks, limit_s):
        """Waits until all are done. Failed: not within the limit."""
        deadline = time.monotonic() + limit_s
        while (done := self.done(tasks)) < tasks:
            if time.monotonic() > deadline:
                raise Failed(f"{done:,} of {tasks:,} done within {limit_s:.0f} s")
            time.sleep(0.01)

    def check(self, tasks, executed):
        """Refuses the figures of a run that lost, repeated or failed something."""
        done, failed = self.done(tasks), int(self.ask(self.peer.failed))
        if (done, failed, executed) != (tasks, 0, tasks):
            raise Failed(f"{tasks:,} tasks: {executed:,} started, {done:,} done, {failed:,} failed")

    def _hang_up(self):
        if self._session:
            self._session.close()
        self._session = None


def drain(server, peer, database, tasks):
    """Bulk preload, then from the first start of a task until the last is done."""
    with Site(server, peer, database) as site:
        site.run("preload", tasks, limit_s=patience_s(tasks))
        site.settle()
        before = site.counters()
        worker = site.start("work", tasks)
        worker.expect("ready", START_LIMIT_S)
        try:
            worker.expect("all_started", patience_s(tasks))
        except Failed as failed:
            raise Failed(f"{failed}; {site.done(tasks):,} of {tasks:,} done") from None
        site.until_done(tasks, END_LIMIT_S)
        ended_ns = time.monotonic_ns()
        client_us, seen = end(worker)
        site.check(tasks, seen["executed"])
        costs = per_task(before, site.counters(), tasks, client_us)
    seconds = (ended_ns - seen["first_ns"]) / 1e9
    return {"tasks": tasks, "seconds": seconds, "tasks_per_s": tasks / seconds} | costs


def latency(server, peer, database, rate, seconds):
    """Single inserts at a fixed rate: from just before the insert call to the task's start."""
    tasks = rate * seconds
    with Site(server, peer, database) as site:
        worker = site.start("work", 0)
        worker.expect("ready", START_LIMIT_S)
        time.sleep(CALM_S)
        before = site.counters(alone=False)
        sender = site.start("send", rate, seconds, CONNECTIONS)
        sender.expect("sent", seconds + END_LIMIT_S)
        sender_us = sender.cpu_us()
        sender.wait(END_LIMIT_S)
        site.until_done(tasks, END_LIMIT_S)
        client_us, seen = end(worker)
        site.check(tasks, seen["executed"])
        client_us = client_us + sender_us if client_us and sender_us else None
        costs = per_task(before, site.counters(), tasks, client_us)
    sent_s = (max(at for at, _ in seen["late"]) - min(at for at, _ in seen["late"])) / 1e9
    outcome = {"tasks": tasks, "rate": rate, "sent_per_s": tasks / sent_s if sent_s else None}
    return outcome | quantiles([late for _, late in seen["late"]]) | costs


def held_horizon(server, peer, database, seconds):
    """A fixed rate under a snapshot that is never released: the first and the last seconds."""
    tasks, window_s = HELD_RATE * seconds, min(WINDOW_S, seconds // 3)
    with Site(server, peer, database) as site:
        worker = site.start("work", 0)
        worker.expect("ready", START_LIMIT_S)
        time.sleep(CALM_S)
        holder = server.session(database)
        try:
            holder.ask(HOLD)
            sender = site.start("send", HELD_RATE, seconds, CONNECTIONS)
            sender.expect("sent", 2 * seconds + END_LIMIT_S)
            ended_ns = time.monotonic_ns()
        finally:
            holder.close()
        problem = None
        try:
            site.until_done(tasks, END_LIMIT_S)
        except Failed as failed:
            problem = str(failed)
        _, seen = end(worker)
        if not problem:
            site.check(tasks, seen["executed"])
    began_ns = ended_ns - seconds * 1_000_000_000
    if seen["late"]:
        began_ns = min(at for at, _ in seen["late"])
    windows = {
        "first": (began_ns, began_ns + window_s * 1_000_000_000),
        "last": (ended_ns - window_s * 1_000_000_000, ended_ns),
    }
    parts = {name: window(seen["late"], *bounds) for name, bounds in windows.items()}
    outcome = {"tasks": tasks, "rate": HELD_RATE, "window_s": window_s, "parts": parts}
    return outcome | ({"problem": problem} if problem else {})


def window(late, from_ns, to_ns):
    """Latency of what was inserted within a window, and how many tasks started within it."""
    inserted = [late_us for at, late_us in late if from_ns <= at < to_ns]
    starts = sum(from_ns <= at + late_us * 1000 < to_ns for at, late_us in late)
    return {"started": starts} | quantiles(inserted)


def end(worker):
    """Ends a worker in order: its CPU until then in µs, and what it saw."""
    client_us = worker.cpu_us()
    worker.tell_to_end()
    seen = worker.expect("end", END_LIMIT_S)
    worker.wait(END_LIMIT_S)
    return client_us, seen


def per_task(before, after, tasks, client_us):
    """Costs by task; None: not known here."""
    server_us = None
    if before["server_cpu_us"] is not None and after["server_cpu_us"] is not None:
        server_us = (after["server_cpu_us"] - before["server_cpu_us"]) / tasks
    return {
        "wal_bytes_per_task": (after["wal_bytes"] - before["wal_bytes"]) / tasks,
        "commits_per_task": (after["commits"] - before["commits"]) / tasks,
        "server_cpu_us_per_task": server_us,
        "client_cpu_us_per_task": None if client_us is None else client_us / tasks,
    }


def quantiles(late_us):
    """The usual four in ms, each a value that was measured; None: nothing was."""
    ordered = sorted(late_us)
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}

    def at(share):
        return ordered[max(math.ceil(share * len(ordered)), 1) - 1] / 1000 if ordered else None

    return {name: at(share) for name, share in shares.items()}
