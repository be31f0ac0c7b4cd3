"""The environment of a replica: the documented table, what Paddle needs, and the names of 2017."""

from __future__ import annotations

import pytest

from paddlecloud.model.jobs.environment import environment, user_namespace, with_paths
from paddlecloud.model.jobs.job import Attempt, DistributeMode, Job, JobType, Resources, Role
from paddlecloud.model.jobs.param_checks import RESERVED_NAMES, RESERVED_PREFIXES
from tests.unit.model.builders import JOB_ID, a_job, a_replica, a_spec, an_attempt

DOCUMENTED = {
    "POD_IP", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_USE_CUDA", "PADDLE_IS_LOCAL",
    "TRAINING_ROLE", "OUTPUT_PATH", "LOCAL_LOG_PATH", "LOCAL_MOUNT_PATH", "JOB_ID", "PADDLE_PORT",
}  # fmt: skip
GANGS_ONLY = {
    "DISTRIBUTE_JOB_TYPE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_CURRENT_ENDPOINT",
}  # fmt: skip
NAMES_2017 = {
    "PADDLE_JOB_NAME", "TRAINERS", "PSERVERS", "TOPOLOGY", "ENTRY", "TRAINER_PACKAGE",
    "PADDLE_INIT_PORT", "PADDLE_INIT_TRAINER_COUNT", "PADDLE_INIT_PORTS_NUM",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "PADDLE_INIT_NUM_GRADIENT_SERVERS",
    "PADDLE_INIT_NUM_PASSES", "PADDLE_INIT_USE_GPU", "NAMESPACE",
    "PADDLE_CLOUD_CURRENT_DATACENTER", "PADDLE_CLOUD_USERNAME", "PADDLE_INIT_TRAINER_ID",
    "PADDLE_INIT_PSERVERS",
}  # fmt: skip
TRAPS = {"PADDLE_TRAINER_NUM", "PADDLE_TRAINERS_ENDPOINTS", "PADDLE_MASTER", "PADDLE_NNODES"}


def a_gang(*, pservers: int = 0, job_type: JobType = JobType.CPU) -> tuple[Job, Attempt]:
    spec = a_spec(trainers=2, pservers=pservers, job_type=job_type)
    trainers = [a_replica(rank=n, host=f"127.0.0.{n + 1}", port=62000) for n in range(2)]
    servers = [
        a_replica(role=Role.PSERVER, rank=n, host=f"127.0.0.{n + 3}", port=63000)
        for n in range(pservers)
    ]
    return a_job(spec=spec), an_attempt(*trainers[::-1], *servers)


def complete(env: dict[str, str]) -> dict[str, str]:
    return with_paths(
        env, work="/r/work", output="/r/output", log="/r/log", mount="/r/mount",
        temporary="/r/tmp", home="/r",
    )  # fmt: skip


def alone(**changes: object) -> dict[str, str]:
    replica = a_replica()
    job = a_job(spec=a_spec(**changes))  # type: ignore[arg-type]
    return complete(environment(job, an_attempt(replica), replica, inherit=True))


def test_a_single_job_sees_the_whole_table_and_nothing_of_gangs() -> None:
    env = alone()
    assert env.keys() >= DOCUMENTED | NAMES_2017
    assert not env.keys() & (GANGS_ONLY | TRAPS)
    assert {name: env[name] for name in DOCUMENTED} == {
        "POD_IP": "127.0.0.1",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_USE_CUDA": "0",
        "PADDLE_IS_LOCAL": "1",
        "TRAINING_ROLE": "TRAINER",
        "OUTPUT_PATH": "/r/output",
        "LOCAL_LOG_PATH": "/r/log",
        "LOCAL_MOUNT_PATH": "/r/mount",
        "JOB_ID": JOB_ID,
        "PADDLE_PORT": "0",
    }


def test_a_gpu_job_uses_cuda_in_both_generations() -> None:
    asks = Resources(cpu=2, gpu=4)
    replica = a_replica(resources=asks)
    job = a_job(spec=a_spec(job_type=JobType.GPU, resources=asks))
    env = environment(job, an_attempt(replica), replica, inherit=False)
    assert (env["PADDLE_USE_CUDA"], env["PADDLE_INIT_USE_GPU"]) == ("1", "1")
    assert env["PADDLE_INIT_TRAINER_COUNT"] == "4"
    assert "PADDLE_DISTRI_BACKEND" not in env


