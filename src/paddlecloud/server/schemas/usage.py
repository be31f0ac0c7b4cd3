"""JSON schemas of the live usage of workers."""

from __future__ import annotations

from paddlecloud.server.schemas.base import Answer
from paddlecloud.server.schemas.jobs import UseView


class UseRow(Answer, frozen=True, kw_only=True):
    """One worker: what it was given and what it uses of it."""

    job_id: str
    job_name: str
    worker: str
    state: str
    node: str
    asked: dict[str, float]
    usage: UseView | None
    peak_memory: int | None


class UseAnswer(Answer, frozen=True, kw_only=True):
    workers: list[UseRow]
