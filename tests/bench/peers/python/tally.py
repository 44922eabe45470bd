"""What a worker did, and how it is said: one JSON object a line."""

import json
import time


def say(event, what, to=None):
    """Says that something happened."""
    print(json.dumps({"event": event, "what": what}), file=to, flush=True)


class Tally:
    """Starts of one worker process."""

    def __init__(self, expected, to=None):
        self.expected, self._to = expected, to
        self._executed, self._first_ns, self._late = 0, 0, []

    def start(self, at_ns=None):
        """A task starts."""
        now = time.monotonic_ns()
        self._executed += 1
        if self._executed == 1:
            self._first_ns = now
        if at_ns:
            self._late.append((at_ns, (now - at_ns) // 1000))
        if self._executed == self.expected:
            say("all_started", {}, self._to)

    def end(self):
        """Says what there was."""
        seen = {"executed": self._executed, "first_ns": self._first_ns, "late": self._late}
        say("end", seen, self._to)
