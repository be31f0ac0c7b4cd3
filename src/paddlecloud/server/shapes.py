"""JSON shapes of the HTTP interface. The OpenAPI document is made from these and the route table.

They are msgspec structs: decoding checks every type and refuses unknown keys, so a misspelt key is
never ignored. The client speaks plain JSON and needs none of this.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

Key = Annotated[str, Meta(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_.-]+\Z")]
Flag = Annotated[int, Meta(ge=0, le=1)]
Natural = Annotated[int, Meta(ge=0, le=2**53)]
"""As far as every JSON reader counts exactly, and no file or column overflows."""
MAX_KEY = 4096
"""Characters of a key of a cloud, or of the token of temporary ones."""
MAX_DIFF = 1024 * 1024
"""Characters of a difference that is kept with a job."""
Epoch = Annotated[float, Meta(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the end of year 9999."""


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what clients send."""


class Answer(Struct, frozen=True, kw_only=True):
    """Base of what the server sends; clients must tolerate new keys."""


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


class LogsQuery(Request, frozen=True, kw_only=True):
    worker: str | None = None
    offset: Natural = 0
    follow: Flag = 0
    tail: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    attempt: Natural | None = None
    since: str | None = None
    """A span (10m) or a time; without a zone it is the server's."""
    merge: Flag = 0
    """All workers, line by line."""
    failed: Flag = 0
    """The worker that failed first, in the newest attempt that failed."""
    grep: str | None = None
    complete: Flag = 0
    """With grep: not the last line while it has no end."""
    frames: Flag = 0
    """With merge or grep: frames (worker, next offset, length) instead of text."""
    at: str | None = None
    """With merge or grep: where each worker's log was left, `trainer-0:120,trainer-1:98`."""


class FilesQuery(Request, frozen=True, kw_only=True):
    prefix: str | None = None
    direct: bool = False
    """Whether the caller would fetch files past the server; see `ways`."""


class FileRow(Answer, frozen=True, kw_only=True):
    path: str
    size: int
    time: str
    sha256: str | None = None
    """Where it is known: of submitted files, and of what a worker put out that has ended."""
    written_sha256: str | UnsetType = UNSET
    """What its worker put out there, if the stored file has another time or size by now: one that
    was brought back from a backup is the same all the same."""


class FilesAnswer(Answer, frozen=True, kw_only=True):
    files: list[FileRow]
    job_status: str
    """Of the moment before they were listed: of a job that had ended then, these are all."""
    ways: dict[str, str] | UnsetType = UNSET
    """By path where else a file is: on this machine (a private server's), or at an address of the
    store. Whoever goes there compares the sha256."""
    left_behind: str | UnsetType = UNSET
    """Which of its outputs did not come here, and where they are; empty if all did."""


class FileQuery(Request, frozen=True, kw_only=True):
    offset: Natural = 0
    length: Natural | None = None
    """At most so many bytes."""
    digest: bool = False
    """Whether the sha256 of what is sent comes behind it, as 32 bytes."""


EntryRow = tuple[str, str, Natural, str, int, str]
"""path, kind, size, sha256, executable 0|1, target."""


class SnapshotRequest(Request, frozen=True, kw_only=True):
    entries: list[EntryRow]


class SnapshotAnswer(Answer, frozen=True, kw_only=True):
    id: str
    missing: list[str]


class SpecAnswer(Answer, frozen=True, kw_only=True):
    job_id: str
    spec: dict[str, Any]
    """As a submit request carries it."""


class JobFilesAnswer(Answer, frozen=True, kw_only=True):
    id: str | None
    """Of the snapshot; None: it was given no files."""
    entries: list[EntryRow]
    time: str = ""
    """When the job was submitted, which is the time of all of them in a list of its files."""
    tags: dict[str, str] | None = None
    """By path the tag (ETag) of each file in the job's own bucket. The digests of such entries are
    marks of our own, not those of the contents."""


class BlobsAnswer(Answer, frozen=True, kw_only=True):
    stored: int


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


class Capacity(Request, frozen=True, kw_only=True):
    cpu: Annotated[float, Meta(ge=0, le=1e6)]
    memory: Natural
    gpu: Annotated[int, Meta(ge=0, le=100_000)] = 0


class PollRequest(Request, frozen=True, kw_only=True):
    agent: str
    boot: str
    version: str
    cursor: Natural
    wait: Annotated[float, Meta(ge=0, le=60)] = 30.0
    capacity: Capacity
    enforces: dict[str, bool] = {}
    host: str = "127.0.0.1"
    commands: dict[str, bool] = {}
    """The commands that this agent knows of, and whether it knows that they have to stop."""


class RunOrder(Answer, frozen=True, kw_only=True):
    """What to run. `began`: the server has seen this replica run, so it must not begin again."""

    command: str
    began: bool
    env: dict[str, str]
    snapshot: str | None
    blobs_dir: str | None
    direct: bool
    """Its files lie in a bucket: addresses for them can be had, past the server."""
    role: str
    rank: int
    worker: str
    max_seconds: float | None
    cpu_request: float
    cpu_limit: float | None
    memory_limit: int | None
    pids_limit: int | None
    log_limit: int | None
    uid: int | None = None
    """The user under whose uid it runs; None: the agent's own."""
    hide: list[str] = []
    """Paths that it must not see, where its machine has them."""
    user_namespaces: bool = True
    """False: it must not create user namespaces."""
    requirements: str = ""
    """What is to be installed for it: the text of a requirements file."""
    install_seconds: float = 1800.0
    """How long installing that may take."""
    private_root: bool = False
    """Its `/` is to be its own, where that can be done."""
    resumes: str | None = None
    """The replica of the attempt before, whose outputs it is given."""
    ports: list[int] = []
    """What a replica of a gang may listen on: looked at before it begins."""
    stacks: bool = False
    """It may be found hung: where its Python processes stand is to be saved then."""
    pserver_mode: bool = False
    """Its PaddlePaddle has to have a parameter server: looked at before it begins."""
    secret: str = ""
    """The secret key of the replica itself, whose access key is its name."""
    patience: float | None = None
    """Seconds after which outputs are given up that its owner's bucket does not take; None: they go
    to the server's store."""
    store_patience: float | None = None
    """The same of the server's store; agents of before take any `patience` for that of a bucket."""


