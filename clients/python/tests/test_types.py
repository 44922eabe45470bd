"""Calls that the type checkers must refuse: mypy and pyright fail on an ignore that is not needed."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from dataclasses import dataclass

import psycopg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from tuskline import Context, Tuskline

tusk = Tuskline()


@dataclass
class Email:
    to: str


@tusk("typed_email", max_attempts=5, timeout="30 s", unique={"scope": "forever"}, limits=[{"per_second": 5}])
async def send_email(email: Email) -> str:
    return email.to


@tusk("typed_invoice", isolate=True, memory="512 MiB")
def book_invoice(order: int, context: Context) -> int:
    return order


@tusk("typed_tidy")
def tidy(context: Context) -> None: ...


@tusk("typed_nothing")
def nothing() -> None: ...


def blocking(good: psycopg.Connection, session: Session, bad: psycopg.AsyncConnection, worse: AsyncSession) -> None:
    email = Email("ada@example.org")
    number: int = send_email.schedule(email, within=good, delay="1 h", priority="high")
    numbers: list[int] = send_email.schedule_many([email], within=session, unique_keys=["a"])
    book_invoice.schedule(number)
    tidy.schedule(None)
    nothing.schedule(None)
    send_email.schedule(email, within=bad)  # type: ignore[arg-type]
    send_email.schedule(email, within=worse)  # type: ignore[arg-type]
    send_email.schedule(4)  # type: ignore[arg-type]
    send_email.schedule(email, priority="urgent")  # type: ignore[arg-type]
    send_email.schedule(email, dealy="1 h")  # type: ignore[call-arg]
    send_email.schedule(email, delay=[1])  # type: ignore[arg-type]
    send_email.schedule_many([4])  # type: ignore[list-item]
    send_email.schedule_many([email], unique_key="a")  # type: ignore[call-arg]
    book_invoice.schedule("x")  # type: ignore[arg-type]
    tidy.schedule(1)  # type: ignore[arg-type]
    print(numbers)


async def awaited(
    good: psycopg.AsyncConnection, session: AsyncSession, connection: AsyncConnection, bad: psycopg.Connection
) -> None:
    email = Email("ada@example.org")
    number: int = await send_email.aschedule(email, within=good)
    await send_email.aschedule(email, within=session)
    await send_email.aschedule(email, within=connection)
    await send_email.aschedule(email, within=bad)  # type: ignore[arg-type]
    accepted: str = await send_email(email)
    print(number, accepted)


def chained() -> None:
    chain = tusk.chain()
    link = chain.add(send_email, Email("ada@example.org"))
    chain.add(book_invoice, 7, after=[link, (link, "always"), 4711])
    chain.add(book_invoice, "7")  # type: ignore[misc]
    chain.add(book_invoice, 7, after=[(link, "never")])  # type: ignore[list-item]


def defined() -> None:
    tusk("more", max_attempts="3")  # type: ignore[arg-type]
    tusk("more", max_atempts=3)  # type: ignore[call-arg]
    tusk("more", limits=[{"max_concurency": 3}])  # type: ignore[typeddict-unknown-key]
    tusk("more", unique={"scope": "never"})  # type: ignore[typeddict-item]


async def in_a_lambda(context: Context, good: psycopg.Connection, bad: psycopg.AsyncConnection) -> int:
    context.assert_current(good)
    context.assert_current(bad)  # type: ignore[arg-type]
    await context.aassert_current(bad)
    await context.aassert_current(good)  # type: ignore[arg-type]
    done: int = context.complete_in(good, 7)
    wrong: str = context.complete_in(good, 7)  # type: ignore[assignment]
    saved: "dict[str, int] | None" = context.checkpoint(dict[str, int])
    print(wrong, saved)
    return done


def test_the_checkers_read_this_file() -> None:
    """`.ci/python` runs them. A call that they refuse is refused at run time, too, where that is cheap."""
    assert set(tusk.lambdas) == {"typed_email", "typed_invoice", "typed_tidy", "typed_nothing"}
