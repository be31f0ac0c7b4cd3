"""What can be set: one dataclass per concern, with its defaults and what each key means.

The text under a field is its line in the reference. Values only: `load` reads the file, and
`validate` checks what a type cannot express.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from paddlecloud.model.policy.quota import FREE, UNLIMITED, Plan
from paddlecloud.model.setting_types import FilePath, Secret, Size, Span
from paddlecloud.net.proxy import DIRECT, Proxies

MIB = 1024 * 1024
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Http:
    """Where the server listens and what it takes in."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 or :: is every address. Beyond this machine it needs TLS."""
    port: int = 0
    """0: of a team server 8080, or 8443 with TLS; else that of last time, or any free one."""
    tls_cert: FilePath = ""
    """PEM file with the certificate and those above it. SIGHUP reads it again."""
    tls_key: FilePath = ""
    """PEM file with the certificate's key, without a passphrase."""
    insecure: bool = False
    """true: listen beyond this machine without TLS. For a network that you trust, or a proxy."""
    public_url: str = ""
    """Address under which people reach the server, such as https://cloud.example."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names of this server that a request may carry in its Host header."""
    max_json: Size = 32 * MIB
    """Bytes of a JSON body; the manifest of 100,000 files has about 15 MB."""
    header_timeout: timedelta = timedelta(seconds=20)
    """The head of a request has to be here after so long."""
    body_timeout: timedelta = timedelta(seconds=60)
    """A client that is silent for so long in the middle of a body is cut off."""
    max_connections: int = 20_000
    """Open connections at once; further ones are closed. The system's limit may be lower."""


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    """Where jobs, users and orders are kept."""

    url: Secret = field(default="", repr=False)
    """postgresql://user:password@host/name; empty: SQLite, in the home of the server."""
    connections: int = 10
    """Connections that one server holds at most."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Where submitted files, logs and outputs are kept."""

    kind: str = "directory"
    """directory, or s3: any S3-compatible object store."""
    root: FilePath = ""
    """A directory, shared by all servers of one database; empty: `store` in the home. With s3 it
    keeps the logs and nothing else."""
    endpoint: str = ""
    """s3: address of its server, such as https://s3.bj.bcebos.com."""
    bucket: str = ""
    """s3: name of the bucket, which has to exist."""
    prefix: str = ""
    """s3: directory in the bucket; empty: the whole bucket is ours."""
    region: str = "us-east-1"
    """s3: region that requests are signed for, such as bj."""
    access_key: Secret = field(default="", repr=False)
    """s3: key that may list, read, write and delete in the bucket."""
    secret_key: Secret = field(default="", repr=False)
    """s3: the secret that belongs to it."""
    path_style: bool = True
    """s3: true: the bucket is in the path of an address; false: in the name of the host."""
    patience: timedelta = timedelta(hours=6)
    """A job of which nothing can be stored for so long after its command ended gives up its
    place."""


@dataclass(frozen=True, kw_only=True)
class PrivateStoreSettings:
    """Jobs whose files lie in their owner's own bucket (public_bos=0)."""

    enabled: bool = True
    """false: such jobs are refused."""
    door: str = "https://s3.{region}.bcebos.com"
    """Address of the S3 server behind bos_url; {region} is the region that bos_url names."""
    patience: timedelta = timedelta(hours=6)
    """A job whose bucket takes nothing for so long after its command ended gives up its place."""


@dataclass(frozen=True, kw_only=True)
class Mail:
    """The SMTP server that tokens and notifications are sent through."""

    host: str = ""
    """Empty: no mail is sent, and an admin hands out tokens."""
    port: int = 587
    """587 for starttls, 465 for tls, often 25 for none."""
    security: str = "starttls"
    """starttls, tls or none."""
    user: str = ""
    """Empty: the server takes mail without a login."""
    password: Secret = field(default="", repr=False)
    """Secret; never sent without TLS."""
    sender: str = ""
    """Address that the mail comes from; empty: `user`."""
    timeout: timedelta = timedelta(seconds=20)
    """How long the mail server may take for one step."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Who may ask for a token with gen_token."""

    domains: tuple[str, ...] = ()
    """Mail domains that may ask, such as ["example.com"]; empty: any."""
    again: str = "replace"
    """Asking again: with replace the first use of the new token ends those mailed before; add keeps
    them."""
    per_address: int = 3
    """Requests an hour for one mail address."""
    per_source: int = 20
    """Requests an hour from one network address."""
    lang: str = ""
    """Language of mails to people who did not choose one: zh or en. Empty: this machine's, as
    PADDLECLOUD_LANG, LC_ALL, LC_MESSAGES or LANG name it; en if that is neither."""


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """A place where jobs run; --cluster names it. `default` asks in the order of the file."""

    name: str = ""
    kind: str = LOCAL
    """local: processes of this machine. Further keys depend on the kind."""
    public: bool | None = None
    """true: quota plans hold on it. Default: true on a team server, false else."""
    users: tuple[str, ...] = ()
    """User ids that may use it; empty: all users."""
    job_types: tuple[str, ...] = ("cpu", "gpu")
    """Kinds of jobs that it takes; gpu only if its machines have cards."""
    preemption: bool = False
    """true: a job of a higher class may preempt one of a lower class."""
    settings: Any = None
    """The keys of its kind: the settings dataclass of the backend; None: its defaults."""


