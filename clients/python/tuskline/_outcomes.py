"""How an attempt ends, other than by its return value; and the errors of calls."""

from __future__ import annotations

from typing import Optional

from ._durations import Duration, milliseconds


class Retry(Exception):
    """Try again, after a delay or by the lambda's backoff. Any other exception means the same."""

    def __init__(self, reason: object = "retry", *, after: Optional[Duration] = None) -> None:
        super().__init__(str(reason))
        self.after_ms = None if after is None else milliseconds(after)


class Fatal(Exception):
    """It can never succeed: do not try again."""


class Snooze(Exception):
    """Not now: again after so long. No attempt is used up, and it is no failure."""

    def __init__(self, after: Duration) -> None:
        super().__init__("snoozed")
        self.after_ms = milliseconds(after)


class BadPayload(Fatal):
    """A JSON text that is no value of the wanted type."""


class TusklineError(Exception):
    """A call failed. `code` is the database's, as "TK003"; None: it did not come from the verbs."""

    def __init__(self, text: str, code: Optional[str] = None, hint: Optional[str] = None) -> None:
        super().__init__(text)
        self.code = code
        #: The remedy, if the database knows one.
        self.hint = hint


class Refused(TusklineError):
    """The call was wrong; the same call is refused again. Nothing was changed."""


class Fenced(TusklineError):
    """This attempt is over. The transaction cannot commit any more: let the exception go."""


class Unknown(TusklineError):
    """The connection broke during the call: it may be done or not. Repeat it with the same unique key."""
