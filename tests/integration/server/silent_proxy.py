"""A door to a server that can be made silent: it takes connections and bytes, and answers nothing.

What went through it before is cut off as well, as it is when a network swallows packets.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_BLOCK = 256 * 1024


class Valve:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._closed = False
        self.silent = False
        self.port: int = self._listener.getsockname()[1]
        self.asked = 0
        """Connections that brought something in silence."""
        threading.Thread(target=self._accept, name="valve", daemon=True).start()

    def recover(self) -> None:
        """Cut whoever waits off, and answer whoever comes again."""
        self.silent = False
        with self._lock:
            known, self._open = self._open, []
        for one in known:
            _end(one)

    def close(self) -> None:
        """From now on nobody is there."""
        with self._lock:
            self._closed = True
            known, self._open = [self._listener, *self._open], []
        for one in known:
            _end(one)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._kept(self._listener.accept()[0])
                far = self._kept(socket.create_connection(self._target, 10))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _kept(self, one: socket.socket) -> socket.socket:
        with self._lock:
            if not self._closed:
                self._open.append(one)
                return one
        _end(one)
        raise OSError("closed")

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        counted = False
        with suppress(OSError):
            while data := source.recv(_BLOCK):
                if not self.silent:
                    sink.sendall(data)
                elif not counted:
                    counted = True
                    with self._lock:
                        self.asked += 1
            sink.shutdown(socket.SHUT_WR)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
