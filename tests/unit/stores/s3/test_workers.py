"""The threads of a store: bounded by bytes, and a failure is the caller's to see."""

from __future__ import annotations

import threading

import pytest

from paddlecloud.stores.s3._workers import WorkerPool


def test_work_is_done_and_its_failure_kept() -> None:
    pool = WorkerPool(workers=2, max_bytes=10)
    assert pool.submit(1, divmod, 7, 2).result() == (3, 1)
    failed = pool.submit(1, divmod, 7, 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    pool.close()


def test_whoever_hands_in_too_much_waits() -> None:
    pool, gate, handed = WorkerPool(workers=4, max_bytes=10), threading.Event(), threading.Event()
    futures = [pool.submit(6, gate.wait, 20)]

    def hand_in() -> None:
        futures.append(pool.submit(6, gate.wait, 20))
        handed.set()

    other = threading.Thread(target=hand_in)
    other.start()
    small = pool.submit(4, len, b"fits beside the first")
    assert small.result(20) == 21
    assert not handed.is_set()
    gate.set()
    assert handed.wait(20)
    other.join()
    assert all(future.result(20) for future in futures)
    pool.close()


def test_what_is_larger_than_the_room_goes_alone() -> None:
    pool = WorkerPool(workers=1, max_bytes=10)
    assert pool.submit(1000, len, b"123").result(20) == 3
    assert pool.submit(1000, len, b"1").result(20) == 1
    pool.close()


def test_nothing_can_be_handed_in_after_the_end() -> None:
    pool = WorkerPool(workers=1, max_bytes=10)
    pool.close()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            pool.submit(9, len, b"1")
