"""Lists of files that are kept from one request to the next: found once, and not too many."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from paddlecloud.server.open_buckets import Recent


def asked(recent: Recent[Mapping[int, int]], name: str, entries: int = 1) -> bool:
    """Whether it had to be found."""
    found: list[bool] = []

    def find() -> Mapping[int, int]:
        found.append(True)
        return dict.fromkeys(range(entries), 0)

    assert len(recent.get(("ann", name), find)) == entries
    return bool(found)


def test_what_many_ask_for_at_once_is_found_by_one() -> None:
    recent: Recent[Mapping[int, int]] = Recent()
    come = threading.Barrier(9)
    finding: list[int] = []

    def find() -> Mapping[int, int]:
        finding.append(1)
        come.wait(30)  # all others are on their way
        return {1: 1}

    def ask(number: int) -> Mapping[int, int]:
        if number:
            come.wait(30)
        return recent.get(("ann", "a"), find)

    with ThreadPoolExecutor(9) as threads:
        answers = list(threads.map(ask, range(9), timeout=60))
    assert answers == [{1: 1}] * 9
    assert finding == [1]


def test_another_is_found_after_one_that_was_not() -> None:
    recent: Recent[Mapping[int, int]] = Recent()

    def fail() -> Mapping[int, int]:
        raise LookupError

    with pytest.raises(LookupError):
        recent.get(("ann", "a"), fail)
    assert [asked(recent, "a"), asked(recent, "a")] == [True, False]


def test_those_that_nobody_asked_for_the_longest_time_make_room() -> None:
    recent: Recent[Mapping[int, int]] = Recent(most=1000)
    assert [asked(recent, name, 300) for name in "aba"] == [True, True, False]
    assert asked(recent, "c", 300)
    assert not asked(recent, "a", 300)
    assert asked(recent, "b", 300)


def test_what_is_too_large_stays_while_it_is_the_last() -> None:
    recent: Recent[Mapping[int, int]] = Recent(most=1000)
    assert [asked(recent, "large", 5000) for _ in range(2)] == [True, False]
    assert asked(recent, "small")
    assert asked(recent, "large", 5000)
    assert asked(recent, "small")


def test_many_without_a_file_are_not_kept_for_good() -> None:
    recent: Recent[Mapping[int, int]] = Recent(most=1000)
    for number in range(1000):
        asked(recent, str(number), entries=0)
    assert asked(recent, "0", entries=0)
    assert not asked(recent, "999", entries=0)
