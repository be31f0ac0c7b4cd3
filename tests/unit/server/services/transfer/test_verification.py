"""Digests that take longer than a request."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest

from paddlecloud.model.errors import Retry
from paddlecloud.server.services.transfer import verification
from paddlecloud.server.services.transfer.verification import Verifications

SHA256 = hashlib.sha256(b"abc").hexdigest()


def test_a_caller_is_answered_in_time_and_finds_the_digest_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "WAIT", 0.01)
    go, read = threading.Event(), list[int]()

    def chunks() -> Iterator[bytes]:
        read.append(1)
        yield b"ab"
        assert go.wait(20)
        yield b"c"

    digests = Verifications()
    assert digests.sha256("one", chunks) is None
    monkeypatch.setattr(verification, "WAIT", 20.0)
    assert digests.sha256("other", lambda: [b"abc"]) == SHA256
    go.set()
    assert digests.sha256("one", chunks) == SHA256
    assert (len(read), digests._digests) == (1, {})


def test_what_was_read_before_a_part_was_replaced_does_not_count() -> None:
    digests, replaced = Verifications(), list[bytes]()

    def chunks() -> Iterator[bytes]:
        yield b"a"
        if not replaced:
            replaced.append(b"!")
            digests.drop("one")
        yield b"bc"

    assert digests.sha256("one", chunks) is None
    assert digests.sha256("one", chunks) == SHA256


def test_what_cannot_be_read_for_a_moment_is_read_again() -> None:
    digests, left = Verifications(), [1, 2]

    def chunks() -> Iterator[bytes]:
        yield b"abc"
        if left:
            left.pop()
            raise Retry("store_failed", place="there", detail="for a moment")

    for _ in range(2):
        with pytest.raises(Retry):
            digests.sha256("one", chunks)
    assert digests.sha256("one", chunks) == SHA256


def test_digests_that_nobody_asks_for_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "WAIT", -1.0)
    monkeypatch.setattr(verification, "_KEPT", 2)
    digests, done = Verifications(), threading.Event()

    def chunks() -> Iterator[bytes]:
        assert done.wait(20)
        yield b"abc"

    for name in ("a", "b", "c"):
        assert digests.sha256(name, chunks) is None
    done.set()
    for future in digests._digests.values():
        future.result(20)
    monkeypatch.setattr(verification, "WAIT", 20.0)
    assert digests.sha256("d", chunks) == SHA256
    assert digests._digests == {}
