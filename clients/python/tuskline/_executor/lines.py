"""A connection of the event loop: one message under way at a time, repeated when the connection broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .wire import REPEAT_REST_SECONDS, REPEAT_SECONDS, Answers, request

Answered = Callable[[int, bytes], None]


#: Asyncio's own buffer for each read is so large that the allocator asks the kernel for it: 25 us.
_READ_BYTES = 65_536


class Line(asyncio.BufferedProtocol):
    """`gone` is called when the controller does not answer any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, gone: Callable[[], None]) -> None:
        self._loop, self._path, self._gone = loop, path, gone
        self._transport: asyncio.Transport | None = None
        self._answers = Answers()
        self._read = bytearray(_READ_BYTES)
        self._sent = b""
        self._answered: Answered | None = None
        self._repeat: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._answered is not None

    def send(self, message: str, body: bytes, answered: Answered) -> None:
        self._sent, self._answered = request(message, body), answered
        if self._transport is not None:
            self._transport.write(self._sent)
        elif self._repeat is None:
            self._repeat = self._loop.create_task(self._send_again())

    def close(self) -> None:
        self._answered = None
        if self._repeat is not None:
            self._repeat.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._answers = transport, Answers()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        self._answers.feed(memoryview(self._read)[:nbytes])
        answer = self._answers.next()
        if answer is not None and self._answered is not None:
            answered, self._answered = self._answered, None
            answered(*answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answered is not None and self._repeat is None:
            self._repeat = self._loop.create_task(self._send_again())

    async def _send_again(self) -> None:
        until = self._loop.time() + REPEAT_SECONDS
        while True:
            try:
                await self._loop.create_unix_connection(lambda: self, self._path)
                break
            except OSError:
                if self._loop.time() >= until:
                    self._gone()
                    return
                await asyncio.sleep(REPEAT_REST_SECONDS)
        self._repeat = None
        if self._transport is not None:
            self._transport.write(self._sent)
        elif self._answered is not None:  # it broke at once
            self._repeat = self._loop.create_task(self._send_again())
