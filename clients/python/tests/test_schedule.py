"""Options, batches, chains, unique keys, definitions and payloads."""

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NewType, Optional, TypedDict, Union

import msgspec
import pydantic
import pytest

from tuskline import Context, Refused, Tuskline
from tuskline import _durations as durations
from tuskline import _payloads as payloads
from tuskline._outcomes import BadPayload
from tuskline.testing import Tusk

app = Tuskline()


@app(
    "keyed",
    max_attempts=7,
    timeout="90 s",
    retry_base=timedelta(seconds=2),
    unique={"scope": "queued"},
    order={"on_failure": "skip"},
    limits=[{"max_concurrency": 4, "by_key": True}],
    schedules=[{"name": "nightly", "cron": "30 2 * * *", "payload": 7, "zone": "Europe/Berlin", "grace": "5 min"}],
)
def keyed(number: int) -> int:
    return number


@app("plain")
def plain(number: int) -> int:
    return number


@app("bare", unique={"scope": "period", "period": "1 d"})
def bare() -> None: ...


def _one(tusk: Tusk, sql: str) -> Any:
    return tusk.connection.execute(sql).fetchone()


def test_each_option_reaches_its_column(tusk: Tusk) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    task = keyed.schedule(
        1,
        delay=timedelta(milliseconds=1500),
        priority="high",
        collection="reports",
        ordering_key="o",
        limit_key="l",
        unique_key="u",
        traceparent=trace,
    )
    sql = f"""select priority::text, collection, ordering_key, limit_key, unique_key, traceparent,
                     due_at - tuskline.clock() from tuskline.tasks where id = {task}"""
    assert _one(tusk, sql) == ("high", "reports", "o", "l", "u", trace, timedelta(milliseconds=1500))


def test_an_instant_keeps_its_zone(tusk: Tusk) -> None:
    at = tusk.clock.now().astimezone(timezone(timedelta(hours=5))) + timedelta(days=1)
    task = plain.schedule(1, at=at)
    assert _one(tusk, f"select due_at from tuskline.tasks where id = {task}") == (at,)
    with pytest.raises(ValueError, match="at= needs a time zone"):
        plain.schedule(1, at=datetime(2030, 1, 1))


def test_a_held_unique_key_returns_its_holder(tusk: Tusk) -> None:
    assert keyed.schedule(1, unique_key="k") == keyed.schedule(2, unique_key="k")
    first, second, third = keyed.schedule_many([3, 4, 5], unique_keys=["a", "a", None])
    assert first == second != third
    assert tusk.scheduled(keyed) == [1, 3, 5]


def test_one_bad_task_refuses_the_whole_batch(tusk: Tusk) -> None:
    with pytest.raises(Refused, match="TK007"):
        plain.schedule_many([])
    with pytest.raises(Refused, match="TK019"):
        keyed.schedule_many([1, 2], unique_keys=["a", ""])
    assert tusk.scheduled(keyed) == []


def test_a_misspelt_option_is_refused_where_no_checker_looks() -> None:
    with pytest.raises(TypeError, match="there is no option dealy; there are within, at, collection, delay"):
        plain.schedule(1, dealy="1 h")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="there is no option max_atempts"):
        app("other", max_atempts=3)  # type: ignore[call-arg]
    app.definitions.pop("other", None)


def test_a_chain_runs_in_its_order(tusk: Tusk) -> None:
    chain = app.chain()
    first = chain.add(plain, 1)
    second = chain.add(plain, 2, after=[first], delay="1 min")
    last = chain.add(bare, None, after=[(second, "always"), first], on_parent_failure="run")
    scheduled = chain.schedule()
    assert scheduled.id == scheduled[first] and len({scheduled[second], scheduled[last], scheduled.id}) == 3
    assert [ran.name for ran in tusk.drain(app)] == ["plain"]
    tusk.clock.forward("1 min")
    assert [(ran.id, ran.name) for ran in tusk.drain(app)] == [
        (scheduled[second], "plain"),
        (scheduled[last], "bare"),
    ]
    later = app.chain()
    later.add(plain, 9007199254740993, after=[scheduled.id])
    later.schedule()
    assert [ran.output for ran in tusk.drain(app)] == [9007199254740993]


