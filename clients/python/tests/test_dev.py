"""`tusk dev`: a PostgreSQL of its own, a server, the app, and its first task."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .fake_controller import HERE, PATIENCE_SECONDS
Started = list[subprocess.Popen[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    os.chmod(tmp_path.parent.parent, 0o755)  # as root, PostgreSQL runs under another account
    os.chmod(tmp_path.parent, 0o755)
    os.chmod(tmp_path, 0o755)
    return tmp_path


@pytest.fixture
def started(home: Path) -> Iterator[Started]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for one in processes:
        one.kill()
        one.communicate(timeout=PATIENCE_SECONDS)


def begin(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuskline", "dev", "tests.executed:app", *arguments],
        cwd=HERE.parent,
        env={**os.environ, "TUSKLINE_DATA_DIR": str(home / "pg"), "TUSKLINE_LISTEN": "127.0.0.1:0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until_said(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join(lines))


def is_gone(home: Path) -> bool:
    return not (home / "pg" / "data" / "postmaster.pid").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_task_runs_and_a_signal_ends_all_in_order(
    home: Path, started: Started, number: signal.Signals
) -> None:
    dev = begin(home, "echo", '{"hello": ["Ada", 9007199254740993]}')
    started.append(dev)
    lines = until_said(dev, "output")
    assert "9007199254740993" in lines[-1], lines
    address = next(line for line in lines if line.startswith("tusk: export TUSKLINE_DATABASE_URL='postgresql://"))
    assert "; pages: http://127.0.0.1:" in address
    dev.send_signal(number)
    said, _ = dev.communicate(timeout=PATIENCE_SECONDS)
    assert dev.returncode == 0, said
    assert is_gone(home)


def test_what_it_started_ends_when_it_is_killed(home: Path, started: Started) -> None:
    dev = begin(home)
    started.append(dev)
    until_said(dev, "an executor has joined")
    dev.kill()
    # Each process of it has the other end of this pipe.
    dev.communicate(timeout=PATIENCE_SECONDS)
    assert is_gone(home)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dance",), "the app has no lambda dance; it has "),
        (("noop", '"one"'), "the payload of noop: the JSON is no int"),
    ],
)
def test_a_wrong_first_task_is_refused(
    home: Path, started: Started, arguments: tuple[str, ...], said: str
) -> None:
    dev = begin(home, *arguments)
    started.append(dev)
    lines, _ = dev.communicate(timeout=PATIENCE_SECONDS)
    assert dev.returncode == 1 and f"tusk: {said}" in lines, lines
    assert is_gone(home)
