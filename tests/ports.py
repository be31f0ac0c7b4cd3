"""Ports that stay free until the test's own server takes them, also beside parallel tests.

A port that is only looked up is anybody's a moment later: the next bind to port 0 may get it. Ours
stays bound, without listening: a server that reuses addresses, as ours do, can still listen there,
whoever calls before is refused, and nobody else is given it.
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
