"""The audit log: records what a caller changed, and lists the recorded changes."""

from __future__ import annotations

from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import audit
from paddlecloud.db.tables.audit import AuditRow, Detail
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.accounts import AuditEvent, AuditQuery
from paddlecloud.server.services.jobs.views import iso


def record(tx: Tx, caller: Caller, now: datetime, action: str, target: str, detail: Detail) -> None:
    """Write the row of a change that this caller makes, in its transaction."""
    audit.record(
        tx,
        at=now,
        actor=caller.user_id,
        source=caller.source,
        action=action,
        target=target,
        detail=detail,
    )


def list_events(deps: Deps, query: AuditQuery, since: datetime | None) -> list[AuditEvent]:
    found = deps.db.read(
        lambda tx: audit.listed(
            tx, user=query.user, since=since, before=query.before, limit=query.limit
        )
    )
    return [_event(row) for row in found]


def _event(row: AuditRow) -> AuditEvent:
    return AuditEvent(
        number=row.number,
        at=iso(row.at),
        actor=row.actor,
        source=row.source,
        action=row.action,
        target=row.target,
        detail=dict(row.detail),
    )
