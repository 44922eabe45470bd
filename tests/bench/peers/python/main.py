"""Peers of Tuskline in Python: `main.py PEER ROLE`, on the database of PEER_URL.

Roles and what is said on standard output are those of the Rust peers (../rust/src/main.rs).
"""

import asyncio
import importlib
import os
import sys
import time

from tally import Tally, say

PAD = "x" * 140  # as Tuskline's own bench


async def send(peer, url, rate, seconds, connections):
    """Single inserts at a fixed rate: each connection on a beat of its own, late ones at once."""
    tasks, gap_s = rate * seconds, connections / rate
    async with peer.sender(url, connections) as insert:
        began = time.monotonic()

        async def beats(number):
            share = tasks // connections + (number < tasks % connections)
            for turn in range(share):
                early = began + (number / connections + turn) * gap_s - time.monotonic()
                if early > 0:
                    await asyncio.sleep(early)
                await insert({"at_ns": time.monotonic_ns(), "pad": PAD})

        await asyncio.gather(*map(beats, range(connections)))
        say("sent", {"tasks": tasks})


async def work(peer, url, expected):
    """Until standard input closes."""
    tally = Tally(expected)
    async with peer.worker(url, tally):
        say("ready", {})
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    tally.end()


def main():
    name, role, *words = sys.argv[1:]
    peer, url = importlib.import_module(f"{name}_peer"), os.environ["PEER_URL"]
    numbers = [int(word) for word in words]
    if role == "setup":
        asyncio.run(peer.setup(url))
    elif role == "preload":
        asyncio.run(peer.preload(url, numbers[0], {"pad": PAD}))
    elif role == "send":
        asyncio.run(send(peer, url, *numbers))
    elif role == "work":
        asyncio.run(work(peer, url, numbers[0]))
    else:
        sys.exit(f"no role {role}")


if __name__ == "__main__":
    main()
