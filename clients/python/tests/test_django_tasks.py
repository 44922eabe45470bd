"""Django 6 Tasks: enqueue in the transaction, and the worker's app."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import pytest

from tuskline.testing import Tusk

from .connections import django_connection, django_database
from .test_run import Run, ended, needs_controller, run

__all__ = ["run"]  # a fixture

pytestmark = pytest.mark.skipif(
    django.VERSION < (6, 0), reason=f"SKIPPED: Django {django.get_version()} has no Tasks; 6.0 needs Python 3.12"
)


@pytest.fixture
def site(tusk: Tusk, monkeypatch: pytest.MonkeyPatch) -> Any:
    with django_connection(tusk.url) as connection:
        from tuskline.django import worker

        from . import django_tasks

        app = worker.make_app()
        monkeypatch.setattr(app, "url", tusk.url)
        tusk.define(app)
        yield app, django_tasks, connection
    for one in worker.tusk, app:
        one.close()


def test_enqueue_is_in_the_transaction(tusk: Tusk, site: Any) -> None:
    app, tasks, _ = site
    from django.db import transaction

    with transaction.atomic():
        tasks.add.enqueue(1, right=9007199254740993)
        transaction.set_rollback(True)
    assert tusk.drain(app) == []
    with transaction.atomic():
        result = tasks.add.enqueue(1, right=9007199254740993)
    assert (result.status, result.args, result.kwargs) == ("READY", [1], {"right": 9007199254740993})
    (ran,) = tusk.drain(app)
    assert (str(ran.id), ran.name) == (result.id, "tests_django_tasks_add")
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 9007199254740994, 1)


def test_priority_queue_and_time_are_the_tasks(tusk: Tusk, site: Any) -> None:
    app, tasks, _ = site
    at = tusk.clock.now() + timedelta(hours=1)
    result = tasks.report.using(run_after=at).enqueue("sales")
    sql = "select priority::text, collection, due_at from tuskline.tasks"
    assert tusk.connection.execute(sql).fetchone() == ("critical", "reports", at)
    tusk.clock.forward("1 h")
    (ran,) = tusk.drain(app)
    assert ran.output == "sales 1"
    assert tasks.report.get_result(result.id).return_value == "sales 1"


def test_a_failure_is_shown(tusk: Tusk, site: Any) -> None:
    app, tasks, _ = site
    result = tasks.fails.enqueue()
    tusk.drain(app)
    result.refresh()
    assert result.status == "READY"  # it will be tried again
    assert result.errors[0].exception_class_path == "ValueError" and result.errors[0].traceback.startswith("no (")


def test_a_task_that_is_none_is_told(tusk: Tusk, site: Any) -> None:
    app, tasks, _ = site
    from django.core.exceptions import ImproperlyConfigured
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist

    from tuskline.django import lambda_name

    for wrong in ("4711", "x"):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(wrong)
    with pytest.raises(InvalidTask, match="Queue"):
        tasks.add.using(queue_name="Big Ones")
    with pytest.raises(ImproperlyConfigured, match="makes no lambda's name"):
        lambda_name("a" * 64)
    assert lambda_name("shop.tasks.SendMail") == "shop_tasks_sendmail"


def test_two_tasks_of_one_name_are_refused(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tasks, _ = site
    from django.core.exceptions import ImproperlyConfigured

    from tuskline.django import worker

    def clash() -> None: ...

    clash.__module__, clash.__qualname__ = "tests", "django_tasks_add"
    monkeypatch.setattr(tasks, "clash", tasks.task(clash), raising=False)
    with pytest.raises(ImproperlyConfigured, match="both make the lambda tests_django_tasks_add"):
        worker.make_app()
    assert "tests.django_tasks" in sys.modules


@needs_controller
def test_the_worker_executes_the_tasks_of_a_project(tusk: Tusk, run: Run, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "tasks.py").write_text((Path(__file__).parent / "django_tasks.py").read_text())
    (tmp_path / "settings.py").write_text(
        f"DATABASES = {{'default': {django_database(tusk.url)!r}}}\n"
        "INSTALLED_APPS = ['shop']\nUSE_TZ = True\n"
        "TASKS = {'default': {'BACKEND': 'tuskline.django.TusklineBackend', 'QUEUES': [],"
        " 'OPTIONS': {'settings': {'max_attempts': 3}}}}\n"
    )
    environment = {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(tmp_path)}
    spec = "tuskline.django.worker:tusk"
    defined = subprocess.run(
        [sys.executable, "-m", "tuskline", "define", spec],
        env={**os.environ, **environment, "TUSKLINE_DATABASE_URL": tusk.url},
        capture_output=True,
        text=True,
    )
    assert "shop_tasks_add: created (max_attempts: 20 -> 3)" in defined.stdout, defined.stderr
    tusk.connection.execute("create table written (number int)")
    run("--processes", "2", spec=spec, **environment)
    tasks = [
        tusk.connection.execute("select tuskline.schedule(%s, %s)", [f"shop_tasks_{name}", payload]).fetchone()[0]
        for name, payload in (
            ("writes", '{"task":"shop.tasks.writes","args":[7],"kwargs":{}}'),
            ("report", '{"task":"shop.tasks.report","args":["sales"],"kwargs":{}}'),
        )
    ]
    assert [row[4] for row in ended(tusk, *tasks)] == [None, '"sales 1"']
    assert tusk.connection.execute("select number from written").fetchall() == [(7,)]
