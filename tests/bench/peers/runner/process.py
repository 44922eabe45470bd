"""One process of a peer, and what it says."""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from .proc import die_with_parent, family_cpu_us


class Failed(Exception):
    """What kept a run from being measured, for the report."""


class Process:
    """Started here, ended with this one. Lines of its standard output are events."""

    def __init__(self, command, environment, cwd=None):
        self._name = " ".join(Path(word).name for word in map(str, command))
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=cwd,
            env=os.environ | environment,
            process_group=0,  # a terminal's interrupt is the runner's to hear
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def expect(self, event, limit_s):
        """Waits for an event; what it says. Failed: another came, or none within the limit."""
        try:
            line = self._lines.get(timeout=max(limit_s, 0))
        except queue.Empty:
            raise Failed(f"{self._name}: no '{event}' within {limit_s:.0f} s") from None
        if line is None:
            raise Failed(f"{self._name} ended: {self._last_words()}")
        said = json.loads(line)
        if said["event"] != event:
            raise Failed(f"{self._name}: '{said['event']}' instead of '{event}'")
        return said["what"]

    def text(self, limit_s):
        """All that it says until it ends well."""
        deadline, lines = time.monotonic() + limit_s, []
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise Failed(f"{self._name}: not within {limit_s:.0f} s") from None
            if line is None:
                break
            lines.append(line)
        if self._process.wait() != 0:
            raise Failed(f"{self._name} failed: {self._last_words()}")
        return "".join(lines)

    def cpu_us(self):
        """Its CPU so far, and that of the processes it has started."""
        return family_cpu_us(self._process.pid)

    def tell_to_end(self):
        """Closes its standard input, which ends a worker in order."""
        self._process.stdin.close()

    def wait(self, limit_s):
        """Until it has ended well."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self._name}: did not end within {limit_s:.0f} s") from None
        if code != 0:
            raise Failed(f"{self._name} failed: {self._last_words()}")

    def close(self):
        """Ends it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.close()

    def _last_words(self):
        self._errors.seek(0)
        return self._errors.read()[-400:].strip() or f"exit {self._process.wait()}"
