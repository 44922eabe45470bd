"""The Python blocks of the pages: they run, and mypy --strict is content with them."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tuskline.testing import Tusk

from .connections import django_connection
from .fake_controller import HERE

PAGES = HERE.parents[2] / "docs"


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def module(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(text, f"{name}.py", "exec"), made.__dict__)
    return made


def test_the_start_page_runs(tusk: Tusk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app_text, chain_text, test_text = blocks(PAGES / "python.md")
    (tmp_path / "app.py").write_text(app_text + chain_text)
    (tmp_path / "test_app.py").write_text(test_text)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "app.py", "test_app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout
    app = module("app", app_text + chain_text, monkeypatch)
    monkeypatch.setattr(app.tusk, "url", tusk.url)
    tusk.define(app.tusk)
    module("test_app", test_text, monkeypatch).test_an_order_sends_its_mail_after_ten_minutes(tusk)
    import psycopg

    with psycopg.connect(tusk.url) as connection:
        app.order_with_thanks(connection, 8)
    assert [ran.name for ran in tusk.drain(app.tusk)] == ["book_invoice", "send_email"]


def test_the_readme_runs(tusk: Tusk, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks(HERE.parent / "README.md")
    greet = module("greet", text, monkeypatch)
    monkeypatch.setattr(greet.tusk, "url", tusk.url)
    tusk.define(greet.tusk)
    greet.greet.schedule("Ada")
    assert [ran.output for ran in tusk.drain(greet.tusk)] == ["Hello, Ada"]
    greet.tusk.close()


def test_the_page_of_django_runs(tusk: Tusk, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks(PAGES / "django.md")
    tusk.connection.execute("create table auth_user (id int, last_name text); insert into auth_user values (7, 'Ada')")
    with django_connection(tusk.url):
        shop = module("lambdas", text, monkeypatch)
        monkeypatch.setattr(shop.tusk, "url", tusk.url)
        tusk.define(shop.tusk)
        task = shop.sign_up(7)
        assert [(ran.id, ran.status) for ran in tusk.drain(shop.tusk)] == [(task, "success")]
    assert tusk.connection.execute("select last_name from auth_user").fetchall() == [("welcomed",)]


@pytest.mark.parametrize("page", [PAGES / "django.md", PAGES / "python.md", HERE.parent / "README.md"])
def test_a_page_is_short(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= 150
    assert max(len(line) for line in lines if not line.startswith("|")) <= 120
