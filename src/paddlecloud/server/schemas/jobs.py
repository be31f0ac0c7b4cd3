"""JSON schemas of jobs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from paddlecloud.server.schemas.base import MAX_KEY, Answer, Flag, Key, Natural, Request

MAX_DIFF = 1024 * 1024
"""Characters of a git diff that is kept with a job."""


class SpecRequest(Request, frozen=True, kw_only=True):
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
    require: str | UnsetType = UNSET
    """Labels of machines: KEY=VALUE,KEY=VALUE."""
    env: dict[str, str] = {}
    secret: dict[str, str] | UnsetType = UNSET
    """Names of secrets, each with the variable that it is also given as, or an empty text."""
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
    spec: SpecRequest
    idempotency_key: Key
    diff: Annotated[str, Meta(max_length=MAX_DIFF)] = ""
    """The git diff of the submitted directory."""
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
    """Current usage of a worker: cores, bytes, GPUs; and seconds since it last did anything."""

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
    """None: it does not run, or no usage was reported yet."""
    peak_memory: int | None = None
    endpoint: str = ""
    """Address and port, as in the environment of the other workers."""
    cards: list[int] = []
    """The GPUs that are assigned to it, by number on its machine."""


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
    error_msg: str = ""
    created_at: str = ""
    """`create_time` in UTC."""
    age: int = 0
    """Seconds since it was submitted, by the server's clock."""
    duration: int | None = None
    """Seconds that it has run, or ran; None: it has not started."""


class TasksView(Answer, frozen=True, kw_only=True):
    """Progress of a set of tasks: in the current pass, then in all passes."""

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
    """The 17 keys of query_job, then further fields."""

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
    secrets: list[str] = []
    """As --secret takes them: NAME, or NAME=VARIABLE; never a value."""
    advice: list[str] = []
    """Advice for the next submit, such as less memory."""
    tasks: list[TasksView] = []
    """Progress of its data tasks."""
    git: dict[str, str] | None = None
    """The git repository of the files. `diff` is included if the query wants it and does not wait;
    if the store cannot return it, `diff_missing` has the reason."""


class SubmitAnswer(Answer, frozen=True, kw_only=True):
    job: JobView
    notes: list[str]


class GroupPlan(Answer, frozen=True, kw_only=True):
    """Workers of one role, and what each of them gets."""

    role: str
    count: int
    cpu: float
    memory: int
    """Bytes; 0: no fixed amount."""
    gpu: int


class JobPlan(Answer, frozen=True, kw_only=True):
    """What a submit would start."""

    job_type: str
    pools: list[str]
    """The pools that can run it, in the order in which they are tried."""
    workers: list[GroupPlan]


class ValidateAnswer(Answer, frozen=True, kw_only=True):
    has_files: bool
    """Whether the server has the snapshot that the spec names."""
    notes: list[str]
    """Notes that a submit would return."""
    plan: JobPlan


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
    """Whether to include the git diff, which is read from the store."""


class HistoryEvent(Answer, frozen=True, kw_only=True):
    at: str
    event: str
    before: str
    after: str
    reason: str


class DeletedJob(Answer, frozen=True, kw_only=True):
    job_id: str
    bytes: int
    """Freed bytes."""


class HistoryAnswer(Answer, frozen=True, kw_only=True):
    history: list[HistoryEvent]


class SpecAnswer(Answer, frozen=True, kw_only=True):
    job_id: str
    spec: dict[str, Any]
    """As a submit request carries it."""
