"""The program `tuskline` of this installation."""

import sysconfig
from pathlib import Path


def path() -> Path:
    """Where it is. Raises FileNotFoundError if it was removed."""
    name = "tuskline" + (sysconfig.get_config_var("EXE") or "")
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        found = Path(sysconfig.get_path("scripts", scheme=scheme)) / name
        if found.is_file():
            return found
    beside = Path(__file__).parent.parent / "bin" / name  # pip install --target
    if beside.is_file():
        return beside
    raise FileNotFoundError("the program of the package tuskline-controller is not there: install it again")
