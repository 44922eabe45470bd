"""`tusk run` with the real controller: each task of this file goes through PostgreSQL and a process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tuskline._binary import binary
from tuskline.cli import main
from tuskline.testing import Tusk

from .executed import app, books, dies, echo, echo_sync, hogs, noop, waits
from .executed import Step
from .fake_controller import HERE, PATIENCE_SECONDS
from .test_executor import reached, step


def _has_controller() -> bool:
    return subprocess.run([binary(), "controller", "--help"], capture_output=True).returncode == 0


needs_controller = pytest.mark.skipif(not _has_controller(), reason="this tuskline has no controller yet")
Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run(tusk: Tusk) -> Iterator[Run]:
    tusk.connection.execute("update tuskline_test.pin set at = null")  # workers live by a clock that goes
    processes: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, spec: str = "tests.executed:app", **environment: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", "tuskline", "run", spec, *arguments],
            cwd=HERE.parent,
            env={**os.environ, "TUSKLINE_DATABASE_URL": tusk.url, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        processes.append(process)
        return process

    yield begin
    for one in processes:
        if one.poll() is None:
            one.send_signal(signal.SIGTERM)
        try:
            one.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            one.kill()
            one.communicate()


def ended(tusk: Tusk, *tasks: int) -> list[Any]:
    """Status, attempt, crashes, class of the failure and output of each, once all have ended."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = [
            tusk.connection.execute(
                "select status, attempt, crashes, error_class, output::text, finished_at is not null"
                " from tuskline.task_status(%s)",
                [task],
            ).fetchone()
            for task in tasks
        ]
        if all(row[-1] for row in rows):
            return [row[:-1] for row in rows]
        assert time.monotonic() < until, rows
        time.sleep(0.02)


@needs_controller
@pytest.mark.parametrize("how", [(), ("--spawn",)])
def test_each_kind_of_lambda_runs(tusk: Tusk, run: Run, how: tuple[str, ...]) -> None:
    # Isolated lambdas need the zygote.
    spec = "tests.executed_plain:app" if how else "tests.executed:app"
    process = run("--processes", "2", "--slots", "4", *how, spec=spec)
    tasks = [echo.schedule({"exact": 9007199254740993, "text": "ü ☃"}), *noop.schedule_many(list(range(500)))]
    tasks.append(echo_sync.schedule(7))
    rows = ended(tusk, *tasks)
    assert {row[:3] for row in rows} == {("success", 1, 0)}
    assert rows[0][4] == '{"exact":9007199254740993,"text":"ü ☃"}'
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said.decode()


@needs_controller
def test_business_writes_and_the_success_commit_together(tusk: Tusk, run: Run) -> None:
    tusk.connection.execute("create table booking (task bigint, amount int)")
    run()
    tasks = [books.schedule(amount) for amount in range(5)]
    assert {row[:2] for row in ended(tusk, *tasks)} == {("success", 1)}
    rows = tusk.connection.execute("select task, amount from booking order by task").fetchall()
    assert rows == list(zip(tasks, range(5), strict=True))


@needs_controller
def test_code_that_holds_the_interpreter_lock_ends_in_time(tusk: Tusk, run: Run, tmp_path: Path) -> None:
    run("--cancel-grace", "200ms")
    hog = hogs.schedule(None)
    ((status, attempt, crashes, kind, _),) = ended(tusk, hog)
    assert (status, attempt, crashes, kind) == ("dead", 1, 0, "timeout")


@needs_controller
def test_a_crash_charges_its_task_and_no_neighbour_for_good(tusk: Tusk, run: Run, tmp_path: Path) -> None:
    run()
    neighbour = waits.schedule(Step(**step(tmp_path)))
    reached(tmp_path / "there")
    culprit = dies.schedule(Step(**step(tmp_path, "_dies")))
    reached(tmp_path / "there_dies")
    (tmp_path / "on").touch()  # a task with a crash runs alone: now each in its turn
    rows = ended(tusk, culprit, neighbour)
    assert (rows[0][0], rows[0][2:]) == ("dead", (2, "exit 3", None))
    assert (rows[1][:2], rows[1][4]) == (("success", 1), '"went on"')


@needs_controller
def test_an_import_that_fails_is_told(tusk: Tusk, run: Run) -> None:
    process = run(spec="tests.nothing:app")
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0 and "No module named 'tests.nothing'" in said.decode()


# A wrong call is refused before anything starts.


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    return capsys.readouterr().err


def test_isolated_lambdas_need_the_zygote(tusk: Tusk, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "run", "tests.executed:app", "--spawn")
    assert said == "tusk: alone has isolate=True, which needs the zygote: leave out --spawn (Linux only)\n"


def test_no_program_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUSKLINE_BINARY", "/nowhere/tuskline")
    assert "TUSKLINE_BINARY names /nowhere/tuskline, which is no program" in refused(capsys, "run", "a:b")
    monkeypatch.delenv("TUSKLINE_BINARY")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "tuskline_controller", None)
    assert "pip install 'tuskline[worker]'" in refused(capsys, "run", "a:b")


def test_no_database_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUSKLINE_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert "no database" in refused(capsys, "run", "a:b")


def test_a_deploy_defines_by_the_command(tusk: Tusk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["define", "tests.executed:app", "--app-version", "1.2"]) == 0
    assert "dies: unchanged" in capsys.readouterr().out.splitlines()
    assert "module:name" in refused(capsys, "define", "tests.executed")
    with pytest.raises(SystemExit) as wrong:
        main(["run", "a:b", "--processes", "0"])
    assert wrong.value.code == 2
    app.close()
