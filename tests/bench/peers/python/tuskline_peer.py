"""Tuskline's Python package: `tusk run` with one process, of PEER_SLOTS slots."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import tuskline_app
from psycopg_pool import AsyncConnectionPool

BULK = 1000
HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def end_with_us():
    """In the child: the runner kills us where we overstay."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


async def setup(url):
    os.environ["TUSKLINE_DATABASE_URL"] = url
    subprocess.run([os.environ["TUSKLINE_BINARY"], "migrate"], check=True, stdout=sys.stderr)
    tuskline_app.tusk.url = url
    tuskline_app.tusk.define()


async def preload(url, tasks, payload):
    with psycopg.connect(url) as connection:
        for left in range(tasks, 0, -BULK):
            payloads = [payload] * min(left, BULK)
            tuskline_app.bench.schedule_many(payloads, within=connection)
            connection.commit()


@contextlib.asynccontextmanager
async def sender(url, connections):
    async with AsyncConnectionPool(url, min_size=connections, max_size=connections) as pool:

        async def insert(payload):
            async with pool.connection() as connection:
                await tuskline_app.bench.aschedule(payload, within=connection)

        yield insert


@contextlib.asynccontextmanager
async def worker(url, tally):
    """The tally is the executor's own: what it says is handed on."""
    executor = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def hear(reader, writer):
        executor.set_result(writer)
        async for line in reader:
            sys.stdout.write(line.decode())
            sys.stdout.flush()
            ended.set() if b'"end"' in line[:20] else None

    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/tally"
        server = await asyncio.start_unix_server(hear, path, limit=1 << 30)
        environment = os.environ | {
            "TUSKLINE_DATABASE_URL": url,
            "PEER_TALLY": path,
            "PEER_TASKS": str(tally.expected),
        }
        slots = os.environ["PEER_SLOTS"]
        command = [sys.executable, "-m", "tuskline", "run", "tuskline_app:tusk", "--slots", slots]
        running = await asyncio.create_subprocess_exec(
            *command, cwd=HERE, env=environment, preexec_fn=end_with_us
        )
        if not tally.expected:
            await asyncio.sleep(2)  # until it listens
        yield
        if executor.done():
            executor.result().write(b"end\n")
            await ended.wait()
            tally.end = lambda: None
        running.terminate()
        await running.wait()
        server.close()
