"""What the kernel says of processes, and asks of them. Linux only; elsewhere nothing is known."""

import ctypes
import os
from pathlib import Path

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1


def die_with_parent(number):
    """In a child, before it becomes another program: get this signal when the runner is killed."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    except AttributeError:
        pass


def stat(pid):
    """The words of a process's stat line after its name, which may hold spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def family_cpu_us(pid):
    """CPU of a process, of all below it and of those it has reaped, in µs; None: not here."""
    if pid is None:
        return None
    try:
        ticks = sum(int(word) for word in stat(pid)[11:15])
        below = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    words = stat(entry.name)
                except OSError:
                    continue  # it has just ended
                below.setdefault(words[1], []).append((entry.name, int(words[11]) + int(words[12])))
    except OSError:
        return None
    parents = [str(pid)]
    while parents:
        for child, its_ticks in below.get(parents.pop(), ()):
            ticks += its_ticks
            parents.append(child)
    return ticks * TICK_US
