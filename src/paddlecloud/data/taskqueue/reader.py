"""`task_reader`: a data set from which each trainer leases the next chunk when it needs one.

The server has the list of chunks and their leases. A chunk is counted as finished when its last
record was consumed, once per pass, and leased to another trainer when its trainer is gone. So
trainers may join and leave, and a fast one reads more than a slow one. Outside of a job this
process reads everything: a script runs on a laptop unchanged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from itertools import groupby
from typing import Any, Protocol
from urllib.parse import quote

from paddlecloud.data.recordio.corruption import DamagedFile
from paddlecloud.data.recordio.index import Chunk, Index
from paddlecloud.data.recordio.source import Opener, Target
from paddlecloud.data.shard import job_variable
from paddlecloud.data.taskqueue._http import Caller, ServerRefused, from_environment

log = logging.getLogger("paddlecloud.data")
_MOUNT = "LOCAL_MOUNT_PATH"
_LONGEST_WAIT = 5.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """A chunk that this reader has leased."""

    number: int
    content: str
    fence: int
    of_pass: int


class Queue(Protocol):
    """The source of tasks."""

    def next(self) -> Task | None:
        """The next task; None after the last pass."""

    def is_ours(self, task: Task) -> bool:
        """False if the lease was lost."""

    def finish(self, task: Task) -> bool:
        """Count it as done; False if the lease was lost."""

    def fail(self, task: Task, *, counts: bool) -> None:
        """Return it unfinished."""

    def close(self) -> None: ...


class TaskReader:
    """Iterates over records; `chunks` iterates by chunk, `passes` by pass."""

    def __init__(self, queue: Queue, layout: str = "2017", opener: Opener | None = None) -> None:
        self._queue = queue
        self._layout = layout
        self._opener = opener
        self._is_open = True
        self.current_pass = 0
        """Pass of the last record, from 0."""

    def __iter__(self) -> Iterator[bytes]:
        for _task, records in self.chunks():
            yield from records

    def passes(self) -> Iterator[tuple[int, Iterator[bytes]]]:
        """The number of each pass and this trainer's records of it. Another trainer may still be in
        the previous pass."""
        for number, some in groupby(self.chunks(), key=lambda pair: pair[0].of_pass):
            yield number, (record for _task, records in some for record in records)

    def chunks(self) -> Iterator[tuple[Task, Iterator[bytes]]]:
        """Each chunk with its records; it is finished when the next one is requested."""
        try:
            while self._is_open and (task := self._queue.next()) is not None:
                yield from self._one(task)
        finally:
            self.close()

    def close(self) -> None:
        """Return what is not finished. Idempotent."""
        self._is_open = False
        self._queue.close()

    def _one(self, task: Task) -> Iterator[tuple[Task, Iterator[bytes]]]:
        self.current_pass = task.of_pass
        state = _Progress()
        settled = False
        try:
            yield task, self._records(task, state)
            if state.whole:
                settled = True
                if not self._queue.finish(task):
                    log.warning("[paddlecloud] chunk %d was counted elsewhere", task.number)
        finally:
            if not settled:
                self._queue.fail(task, counts=state.broken)

    def _records(self, task: Task, state: _Progress) -> Iterator[bytes]:
        try:
            for record in _chunk(task.content).records(layout=self._layout, opener=self._opener):
                if not self._queue.is_ours(task):
                    log.warning("[paddlecloud] chunk %d was taken from this worker", task.number)
                    return
                yield record
        except (DamagedFile, OSError) as error:
            state.broken = True
            log.warning("[paddlecloud] chunk %d cannot be read: %s", task.number, error)
            return
        state.whole = True


class _Progress:
    whole = False
    """Every record was consumed."""
    broken = False


def task_reader(
    files_pattern: Target | Iterable[Target],
    *,
    passes: int = 1,
    lease: float = 60.0,
    failure_max: int = 3,
    name: str = "train",
    errors: str = "raise",
    layout: str = "2017",
    opener: Opener | None = None,
) -> TaskReader:
    """The records of these RecordIO files, each chunk read by one trainer of the job per pass.

    Every trainer has to pass the same files, `passes` and `failure_max`. A chunk whose trainer does
    not renew its lease for `lease` seconds, or has ended, is leased to another; after `failure_max`
    failed tries it is given up for this pass, with a warning in the log. `errors="skip"` leaves
    damaged chunks out from the start. `name` distinguishes several data sets of one job.
    """
    index = Index.of(files_pattern, errors=errors, layout=layout, opener=opener)
    contents = [_content(chunk) for chunk in index.chunks]
    queue: Queue = _Alone(contents, passes)
    closed = threading.Event()
    caller = from_environment(closed)
    if caller is not None:
        queue = _Shared(caller, name, lease, closed)
        queue.define(contents, passes, failure_max)
    return TaskReader(queue, layout, opener)


class _Alone:
    """All tasks in order, without a server."""

    def __init__(self, contents: list[str], passes: int) -> None:
        self._tasks = (
            Task(number=number, content=content, fence=0, of_pass=turn)
            for turn in range(passes)
            for number, content in enumerate(contents)
        )

    def next(self) -> Task | None:
        return next(self._tasks, None)

    def is_ours(self, task: Task) -> bool:
        del task
        return True

    def finish(self, task: Task) -> bool:
        del task
        return True

    def fail(self, task: Task, *, counts: bool) -> None:
        del task, counts

    def close(self) -> None: ...


class _Shared:
    """Leases tasks from the server. One thread renews the lease while a chunk is read."""

    def __init__(self, caller: Caller, name: str, lease: float, closed: threading.Event) -> None:
        self._caller = caller
        self._name = name
        self._lease = lease
        self._reader = secrets.token_hex(8)
        self._place = f"/api/v1/jobs/{quote(caller.job_id)}/tasks/{quote(name)}"
        self._held: Task | None = None
        self._closed = closed
        self._process = os.getpid()
        self._renewer: threading.Thread | None = None

    def define(self, contents: list[str], passes: int, failure_max: int) -> None:
        """Define the task set; only the first trainer has to send the list."""
        body: dict[str, Any] = {
            "digest": digest(passes, failure_max, contents),
            "passes": passes,
            "failure_max": failure_max,
        }
        try:
            self._caller.call("POST", self._place, body)
        except ServerRefused as error:
            if error.code != "tasks_unknown":
                raise
            self._caller.call("POST", self._place, body | {"tasks": contents})

    def next(self) -> Task | None:
        self._begin()
        while not self._closed.is_set():
            asked = {"reader": self._reader, "count": 1, "seconds": self._lease, "held": []}
            answer = self._caller.call("POST", f"{self._place}/lease", asked)
            for of_pass, number in answer["given_up"]:  # each is reported to one reader
                log.warning(
                    "[paddlecloud] chunk %d of %s is given up in pass %d",
                    number,
                    self._name,
                    of_pass,
                )
            if answer["tasks"]:
                found = answer["tasks"][0]
                of_pass = int(answer["current_pass"])
                self._held = Task(
                    number=found["number"],
                    content=found["content"],
                    fence=found["fence"],
                    of_pass=of_pass,
                )
                return self._held
            if answer["over"]:
                return None
            self._closed.wait(min(float(answer["wait"]), _LONGEST_WAIT))
        return None

    def is_ours(self, task: Task) -> bool:
        return self._held is task

    def finish(self, task: Task) -> bool:
        body = {
            "reader": self._reader,
            "number": task.number,
            "fence": task.fence,
            "of_pass": task.of_pass,
        }
        answer = self._caller.call("POST", f"{self._place}/finish", body)
        self._held = None
        return bool(answer["verdict"] != "late")

    def fail(self, task: Task, *, counts: bool) -> None:
        if self._held is not task:
            return
        self._held = None
        body = {
            "reader": self._reader,
            "number": task.number,
            "fence": task.fence,
            "counts": counts,
        }
        try:
            answer = self._caller.call("POST", f"{self._place}/fail", body, wait=False)
        except (ServerRefused, HTTPException, OSError, ValueError):
            return  # the lease expires
        if answer["state"] == "given_up":
            log.warning("[paddlecloud] chunk %d is given up for this pass", task.number)

    def close(self) -> None:
        self._closed.set()
        self._caller.close()

    def _begin(self) -> None:
        """Start the renewing thread in the process that reads, which a loader may have forked."""
        if self._process != os.getpid():
            self._process, self._reader = os.getpid(), secrets.token_hex(8)
            self._caller.close()
            self._renewer = None
        if self._renewer is None:
            self._renewer = threading.Thread(target=self._renew, name="task leases", daemon=True)
            self._renewer.start()

    def _renew(self) -> None:
        while not self._closed.wait(self._lease / 3):
            task = self._held
            if task is None:
                continue
            body = {
                "reader": self._reader,
                "seconds": self._lease,
                "leases": [[task.number, task.fence]],
            }
            try:
                answer = self._caller.call("POST", f"{self._place}/renew", body)
            except ServerRefused as error:
                log.warning("[paddlecloud] the lease of chunk %d: %s", task.number, error)
                answer = {"lost": [task.number]}
            except (HTTPException, OSError, ValueError):
                continue  # only when we are closed
            if task.number in answer["lost"] and self._held is task:
                self._held = None


def digest(passes: int, failure_max: int, contents: list[str]) -> str:
    """Hash of what the trainers of a job have to agree on, as the server computes it."""
    body = hashlib.sha256(f"{passes} {failure_max} {len(contents)}".encode())
    for content in contents:
        data = content.encode("utf-8", "surrogatepass")
        body.update(b" %d:%b" % (len(data), data))
    return body.hexdigest()


def _content(chunk: Chunk) -> str:
    """A chunk with a path that is valid for every trainer: each has its own copy of the
    directories."""
    return json.dumps([_shared(chunk.path), chunk.offset, chunk.count, chunk.size])


def _chunk(content: str) -> Chunk:
    path, offset, count, size = json.loads(content)
    return Chunk(path=_own(path), offset=offset, count=count, size=size, first=0)


def _shared(path: str) -> str:
    mount = job_variable(_MOUNT)
    if mount and path.startswith(f"{mount}/"):
        return f"${_MOUNT}{path[len(mount) :]}"
    here = os.getcwd()  # noqa: PTH109 - text, as the path is
    return path[len(here) + 1 :] if path.startswith(f"{here}/") else path


def _own(path: str) -> str:
    if path.startswith(f"${_MOUNT}/"):
        return job_variable(_MOUNT) + path[len(_MOUNT) + 1 :]
    return path
