"""The caller's own connection, of any library: one statement within its transaction.

The types are structural, so that no driver has to be installed to check a program that uses another one, and so
that a blocking call refuses an async connection at the type check.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Optional, Protocol, Union

from ._outcomes import Fenced, Refused

#: Name of a parameter without its `p_`, to the value as text and its type in SQL.
Arguments = dict[str, tuple[Optional[str], str]]


class Executes(Protocol):
    """psycopg.Connection; Connection and Session of SQLAlchemy."""

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...
    def commit(self) -> None: ...


class Cursors(Protocol):
    """Django's connection."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...


class AsyncExecutes(Protocol):
    """psycopg.AsyncConnection; AsyncConnection and AsyncSession of SQLAlchemy."""

    async def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...
    async def commit(self) -> None: ...


class AsyncFetches(Protocol):
    """asyncpg.Connection, also one from a pool. The pool itself commits each call."""

    async def fetchval(self, query: str, *args: Any) -> Any: ...


Connection = Union[Executes, Cursors]
AsyncConnection = Union[AsyncExecutes, AsyncFetches]

_SQLALCHEMY, _ASYNCPG, _OTHERS = ":", "$", "%s"


def call(connection: Connection, verb: str, arguments: Arguments, answer: str = "r") -> Any:
    """`select <answer> from verb(name => value::type, ..) r`, in the caller's transaction. Returns the one value."""
    library = _library(connection)
    shape = tuple((name, kind) for name, (_, kind) in arguments.items())
    one: Any = connection
    try:
        if library == "sqlalchemy":
            return one.execute(_sqlalchemy_text(verb, shape, answer), _named(arguments)).scalar_one()
        text = _text(_OTHERS, verb, shape, answer)
        values = [value for value, _ in arguments.values()]
        if library == "psycopg":
            # The connection may make rows of another kind.
            with one.cursor(row_factory=_tuple_rows()) as cursor:
                return cursor.execute(text, values).fetchone()[0]
        if library == "django":
            with one.cursor() as cursor:
                cursor.execute(text, values)
                return cursor.fetchone()[0]
    except Exception as error:
        _raise_ours(error)
        raise
    raise TypeError("a connection of asyncpg is awaited: call the verb whose name begins with `a`, as aschedule")


async def acall(connection: AsyncConnection, verb: str, arguments: Arguments, answer: str = "r") -> Any:
    """The same on an async connection."""
    library = _library(connection)
    shape = tuple((name, kind) for name, (_, kind) in arguments.items())
    values = [value for value, _ in arguments.values()]
    one: Any = connection
    try:
        if library == "asyncpg":
            return await one.fetchval(_text(_ASYNCPG, verb, shape, answer), *values)
        if library == "sqlalchemy":
            return (await one.execute(_sqlalchemy_text(verb, shape, answer), _named(arguments))).scalar_one()
        if library == "psycopg":
            async with one.cursor(row_factory=_tuple_rows()) as cursor:
                await cursor.execute(_text(_OTHERS, verb, shape, answer), values)
                return (await cursor.fetchone())[0]
    except Exception as error:
        _raise_ours(error)
        raise
    raise TypeError("Django's connection blocks: call schedule in a thread (asgiref.sync.sync_to_async)")


@lru_cache(maxsize=256)
def _library_of(kind: type) -> Optional[str]:
    for one in kind.__mro__:
        name = one.__module__.partition(".")[0]
        if name in ("psycopg", "asyncpg", "sqlalchemy", "django"):
            return name
    return None


def _library(connection: object) -> str:
    kind: Any = type(connection)
    name = _library_of(kind)
    if name is None:
        wrong = f"{kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"within= takes a connection of psycopg 3, asyncpg, SQLAlchemy or Django, not {wrong}")
    return name


def _tuple_rows() -> Any:
    from psycopg.rows import tuple_row  # the caller has it: its connection is here

    return tuple_row


@lru_cache(maxsize=1024)
def _text(mark: str, verb: str, shape: tuple[tuple[str, str], ...], answer: str) -> str:
    def argument(at: int, name: str, kind: str) -> str:
        if mark == _SQLALCHEMY:
            value = f"cast(:{name} as text)"
        else:
            value = f"${at}::text" if mark == _ASYNCPG else "%s::text"
        # The value is sent as text, whatever the driver's own idea of the type is.
        return f"p_{name} => {value}" if kind == "text" else f"p_{name} => cast({value} as {kind})"

    arguments = ", ".join(argument(at, name, kind) for at, (name, kind) in enumerate(shape, 1))
    return f"select {answer} from tuskline.{verb}({arguments}) as r"


@lru_cache(maxsize=256)
def _sqlalchemy_text(verb: str, shape: tuple[tuple[str, str], ...], answer: str) -> Any:
    import sqlalchemy  # the caller has it: its connection is here

    return sqlalchemy.text(_text(_SQLALCHEMY, verb, shape, answer))


def _named(arguments: Arguments) -> dict[str, Optional[str]]:
    return {name: value for name, (value, _) in arguments.items()}


def _raise_ours(error: BaseException) -> None:
    """An error of the verbs becomes one of ours; any other stays the driver's."""
    source: Optional[BaseException] = error
    while source is not None:
        state = getattr(source, "sqlstate", None) or getattr(source, "pgcode", None)
        if isinstance(state, str) and state.startswith("TK"):
            kind = Fenced if state == "TK014" else Refused
            raise kind(_message(source, state), state, _hint(source)) from error
        source = getattr(source, "orig", None) or source.__cause__


def _message(error: BaseException, state: str) -> str:
    text = str(error).partition("\n")[0]
    # SQLAlchemy writes the class of asyncpg's error before the text.
    return text[text.index(state) :] if state in text else text


def _hint(error: Optional[BaseException]) -> Optional[str]:
    while error is not None:
        found = getattr(getattr(error, "diag", None), "message_hint", None) or getattr(error, "hint", None)
        if isinstance(found, str):
            return found
        error = error.__cause__
    return None


def sql_array(values: list[Optional[str]]) -> str:
    """A text that PostgreSQL reads as an array of texts."""

    def item(value: Optional[str]) -> str:
        return "null" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(map(item, values)) + "}"