def test_a_cpu_gang_of_trainers_finds_itself_over_gloo() -> None:
    job, attempt = a_gang()
    replica = next(r for r in attempt.replicas if r.rank == 1)
    env = environment(job, attempt, replica, inherit=False)
    assert env["DISTRIBUTE_JOB_TYPE"] == "NCCL2"
    assert env["PADDLE_TRAINER_ENDPOINTS"] == "127.0.0.1:62000,127.0.0.2:62000"
    assert env["PADDLE_CURRENT_ENDPOINT"] == "127.0.0.2:62000"
    assert env["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert (env["PADDLE_TRAINERS_NUM"], env["PADDLE_IS_LOCAL"]) == ("2", "0")
    assert not env.keys() & (TRAPS | {"PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_WITH_GLOO"})


def test_a_gpu_gang_has_no_gloo() -> None:
    job, attempt = a_gang(job_type=JobType.GPU)
    env = environment(job, attempt, attempt.replicas[0], inherit=False)
    assert env["PADDLE_CURRENT_ENDPOINT"] == "127.0.0.2:62000"
    assert "PADDLE_DISTRI_BACKEND" not in env


@pytest.mark.parametrize("number", range(4))
def test_in_pserver_mode_every_replica_knows_the_servers(number: int) -> None:
    job, attempt = a_gang(pservers=2)
    replica = attempt.replicas[number]
    env = environment(job, attempt, replica, inherit=False)
    assert env["DISTRIBUTE_JOB_TYPE"] == "PSERVER"
    assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == "127.0.0.3:63000,127.0.0.4:63000"
    assert (env["PADDLE_WITH_GLOO"], env["PADDLE_GLOO_RENDEZVOUS"]) == ("1", "3")
    assert env["PADDLE_GLOO_HTTP_ENDPOINT"] == "127.0.0.3:63001"
    assert env["TRAINING_ROLE"] == replica.role.value
    assert not env.keys() & (TRAPS | {"PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"})
    if replica.role is Role.PSERVER:
        own = f"{env['POD_IP']}:{env['PADDLE_PORT']}"
        assert own in env["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")


@pytest.mark.parametrize("pservers", [0, 2])
def test_both_generations_tell_the_same(pservers: int) -> None:
    job, attempt = a_gang(pservers=pservers)
    for replica in attempt.replicas:
        env = environment(job, attempt, replica, inherit=False)
        assert env["PADDLE_INIT_TRAINER_ID"] == env["PADDLE_TRAINER_ID"] == str(replica.rank)
        assert (
            env["PADDLE_INIT_NUM_GRADIENT_SERVERS"]
            == env["TRAINERS"]
            == env["PADDLE_TRAINERS"]
            == env["PADDLE_TRAINERS_NUM"]
        )
        endpoints = env.get("PADDLE_PSERVERS_IP_PORT_LIST", "")
        hosts = ",".join(endpoint.partition(":")[0] for endpoint in endpoints.split(","))
        assert env["PADDLE_INIT_PSERVERS"] == env["PADDLE_PSERVER_IPS"] == hosts
        if endpoints:
            assert endpoints.startswith(f"127.0.0.3:{env['PADDLE_INIT_PORT']}")


def test_the_user_beats_the_shell_and_the_platform_beats_the_user() -> None:
    spec = a_spec(
        env={"LANG": "C", "PYTHONUNBUFFERED": "", "JOB_ID": "forged"},
        inherited_env={"LANG": "zh_CN.UTF-8", "PATH": "/mine/bin"},
    )
    replica = a_replica()
    env = environment(a_job(spec=spec), an_attempt(replica), replica, inherit=True)
    assert (env["LANG"], env["PATH"], env["JOB_ID"]) == ("C", "/mine/bin", JOB_ID)
    assert env["PYTHONUNBUFFERED"] == ""


def test_a_shared_pool_takes_nothing_from_the_shell() -> None:
    spec = a_spec(inherited_env={"PATH": "/mine/bin", "HOME": "/home/me"})
    replica = a_replica()
    env = environment(a_job(spec=spec), an_attempt(replica), replica, inherit=False)
    assert not env.keys() & {"PATH", "HOME"}
    assert complete(env)["PATH"].startswith("/usr/local/sbin:")


def test_the_machine_fills_in_only_what_is_missing() -> None:
    env = complete({"HOME": "/home/me", "PATH": "/mine"})
    assert (env["HOME"], env["PATH"], env["TMPDIR"]) == ("/home/me", "/mine", "/r/tmp")
    assert (env["TRAINER_PACKAGE"], env["PWD"]) == ("/r/work", "/r/work")


def test_output_is_not_held_back() -> None:
    assert alone()["PYTHONUNBUFFERED"] == "1"


def test_a_replica_can_be_found_by_its_environment() -> None:
    env = alone()
    assert env["PADDLECLOUD_REPLICA"] == f"{JOB_ID}.1.trainer-0"
    assert (env["PADDLECLOUD_ATTEMPT"], env["PADDLECLOUD_WORKER"]) == ("1", "trainer-0")


def test_the_user_may_choose_another_backend_on_cpus() -> None:
    job, attempt = a_gang()
    spec = a_spec(
        trainers=2, env={"PADDLE_DISTRI_BACKEND": "bkcl"}, distribute_mode=DistributeMode.NCCL2
    )
    env = environment(a_job(spec=spec), attempt, attempt.replicas[0], inherit=False)
    assert env["PADDLE_DISTRI_BACKEND"] == "bkcl"
    assert job.spec.env == {}


def test_whatever_the_platform_sets_is_reserved() -> None:
    free = {"PYTHONUNBUFFERED", "PADDLE_DISTRI_BACKEND", "HOME", "TMPDIR", "PATH", "PWD"}
    for pservers in (0, 2):
        job, attempt = a_gang(pservers=pservers)
        env = complete(environment(job, attempt, attempt.replicas[0], inherit=False))
        ours = {name for name in env if not name.startswith(RESERVED_PREFIXES)}
        assert ours - free <= RESERVED_NAMES
    assert {"PADDLE_TRAINER_NUM", "PADDLE_TRAINERS_ENDPOINTS"} <= RESERVED_NAMES


def test_values_can_be_passed_to_a_program() -> None:
    for name, value in alone().items():
        assert "\0" not in name + value
        assert "=" not in name


def test_a_user_name_becomes_a_namespace() -> None:
    assert user_namespace("zhang_san@example.com") == "zhang-san-example-com"


def test_a_replica_sees_its_own_cards_and_counts_them_from_0() -> None:
    replica = a_replica(cards=(2, 5))
    env = environment(a_job(), an_attempt(replica), replica, inherit=False, has_cards=True)
    assert env["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert env["FLAGS_selected_gpus"] == "0,1"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_replica_without_cards_sees_none_of_a_machine_that_has_some() -> None:
    replica = a_replica()
    job = a_job(spec=a_spec(env={"CUDA_VISIBLE_DEVICES": "0"}))
    on_cards = environment(job, an_attempt(replica), replica, inherit=False, has_cards=True)
    assert on_cards["CUDA_VISIBLE_DEVICES"] == ""
    elsewhere = environment(job, an_attempt(replica), replica, inherit=False)
    assert elsewhere["CUDA_VISIBLE_DEVICES"] == "0"
    assert "FLAGS_selected_gpus" not in on_cards


def test_a_pserver_of_2017_listens_on_its_own_port_and_trainers_know_that_of_the_first() -> None:
    spec = a_spec(trainers=1, pservers=2)
    servers = [a_replica(role=Role.PSERVER, rank=n, port=62001 + 2 * n) for n in range(2)]
    trainer = a_replica(port=62004)
    attempt = an_attempt(trainer, *servers)
    told = [
        environment(a_job(spec=spec), attempt, each, inherit=False)["PADDLE_INIT_PORT"]
        for each in (trainer, *servers)
    ]
    assert told == ["62001", "62001", "62003"]


def test_threads_are_counted_by_what_was_asked_and_not_by_a_smaller_claim() -> None:
    spec = a_spec(trainers=2, resources=Resources(cpu=4))
    replica = a_replica(resources=Resources(cpu=0.5))
    env = environment(a_job(spec=spec), an_attempt(replica), replica, inherit=False)
    assert env["PADDLE_INIT_TRAINER_COUNT"] == "4"
