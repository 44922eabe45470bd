"""Who is compared: how each is started, asked and set, and what it does not keep."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent.parent

# What Tuskline keeps, each with a letter for the tables.
GUARANTEES = {
    "h": "history of finished tasks",
    "f": "fencing: a stale attempt's result is refused",
    "w": "a dead worker is noticed by its silence (heartbeat or lease)",
    "e": "the error of every failed attempt, not only of the last",
}


@dataclass(frozen=True)
class Peer:
    """One side of the comparison."""

    name: str
    version: str
    command: tuple
    settings: str
    # Letters of GUARANTEES it does not keep as it is run here.
    lacks: str
    # Why, as its source or its documentation says.
    note: str
    # SQL: how many of {tasks} that were inserted are done; how many failed at least once.
    done: str = ""
    failed: str = ""


NODE = ("node", HERE / "node" / "main.mjs")
RUST = (HERE / "rust" / "target" / "release" / "peers",)
GRAPHILE_DONE = "select {tasks} - count(*) from graphile_worker._private_jobs"
GRAPHILE_FAILED = "select count(*) from graphile_worker._private_jobs where last_error is not null"

# Python peers, each with a Python of its own: `build` of ../run makes them.
VENVS = ROOT / "target" / "peers"
PYTHON = {
    "venv": ("requirements.txt", (3, 10)),
    "venv-oban": ("requirements-oban.txt", (3, 12)),
}


def python(venv, *words):
    return ("env", *words[1:], VENVS / venv / "bin" / "python", HERE / "python" / "main.py", words[0])


def ours_in_python(slots):
    binary = ROOT / "target" / "release" / "tuskline"
    package = ROOT / "clients" / "python"
    words = (f"PEER_SLOTS={slots}", f"TUSKLINE_BINARY={binary}", f"PYTHONPATH={package}")
    return python("venv", "tuskline", *words)


OURS_DONE = "select count(*) from tuskline.task where status = 'success'"
OURS_FAILED = "select count(*) from tuskline.task_failure"
AWA_DONE = (
    "select (select coalesce(sum(cardinality(job_ids)), 0) "
    "from awa.receipt_completion_batches) "
    "+ (select count(*) from awa.done_entries where state = 'completed') "
    "+ (select coalesce(sum(pruned_completed_count), 0) from awa.queue_terminal_rollups)"
)
AWA_FAILED = (
    "select (select count(*) from awa.done_entries where state <> 'completed') "
    "+ (select count(*) from awa.deferred_jobs) + (select count(*) from awa.dlq_entries)"
)

PEERS = [
    Peer(
        "tuskline",
        "this checkout",
        (ROOT / "target" / "release" / "tuskline-bench",),
        "defaults; one worker process of `tuskline-bench`, no `tuskline serve` beside it",
        "",
        "",
    ),
    Peer(
        "graphile-worker",
        "0.18.0 (npm)",
        (*NODE, "graphile"),
        "concurrentJobs 24, localQueue.size 500, completeJobBatchDelay 0, maxPoolSize 25",
        "hfwe",
        "deletes a finished job, by its id alone; locks end after 4 hours; last_error only",
        GRAPHILE_DONE,
        GRAPHILE_FAILED,
    ),
    Peer(
        "pg-boss",
        "12.35.0 (npm)",
        (*NODE, "pgboss"),
        "batchSize 500, localConcurrency 2, burstWhenBatchFull, LISTEN/NOTIFY on",
        "we",
        "heartbeats are off unless a queue asks for them; one output per job",
        "select count(*) from pgboss.job where name = 'bench' and state = 'completed'",
        "select count(*) from pgboss.job where name = 'bench' and "
        "(state in ('retry', 'cancelled', 'failed') or retry_count > 0)",
    ),
    Peer(
        "graphile_worker",
        "0.14.1 (crate)",
        (*RUST, "graphile"),
        "concurrency 24, local queue 500, refetch delay 20 ms, completion delay 5 ms, pool 30",
        "hfwe",
        "deletes a finished job, by its id alone; worker recovery is off; last_error only",
        GRAPHILE_DONE,
        GRAPHILE_FAILED,
    ),
    Peer(
        "awa",
        "0.6.9 (crate)",
        (*RUST, "awa"),
        "queue storage, max_workers 1024, claim batch 512, no deadline, poll 50 ms, pool 30",
        "",
        "heartbeats by attempt, not by worker",
        AWA_DONE,
        AWA_FAILED,
    ),
    Peer(
        "plain",
        "ours",
        (*RUST, "plain"),
        "claims 100 by UPDATE, SKIP LOCKED; deletes when done; 2 loops, poll 10 ms, no NOTIFY",
        "hfwe",
        "a table and three statements: no retries, no rescue",
        "select {tasks} - count(*) from job",
        "select 0",
    ),
    Peer(
        "tuskline-python",
        "this checkout",
        ours_in_python(32),
        "`tusk run`, defaults: one process, asyncio, 32 slots",
        "",
        "",
        OURS_DONE,
        OURS_FAILED,
    ),
    Peer(
        "tuskline-python-1",
        "this checkout",
        ours_in_python(1),
        "`tusk run --slots 1`: one process, a blocking function",
        "",
        "",
        OURS_DONE,
        OURS_FAILED,
    ),
    Peer(
        "awa-pg",
        "0.6.9 (PyPI)",
        python("venv", "awa"),
        "100 workers, poll 50 ms, bulk by COPY",
        "",
        "heartbeats by attempt, not by worker",
        AWA_DONE,
        AWA_FAILED,
    ),
    Peer(
        "oban",
        "0.7.0 (PyPI)",
        python("venv-oban", "oban"),
        "one queue, limit 50, pool 10",
        "w",
        "an attempt of more than 5 min is taken for dead, whether it runs or not",
        "select count(*) from oban_jobs where state = 'completed'",
        "select count(*) from oban_jobs where errors <> '[]'",
    ),
    Peer(
        "procrastinate",
        "3.10.0 (PyPI)",
        python("venv", "procrastinate"),
        "concurrency 50, pool 20",
        "fe",
        "a job finishes by its id alone; errors are in the log only",
        "select count(*) from procrastinate_jobs where status = 'succeeded'",
        "select count(*) from procrastinate_jobs where status = 'failed' or attempts > 1",
    ),
]
