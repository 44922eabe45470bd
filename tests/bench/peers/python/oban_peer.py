"""oban: one queue with a limit of 50."""

import contextlib

from oban import Oban, worker as job_worker
from oban.schema import install

BULK = 1000
_tally = None


@job_worker(queue="bench")
class Bench:
    async def process(self, job):
        _tally.start(job.args.get("at_ns"))


@contextlib.asynccontextmanager
async def opened(url, most, **options):
    pool = await Oban.create_pool(url, max_size=most)
    async with Oban(pool=pool, **options) as oban:
        yield oban
    await pool.close()


async def setup(url):
    pool = await Oban.create_pool(url)
    await install(pool)
    await pool.close()


async def preload(url, tasks, payload):
    async with opened(url, 2) as oban:
        for left in range(tasks, 0, -BULK):
            await oban.enqueue_many([Bench.new(payload) for _ in range(min(left, BULK))])


@contextlib.asynccontextmanager
async def sender(url, connections):
    async with opened(url, connections) as oban:

        async def insert(payload):
            await oban.enqueue(Bench.new(payload))

        yield insert


@contextlib.asynccontextmanager
async def worker(url, tally):
    global _tally
    _tally = tally
    async with opened(url, 10, queues={"bench": 50}):
        yield
