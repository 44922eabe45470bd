"""The tasks of a Django project as an app: `DJANGO_SETTINGS_MODULE=.. tusk run tuskline.django.worker:tusk`.

It imports the module `tasks` of each installed application, and makes a lambda of each task that has this backend.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.tasks import task_backends
from django.tasks.base import Task, TaskContext
from django.utils.module_loading import autodiscover_modules

from .._app import Tuskline
from .._context import Context
from . import TusklineBackend, lambda_name


@dataclass
class Call:
    """The payload of a task of Django."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]


def make_app() -> Tuskline:
    """The app of all tasks that are imported."""
    app, paths = Tuskline(), dict[str, str]()
    for task in _tasks():
        name = lambda_name(task.module_path)
        if paths.setdefault(name, task.module_path) != task.module_path:
            raise ImproperlyConfigured(f"{paths[name]} and {task.module_path} both make the lambda {name}")
        if name not in app.lambdas:
            settings = task.get_backend().options.get("settings", {})
            app(name, **settings)(_body(task))
    return app


def _tasks() -> list[Any]:
    found = {
        one.module_path: one
        for module in list(sys.modules.values())
        for one in list(vars(module).values())
        if isinstance(one, Task) and isinstance(task_backends[one.backend], TusklineBackend)
    }
    return [found[path] for path in sorted(found)]


def _body(task: Any) -> Callable[[Call, Context], Any]:
    def arguments(call: Call, context: Context) -> list[Any]:
        return [_context(task, call, context), *call.args] if task.takes_context else call.args

    if iscoroutinefunction(task.func):

        async def arun(call: Call, context: Context) -> Any:
            return await task.func(*arguments(call, context), **call.kwargs)

        return arun

    def run(call: Call, context: Context) -> Any:
        # A thread keeps its connection from one task to the next: one that the server has ended is not used again.
        close_old_connections()
        try:
            return task.func(*arguments(call, context), **call.kwargs)
        finally:
            close_old_connections()

    return run


def _context(task: Any, call: Call, context: Context) -> Any:
    seen = dict.fromkeys(("created_at", "started_at", "finished_at", "error_class", "error", "output"))
    seen |= {"status": "processing", "attempt": context.attempt}
    payload = {"task": call.task, "args": call.args, "kwargs": call.kwargs}
    return TaskContext(task_result=task.get_backend().result(str(context.task), payload, seen))


django.setup()
autodiscover_modules("tasks")
tusk = make_app()
