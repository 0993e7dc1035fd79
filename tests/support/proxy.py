"""A TCP proxy that does to a line what networks do: cut it, hold it up, tear a frame, lose an answer, crawl.

Whatever it does it counts, so that a test can see that the fault has happened.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

CHUNK = 64 << 10
POLL_S = 0.05
SLICES_PER_S = 10
KAFKA_END_TXN = 26

Rewrite = Callable[[bytes], bytes]
Asks = Callable[[bytes], bool]


@dataclass(eq=False)
class Line:
    """One connection through the proxy; `near` is the client's end."""

    near: socket.socket
    far: socket.socket
    mute: bool = False
    closed: threading.Event = field(default_factory=threading.Event)

    def cut(self) -> None:
        """A reset for both ends."""
        self.closed.set()
        for end in (self.near, self.far):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                end.shutdown(socket.SHUT_RD)  # wakes whoever reads, and says nothing to the other side
            end.close()


class Proxy:
    """In front of one server; use in a `with`."""

    def __init__(self, host: str, port: int, rewrite: Rewrite = lambda answer: answer) -> None:
        self._target = (host, port)
        self._rewrite = rewrite
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flowing = threading.Event()
        self._flowing.set()
        self._stopped = threading.Event()
        self._lines: set[Line] = set()
        self._lock = threading.Lock()
        self._bytes_per_s: int | None = None
        self._torn: tuple[bool, int] | None = None
        self._unanswered: Asks | None = None
        self.faults = 0

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._flowing.set()
        # A thread in accept() does not notice that its socket was closed.
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._listener.close()
        self.cut()

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """Reset every connection; new ones are welcome."""
        with self._lock:
            lines, self._lines = self._lines, set()
        for line in lines:
            line.cut()
        self.faults += bool(lines)

    def stall(self) -> None:
        """Pass on nothing, in neither direction, and close nothing."""
        self.faults += bool(self._lines)
        self._flowing.clear()

    def crawl(self, bytes_per_s: int) -> None:
        """Pass on so much a second on each line, in each direction."""
        self.faults += bool(self._lines)
        self._bytes_per_s = bytes_per_s

    def heal(self) -> None:
        """As if nothing had been."""
        self._bytes_per_s = None
        self._flowing.set()

    def tear(self, *, answer: bool, after_bytes: int) -> None:
        """Of what comes next in this direction, pass on so many bytes, then cut the line."""
        self._torn = (answer, after_bytes)

    def lose_answer(self, asks: Asks) -> None:
        """Pass on the next request that `asks`; when its answer comes, cut the line instead."""
        self._unanswered = asks

    def _accept(self) -> None:
        while not self._stopped.is_set():
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(self._target, 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            line = Line(near, far)
            with self._lock:
                self._lines.add(line)
            for answer in (False, True):
                threading.Thread(target=self._pump, args=(line, answer), daemon=True).start()

    def _pump(self, line: Line, answer: bool) -> None:
        source, sink = (line.far, line.near) if answer else (line.near, line.far)
        try:
            while not line.closed.is_set():
                chunk = source.recv(CHUNK)
                while not self._flowing.wait(POLL_S) and not line.closed.is_set():
                    pass
                if not chunk or not self._pass_on(line, sink, chunk, answer):
                    break
        except OSError:
            pass
        with self._lock:
            self._lines.discard(line)
        line.cut()

    def _pass_on(self, line: Line, sink: socket.socket, chunk: bytes, answer: bool) -> bool:
        """False when the line ends here."""
        torn = self._torn
        if torn is not None and torn[0] == answer and len(chunk) > torn[1]:
            self._torn = None
            self.faults += 1
            sink.sendall(chunk[: torn[1]])
            return False
        if answer and line.mute:
            self.faults += 1
            return False
        if not answer and self._unanswered is not None and self._unanswered(chunk):
            self._unanswered = None
            line.mute = True
        for piece in self._pieces(self._rewrite(chunk) if answer else chunk):
            sink.sendall(piece)
        return True

    def _pieces(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            rate = self._bytes_per_s
            if rate is None:
                yield chunk
                return
            size = max(1, rate // SLICES_PER_S)
            yield chunk[:size]
            chunk = chunk[size:]
            self._stopped.wait(1 / SLICES_PER_S)


def kafka_through(host: str, port: int) -> Proxy:
    """In front of a broker, which is made to name the proxy as its own address."""
    proxy: list[Proxy] = []

    def rewrite(answer: bytes) -> bytes:
        return answer.replace(host.encode() + struct.pack(">i", port), host.encode() + struct.pack(">i", proxy[0].port))

    proxy.append(Proxy(host, port, rewrite))
    return proxy[0]


def ends_transaction(request: bytes) -> bool:
    """A Kafka request that commits or aborts a transaction."""
    return len(request) >= 6 and struct.unpack(">h", request[4:6])[0] == KAFKA_END_TXN
