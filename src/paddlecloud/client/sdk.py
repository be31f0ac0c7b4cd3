"""`Client`: what a person can do with a server, as methods with the command line's names.

Every method is one or a few calls; nothing is cached, so two clients never disagree. Threads may
share a Client. Uploading and downloading live in modules of their own, which are imported on first
use: `query_job` must not pay for them.
"""

from __future__ import annotations

import os

from paddlecloud.client import response_schemas
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.transport import MAX_LISTING, Transport
from paddlecloud.model.errors import ConfigError, Invalid, NotFound, Refused, Retry
from paddlecloud.model.jobs.references import is_job_id, is_reference
from paddlecloud.model.protocol.bce_auth import quote
from paddlecloud.net.endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Never, Unpack

    from paddlecloud.client._admin import Admin
    from paddlecloud.client._job_parameters import JobParameters, QuotaChange, SubmitParameters
    from paddlecloud.client._port_forward import PortForward
    from paddlecloud.client.config.resolve import Config
    from paddlecloud.client.exec import Command
    from paddlecloud.model.errors import PaddleCloudError

    Note = Callable[..., None]

#: Seconds: a job may have left hundreds of thousands of files.
_DELETING = 600.0
FINAL = frozenset(("failed", "success", "timeout", "schedule timeout", "killed"))


class Job:
    """A job: `id`, `state`, and the keys of `query_job` as attributes, as the server described them
    at one moment.

    `wait`, `kill` and `refresh` bring the attributes up to date and return the same job. One of a
    list has fewer attributes than `refresh` gets.
    """

    __slots__ = ("_client", "view")

    if TYPE_CHECKING:
        advice: list[str]
        age: int
        attempts: int
        bos_url: str
        cluster: str
        create_time: str
        created_at: str
        description: str
        duration: int | None
        env: dict[str, str]
        error_msg: str
        exit_code: int | None
        failure: Any  # a dict, or None
        finish_time: str
        finished_at: str | None
        git: dict[str, str] | None
        instance_count: int
        instance_ids_list: list[str]
        job_id: str
        job_name: str
        job_status: str
        job_type: str
        kill_flag: int
        notes: list[str]
        number: int
        owner: str
        pool: str
        priority: str
        public_bcc: int
        public_bos: int
        queue_position: int | None
        queue_reason: str
        resources: dict[str, float]
        secrets: list[str]
        snapshot: str | None
        start_cmd: str
        start_time: str
        started_at: str | None
        tasks: list[dict[str, Any]]
        version: int
        wall_time: str
        workers: list[dict[str, Any]]

    def __init__(self, view: Mapping[str, Any], client: Client | None = None) -> None:
        self.view = dict(view)
        self._client = client

    @property
    def id(self) -> str:
        return str(self.view["job_id"])

    @property
    def state(self) -> str:
        return str(self.view["job_status"])

    @property
    def final(self) -> bool:
        """Whether the job has ended; its state will not change any more."""
        return self.state in FINAL

    def refresh(self) -> Job:
        """Ask the server for the job as it is now."""
        self.view = self._connected().query_job(self.id).view
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended; Retry (code wait_timeout) after `timeout` seconds."""
        self.view = self._connected().wait(self.id, timeout).view
        return self

    def kill(self) -> Job:
        """Ask for the end of the job; its state is `killed` when nothing of it runs any more."""
        self.view = self._connected().kill_job(self.id).view
        return self

    def logs(  # noqa: PLR0913 - the options of `Client.logs`, each by its name
        self,
        worker: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        attempt: int | None = None,
        *,
        since: str | None = None,
        merge: bool | None = None,
        failed: bool = False,
        grep: str | None = None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """What the job wrote, as `Client.logs` yields it."""
        how: dict[str, Any] = {**locals()}
        del how["self"]
        return self._connected().logs(self.id, **how)

    def files(self, prefix: str | None = None) -> list[dict[str, Any]]:
        """The job's files, as `Client.get_files` lists them."""
        return self._connected().get_files(self.id, prefix)

    def download(
        self,
        download_dir: str | os.PathLike[str] | None = None,
        *,
        prefix: str | None = None,
        resume: bool = False,
    ) -> str:
        """Download the job's files as `Client.get_files` does, and return the directory: the given
        one, or `output/<job_id>`. NotFound if there is no file."""
        directory = None if download_dir is None else _path_of(download_dir)
        found = self._connected().listing(self.id, prefix, direct=True)
        if not found.files:
            raise NotFound("job_without_files", job_id=self.id, prefix=found.prefix)
        return _download(self._connected(), found, directory, resume=resume)

    def _connected(self) -> Client:
        if self._client is None:
            raise Invalid("job_without_client", job_id=self.id)
        return self._client

    def __getattr__(self, name: str) -> Any:
        if name in ("view", "_client") or name not in self.view:
            raise AttributeError(f"a job has no {name!r}")
        return self.view[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.view]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.view == self.view

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[type[Job], tuple[dict[str, Any]]]:
        return Job, (self.view,)  # a connection is of one process

    def __repr__(self) -> str:
        shown = ("job_name", "start_time", "finish_time", "queue_reason", "error_msg")
        known = "".join(f", {key}={self.view[key]!r}" for key in shown if self.view.get(key))
        return f"Job(id={self.id!r}, state={self.state!r}{known})"

    def _repr_html_(self) -> str:
        from paddlecloud.client import _html  # noqa: PLC0415 - only notebooks need it

        return _html.job(self.view)


