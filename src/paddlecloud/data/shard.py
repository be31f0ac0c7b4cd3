"""The share of the data of this trainer: given by the caller, or from the environment.

Jobs have the variables of both generations, PADDLE_TRAINER_ID and PADDLE_INIT_TRAINER_ID. A process
with neither is trainer 0 of 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

IDS = ("PADDLE_TRAINER_ID", "PADDLE_INIT_TRAINER_ID")
COUNTS = ("PADDLE_TRAINERS_NUM", "PADDLE_INIT_NUM_GRADIENT_SERVERS")


@dataclass(frozen=True, kw_only=True)
class Share:
    """Trainer `trainer_id` of `trainer_count`."""

    trainer_id: int
    trainer_count: int

    def among_workers(self, worker_id: int, worker_count: int) -> tuple[int, int]:
        """The part of one loader worker: (i, n) over all workers of all trainers."""
        count = self.trainer_count * worker_count
        return self.trainer_id * worker_count + worker_id, count


def share(
    trainer_count: int | None = None,
    trainer_id: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Share:
    """The given values, completed from the environment."""
    if trainer_count is not None and trainer_id is not None:
        return Share(trainer_id=trainer_id, trainer_count=trainer_count)
    found = from_environment(environ)
    return Share(
        trainer_id=found.trainer_id if trainer_id is None else trainer_id,
        trainer_count=found.trainer_count if trainer_count is None else trainer_count,
    )


def from_environment(environ: Mapping[str, str] | None = None) -> Share:
    """This process's share by its environment; trainer 0 of 1 where there is no job."""
    environ = os.environ if environ is None else environ
    return Share(
        trainer_id=_number(environ, IDS, default=0),
        trainer_count=_number(environ, COUNTS, default=1),
    )


def job_variable(name: str) -> str:
    """A variable of the job's environment; empty outside of a job."""
    return os.environ.get(name, "")


def _number(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    found = {name: environ[name] for name in names if environ.get(name)}
    for name, value in found.items():
        if not (value.isascii() and value.isdigit()):
            raise ValueError(f"{name}={value!r} is no number")
    if len({int(value) for value in found.values()}) > 1:
        values = ", ".join(f"{name}={value}" for name, value in found.items())
        raise ValueError(f"the environment contradicts itself: {values}")
    return int(next(iter(found.values()))) if found else default
