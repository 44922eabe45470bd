"""The two packages as wheels: one for everywhere, one that carries the program for its platform."""

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tuskline._executor.messages import VERSION

from .fake_controller import HERE

CLIENTS = HERE.parents[1]


def build(package: str, tmp_path: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    copy = tmp_path / package
    shutil.copytree(CLIENTS / package, copy, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=copy,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def elf(path: Path, static: bool) -> Path:
    """The header of a program, and no more."""
    head = struct.pack("<7s25xQ14xHH6x", b"\x7fELF\x02\x01\x01", 64, 56, 1)
    path.write_bytes(head + struct.pack("<I52x", 1 if static else 3))
    path.chmod(0o755)
    return path


def test_the_package_is_for_everywhere_and_has_no_dependency(tmp_path: Path) -> None:
    done = build("python", tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "tuskline-0.1.0-py3-none-any.whl") as wheel:
        names = wheel.namelist()
        metadata = wheel.read("tuskline-0.1.0.dist-info/METADATA").decode()
        entries = wheel.read("tuskline-0.1.0.dist-info/entry_points.txt").decode()
    assert "tuskline/py.typed" in names and "tuskline/_executor/zygote.py" in names
    assert not [name for name in names if "test_" in name]
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert required and all("extra ==" in one for one in required)
    assert "tusk = tuskline.cli:main" in entries and "tuskline = tuskline.testing" in entries


@pytest.mark.skipif(platform.system() != "Linux", reason="the names of Linux platforms")
def test_a_static_program_is_for_each_linux(tmp_path: Path) -> None:
    done = build("python-controller", tmp_path, TUSKLINE_BINARY=str(elf(tmp_path / "program", static=True)))
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.whl")
    machine = platform.machine()
    assert made.name.endswith(f"-py3-none-manylinux2014_{machine}.musllinux_1_1_{machine}.whl")
    with zipfile.ZipFile(made) as wheel:
        program = next(one for one in wheel.infolist() if one.filename.endswith(".data/scripts/tuskline"))
        assert program.external_attr >> 16 & 0o111


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a machine without glibc")
def test_a_program_that_links_glibc_names_it(tmp_path: Path) -> None:
    done = build("python-controller", tmp_path, TUSKLINE_BINARY=sys.executable)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.whl")
    assert f"-py3-none-manylinux_{platform.libc_ver()[1].replace('.', '_')}_" in made.name


def test_a_wheel_without_a_program_is_refused(tmp_path: Path) -> None:
    done = build("python-controller", tmp_path, TUSKLINE_BINARY="/nowhere")
    assert done.returncode != 0 and "TUSKLINE_BINARY must name the program tuskline, got '/nowhere'" in done.stderr


def test_the_versions_agree() -> None:
    versions = {
        re.findall(r'^version = "(.*)"$', (CLIENTS / package / "pyproject.toml").read_text(), re.MULTILINE)[0]
        for package in ("python", "python-controller")
    }
    cargo = re.findall(r'^version = "(.*)"$', (CLIENTS.parent / "Cargo.toml").read_text(), re.MULTILINE)[0]
    assert versions == {cargo} == {VERSION.partition("/")[2]}
    assert f"tuskline-controller=={cargo}" in (CLIENTS / "python" / "pyproject.toml").read_text()
