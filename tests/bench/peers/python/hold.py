"""Ends executors whose C code holds the interpreter's lock for 60 s: `hold.py [KILLS]`, on a server of its own.

Needs psycopg and a C compiler. The deadline is 2 s. The C writes the time into a file of its task each
20 us, so its last instruction is known. Calm tasks run beside it in the same processes, and are charged
nothing. Ends with 1 if one of these promises does not hold.
"""

import contextlib
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent.parent
sys.path[:0] = [str(HERE.parent), str(ROOT / "clients" / "python")]

from tuskline import Context, Tuskline  # noqa: E402

SECONDS = 60
PROCESSES = 8
SOURCE = r"""
#include <time.h>
static long long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
void hold(volatile long long *last, long long seconds) {
    long long next = now(CLOCK_MONOTONIC), end = next + seconds * 1000000000LL;
    for (; next < end; next += 20000) {
        *last = now(CLOCK_REALTIME);
        while (now(CLOCK_MONOTONIC) < next) {}
    }
}
"""

tusk = Tuskline()


@tusk("hog", timeout="2 s", max_attempts=1, slots=1)
def hog(context: Context) -> None:
    directory = Path(os.environ["HOLD_DIRECTORY"])
    with open(directory / str(context.task), "w+b") as file:
        file.truncate(8)
        last = ctypes.c_longlong.from_buffer(mmap.mmap(file.fileno(), 8))
    # Functions of a PyDLL keep the interpreter's lock.
    ctypes.PyDLL(str(directory / "hold.so")).hold(ctypes.byref(last), ctypes.c_longlong(SECONDS))
    (directory / f"{context.task}.returned").touch()


@tusk("calm", slots=2)
def calm(context: Context) -> None:
    (Path(os.environ["HOLD_DIRECTORY"]) / f"calm.{context.task}.{context.fence}").touch()
    time.sleep(1.5)


def compile_c(directory):
    (directory / "hold.c").write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", directory / "hold.so", directory / "hold.c"], check=True)


def run(connection, kills):
    """Has all tasks executed, and returns their rows."""
    command = [sys.executable, "-m", "tuskline", "run", "hold:tusk", "--processes", str(PROCESSES), "--cancel-grace", "300ms"]
    hog.schedule_many([None] * kills, within=connection)
    calm.schedule_many([None] * 2 * kills, within=connection)
    connection.commit()
    worker = subprocess.Popen(command, cwd=HERE, stderr=subprocess.DEVNULL)
    try:
        while connection.execute("select exists (select from tuskline.task where finished_at is null)").fetchone()[0]:
            connection.commit()
            if worker.poll() is not None:
                sys.exit(f"tusk run ended with {worker.returncode}")
            time.sleep(0.2)
    finally:
        worker.terminate()
        worker.wait()
    return connection.execute(
        "select lambda, id, status::text, task.attempt, crashes, error_class, extract(epoch from failed_at) * 1000"
        "  from tuskline.task left join tuskline.task_failure on task_id = id"
    ).fetchall()


def judge(rows, directory, kills):
    ended, calm_ones = ([row for row in rows if row[0] == name] for name in ("hog", "calm"))
    last = {row[1]: int.from_bytes((directory / str(row[1])).read_bytes(), "little") / 1e6 for row in ended}
    after = [float(row[6]) - last[row[1]] for row in ended if row[5] == "timeout"]
    result = {
        "holders": len(ended),
        "ended_as_timeout": len(after),
        "returned_to_python": len(list(directory.glob("*.returned"))),
        "last_write_to_hand_back_ms": {
            "min": round(min(after), 1),
            "median": round(statistics.median(after), 1),
            "max": round(max(after), 1),
        },
        "neighbours": len(calm_ones),
        "handed_back": len(list(directory.glob("calm.*"))) - len(calm_ones),
        "uncharged": sum(row[2:5] == ("success", 1, 0) for row in calm_ones),
    }
    print(json.dumps(result))
    is_kept = len(after) == kills and min(after) > 0 and result["uncharged"] == 2 * kills
    return is_kept and result["returned_to_python"] == 0


def measure(kills):
    import psycopg
    from runner.server import start_private

    with contextlib.closing(start_private()) as server, tempfile.TemporaryDirectory() as made:
        server.create("hold")
        url, directory, binary = server.url("hold"), Path(made), ROOT / "target" / "release" / "tuskline"
        os.environ |= {"TUSKLINE_DATABASE_URL": url, "TUSKLINE_BINARY": str(binary), "HOLD_DIRECTORY": made}
        os.environ["PYTHONPATH"] = str(ROOT / "clients" / "python")
        compile_c(directory)
        subprocess.run([binary, "migrate"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "tuskline", "define", "hold:tusk"], check=True, cwd=HERE)
        with psycopg.connect(url) as connection:
            return judge(run(connection, kills), directory, kills)


if __name__ == "__main__":
    sys.exit(0 if measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100) else 1)
