"""Payloads and outputs as JSON text: pydantic, msgspec, dataclasses, and plain JSON. None is required.

The type of a payload is read once, when its lambda is made. A type that JSON does not carry is refused there.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, Union, cast

from ._outcomes import BadPayload

T = TypeVar("T")
#: Any JSON, for a payload without a type of its own. (`object` and `Any` are types of a Context, too, so checkers take
#: a function of one such parameter for one without a payload.)
Json = Union[dict[str, Any], list[Any], str, int, float, bool, None]
Reader = Callable[[Any], Any]

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_SCALARS = {bool: "a boolean", int: "a whole number", str: "a text", type(None): "null"}


def encode(value: object) -> str:
    """The JSON text of a value. NaN is refused: it is no JSON."""
    kind = type(value)
    serializer = getattr(kind, "__pydantic_serializer__", None)
    if serializer is not None:
        return cast(str, serializer.to_json(value).decode())
    if hasattr(kind, "__struct_fields__"):
        import msgspec  # the caller has it

        return msgspec.json.encode(value).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    text = _ENCODER.encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair: no UTF-8, so it stays an escape
            return _ASCII_ENCODER.encode(value)
    return text


def decoder(kind: Any) -> Callable[[str], Any]:
    """A function from JSON text to a value of `kind`. Raises TypeError for a type that JSON does not carry."""
    validator = getattr(kind, "__pydantic_validator__", None) if isinstance(kind, type) else None
    if validator is not None:
        return _named(kind, validator.validate_json)
    if hasattr(kind, "__struct_fields__"):
        import msgspec

        return _named(kind, msgspec.json.Decoder(kind).decode)
    read = _reader(kind)
    loads = json.loads
    return _named(kind, loads if read is _anything else lambda text: read(loads(text)))


@lru_cache(maxsize=1024)
def _decoder(kind: Any) -> Callable[[str], Any]:
    return decoder(kind)


def decode(text: str, kind: type[T]) -> T:
    """The value of a JSON text; one that does not fit is fatal: no retry can mend it."""
    wanted: Any = kind
    return cast(T, _decoder(wanted)(text))


def _named(kind: Any, read: Callable[[str], Any]) -> Callable[[str], Any]:
    name = getattr(kind, "__name__", None) or str(kind)

    def decoded(text: str) -> Any:
        try:
            return read(text)
        except Exception as error:
            raise BadPayload(f"the JSON is no {name}: {error}") from error

    return decoded


def _anything(value: Any) -> Any:
    return value


def _reader(kind: Any) -> Reader:
    """Makes a function from a value that `json` has read to one of `kind`."""
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return _anything
    if kind is None or kind in _SCALARS:
        return _scalar(type(None) if kind is None else kind)
    if kind is float:
        return _number
    if hasattr(kind, "__supertype__"):
        return _reader(kind.__supertype__)
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (list, Sequence, tuple):
        return _array(origin, arguments)
    if origin in (dict, Mapping) or typing.is_typeddict(origin):
        return _object(() if typing.is_typeddict(origin) else arguments)
    if origin in (Union, types.UnionType):
        return _union([_reader(one) for one in arguments])
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is typing.Annotated:
        return _reader(arguments[0])
    if dataclasses.is_dataclass(origin) and isinstance(origin, type):
        return _dataclass(origin)
    raise TypeError(
        f"{kind} is no type of JSON: take a dataclass or plain JSON, or a model of pydantic or msgspec for other types"
    )


def _scalar(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{_SCALARS[kind]} is wanted, got {_short(value)}")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"a number is wanted, got {_short(value)}")
    return float(value)


def _array(origin: Any, arguments: tuple[Any, ...]) -> Reader:
    if origin is tuple and arguments and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise TypeError("a tuple of JSON has one type for all: tuple[int, ...], or take a dataclass")
    item = _reader(arguments[0]) if arguments else _anything
    make: Callable[[Any], Any] = tuple if origin is tuple else list

    def read(value: Any) -> Any:
        if type(value) is not list:
            raise ValueError(f"an array is wanted, got {_short(value)}")
        return make(item(one) for one in value)

    return read


def _object(arguments: tuple[Any, ...]) -> Reader:
    if arguments and arguments[0] is not str:
        raise TypeError("the keys of a JSON object are texts: dict[str, ...]")
    item = _reader(arguments[1]) if arguments else _anything

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError(f"an object is wanted, got {_short(value)}")
        return value if item is _anything else {name: item(one) for name, one in value.items()}

    return read


def _union(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        first: Exception | None = None
        for one in readers:
            try:
                return one(value)
            except (ValueError, TypeError) as error:
                first = first or error
        raise ValueError(str(first))

    return read


def _literal(allowed: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if not any(value == one and type(value) is type(one) for one in allowed):
            raise ValueError(f"one of {', '.join(map(repr, allowed))} is wanted, got {_short(value)}")
        return value

    return read


#: The readers of dataclasses, each made once. One that is being made is there already: a class may name itself.
_DATACLASSES: dict[type, Reader] = {}


def _dataclass(kind: type) -> Reader:
    if kind in _DATACLASSES:
        return _DATACLASSES[kind]
    fields: dict[str, Reader] = {}

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError(f"an object is wanted, got {_short(value)}")
        if not value.keys() <= fields.keys():
            raise ValueError(f"{kind.__name__} has no field {', '.join(sorted(value.keys() - fields.keys()))}")
        return kind(**{name: fields[name](one) for name, one in value.items()})

    _DATACLASSES[kind] = read
    try:
        hints = typing.get_type_hints(kind)
        for one in dataclasses.fields(kind):
            if one.init:
                fields[one.name] = _reader(hints[one.name])
    except NameError as error:
        del _DATACLASSES[kind]
        raise TypeError(f"a type in {kind.__name__} is not there at run time: {error}") from None
    except TypeError:
        del _DATACLASSES[kind]
        raise
    return read


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
