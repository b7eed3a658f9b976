"""What a run shows while it works, chunk by chunk: see the streams of docs/function-contract.md."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable

from . import codec
from .errors import FatalError

# Send sends a write to the server: the body of POST /v1/runs/{id}/call/stream. It raises StepOver or FatalError if the
# server refuses it, and OSError if none can be reached.
Send = Callable[[dict[str, Any]], None]

EVERY = 0.1  # seconds between two requests of a writer
MOST_TOGETHER = 1000  # chunks of a request
LARGEST_TOGETHER = 512 << 10  # and their bytes
LARGEST_CHUNK = (256 << 10) - 1  # bytes of JSON
MOST_UNSENT = 1 << 20  # bytes that are on their way before a writer waits


@dataclass
class Write:
    """Chunks of one stream, the first of which has the index begin."""

    stream: str
    begin: int
    chunks: list[Any] = field(default_factory=list)
    close: bool = False
    size: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"stream": self.stream, "from": self.begin, "chunks": self.chunks, "close": self.close}


class Stream:
    """A stream of the run: who watches it reads what is written, from the beginning and live."""

    def __init__(self, name: str, add: Callable[[str, tuple[Any, int] | None], None]) -> None:
        self.name, self._add = name, add

    def write(self, chunk: Any) -> None:
        """Writes a chunk: up to 256 KiB of JSON. In a step it raises StepOver if nobody waits for that any more, and
        FatalError, with the code `stream_limit` or `stream_closed`, if the server refuses what was written before."""
        plain = codec.checked(f"a chunk of stream {self.name!r}", chunk)
        if (size := len(codec.dumps(plain))) > LARGEST_CHUNK:
            raise FatalError(f"a chunk of stream {self.name!r} has {size} bytes; the limit is {LARGEST_CHUNK}")
        self._add(self.name, (plain, size))

    def close(self) -> None:
        """Closes the stream: who follows it sees the end at once, and not only when the run ends."""
        self._add(self.name, None)


class Writes:
    """What a writer has written and nobody has sent."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self.waiting: deque[Write] = deque()
        self.size = 0

    def add(self, stream: str, chunk: tuple[Any, int] | None, wanted: bool = True) -> None:
        """Adds a chunk with its size; None closes the stream. A chunk that is not wanted is only counted."""
        begin = self._next.get(stream, 0)
        if chunk:
            self._next[stream] = begin + 1
        if not wanted:
            return
        w, size = self.waiting[-1] if self.waiting else None, chunk[1] if chunk else 0
        if (
            not w or w.stream != stream or w.close or w.begin + len(w.chunks) != begin
            or len(w.chunks) == MOST_TOGETHER or w.size + size > LARGEST_TOGETHER
        ):  # fmt: skip
            w = Write(stream, begin)
            self.waiting.append(w)
        if chunk:
            w.chunks.append(chunk[0])
        else:
            w.close = True
        w.size += size
        self.size += size

    def take(self) -> Write:
        w = self.waiting.popleft()
        self.size -= w.size
        return w


class Sender:
    """Sends what an attempt of a step writes, in the background. Without a pause, each chunk is sent at once."""

    def __init__(self, send: Send, every: float = EVERY) -> None:
        self._send, self._every = send, every
        self._writes = Writes()
        self._changed = threading.Condition()
        self._hurry = threading.Event()
        self._running = False
        self._error: BaseException | None = None

    def add(self, stream: str, chunk: tuple[Any, int] | None) -> None:
        """Sends a chunk; see Writes.add."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._writes.size <= MOST_UNSENT)
            if self._error:
                raise self._error
            self._writes.add(stream, chunk)
            if not self._every:
                self._send(self._writes.take().as_json())
            elif not self._running:
                self._running = True
                threading.Thread(target=self._run, name="stepwell streams", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._writes.waiting or self._error:
                    self._running = False
                    self._changed.notify_all()
                    return
                w = self._writes.take()
                self._changed.notify_all()
            try:
                self._send(w.as_json())
            except BaseException as e:
                self._error = e
            else:
                self._hurry.wait(self._every)

    def end(self) -> None:
        """Waits until everything is sent. Raises what a write does."""
        self._hurry.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
        if self._error:
            raise self._error
