"""Finds the program `tuskline`."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Optional

from ._outcomes import TusklineError


def binary() -> str:
    """TUSKLINE_BINARY, else the one of the package `tuskline-controller`, else the one in PATH."""
    named = os.environ.get("TUSKLINE_BINARY")
    if named:
        if not os.access(named, os.X_OK):
            raise TusklineError(f"TUSKLINE_BINARY names {named}, which is no program")
        return named
    try:
        found: Optional[str] = str(importlib.import_module("tuskline_controller").path())
    except ImportError:
        found = shutil.which("tuskline")
    except FileNotFoundError as error:
        raise TusklineError(str(error)) from None
    if found is None:
        raise TusklineError(
            "there is no program tuskline: pip install 'tuskline[worker]', put it into PATH, or name it by TUSKLINE_BINARY"
        )
    return found
