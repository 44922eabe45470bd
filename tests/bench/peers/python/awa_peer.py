"""awa-pg: 100 workers of one queue, asked every 50 ms where nothing wakes them."""

import contextlib
from dataclasses import dataclass
from typing import Optional

from awa import AsyncClient

BULK = 1000


@dataclass
class Bench:
    pad: str
    at_ns: Optional[int] = None


async def setup(url):
    client = AsyncClient(url)
    await client.migrate()
    # The engine that a fresh installation chooses at its first start.
    await client.install_queue_storage(schema="awa")


async def preload(url, tasks, payload):
    client = AsyncClient(url)
    for left in range(tasks, 0, -BULK):
        jobs = [Bench(**payload) for _ in range(min(left, BULK))]
        await client.enqueue_many_copy(jobs, queue="bench")


@contextlib.asynccontextmanager
async def sender(url, connections):
    client = AsyncClient(url)

    async def insert(payload):
        await client.insert(Bench(**payload), queue="bench")

    yield insert


@contextlib.asynccontextmanager
async def worker(url, tally):
    client = AsyncClient(url)

    @client.task(Bench, queue="bench")
    async def bench(job):
        tally.start(job.args.at_ns)

    await client.start([("bench", 100)], poll_interval_ms=50)
    yield
    await client.shutdown()
