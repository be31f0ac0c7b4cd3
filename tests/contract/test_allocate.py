"""What the members of a gang are given, chosen in the database that knows what others have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts
from paddlecloud.model.jobs import gang
from paddlecloud.model.jobs.job import Replica, Resources, Role
from paddlecloud.scheduler.view import Slot
from paddlecloud.server.services.placement import _allocate
from paddlecloud.server.services.placement._allocate import (
    BASE_PORT,
    NotAvailable,
    allocate_replicas,
    loopback,
)
from tests.unit.db.values import ENGINES, an_attempt, opened, waiting


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def slots(*places: tuple[Role, int, str], gpu: int = 0) -> list[Slot]:
    asks = Resources(cpu=0.5, gpu=gpu)
    return [Slot(role, rank, node, f"10.0.0.{node[1:]}", asks) for role, rank, node in places]


def placed(db: Database, chosen: list[Slot], cards: int = 0) -> tuple[Replica, ...]:
    """A job on these seats, written down as the server does."""

    def place(tx: Tx) -> tuple[Replica, ...]:
        job = waiting(tx)
        found = allocate_replicas(tx, job, 1, chosen, {"n1": cards, "n2": cards})
        attempts.insert_attempt(tx, replace(an_attempt(job, nodes=("n1",)), replicas=found))
        return found

    return db.write(place)


ONE_MACHINE = [(Role.TRAINER, 0, "n1"), (Role.TRAINER, 1, "n1"), (Role.PSERVER, 0, "n1")]


def test_a_single_replica_has_the_port_of_the_documents(db: Database) -> None:
    (alone,) = placed(db, slots((Role.TRAINER, 0, "n1")))
    assert (alone.port, alone.host, alone.cards) == (BASE_PORT, "10.0.0.1", ())


def test_a_gang_on_one_machine_has_addresses_and_ports_of_its_own(db: Database) -> None:
    found = placed(db, slots(*ONE_MACHINE)) + placed(db, slots(*ONE_MACHINE))
    ports = [port for each in found for port in gang.ports_of(each.role, each.rank, each.port)]
    assert len(set(ports)) == 8
    assert len({each.host for each in found}) == 6
    assert all(each.host == loopback(each.port) for each in found)
    assert {each.resources for each in found} == {Resources(cpu=0.5)}


def test_a_gang_over_machines_has_their_addresses(db: Database) -> None:
    found = placed(db, slots((Role.TRAINER, 0, "n1"), (Role.TRAINER, 1, "n2")))
    assert [each.host for each in found] == ["10.0.0.1", "10.0.0.2"]


def test_cards_are_exclusive_and_what_is_lacking_is_told(db: Database) -> None:
    two = [(Role.TRAINER, 0, "n1"), (Role.TRAINER, 1, "n1")]
    assert [each.cards for each in placed(db, slots(*two, gpu=1), cards=3)] == [(0,), (1,)]
    assert [each.cards for each in placed(db, slots(two[0], gpu=1), cards=3)] == [(2,)]
    with pytest.raises(NotAvailable) as lacking:
        placed(db, slots(two[0], gpu=1), cards=3)
    assert lacking.value.reason.code == "queue_no_cards"


def test_a_machine_without_free_ports_is_told(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_allocate, "PORTS", 6)
    placed(db, slots(*ONE_MACHINE))
    with pytest.raises(NotAvailable) as lacking:
        placed(db, slots(*ONE_MACHINE))
    assert lacking.value.reason.code == "queue_no_ports"
