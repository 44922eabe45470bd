"""The executor against a controller in memory: outcomes, cancel, drain, lost answers, and a controller that is gone."""

import json
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tuskline import Context, Tuskline
from tuskline._executor.joined import Joined
from tuskline._executor.one_slot import OneSlot

from .fake_controller import PATIENCE_SECONDS, FakeController, start

Started = Callable[..., "subprocess.Popen[bytes]"]
ALL = "echo,echo_sync,fails,fails_sync,waits,waits_sync,sleeps,keeps,keeps_sync,noop,starts_a_program"


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


@pytest.fixture
def executor(controller: FakeController) -> Iterator[Started]:
    processes: list[subprocess.Popen[bytes]] = []

    def begin(lambdas: str = ALL, slots: int = 8, **environment: str) -> "subprocess.Popen[bytes]":
        process = start(
            controller, "executor", "tests.executed:app", "--slots", str(slots), TUSKLINE_LAMBDAS=lambdas, **environment
        )
        processes.append(process)
        return process

    yield begin
    for one in processes:
        one.kill()
        one.communicate()


def reached(path: Path) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while not path.exists() or not path.read_text():
        assert time.monotonic() < until, f"{path} is not there"
        time.sleep(0.002)
    return path.read_text()


def ends(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said.decode()


def step(tmp_path: Path, name: str = "") -> dict[str, str]:
    return {"there": str(tmp_path / f"there{name}"), "on": str(tmp_path / f"on{name}")}


def test_join_says_what_it_serves(controller: FakeController, executor: Started) -> None:
    executor("echo,alone", slots=4)
    join = controller.wait(lambda: controller.executors.get("1.x")).join
    assert join["protocol"] == 1 and join["sdk"].startswith("python/")
    assert join["lambdas"] == [
        {"name": "echo", "slots": 4},
        {"name": "alone", "slots": 1, "isolate": True, "memory_mib": 256},
    ]


@pytest.mark.parametrize("value", [9007199254740993, "ü ☃ \x00 \"\\", None, [1, {"a": None}], 1.5, "x" * 100_000])
def test_a_value_comes_back_as_it_was(controller: FakeController, executor: Started, value: Any) -> None:
    executor()
    result = controller.result_of(controller.put("echo", value))
    assert result["status"] == "success"
    assert value == (None if "output" not in result else json.loads(result["output"]))
    output = json.loads(controller.result_of(controller.put("echo_sync", value))["output"])
    assert output["value"] == value


def test_no_payload_is_null(controller: FakeController, executor: Started) -> None:
    executor()
    task = controller.put("echo")
    del task["payload"]
    assert "output" not in controller.result_of(task)


def test_variables_of_a_thread_end_with_the_attempt(controller: FakeController, executor: Started) -> None:
    executor(slots=1)
    for _ in range(3):
        output = json.loads(controller.result_of(controller.put("echo_sync", 1))["output"])
        assert (output["thread"], output["context"]) == ("tuskline slot", "nothing")


@pytest.mark.parametrize(("name", "lambdas"), [("fails", ALL), ("fails_sync", ALL), ("fails_sync", "fails_sync")])
def test_each_end_has_its_status(controller: FakeController, executor: Started, name: str, lambdas: str) -> None:
    process = executor(lambdas, slots=1 if lambdas == "fails_sync" else 8)

    def said(how: str) -> dict[str, Any]:
        result = controller.result_of(controller.put(name, how))
        return {key: value for key, value in result.items() if key not in ("task", "fence")}

    assert said("retry") == {
        "status": "retriable_failure", "error_class": "Retry", "message": "busy", "after_ms": 10_000,
    }
    assert said("fatal") == {"status": "fatal_failure", "error_class": "Fatal", "message": "never"}
    assert said("snooze") == {"status": "snoozed", "after_ms": 3_600_000}
    cause = said("cause")
    assert cause["error_class"] == "RuntimeError" and cause["message"].startswith("outer: inner (")
    assert "executed.py:" in cause["message"]
    assert said("exit")["error_class"] == "SystemExit"
    assert said("interrupt")["error_class"] == "KeyboardInterrupt"
    assert said("cancelled")["status"] == "retriable_failure"
    assert said("nan") | {"message": ""} == {"status": "fatal_failure", "error_class": "output", "message": ""}
    assert said("object")["error_class"] == "output"
    assert said("surrogate")["message"].startswith("half ? \x00")
    assert len(said("long")["message"].encode()) <= 8192
    huge = said("huge")
    assert (huge["status"], huge["error_class"]) == ("fatal_failure", "output") and "too large" in huge["message"]
    bad = controller.put(name)
    bad["payload"] = "{"
    assert controller.result_of(bad)["error_class"] == "payload"
    assert process.poll() is None


def test_one_lambda_that_waits_delays_no_other(controller: FakeController, executor: Started, tmp_path: Path) -> None:
    executor()
    slow = controller.put("waits", step(tmp_path))
    slow_sync = controller.put("waits_sync", step(tmp_path, "_sync"))
    reached(tmp_path / "there")
    reached(tmp_path / "there_sync")
    for number in range(200):
        controller.put("echo", number)
    controller.wait(lambda: len(controller.results) == 200)
    for on in ("on", "on_sync"):
        (tmp_path / on).touch()
    assert controller.result_of(slow)["output"] == controller.result_of(slow_sync)["output"] == '"went on"'


@pytest.mark.parametrize("name", ["waits", "waits_sync"])
def test_a_lambda_hears_of_its_cancel(
    controller: FakeController, executor: Started, tmp_path: Path, name: str
) -> None:
    executor()
    task = controller.put(name, step(tmp_path))
    reached(tmp_path / "there")
    controller.cancel(task)
    assert controller.result_of(task)["output"] == '"told"'


def test_the_one_slot_hears_of_its_cancel_in_another_thread(
    controller: FakeController, executor: Started, tmp_path: Path
) -> None:
    executor("alone")
    # Lane 1 is there before the first task, and takes none.
    controller.wait(lambda: 1 in next(iter(controller.executors.values())).numbers if controller.executors else False)
    task = controller.put("alone", step(tmp_path))
    reached(tmp_path / "there")
    controller.cancel(task)
    output = json.loads(controller.result_of(task)["output"])
    assert output["told"] and output["threads"] == ["MainThread", "tuskline cancels", "tuskline progress"]
    assert [one["percent"] for one in controller.wait(lambda: controller.progress)] == [1]


def test_an_async_lambda_that_does_not_ask_is_cancelled_before_the_kill(
    controller: FakeController, executor: Started, tmp_path: Path
) -> None:
    executor()
    task = controller.put("sleeps", step(tmp_path))
    reached(tmp_path / "there")
    controller.cancel(task, grace_ms=50)
    result = controller.result_of(task)
    assert (result["status"], result["error_class"]) == ("cancelled", "CancelledError")


@pytest.mark.parametrize(("name", "lambdas"), [("keeps", ALL), ("keeps_sync", ALL), ("keeps_sync", "keeps_sync")])
def test_a_checkpoint_goes_up_and_came_along(
    controller: FakeController, executor: Started, name: str, lambdas: str
) -> None:
    executor(lambdas, slots=1 if lambdas == "keeps_sync" else 8)
    task = controller.put(name, 5, checkpoint='{"row":4}')
    assert json.loads(controller.result_of(task)["output"]) == [{"row": 4}, {"row": 5}]
    (saved,) = controller.saved
    assert (saved["task"], saved["fence"], saved["checkpoint"]) == (task["task"], task["fence"], '{"row":5}')


@pytest.mark.parametrize("name", ["keeps", "keeps_sync"])
def test_a_save_that_is_refused_raises_in_the_lambda(
    controller: FakeController, executor: Started, name: str
) -> None:
    executor()
    for status, body, kind in (
        (409, {"code": "TK014", "name": "not_current", "message": "over"}, "Fenced"),
        (503, {"name": "no_database", "message": "away", "retry_after_ms": 100}, "TusklineError"),
    ):
        controller.instead = lambda message, _, a=(status, body): a if message == "Save" else None  # type: ignore[misc]
        result = controller.result_of(controller.put(name, 1))
        assert (result["status"], result["error_class"]) == ("retriable_failure", kind)


# Answers that are lost.


@pytest.mark.parametrize("slots", [1, 2])
def test_a_lost_answer_costs_nothing(controller: FakeController, executor: Started, slots: int) -> None:
    lost: set[tuple[Any, ...]] = set()

    def lose(message: str, body: dict[str, Any]) -> bool:
        """The first answer to each third message."""
        one = (message, body.get("lane"), body.get("no"))
        if message != "NextWork" or body["no"] % 3 or one in lost:
            return False
        lost.add(one)
        return True

    controller.lose = lose
    executor("echo_sync", slots)
    tasks = [controller.put("echo_sync", number) for number in range(60)]
    controller.wait(lambda: len(controller.results) >= 60)
    assert sorted(one["task"] for one in controller.results) == [one["task"] for one in tasks]
    assert len(lost) > 3


def test_a_save_whose_answer_is_lost_is_repeated(controller: FakeController, executor: Started) -> None:
    lost: list[str] = []

    def lose(message: str, body: dict[str, Any]) -> bool:
        if message != "Save" or body["task"] in lost:
            return False
        lost.append(body["task"])
        return True

    controller.lose = lose
    executor()
    for name in ("keeps", "keeps_sync"):
        assert controller.result_of(controller.put(name, 1))["status"] == "success"
    assert len(controller.saved) == 4 and len(lost) == 2


@pytest.mark.parametrize("slots", [1, 2])
def test_a_message_that_was_too_slow_is_repeated(controller: FakeController, executor: Started, slots: int) -> None:
    slow: set[tuple[Any, ...]] = set()

    def instead(message: str, body: dict[str, Any]) -> Any:
        """As if this process had stood still while it wrote."""
        one = (body.get("lane"), body.get("no"))
        if message != "NextWork" or body["no"] % 3 or one in slow:
            return None
        slow.add(one)
        return (408, {"name": "invalid_message", "message": "the message did not arrive in time"})

    controller.instead = instead
    executor("echo_sync", slots)
    tasks = [controller.put("echo_sync", number) for number in range(20)]
    controller.wait(lambda: len(controller.results) >= 20)
    assert sorted(one["task"] for one in controller.results) == [one["task"] for one in tasks]
    assert len(slow) > 2


def test_broken_connections_are_opened_again(controller: FakeController, executor: Started, tmp_path: Path) -> None:
    executor()
    for number in range(5):
        assert controller.result_of(controller.put("echo", number))["status"] == "success"
        controller.break_connections()


# The end.


@pytest.mark.parametrize("lambdas", [ALL, "waits_sync"])
def test_a_drain_lets_what_runs_finish(
    controller: FakeController, executor: Started, tmp_path: Path, lambdas: str
) -> None:
    process = executor(lambdas, slots=1 if lambdas == "waits_sync" else 8)
    task = controller.put("waits_sync", step(tmp_path))
    reached(tmp_path / "there")
    controller.drain()
    process.terminate()  # it heeds no signal
    process.send_signal(2)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    (tmp_path / "on").touch()
    assert ends(process) == (0, "")
    assert controller.result_of(task)["output"] == '"went on"'


def test_a_drain_is_followed_by_a_cancel(controller: FakeController, executor: Started, tmp_path: Path) -> None:
    process = executor()
    task = controller.put("waits", step(tmp_path))
    reached(tmp_path / "there")
    controller.drain()
    lanes = next(iter(controller.executors.values())).told_draining
    controller.wait(lambda: 0 in lanes)
    controller.cancel(task)
    assert ends(process)[0] == 0
    assert controller.result_of(task)["output"] == '"told"'


def test_an_idle_executor_drains_at_once(controller: FakeController, executor: Started) -> None:
    for lambdas, slots in ((ALL, 8), ("echo_sync", 1)):
        process = executor(lambdas, slots)
        controller.wait(lambda: any(0 in one.numbers for one in controller.executors.values()))
        controller.drain()
        assert ends(process) == (0, "")
        controller.draining = False
        controller.executors.clear()


@pytest.mark.parametrize("lambdas", [ALL, "waits_sync"])
def test_without_a_controller_it_exits_though_a_lambda_runs(
    controller: FakeController, executor: Started, tmp_path: Path, lambdas: str
) -> None:
    process = executor(lambdas, slots=1 if lambdas == "waits_sync" else 8)
    controller.put("waits_sync", step(tmp_path))
    reached(tmp_path / "there")
    controller.close()
    code, said = ends(process)
    assert code == 1 and "does not answer" in said


@pytest.mark.parametrize(
    ("status", "name", "code"), [(400, "wrong_number", 2), (410, "unknown_executor", 1), (400, "invalid_message", 2)]
)
@pytest.mark.parametrize("lambdas", [ALL, "waits_sync"])
def test_a_refusal_ends_it(
    controller: FakeController, executor: Started, status: int, name: str, code: int, lambdas: str
) -> None:
    refusal = (status, {"name": name, "message": "no"})
    controller.instead = lambda message, body: refusal if message == "NextWork" else None
    ended, said = ends(executor(lambdas, slots=1 if lambdas == "waits_sync" else 8))
    assert ended == code and f"{status} {name}: no" in said


def test_a_refused_join_ends_it(controller: FakeController, executor: Started) -> None:
    refusal = (400, {"code": "TK001", "name": "unknown_lambda", "message": "lambda echo is not defined"})
    controller.instead = lambda message, body: refusal if message == "Join" else None
    assert ends(executor()) == (2, "tuskline: 400 unknown_lambda: lambda echo is not defined\n")


def test_an_answer_that_is_no_json_ends_it(controller: FakeController, executor: Started) -> None:
    controller.instead = lambda message, body: (404, b"nothing here") if message == "Join" else None
    assert ends(executor()) == (1, "tuskline: 404 None: nothing here\n")


@pytest.mark.parametrize(
    "answer", [b"{", b"[]", {"tasks": [{"task": "1"}]}, {"tasks": [{"task": "1", "fence": "1", "lambda": "nothing"}]}]
)
@pytest.mark.parametrize("lambdas", [ALL, "waits_sync"])
def test_an_answer_without_sense_ends_it(
    controller: FakeController, executor: Started, answer: Any, lambdas: str
) -> None:
    controller.instead = lambda message, body: (200, answer) if message == "NextWork" else None
    code, said = ends(executor(lambdas, slots=1 if lambdas == "waits_sync" else 8))
    assert code == 2 and "an answer has no sense" in said


@pytest.mark.parametrize("lambdas", [ALL, "waits_sync"])
def test_a_stranger_on_the_socket_ends_it(controller: FakeController, executor: Started, lambdas: str) -> None:
    controller.raw = lambda message: b"220 smtp.example.org\r\n\r\n" if message == "NextWork" else None
    code, said = ends(executor(lambdas, slots=1 if lambdas == "waits_sync" else 8))
    assert code == 1 and "does not answer: an answer that is none: b'220 smtp.example.org'" in said


@pytest.mark.parametrize("lambdas", [ALL, "waits_sync"])
def test_a_controller_that_breaks_each_connection_ends_it(
    controller: FakeController, executor: Started, lambdas: str
) -> None:
    controller.instead = lambda message, body: (0, None) if message == "NextWork" else None
    code, said = ends(executor(lambdas, slots=1 if lambdas == "waits_sync" else 8))
    assert code == 1 and "does not answer: the connection ended" in said
    assert 5 < len(controller.messages) < 300


def test_a_line_is_printed_at_once(controller: FakeController, executor: Started, tmp_path: Path) -> None:
    process = executor("waits_sync", slots=1)
    controller.put("waits_sync", step(tmp_path))
    reached(tmp_path / "there")
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_SECONDS)[0], "nothing is printed while the lambda runs"
    assert process.stdout.readline() == b"there\n"


