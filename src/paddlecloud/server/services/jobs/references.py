"""Resolves what a path names a job by: an id, the beginning of one, `last`, or a job name.

The exact id wins, then the beginning of an id, then `last`, then the newest job of that name. Only
jobs that the caller may see are considered, so a reference never reveals a job of another user.
`last` and names always mean jobs of the caller's own, also for an admin.
"""

from __future__ import annotations

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.model.jobs.job import Job
from paddlecloud.model.jobs.references import LAST, id_range
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller

_MOST_NAMED = 5
"""Candidates in the message of an ambiguous reference."""


def resolve(deps: Deps, caller: Caller, reference: str) -> str:
    """The id of the job; NotFound, or Conflict with the candidates if it is ambiguous."""
    return deps.db.read(lambda tx: _resolve(tx, caller, reference))


def _resolve(tx: Tx, caller: Caller, reference: str) -> str:
    ids = id_range(reference)
    if ids is not None:
        owner = None if caller.is_admin else caller.user_id
        found = jobs.list_by_id(tx, *ids, owner=owner, limit=_MOST_NAMED + 1)
        if len(found) > 1:
            raise _ambiguous(reference, found)
        if found:
            return found[0].id
    name = None if reference == LAST else reference
    newest = jobs.list_jobs(tx, caller.user_id, name=name, limit=1)
    if newest:
        return newest[0].id
    if name is None:
        raise NotFound("job_last_none")
    raise NotFound("job_reference_unknown", job=reference[:100])


def _ambiguous(reference: str, found: list[Job]) -> Conflict:
    rows = [f"{job.id} ({job.spec.job_name}, {job.state.value})" for job in found[:_MOST_NAMED]]
    more = ["…"] if len(found) > _MOST_NAMED else []
    return Conflict("job_ambiguous", job=reference, candidates=", ".join(rows + more))
