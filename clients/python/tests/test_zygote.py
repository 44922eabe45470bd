"""The zygote: forks whose parent is the guardian, and imports that it refuses by name."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .fake_controller import HERE, FakeController, start
from .test_executor import ends, reached, step

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers and /proc are Linux")


class Guardian:
    """A subreaper between the test and the zygote, as the real guardian is."""

    def __init__(self, controller: FakeController, app: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.guardian", app],
            cwd=HERE.parent,
            env={**os.environ, "TUSKLINE_SOCKET": controller.path, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


@pytest.fixture
def guardian(controller: FakeController) -> Iterator[Guardian]:
    made = Guardian(controller, "tests.executed:app")
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_zygote_says_what_it_can_fork(controller: FakeController, guardian: Guardian) -> None:
    _, body = controller.wait(lambda: controller.messages and controller.messages[0])
    served = {one["name"]: one for one in body["lambdas"]}
    assert served["alone"] == {"name": "alone", "slots": 3, "isolate": True, "memory_mib": 256}
    assert served["echo"]["slots"] == 32 and "isolate" not in served["echo"]


def test_a_fork_is_the_guardians_and_has_a_session_of_its_own(
    controller: FakeController, guardian: Guardian, tmp_path: Path
) -> None:
    controller.forks = [{"lambdas": ["alone"]}]
    task = controller.put("alone", step(tmp_path))
    pid = int(reached(tmp_path / "there"))
    (tmp_path / "on").touch()
    output = json.loads(controller.result_of(task)["output"])
    assert output == {
        "told": False,
        "pid": pid,
        "parent": guardian.process.pid,
        "session": pid,
        "process": str(pid),
        "threads": ["MainThread", "tuskline cancels", "tuskline progress"],
    }


def test_forks_end_with_the_guardian(controller: FakeController, guardian: Guardian, tmp_path: Path) -> None:
    controller.forks = [{"lambdas": ["alone"]}]
    controller.put("alone", step(tmp_path))
    ended = os.pidfd_open(int(reached(tmp_path / "there")))
    guardian.process.send_signal(signal.SIGKILL)
    import select

    assert select.select([ended], [], [], 20)[0], "the fork lives on"
    os.close(ended)


def test_the_output_of_a_fork_goes_where_the_controller_says(controller: FakeController, tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as log:
        log.bind(path)
        log.listen()

        def read() -> None:
            connection, _ = log.accept()
            with connection:
                while data := connection.recv(4096):
                    heard.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        made = Guardian(controller, "tests.executed:app", TUSKLINE_OUTPUT=path)
        controller.forks = [{"lambdas": ["fails"]}]
        controller.result_of(controller.put("fails", "cause"))
        controller.drain()
        made.process.wait(20)
        made.process.communicate()
        reader.join(20)
    said = b"".join(heard).decode()
    assert "task 1001 of fails, attempt 1 failed" in said and "RuntimeError: outer" in said


def test_a_drain_ends_zygote_and_forks(controller: FakeController, guardian: Guardian) -> None:
    controller.forks = [{"lambdas": ["echo", "fails"]}, {"lambdas": ["echo", "fails"]}]
    for number in range(20):
        controller.put("echo", number)
    controller.wait(lambda: len(controller.results) == 20 and len(controller.executors) == 2)
    controller.drain()
    assert ends(guardian.process) == (0, "")


def _module(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "wrong.py").write_text(f"import tuskline\napp = tuskline.Tuskline()\n{text}\n")
    return {"PYTHONPATH": str(tmp_path), "TUSKLINE_GUARDIAN": str(os.getpid())}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, name='exporter', daemon=True).start()",
            "has started threads (exporter), which a fork does not keep",
        ),
        ("import _thread, time\n_thread.start_new_thread(time.sleep, (60,))", "started 1 threads outside Python"),
        ("raise ValueError('no settings')", "the import of wrong failed: ValueError: no settings ("),
        ("app = 4", "wrong:app is a int, not a Tuskline"),
        ("del app", "the module wrong has no app"),
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
    ],
)
def test_an_import_that_no_fork_keeps_is_refused_by_name(
    controller: FakeController, tmp_path: Path, text: str, said: str
) -> None:
    process = start(controller, "zygote", "wrong:app", **_module(tmp_path, text))
    code, heard = ends(process)
    assert code == 2 and said in heard
    assert controller.messages == []


def test_an_import_that_opens_a_connection_is_refused_by_name(controller: FakeController, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket\nkept = socket.create_connection(('127.0.0.1', {port}))"
        process = start(controller, "zygote", "wrong:app", **_module(tmp_path, text))
        code, heard = ends(process)
    assert code == 2 and f"has opened connections (127.0.0.1:{port})" in heard


def test_a_zygote_without_a_guardian_is_refused(controller: FakeController, tmp_path: Path) -> None:
    environment: dict[str, Any] = {**_module(tmp_path, ""), "TUSKLINE_GUARDIAN": ""}
    code, heard = ends(start(controller, "zygote", "wrong:app", **environment))
    assert code == 2 and "TUSKLINE_GUARDIAN is not set" in heard
