"""HTTP by hand over the controller's unix socket. A call that was not answered is repeated for one second."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

#: A message that was not answered is sent again for so long. Then the controller is gone.
REPEAT_SECONDS = 1.0
REPEAT_REST_SECONDS = 0.02

_HEAD = (
    "POST /tuskline.v1.Controller/{} HTTP/1.1\r\nhost: tuskline\r\n"
    "content-type: application/json\r\ncontent-length: {}\r\n\r\n"
)
#: The status of a message that did not arrive in time. Nothing of it was taken.
_TOO_SLOW = 408
#: Below the size for which the allocator asks the kernel: 262,144 take 25 us more.
_READ_BYTES = 65_536


#: The exit codes of an executor: drained; the controller is gone, or has replaced it; it would be wrong again.
DRAINED, ENDED, WRONG = 0, 1, 2


class Gone(Exception):
    """The controller answers no more."""

    exit_code = ENDED


class WireError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        try:
            said: dict[str, Any] = json.loads(body)
        except ValueError:
            said = {"message": body[:200].decode(errors="replace")}
        self.status = status
        self.exit_code = WRONG if status == 400 else ENDED
        self.name = str(said.get("name"))
        self.code = said.get("code")
        self.text = f"{self.name}: {said.get('message')}"
        super().__init__(f"{status} {self.text}")


def request(message: str, body: bytes) -> bytes:
    """The bytes of a request."""
    return _HEAD.format(message, len(body)).encode() + body


class Answers:
    """Reads answers from the bytes of a connection."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._head = -1  # where the body begins
        self._end = 0
        self._status = 0

    def feed(self, data: bytes | memoryview) -> None:
        self._bytes += data

    def next(self) -> tuple[int, bytes] | None:
        """The next whole answer: its status and body. Raises ConnectionError for what is no HTTP."""
        if self._head < 0:
            found = self._bytes.find(b"\r\n\r\n")
            if found < 0:
                return None
            self._read_head(bytes(self._bytes[:found]), found + 4)
        if len(self._bytes) < self._end:
            return None
        body = bytes(self._bytes[self._head : self._end])
        del self._bytes[: self._end]
        self._head = -1
        return self._status, body

    def _read_head(self, head: bytes, begin: int) -> None:
        status_line, *fields = head.split(b"\r\n")
        length = -1
        try:
            for field in fields:
                name, _, value = field.partition(b":")
                if name.strip().lower() == b"content-length":
                    length = int(value)
            self._status = int(status_line.split(b" ", 2)[1])
        except (ValueError, IndexError):
            length = -1
        if length >= 0 and self._status == _TOO_SLOW:
            raise ConnectionError("the message took too long to arrive")
        if length < 0:
            raise ConnectionError(f"an answer that is none: {head[:80]!r}")
        self._head, self._end = begin, begin + length


class Wire:
    """A blocking connection of one lane or thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._answers = Answers()

    def call(self, message: str, body: bytes, repeatable: bool = True) -> Any:
        """The answer, decoded. Raises Gone, or WireError for any status but 200."""
        sent, until = request(message, body), 0.0
        while True:
            try:
                status, answer = self._once(sent)
            except OSError as error:
                asked = self._socket is not None  # it was open, so the controller may have read the message
                self.close()
                now = time.monotonic()
                until = until or now + REPEAT_SECONDS
                if now >= until or asked and not repeatable:
                    raise Gone(f"the controller at {self._path} does not answer: {error}") from error
                time.sleep(REPEAT_REST_SECONDS)
                continue
            if status != 200:
                raise WireError(status, answer)
            return json.loads(answer)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _once(self, sent: bytes) -> tuple[int, bytes]:
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                opened.connect(self._path)
            except OSError:
                opened.close()
                raise
            self._socket, self._answers = opened, Answers()
        self._socket.sendall(sent)
        while True:
            answer = self._answers.next()
            if answer is not None:
                return answer
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the connection ended")
            self._answers.feed(data)
