"""An address at which something answers that is no object store: a portal, a proxy, a website."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paddlecloud.model.errors import NotFound, PaddleCloudError, Refused, Unreachable
from paddlecloud.stores import create
from paddlecloud.stores.private import BosPlace, check_private, list_private
from paddlecloud.stores.s3 import S3Store
from paddlecloud.stores.sigv4 import Keys

PAGE = b"<html><body>Please sign in</body></html>"
XHTML = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body/></html>'
EMPTY_LIST = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

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
    store.wire.sleep = lambda seconds: None
    try:
        yield store, stranger
    finally:
        store.close()
        stranger.close()


CALLS: list[Callable[[S3Store], object]] = [
    lambda store: store.probe(),
    lambda store: list(store.list("dir/")),
    lambda store: store.stat("x"),
    lambda store: store.read("x"),
    lambda store: store.write("x", [b"bytes"]),
    lambda store: store.begin_parts("x", part_size=1),
    lambda store: store.put_part("x", "upload", 1, b"bytes"),
    lambda store: store.parts("x", "upload"),
    lambda store: store.finished("x", "upload", []),
    lambda store: store.begun("x"),
]
ANSWERS = [
    (200, PAGE, {"content_type": "text/html"}),
    (200, XHTML, {"content_type": "application/xml"}),
    (200, b"", {}),
    (302, b"", {"location": "http://portal.test/"}),
    (404, b"404 page not found\n", {"content_type": "text/html; charset=utf-8"}),
    (501, PAGE, {"content_type": "text/html"}),
]


@pytest.mark.parametrize(("status", "body", "headers"), ANSWERS)
def test_what_is_no_object_store_is_told_from_one(
    status: int, body: bytes, headers: dict[str, str]
) -> None:
    with answering(status, body, **headers) as (store, stranger):
        for number, call in enumerate(CALLS):
            stranger.asked = 0
            with pytest.raises(Unreachable) as caught:
                call(store)
            assert caught.value.code == "store_stranger", number
            assert stranger.asked <= 2, number
            said = str(caught.value) + caught.value.text("zh")
            assert store.place in said
            assert str(status) in said


def test_a_store_that_knows_no_list_of_uploads_is_no_stranger() -> None:
    with answering(200, EMPTY_LIST) as (store, _):
        assert store.begun("x") == []
        assert store.sweep(datetime.now(UTC)) == 0


def test_a_page_of_a_web_server_is_no_missing_file() -> None:
    with answering(404, PAGE) as (store, _), pytest.raises(Unreachable, match="no object store"):
        store.read("x")
    with answering(404, b"<Error><Code>NoSuchKey</Code></Error>") as (store, _):
        assert store.stat("x") is None
        with pytest.raises(NotFound):
            store.read("x")


@pytest.mark.parametrize(
    ("status", "body", "headers", "code"),
    [
        (403, b"", {}, "store_denied"),
        (403, PAGE, {"content_type": "text/html"}, "store_stranger"),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", {}, "store_bucket_missing"),
        (301, b"<Error><Code>PermanentRedirect</Code></Error>", {}, "store_failed"),
        (301, b"", {"x_amz_bucket_region": "elsewhere"}, "store_failed"),
        (503, PAGE, {"content_type": "text/html"}, "store_failed"),
    ],
)
def test_what_an_object_store_says_keeps_its_meaning(
    status: int, body: bytes, headers: dict[str, str], code: str
) -> None:
    with answering(status, body, **headers) as (store, _):
        with pytest.raises(PaddleCloudError) as caught:
            store.probe()
        assert caught.value.code == code


def test_a_store_that_keeps_nothing_is_found_out_before_a_job_is_taken() -> None:
    """It answers a question for names like a bucket, and whatever else as any web server."""
    place = BosPlace(bos_url="b.bj.bcebos.com/dir", bucket="b", region="bj", prefix="dir")
    keys = Keys(access_key="a", secret_key="s")
    with answering(200, EMPTY_LIST) as (_, stranger):
        with pytest.raises(Unreachable) as caught:
            check_private(place, keys, door=stranger.door)
        assert caught.value.code == "private_store_stranger"
    with answering(200, PAGE) as (_, stranger):
        for ask in (check_private, lambda *_, door: list_private(place, keys, most=9, door=door)):
            with pytest.raises(Unreachable, match=r"b\.bj\.bcebos\.com/dir") as caught:
                ask(place, keys, door=stranger.door)
            assert caught.value.code == "private_store_stranger"
            assert "127.0.0.1" in caught.value.text("zh")
            assert not isinstance(caught.value, Refused)
