"""The share of the socket in the latency of a Python task: `hop.py [SECONDS]`, on a server of its own.

Two times of each task: from just before its insert, and from the moment at which the controller has
its claim's answer, both to the first line of its body. The controller says that moment in its log.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent.parent
sys.path[:0] = [str(HERE.parent), str(ROOT / "clients" / "python")]

from tuskline import Context, Tuskline  # noqa: E402

RATES = (200, 500)
CLAIMED = re.compile(r"^(\S+) .*claimed .*tasks=\[([0-9, ]*)\]")
LOG = "warn,tuskline_sdk::worker::exchange_connection=trace"

tusk = Tuskline()
starts = open(os.environ["HOP_STARTS"], "a", 1) if "HOP_STARTS" in os.environ else None


@tusk("bench")
async def bench(payload: dict, context: Context) -> None:
    now = time.time_ns()
    line = {"task": context.task, "at_ns": now, "waited_ns": time.monotonic_ns() - payload["at_ns"]}
    starts.write(json.dumps(line) + "\n")


def claims(log):
    """When the controller had each task, in nanoseconds since 1970."""
    found = {}
    for line in log:
        if seen := CLAIMED.match(line):
            at = datetime.fromisoformat(seen[1].replace("Z", "+00:00")).timestamp()
            found |= {int(task): int(at * 1e6) * 1000 for task in seen[2].split(",")}
    return found


def quantiles(ns):
    ns = sorted(ns)
    return {f"p{part}_ms": round(ns[len(ns) * part // 100] / 1e6, 3) for part in (50, 90, 99)}


def run(rate, seconds, directory):
    """Starts `tusk run`, sends, and lets it end."""
    log, ours = f"{directory}/log.{rate}", f"{directory}/starts.{rate}"
    environment = os.environ | {"HOP_STARTS": ours, "TUSKLINE_LOG": LOG, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tuskline", "run", "hop:tusk", "--slots", "32"]
    with open(log, "w") as errors:
        worker = subprocess.Popen(command, cwd=HERE, env=environment, stderr=errors)
    time.sleep(3)  # until it listens
    import main
    import tuskline_peer

    asyncio.run(main.send(tuskline_peer, os.environ["PEER_URL"], rate, seconds, 8))
    time.sleep(1)
    worker.terminate()
    worker.wait()
    with open(log) as said, open(ours) as began:
        claimed, started = claims(said), [json.loads(line) for line in began]
    if len(started) != rate * seconds:
        sys.exit(f"{len(started)} of {rate * seconds} tasks have started")
    hops = [one["at_ns"] - claimed[one["task"]] for one in started]
    whole = quantiles([one["waited_ns"] for one in started])
    print(json.dumps({"rate": rate, "tasks": len(started), "whole": whole, "hop": quantiles(hops)}))


def measure(seconds):
    from runner.server import start_private

    with contextlib.closing(start_private()) as server, tempfile.TemporaryDirectory() as directory:
        server.create("hop")
        os.environ |= {
            "PEER_URL": server.url("hop"),
            "PEER_SLOTS": "32",
            "TUSKLINE_DATABASE_URL": server.url("hop"),
            "TUSKLINE_BINARY": str(ROOT / "target" / "release" / "tuskline"),
            "PYTHONPATH": str(ROOT / "clients" / "python"),
        }
        import tuskline_peer

        asyncio.run(tuskline_peer.setup(os.environ["PEER_URL"]))
        for rate in RATES:
            run(rate, seconds, directory)


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
