"""Memory of the executors of a Django application: `memory.py [PROCESSES]`, on a server of its own.

Needs django, pydantic and psycopg. Each executor runs 2,000 tasks that read by its connection. Then
the PSS of all its Python processes is summed: one and so many started afresh, and forks of one import.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent.parent
sys.path[:0] = [str(HERE.parent), str(ROOT / "clients" / "python")]

import django  # noqa: E402
from django.conf import settings  # noqa: E402

APPS = ("admin", "auth", "contenttypes", "sessions", "messages")
EACH = 2_000

settings.configure(
    INSTALLED_APPS=[f"django.contrib.{app}" for app in APPS],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "memory"}},  # the rest: PGHOST and so on
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)
django.setup()

import django.contrib.admin.sites  # noqa: E402, F401
from django.db import connection, transaction  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from tuskline import Tuskline  # noqa: E402

tusk = Tuskline()


class Order(BaseModel):
    number: int
    note: str


@tusk("welcome")
def welcome(order: Order) -> int:
    return ask("select %s::int", order.number)


def ask(sql, *arguments):
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return cursor.fetchone()[0]


def descendants(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] + [one for child in children for one in descendants(child)]


def pss_kib(pid):
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))


def run(processes, *more):
    command = [sys.executable, "-m", "tuskline", "run", "memory:tusk", "--slots", "4", "--processes", str(processes)]
    worker = subprocess.Popen([*command, *more], cwd=HERE, stderr=subprocess.DEVNULL)
    try:
        wanted = ask("select count(*) from tuskline.tasks") + processes * EACH
        for _ in range(processes):
            with transaction.atomic():
                welcome.schedule_many([Order(number=1, note="a note")] * EACH, within=connection)
        while ask("select count(*) from tuskline.tasks where status = 'success'") < wanted:
            if worker.poll() is not None:
                sys.exit(f"tusk run ended with {worker.returncode}")
            time.sleep(0.2)
        of_python = [pid for pid in (worker.pid, *descendants(worker.pid)) if "python" in os.readlink(f"/proc/{pid}/exe")]
        pss = [pss_kib(pid) for pid in of_python]
        line = {"processes": processes, "spawn": "--spawn" in more, "pss_mib": round(sum(pss) / 1024, 1)}
        print(json.dumps(line | {"largest_mib": round(max(pss) / 1024, 1)}))
    finally:
        worker.terminate()
        worker.wait()


def measure(processes):
    from runner.server import libpq_environment, start_private

    binary = ROOT / "target" / "release" / "tuskline"
    with contextlib.closing(start_private()) as server:
        server.create("memory")
        url = server.url("memory")
        os.environ |= libpq_environment(url) | {"TUSKLINE_DATABASE_URL": url, "TUSKLINE_BINARY": str(binary)}
        os.environ["PYTHONPATH"] = str(ROOT / "clients" / "python")
        subprocess.run([binary, "migrate"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "tuskline", "define", "memory:tusk"], check=True, cwd=HERE)
        run(1, "--spawn")
        run(processes, "--spawn")
        run(processes)
        connection.close()


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
