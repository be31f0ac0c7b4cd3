"""The parser of a connection: declines offers of other protocols and keeps the request's body.

Java's HttpClient, Ktor and `curl --http2` send `Upgrade: h2c` with their first request, also if it
has a body. A server may ignore the offer and answer in HTTP/1.1 (RFC 9110, 7.8); but httptools ends
the request at its headers and leaves the body to the next protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FRAMING = (b"content-length", b"transfer-encoding")


class RequestParser(httptools.HttpRequestParser):
    """Becomes `connection.parser`, which it replaces by another one at a declined offer."""

    def __init__(self, connection: HttpToolsProtocol, callbacks: object = None) -> None:
        super().__init__(callbacks or connection)
        # A response may be sent before the next requests of a closing connection are parsed.
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._connection = connection

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # bytes is what we feed
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            connection = self._connection
            if self.get_method() == b"CONNECT" or connection._should_upgrade():
                raise
            rest = RequestParser(connection, _BodyFirst(connection))
            connection.parser = rest
            connection.cycle.more_body = True  # httptools has reported an empty one
            rest.feed_data(_head(connection.headers) + data[offer.args[0] :])


class _BodyFirst:
    """Callbacks of a parser that first gets a head which the connection knows already: passes on
    its body, and everything from the next request on."""

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._connection = connection
        self._known = True
        self.on_body = connection.on_body

    def on_message_begin(self) -> None:
        if not self._known:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._known:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._known:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._known:
            self._connection.on_headers_complete()

    def on_message_complete(self) -> None:
        self._known = False
        self._connection.on_message_complete()


def _head(headers: list[tuple[bytes, bytes]]) -> bytes:
    """A head that frames the body in the same way and offers nothing."""
    lines = [b"%b: %b\r\n" % header for header in headers if header[0] in _FRAMING]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)
