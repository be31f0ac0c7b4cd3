"""What a gang is given: shares of CPUs, ports, addresses, cards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.jobs.gang import claims, fits, ports_of
from paddlecloud.model.jobs.job import ReplicaGroup, Resources, Role
from paddlecloud.model.policy.pool import Node
from paddlecloud.server.services.placement._allocate import (
    FIRST_PORT,
    LAST_PORT,
    PORTS,
    deal_ports,
    free_gpus,
    loopback,
)

GIB = 2**30


def trainers(count: int, cpu: float = 1, memory: int = 0, gpu: int = 0) -> ReplicaGroup:
    asks = Resources(cpu=cpu, memory=memory, gpu=gpu)
    return ReplicaGroup(role=Role.TRAINER, count=count, resources=asks)


def pservers(count: int, cpu: float = 1, memory: int = 0) -> ReplicaGroup:
    asks = Resources(cpu=cpu, memory=memory)
    return ReplicaGroup(role=Role.PSERVER, count=count, resources=asks)


def machine(name: str = "n1", cpu: float = 2, memory: int = 8 * GIB, gpu: int = 0) -> Node:
    return Node(id=name, total=Resources(cpu=cpu, memory=memory, gpu=gpu))


def cpus(groups: tuple[ReplicaGroup, ...] | None) -> list[float]:
    assert groups is not None
    return [group.resources.cpu for group in groups]


def test_a_gang_that_fits_claims_what_it_asks() -> None:
    asked = (trainers(2),)
    assert claims(asked, [machine()], oversubscribe=True) == asked
    assert claims(asked, [machine()], oversubscribe=False) == asked


def test_a_gang_that_asks_for_more_cpus_than_there_are_shares_them_all() -> None:
    asked = (pservers(4), trainers(4))
    assert cpus(claims(asked, [machine()], oversubscribe=True)) == [0.25, 0.25]
    assert claims(asked, [machine()], oversubscribe=False) is None


def test_shares_keep_the_ratio_of_what_was_asked() -> None:
    found = cpus(claims((pservers(2, cpu=0.5), trainers(4)), [machine()], oversubscribe=True))
    assert found == pytest.approx([0.2, 0.4], abs=1e-5)


def test_shares_are_small_enough_for_each_machine() -> None:
    machines = [machine("n1"), machine("n2"), machine("n3")]
    found = claims((trainers(7),), machines, oversubscribe=True)
    assert found is not None
    assert fits(found, machines)
    assert 0.6 < found[0].resources.cpu <= 2 / 3


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ((trainers(9, memory=GIB),), "memory is never given twice"),
        ((trainers(3, gpu=1),), "nor are cards"),
        ((trainers(2, cpu=3),), "each replica alone has to fit a machine"),
        ((pservers(1, memory=4 * GIB), trainers(5, memory=GIB)), "all groups together"),
    ],
)
def test_what_is_not_a_matter_of_cpus_is_never_oversubscribed(
    groups: tuple[ReplicaGroup, ...], why: str
) -> None:
    assert claims(groups, [machine(gpu=2)], oversubscribe=True) is None, why


@given(
    st.lists(
        st.tuples(st.sampled_from(Role), st.integers(1, 40), st.sampled_from([0.01, 0.3, 1, 2])),
        min_size=1,
        max_size=2,
        unique_by=lambda group: group[0],
    ),
    st.lists(st.sampled_from([2, 4, 7.5]), min_size=1, max_size=5),
)
def test_claims_always_fit_and_never_exceed_what_is_asked(
    asked: list[tuple[Role, int, float]], sizes: list[float]
) -> None:
    groups = tuple(
        ReplicaGroup(role=role, count=count, resources=Resources(cpu=cpu))
        for role, count, cpu in asked
    )
    machines = [machine(f"n{place}", cpu=size) for place, size in enumerate(sizes)]
    found = claims(groups, machines, oversubscribe=True)
    assert found is not None
    assert fits(found, machines)
    for mine, before in zip(found, groups, strict=True):
        assert 0 < mine.resources.cpu <= before.resources.cpu
        assert (mine.role, mine.count) == (before.role, before.count)


def test_ports_follow_each_other_from_the_cursor_on() -> None:
    assert deal_ports(0, [2, 1, 1], ()) == [62001, 62003, 62004]
    assert deal_ports(PORTS + 5, [1, 1], ()) == [62006, 62007]


def test_ports_go_round_and_a_pair_is_never_torn_apart() -> None:
    assert deal_ports(PORTS - 1, [2, 1], ()) == [FIRST_PORT, FIRST_PORT + 2]
    assert deal_ports(PORTS - 1, [1, 2], ()) == [LAST_PORT, FIRST_PORT]


def test_ports_that_live_replicas_have_are_passed_over() -> None:
    assert deal_ports(0, [2, 1], {62002, 62005}) == [62003, 62006]


def test_there_may_be_no_ports_left() -> None:
    everything = set(range(FIRST_PORT, LAST_PORT + 1))
    assert deal_ports(7, [1], everything) is None
    assert deal_ports(7, [1], everything - {62099}) == [62099]
    assert deal_ports(7, [2], everything - {62099}) is None
    assert deal_ports(0, [1] * (PORTS + 1), ()) is None


@given(
    st.integers(0, 3 * PORTS),
    st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=40),
    st.sets(st.integers(FIRST_PORT, LAST_PORT), max_size=200),
)
def test_dealt_ports_are_free_distinct_and_in_range(
    cursor: int, wanted: list[int], taken: set[int]
) -> None:
    found = deal_ports(cursor, wanted, taken)
    assert found is not None
    ports = [
        port + more for port, count in zip(found, wanted, strict=True) for more in range(count)
    ]
    assert len(set(ports)) == len(ports)
    assert taken.isdisjoint(ports)
    assert min(ports) >= FIRST_PORT
    assert max(ports) <= LAST_PORT


def test_gloo_has_the_port_after_the_first_pserver_and_no_other() -> None:
    assert ports_of(Role.PSERVER, 0, 62010) == (62010, 62011)
    assert ports_of(Role.PSERVER, 1, 62012) == (62012,)
    assert ports_of(Role.TRAINER, 0, 62013) == (62013,)


def test_every_port_has_an_address_of_its_own() -> None:
    addresses = [loopback(port) for port in range(FIRST_PORT, LAST_PORT + 1)]
    assert len(set(addresses)) == PORTS
    assert addresses[0] == "127.0.2.1"
    assert all(1 <= int(part) <= 254 for each in addresses for part in each.split(".")[2:])


def test_cards_are_given_from_the_first_free_on() -> None:
    assert free_gpus(4, 2, {0, 2}) == (1, 3)
    assert free_gpus(4, 3, {0, 2}) is None
    assert free_gpus(0, 0, ()) == ()