def test_a_deploy_brings_definitions_and_repeats_them(tusk: Tusk) -> None:
    other = Tuskline(tusk.url)

    @other("fresh", max_attempts=3, gates=[{"action": "pause", "reason": "not yet", "for": "1 h"}])
    def fresh(number: int) -> None: ...

    dry = other.define(version="1.4", dry_run=True)
    assert [(one.name, one.outcome) for one in dry] == [("fresh", "created")]
    assert other.define(version="1.4")[0].changes["max_attempts"] == [20, 3]
    assert other.define(version="1.4")[0].outcome == "unchanged"
    assert other.define(version="1.3")[0].outcome == "newer"
    other.close()
    row = "select max_attempts, attempt_timeout, retry_base from tuskline.lambda where name = 'keyed'"
    assert _one(tusk, row) == (7, timedelta(seconds=90), timedelta(seconds=2))
    row = "select cron, zone, payload, grace from tuskline.periodic where name = 'nightly'"
    assert _one(tusk, row) == ("30 2 * * *", "Europe/Berlin", 7, timedelta(minutes=5))
    tusk.connection.execute("select tuskline.run_periodic('nightly')")
    assert [(ran.name, ran.output) for ran in tusk.drain(app)] == [("keyed", 7)]


def test_an_app_without_lambdas_defines_nothing(tusk: Tusk) -> None:
    empty = Tuskline(tusk.url)
    assert empty.define() == empty.define(within=tusk.connection) == []
    assert tusk.drain(empty) == []


# Functions that make no lambda, and names that are none.


def test_a_wrong_function_is_refused_where_it_is_written() -> None:
    local = Tuskline()
    with pytest.raises(TypeError, match="takes a payload, then a Context, and nothing else"):
        local("two")(lambda one, two: None)

    def context_first(context: Context, number: int) -> None: ...
    def many(*numbers: int) -> None: ...
    def of_date(day: datetime) -> None: ...
    def of_objects(numbers: dict[int, str]) -> None: ...

    with pytest.raises(TypeError, match="takes a payload, then a Context"):
        local("context_first")(context_first)
    with pytest.raises(TypeError, match="takes a payload"):
        local("many")(many)
    with pytest.raises(TypeError, match="the payload of of_date: .*is no type of JSON: take a dataclass"):
        local("of_date")(of_date)
    with pytest.raises(TypeError, match="the keys of a JSON object are texts"):
        local("of_objects")(of_objects)
    for wrong in ("Send", "send-mail", "9", "", "a" * 64, "sénd"):
        with pytest.raises(ValueError, match="is no name"):
            local(wrong)
    with pytest.raises(ValueError, match="is there already"):
        local("two")
    with pytest.raises(ValueError, match="slots must be"):
        local("slotted", slots=0)
    with pytest.raises(ValueError, match="is no size"):
        local("sized", memory="512 MB")
    with pytest.raises(TypeError, match=r"@tusk\('context_first'\) decorates no function"):
        local.define()


# Durations: one grammar.


@pytest.mark.parametrize(
    ("duration", "ms"),
    [("30 s", 30_000), ("1.5 h", 5_400_000), ("250ms", 250), ("2 d", 172_800_000), (0.0001, 1), (2, 2000),
     (timedelta(minutes=1), 60_000)],
)  # fmt: skip
def test_a_duration_has_one_meaning(duration: durations.Duration, ms: int) -> None:
    assert durations.milliseconds(duration) == ms


