"""What only an object store has: addresses for others, keys, and what fails on the way."""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paddlecloud.model.errors import (
    ConfigError,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    Unreachable,
)
from paddlecloud.net.proxy import Proxies
from paddlecloud.stores import CanLocalPath, CanPresign, create
from paddlecloud.stores.base import Part
from paddlecloud.stores.pack import PackReceiver
from paddlecloud.stores.s3 import _client as client
from paddlecloud.stores.s3 import _multipart as multipart
from paddlecloud.stores.s3._checksums import ChecksumHeaders
from paddlecloud.stores.s3._client import Request, S3Client
from paddlecloud.stores.s3._errors import OUTAGE_TRIES, TRIES
from paddlecloud.stores.s3.sigv4 import Keys
from paddlecloud.stores.s3.store import S3Store
from scripts import s3 as server
from tests.contract.stores.helpers import content, paths, sha256
from tests.faulty_proxy import FaultyProxy, as_it_is, faulty_proxy
from tests.proxies import proxying
from tests.s3 import reader_settings, writer_settings

HOUR = timedelta(hours=1)
MIB = 1024 * 1024
FAULT = b"<Error><Code>InternalError</Code><Message>no room</Message></Error>"
FAILED = b"HTTP/1.1 500 Oh\r\ncontent-length: %d\r\n\r\n%s" % (len(FAULT), FAULT)
BUSY = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n"