class JobList(list[Job]):
    """Jobs that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from paddlecloud.client import _html  # noqa: PLC0415 - only notebooks need it

        return _html.jobs(job.view for job in self)


class Listing:
    """The files of a job, and direct download locations by path: paths on this machine or presigned
    URLs."""

    __slots__ = ("files", "job_id", "left_behind", "locations", "prefix", "state")

    def __init__(
        self,
        job_id: str,
        prefix: str,
        files: list[dict[str, Any]],
        locations: Mapping[str, str],
        state: str,
        left_behind: str,
    ) -> None:
        self.job_id = job_id
        self.prefix = prefix
        """What was asked for."""
        self.files = files
        self.locations = locations
        self.state = state
        """Of the job, before it was listed; empty from a server that does not report it."""
        self.left_behind = left_behind
        """Which outputs did not come to the server, and where they are, in a sentence."""

    @property
    def is_early(self) -> bool:
        """Whether the job may have left more since, or may yet."""
        return bool(self.state) and self.state not in FINAL


class Client:
    """A connection to the server that the configuration names, or to the embedded one.

    `config` is the path of a configuration file; host, port, ak and sk win over what is in it.
    Nothing happens before the first call.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Config | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        ak: str | None = None,
        sk: str | None = None,
        note: Note | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        #: The environment of the person: what an embedded server and its jobs may take from it.
        self.environ: Mapping[str, str] = os.environ
        if config is None or isinstance(config, str | os.PathLike):
            from paddlecloud.client.config.resolve import resolve  # noqa: PLC0415 - the command line did

            given = {"config": config, "host": host, "port": port, "ak": ak, "sk": sk}
            flags = {name: str(value) for name, value in given.items() if value is not None}
            config = resolve(flags, self.environ)
        elif not hasattr(config, "embedded"):
            raise Invalid("argument_text", name="config", value=repr(config)[:100])
        self.config = config
        #: Called as `note(code, **params)` for what takes long and what a submit found.
        self.note = note
        #: Whether the user was notified that the server does not respond.
        self.waiting_noted = False
        self.transport = Transport(self._find, config.lang, trace, config.proxies)

    def submit_job(  # noqa: PLR0913 - the flags of the command, each by its name
        self,
        *,
        files: str | os.PathLike[str] | None = None,
        start_cmd: str | None = None,
        job_name: str | None = None,
        env: Mapping[str, str] | Sequence[str] | None = None,
        secret: Mapping[str, str] | Sequence[str] | None = None,
        requirements: str | os.PathLike[str] | None = None,
        job_type: str | None = None,
        cpu: float | None = None,
        memory: str | int | None = None,
        gpu: int | None = None,
        instance_count: int | None = None,
        distribute_job_type: str | None = None,
        pservers: int | None = None,
        pserver_cpu: float | None = None,
        pserver_memory: str | int | None = None,
        min_instance: int | None = None,
        max_instance: int | None = None,
        cluster: str | None = None,
        require: str | Mapping[str, str] | None = None,
        priority: str | int | None = None,
        wall_time: str | int | None = None,
        hang_timeout: str | int | None = None,
        max_retries: int | None = None,
        retry_exit_codes: str | Sequence[int] | None = None,
        public_bcc: bool | int | None = None,
        public_bos: bool | int | None = None,
        bos_url: str | None = None,
        description: str | None = None,
        yes: bool = False,
        snapshot: str | None = None,
        job_file: str | os.PathLike[str] | None = None,
        **unknown: Never,
    ) -> Job:
        """Submit a job, as `paddlecloud submit_job` does. None: the default.

        A submit that was repeated because the network failed is still one job; an error with the
        code "submit_unanswered" means that there may be one. `notes` of the result is what the
        server decided by itself.

        files: the directory with scripts and data; required, unless `snapshot` or `bos_url` is
            given.
        start_cmd: the command that starts the job, e.g. "sh run.sh"; required.
        job_name: name of the job; names may repeat (default: "tmp_job").
        env: the job's environment: a dict, or a list of "NAME=VALUE".
        secret: secrets for the job (`set_secret`): names, or a dict of the variable for each name;
            "" or no variable: only as the file $PADDLECLOUD_SECRETS/NAME.
        requirements: a pip requirements file; its packages are installed once and cached.
        job_type: "gpu" or "cpu" (default: gpu where the server has GPUs, else cpu).
        cpu: CPUs of each instance, e.g. 0.5; also the limit when given (default: 1, no limit).
        memory: memory limit of each instance: "512Mi", "4G", or bytes (default: none).
        gpu: GPUs of each instance, 0 to 64 (default: 1 for a gpu job).
        instance_count: number of instances, 1 to 1024 (default: 1).
        distribute_job_type: "PSERVER" or "NCCL2", for several instances (default: by job_type).
        pservers: number of parameter servers (default: one per instance, in PSERVER mode).
        pserver_cpu: CPUs of each parameter server (default: as a trainer).
        pserver_memory: memory limit of each parameter server (default: as a trainer).
        min_instance: fewest trainers of an elastic job.
        max_instance: most trainers of an elastic job.
        cluster: the pool to run in (default: "default", the pools in the server's order).
        require: labels that the machines must have: "gpu=a100", or a dict (default: "").
        priority: "low", "normal", "high" or "urgent", or -100 to 200 (default: 0, normal).
        wall_time: maximum running time, "hh:mm:ss" or seconds; private pools only (default: none).
        hang_timeout: end the job when no worker printed or computed anything for this long,
            "hh:mm:ss" or seconds (default: never).
        max_retries: how often to retry after a lost machine or such an exit code (default: 0).
        retry_exit_codes: exit codes that are retried: [101, 102], "101,102" or "any" (default:
            101 and 102).
        public_bcc: computing resources: 1 public, 0 private (default: 1).
        public_bos: storage: 1 public (give `files`), 0 private (give `bos_url`) (default: 1).
        bos_url: directory in private storage: "{bucket}.{region}.bcebos.com/your/dir".
        description: a note that is stored with the job (default: "").
        yes: submit a whole home or disk, which is refused otherwise (default: False).
        snapshot: files that were submitted before (`job.snapshot`), instead of `files`.
        job_file: a TOML file with parameters; those that are given here win.
        """
        parameters = {**locals()}
        del parameters["self"], parameters["unknown"]
        from paddlecloud.client import submit  # noqa: PLC0415 - only submitting needs it

        asked, confirm = _asked({**parameters, **unknown})
        answer = submit.submit(self, asked, confirm=confirm, **self._callbacks())
        return Job({**answer["job"], "notes": answer["notes"]}, self)

    def dry_run(self, **parameters: Unpack[SubmitParameters]) -> dict[str, Any]:
        """What `submit_job` with these parameters would send (`files`) and start (`plan`, `job`),
        without doing so. `accepted` is False if it would be refused; `refused` has the errors."""
        from paddlecloud.client import submit  # noqa: PLC0415 - only submitting needs it

        asked, confirm = _asked({**parameters})
        return submit.dry_run(self, asked, confirm=confirm)

    def rerun(
        self,
        job_id: str | Job,
        *,
        unset: str | Sequence[str] | None = None,
        **changes: Unpack[JobParameters],
    ) -> Job:
        """Submit a job again with the same files; `changes` are parameters of `submit_job`.

        `env` is added to what the first job had, `unset` names variables or parameters to leave out
        of that; `files` gives the new job another directory.
        """
        from paddlecloud.client import rerun as client_rerun  # noqa: PLC0415 - only submitting needs it

        asked, confirm = _asked({**changes} | ({} if unset is None else {"unset": unset}))
        how = {"confirm": confirm, **self._callbacks()}
        answer = client_rerun.rerun(self, reference(job_id), asked, **how)
        return Job({**answer["job"], "notes": answer["notes"]}, self)

    def diff(self, first: str | Job, second: str | Job) -> dict[str, Any]:
        """What two jobs differ in: `parameters`, `env`, `inherited_env`, `git` and `files`."""
        from paddlecloud.client import _diff as client_diff  # noqa: PLC0415 - `query_job` compares nothing

        return client_diff.diff(self.transport, job_path(first), job_path(second))

    def query_job(self, job_id: str | Job, *, diff: bool = True) -> Job:
        """The job with this id; as in every method, the beginning of the id, a job name or `last`
        will do. `diff`: with what its files differed in from their commit, if they did (`git`)."""
        path, query = job_path(job_id), None if diff else {"diff": 0}
        return Job(self.transport.get(path, query, schema=response_schemas.JOB), self)

    def list_jobs(
        self, *, state: str | None = None, name: str | None = None, limit: int | None = 50
    ) -> JobList:
        """The newest jobs first; `limit=None` gives all of them."""
        query = {"state": state, "name": name}
        if limit is not None:
            check_number("limit", limit)
        pages = self.transport.pages
        rows = pages("/jobs", "jobs", "before", query, limit, schema=response_schemas.JOBS)
        return JobList(Job(row, self) for row in rows)

    def resolve(self, job_id: str | Job) -> str:
        """The full id of a job that is named by the beginning of its id, its name, or `last`.

        What changes a job is asked for by the full id, so that a request that is repeated because
        its answer was lost cannot change another job.
        """
        named = reference(job_id)
        return named if is_job_id(named) else self.query_job(named, diff=False).id

    def history(self, job_id: str | Job) -> list[dict[str, Any]]:
        """Every change of state of a job, with its reason, oldest first."""
        path = f"{job_path(job_id)}/history"
        return list(self.transport.get(path, schema=response_schemas.HISTORY)["history"])

    def kill_job(self, job_id: str | Job) -> Job:
        """Ask for the end of a job; its state is `killed` when nothing of it runs any more."""
        path = f"{job_path(self.resolve(job_id))}/kill"
        answer = self.transport.post(path, {}, schema=response_schemas.JOB, idempotent=True)
        return Job(answer, self)

    def delete_job(self, job_id: str | Job) -> int:
        """Delete a job that has ended, with its outputs and logs; how many bytes that freed."""
        path = f"{job_path(self.resolve(job_id))}/delete"
        how = {"idempotent": True, "timeout": _DELETING}
        return int(self.transport.post(path, {}, schema=response_schemas.DELETED, **how)["bytes"])

    def wait(self, job_id: str | Job, timeout: float | None = None) -> Job:
        """The job when it has ended; Retry (code wait_timeout) after `timeout` seconds."""
        job = None
        for job in self.changes(job_id, timeout):
            if job.final:
                return job
        about = {"job_id": job.id if job else job_id, "state": job.state if job else "?"}
        raise Retry("wait_timeout", **about, seconds=timeout)

    def changes(self, job_id: str | Job, timeout: float | None = None) -> Iterator[Job]:
        """The job now and after every change, until it has ended or the time is over.

        Waits for a server that stops responding, unless it never answered.
        """
        from paddlecloud.client import _follow as client_follow  # noqa: PLC0415 - `query_job` follows nothing

        if timeout is not None:
            check_number("timeout", timeout)
        return client_follow.changes(self, job_path(job_id), timeout)

    def logs(  # noqa: PLR0913 - the options of the command `logs`, each by its name
        self,
        job_id: str | Job,
        worker: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        attempt: int | None = None,
        *,
        since: str | None = None,
        merge: bool | None = None,
        failed: bool = False,
        grep: str | None = None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """What a job wrote; with `follow`, until the job has ended and all is read.

        Of one worker the bytes as they are. A job of several workers gives the lines of all of them
        in the order of time, each with `[worker] ` before it, unless `worker` names one; `merge`
        asks for the one or the other explicitly. Without `attempt` a follower sees every attempt
        from the newest one on. A broken connection is taken up again at the byte where it broke.
        `tail` counts lines of each worker; `since` is a span ("10m") or a time, of this machine's
        zone if it names none; `failed` gives the worker that failed first; `grep` only lines that
        match a regular expression; `timestamps` puts the local time at which a line was written
        before it.
        """
        from paddlecloud.client import _follow as client_follow  # noqa: PLC0415 - `query_job` follows nothing

        asked = {"worker": worker, "follow": int(bool(follow)), "tail": tail, "attempt": attempt}
        asked |= {
            "since": client_follow.moment(since),
            "grep": grep,
            "times": 1 if timestamps else None,
        }
        several = "auto" if merge is None and worker is None and not failed else int(bool(merge))
        asked |= {"merge": several or None, "failed": 1 if failed else None}
        return client_follow.logs(self, job_path(job_id), asked)

    def exec(
        self,
        job_id: str | Job,
        command: Sequence[str],
        worker: str | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        *,
        terminal: dict[str, object] | None = None,
    ) -> Command:
        """Run a command (a list of words) beside a running worker, in its environment.

        `output()` of the result gives what it prints until it has ended, then `exit_code` is
        set; `stop()` ends it before. It ends with the worker in any case, and two minutes after
        the last request for its output. With a `terminal` ({"term": TERM, "rows": 24, "columns":
        80}) it has no output here: it starts when `open_terminal()` connects to it.
        """
        from paddlecloud.client import exec as client_exec  # noqa: PLC0415 - `query_job` runs nothing

        how: dict[str, Any] = {"worker": worker, "timeout": timeout, "stdin": stdin}
        how["terminal"] = terminal
        return client_exec.begin(self, job_path(job_id), command, **how)

    def port_forward(
        self,
        job_id: str | Job,
        ports: int | str | Sequence[int | str],
        worker: str | None = None,
        address: str = "127.0.0.1",
        *,
        on_error: Callable[[PaddleCloudError], object] = lambda _: None,
    ) -> PortForward:
        """Forward ports of this machine to ports of a running worker, until `close()`.

        A port is a number, or "LOCAL:REMOTE"; a local port 0 is any free one, which `ports` of the
        result names. Connections go through the server and the agent of the worker; `on_error`
        gets the error of one that does not.
        """
        from paddlecloud.client._port_forward import PortForward, parse_ports  # noqa: PLC0415 - `query_job` forwards nothing

        pairs = parse_ports([ports] if isinstance(ports, int | str) else ports)
        how: dict[str, Any] = {"worker": worker, "address": address, "on_error": on_error}
        return PortForward(self, job_path(job_id), pairs, **how)

    def top(self, job_id: str | Job | None = None) -> list[dict[str, Any]]:
        """What each worker of a job, or of all your running jobs, uses of what it asked for."""
        path = "/usage" if job_id is None else f"{job_path(job_id)}/usage"
        return list(self.transport.get(path, schema=response_schemas.USES)["workers"])

    def get_files(
        self,
        job_id: str | Job,
        prefix: str | None = None,
        download_dir: str | os.PathLike[str] | None = None,
        download: bool = False,
        resume: bool = False,
    ) -> list[dict[str, Any]]:
        """The job's files (path, size, time); they are downloaded if `download_dir` is given, which
        must not exist yet, or with `download` into `output/<job_id>`.

        `prefix` defaults to the job's outputs; "/" means everything, the submitted files too.
        `sha256` of a row is None where it is not known. Of what was submitted there are links, too
        (`link` is where they lead), and empty directories (their path ends with "/").
        With `resume` an earlier download into the same directory is continued, or gets what is new.
        Of a job without files nothing is made.
        Conflict when all came but some files: "download_lost" were changed in the job's bucket
        since, "download_gone" are not there any more, "download_changing" change all the time,
        "download_damaged" are damaged in the store; "download_not_its_own" came, but are not what
        the job wrote; "download_edited" were changed here since an earlier download, and are left
        as they are; "download_links" cannot be made here. If several of these are true, it is the
        first, and `params["complaints"]` of the error has the paths of all by their codes.
        """
        wanted = download or resume or download_dir is not None
        directory = None if download_dir is None else _path_of(download_dir)
        found = self.listing(job_id, prefix, direct=wanted)
        if wanted and found.files:
            _download(self, found, directory, resume=resume)
        return found.files

    def listing(
        self, job_id: str | Job, prefix: str | None = None, *, direct: bool = False
    ) -> Listing:
        """The job's files, and with `direct` where else they can be had."""
        query = {"prefix": prefix, "direct": 1 if direct else None}
        path = f"{job_path(job_id)}/files"
        answer = self.transport.get(path, query, schema=response_schemas.FILES, most=MAX_LISTING)
        # An older server knows full ids only, and does not repeat them.
        job_id = str(answer.get("job_id") or reference(job_id))
        if not is_job_id(job_id):  # it becomes the name of a directory
            refuse("job_id", job_id, "response_job_id")
        locations: dict[str, str] = answer.get("ways") or {}
        if not self.config.embedded:  # a path of another machine
            locations = {path: at for path, at in locations.items() if not at.startswith("/")}
        files = answer["files"]
        if prefix is not None:
            from paddlecloud.client.download.listing import with_snapshot  # noqa: PLC0415 - seldom needed

            files = with_snapshot(self.transport, job_id, prefix, files)
        state, left_behind = answer.get("job_status") or "", answer.get("left_behind") or ""
        wanted = f"output/{job_id}" if prefix is None else prefix
        return Listing(job_id, wanted, files, locations, state, left_behind)

    def whoami(self) -> dict[str, Any]:
        return self.transport.get("/whoami", schema=response_schemas.WHOAMI)

    def gen_token(self, email: str) -> dict[str, Any]:
        """Have a new token mailed to an address; no keys are needed for it."""
        endpoint = Endpoint(server_url(self.config), "", "", ca_file=self.config.ca_file)
        transport = Transport(lambda *_: endpoint, self.config.lang)
        try:
            asked = {"email": email, "lang": self.config.lang}
            return transport.post("/gen_token", asked, schema=response_schemas.MAILED)
        finally:
            transport.close()

    def list_tokens(self, *, revoked: bool = False) -> list[dict[str, Any]]:
        """Your keys, newest first, without their secrets."""
        query = {"revoked": int(revoked)}
        return list(self.transport.get("/tokens", query, schema=response_schemas.TOKENS)["tokens"])

    def create_token(self, *, name: str = "", scope: str = "full") -> dict[str, Any]:
        """Another pair of keys for you; its `sk` is returned only now."""
        asked = {"name": name, "scope": scope}
        return self.transport.post("/tokens", asked, schema=response_schemas.NEW_TOKEN)

    def revoke_token(self, ak: str) -> dict[str, Any]:
        """Make one of your keys useless, everywhere and for ever."""
        path = f"/tokens/{quote(check_text('ak', ak))}/revoke"
        return self.transport.post(path, {}, schema=response_schemas.TOKEN, idempotent=True)

    def set_secret(self, name: str, value: str | bytes) -> dict[str, Any]:
        """Keep a value for your jobs (`submit_job(secret=[name])`), or replace it. It is stored
        encrypted; no method returns it."""
        from base64 import b64encode  # noqa: PLC0415 - few calls need it

        endpoint = self.transport.endpoint
        if not endpoint.is_confidential:
            raise Refused("secrets_plain", url=endpoint.url)
        data = value.encode() if isinstance(value, str) else bytes(value)
        body = {"name": _secret(name), "value": b64encode(data).decode()}
        schema = response_schemas.SECRET
        return self.transport.post("/secrets", body, schema=schema, idempotent=True)

    def list_secrets(self) -> list[dict[str, Any]]:
        """Your secrets by name: `name`, `created_at`, `updated_at`; never values."""
        return list(self.transport.get("/secrets", schema=response_schemas.SECRETS)["secrets"])

    def delete_secret(self, name: str) -> None:
        """Delete a secret. Jobs that start later and name it fail."""
        path = f"/secrets/{quote(_secret(name))}/delete"
        self.transport.post(path, {}, schema=response_schemas.DELETED_SECRET)

    @property
    def admin(self) -> Admin:
        """What only an admin may do."""
        from paddlecloud.client._admin import Admin  # noqa: PLC0415 - most people are none

        return Admin(self)

    def doctor(self) -> list[dict[str, Any]]:
        """The checks of the server of its own parts."""
        return list(self.transport.get("/doctor", schema=response_schemas.CHECKS)["checks"])

    def gc(self) -> dict[str, Any]:
        """Delete what is past its keeping time, now."""
        how = {"idempotent": True, "timeout": 600.0}
        return self.transport.post("/admin/gc", {}, schema=response_schemas.COLLECTED, **how)

    def notifications(self) -> dict[str, Any]:
        """Which events you are notified of, and how."""
        return self.transport.get("/notifications", schema=response_schemas.NOTIFICATIONS)

    def set_notifications(
        self,
        *,
        events: Sequence[str] | None = None,
        mail: bool | None = None,
        webhook: str | None = None,
    ) -> dict[str, Any]:
        """Change `events`, `mail` or `webhook` (a URL; "" ends it); what is None stays.

        The answer holds `webhook_secret` when the webhook is new, and never again.
        """
        asked = {"events": events, "mail": mail, "webhook": webhook}
        wanted = {name: value for name, value in asked.items() if value is not None}
        schema = response_schemas.NOTIFICATIONS
        return self.transport.post("/notifications", wanted, schema=schema, timeout=60.0)

    def test_notifications(self) -> list[dict[str, Any]]:
        """Send a test by every way that is chosen: `kind`, `ok` and `message` of each."""
        path, schema = "/notifications/test", response_schemas.DELIVERIES
        return list(self.transport.post(path, {}, schema=schema, timeout=180.0)["deliveries"])

    def quota(self, user: str | None = None) -> dict[str, Any]:
        """The plan, each limit and what is used of it; another `user`'s for an admin."""
        return self.transport.get(_quota_of(user), schema=response_schemas.QUOTA)

    def quota_history(self, days: int = 30, user: str | None = None) -> list[dict[str, Any]]:
        """What was run on each of the last `days` days, the newest first."""
        path = f"{_quota_of(user)}/history"
        return list(self.transport.get(path, {"days": days}, schema=response_schemas.DAYS)["days"])

    def set_quota(self, user: str, **wanted: Unpack[QuotaChange]) -> dict[str, Any]:
        """Change `plan` (None: the default) or `limits` (a dict) of a user; for admins."""
        schema = response_schemas.QUOTA
        path = _quota_of(check_text("user", user))
        return self.transport.post(path, wanted, schema=schema, idempotent=True)

    def plans(self) -> list[dict[str, Any]]:
        """The plans that the server's settings have; for admins."""
        return list(self.transport.get("/admin/plans", schema=response_schemas.PLANS)["plans"])

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _callbacks(self) -> dict[str, Any]:
        return {} if self.note is None else {"note": self.note}

    def _find(self, failed: Endpoint | None, wake: bool) -> Endpoint:
        config = self.config
        if not config.embedded:
            if failed is not None:
                # The configuration names one place; asking it again is the caller's decision.
                return failed
            if not (config.ak and config.sk):
                raise ConfigError("keys_missing", host=config.host, path=config.save_path)
            return Endpoint(server_url(config), config.ak, config.sk, ca_file=config.ca_file)
        from paddlecloud.client import local_server  # noqa: PLC0415 - a remote server needs none of it

        known = local_server.find(config.home)
        if known is not None and (failed is None or known.boot != failed.boot):
            return known
        return local_server.ensure(
            config.home, self.environ, self.note, wake=wake, lang=config.lang
        )


#: Flags of the command line that do something else in a program.
_ELSEWHERE = {
    "watch_mode": "job.wait(), job.logs(follow=True)",
    "dry_run": "client.dry_run(...)",
}


def _asked(parameters: dict[str, Any]) -> tuple[dict[str, Any], Callable[[str, str], bool]]:
    """The parameters with those of a job file, and the answer about a whole home."""
    for name, instead in _ELSEWHERE.items():
        if parameters.get(name) is not None:
            raise Invalid("param_not_in_sdk", name=name, instead=instead)
    path, yes = parameters.pop("job_file", None), bool(parameters.pop("yes", False))
    if path is not None:
        if not isinstance(path, str | os.PathLike):
            raise Invalid("param_path", name="job_file", value=repr(path)[:100])
        from paddlecloud.client import job_file  # noqa: PLC0415 - few submits need it

        given = {name: value for name, value in parameters.items() if value is not None}
        parameters = job_file.merged(path, given)
    return parameters, lambda _code, _path: yes


def _secret(name: object) -> str:
    from paddlecloud.model.jobs.param_checks import check_secret_name  # noqa: PLC0415 - seldom needed

    return check_secret_name(str(name))


def _download(client: Client, found: Listing, directory: str | None, *, resume: bool) -> str:
    """Download what was listed; the directory. Conflict if files are not as they should be."""
    from paddlecloud.client.download import engine  # noqa: PLC0415 - seldom needed

    target = engine.target_of(client, found, directory, resume=resume)
    done = engine.download_job(client, found, target, resume=resume)
    for error in done.errors():
        error.params["complaints"] = done.problems
        raise error
    return target.directory


def _quota_of(user: str | None) -> str:
    return "/quota" if user is None else f"/admin/users/{quote(check_text('user', user))}/quota"


def check_text(name: str, value: object) -> str:
    """A text that is to be part of a path; Invalid before any request for anything else."""
    if not isinstance(value, str) or not value.strip():
        raise Invalid("argument_text", name=name, value=repr(value)[:100])
    return value


def check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Invalid("argument_number", name=name, value=repr(value)[:100])


def reference(job: object) -> str:
    """What a job is named by; Invalid before any request for what no job can be called."""
    if isinstance(job, Job):
        return job.id
    if not isinstance(job, str) or not is_reference(job):
        raise Invalid("job_id_format", job_id=str(job) or '""')
    return job


def job_path(job: object) -> str:
    """The path of a job on the server, which resolves anything but a full id."""
    return f"/jobs/{quote(reference(job))}"


def _path_of(given: str | os.PathLike[str]) -> str:
    """A path that a file may have, as text."""
    try:
        path = os.fsdecode(given)
        if b"\0" in os.fsencode(path):
            raise ValueError("embedded null byte")
    except (TypeError, ValueError) as error:
        from paddlecloud.client.file_names import shown  # noqa: PLC0415 - seldom needed

        raise Invalid("download_failed", path=shown(str(given)), reason=str(error)) from None
    return path


def server_url(config: Config) -> str:
    """The address of a remote server."""
    name = f"[{config.host}]" if ":" in config.host else config.host
    return f"{config.scheme}://{name}:{config.port}"