class Order(Answer, frozen=True, kw_only=True):
    seq: int
    replica: str
    job: str
    attempt: int
    fence: int
    want: str
    grace: float
    cause: str
    run: RunOrder | None


class AgentSettings(Answer, frozen=True, kw_only=True):
    ship_interval: float
    grace: float
    separate: bool = False
    """The agent is asked to say whether it can keep users apart."""
    cache_limit: int
    """Bytes of its cache."""


class CommandOrder(Answer, frozen=True, kw_only=True):
    """A command to run beside a replica, or to stop."""

    id: str
    replica: str
    argv: list[str]
    timeout: float | None
    input: int
    """Bytes that wait for its stdin."""
    stop: bool


class PollAnswer(Answer, frozen=True, kw_only=True):
    cursor: int
    orders: list[Order]
    settings: AgentSettings
    restart: bool
    peers: list[str] = []
    """Where the servers of this database are reached, this one too; empty: it is the only one."""
    commands: list[CommandOrder] = []
    """Those that the agent has not heard of, or not that they have to stop."""


class StartedNote(Struct, frozen=True):
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    at: float


class LogNote(Struct, frozen=True):
    offset: Natural
    length: Natural


class ExitNote(Struct, frozen=True, kw_only=True):
    cause: str
    log_size: Natural
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    memory_limit: Natural | None = None
    message: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    stopping_at: float | None = None
    ran: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    max_rss: int | None = None
    peak_memory: Natural | None = None
    cpu_seconds: float | None = None
    enforced: dict[str, bool] = {}
    hint: str = ""
    said: HeldNote | None = None


class UseNote(Struct, frozen=True, kw_only=True):
    """What a replica uses: cores, bytes, cards; and for how many seconds it is quiet."""

    cpu: Annotated[float, Meta(ge=0, le=1e6)]
    memory: Natural
    peak_memory: Natural
    gpu: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    gpu_memory: Natural | None = None
    quiet: Annotated[float, Meta(ge=0, le=1e10)] = 0.0


class HeldNote(Struct, frozen=True, kw_only=True):
    """What keeps a replica from going on, or ended it, as code and values of a sentence."""

    code: Annotated[str, Meta(max_length=100)]
    params: Annotated[dict[str, str | int], Meta(max_length=20)] = {}
    runs: bool = False
    """Its command goes on meanwhile."""


class ReportItem(Struct, frozen=True, kw_only=True):
    """Notes of one replica. Unknown keys are tolerated: an agent may be newer than the server."""

    replica: str
    fence: int
    started: StartedNote | None = None
    log: LogNote | None = None
    exited: ExitNote | None = None
    usage: UseNote | None = None
    held: HeldNote | None = None
    lost: bool = False
    all_ended: bool = False
    """Of one that is lost: its agent knows that no process of it can be running."""


class Report(Struct, frozen=True, kw_only=True):
    agent: str
    boot: str
    seq: int
    items: list[ReportItem]


class Ack(Answer, frozen=True, kw_only=True):
    replica: str
    log_size: int
    exited: bool


class ReportAnswer(Answer, frozen=True, kw_only=True):
    acks: list[Ack]
    stale: list[str]


class ReplicaQuery(Request, frozen=True, kw_only=True):
    replica: str


class EntriesAnswer(Answer, frozen=True, kw_only=True):
    entries: list[EntryRow]


class OutputsAnswer(Answer, frozen=True, kw_only=True):
    files: list[tuple[str, int, float]]
    """Path, size, and seconds since 1970 of the last change."""


class UploadQuery(Request, frozen=True, kw_only=True):
    fence: int
    mtime: Epoch | None = None


class AppendQuery(UploadQuery, frozen=True, kw_only=True):
    offset: Natural
    """How many bytes of the file were sent before."""


class UploadAnswer(Answer, frozen=True, kw_only=True):
    size: int


class ListingQuery(Request, frozen=True, kw_only=True):
    fence: int


class ListingRequest(Request, frozen=True, kw_only=True):
    files: list[tuple[str, Natural, float, str]]
    """Area and path, size, seconds since 1970 of the last change, and sha256 ("": not known)."""


class BundleHead(Request, frozen=True, kw_only=True):
    files: list[tuple[str, Natural, Epoch]]
    """Area and path, size, and seconds since 1970 of the last change, in the order of the bytes."""


class ListingAnswer(Answer, frozen=True, kw_only=True):
    missing: list[str]
    """What has to be sent again."""


class ErrorBody(Answer, frozen=True, kw_only=True):
    kind: str
    code: str
    message: str
    params: dict[str, str | int | float | None]
    request_id: str


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    error: ErrorBody
