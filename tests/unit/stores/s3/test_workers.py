"""The threads of a store: bounded by bytes, and a failure is the caller's to see."""

from __future__ import annotations

import threading

import pytest

from paddlecloud.stores.s3._workers import Crew


def test_work_is_done_and_its_failure_kept() -> None:
    crew = Crew(workers=2, room=10)
    assert crew.submit(1, divmod, 7, 2).result() == (3, 1)
    failed = crew.submit(1, divmod, 7, 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    crew.close()


def test_whoever_hands_in_too_much_waits() -> None:
    crew, gate, handed = Crew(workers=4, room=10), threading.Event(), threading.Event()
    futures = [crew.submit(6, gate.wait, 20)]

    def hand_in() -> None:
        futures.append(crew.submit(6, gate.wait, 20))
        handed.set()

    other = threading.Thread(target=hand_in)
    other.start()
    small = crew.submit(4, len, b"fits beside the first")
    assert small.result(20) == 21
    assert not handed.is_set()
    gate.set()
    assert handed.wait(20)
    other.join()
    assert all(future.result(20) for future in futures)
    crew.close()


def test_what_is_larger_than_the_room_goes_alone() -> None:
    crew = Crew(workers=1, room=10)
    assert crew.submit(1000, len, b"123").result(20) == 3
    assert crew.submit(1000, len, b"1").result(20) == 1
    crew.close()


def test_nothing_can_be_handed_in_after_the_end() -> None:
    crew = Crew(workers=1, room=10)
    crew.close()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            crew.submit(9, len, b"1")
