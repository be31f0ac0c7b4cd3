"""Builders of stored values that state only what matters, and the databases to try them on.

A new engine joins by one entry in `ENGINES`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from paddlecloud.db import open_database
from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables.jobs import NOT_PLANNED_YET, insert_job
from paddlecloud.model.jobs.job import (
    Attempt,
    Job,
    JobSpec,
    Reason,
    Replica,
    ReplicaGroup,
    Resources,
    Role,
)
from paddlecloud.model.jobs.states import Event, JobState
from tests.postgres import database_of
from tests.sqlite import open_with_tables

NOW = datetime(2020, 5, 17, 10, 16, 9, 123456, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NEW = Reason(code=NOT_PLANNED_YET)

_count = itertools.count(1)


def _sqlite(folder: Path) -> Database:
    return open_with_tables(folder / "paddlecloud.db", now=NOW)


def _postgres(folder: Path) -> Database:
    return open_database(database_of(folder), now=NOW)


ENGINES: dict[str, Callable[[Path], Database]] = {"sqlite": _sqlite, "postgres": _postgres}
"""Each opens the database that belongs to a folder: the same one for the same folder."""


@contextmanager
def opened(engine: str, folder: Path) -> Iterator[Database]:
    database = ENGINES[engine](folder)
    try:
        yield database
    finally:
        database.close()


class Ear:
    """Hears every wake-up of a database from now on."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._heard: list[tuple[str, str]] = []
        self._end = threading.Event()
        db.subscribe(self._listen)

    def heard(self) -> list[tuple[str, str]]:
        """What came of every write that has returned by now, in order."""
        self._db.write(lambda tx: tx.notify("end of test", ""))
        assert self._end.wait(30)
        return self._heard

    def _listen(self, channel: str, payload: str) -> None:
        if channel == "end of test":
            self._end.set()
        else:
            self._heard.append((channel, payload))


def a_spec(
    *,
    name: str = "tmp_job",
    priority: int = 0,
    wall_time: timedelta | None = None,
    snapshot: str | None = None,
) -> JobSpec:
    return JobSpec(
        start_cmd="sh run.sh",
        groups=(ReplicaGroup(role=Role.TRAINER, count=1, resources=Resources()),),
        job_name=name,
        priority=priority,
        wall_time=wall_time,
        snapshot=snapshot,
    )


def a_job(*, owner: str = "ann", spec: JobSpec | None = None, since: datetime = NOW) -> Job:
    """A job as it arrives: not stored, state submit."""
    return Job(
        id=f"job-{next(_count):032x}",
        number=0,
        owner=owner,
        spec=spec or a_spec(),
        state=JobState.SUBMIT,
        version=1,
        created_at=since,
        waiting_since=since,
    )


def stored(
    tx: Tx, job: Job, *events: Event, now: datetime = NOW, reason: Reason | None = NEW
) -> Job:
    """A job that went through `events` and was then stored as it is."""
    for event in events:
        job = job.after(event, now=now, reason=reason)
    return insert_job(tx, job)


def waiting(tx: Tx, *, owner: str = "ann", spec: JobSpec | None = None) -> Job:
    return stored(tx, a_job(owner=owner, spec=spec), Event.ACCEPTED)


def an_attempt(job: Job, *, number: int = 1, fence: int = 7, nodes: tuple[str, ...]) -> Attempt:
    """An attempt with one trainer on each of `nodes`, one CPU and 100 bytes each."""
    return Attempt(
        job_id=job.id,
        number=number,
        fence=fence,
        pool="local",
        created_at=NOW,
        replicas=tuple(
            Replica(
                id=f"{job.id}.{number}.trainer-{rank}",
                role=Role.TRAINER,
                rank=rank,
                node=node,
                resources=Resources(cpu=1.0, memory=100),
            )
            for rank, node in enumerate(nodes)
        ),
    )
