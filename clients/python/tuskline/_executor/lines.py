"""A connection of the event loop: one message under way at a time, repeated when the connection broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .wire import REPEAT_REST_SECONDS, REPEAT_SECONDS, Answers, request

Answered = Callable[[int, bytes], None]


#: Asyncio's own buffer for each read is so large that the allocator asks the kernel for it: 25 us.
_READ_BYTES = 65_536


class Line(asyncio.BufferedProtocol):
    """`gone` is called when the controller does not answer any more, with the reason."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, gone: Callable[[str], None]) -> None:
        self._loop, self._path, self._gone = loop, path, gone
        self._transport: asyncio.Transport | None = None
        self._answers = Answers()
        self._read = bytearray(_READ_BYTES)
        self._sent = b""
        self._answered: Answered | None = None
        self._repeat: asyncio.Task[None] | None = None
        self._until: float | None = None  # then the message under way has been repeated for long enough
        self._reason = "the connection ended"

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
        try:
            answer = self._answers.next()
        except ConnectionError as error:
            self._reason = str(error)
            assert self._transport is not None
            self._transport.abort()
            return
        if answer is not None and self._answered is not None:
            answered, self._answered, self._until = self._answered, None, None
            answered(*answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answered is not None and self._repeat is None:
            self._repeat = self._loop.create_task(self._send_again())

    async def _send_again(self) -> None:
        """Opens a connection and sends what has no answer yet, for one second in all."""
        if self._until is None:
            self._until = self._loop.time() + REPEAT_SECONDS
        else:
            await asyncio.sleep(REPEAT_REST_SECONDS)
        while True:
            if self._loop.time() >= self._until:
                self._gone(self._reason)
                return
            try:
                await self._loop.create_unix_connection(lambda: self, self._path)
                break
            except OSError as error:
                self._reason = str(error)
                await asyncio.sleep(REPEAT_REST_SECONDS)
        self._repeat = None
        if self._transport is not None:
            self._transport.write(self._sent)
        elif self._answered is not None:  # it broke at once
            self._repeat = self._loop.create_task(self._send_again())
