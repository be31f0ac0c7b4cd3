"""The audit log: records what a caller changed, and lists the recorded changes."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import audit
from paddlecloud.db.tables.audit import Detail
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import ANONYMOUS, Caller
from paddlecloud.server.schemas.accounts import AuditAnswer, AuditEvent, AuditQuery
from paddlecloud.server.services.jobs.views import iso


def record(tx: Tx, caller: Caller, now: datetime, action: str, target: str, detail: Detail) -> None:
    """Write the row of a change that this caller makes, in its transaction."""
    audit.record(
        tx,
        at=now,
        actor=caller.user_id or ANONYMOUS,
        source=caller.source,
        action=action,
        target=target,
        detail=detail,
    )


def list_events(deps: Deps, query: AuditQuery) -> AuditAnswer:
    since = None if query.since is None else datetime.fromtimestamp(query.since, UTC)
    found = deps.db.read(
        lambda tx: audit.listed(
            tx, user=query.user, since=since, before=query.before, limit=query.limit
        )
    )
    events = [
        AuditEvent(
            number=row.number,
            at=iso(row.at),
            actor=row.actor,
            source=row.source,
            action=row.action,
            target=row.target,
            detail=dict(row.detail),
        )
        for row in found
    ]
    return AuditAnswer(events=events, next=found[-1].number if len(found) == query.limit else None)
