"""A subreaper: the parent that forks of a zygote get. It ends when they all have ended."""

import ctypes
import os
import subprocess
import sys

_PR_SET_CHILD_SUBREAPER = 36

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    subprocess.Popen(
        [sys.executable, "-m", "tuskline", "zygote", sys.argv[1]], env={**os.environ, "TUSKLINE_GUARDIAN": str(os.getpid())}
    )
    worst = 0
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            sys.exit(worst)
        worst = max(worst, os.waitstatus_to_exitcode(status))
