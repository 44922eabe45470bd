"""procrastinate: one worker with a concurrency of 50."""

import asyncio
import contextlib

import procrastinate

BULK = 1000
_tally = None


def made(url, most):
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=most)
    app = procrastinate.App(connector=connector)

    @app.task(queue="bench", name="bench")
    async def bench(pad, at_ns=None):
        _tally.start(at_ns)

    return app, bench


async def setup(url):
    app, _ = made(url, 2)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def preload(url, tasks, payload):
    app, bench = made(url, 2)
    async with app.open_async():
        for left in range(tasks, 0, -BULK):
            await bench.batch_defer_async(*[payload] * min(left, BULK))


@contextlib.asynccontextmanager
async def sender(url, connections):
    app, bench = made(url, connections)
    async with app.open_async():

        async def insert(payload):
            await bench.defer_async(**payload)

        yield insert


@contextlib.asynccontextmanager
async def worker(url, tally):
    global _tally
    _tally = tally
    app, _ = made(url, 20)
    async with app.open_async():
        options = {"concurrency": 50, "install_signal_handlers": False}
        running = asyncio.create_task(app.run_worker_async(queues=["bench"], **options))
        await asyncio.sleep(0.5)  # it says nowhere that it listens
        yield
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
