"""The complete environment of one replica: the same on a laptop, in a pod and on a rented machine.

Three generations of training code read it, and they must agree: the table of the 2020 documents,
what PaddlePaddle of today was seen to need (gloo on CPUs, barriers of parameter servers), and the
PADDLE_INIT_* names of 2017. Left out on purpose: PADDLE_TRAINER_NUM and PADDLE_TRAINERS_ENDPOINTS,
one letter away from ours, switch Paddle's launcher into parameter server mode; PADDLE_MASTER,
PADDLE_NNODES and other launcher variables would beat the flags on the user's own command line; and
no token or key is ever here, because the launcher writes its whole environment into its logs.

`environment` is what the server knows; `with_paths` is what only the machine it runs on knows.
"""

from __future__ import annotations

import math

from paddlecloud.model.jobs.job import Attempt, DistributeMode, Job, JobType, Replica, Role

FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT_2017 = 7164
"""The port that every document of 2017 shows; told when a job has no port of its own."""
GLOO_HTTP_RENDEZVOUS = "3"
TRAINER_ID = "trainer_id"
TRAINER_COUNT = "trainer_count"


def environment(
    job: Job, attempt: Attempt, replica: Replica, *, inherit: bool, has_cards: bool = False
) -> dict[str, str]:
    """What the server tells one replica. The platform's own names come last, so they always hold.

    `inherit` is True where the pool and its server belong to their person: the submitter's PATH and
    the like are then the job's too. Elsewhere they would name places that are not there.
    `has_cards` is True where the replica's machine has cards: it sees its own and no others.
    """
    inherited = dict(job.spec.inherited_env) if inherit else {}
    return (
        inherited
        | _defaults()
        | dict(job.spec.env)
        | _table_2020(job, attempt, replica)
        | _gang(job, attempt, replica)
        | _cards(replica, has_cards=has_cards)
        | _names_2017(job, attempt, replica)
        | _extras(attempt, replica)
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
    """The environment completed by the machine: where its directories are. HOME, TMPDIR and PATH
    are only filled in; whoever set them before meant it. `user` is the name of one whose uid no
    file of the machine knows: programs that ask for it fail if nothing tells it."""
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
    """The environment of a replica that has, where that can be done, a `/` of its own: the files in
    there that programs of 2017 read are at these paths in any case."""
    return env | {
        "PADDLECLOUD_TRAINER_ID_FILE": f"{root}/{TRAINER_ID}",
        "PADDLECLOUD_TRAINER_COUNT_FILE": f"{root}/{TRAINER_COUNT}",
    }


def _defaults() -> dict[str, str]:
    # Python holds back up to 8 KiB when stdout is a file: nobody could follow a log, and a killed
    # process would take its last words with it. `--env PYTHONUNBUFFERED=` turns it off.
    return {"PYTHONUNBUFFERED": "1"}


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
    """How the replicas find each other. Each list exists in the mode that reads it only: Paddle's
    launcher takes the endpoint list for a collective job wherever it sees one."""
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
    """Which cards it sees. Paddle counts among those, from 0; CUDA counts as the driver does only
    where it is told to."""
    if not replica.cards:
        return {"CUDA_VISIBLE_DEVICES": ""} if has_cards else {}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, replica.cards)),
        "FLAGS_selected_gpus": ",".join(str(place) for place in range(len(replica.cards))),
    }


def _pserver_mode(pservers: list[Replica]) -> dict[str, str]:
    """Without gloo every barrier of the trainers is silently nothing, and one may finish before
    another has begun. The first pserver answers it on the port after its own."""
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
        # Threads of one trainer, whatever its name says; the number of trainers is the next one.
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


def _extras(attempt: Attempt, replica: Replica) -> dict[str, str]:
    return {
        "PADDLECLOUD_ATTEMPT": str(attempt.number),
        "PADDLECLOUD_REPLICA": replica.id,
        "PADDLECLOUD_WORKER": replica.worker,
    }


def _uses_gpu(job: Job) -> bool:
    return job.spec.job_type is JobType.GPU


def _of(attempt: Attempt, role: Role) -> list[Replica]:
    return sorted((r for r in attempt.replicas if r.role is role), key=lambda r: r.rank)


def _endpoints(replicas: list[Replica]) -> str:
    return ",".join(f"{replica.host}:{replica.port}" for replica in replicas)
