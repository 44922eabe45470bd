"""Django 6 Tasks on Tuskline: `enqueue` is an insert in the current transaction of the named database.

    TASKS = {"default": {"BACKEND": "tuskline.django.TusklineBackend", "OPTIONS": {"using": "default"}}}

`DJANGO_SETTINGS_MODULE=.. tusk run tuskline.django.worker:tusk` executes them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Optional

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import DEFAULT_TASK_QUEUE_NAME, TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
from django.utils.module_loading import import_string

from .._connections import Arguments, call
from .._definitions import moment

__all__ = ["TusklineBackend", "lambda_name"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)

_STATUS = {
    "new": TaskResultStatus.READY,
    "enqueued": TaskResultStatus.READY,
    "retriable_failure": TaskResultStatus.READY,
    "claimed": TaskResultStatus.RUNNING,
    "processing": TaskResultStatus.RUNNING,
    "success": TaskResultStatus.SUCCESSFUL,
}

#: The columns of a task, as one JSON.
_SEEN = """json_build_object('status', r.status, 'attempt', r.attempt, 'created_at', r.created_at,
    'started_at', r.started_at, 'finished_at', r.finished_at, 'error_class', r.error_class, 'error', r.error,
    'output', r.output, 'payload', r.payload)::text"""


class TusklineBackend(BaseTaskBackend):  # type: ignore[misc]
    """The tasks of a Django project are lambdas: one for each function. The name of a queue is the collection."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def using(self) -> str:
        """The database of the tasks."""
        return str(self.options.get("using", "default"))

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        lambda_name(task.module_path)
        if task.queue_name != DEFAULT_TASK_QUEUE_NAME and _NAME.fullmatch(task.queue_name) is None:
            raise InvalidTask(f"Queue {task.queue_name!r} is no collection: it must match [a-z][a-z0-9_]{{0,62}}.")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        payload = {"task": task.module_path, "args": list(args), "kwargs": dict(kwargs)}
        arguments: Arguments = {
            "lambda": (lambda_name(task.module_path), "text"),
            "payload": (json.dumps(payload, ensure_ascii=False, allow_nan=False), "text"),
            "priority": (_priority(task.priority), "text"),
        }
        if task.queue_name != DEFAULT_TASK_QUEUE_NAME:
            arguments["collection"] = (task.queue_name, "text")
        if task.run_after is not None:
            arguments["scheduled_at"] = (moment("run_after", task.run_after), "timestamptz")
        number = call(connections[self.using], "schedule", arguments)
        return self.get_result(str(number))

    def get_result(self, result_id: str) -> Any:
        try:
            text = call(connections[self.using], "task_status", {"task": (str(int(result_id)), "bigint")}, _SEEN)
        except (TypeError, ValueError):  # no such task, or a text that is no id
            raise TaskResultDoesNotExist(result_id) from None
        seen = json.loads(text)
        payload = seen["payload"]
        if not isinstance(payload, dict) or not isinstance(payload.get("task"), str):
            raise TaskResultDoesNotExist(f"{result_id} is no task of Django")
        return self.result(result_id, payload, seen)

    def result(self, result_id: str, payload: dict[str, Any], seen: dict[str, Any]) -> Any:
        """The result as Django wants it."""
        status = _STATUS.get(seen["status"], TaskResultStatus.FAILED)
        started = _time(seen["started_at"])
        made = TaskResult(
            task=import_string(payload["task"]),
            id=result_id,
            status=status,
            enqueued_at=_time(seen["created_at"]),
            started_at=started,
            finished_at=_time(seen["finished_at"]),
            last_attempted_at=started,
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            errors=[TaskError(exception_class_path=seen["error_class"], traceback=seen["error"])]
            if seen["error_class"] is not None
            else [],
            worker_ids=["tuskline"] * seen["attempt"],
        )
        if status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(made, "_return_value", seen["output"])
        return made


def lambda_name(path: str) -> str:
    """`shop.tasks.SendMail` as `shop_tasks_sendmail`. The worker refuses two tasks that get one name."""
    name = re.sub(r"[^a-z0-9_]", "_", path.lower()).lstrip("_0123456789")
    if _NAME.fullmatch(name) is None:
        raise ImproperlyConfigured(f"{path} makes no lambda's name of 1 to 63 characters: move it, or shorten it")
    return name


def _priority(number: int) -> str:
    """Django's -100 to 100 as one of four."""
    return "critical" if number >= 50 else "high" if number > 0 else "normal" if number == 0 else "low"


def _time(text: Optional[str]) -> Any:
    from django.utils.dateparse import parse_datetime

    return None if text is None else parse_datetime(text)


