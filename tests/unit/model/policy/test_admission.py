"""What a server refuses at submit, and what it leaves to the scheduler."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paddlecloud.messages import render
from paddlecloud.model.jobs.job import JobSpec, JobType, Resources
from paddlecloud.model.policy.admission import pools_for, refusal, seating, settled
from paddlecloud.model.policy.pool import Node, Pool
from tests.unit.model.builders import a_spec

LOCAL = Pool(name="local", backend="local", private=True)
CCE = Pool(name="cce", backend="kubernetes", private=False, job_types=frozenset({JobType.GPU}))
BCC = Pool(name="bcc", backend="bcc", private=False)
SMALL = Node(id="n1", total=Resources(cpu=2, memory=8 * 2**30))
CARDS = Node(id="n2", total=Resources(cpu=16, memory=64 * 2**30, gpu=4))
MACHINES = {"local": (SMALL,), "cce": (CARDS,), "bcc": (SMALL,)}
WALL = timedelta(minutes=30)


@pytest.mark.parametrize(
    ("spec", "pools", "want"),
    [
        (a_spec(), [LOCAL], ["local"]),
        (a_spec(cluster="local"), [LOCAL], ["local"]),
        (a_spec(public_bcc=False), [LOCAL], ["local"]),
        (a_spec(wall_time=WALL), [LOCAL], ["local"]),
        (a_spec(), [CCE, BCC], ["bcc"]),
        (a_spec(job_type=JobType.GPU), [CCE, BCC], ["cce", "bcc"]),
        (a_spec(cluster="kubernetes", job_type=JobType.GPU), [CCE, BCC], ["cce"]),
        (a_spec(wall_time=WALL), [BCC, LOCAL], ["local"]),
        (a_spec(public_bcc=False), [BCC, LOCAL], ["local"]),
        (a_spec(resources=Resources(cpu=16, gpu=4)), [LOCAL, BCC, CCE], ["cce"]),
    ],
)
def test_the_pools_that_can_take_a_job_keep_their_order(
    spec: JobSpec, pools: list[Pool], want: list[str]
) -> None:
    if spec.groups[0].resources.gpu:
        spec = a_spec(job_type=JobType.GPU, resources=spec.groups[0].resources)
    assert [pool.name for pool in pools_for(spec, pools, MACHINES)] == want
    assert refusal(spec, pools, MACHINES) is None


@pytest.mark.parametrize(
    ("spec", "pools", "want", "named"),
    [
        (a_spec(cluster="moon"), [LOCAL, BCC], "cluster_unknown", "default, local, bcc"),
        (a_spec(cluster="cce"), [LOCAL], "cluster_unknown", "cce"),
        (a_spec(), [], "no_pool", "ask an admin"),
        (a_spec(public_bcc=False), [BCC], "private_pool_none", "bcc"),
        (a_spec(), [CCE], "job_type_none", "cpu"),
        (a_spec(trainers=2), [BCC], "instances_public", "2"),
        (a_spec(wall_time=WALL), [BCC], "wall_time_public", "00:30:00"),
        (a_spec(resources=Resources(cpu=3)), [LOCAL], "resources_never", "3 CPU"),
        (a_spec(resources=Resources(memory=9 * 2**30)), [LOCAL], "resources_never", "8 GiB"),
        (
            a_spec(job_type=JobType.GPU, resources=Resources(gpu=1)),
            [LOCAL],
            "gpu_none",
            "--job_type=cpu",
        ),
        (
            a_spec(job_type=JobType.GPU, resources=Resources(gpu=5)),
            [LOCAL, CCE],
            "resources_never",
            "4 GPU",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_its_numbers(
    spec: JobSpec, pools: list[Pool], want: str, named: str
) -> None:
    refused = refusal(spec, pools, MACHINES)
    assert refused is not None
    assert refused.code == want
    assert named in refused.text("en")
    assert refused.text("zh") != refused.text("en")


def test_private_storage_is_refused_where_it_is_switched_off() -> None:
    spec = a_spec(public_bos=False, bos_url="b.bj.bcebos.com")
    assert refusal(spec, [LOCAL], MACHINES) is None
    refused = refusal(spec, [LOCAL], MACHINES, private_store=False)
    assert refused is not None
    assert refused.code == "private_store_off"
    assert "b.bj" in refused.text("en")


def test_a_pool_whose_machines_are_not_known_yet_is_not_judged() -> None:
    huge = a_spec(resources=Resources(cpu=999))
    assert refusal(huge, [LOCAL], {}) is None
    assert refusal(huge, [LOCAL], {"local": ()}) is None


def test_an_unset_job_type_is_gpu_where_a_machine_has_cards() -> None:
    spec, notes = settled(a_spec(job_type=None), [LOCAL, CCE], MACHINES)
    assert (spec.job_type, spec.groups[0].resources.gpu, notes) == (JobType.GPU, 1, ())


@pytest.mark.parametrize("cluster", ["default", "local"])
def test_an_unset_job_type_is_cpu_elsewhere_and_the_submit_line_says_so(cluster: str) -> None:
    pools = [LOCAL] if cluster == "default" else [LOCAL, CCE]
    spec, notes = settled(a_spec(job_type=None, cluster=cluster), pools, MACHINES)
    assert (spec.job_type, spec.groups[0].resources.gpu) == (JobType.CPU, 0)
    assert "job_type=cpu" in render(notes[0].code, notes[0].params, "en")


def test_a_submit_says_what_pserver_mode_starts() -> None:
    said = []
    for pservers in (2, 1, 0):
        _, notes = settled(a_spec(trainers=2, pservers=pservers), [LOCAL], MACHINES)
        said.append([render(note.code, note.params, "en") for note in notes])
    assert said == [
        [
            f"the job starts 2 trainers and {many}; each runs start_cmd with its TRAINING_ROLE; "
            "--distribute_job_type=NCCL2 starts trainers only"
        ]
        for many in ("2 parameter servers", "1 parameter server")
    ] + [[]]


def test_a_given_job_type_stays() -> None:
    spec = a_spec(job_type=JobType.CPU)
    assert settled(spec, [CCE], MACHINES) == (spec, ())


SHARING = Pool(name="local", backend="local", private=True, oversubscribes=True)
MAC = Pool(name="mac", backend="local", private=True, gangs=False)


def a_gang(trainers: int, **asks: int) -> JobSpec:
    return a_spec(trainers=trainers, resources=Resources(**asks))


@pytest.mark.parametrize(
    ("spec", "pools", "want"),
    [
        (a_gang(2), [BCC, LOCAL], ["local"]),
        (a_gang(2), [MAC, LOCAL], ["local"]),
        (a_gang(8), [SHARING], ["local"]),
        (a_spec(trainers=2, pservers=2), [SHARING], ["local"]),
    ],
)
def test_gangs_run_in_private_pools_that_can(
    spec: JobSpec, pools: list[Pool], want: list[str]
) -> None:
    assert [pool.name for pool in pools_for(spec, pools, MACHINES)] == want


@pytest.mark.parametrize(
    ("spec", "pools", "want", "named"),
    [
        (a_gang(2), [BCC, CCE], "instances_public", "instance_count is 2 (2 replicas)"),
        (a_gang(2), [MAC], "gangs_none", "mac cannot"),
        (a_gang(8), [LOCAL], "gang_never", "8 CPU"),
        (a_gang(8, memory=2 * 2**30), [SHARING], "gang_never", "16 GiB"),
        (a_gang(2, cpu=3), [SHARING], "resources_never", "3 CPU"),
        (a_gang(1001), [SHARING], "replicas_too_many", "1001"),
    ],
)
def test_gangs_that_can_never_run_are_refused_with_numbers(
    spec: JobSpec, pools: list[Pool], want: str, named: str
) -> None:
    refused = refusal(spec, pools, MACHINES)
    assert refused is not None
    assert (refused.code, named in refused.text("en")) == (want, True), refused.text("en")
    assert refused.text("zh") != refused.text("en")


def test_a_gang_claims_less_only_where_no_pool_holds_it_as_it_is() -> None:
    big = Pool(name="big", backend="local", private=True, oversubscribes=True)
    machines = {"local": (SMALL,), "big": (CARDS,)}
    asked = a_gang(4)
    pools, groups = seating(asked, [SHARING, big], machines)
    assert ([pool.name for pool in pools], groups) == (["big"], asked.groups)
    pools, groups = seating(asked, [SHARING], machines)
    assert [pool.name for pool in pools] == ["local"]
    assert [group.resources.cpu for group in groups] == [0.5]


def test_a_gang_whose_machines_are_not_known_yet_claims_what_it_asks() -> None:
    asked = a_gang(400)
    assert seating(asked, [SHARING], {}) == ([SHARING], asked.groups)
