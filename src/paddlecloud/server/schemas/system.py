"""JSON schemas of health, identity and maintenance."""

from __future__ import annotations

from paddlecloud.server.schemas.base import Answer


class WhoAmI(Answer, frozen=True, kw_only=True):
    user_id: str
    ak: str
    role: str
    server: str
    version: str
    time: str


class GcAnswer(Answer, frozen=True, kw_only=True):
    jobs: int
    bytes: int


class Check(Answer, frozen=True, kw_only=True):
    name: str
    ok: bool
    detail: str


class DoctorAnswer(Answer, frozen=True, kw_only=True):
    checks: list[Check]


class Health(Answer, frozen=True, kw_only=True):
    ok: bool
    version: str
    boot: str
    time: float
    """Seconds since 1970, by the clock of the server."""