def fetch(method: str, url: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """What somebody without keys gets with this address."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def opened(settings: dict[str, str], **other: object) -> Iterator[S3Store]:
    store = create("s3", {**settings, **other})
    assert isinstance(store, S3Store)
    store.client.sleep = lambda seconds: None
    try:
        yield store
    finally:
        store.close()


@contextmanager
def through(settings: dict[str, str]) -> Iterator[tuple[S3Store, FaultyProxy]]:
    """A store, and the way to it that a test may damage."""
    with faulty_proxy(settings["endpoint"]) as way, opened(settings, endpoint=way.url) as store:
        yield store, way


def once(change: Callable[[bytes], bytes | None], when: bytes) -> Callable[[bytes], bytes | None]:
    """Do this to the first piece that has these bytes in it."""
    return first(1, change, when)


def first(
    count: int, change: Callable[[bytes], bytes | None], when: bytes
) -> Callable[[bytes], bytes | None]:
    """Do this to the first so many pieces that have these bytes in them."""
    left = [1] * count

    def piece(data: bytes) -> bytes | None:
        if when in data and left:
            left.pop()
            return change(data)
        return data

    return piece


# -- addresses for others ----------------------------------------------------------------------


def test_an_address_reads_and_writes_one_file(s3: S3Store) -> None:
    now = datetime.now(UTC)
    assert isinstance(s3, CanPresign)
    assert not isinstance(s3, CanLocalPath)
    write = s3.presign_write("d/模型 1+.pt", good_for=HOUR, now=now)
    assert fetch("PUT", write, b"0123456789")[0] == 200
    assert content(s3, "d/模型 1+.pt") == b"0123456789"
    read = s3.presign_read("d/模型 1+.pt", good_for=HOUR, now=now)
    assert fetch("GET", read) == (200, b"0123456789")
    assert fetch("GET", read, Range="bytes=3-5") == (206, b"345")


def test_an_address_is_for_nothing_else(s3: S3Store) -> None:
    now = datetime.now(UTC)
    s3.write("x", [b"mine"])
    read = s3.presign_read("x", good_for=HOUR, now=now)
    assert fetch("PUT", read, b"theirs")[0] == 403
    assert fetch("DELETE", read)[0] == 403
    assert fetch("GET", read.replace("/x?", "/y?"))[0] == 403
    late = s3.presign_read("x", good_for=HOUR, now=now - timedelta(hours=2))
    assert fetch("GET", late)[0] == 403
    assert content(s3, "x") == b"mine"


def test_parts_are_sent_past_the_server(s3: S3Store) -> None:
    size, now = 5 * MIB, datetime.now(UTC)
    upload = s3.begin_parts("x", part_size=size)
    for number, data in ((1, b"a" * size), (2, b"b")):
        url = s3.presign_part("x", upload, number, good_for=HOUR, now=now)
        assert fetch("PUT", url, data)[0] == 200
    assert s3.finish_parts("x", upload, size=size + 1).size == size + 1


# -- large files -------------------------------------------------------------------------------


def test_a_large_file_goes_in_parts_and_comes_back(s3: S3Store) -> None:
    data = os.urandom(20 * MIB + 3)
    pieces = [data[at : at + MIB] for at in range(0, len(data), MIB)]
    when = datetime(2021, 1, 2, 3, 4, 5, tzinfo=UTC)
    stat = s3.write("x", pieces, modified=when)
    assert (stat.size, stat.modified) == (len(data), when)
    assert sha256(content(s3, "x")) == sha256(data)
    with s3.read("x", 9 * MIB, 5) as reader:
        assert b"".join(reader) == data[9 * MIB :][:5]


def test_an_aborted_large_file_leaves_no_parts(s3: S3Store) -> None:
    sink = s3.open_write("x")
    for _ in range(20):
        sink.write(b"z" * MIB)
    assert paths(s3) == []
    sink.abort()
    assert paths(s3) == []
    assert s3.sweep(datetime.now(UTC) + HOUR) == 0
    with pytest.raises(ValueError, match="aborted"):
        sink.write(b"more")


def test_a_large_file_that_breaks_off_leaves_nothing(s3: S3Store) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b"z" * MIB] * 20
        raise Retry("body_cut", size=20 * MIB)

    s3.write("x", [b"before"])
    with pytest.raises(Retry):
        s3.write("x", pieces())
    assert content(s3, "x") == b"before"
    assert s3.sweep(datetime.now(UTC) + HOUR) == 0


# -- names -------------------------------------------------------------------------------------


def test_a_prefix_is_a_directory_of_its_own(s3_settings: dict[str, str]) -> None:
    top = s3_settings["prefix"]
    with opened(s3_settings, prefix=f"{top}/a") as one, opened(s3_settings, prefix=top) as all_:
        one.write("x", [b"1"])
        all_.write("ab/x", [b"2"])
        assert paths(one) == ["x"]
        assert paths(all_) == ["a/x", "ab/x"]


def test_many_files_are_listed_page_by_page(s3: S3Store) -> None:
    names = [f"many/{number:04}" for number in range(50)]
    s3.page = 20
    for future in [s3.workers.submit(0, s3.write, name, [b"1"]) for name in names]:
        future.result()
    assert paths(s3, "many/") == names
    assert len(s3.sizes(names)) == len(names)
    assert s3.delete_tree("many") == len(names)
    assert paths(s3) == []


def test_a_name_that_is_too_long_for_a_bucket(s3: S3Store) -> None:
    with pytest.raises(PaddleCloudError, match="1024 bytes"):
        s3.open_write("/".join(["x" * 200] * 6))


# -- what is wrong with the settings -----------------------------------------------------------


@pytest.mark.parametrize("name", ["endpoint", "bucket", "access_key", "secret_key"])
def test_a_setting_that_is_missing(s3_settings: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        create("s3", {**s3_settings, name: ""})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"access_key": "nobody"}, "store_denied"),
        ({"secret_key": "wrong"}, "store_denied"),
        ({"bucket": "nothing-here"}, "store_bucket_missing"),
        ({"endpoint": "http://127.0.0.1:9"}, "store_unreachable"),
    ],
)
def test_what_is_wrong_is_said(
    s3_settings: dict[str, str], change: dict[str, str], code: str
) -> None:
    with opened({**s3_settings, **change}) as store:
        with pytest.raises(PaddleCloudError) as caught:
            store.probe()
        assert caught.value.code == code
        said = str(caught.value) + caught.value.text("zh")
        assert s3_settings["secret_key"] not in said
        assert store.place in said
        assert urlsplit(store.client.url("GET", "", (), HOUR, datetime.now(UTC))).netloc in said
        assert said.count("nothing-here") <= 2, "once in each language"
        assert isinstance(caught.value, Unreachable if code.endswith("reachable") else Refused)


def test_a_write_with_wrong_keys_is_refused_at_once(s3_settings: dict[str, str]) -> None:
    with opened(s3_settings, secret_key="wrong") as store:
        with pytest.raises(Refused):
            store.write("x", [b"1"])
        with pytest.raises(Refused):
            list(store.list())


def test_why_nobody_answers_is_told_in_one_language() -> None:
    told = "the connection was closed without a response"
    with answering(b"", b"") as store, pytest.raises(Unreachable, match=told) as caught:
        store.probe()
    assert "（连接已结束，没有响应）" in caught.value.text("zh")
    late = store.client.unreachable(Unreachable("server_timeout", address="x", seconds=1))
    assert ("(timed out)" in str(late), "（超时）" in late.text("zh")) == (True, True)


def test_the_host_that_was_asked_is_named(s3_settings: dict[str, str]) -> None:
    nowhere = {"endpoint": "http://127.0.0.1:9", "bucket": "team", "path_style": False}
    with opened(s3_settings, **nowhere) as store:
        assert store.place == "team (team.127.0.0.1:9)"


@pytest.mark.parametrize("lesser", [reader_settings, writer_settings])
def test_keys_are_tried_by_writing_and_reading(
    s3: S3Store, s3_settings: dict[str, str], lesser: Callable[[], dict[str, str]]
) -> None:
    s3.try_keys()
    assert paths(s3) == []
    with opened({**s3_settings, **lesser()}) as store:
        store.probe()
        with pytest.raises(Refused, match="their permissions"):
            store.try_keys()
    assert paths(s3) == []


def test_the_clock_of_the_server_is_followed(
    s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is wrong by hours: its requests are signed by the server's."""
    monkeypatch.setattr(client, "_skews", {})
    keys = Keys(access_key=s3_settings["access_key"], secret_key=s3_settings["secret_key"])
    wire = S3Client(
        s3_settings["endpoint"],
        s3_settings["bucket"],
        keys,
        region=s3_settings["region"],
        path_style=True,
        clock=lambda: datetime.now(UTC) + timedelta(hours=5),
    )
    store = S3Store(wire, prefix=s3_settings["prefix"])
    assert store.write("x", [b"1"]).size == 1
    store.close()


# -- what fails on the way ---------------------------------------------------------------------


def test_damaged_bytes_are_sent_again(s3_settings: dict[str, str]) -> None:
    data = b"precious " * 1000
    with through(s3_settings) as (store, way):
        way.there = once(lambda piece: piece.replace(b"precious", b"worthess", 1), b"precious")
        store.write("x", [data])
        assert content(store, "x") == data


def test_bytes_that_are_always_damaged_are_refused(s3_settings: dict[str, str]) -> None:
    with through(s3_settings) as (store, way):
        way.there = lambda piece: piece.replace(b"precious", b"worthess")
        with pytest.raises(Retry) as caught:
            store.write("x", [b"precious " * 1000])
        assert caught.value.code == "store_damaged"
        way.there = as_it_is
        assert paths(store) == []


def test_a_cut_upload_is_made_again(s3_settings: dict[str, str]) -> None:
    with through(s3_settings) as (store, way):
        way.there = once(lambda piece: None, b"PUT /")
        store.write("x", [b"data"])
        assert content(store, "x") == b"data"
        assert way.connections > 1


def test_a_lost_answer_is_no_failure(s3_settings: dict[str, str]) -> None:
    """The server did it, its answer never came: a large file is joined all the same."""
    data = os.urandom(9 * MIB)
    with through(s3_settings) as (store, way):
        way.back = once(lambda piece: None, b"CompleteMultipartUploadResult")
        assert store.write("x", [data]).size == len(data)
        assert sha256(content(store, "x")) == sha256(data)


def test_a_large_file_outlives_an_outage_that_a_small_one_does_not(
    s3_settings: dict[str, str],
) -> None:
    data = os.urandom(9 * MIB)
    with through(s3_settings) as (store, way):
        sink = store.open_write("x")
        sink.write(data)
        # Two parts: whichever of them is told so, one is told so as often as is the end of others.
        way.back = first(TRIES * 2 - 1, lambda piece: BUSY, b"HTTP/1.1 200")
        sink.commit()
        assert sha256(content(store, "x")) == sha256(data)
        way.back = first(TRIES, lambda piece: BUSY, b"HTTP/1.1 200")
        with pytest.raises(Retry, match="503"):
            store.write("small", [b"1"])


def test_a_server_that_fails_is_not_waited_for_as_one_that_is_away(
    s3_settings: dict[str, str],
) -> None:
    """A full one says so by a failure, to every part and for ever."""
    failed: list[bytes] = []

    def fail(piece: bytes) -> bytes:
        failed.append(piece)
        return FAILED

    with through(s3_settings) as (store, way):
        key = store.key("x")
        upload = multipart.begin(store.client, key, {})
        way.back = first(OUTAGE_TRIES, fail, b"HTTP/1.1 200")
        with pytest.raises(Retry, match="500 InternalError no room"):
            multipart.put_with_retries(store.client, key, upload, 1, b"data", wanted=lambda: True)
        assert len(failed) == TRIES
        way.back = as_it_is
        multipart.drop(store.client, key, upload)


def test_whoever_gives_up_does_not_wait_for_the_end_of_an_outage(
    s3_settings: dict[str, str],
) -> None:
    """The pause ends only when the file has been given up: then there is no further try."""
    ready, paused, given_up = threading.Event(), threading.Event(), threading.Event()
    refused: list[bytes] = []

    def hold(piece: bytes) -> bytes:
        assert b"partNumber=1&" not in piece or ready.wait(60)
        return piece

    def refuse(piece: bytes) -> bytes:
        refused.append(piece)
        return BUSY

    def pause(seconds: float) -> None:
        paused.set()
        assert given_up.wait(60)

    with through(s3_settings) as (store, way):
        sink = store.open_write("x")
        way.there, store.client.sleep = hold, pause
        sink.write(b"z" * (9 * MIB))
        way.back = first(TRIES, refuse, b"HTTP/1.1 200")
        ready.set()
        assert paused.wait(60)
        gone = threading.Thread(target=sink.abort)
        gone.start()
        while sink._upload and gone.is_alive():
            gone.join(0.01)
        given_up.set()
        gone.join(60)
        assert not gone.is_alive()
        assert len(refused) == 1


def cut_each(count: int) -> Callable[[bytes], bytes | None]:
    """Cut the connection whenever so many bytes have gone through."""
    carried = [0]

    def piece(data: bytes) -> bytes | None:
        carried[0] += len(data)
        if carried[0] > count:
            carried[0] = 0
            return None
        return data

    return piece


def test_a_cut_download_goes_on_at_the_same_byte(s3_settings: dict[str, str]) -> None:
    data = os.urandom(3 * MIB)
    with through(s3_settings) as (store, way):
        store.write("x", [data])
        before = way.connections
        way.back = cut_each(MIB)
        assert sha256(content(store, "x")) == sha256(data)
        assert way.connections >= before + 2


def test_a_file_that_is_replaced_during_a_cut_download(s3_settings: dict[str, str]) -> None:
    with through(s3_settings) as (store, way), opened(s3_settings) as other:
        store.write("x", [b"old" * MIB])
        way.back = cut_each(MIB)
        pieces = iter(store.read("x"))
        assert next(pieces).startswith(b"old")
        other.write("x", [b"new" * MIB])
        with pytest.raises(Retry) as caught:
            b"".join(pieces)
        assert caught.value.code == "store_changed"


def test_a_server_that_is_busy_is_asked_again(s3_settings: dict[str, str]) -> None:
    with through(s3_settings) as (store, way):
        way.back = once(lambda piece: BUSY, b"HTTP/1.1 200")
        store.write("x", [b"data"])
        assert content(store, "x") == b"data"


def test_an_answer_that_is_no_http(s3_settings: dict[str, str]) -> None:
    with through(s3_settings) as (store, way):
        way.back = lambda piece: b"SSH-2.0-nonsense\r\n\r\n"
        with pytest.raises(Unreachable, match="not an HTTP response"):
            store.probe()


def test_a_whole_answer_to_a_request_for_a_part() -> None:
    """Some servers do not know ranges; what comes before the part is left out."""
    head = b'HTTP/1.1 200 OK\r\netag: "1"\r\ncontent-length: 10\r\n\r\n'
    with answering(head + b"0123456789") as store, store.read("x", 4, 3) as reader:
        assert b"".join(reader) == b"456"


@contextmanager
def answering(*answers: bytes) -> Iterator[S3Store]:
    """A store at a server that says these things, each to one connection, and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    keys = {"access_key": "a", "secret_key": "s", "bucket": "b"}
    with opened({**keys, "endpoint": endpoint}) as store:
        yield store
    thread.join()
    listener.close()


def test_a_refusal_in_the_middle_of_a_body_is_heard() -> None:
    """A server that knows enough after the head says so and closes."""
    said = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    answer = b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n" % len(said) + said
    with answering(answer) as store, pytest.raises(Refused, match="AccessDenied no"):
        store.client.ask(Request(method="PUT", key="x", body=b"z" * (20 * MIB), tries=1))


def test_patience_is_for_outages_and_not_for_silence() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    keys = {"access_key": "a", "secret_key": "s", "bucket": "b"}
    with opened({**keys, "endpoint": endpoint}) as store:
        store.client._timeouts = (60.0, 0.01)
        with pytest.raises(Unreachable):
            store.client.ask(Request(method="PUT", key="x", body=b"1", tries=OUTAGE_TRIES))
    listener.setblocking(False)
    waiting = []
    with suppress(BlockingIOError):
        while True:
            waiting.append(listener.accept()[0])
    assert len(waiting) == TRIES
    for each in (*waiting, listener):
        each.close()


def test_a_server_that_waited_too_long_for_us_is_asked_again() -> None:
    """It says so with a status of 400, which is else a refusal."""
    said = b"<Error><Code>RequestTimeout</Code><Message>idle</Message></Error>"
    late = b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(
        said
    )
    taken = b'HTTP/1.1 200 OK\r\netag: "1"\r\ncontent-length: 0\r\n\r\n'
    with answering(late + said, taken) as store:
        store.client.ask(Request(method="PUT", key="x", body=b"1"))


JOINED = b"CompleteMultipartUploadResult"


@pytest.mark.parametrize("root", [b"Error", b'Error xmlns="http://s3.amazonaws.com/doc/"'])
def test_a_join_that_fails_after_its_head_is_made_again(root: bytes) -> None:
    failed = b"<%b><Code>InternalError</Code></Error>" % root
    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(said), said)
        for said in (failed, b"<%b></%b>" % (JOINED, JOINED))
    ]
    with answering(*answers) as store:
        multipart.finish(store.client, "x", "upload", [Part(number=1, size=1, tag="t")])


def uploads_of(began: datetime, *parts: datetime) -> list[bytes]:
    """What a server says of its one open upload, and then of the parts of that."""
    rows = b"".join(
        b"<Part><PartNumber>%d</PartNumber><LastModified>%b</LastModified></Part>" % (number, when)
        for number, when in enumerate((part.isoformat().encode() for part in parts), 1)
    )
    upload = b"<Key>x</Key><UploadId>u</UploadId><Initiated>%b</Initiated>"
    said = (
        b"<ListMultipartUploadsResult><Upload>%b</Upload></ListMultipartUploadsResult>"
        % (upload % began.isoformat().encode()),
        b"<ListPartsResult>%b</ListPartsResult>" % rows,
    )
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
    return [head % (len(body), body) for body in said]


def test_an_upload_that_goes_on_is_not_swept_however_long_ago_it_began() -> None:
    now = datetime.now(UTC)
    answers = uploads_of(now - 48 * HOUR, now - 47 * HOUR, now - HOUR)
    with answering(*answers) as store:
        assert store.sweep(now - 24 * HOUR) == 0


@pytest.mark.parametrize("parts", [0, 2])
def test_an_upload_that_stands_still_is_swept(parts: int) -> None:
    now = datetime.now(UTC)
    answers = uploads_of(now - 48 * HOUR, *[now - 25 * HOUR] * parts)
    gone = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
    with answering(*answers, gone) as store:
        assert store.sweep(now - 24 * HOUR) == 1


def test_a_listing_that_is_cut_is_asked_for_again() -> None:
    said = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said) + said
    with answering(answer[:-20], answer) as store:
        assert paths(store) == []


def test_an_answer_in_chunks_is_understood() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"12\r\n<ListBucketResult>\r\n13;x=y\r\n</ListBucketResult>\r\n0\r\n\r\n"
    with answering(b"HTTP/1.1 100 Continue\r\n\r\n" + head + body) as store:
        assert paths(store) == []


def test_an_answer_that_ends_with_the_connection() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult></ListBucketResult>") as store:
        assert paths(store) == []


@pytest.mark.parametrize(
    "head",
    [
        b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: identity",
        b"content-length: -1",
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: \xb2",
    ],
)
def test_an_answer_with_a_strange_frame_is_one_of_our_errors(head: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\n%b\r\n\r\n<ListBucketResult></ListBucketResult>" % head
    with answering(*[answer] * 2) as store:
        with pytest.raises(Unreachable, match="not an HTTP response") as caught:
            store.probe()
        assert "不是 HTTP 响应" in caught.value.text("zh")
    with answering(*[answer] * TRIES) as store, pytest.raises(Unreachable):
        store.stat("x")


@pytest.mark.parametrize(
    "row",
    [
        b"<Contents><Key>x</Key><Size>ten</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
        b"<Contents><Key>x</Key><Size>-1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
        b"<Contents><Key>x</Key><Size>1</Size><LastModified>now</LastModified></Contents>",
        b"<Contents><Key>x</Key><Size>1</Size><LastModified>2026-01-01</LastModified></Contents>",
        b"<Contents><Key>x</Key><Size>1</Size></Contents>",
    ],
    ids=["no number", "negative", "no time", "no zone", "without"],
)
def test_a_listing_with_a_strange_row_is_one_of_our_errors(row: bytes) -> None:
    said = b"<ListBucketResult>%b</ListBucketResult>" % row
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said) + said
    with answering(answer) as store, pytest.raises(Unreachable) as caught:
        paths(store)
    assert caught.value.code == "store_stranger"


def test_an_answer_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LARGEST", 1000)
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n"
    with answering(head + b"x" * 5000) as store, pytest.raises(Unreachable) as caught:
        paths(store)
    assert caught.value.code == "store_stranger"


def test_a_bucket_behind_a_proxy(s3_settings: dict[str, str]) -> None:
    """The name is known to the proxy alone."""
    port = urlsplit(s3_settings["endpoint"]).port
    assert port is not None
    with proxying(port) as proxy:
        other = {"endpoint": f"http://s3.example:{port}", "proxies": Proxies(proxy.url)}
        with opened(s3_settings, **other) as store:
            store.write("x", [b"1"])
            assert content(store, "x") == b"1"
        assert all(f" http://s3.example:{port}/" in line for line in proxy.seen)


@pytest.mark.slow
def test_a_server_that_comes_back(s3_place: Path) -> None:
    with opened({**server.show(s3_place), "prefix": "p"}) as store:
        store.write("x", [b"kept"])
        server.stop(s3_place)
        with pytest.raises(Unreachable):
            store.write("y", [b"lost"])
        server.start(s3_place)
        assert content(store, "x") == b"kept"
        assert paths(store) == ["x"]
        store.write("y", [b"again"])
        with pytest.raises(NotFound):
            store.read("z")


def test_no_request_has_a_form_that_baidu_does_not_take(s3_settings: dict[str, str]) -> None:
    """Its S3 door takes signed payloads only: no trailing checksum, no chunks, no other digest."""
    seen: list[bytes] = []

    def note(piece: bytes) -> bytes:
        seen.append(piece)
        return piece

    with through(s3_settings) as (store, way):
        store.client._checksums = ChecksumHeaders("s3.bj.bcebos.com", tls=False)
        way.there = note
        store.write("x", [b"1"])
        store.write("y", [b"z" * MIB] * 9)
        content(store, "y")
        paths(store)
        store.delete_tree("y")
    sent = b"".join(seen).lower()
    assert sent.count(b"x-amz-content-sha256: ") == sent.count(b" http/1.1\r\n")
    for form in (b"x-amz-checksum", b"x-amz-trailer", b"aws-chunked", b"unsigned", b"expect:"):
        assert form not in sent


def test_a_request_without_retries_fails_once(s3_settings: dict[str, str]) -> None:
    with opened(s3_settings) as store, pytest.raises(NotFound):
        store.client.ask(Request(method="GET", key="nothing/here", tries=1))


def test_a_pack_whose_last_files_cannot_be_stored(s3_settings: dict[str, str]) -> None:
    """Files get their names while the stream continues; a failure of one is told at its end."""
    with through(s3_settings) as (store, way):
        receiver = PackReceiver(lambda sha256, size: store.open_write(f"blobs/{sha256}"))
        good, lost = b"good " * 100, b"lost " * 100
        receiver.feed(hashlib.sha256(good).digest() + len(good).to_bytes(8, "big") + good)
        receiver.finish()
        assert receiver.bytes == len(good)
        way.there = lambda piece: piece.replace(b"lost", b"LOST")
        receiver.feed(hashlib.sha256(lost).digest() + len(lost).to_bytes(8, "big") + lost)
        with pytest.raises(Retry) as caught:
            receiver.finish()
        assert caught.value.code == "store_damaged"
        assert receiver.bytes == len(good)
        way.there = as_it_is
        assert paths(store) == [f"blobs/{sha256(good)}"]


def test_many_small_files_of_a_pack_are_all_there(s3: S3Store) -> None:
    receiver = PackReceiver(lambda sha256, size: s3.open_write(f"blobs/{sha256[:1]}/{sha256}"))
    files = [f"file {number}".encode() for number in range(200)]
    for data in files:
        receiver.feed(hashlib.sha256(data).digest() + len(data).to_bytes(8, "big") + data)
    assert receiver.finish() == 200
    assert receiver.bytes == sum(map(len, files))
    assert {path.rpartition("/")[2] for path in paths(s3)} == set(map(sha256, files))
    names = [f"blobs/{sha256(data)[:1]}/{sha256(data)}" for data in files]
    assert s3.sizes([*names, "blobs/0/none", "none"]) == dict(
        zip(names, map(len, files), strict=True)
    )
