"""Nonces in memory: spent once, forgotten in time, and handed over until they are kept."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

from paddlecloud.db.base import Tx
from paddlecloud.db.nonces import WriteBehindNonces

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp())


class Desk:
    """As much of a database as the nonces need; the test says what becomes of each write."""

    def __init__(self) -> None:
        self.writes: list[tuple[Callable[[Tx], Any], Future[Any]]] = []

    def read(self, _work: object) -> list[tuple[tuple[str, str], int]]:
        return [(("ak", "before"), NOON + 600)]

    def submit(self, work: Callable[[Tx], Any], *, durable: bool) -> Future[Any]:
        assert not durable
        self.writes.append((work, Future()))
        return self.writes[-1][1]


class Rows:
    """Collects what is inserted."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def execute(self, _sql: str, values: tuple[object, ...]) -> int:
        self.kept.append(values[1])
        return 1


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(NOON + seconds, UTC)


def nonces() -> tuple[Desk, WriteBehindNonces]:
    desk = Desk()
    return desk, WriteBehindNonces(desk, at(0))  # type: ignore[arg-type]


def written(desk: Desk, number: int) -> list[object]:
    rows = Rows()
    desk.writes[number][0](rows)  # type: ignore[arg-type]
    return rows.kept


def test_a_nonce_is_spent_once_whatever_time_it_is_dated() -> None:
    _, seen = nonces()
    assert not seen.spend("ak", "before", NOON + 9), "a server before this one spent it"
    assert seen.spend("ak", "n", NOON + 10)
    assert not seen.spend("ak", "n", NOON + 10)
    assert not seen.spend("ak", "n", NOON + 1000)
    assert seen.spend("other", "n", NOON + 10)


def test_it_is_forgotten_when_its_signature_is_worthless_and_not_before() -> None:
    _, seen = nonces()
    seen.spend("ak", "late", NOON + 1800)
    seen.spend("ak", "n", NOON + 59)
    seen.flush(at(59))
    assert not seen.spend("ak", "n", NOON + 59)
    seen.flush(at(61))
    assert seen.spend("ak", "n", NOON + 59)
    assert not seen.spend("ak", "late", NOON + 1800)


def test_what_could_not_be_kept_is_handed_over_again() -> None:
    desk, seen = nonces()
    assert seen.flush(at(0)), "nothing to do"
    seen.spend("ak", "one", NOON + 10)
    assert not seen.flush(at(0))
    seen.spend("ak", "two", NOON + 10)
    assert not seen.flush(at(0)), "the first batch is on its way"
    assert len(desk.writes) == 1
    desk.writes[0][1].set_exception(OSError("disk full"))
    assert not seen.flush(at(0))
    assert written(desk, 1) == ["one", "two"]
    desk.writes[1][1].set_result(None)
    assert seen.flush(at(0))
    assert len(desk.writes) == 2
