"""Wake-ups: none is missed, whoever waits for something else sleeps on, and closing wakes all."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from paddlecloud.db.engine.base import EVERYTHING
from paddlecloud.server.events import ANYTHING, MAX_PENDING, Hub

LONG = 30.0
"""Seconds; a wake-up that is missed makes the test fail instead of pass late."""
SHORT = 0.05


def test_a_note_from_a_thread_wakes_its_waiter() -> None:
    async def wait() -> bool:
        hub = attached()
        with hub.waiter(("job", "a")) as waiter:
            threading.Thread(target=hub.notify, args=("job", "a")).start()
            return await waiter.wait(LONG)

    assert asyncio.run(wait()) is True


def test_what_happens_between_registering_and_waiting_is_not_missed() -> None:
    async def wait() -> bool:
        hub = attached()
        with hub.waiter(("job", "a")) as waiter:
            hub.notify("job", "a")
            await asyncio.sleep(0)
            return await waiter.wait(LONG)

    assert asyncio.run(wait()) is True


def test_other_notes_do_not_wake_and_one_note_wakes_once() -> None:
    async def wait() -> list[bool]:
        hub = attached()
        with hub.waiter(("job", "a"), ("log", "a")) as waiter:
            hub.notify("job", "b")
            hub.notify("log", "a")
            return [await waiter.wait(LONG), await waiter.wait(SHORT)]

    assert asyncio.run(wait()) == [True, False]


def test_who_left_is_forgotten() -> None:
    async def wait() -> dict[object, object]:
        hub = attached()
        with hub.waiter(("job", "a")):
            pass
        hub.notify("job", "a")
        return dict(hub._waiters)

    assert asyncio.run(wait()) == {}


def test_a_bell_rings_for_every_note_on_its_channel() -> None:
    hub = Hub()
    bell = hub.wake_event("schedule")
    hub.notify("other", "")
    assert not bell.is_set()
    hub.notify("schedule", "anything")
    assert bell.is_set()


def test_when_anything_may_have_been_missed_everybody_is_woken_and_may_wait_again() -> None:
    async def wait() -> list[bool]:
        hub = attached()
        bell = hub.wake_event("schedule")
        with hub.waiter(("job", "a")) as waiter, hub.waiter(("agent", "b")) as another:
            hub.notify(EVERYTHING, "")
            woken = [await waiter.wait(LONG), await another.wait(LONG), bell.is_set()]
            return [*woken, await waiter.wait(0.001), hub.closed]

    assert asyncio.run(wait()) == [True, True, True, False, False]


def test_closing_lets_everybody_go_and_nobody_wait_again() -> None:
    async def wait() -> list[bool]:
        hub = attached()
        bell = hub.wake_event("schedule")
        with hub.waiter(("job", "a")) as waiter:
            hub.close()
            return [await waiter.wait(LONG), await waiter.wait(LONG), bell.is_set()]

    assert asyncio.run(wait()) == [True, True, True]


def test_a_note_after_the_event_loop_ended_is_harmless() -> None:
    async def attach() -> Hub:
        hub = attached()
        hub.waiter(("job", "a")).__enter__()
        return hub

    hub = asyncio.run(attach())
    hub.notify("job", "a")
    hub.close()
    assert hub.closed


def test_news_come_along_in_their_order() -> None:
    async def wait() -> list[object]:
        hub = attached()
        with hub.waiter(("log", "a"), ("job", "b")) as waiter:
            assert hub.awaits("log", "a") and not hub.awaits("log", "b")
            hub.notify("log", "a", (0, b"one"))
            hub.notify("job", "b")
            hub.notify("log", "a", (3, b"two"))
            await asyncio.sleep(0)
            assert await waiter.wait(LONG)
            return list(waiter.received)

    assert asyncio.run(wait()) == [
        (("log", "a"), (0, b"one")),
        (("job", "b"), None),
        (("log", "a"), (3, b"two")),
    ]


def test_who_does_not_listen_hears_only_that_there_was_something() -> None:
    async def wait() -> list[object]:
        hub = attached()
        with hub.waiter(("log", "a")) as waiter:
            for number in range(MAX_PENDING + 1):
                hub.notify("log", "a", (number, b"x"))
            await asyncio.sleep(0)
            assert await waiter.wait(LONG)
            return list(waiter.received)

    assert asyncio.run(wait()) == [ANYTHING]


def test_many_waiters_are_all_woken() -> None:
    async def wait() -> list[bool]:
        hub = attached()
        with contextlib.ExitStack() as stack:
            waiters = [stack.enter_context(hub.waiter(("log", "a"))) for _ in range(100)]
            hub.notify("log", "a")
            return [await waiter.wait(LONG) for waiter in waiters]

    assert asyncio.run(wait()) == [True] * 100


def attached() -> Hub:
    hub = Hub()
    hub.attach(asyncio.get_running_loop())
    return hub