@dataclass(frozen=True, kw_only=True)
class Notifications:
    """Mails and webhooks that users may choose."""

    enabled: bool = True
    """false: no notifications; mails with tokens are still sent."""
    webhook_private: bool = False
    """true: webhooks may go to addresses of private networks and of this machine."""
    long_queue: timedelta = timedelta(hours=1)
    """A job that waits this long is worth a notice."""
    quota_percent: int = 80
    """A notice when so much of the day's minutes is used."""
    retry_for: timedelta = timedelta(hours=24)
    """What cannot be delivered is tried again for this long."""


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """This one server among several on the same database."""

    node: str = ""
    """Name of this machine in the local pool; empty: its host name (not a team: local)."""
    agent: bool = True
    """false: no jobs run on this machine."""


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    schedule_timeout: timedelta = timedelta(hours=24)
    """A job that found no place for this long ends as `schedule timeout`."""
    reserve_after: timedelta = timedelta(minutes=10)
    """A job that waited this long gets the next free capacity: smaller ones no longer pass it."""
    max_replicas: int = 1000
    """Trainers and pservers of one job together."""
    window: int = 256
    """How many waiting jobs of one user a plan considers."""
    share_half_life: timedelta = timedelta(hours=24)
    """Use of this long ago counts half when shares between users are compared."""
    age_after: timedelta = timedelta(hours=6)
    """For each time this long that a job waits, it counts one priority class higher."""
    preempt_after: timedelta = timedelta(seconds=30)
    """A job that waited this long may take the place of lower classes, in pools that allow it."""
    min_run: timedelta = timedelta(minutes=2)
    """A job that runs for less than this is not stopped for another one."""
    retry_pause: timedelta = timedelta(seconds=1)
    """Before the first retry of a job; twice as long before each further one, 5 minutes at most."""