def test_ps_tells_executors_apart(controller: FakeController, executor: Started, tmp_path: Path) -> None:
    process = executor("noop,waits")
    controller.put("waits", step(tmp_path))
    reached(tmp_path / "there")
    title = Path(f"/proc/{process.pid}/cmdline")
    if title.exists():
        assert title.read_text().rstrip("\0") == "tuskline: executor 1 (noop, waits)"


def test_no_socket_is_told(controller: FakeController, executor: Started) -> None:
    code, said = ends(executor(TUSKLINE_SOCKET=""))
    assert code == 2 and "TUSKLINE_SOCKET is not set" in said
    code, said = ends(executor(TUSKLINE_SOCKET="/nowhere/socket"))
    assert code == 1 and "does not answer" in said
    code, said = ends(executor("missing"))
    assert code == 2 and "TUSKLINE_LAMBDAS names missing" in said


def test_a_program_that_a_lambda_starts_heeds_signals(controller: FakeController, executor: Started) -> None:
    executor()
    assert controller.result_of(controller.put("starts_a_program"))["output"] == "[]"


def test_progress_is_the_newest_and_at_most_one_a_second(controller: FakeController, executor: Started) -> None:
    executor("counts,noop")
    task = controller.put("counts", 100)
    assert controller.wait(lambda: controller.progress)[0]["task"] == task["task"]
    while not any(one["task"] == task["task"] for one in controller.results):
        controller.result_of(controller.put("noop", 1))  # a message with results could carry it each time
    assert len(controller.progress) < 25


def test_a_cancel_that_overtakes_its_task_is_heard_when_it_begins() -> None:
    local = Tuskline()

    @local("looks", isolate=True)
    def looks(context: Context) -> bool:
        return context.cancelled

    slot = OneSlot(Joined("/nowhere", "1.x", 8 << 20, {"looks": looks}))
    slot._cancel(("7", "9"))
    result = slot._execute({"task": "7", "fence": "9", "lambda": "looks"})
    assert json.loads(result) == {"task": "7", "fence": "9", "status": "success", "output": "true"}
    assert '"output":"false"' in slot._execute({"task": "7", "fence": "10", "lambda": "looks"})
