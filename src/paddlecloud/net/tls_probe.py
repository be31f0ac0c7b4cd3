"""Finds out whether a server that closed a plain connection expects TLS.

Such a server closes without a word, so the error alone does not show that `http://` is the mistake.
"""

from __future__ import annotations

import socket
import ssl

from paddlecloud.model.errors import Unreachable

SECONDS = 2.0
_RECORDS = (b"\x15", b"\x16")
"""The first byte of an alert, and of a handshake message."""


def explained(error: Unreachable, host: str, port: int) -> Unreachable:
    """The error of a plain request that the server closed, or `server_wants_tls` instead."""
    if error.code == "server_closed" and _speaks_tls(host, port):
        return Unreachable("server_wants_tls", address=str(error.params["address"]))
    return error


def _speaks_tls(host: str, port: int) -> bool:
    """Whether it answers the first message of TLS with TLS."""
    message = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    handshake = context.wrap_bio(ssl.MemoryBIO(), message, server_hostname=host)
    try:
        handshake.do_handshake()
    except ssl.SSLWantReadError:
        first = message.read()
    try:
        with socket.create_connection((host, port), SECONDS) as sock:
            sock.sendall(first)
            return sock.recv(1) in _RECORDS
    except (OSError, UnicodeError):
        return False
