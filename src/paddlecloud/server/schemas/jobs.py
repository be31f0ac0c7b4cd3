"""JSON schemas of jobs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from paddlecloud.server.schemas.base import MAX_KEY, Answer, Flag, Key, Natural, Request

MAX_DIFF = 1024 * 1024
"""Characters of a difference that is kept with a job."""


class SpecShape(Request, frozen=True, kw_only=True):
    start_cmd: str
    job_name: str | UnsetType = UNSET
    cluster: str | UnsetType = UNSET
    public_bcc: int | UnsetType = UNSET
    public_bos: int | UnsetType = UNSET
    job_type: str | None = None
    instance_count: int | UnsetType = UNSET
    wall_time: int | None = None
    bos_url: str = ""
    snapshot: str | None = None
    directory: str = ""
    env: dict[str, str] = {}
    inherited_env: dict[str, str] = {}
    description: str = ""
    max_retries: int = 0
    priority: int | str = 0
    cpu: float | None = None
    memory: int | None = None
    gpu: int | None = None
    distribute_job_type: str | None = None
    pservers: int | UnsetType | None = UNSET
    pserver_cpu: float | UnsetType | None = UNSET
    pserver_memory: int | UnsetType | None = UNSET
    requirements: str | UnsetType = UNSET
    retry_exit_codes: str | UnsetType | None = UNSET
    hang_timeout: int | UnsetType | None = UNSET
    min_instance: int | UnsetType | None = UNSET
    max_instance: int | UnsetType | None = UNSET
    git: dict[str, str] | UnsetType = UNSET


class SubmitRequest(Request, frozen=True, kw_only=True):
    spec: SpecShape
    idempotency_key: Key
    diff: Annotated[str, Meta(max_length=MAX_DIFF)] = ""
    """What the repository of the files differs in from its commit."""
    bos_access_key: Annotated[str, Meta(max_length=MAX_KEY)] = ""
    """The keys of the bucket that bos_url names; for jobs with private storage only."""
    bos_secret_key: Annotated[str, Meta(max_length=MAX_KEY)] = ""
    bos_session_token: Annotated[str, Meta(max_length=MAX_KEY)] = ""
    """Of temporary keys."""


class FailureView(Answer, frozen=True, kw_only=True):
    message: str
    advice: str
    worker: str
    last_lines: list[str]


class UseView(Answer, frozen=True, kw_only=True):
    """What a worker uses now: cores, bytes, cards; and for how many seconds it is quiet."""

    at: str
    cpu: float
    memory: int
    gpu: float | None
    gpu_memory: int | None
    quiet: float


class WorkerView(Answer, frozen=True, kw_only=True):
    name: str
    state: str
    node: str
    pid: int | None
    exit_code: int | None
    signal: int | None
    log_bytes: int
    enforced: dict[str, bool]
    max_rss: int | None
    cpu_seconds: float | None
    usage: UseView | None = None
    """None: it does not run, or nothing was heard of it yet."""
    peak_memory: int | None = None
    endpoint: str = ""
    """Address and port, as the environment of the other workers tells them."""
    cards: list[int] = []
    """The cards of its machine that are its own."""


class JobRow(Answer, frozen=True, kw_only=True):
    job_id: str
    job_name: str
    job_status: str
    job_type: str
    create_time: str
    start_time: str
    finish_time: str
    queue_reason: str
    number: int


class TasksView(Answer, frozen=True, kw_only=True):
    """How far a set of tasks is: of the current pass, then of all of them."""

    name: str
    passes: int
    current_pass: int
    """From 0; as many as `passes` when all are over."""
    total: int
    waiting: int
    leased: int
    done: int
    given_up: int
    finished_in_all: int
    given_up_in_all: int


class JobView(Answer, frozen=True, kw_only=True):
    """The 17 keys of query_job, then what else is known of a job."""

    bos_url: str
    create_time: str
    error_msg: str
    finish_time: str
    instance_count: int
    instance_ids_list: list[str]
    job_id: str
    job_name: str
    job_status: str
    job_type: str
    kill_flag: int
    public_bcc: int
    public_bos: int
    queue_reason: str
    start_cmd: str
    start_time: str
    wall_time: str
    owner: str
    number: int
    version: int
    description: str
    priority: str
    """The class, as --priority takes it."""
    cluster: str
    pool: str
    exit_code: int | None
    attempts: int
    queue_position: int | None
    workers: list[WorkerView]
    failure: FailureView | None
    snapshot: str | None
    resources: dict[str, float]
    env: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None
    advice: list[str] = []
    """What could be asked for otherwise next time."""
    tasks: list[TasksView] = []
    """The data that its trainers take in turns: how far they are."""
    git: dict[str, str] | None = None
    """The repository that the files came from. Its `diff` only where that is wanted and nothing is
    waited for; if the store does not give it, `diff_missing` says why."""


class SubmitAnswer(Answer, frozen=True, kw_only=True):
    job: JobView
    notes: list[str]


class ValidateAnswer(Answer, frozen=True, kw_only=True):
    has_files: bool
    """Whether the server has the snapshot that the spec names."""
    notes: list[str]
    """What the answer to the submit would say."""


class JobsQuery(Request, frozen=True, kw_only=True):
    state: str | None = None
    name: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    before: Natural | None = None


class JobsAnswer(Answer, frozen=True, kw_only=True):
    jobs: list[JobRow]
    next: int | None


class JobQuery(Request, frozen=True, kw_only=True):
    wait: Annotated[float, Meta(ge=0, le=60)] = 0.0
    version: int = -1
    diff: Flag = 1
    """Whether what the repository differed in is wanted too, which the store has to be asked for.
    """


class HistoryEvent(Answer, frozen=True, kw_only=True):
    at: str
    event: str
    before: str
    after: str
    reason: str


class DeletedJob(Answer, frozen=True, kw_only=True):
    job_id: str
    bytes: int
    """That are free again."""


class HistoryAnswer(Answer, frozen=True, kw_only=True):
    history: list[HistoryEvent]


class SpecAnswer(Answer, frozen=True, kw_only=True):
    job_id: str
    spec: dict[str, Any]
    """As a submit request carries it."""
