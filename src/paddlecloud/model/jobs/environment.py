"""The environment variables of one replica: the same on a laptop, in a pod and on a rented machine.

It serves three generations of training code: the table of the 2020 documents, what current
PaddlePaddle needs (gloo on CPUs, barriers of parameter servers), and the PADDLE_INIT_* names of
2017. Left out on purpose: PADDLE_TRAINER_NUM and PADDLE_TRAINERS_ENDPOINTS, one letter away from
ours, switch Paddle's launcher to parameter server mode; PADDLE_MASTER, PADDLE_NNODES and other
launcher variables override flags of the user's command; and no token or key is included, because
the launcher writes its whole environment into its logs.

`environment` has what the server knows; `with_paths` adds what only the machine knows.
"""

from __future__ import annotations

import math

from paddlecloud.model.jobs.job import Attempt, DistributeMode, Job, JobType, Replica, Role

FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT_2017 = 7164
"""The port in the documents of 2017; used when a job has no port of its own."""
GLOO_HTTP_RENDEZVOUS = "3"
TRAINER_ID = "trainer_id"
TRAINER_COUNT = "trainer_count"


def environment(
    job: Job, attempt: Attempt, replica: Replica, *, inherit: bool, has_cards: bool = False
) -> dict[str, str]:
    """The variables that the server sets. The platform's own come last, so they override others.

    `inherit`: the pool belongs to the submitter, so the job inherits PATH and similar variables;
    elsewhere those paths do not exist. `has_cards`: the machine has GPUs, of which the replica sees
    only its own.
    """
    inherited = dict(job.spec.inherited_env) if inherit else {}
    return (
        inherited
        # Python buffers up to 8 KiB when stdout is a file: a log could not be followed, and a
        # killed process would lose its last output. `--env PYTHONUNBUFFERED=` turns it off.
        | {"PYTHONUNBUFFERED": "1"}
        | dict(job.spec.env)
        | _table_2020(job, attempt, replica)
        | _gang(job, attempt, replica)
        | _cards(replica, has_cards=has_cards)
        | _names_2017(job, attempt, replica)
        | {
            "PADDLECLOUD_ATTEMPT": str(attempt.number),
            "PADDLECLOUD_REPLICA": replica.id,
            "PADDLECLOUD_WORKER": replica.worker,
        }
    )


def with_paths(
    env: dict[str, str],
    *,
    work: str,
    output: str,
    log: str,
    mount: str,
    temporary: str,
    home: str,
    user: str = "",
) -> dict[str, str]:
    """The environment with the directories of the machine. HOME, TMPDIR and PATH are set only if
    they are missing. `user`: name of a user whose uid is not in /etc/passwd; programs that
    query it fail without USER and LOGNAME."""
    filled_in = {"HOME": home, "TMPDIR": temporary, "PATH": FALLBACK_PATH}
    if user:
        filled_in |= {"USER": user, "LOGNAME": user}
    paths = {
        "OUTPUT_PATH": output,
        "LOCAL_LOG_PATH": log,
        "LOCAL_MOUNT_PATH": mount,
        "TRAINER_PACKAGE": work,
        "PWD": work,
    }
    return filled_in | env | paths


def with_root(env: dict[str, str], root: str) -> dict[str, str]:
    """Adds the paths of the files that programs of 2017 read in `/`, for machines where a replica
    cannot have a `/` of its own."""
    return env | {
        "PADDLECLOUD_TRAINER_ID_FILE": f"{root}/{TRAINER_ID}",
        "PADDLECLOUD_TRAINER_COUNT_FILE": f"{root}/{TRAINER_COUNT}",
    }


def _table_2020(job: Job, attempt: Attempt, replica: Replica) -> dict[str, str]:
    return {
        "POD_IP": replica.host,
        "PADDLE_PORT": str(replica.port),
        "PADDLE_TRAINER_ID": str(replica.rank),
        "PADDLE_TRAINERS_NUM": str(len(_of(attempt, Role.TRAINER))),
        "PADDLE_USE_CUDA": str(int(_uses_gpu(job))),
        "PADDLE_IS_LOCAL": str(int(len(attempt.replicas) == 1)),
        "TRAINING_ROLE": replica.role.value,
        "PADDLE_TRAINING_ROLE": replica.role.value,
        "JOB_ID": job.id,
    }


