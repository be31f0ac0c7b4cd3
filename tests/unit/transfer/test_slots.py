"""Slots: few, given out in order, and given back also after an error."""

from __future__ import annotations

import threading

import pytest

from paddlecloud.transfer.slots import Slots
from tests.integration.agent.replicas import eventually


def test_slots_are_few_and_given_back_also_after_an_error() -> None:
    slots = Slots(2)
    with slots.slot(), slots.slot():
        assert slots._free == 0
    for _ in range(3):
        with pytest.raises(ValueError, match="wrong"), slots.slot():
            raise ValueError("wrong")
    assert (slots._free, len(slots._waiting)) == (2, 0)


def test_who_asks_again_is_behind_those_who_wait() -> None:
    slots, order = Slots(1), list[str]()
    slots.acquire()

    def wait(name: str) -> None:
        with slots.slot():
            order.append(name)

    threads = []
    for number, name in enumerate(("first", "second"), 1):
        threads.append(threading.Thread(target=wait, args=(name,), daemon=True))
        threads[-1].start()
        eventually(lambda want=number: len(slots._waiting) == want)  # type: ignore[misc]
    slots.release()
    with slots.slot():
        order.append("again")
    for thread in threads:
        thread.join(20)
    assert order == ["first", "second", "again"]