@pytest.mark.parametrize("wrong", ["1 mon", "s", "-1 s", "1 s 2", "١ s", "", -1, float("nan"), float("inf")])
def test_other_durations_are_refused(wrong: durations.Duration) -> None:
    with pytest.raises(ValueError, match="duration"):
        durations.seconds(wrong)
    with pytest.raises(TypeError, match="duration"):
        durations.seconds(True)
    with pytest.raises(TypeError, match="duration"):
        durations.seconds(None)  # type: ignore[arg-type]


# Payloads: the same value comes back, digit by digit, or a clear error.


class Item(pydantic.BaseModel):
    price: int
    at: datetime


class Parcel(msgspec.Struct):
    weight: int
    note: Optional[str] = None


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    lines: list[Line]
    total: float
    by: dict[str, Line] = dataclasses.field(default_factory=dict)
    before: "Optional[Order]" = None
    kind: Literal["new", "old"] = "new"
    tags: tuple[str, ...] = ()


class Sizes(TypedDict):
    wide: int


Number = NewType("Number", int)
BIG = 9007199254740993


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Item(price=BIG, at=datetime(2026, 1, 1, tzinfo=timezone.utc)), Item),
        (Parcel(BIG, "ü"), Parcel),
        (Order([Line("a", BIG), Line("b")], 1.5, {"x": Line("c")}, Order([], 0.0), "old", ("t",)), Order),
        (BIG, int),
        (BIG, Any),
        (BIG, Number),
        ([[1], [2]], list[list[int]]),
        ({"a": 1.5}, dict[str, float]),
        ({"wide": 1}, Sizes),
        (None, Optional[Line]),
        (Line("a"), Union[Line, None]),
        ("x", Union[int, str]),
        (True, bool),
        ("\ud800", str),
    ],
)
def test_a_payload_comes_back_as_it_was(value: Any, kind: Any) -> None:
    assert payloads.decode(payloads.encode(value), kind) == value


def test_the_text_in_the_table_is_readable() -> None:
    assert payloads.encode({"name": "Zoë ☃", "n": [1, BIG]}) == '{"name":"Zoë ☃","n":[1,9007199254740993]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}, Line("a", float("nan"))])  # type: ignore[arg-type]
def test_nan_is_no_json(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        payloads.encode(value)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("{", Line, "Expecting property name"),
        ('{"sku":1}', Line, "the JSON is no Line: a text is wanted, got 1"),
        ('{"sku":"a","size":1}', Line, "Line has no field size"),
        ("{}", Line, "sku"),
        ("[]", Line, "an object is wanted"),
        ("1.5", int, "a whole number is wanted, got 1.5"),
        ("true", int, "a whole number is wanted, got True"),
        ('"1"', float, "a number is wanted"),
        ('{"lines":[{"sku":4}],"total":1}', Order, "a text is wanted"),
        ('{"price":"x"}', Item, "the JSON is no Item"),
        ('{"weight":"x"}', Parcel, "the JSON is no Parcel"),
    ],
)
def test_json_of_another_type_is_told(text: str, kind: Any, said: str) -> None:
    with pytest.raises(BadPayload) as bad:
        payloads.decode(text, kind)
    assert said in str(bad.value)


def test_a_payload_of_each_codec_goes_through_the_database(tusk: Tusk) -> None:
    local = Tuskline(tusk.url)

    @local("item")
    def item(one: Item) -> Item:
        return one

    @local("parcel")
    def parcel(one: Parcel) -> Parcel:
        return one

    @local("order")
    def order(one: Order) -> Order:
        return one

    tusk.define(local)
    values = [Item(price=BIG, at=datetime(2026, 1, 1, tzinfo=timezone.utc)), Parcel(BIG), Order([Line("a", BIG)], 1.0)]
    item.schedule(values[0])  # type: ignore[arg-type]
    parcel.schedule(values[1])  # type: ignore[arg-type]
    order.schedule(values[2])  # type: ignore[arg-type]
    ran = {one.name: one.output for one in tusk.drain(local)}
    assert [ran[name] for name in ("item", "parcel", "order")] == [
        json.loads(payloads.encode(value)) for value in values
    ]
    local.close()
