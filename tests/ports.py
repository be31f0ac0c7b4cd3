"""Ports that stay free until the test's own server takes them, also beside parallel tests.

A port that is only looked up may be taken a moment later, by the next bind to port 0. This one
stays bound, without listening: a server that reuses addresses, as ours do, can still listen there,
earlier connections are refused, and no other process gets the port.
"""

from __future__ import annotations

import atexit
import socket


def free_port() -> int:
    """A port of this machine that is kept for the test until its process ends."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    atexit.register(holder.close)
    return int(holder.getsockname()[1])
