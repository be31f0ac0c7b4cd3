"""JSON schemas of the agent protocol: polls, orders, reports, outputs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from paddlecloud.db.tables.exec_commands import Terminal
from paddlecloud.server.schemas.base import Answer, Epoch, Natural, Request
from paddlecloud.server.schemas.files import EntryRow

MAX_TIMES = 4096
"""Entries of the time index of a log in one report."""


class Capacity(Request, frozen=True, kw_only=True):
    cpu: Annotated[float, Meta(ge=0, le=1e6)]
    memory: Natural
    gpu: Annotated[int, Meta(ge=0, le=100_000)] = 0


NodeName = Annotated[
    str, Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
]


Label = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9_.-]+\Z")]
Labels = Annotated[dict[Label, Label], Meta(max_length=50)]


class AgentJoinRequest(Request, frozen=True, kw_only=True):
    token: Annotated[str, Meta(min_length=1, max_length=200)]
    """A join token: all the authentication that this request has."""
    instance: Annotated[str, Meta(min_length=16, max_length=64)]
    """Random, chosen by the agent; a retry sends the same and gets the same key."""
    node: NodeName | None = None
    """The name of its machine; None: any."""
    labels: Labels = {}
    """Of a machine that joins a pool."""


class AgentJoinAnswer(Answer, frozen=True, kw_only=True):
    agent_id: str
    node: str
    pool: str
    ak: str
    sk: str
    store_url: str = ""
    """Where presigned URLs lead; empty: files travel through the server."""


class LeaveRequest(Request, frozen=True, kw_only=True):
    force: bool = False
    """Also while jobs run there: their replicas are lost."""


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
    """Commands that the agent knows; true: it knows that the command has to stop."""
    tunnels: list[str] = []
    """Tunnels that the agent got recently."""


class RunOrder(Answer, frozen=True, kw_only=True):
    """What to run. `began`: this replica was running before, so it must not be started again."""

    command: str
    began: bool
    env: dict[str, str]
    snapshot: str | None
    blobs_dir: str | None
    direct: bool
    """Its files are in a bucket and can be downloaded by presigned URLs."""
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
    """Paths that it must not see, if they exist."""
    user_namespaces: bool = True
    """False: it must not create user namespaces."""
    requirements: str = ""
    """The text of a requirements file to install for it."""
    install_seconds: float = 1800.0
    """How long installing that may take."""
    private_root: bool = False
    """It gets a root file system of its own, where possible."""
    resumes: str | None = None
    """The replica of the previous attempt whose outputs are restored."""
    ports: list[int] = []
    """Ports of a replica of a gang; the agent checks them before the start."""
    stacks: bool = False
    """Its Python stacks are saved if it hangs."""
    pserver_mode: bool = False
    """Its PaddlePaddle must support parameter servers; the agent checks that before the start."""
    secret: str = ""
    """The secret key of the replica itself, whose access key is its name."""
    secrets: dict[str, str] = {}
    """Names of secrets that the agent fetches before the start, each with its variable, or an empty
    text."""
    bucket_timeout: float | None = field(default=None, name="patience")
    """Seconds after which outputs are given up that the owner's bucket does not accept; None: they
    go to the server's store."""
    store_timeout: float | None = field(default=None, name="store_patience")
    """The same for the server's store; legacy agents would apply the other one to a bucket."""


class ReplicaSecrets(Answer, frozen=True, kw_only=True):
    secrets: dict[str, str]
    """Values in base64, by name."""


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
    """The agent has to report whether it can isolate users."""
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
    terminal: Terminal | None = None
    """It gets a pty like this, which a tunnel connects to the client."""


class TunnelOrder(Answer, frozen=True, kw_only=True):
    """A tunnel to open: to a port of a replica, or to the terminal of a command."""

    id: str
    replica: str
    port: int
    """0: to a terminal."""
    command: str
    boot: str
    """The server that waits for the tunnel."""
    url: str
    """Its URL for agents; empty: only an agent that polls it can reach it."""


class TunnelRefusal(Request, frozen=True, kw_only=True):
    cause: Literal["closed", "foreign", "over", "failed"]
    message: str = ""


class PollAnswer(Answer, frozen=True, kw_only=True):
    cursor: int
    orders: list[Order]
    settings: AgentSettings
    restart: bool
    stopping: bool = False
    """The server stops: its own agent ends too if nothing runs."""
    package: str = ""
    """sha256 of the packed agent that this machine should go on with; empty: its own will do."""
    peers: list[str] = []
    """Where the servers of this database are reached, this one too; empty: it is the only one."""
    commands: list[CommandOrder] = []
    """Commands that the agent does not know, or does not know to be stopping."""
    tunnels: list[TunnelOrder] = []
    """Tunnels that it does not know."""


class StartedNote(Struct, frozen=True):
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    at: float


class LogNote(Struct, frozen=True):
    offset: Natural
    length: Natural
    times: Annotated[list[tuple[Natural, Natural]], Meta(max_length=MAX_TIMES)] = []
    """Offsets, in order, and when the bytes from there on were written: milliseconds since 1970 by
    the clock of the agent."""


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
    """What blocks a replica, or ended it, as code and values of a message."""

    code: Annotated[str, Meta(max_length=100)]
    params: Annotated[dict[str, str | int], Meta(max_length=20)] = {}
    runs: bool = False
    """Its command continues."""


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
    clock: Natural | None = None
    """Milliseconds since 1970, by the clock of the agent, when it was sent."""


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
