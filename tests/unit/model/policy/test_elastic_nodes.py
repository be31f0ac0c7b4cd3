"""Limits of a place that makes machines on demand, as nodes that jobs are placed on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.jobs.job import NOTHING, Resources
from paddlecloud.model.policy.pool import ElasticLimits, elastic_nodes

GIB = 2**30
NODE = Resources(cpu=8, memory=16 * GIB, gpu=1)


def test_without_a_total_every_machine_has_the_full_size() -> None:
    nodes = elastic_nodes("cloud", ElasticLimits(nodes=3, node=NODE))
    assert [node.id for node in nodes] == ["cloud-0", "cloud-1", "cloud-2"]
    assert {node.total for node in nodes} == {NODE}
    assert all(node.exclusive for node in nodes)


def test_the_last_machine_has_what_is_left_of_the_total() -> None:
    total = Resources(cpu=20, memory=100 * GIB, gpu=1)
    nodes = elastic_nodes("cloud", ElasticLimits(nodes=9, node=NODE, total=total))
    assert [(node.total.cpu, node.total.gpu) for node in nodes] == [(8, 1), (8, 0), (4, 0)]


@given(
    nodes=st.integers(0, 20),
    cpu=st.integers(1, 64),
    memory=st.integers(1, 64),
    total=st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(0, 8)),
)
def test_all_machines_are_within_the_limits(
    nodes: int, cpu: int, memory: int, total: tuple[int, int, int]
) -> None:
    most = Resources(cpu=total[0], memory=total[1], gpu=total[2])
    size = Resources(cpu=cpu, memory=memory, gpu=2)
    found = elastic_nodes("p", ElasticLimits(nodes=nodes, node=size, total=most))
    assert len(found) <= nodes
    assert sum((node.total for node in found), NOTHING).fits_in(most)
    assert all(node.total.fits_in(size) for node in found)
