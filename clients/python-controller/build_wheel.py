"""Puts the program into the wheel, and names the platform that it is for."""

import os
import platform
import struct
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PT_INTERP = 3


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        named = os.environ.get("TUSKLINE_BINARY", "")
        if not os.access(named, os.X_OK):
            raise SystemExit(f"TUSKLINE_BINARY must name the program tuskline, got {named!r}")
        program = Path(named).resolve()
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + (os.environ.get("TUSKLINE_WHEEL_PLATFORM") or _platform(program))
        build_data["shared_scripts"] = {str(program): "tuskline"}


def _platform(program: Path) -> str:
    """The platforms on which the program runs, as wheels name them."""
    machine = platform.machine()
    if platform.system() != "Linux":
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if _is_static(program.read_bytes()):
        return f"manylinux2014_{machine}.musllinux_1_1_{machine}"
    name, version = platform.libc_ver(str(program))
    # The version of this machine's glibc: the program was linked with it.
    here = platform.libc_ver()[1] or version
    if name != "glibc" or not here:
        raise SystemExit("the program links a libc that no wheel names: build it as `./x dist` does")
    return f"manylinux_{here.replace('.', '_')}_{machine}"


def _is_static(elf: bytes) -> bool:
    """A program that names no interpreter needs no libc."""
    if elf[:5] != b"\x7fELF\x02":
        raise SystemExit("the program is no ELF file of 64 bits")
    offset, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    return all(struct.unpack_from("<I", elf, offset + size * at)[0] != _PT_INTERP for at in range(count))
