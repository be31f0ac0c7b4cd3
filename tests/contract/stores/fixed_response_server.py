"""A server that gives the same response to every request, and a store that uses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from paddlecloud.stores import create
from paddlecloud.stores.s3.store import S3Store

Said = tuple[int, dict[str, str], bytes]


class Stranger:
    """A server that gives the same answer to everything."""

    def __init__(self, said: Said) -> None:
        self.said, self.asked = said, 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(handler) -> None:
                self.asked += 1
                handler.rfile.read(int(handler.headers.get("content-length", 0)))
                status, headers, body = self.said
                handler.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    handler.send_header(name, value)
                handler.end_headers()
                if handler.command != "HEAD":
                    handler.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.door = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def answering(status: int, body: bytes = b"", **headers: str) -> Iterator[tuple[S3Store, Stranger]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    stranger = Stranger((status, named, body))
    keys = {"bucket": "b", "access_key": "a", "secret_key": "s"}
    store = create("s3", {"endpoint": stranger.door, **keys})
    assert isinstance(store, S3Store)
    store.client.sleep = lambda seconds: None
    try:
        yield store, stranger
    finally:
        store.close()
        stranger.close()