@dataclass(frozen=True, kw_only=True)
class Running:
    grace: timedelta = timedelta(seconds=40)
    """Between SIGTERM and SIGKILL; Paddle's launcher needs 32 s to end its workers."""
    ship_interval: timedelta = timedelta(seconds=10)
    """How often changed output files are brought back while a job runs."""
    lost_after: timedelta = timedelta(seconds=90)
    """An agent that is silent for this long is lost, and its replicas with it; silence is counted
    from 45 seconds after its last word, for an agent may be busy asking for so long."""
    pids_limit: int = 4096
    """Processes and threads of one replica, or of one install of `--requirements`, where the
    machine can enforce it."""
    default_memory: Size | None = None
    """Bytes that one replica of a job without --memory may use, where the machine can enforce it.
    0: no limit. None: on a team server all memory of its machine except a reserve (a tenth, at most
    4 GiB); else no limit."""
    user_namespaces: bool | None = None
    """true: jobs may create user namespaces, which bubblewrap and rootless containers need.
    Default: false on a team server, true else."""
    install_limit: timedelta = timedelta(minutes=30)
    """An install of `--requirements` that takes longer is ended, and the jobs that wait for it
    fail. Its CPU, memory and processes are limited as those of the job."""
    log_limit: Size = 1024 * MIB
    """Bytes of one replica's log; of a longer one the head and the tail are kept. 0: no limit."""
    cache_limit: Size = 10 * 1024 * MIB
    """Bytes that the agent of a machine keeps for its next jobs: fetched files, installed
    environments. What is in use stays, also above it."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    finished_jobs: timedelta = timedelta(days=90)
    """Finished jobs, their logs and outputs are kept this long."""
    unused_files: timedelta = timedelta(days=7)
    """Submitted files are kept this long after their last submit, and while a job has them."""
    audit: Span = timedelta(days=400)
    """Who changed what (admin audit) is kept this long, by default over a year. 0: for ever."""


@dataclass(frozen=True, kw_only=True)
class LocalPool:
    """What this machine gives to jobs, for local pools without values of their own."""

    cpu: float | None = None
    """None: as many as this machine has."""
    memory: Size | None = None
    """Bytes that may be asked for; None: as many as this machine has."""
    gpu: int | None = None
    """GPUs of this machine, of which each job gets its own; None: as many as its driver reports."""


def _plans() -> Mapping[str, Plan]:
    return {"free": FREE, "unlimited": UNLIMITED}


NOT_IN_THE_FILE = ("home", "proxies", "machine_lang")
"""Fields of Settings that are given when the server starts."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    home: Path
    proxies: Proxies = field(default=DIRECT, repr=False)
    """Of the environment in which the server was started: HTTPS_PROXY, HTTP_PROXY, NO_PROXY."""
    machine_lang: str = "en"
    """Of the environment in which the server was started: zh or en."""
    team: bool = False
    """true: a server for several users, with quotas, mail and roles."""
    name: str = ""
    """Shown in bos_url. Empty: the host of http.public_url if there is one, else local."""
    time_zone: str = ""
    """Times in query_job are in it, and the day of a quota ends by it, such as Asia/Shanghai.
    Empty: this machine's zone (TZ, else /etc/localtime, else UTC)."""
    key: Secret = field(default="", repr=False)
    """Secret from which all secret keys are made, at least 32 characters; the same for all servers
    of one database. Empty: one is made at the first start and kept in `server/server.key`."""
    old_keys: tuple[Secret, ...] = field(default=(), repr=False)
    """Previous keys: tokens that were made with them are still valid."""
    default_plan: str = ""
    """Plan of users who have none of their own. Empty: free on a team server, else unlimited."""
    http: Http = field(default_factory=Http)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    private_store: PrivateStoreSettings = field(default_factory=PrivateStoreSettings)
    mail: Mail = field(default_factory=Mail)
    tokens: Tokens = field(default_factory=Tokens)
    plans: Mapping[str, Plan] = field(default_factory=_plans)
    pools: tuple[PoolSettings, ...] = ()
    notifications: Notifications = field(default_factory=Notifications)
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    scheduling: Scheduling = field(default_factory=Scheduling)
    running: Running = field(default_factory=Running)
    retention: Retention = field(default_factory=Retention)
    local_pool: LocalPool = field(default_factory=LocalPool)

    def __post_init__(self) -> None:
        """Settle what depends on whether this is a team's server."""
        settled = {
            "default_plan": self.default_plan or ("free" if self.team else "unlimited"),
            "name": self.name or self.public_host or LOCAL,
        }
        for key, value in settled.items():
            object.__setattr__(self, key, value)

    @property
    def server_dir(self) -> Path:
        return self.home / "server"

    @property
    def agent_dir(self) -> Path:
        return self.home / "agent"

    @property
    def store_dir(self) -> Path:
        return Path(self.store.root) if self.store.root else self.home / "store"

    @property
    def zone(self) -> ZoneInfo | None:
        """None: this machine's."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

    @property
    def lang(self) -> str:
        """The language for users who did not choose one."""
        return self.tokens.lang or self.machine_lang

    def format_time(self, at: datetime, timespec: str = "minutes") -> str:
        """A time for a sentence, in this server's zone; with the zone, unless its readers are on
        the same machine. `timespec`: minutes or seconds."""
        local = at.astimezone(self.zone)
        text = local.replace(tzinfo=None).isoformat(" ", timespec)
        if self.zone is None and not self.team:
            return text
        return f"{text} ({self.zone_name(at)})"

    def zone_name(self, at: datetime) -> str:
        """The zone, or its offset at this time if it is this machine's."""
        return self.time_zone or f"UTC{at.astimezone().isoformat()[-6:]}"

    @property
    def tls(self) -> bool:
        return bool(self.http.tls_cert)

    @property
    def port(self) -> int:
        """The port to listen on; 0: the one of last time, or any."""
        if self.http.port or not self.team:
            return self.http.port
        return 8443 if self.tls else 8080

    @property
    def public_host(self) -> str:
        return urlsplit(self.http.public_url).hostname or ""

    @property
    def node(self) -> str:
        """The name of this machine in the local pool."""
        return self.replica.node or (socket.gethostname() if self.team else LOCAL)

    @property
    def user_namespaces(self) -> bool:
        """Whether jobs may create them."""
        chosen = self.running.user_namespaces
        return not self.team if chosen is None else chosen

    @property
    def pool_list(self) -> tuple[PoolSettings, ...]:
        """The pools, in the order in which `cluster=default` asks them; never empty."""
        return self.pools or (PoolSettings(name=LOCAL),)
