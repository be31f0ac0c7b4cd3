"""JSON schemas of the search for damage: where a page begins, and what it found."""

from __future__ import annotations

from typing import Literal

from paddlecloud.server.schemas.accounts import UserId
from paddlecloud.server.schemas.base import Answer, Natural, Request


class VerifyPlace(Request, frozen=True, kw_only=True):
    """How far the search got; only the server that gave it out knows what that means."""

    owner: UserId
    job: Natural | None = None
    """Number of the job whose outputs are read; null: submitted files."""
    after: str = ""
    """The last file that was read, or with `offset` the one that is being read."""
    offset: Natural = 0
    began: Natural = 0
    """When the search began, in microseconds since 1970: what was set aside since is told again to
    whoever asks for its page again."""


class VerifyRequest(Request, frozen=True, kw_only=True):
    user: UserId | None = None
    """Only what this user has."""
    at: VerifyPlace | None = None
    """`next` of the page before; null to begin, which tells where, and reads nothing yet."""


class DamagedRow(Answer, frozen=True, kw_only=True):
    """A file with other bytes than were stored. Lists hold twenty each at most."""

    kind: Literal["submitted", "output"]
    user_id: str
    sha256: str
    """Of what was stored."""
    size: int
    """Bytes that are there now."""
    paths: list[str]
    """What the file is called by its owner."""
    jobs: list[str]
    snapshots: list[str]
    aside: str
    """Where in the store it lies now; empty: it stays where it is."""


class VerifyAnswer(Answer, frozen=True, kw_only=True):
    files: int
    bytes: int
    damaged: list[DamagedRow]
    changed: list[DamagedRow]
    """Outputs that were written anew since their job listed them."""
    next: VerifyPlace | None
    """Where to go on; null: everything was read."""
