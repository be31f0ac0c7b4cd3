"""How bytes are compared that go to a bucket without TLS, by what the server knows of checksums."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from paddlecloud.stores.s3.store import S3Store
from tests.contract.stores.helpers import content
from tests.contract.stores.test_s3 import HOUR, MIB, answering, fetch, once, through

REPEATED = re.compile(rb"(?i)x-amz-checksum-sha256:[^\r]*\r\n")
PIECE = b"precious " * 1000


def checks(sent: bytearray) -> list[set[str]]:
    """What each request for a part said about its bytes."""
    heads = re.findall(rb"(?s)PUT [^\r]*partNumber=.*?\r\n\r\n", sent)
    names = (b"content-md5", b"x-amz-checksum-sha256")
    return [{name.decode() for name in names if b"\r\n" + name + b": " in head} for head in heads]


def noting(seen: bytearray) -> Callable[[bytes], bytes]:
    def piece(data: bytes) -> bytes:
        seen.extend(data)
        return data

    return piece


def forgotten(answer: bytes) -> bytes:
    """The answer of a server that does not know the checksum."""
    return REPEATED.sub(b"", answer)


def test_parts_have_one_digest_once_the_server_has_shown_that_it_compares_it(
    s3_settings: dict[str, str],
) -> None:
    seen = bytearray()
    with through(s3_settings) as (store, way):
        way.there = noting(seen)
        upload = store.begin_parts("x", part_size=len(PIECE))
        for number in (1, 2, 3):
            store.put_part("x", upload, number, PIECE)
        store.drop_parts("x", upload)
    both = {"content-md5", "x-amz-checksum-sha256"}
    assert checks(seen) == [both, {"x-amz-checksum-sha256"}, {"x-amz-checksum-sha256"}]


def test_a_damaged_part_is_sent_again_whatever_it_is_checked_by(
    s3_settings: dict[str, str],
) -> None:
    seen = bytearray()
    with through(s3_settings) as (store, way):
        upload = store.begin_parts("x", part_size=5 * MIB)
        for number, data in ((1, PIECE * (5 * MIB // len(PIECE) + 1)), (2, PIECE)):
            way.there = once(lambda piece: piece.replace(b"precious", b"worthess", 1), b"precious")
            store.put_part("x", upload, number, data[: 5 * MIB])
        way.there = noting(seen)
        store.put_part("x", upload, 2, PIECE)
        store.finish_parts("x", upload, size=5 * MIB + len(PIECE))
        assert b"worthess" not in content(store, "x")
    assert checks(seen) == [{"x-amz-checksum-sha256"}]


def test_a_server_that_does_not_know_the_checksum_gets_md5(s3_settings: dict[str, str]) -> None:
    seen = bytearray()
    with through(s3_settings) as (store, way):
        way.there, way.back = noting(seen), forgotten
        upload = store.begin_parts("x", part_size=len(PIECE))
        for number in (1, 2):
            store.put_part("x", upload, number, PIECE)
        store.drop_parts("x", upload)
    assert checks(seen) == [{"content-md5", "x-amz-checksum-sha256"}, {"content-md5"}]


def test_a_part_that_a_server_takes_unchecked_is_sent_again(s3_settings: dict[str, str]) -> None:
    """Behind one name may be servers of two kinds: each answer has to show that it compared."""
    seen = bytearray()
    with through(s3_settings) as (store, way):
        upload = store.begin_parts("x", part_size=len(PIECE))
        store.put_part("x", upload, 1, PIECE)
        way.there, way.back = noting(seen), forgotten
        store.put_part("x", upload, 2, PIECE)
        store.drop_parts("x", upload)
    assert checks(seen) == [{"x-amz-checksum-sha256"}, {"content-md5"}]


def test_a_server_that_refuses_the_checksum_gets_md5() -> None:
    """As AWS does for an upload that was begun without one."""
    said = b"<Error><Code>InvalidRequest</Code><Message>checksum type</Message></Error>"
    refused = b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
    taken = b'HTTP/1.1 200 OK\r\netag: "t"\r\ncontent-length: 0\r\n\r\n'
    with answering(refused % (len(said), said), taken) as store:
        assert store.put_part("x", "upload", 1, b"1").tag == '"t"'


def test_parts_with_and_without_a_checksum_are_joined(s3: S3Store) -> None:
    """Some are sent by others, with an address, who know nothing of what the server knows."""
    upload = s3.begin_parts("x", part_size=5 * MIB)
    s3.put_part("x", upload, 1, b"a" * 5 * MIB)
    url = s3.presign_part("x", upload, 2, good_for=HOUR, now=datetime.now(UTC))
    assert fetch("PUT", url, b"b" * 5 * MIB)[0] == 200
    s3.put_part("x", upload, 3, b"c")
    assert s3.finish_parts("x", upload, size=10 * MIB + 1).size == 10 * MIB + 1
    assert content(s3, "x") == b"a" * 5 * MIB + b"b" * 5 * MIB + b"c"
