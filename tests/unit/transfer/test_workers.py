"""Threads that work through a list: all of it once, and after an error no more of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Barrier, Event, current_thread

import pytest

from paddlecloud.transfer.workers import run_workers

EVERYTHING = range(1, 1001)


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_everything_is_done_once(at_once: int) -> None:
    todo = iter(EVERYTHING)
    done: list[int] = []
    run_workers(at_once, lambda: next(todo, None), done.extend)
    assert sorted(done) == [*EVERYTHING]


def test_all_threads_are_at_it_together() -> None:
    todo = iter(range(3))
    together = Barrier(3, timeout=20)

    def work(items: Iterator[int]) -> None:
        for _ in items:
            together.wait()

    run_workers(3, lambda: next(todo, None), work)


@pytest.mark.parametrize("broken", [ValueError("of one"), KeyboardInterrupt(), SystemExit()])
@pytest.mark.parametrize("mine", [True, False], ids=["the caller", "another"])
def test_an_error_ends_all_and_is_raised(broken: BaseException, mine: bool) -> None:
    endless = count(1)
    begun = Barrier(2, timeout=20)
    caller = current_thread()

    def work(items: Iterator[int]) -> None:
        next(items)
        begun.wait()
        if (current_thread() is caller) is mine:
            raise broken
        for _ in items:
            pass

    with pytest.raises(type(broken)):
        run_workers(2, lambda: next(endless), work)


def test_after_an_error_the_others_are_waited_for() -> None:
    endless = count(1)
    begun, ended = Barrier(2, timeout=20), Event()
    caller = current_thread()

    def work(items: Iterator[int]) -> None:
        next(items)
        begun.wait()
        if current_thread() is caller:
            raise ValueError("of one")
        for _ in items:
            pass
        ended.set()

    with pytest.raises(ValueError, match="of one"):
        run_workers(2, lambda: next(endless), work)
    assert ended.is_set()


def test_what_the_list_raises_is_raised() -> None:
    def following() -> int:
        raise ValueError("no address")

    with pytest.raises(ValueError, match="no address"):
        run_workers(3, following, list)
