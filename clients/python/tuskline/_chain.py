"""Chains: tasks that wait for each other, scheduled in one call and one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, ParamSpec, TypeVar, Union

from ._connections import Arguments, AsyncConnection, Connection, acall, call
from ._definitions import moment
from ._durations import milliseconds
from ._lambda import Lambda, Options, check_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._app import Tuskline

T = TypeVar("T")
P = ParamSpec("P")
On = Literal["success", "failure", "always"]


@dataclass(frozen=True)
class Link:
    """A task of a chain that is being made."""

    position: int
    name: str


#: A task of the chain, or the id of one that exists; alone: its success; or with the end that it waits for.
After = Union[Link, int, tuple[Union[Link, int], On]]


@dataclass(frozen=True)
class ScheduledChain:
    """Ids of a chain. Its number is the id of the task that began it."""

    id: int
    tasks: list[int]

    def __getitem__(self, link: Link) -> int:
        return self.tasks[link.position]


class Chain:
    """Tasks that wait for each other."""

    def __init__(self, app: Tuskline) -> None:
        self._app = app
        self._tasks: list[dict[str, Any]] = []

    def add(
        self,
        of: Lambda[T, P, Any],
        payload: T,
        /,
        *,
        after: Sequence[After] = (),
        on_parent_failure: Literal["cancel", "hold", "run"] = "cancel",
        **options: Unpack[Options],
    ) -> Link:
        """Adds a task that waits for others. `on_parent_failure`: what becomes of it when one of them fails."""
        position = len(self._tasks)
        name = f"{of.name}_{position + 1}"
        task: dict[str, Any] = {"name": name, "lambda": of.name, **_options(options)}
        text = of.encode(payload)
        if text is not None:
            task["payload"] = _Text(text)
        if after:
            task["after"] = [_after(one) for one in after]
            task["on_parent_failure"] = on_parent_failure
        self._tasks.append(task)
        return Link(position, name)

    def schedule(self, *, within: Optional[Connection] = None) -> ScheduledChain:
        """Schedules all tasks in the transaction of `within`, or in one of the app's."""
        if within is None:
            return _scheduled(self._app.own.call(self._app.url, "schedule_chain", self._arguments(), _ANSWER))
        return _scheduled(call(within, "schedule_chain", self._arguments(), _ANSWER))

    async def aschedule(self, *, within: Optional[AsyncConnection] = None) -> ScheduledChain:
        """The same, awaited, on an async connection."""
        if within is None:
            return _scheduled(await self._app.aown.call(self._app.url, "schedule_chain", self._arguments(), _ANSWER))
        return _scheduled(await acall(within, "schedule_chain", self._arguments(), _ANSWER))

    def _arguments(self) -> Arguments:
        return {"tasks": ("[" + ",".join(map(_object, self._tasks)) + "]", "text")}


_ANSWER = "json_build_array(r.chain_id, r.ids)::text"


class _Text(str):
    """A text that is JSON already: a payload goes as its codec wrote it, digit by digit."""


def _object(task: Mapping[str, Any]) -> str:
    fields = (
        f"{json.dumps(name)}:{value if isinstance(value, _Text) else json.dumps(value)}" for name, value in task.items()
    )
    return "{" + ",".join(fields) + "}"


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    check_options(options, frozenset(Options.__annotations__))
    made = {name: value for name, value in options.items() if value is not None and name not in ("delay", "at")}
    if options.get("delay") is not None:
        made["delay_ms"] = milliseconds(options["delay"])
    if options.get("at") is not None:
        made["scheduled_at"] = moment("at", options["at"])
    return made


def _after(one: After) -> Any:
    if isinstance(one, tuple):
        link, on = one
        return {"task": _name(link), "on": on}
    return _name(one)


def _name(one: Union[Link, int]) -> Union[str, int]:
    return one.name if isinstance(one, Link) else one


def _scheduled(text: str) -> ScheduledChain:
    chain, tasks = json.loads(text)
    return ScheduledChain(int(chain), [int(one) for one in tasks])
