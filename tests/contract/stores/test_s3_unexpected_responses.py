"""An address at which something answers that is no object store: a portal, a proxy, a website."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from paddlecloud.model.errors import NotFound, PaddleCloudError, Refused, Unreachable
from paddlecloud.stores.s3.sigv4 import Keys
from paddlecloud.stores.s3.store import S3Store
from paddlecloud.stores.user_bucket import BosLocation, check_user_bucket, list_user_bucket
from tests.contract.stores.fixed_response_server import answering
from tests.contract.stores.open_uploads import open_uploads

PAGE = b"<html><body>Please sign in</body></html>"
XHTML = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body/></html>'
EMPTY_LIST = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

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
    lambda store: open_uploads(store, "x"),
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
        assert open_uploads(store, "x") == []
        assert store.sweep(datetime.now(UTC)) == 0


def test_a_page_of_a_web_server_is_no_missing_file() -> None:
    with (
        answering(404, PAGE) as (store, _),
        pytest.raises(Unreachable, match="not an object store"),
    ):
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
    place = BosLocation(bos_url="b.bj.bcebos.com/dir", bucket="b", region="bj", prefix="dir")
    keys = Keys(access_key="a", secret_key="s")
    with answering(200, EMPTY_LIST) as (_, stranger):
        with pytest.raises(Unreachable) as caught:
            check_user_bucket(place, keys, endpoint=stranger.door)
        assert caught.value.code == "private_store_stranger"
    with answering(200, PAGE) as (_, stranger):
        for ask in (
            check_user_bucket,
            lambda *_, endpoint: list_user_bucket(place, keys, most=9, endpoint=endpoint),
        ):
            with pytest.raises(Unreachable, match=r"b\.bj\.bcebos\.com/dir") as caught:
                ask(place, keys, endpoint=stranger.door)
            assert caught.value.code == "private_store_stranger"
            assert "127.0.0.1" in caught.value.text("zh")
            assert not isinstance(caught.value, Refused)
