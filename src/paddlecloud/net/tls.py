"""TLS of outgoing connections: which issuers are trusted, and what is wrong with a server's TLS.

Imported when a connection needs it, because `ssl` takes 20 ms.
"""

from __future__ import annotations

import socket
import ssl

from paddlecloud.model.errors import ConfigError, Unreachable

SECONDS = 2.0
_RECORDS = (b"\x15", b"\x16")
"""The first byte of an alert, and of a handshake message."""


#: Numbers of OpenSSL: not yet valid, expired; name, address do not match.
_OUT_OF_DATE = (9, 10)
_OTHER_NAME = (62, 64)
#: Reasons of OpenSSL for a response that is not TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


def context_for(tls: bool | str) -> ssl.SSLContext:
    """The issuers to trust: those of the system (True), or of a file. Made once for each set:
    reading the system's takes milliseconds."""
    found = _contexts.get(tls)
    if found is None:
        try:
            found = ssl.create_default_context(cafile=tls if isinstance(tls, str) else None)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError("ca_file_unusable", path=tls, reason=reason) from error
        if isinstance(tls, str):  # it may have the certificate of the server itself
            found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _contexts[tls] = found
    return found


_contexts: dict[bool | str, ssl.SSLContext] = {}


def tls_error(error: BaseException, address: str) -> Unreachable:
    """What is wrong with the peer's TLS, by what to do about it."""
    number = getattr(error, "verify_code", None)
    reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
    if number in _OUT_OF_DATE:
        return Unreachable("server_cert_expired", address=address)
    if number in _OTHER_NAME:
        return Unreachable("server_cert_name", address=address, reason=reason)
    if number is not None:
        return Unreachable("server_cert_issuer", address=address, reason=reason)
    if reason in _PLAIN:
        return Unreachable("server_plain", address=address)
    return Unreachable("server_no_tls", address=address, reason=reason)


def explained(error: Unreachable, host: str, port: int) -> Unreachable:
    """The error of a plain request that the server closed, or `server_wants_tls` instead: such a
    server closes without a word."""
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
