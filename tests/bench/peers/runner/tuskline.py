"""The same workloads by Tuskline's own bench, which makes its database and checks its work."""

import json

from .process import Process
from .workloads import CONNECTIONS, HELD_RATE, patience_s

COSTS = (
    "wal_bytes_per_task commits_per_task server_cpu_us_per_task client_cpu_us_per_task"
).split()
QUANTILES = ("p50_ms", "p95_ms", "p99_ms", "max_ms")


def drain(server, peer, tasks):
    """From the first claim to the last result, by the database's clock."""
    said = bench(server, peer, patience_s(tasks) * 2, "drain", "--tasks", tasks)
    return pick(said, "tasks", "seconds", "tasks_per_s", *COSTS)


def latency(server, peer, rate, seconds):
    """From just before the insert call to the task's start."""
    options = ("--rate", rate, "--seconds", seconds, "--connections", CONNECTIONS)
    said = bench(server, peer, seconds + 180, "latency", *options)
    sent = {"rate": rate, "sent_per_s": said["tasks_per_s"]}
    return pick(said, "tasks", *QUANTILES, *COSTS) | sent


def held_horizon(server, peer, seconds):
    """The first and the last seconds under a held snapshot."""
    options = ("--rate", HELD_RATE, "--seconds", seconds, "--connections", CONNECTIONS)
    said = bench(server, peer, 2 * seconds + 180, "held-horizon", *options)
    parts = {
        part["part"]: pick(part, *QUANTILES) | {"started": part["tasks"]} for part in said["parts"]
    }
    window_s = said["parts"][0]["seconds"]
    return {"tasks": HELD_RATE * seconds, "rate": HELD_RATE, "window_s": window_s, "parts": parts}


def bench(server, peer, limit_s, workload, *options):
    """What `tuskline-bench` reports, or Failed."""
    environment = {"TUSKLINE_DATABASE_URL": server.url("postgres")}
    process = Process((*peer.command, workload, *options, "--json"), environment)
    try:
        return json.loads(process.text(limit_s))
    finally:
        process.close()


def pick(said, *names):
    """Some of its keys."""
    return {name: said[name] for name in names}
