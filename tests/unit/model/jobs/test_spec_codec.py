"""The wire spec and JobSpec: the same thing twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.job import DistributeMode, JobType, Resources, Role
from paddlecloud.model.jobs.spec_codec import (
    limits_cpu,
    spec_from_wire,
    spec_to_wire,
    with_job_type,
)
from tests.unit.model.builders import SNAPSHOT


def a_wire(**changes: object) -> dict[str, object]:
    return {"start_cmd": "sh run.sh", "snapshot": SNAPSHOT, "directory": "job", **changes}


def test_a_plain_job_is_one_trainer_with_one_cpu() -> None:
    spec = spec_from_wire(a_wire())
    assert [(g.role, g.count, g.resources) for g in spec.groups] == [
        (Role.TRAINER, 1, Resources(cpu=1.0, memory=0, gpu=0))
    ]
    assert (spec.job_type, spec.distribute_mode, spec.cpu_limited) == (None, None, False)


def test_a_given_cpu_is_a_limit_too() -> None:
    spec = spec_from_wire(a_wire(cpu=1))
    assert spec.cpu_limited
    assert spec.groups[0].resources.cpu == 1.0


@pytest.mark.parametrize(
    ("change", "job_type", "gpu"),
    [
        ({"job_type": "cpu"}, JobType.CPU, 0),
        ({"job_type": "gpu"}, JobType.GPU, 1),
        ({"job_type": "gpu", "gpu": 4}, JobType.GPU, 4),
        ({"gpu": 2}, JobType.GPU, 2),
        ({"gpu": 0}, JobType.CPU, 0),
    ],
)
def test_job_type_and_cards_follow_from_each_other(
    change: dict[str, object], job_type: JobType, gpu: int
) -> None:
    spec = spec_from_wire(a_wire(**change))
    assert (spec.job_type, spec.groups[0].resources.gpu) == (job_type, gpu)


def test_several_cpu_instances_have_a_pserver_each() -> None:
    spec = spec_from_wire(a_wire(instance_count=3, job_type="cpu", memory="1G"))
    assert spec.distribute_mode is DistributeMode.PSERVER
    assert [(g.role, g.count) for g in spec.groups] == [(Role.PSERVER, 3), (Role.TRAINER, 3)]
    assert all(group.resources.memory == 10**9 for group in spec.groups)
    assert (spec.instance_count, spec.replica_count, spec.is_gang) == (3, 6, True)


def test_several_gpu_instances_are_trainers_only() -> None:
    spec = spec_from_wire(a_wire(instance_count=2, job_type="gpu"))
    assert spec.distribute_mode is DistributeMode.NCCL2
    assert [(g.role, g.count, g.resources.gpu) for g in spec.groups] == [(Role.TRAINER, 2, 1)]


def test_the_mode_can_be_chosen_and_pservers_need_no_card() -> None:
    mode = {"instance_count": 2, "job_type": "gpu", "distribute_job_type": "PSERVER"}
    spec = spec_from_wire(a_wire(**mode))
    assert [(g.role, g.resources.gpu) for g in spec.groups] == [
        (Role.PSERVER, 0),
        (Role.TRAINER, 1),
    ]


def test_a_job_type_decided_later_gives_the_same_spec_as_one_given() -> None:
    for text in ("cpu", "gpu"):
        open_spec = spec_from_wire(a_wire(instance_count=2))
        want = spec_from_wire(a_wire(instance_count=2, job_type=text))
        assert with_job_type(open_spec, JobType(text)) == want


def test_reading_checks_every_rule_again() -> None:
    with pytest.raises(Invalid):
        spec_from_wire(a_wire(start_cmd=""))


_wires = st.fixed_dictionaries(
    {"start_cmd": st.just("sh run.sh"), "snapshot": st.just(SNAPSHOT)},
    optional={
        "job_name": st.sampled_from(["a", "名字"]),
        "job_type": st.sampled_from([None, "cpu", "gpu"]),
        "instance_count": st.integers(1, 5),
        "wall_time": st.none() | st.integers(1, 10**6),
        "cpu": st.none() | st.integers(1, 10_000).map(lambda n: n / 100),
        "memory": st.none() | st.integers(4 * 2**20, 2**40),
        "public_bcc": st.integers(0, 1),
        "env": st.dictionaries(st.sampled_from(["A", "B"]), st.text(alphabet="xyz", max_size=3)),
        "max_retries": st.integers(0, 100),
        "hang_timeout": st.none() | st.integers(1, 10**6),
        "priority": st.integers(-100, 100),
    },
)


@given(_wires)
def test_a_spec_survives_the_way_over_the_wire(wire: dict[str, object]) -> None:
    spec = spec_from_wire(wire)
    assert spec_from_wire(spec_to_wire(spec)) == spec
    for name, value in wire.items():
        shown = spec_to_wire(spec)[name]
        assert shown == value


def test_private_storage_and_wall_time_are_kept() -> None:
    wire = {"start_cmd": "x", "public_bos": 0, "bos_url": "b.bj.bcebos.com/d", "wall_time": 60}
    spec = spec_from_wire(wire)
    assert (spec.public_bos, spec.bos_url, spec.snapshot) == (False, "b.bj.bcebos.com/d", None)
    assert spec.wall_time == timedelta(minutes=1)
    assert spec_from_wire(spec_to_wire(spec)) == spec


@pytest.mark.parametrize(
    ("text", "codes", "by_any"),
    [(None, (101, 102), False), ("any", (101, 102), True), ("7,139", (7, 139), False), ("", (), 0)],
)
def test_what_is_tried_again_is_kept(text: str | None, codes: tuple[int, ...], by_any: int) -> None:
    spec = spec_from_wire(a_wire(max_retries=3, retry_exit_codes=text))
    assert (spec.retry_exit_codes, spec.retry_any_exit) == (codes, bool(by_any))
    assert spec_from_wire(spec_to_wire(spec)) == spec


def groups_of(**changes: object) -> list[tuple[Role, int, Resources]]:
    spec = spec_from_wire(a_wire(**changes))
    return [(group.role, group.count, group.resources) for group in spec.groups]


def test_pservers_may_differ_from_trainers_in_number_and_size() -> None:
    asked = {"job_type": "cpu", "instance_count": 4, "memory": 2**30, "pservers": 2}
    assert groups_of(**asked, pserver_cpu=0.5) == [
        (Role.PSERVER, 2, Resources(cpu=0.5, memory=2**30)),
        (Role.TRAINER, 4, Resources(cpu=1, memory=2**30)),
    ]
    assert groups_of(**asked, pserver_memory=2**28)[0][2] == Resources(cpu=1, memory=2**28)


def test_one_instance_with_pservers_is_a_gang() -> None:
    spec = spec_from_wire(a_wire(job_type="cpu", pservers=1))
    assert (spec.is_gang, spec.instance_count, spec.replica_count) == (True, 1, 2)
    assert spec.distribute_mode is DistributeMode.PSERVER
    assert spec_from_wire(spec_to_wire(spec)) == spec


def test_whoever_speaks_of_pservers_means_pserver_mode_on_cards_too() -> None:
    spec = spec_from_wire(a_wire(job_type="gpu", instance_count=2, pserver_cpu=2))
    assert spec.distribute_mode is DistributeMode.PSERVER
    assert [group.resources.gpu for group in spec.groups] == [0, 1]


def test_the_cpus_of_pservers_are_a_limit_when_they_are_given() -> None:
    spec = spec_from_wire(a_wire(job_type="cpu", instance_count=2, pserver_cpu=2))
    assert limits_cpu(spec, Role.PSERVER)
    assert not limits_cpu(spec, Role.TRAINER)
    assert limits_cpu(spec_from_wire(a_wire(cpu=1)), Role.TRAINER)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"distribute_job_type": "NCCL2", "instance_count": 2, "pservers": 1}, "pservers_in_nccl2"),
        ({"distribute_job_type": "NCCL2", "pserver_cpu": 1}, "pservers_in_nccl2"),
        ({"pserver_memory": 2**28}, "pservers_alone"),
        ({"distribute_job_type": "PSERVER"}, "distribute_alone"),
        ({"pservers": 0}, "param_range"),
        ({"pserver_memory": 1, "instance_count": 2}, "memory_range"),
    ],
)
def test_words_about_pservers_that_contradict_each_other_are_refused(
    changes: dict[str, object], code: str
) -> None:
    with pytest.raises(Invalid) as refused:
        spec_from_wire(a_wire(**changes))
    assert refused.value.code == code
