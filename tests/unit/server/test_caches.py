"""Caches: what expires, what is evicted, and that a missing value is loaded once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from paddlecloud.server.caches import LruCache, TtlCache

Files = LruCache[tuple[str, str], Mapping[int, int]]
NOW, TTL = datetime(2026, 11, 16, tzinfo=UTC), timedelta(seconds=2)


def file_lists(limit: int = 200_000) -> Files:
    return LruCache(limit, weigh=lambda files: 100 + len(files))


def asked(cache: Files, name: str, entries: int = 1) -> bool:
    """Whether it had to be loaded."""
    found: list[bool] = []

    def find() -> Mapping[int, int]:
        found.append(True)
        return dict.fromkeys(range(entries), 0)

    assert len(cache.load(("ann", name), find)) == entries
    return bool(found)


def test_what_many_ask_for_at_once_is_found_by_one() -> None:
    cache: Files = file_lists()
    come = threading.Barrier(9)
    finding: list[int] = []

    def find() -> Mapping[int, int]:
        finding.append(1)
        come.wait(30)  # all others are on their way
        return {1: 1}

    def ask(number: int) -> Mapping[int, int]:
        if number:
            come.wait(30)
        return cache.load(("ann", "a"), find)

    with ThreadPoolExecutor(9) as threads:
        answers = list(threads.map(ask, range(9), timeout=60))
    assert answers == [{1: 1}] * 9
    assert finding == [1]


def test_another_is_found_after_one_that_was_not() -> None:
    cache: Files = file_lists()

    def fail() -> Mapping[int, int]:
        raise LookupError

    with pytest.raises(LookupError):
        cache.load(("ann", "a"), fail)
    assert [asked(cache, "a"), asked(cache, "a")] == [True, False]


def test_those_that_nobody_asked_for_the_longest_time_make_room() -> None:
    cache: Files = file_lists(1000)
    assert [asked(cache, name, 300) for name in "aba"] == [True, True, False]
    assert asked(cache, "c", 300)
    assert not asked(cache, "a", 300)
    assert asked(cache, "b", 300)


def test_what_is_too_large_stays_while_it_is_the_last() -> None:
    cache: Files = file_lists(1000)
    assert [asked(cache, "large", 5000) for _ in range(2)] == [True, False]
    assert asked(cache, "small")
    assert asked(cache, "large", 5000)
    assert asked(cache, "small")


def test_many_without_a_file_are_not_kept_for_good() -> None:
    cache: Files = file_lists(1000)
    for number in range(1000):
        asked(cache, str(number), entries=0)
    assert asked(cache, "0", entries=0)
    assert not asked(cache, "999", entries=0)


def test_a_replaced_and_an_evicted_value_are_handed_over_and_a_removed_one_is_not() -> None:
    evicted: list[str] = []
    cache: LruCache[str, str] = LruCache(2, on_evict=evicted.append)
    for key, value in (("a", "a1"), ("b", "b1"), ("a", "a2")):
        cache.put(key, value)
    assert (evicted, len(cache)) == (["a1"], 2)
    cache.put("c", "c1")
    assert evicted == ["a1", "b1"], "the least recently used one goes"
    assert (cache.pop("a"), cache.pop("a"), cache.get("a")) == ("a2", None, None)
    assert (cache.clear(), cache.clear()) == (["c1"], [])
    assert evicted == ["a1", "b1"]


def test_the_weight_of_a_value_is_that_when_it_was_stored() -> None:
    cache: LruCache[str, list[int]] = LruCache(5, weigh=len)
    first = [1, 2, 3]
    cache.put("a", first)
    cache.put("b", [1])
    first.append(4)
    cache.put("c", [1])
    assert cache.pop("a") == [1, 2, 3, 4]
    for key in ("d", "e", "f"):
        cache.put(key, [1])
    assert len(cache) == 5
    cache.put("g", [1])
    assert (len(cache), cache.get("b")) == (5, None)


def test_a_value_lasts_until_it_expires_or_the_cache_is_cleared() -> None:
    cache: TtlCache[int] = TtlCache(TTL)
    assert cache.load(NOW, lambda: 1) == 1
    assert cache.load(NOW + TTL / 2, lambda: 2) == 1
    assert cache.load(NOW + TTL, lambda: 2) == 2
    cache.clear()
    assert cache.load(NOW + TTL, lambda: 3) == 3

    def overtaken() -> int:
        cache.clear()
        return 4

    cache.clear()
    assert cache.load(NOW, overtaken) == 4
    assert cache.load(NOW, lambda: 5) == 5, "it was loaded before the change"


def test_a_clock_that_is_set_back_makes_no_value_last_longer() -> None:
    cache: TtlCache[int] = TtlCache(TTL)
    cache.put(NOW, 1)
    assert (cache.get(NOW), cache.get(NOW - TTL), cache.get(NOW + TTL)) == (1, None, None)


def test_expiring_values_have_keys_and_a_bound() -> None:
    cache: TtlCache[int] = TtlCache(TTL, size=3)
    for number in range(3):
        cache.put(NOW, number, f"{number}")
    assert [cache.get(NOW, f"{number}") for number in range(4)] == [0, 1, 2, None]
    cache.put(NOW, 3, "3")
    assert [cache.get(NOW, f"{number}") for number in range(4)] == [None, None, None, 3]
