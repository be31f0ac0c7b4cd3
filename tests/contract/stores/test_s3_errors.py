"""What an S3 server refuses: this file, or everything; and names that no XML can hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from paddlecloud.model.errors import PaddleCloudError, Refused, Retry
from paddlecloud.stores.s3 import _client as client
from paddlecloud.stores.s3.store import S3Store
from tests.contract.stores.fixed_response_server import answering
from tests.contract.stores.open_uploads import open_uploads
from tests.contract.stores.test_s3 import HOUR, MIB, fetch, opened

OFF = timedelta(hours=5)


def error_of(code: str) -> bytes:
    return b"<Error><Code>%b</Code><Message>no</Message></Error>" % code.encode()


# -- this file, or everything ------------------------------------------------------------------

FILES: list[Callable[[S3Store], object]] = [
    lambda store: store.client.ask(client.Request(method="PUT", key="dir/x", body=b"1")),
    lambda store: store.begin_parts("dir/x", part_size=1),
    lambda store: store.put_part("dir/x", "upload", 1, b"1"),
    lambda store: store.stat("dir/x"),
    lambda store: store.read("dir/x"),
]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "XMinioInvalidObjectName"),
        (400, "XMinioParentIsObject"),
        (400, "InvalidArgument"),
        (400, "KeyTooLongError"),
        (405, "MethodNotAllowed"),
        (413, ""),
    ],
)
def test_what_is_said_of_one_file_is_a_refusal_of_it(status: int, code: str) -> None:
    with answering(status, error_of(code)) as (store, server):
        for number, call in enumerate(FILES):
            server.asked = 0
            with pytest.raises(Refused) as caught:
                call(store)
            assert caught.value.code == "store_refused", number
            assert server.asked <= 2, "the second has another form"
            told = str(caught.value) + caught.value.text("zh")
            assert (told.count("dir/x"), len(re.findall(rf"[(（]{status}\b", told))) == (2, 2), told


@pytest.mark.parametrize(
    ("status", "code", "kind", "want"),
    [
        (400, "AuthorizationHeaderMalformed", Retry, "store_failed"),
        (400, "InvalidBucketName", Retry, "store_failed"),
        (400, "InvalidPart", Retry, "store_failed"),
        (400, "InvalidRequest", Retry, "store_failed"),
        (400, "", Retry, "store_failed"),
        (400, "SlowDown", Retry, "store_failed"),
        (400, "BadDigest", Retry, "store_damaged"),
        (400, "ExpiredToken", Refused, "store_denied"),
        (400, "XMinioStorageFull", Retry, "store_full"),
        (403, "AccessDenied", Refused, "store_denied"),
        (403, "RequestTimeTooSkewed", Refused, "store_clock"),
        (404, "NoSuchBucket", Refused, "store_bucket_missing"),
        (408, "", Retry, "store_failed"),
        (425, "", Retry, "store_failed"),
        (429, "", Retry, "store_failed"),
        (501, "NotImplemented", Retry, "store_failed"),
        (503, "SlowDown", Retry, "store_failed"),
    ],
)
def test_what_is_said_of_everything_is_no_refusal_of_a_file(
    status: int, code: str, kind: type[PaddleCloudError], want: str
) -> None:
    with answering(status, error_of(code)) as (store, _):
        with pytest.raises(kind) as caught:
            store.begin_parts("x", part_size=1)
        assert caught.value.code == want


@pytest.mark.parametrize(
    ("code", "want"), [("ExpiredToken", "store_denied"), ("InvalidRequest", "store_failed")]
)
def test_why_a_look_is_refused_is_found_out(code: str, want: str) -> None:
    """The answer to a HEAD has no words."""
    with answering(400, error_of(code)) as (store, _):
        with pytest.raises(PaddleCloudError) as caught:
            store.stat("x")
        assert caught.value.code == want


def test_a_bucket_that_is_not_listed_refuses_no_file() -> None:
    with answering(400, error_of("InvalidArgument")) as (store, _):
        with pytest.raises(Retry) as caught:
            store.probe()
        assert caught.value.code == "store_failed"


# -- names that no XML can hold ----------------------------------------------------------------

UNWRITABLE = ["\x01", "&#x1;", "&#1;", "&#x1F;", "&#x0B;", "\ufffe", "&#xFFFE;"]


@pytest.mark.parametrize("name", UNWRITABLE)
def test_an_upload_is_begun_whatever_its_name_is(name: str) -> None:
    said = f"<Key>dir/{name}</Key><UploadId>one</UploadId>"
    body = f"<InitiateMultipartUploadResult>{said}</InitiateMultipartUploadResult>"
    with answering(200, body.encode()) as (store, _):
        assert store.begin_parts("dir/x", part_size=1) == "one"


@pytest.mark.parametrize("name", UNWRITABLE)
def test_an_error_is_understood_whatever_the_name_is(name: str) -> None:
    body = f"<Error><Code>NoSuchKey</Code><Key>{name}</Key></Error>"
    with answering(404, body.encode()) as (store, _):
        assert store.stat("x") is None
        with pytest.raises(PaddleCloudError) as caught:
            store.read("x")
        assert caught.value.code == "file_missing"


def test_a_file_of_any_name_goes_in_parts(s3: S3Store) -> None:
    name = "e\x01\x0b\x1f"
    assert s3.write(name, [b"z" * MIB] * 9).size == 9 * MIB
    assert open_uploads(s3, name) == []


# -- the list of open uploads ------------------------------------------------------------------


def test_open_uploads_are_found_by_any_name(s3: S3Store) -> None:
    names = ["a b+c%41", "plain", "模型 1+.pt", "x+y"]
    for name in names:
        upload = s3.begin_parts(name, part_size=MIB)
        assert [found for found, _ in open_uploads(s3, name)] == [upload]
    s3.begin_parts("a\x01b", part_size=MIB)
    assert s3.sweep(datetime.now(UTC) + HOUR) == len(names) + 1
    assert [open_uploads(s3, name) for name in names] == [[]] * len(names)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("<EncodingType>url</EncodingType>", "a%01b+c%2B"),
        ("<EncodingType>url</EncodingType>", "a\x01b c+"),
        ("", "a&#x1;b c+"),
        ("", "a b"),
    ],
)
def test_a_list_of_uploads_is_understood_however_names_are_told(told: str, name: str) -> None:
    began = datetime.now(UTC)
    row = f"<Key>{name}</Key><UploadId>u</UploadId><Initiated>{began.isoformat()}</Initiated>"
    upload = f"{told}<Upload>{row}</Upload>"
    body = f"<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>"
    with answering(200, body.encode()) as (store, _):
        assert store.sweep(began - HOUR) == 0
        if "%01" in name:
            assert open_uploads(store, "a\x01b c+") == [("u", began)]


# -- a clock that is wrong ---------------------------------------------------------------------


def wrong(off: timedelta) -> datetime:
    return datetime.now(UTC) + off


@pytest.mark.parametrize("off", [OFF, -OFF])
def test_addresses_are_signed_by_the_clock_that_was_learnt(
    s3_settings: dict[str, str], off: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store that learnt it, and by the next one, which asks nothing itself."""
    monkeypatch.setattr(client, "_skews", {})
    monkeypatch.setattr("paddlecloud.stores.s3.store._utc_now", lambda: wrong(off))
    with opened(s3_settings) as asked, opened(s3_settings) as fresh:
        assert list(asked.list()) == []
        for store in (asked, fresh):
            address = store.presign_write("x", good_for=HOUR, now=wrong(off))
            assert fetch("PUT", address, b"1")[0] == 200
