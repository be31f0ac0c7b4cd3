"""PUTs to presigned URLs: what counts as stored, what is repeated, and who is away."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import pytest

from paddlecloud.model.errors import NotFound, Unreachable
from paddlecloud.transfer import presigned
from paddlecloud.transfer.presigned import PresignedConnections, PutFailed

URL = "http://bucket.test/big?partNumber=1&uploadId=u"


class Answer:
    def __init__(self, status: int = 200, body: bytes = b"", etag: str = '"tag"') -> None:
        self.status, self._body = status, body
        self.headers = {"etag": etag} if etag else {}

    def take(self, size: int) -> bytes:
        return self._body[:size]

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Pool:
    """Gives these answers, one after the other, and the last one for ever."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self._answers = [*answers]
        self.bodies: list[bytes] = []
        self.headers: dict[str, str] = {}

    def request(
        self, method: str, url: str, headers: dict[str, str], body: Iterable[bytes], **_: Any
    ) -> Answer:
        assert (method, url) == ("PUT", URL)
        self.headers = headers
        self.bodies.append(b"".join(body))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presigned.POLICY, "first_pause", 0.0)


def connections(pool: Pool) -> PresignedConnections:
    given: Any = pool
    return PresignedConnections(given)


def test_bytes_go_with_their_md5_and_are_reported_as_they_go() -> None:
    data = bytes(range(256)) * 2000
    pool, reported = Pool(Answer()), list[int]()
    made = connections(pool)
    assert made.put(URL, memoryview(data), reported.append) == '"tag"'
    assert pool.bodies == [data]
    md5 = hashlib.md5(data, usedforsecurity=False).digest()
    assert pool.headers["content-md5"] == b64encode(md5).decode()
    assert sum(reported) == len(data)
    assert max(reported) <= 256 * 1024
    assert not made.is_away(URL)


CLOSED = Unreachable("server_closed", address="there")


@pytest.mark.parametrize(
    "first", [CLOSED, Answer(503), Answer(400, b"<Error><Code>BadDigest</Code></Error>")]
)
def test_what_may_be_gone_in_a_moment_is_repeated_and_reported_once(
    first: Answer | Exception,
) -> None:
    pool, reported = Pool(first, Answer()), list[int]()
    assert connections(pool).put(URL, b"some", reported.append) == '"tag"'
    assert reported == [4, -4, 4]


@pytest.mark.parametrize(
    ("answer", "tries", "reason"),
    [
        (Unreachable("server_timeout", address="there", seconds=60), 1, "there"),
        (Unreachable("server_unreachable", address="there", reason="refused"), 1, "refused"),
        (CLOSED, presigned.POLICY.attempts, "there"),
        (Answer(500, b"<Error><Code>InternalError</Code></Error>"), 5, "500 InternalError"),
        (Answer(403, b"<Error><Code>AccessDenied</Code></Error>"), 1, "403 AccessDenied"),
        (Answer(200, b"<html>Please sign in</html>", etag=""), 1, "200 Please sign in"),
        (Answer(404, b"<html>no such page</html>"), 1, "404"),
    ],
    ids=["silent", "unreachable", "closed", "fails", "refuses", "a page", "no bucket"],
)
def test_what_a_bucket_does_not_store_is_said_and_its_host_counts_as_away(
    answer: Answer | Exception, tries: int, reason: str
) -> None:
    pool, url = Pool(answer), URL
    if isinstance(answer, Answer) and answer.status == 404:
        url = URL.replace("uploadId", "other")
    made = connections(pool)
    pool.request = lambda *given, **how: Pool.request(pool, "PUT", URL, *given[2:], **how)  # type: ignore[method-assign]
    with pytest.raises(PutFailed, match=reason):
        made.put(url, b"some")
    assert len(pool.bodies) == tries
    assert made.is_away(url) and made.is_any_away
    assert not made.is_away("http://other.test/x")


def test_a_host_is_away_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(presigned, "monotonic", lambda: now[0])
    pool: Any = Pool(Answer())
    made = PresignedConnections(pool, away_for=60.0)
    made.mark_away(URL)
    now[0] = 159.0
    assert made.is_away(URL)
    now[0] = 160.0
    assert not made.is_away(URL) and not made.is_any_away


def test_an_upload_that_is_gone_is_told_from_a_bucket_that_fails() -> None:
    made = connections(Pool(Answer(404, b"<Error><Code>NoSuchUpload</Code></Error>", etag="")))
    with pytest.raises(NotFound) as caught:
        made.put(URL, b"some")
    assert caught.value.code == "upload_missing"
    assert not made.is_any_away