def _gang(job: Job, attempt: Attempt, replica: Replica) -> dict[str, str]:
    """How the replicas find each other. Each list is set only in the mode that reads it: with the
    endpoint list Paddle's launcher assumes a collective job."""
    if len(attempt.replicas) == 1 or (job.spec.elastic and not job.spec.distribute_mode):
        return {}
    mode = job.spec.distribute_mode or DistributeMode.NCCL2
    trainers, pservers = _of(attempt, Role.TRAINER), _of(attempt, Role.PSERVER)
    env = {
        "DISTRIBUTE_JOB_TYPE": mode.value,
        "PADDLE_TRAINERS": str(len(trainers)),
        "PADDLE_PSERVERS": str(len(pservers)),
        "PADDLE_TRAINER_IPS": ",".join(trainer.host for trainer in trainers),
        "PADDLE_PSERVER_IPS": ",".join(pserver.host for pserver in pservers),
    }
    if not _uses_gpu(job):
        env["PADDLE_DISTRI_BACKEND"] = job.spec.env.get("PADDLE_DISTRI_BACKEND", "gloo")
    if mode is DistributeMode.PSERVER:
        return env | _pserver_mode(pservers)
    return env | {
        "PADDLE_TRAINER_ENDPOINTS": _endpoints(trainers),
        "PADDLE_CURRENT_ENDPOINT": f"{replica.host}:{replica.port}",
    }


def _cards(replica: Replica, *, has_cards: bool) -> dict[str, str]:
    """The GPUs that it sees. Paddle numbers those from 0; CUDA uses the numbers of the driver only
    with PCI_BUS_ID."""
    if not replica.cards:
        return {"CUDA_VISIBLE_DEVICES": ""} if has_cards else {}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, replica.cards)),
        "FLAGS_selected_gpus": ",".join(str(place) for place in range(len(replica.cards))),
    }


def _pserver_mode(pservers: list[Replica]) -> dict[str, str]:
    """Without gloo the barriers of the trainers do nothing, and one may finish before another has
    started. The first pserver serves it on the port after its own."""
    first = pservers[0]
    return {
        "PADDLE_PSERVERS_IP_PORT_LIST": _endpoints(pservers),
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": GLOO_HTTP_RENDEZVOUS,
        "PADDLE_GLOO_HTTP_ENDPOINT": f"{first.host}:{first.port + 1}",
    }


def _names_2017(job: Job, attempt: Attempt, replica: Replica) -> dict[str, str]:
    trainers, pservers = _of(attempt, Role.TRAINER), _of(attempt, Role.PSERVER)
    # A pserver listens on its own. Trainers know one port for all: it is that of the first.
    alone = replica.role is Role.PSERVER or not pservers
    port = replica.port if alone else pservers[0].port
    asked = job.spec.asked_for(replica.role)
    return {
        "PADDLE_JOB_NAME": job.spec.job_name,
        "TRAINERS": str(len(trainers)),
        "PSERVERS": str(len(pservers)),
        "TOPOLOGY": "",
        "ENTRY": job.spec.start_cmd,
        "PADDLE_INIT_PORT": str(port or PORT_2017),
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        # Despite its name the threads of one trainer; the number of trainers is the next one.
        "PADDLE_INIT_TRAINER_COUNT": str(asked.gpu or max(1, math.ceil(asked.cpu))),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(len(trainers)),
        "PADDLE_INIT_NUM_PASSES": "1",
        "PADDLE_INIT_USE_GPU": str(int(_uses_gpu(job))),
        "PADDLE_INIT_TRAINER_ID": str(replica.rank),
        "PADDLE_INIT_PSERVERS": ",".join(pserver.host for pserver in pservers),
        "NAMESPACE": user_namespace(job.owner),
        "PADDLE_CLOUD_CURRENT_DATACENTER": attempt.pool,
        "PADDLE_CLOUD_USERNAME": job.owner,
    }


def user_namespace(owner: str) -> str:
    """A user's name as 2017 turned it into a namespace."""
    return owner.replace("@", "-").replace(".", "-").replace("_", "-")


def _uses_gpu(job: Job) -> bool:
    return job.spec.job_type is JobType.GPU


def _of(attempt: Attempt, role: Role) -> list[Replica]:
    return sorted((r for r in attempt.replicas if r.role is role), key=lambda r: r.rank)


def _endpoints(replicas: list[Replica]) -> str:
    return ",".join(f"{replica.host}:{replica.port}" for replica in replicas)
