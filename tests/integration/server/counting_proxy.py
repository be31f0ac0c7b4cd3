"""A door to a server that counts the bytes on their way there, and can be shut after some."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.integration.server.silent_proxy import Valve

_BLOCK = 64 * 1024


class Toll(Valve):
    def __init__(self, host: str, port: int) -> None:
        self._changed = threading.Condition()
        self._shut_at: int | None = None
        self._over = False
        self.passed = 0
        super().__init__(host, port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def shut_at(self, passed: int | None) -> None:
        """Let nothing more through after so many bytes; None: let everything through."""
        with self._changed:
            self._shut_at = passed
            self._changed.notify_all()

    def is_shut(self, seconds: float) -> bool:
        """Whether it comes to that in so many seconds."""
        with self._changed:
            return self._changed.wait_for(self._is_full, seconds)

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        super().close()

    def _is_full(self) -> bool:
        return self._shut_at is not None and self.passed >= self._shut_at

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            there = sink.getpeername() == self._target
            while data := source.recv(_BLOCK):
                if there and not self._let_through(len(data)):
                    break
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _let_through(self, size: int) -> bool:
        with self._changed:
            self.passed += size
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._over or not self._is_full())
            return not self._over
