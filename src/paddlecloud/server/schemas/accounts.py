"""JSON schemas of users, their keys, and the views of administrators."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from paddlecloud.server.schemas.base import Answer, Epoch, Flag, Natural, Request
from paddlecloud.server.schemas.jobs import JobRow, JobsQuery

Role = Literal["user", "admin", "readonly"]
Language = Literal["zh", "en"]
ScopeWord = Literal["full", "read"]
UserId = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
PlanName = Annotated[str, Meta(max_length=64)]
Email = Annotated[str, Meta(max_length=320)]
TokenName = Annotated[str, Meta(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*\Z")]


class GenTokenRequest(Request, frozen=True, kw_only=True):
    email: Email
    lang: Language | None = None


class GenTokenAnswer(Answer, frozen=True, kw_only=True):
    """The same for every address: the response does not reveal whether it is known."""

    email: str


class TokenRequest(Request, frozen=True, kw_only=True):
    name: TokenName = ""
    scope: ScopeWord = "full"


class BearerTokenRequest(Request, frozen=True, kw_only=True):
    scope: Literal["metrics"]
    name: TokenName = ""


class TokensQuery(Request, frozen=True, kw_only=True):
    revoked: Flag = 0


class AdminTokensQuery(TokensQuery, frozen=True, kw_only=True):
    user: UserId | None = None


class TokenView(Answer, frozen=True, kw_only=True):
    ak: str
    user_id: str
    name: str
    scope: str
    origin: str
    created_at: str
    last_used_at: str | None
    revoked_at: str | None


class SecretRequest(Request, frozen=True, kw_only=True):
    name: str
    value: Annotated[str, Meta(max_length=128 * 1024)]
    """In base64; at most 64 KiB before."""


class SecretView(Answer, frozen=True, kw_only=True):
    name: str
    created_at: str
    updated_at: str


class SecretsAnswer(Answer, frozen=True, kw_only=True):
    secrets: list[SecretView]


class DeletedSecret(Answer, frozen=True, kw_only=True):
    name: str


class NewToken(Answer, frozen=True, kw_only=True):
    """The only answer that ever holds a secret key of a user."""

    ak: str
    sk: str
    user_id: str
    name: str
    scope: str
    created_at: str


class NewBearerToken(Answer, frozen=True, kw_only=True):
    """The only answer that ever holds a bearer token."""

    ak: str
    token: str
    name: str
    scope: str
    created_at: str


class TokensAnswer(Answer, frozen=True, kw_only=True):
    tokens: list[TokenView]


class UserRequest(Request, frozen=True, kw_only=True):
    user_id: UserId
    role: Role = "user"
    email: Email | None = None
    plan: PlanName | None = None
    lang: Language | None = None


class UserChange(Request, frozen=True, kw_only=True):
    """What is not named stays. An empty plan is the server's default, an empty email none."""

    role: Role | UnsetType = UNSET
    email: Email | UnsetType = UNSET
    plan: PlanName | UnsetType = UNSET
    lang: Language | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


class UserView(Answer, frozen=True, kw_only=True):
    user_id: str
    role: str
    email: str | None
    plan: str
    limits: dict[str, str | int | float | None]
    lang: str
    disabled: bool
    disabled_at: str | None
    created_at: str
    tokens: int


class UsersQuery(Request, frozen=True, kw_only=True):
    after: UserId | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class UsersAnswer(Answer, frozen=True, kw_only=True):
    users: list[UserView]
    next: str | None


class DeletedAnswer(Answer, frozen=True, kw_only=True):
    user_id: str


class AdminJobsQuery(JobsQuery, frozen=True, kw_only=True):
    owner: UserId | None = None


class AdminJobRow(JobRow, frozen=True, kw_only=True):
    owner: str
    pool: str


class AdminJobsAnswer(Answer, frozen=True, kw_only=True):
    jobs: list[AdminJobRow]
    next: int | None


class NodeView(Answer, frozen=True, kw_only=True):
    id: str
    cpu: float
    memory: int
    gpu: int
    used_cpu: float
    used_memory: int
    used_gpu: int
    seen_at: str | None
    enforces: dict[str, bool]


class PoolView(Answer, frozen=True, kw_only=True):
    name: str
    backend: str
    public: bool
    preemption: bool
    users: list[str]
    job_types: list[str]
    nodes: list[NodeView]
    note: str
    """What keeps it from taking jobs; empty: nothing."""


class PoolsAnswer(Answer, frozen=True, kw_only=True):
    pools: list[PoolView]


class AuditQuery(Request, frozen=True, kw_only=True):
    user: UserId | None = None
    since: Epoch | None = None
    before: Natural | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditEvent(Answer, frozen=True, kw_only=True):
    number: int
    at: str
    actor: str
    source: str
    action: str
    target: str
    detail: dict[str, str | int | float | bool | None]


class AuditAnswer(Answer, frozen=True, kw_only=True):
    events: list[AuditEvent]
    next: int | None
