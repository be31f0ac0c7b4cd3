"""Submits a job: checks the parameters, looks at the directory, and uploads only what is missing.

The spec goes first and the files after it, so a job that the server would refuse costs no upload;
where there is much to read, it goes before that, too.
One idempotency key covers every try of one submit: whatever breaks, it is one job.
"""

from __future__ import annotations

import os
from time import time

from paddlecloud.client import response_schemas
from paddlecloud.client.display import few, shown
from paddlecloud.client.scan import git as scan_git
from paddlecloud.client.scan.walk import scan as scanned
from paddlecloud.client.transport import DONE, MAX_LISTING
from paddlecloud.client.upload.blobs import persistently, upload
from paddlecloud.client.upload.local_handoff import Handing
from paddlecloud.model.errors import (
    Conflict,
    Internal,
    Invalid,
    PaddleCloudError,
    Retry,
    SnapshotMissing,
)
from paddlecloud.model.jobs.params import (
    INHERITED_NAMES,
    MAX_REQUIREMENTS_BYTES,
    directory_of,
    parse_parameters,
)
from paddlecloud.net.retry import may_pass, patiently

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paddlecloud.client.scan.walk import Reading, Scan
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.upload.blobs import Progress

    Note = Callable[..., None]
    Accepted = Callable[[Mapping[str, Any]], None]
    """Hears what the server tells of the new job."""

#: Where the private server is: known here even when no variable says it.
HOME = "PADDLECLOUD_HOME"
#: A directory that changes while it is submitted settles within a few tries, or never.
TRIES = 3
#: Files that no server has, for a job that is not to be made.
NO_SNAPSHOT = f"sha256:{'0' * 64}"
#: What a server says that does not know itself whether there is a job.
_UNSURE = "database_unsure"
#: Bytes of a requirements file that are looked at: in any encoding this is more than it may hold.
_MOST_READ = 16 * MAX_REQUIREMENTS_BYTES
#: The longer ones first: UTF-32 begins as UTF-16 does.
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


def unheard(code: str, **params: object) -> None:
    """For whoever wants to be told nothing."""


def submit(
    client: Client,
    parameters: Mapping[str, Any],
    progress: Progress | None = None,
    note: Note = unheard,
    reading: Reading | None = None,
    accepted: Accepted | None = None,
    skipped: Progress | None = None,
) -> dict[str, Any]:
    """The server's answer: `job` and `notes`. Invalid before anything is sent if a rule is broken.

    `note(code, **params)` hears what was found, what was left out, and what changed meanwhile;
    `reading` tells how much of the directory was looked at so far; `accepted` hears of the job
    before anything else is told, and `skipped` of what need not be sent because it arrived before.
    """
    spec, directory = _spec(client, parameters)
    one = Submit(client, spec, progress, note, reading, accepted, skipped)
    return one.of_what_is_there() if directory is None else one.of_directory(directory)


class Submit:
    """One job on its way to the server. Whoever asks for it and gets no answer hears that there may
    be a job: the same call once more would make a second one."""

    def __init__(
        self,
        client: Client,
        spec: Mapping[str, object],
        progress: Progress | None = None,
        note: Note = unheard,
        reading: Reading | None = None,
        accepted: Accepted | None = None,
        skipped: Progress | None = None,
    ) -> None:
        self._client = client
        self._spec = spec
        self._progress = progress
        self._note = note
        self._reading = reading
        self._accepted = accepted
        self._skipped = skipped or progress
        self._keys = _private_keys(client, spec)
        self._looking: scan_git.Looking | None = None
        self._is_possible = False
        """Whether the server was asked and had nothing against the job."""
        self._unanswered = 0
        """How often the request went out to a server that may have taken it and did not say so."""

    def of_what_is_there(self, diff: str = "") -> dict[str, Any]:
        """The answer for files that need not be sent; `diff` is what they differ in from their
        commit."""
        request = _request(self._spec, diff)
        return self._with_keys(lambda: self._ask(request))

    def of_directory(self, directory: str) -> dict[str, Any]:
        """The answer for the files of a directory, which is read again if it changes meanwhile."""
        self._looking = scan_git.look(directory, self._client.environ)
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                if self._keys:
                    return self._with_keys(lambda: self._to_bucket(directory))
                return self._to_store(directory)
            except Conflict as error:
                if error.code != "files_changed":
                    raise
                path = _from(directory, str(error.params["path"]))
                if not tries_left:
                    raise Conflict("files_changed", path=path) from None
                self._note("files_read_again", path=path)
        raise AssertionError("the last try returns or raises")

    def _to_bucket(self, directory: str) -> dict[str, Any]:
        """The directory goes into the bucket, and the job is given all that lies there then."""
        from paddlecloud.client.upload import user_bucket  # noqa: PLC0415 - few jobs need it

        found = self._scanned(directory)
        request = self._request_for(found)
        for code, params in found.notes:
            self._note(code, **params)
        told: set[str] = set()

        def note_once(code: str, **params: object) -> None:
            if code not in told:
                told.add(code)
                self._note(code, **params)

        def bring(tell: Progress) -> None:
            user_bucket.bring(self._client.transport, found, request | self._keys, tell, note_once)

        persistently(bring, self._progress, self._note)
        _tell_changes(found, self._note)
        return self._ask(request)

    def _to_store(self, directory: str) -> dict[str, Any]:
        """The server is asked first: it may have all that is in the directory."""
        transport = self._client.transport
        with Handing(transport, near=self._client.config.embedded) as handing:
            found = self._scanned(directory, handing)
            request = self._request_for(found, snapshot=found.id)
            try:
                answer = self._ask(request)
            except SnapshotMissing:
                answer = None
            tell_found = _once(found, self._note)

            def heard_by(tell: Progress | None) -> Progress:
                def went(count: int, total: int) -> None:
                    tell_found()
                    if tell is not None:
                        tell(count, total)

                return went

            if answer is None:
                persistently(
                    lambda tell: upload(transport, found, tell, handing, tell.skip),
                    heard_by(self._progress),
                    self._note,
                    heard_by(self._skipped),
                )
            tell_found()
            if answer is not None:
                return answer
            _tell_changes(found, self._note)
            return self._ask(request)

    def _scanned(self, directory: str, handing: Handing | None = None) -> Scan:
        return scanned(
            directory,
            now=time(),
            home=self._client.config.home,
            handing=handing,
            reading=self._reading,
            before_much=None if self._is_possible else self._ask_ahead,
        )

    def _ask_ahead(self) -> None:
        """Have the server refuse what can never run; no job comes of it, so that an answer which is
        lost leaves nothing unsure: then it is told when all is read."""
        if self._keys:
            path, request = "/private/files", _request(self._spec)
        else:
            path, request = "/jobs", _request({**self._spec, "snapshot": NO_SNAPSHOT})
        try:
            asked = {**request, **self._keys}
            self._client.transport.post(path, asked, schema=DONE, most=MAX_LISTING, again=True)
        except SnapshotMissing:
            pass
        except Retry as error:
            if not may_pass(error):
                raise
        self._is_possible = True

    def _request_for(self, found: Scan, **more: object) -> dict[str, object]:
        """With what git says of the files that were found."""
        spec = {**self._spec, **more, "directory": found.directory}
        if self._looking is None:
            return _request(spec)
        git, diff = self._looking.result({row[0] for row in found.entries})
        return _request({**spec, "git": git} if git else spec, diff)

    def _with_keys(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if not self._keys:
            return call()
        from paddlecloud.client.upload import user_bucket  # noqa: PLC0415 - few jobs need it

        return user_bucket.with_keys(self._client, call)

    def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The server's answer to a request; however often it is sent, it is one job."""
        whole = {**request, **self._keys}
        try:
            answer = patiently(lambda: self._ask_once(whole))
            if self._accepted is not None:
                self._accepted(answer["job"])
        except KeyboardInterrupt:
            if self._unanswered:
                self._note("submit_unsure")
            raise
        except PaddleCloudError as error:
            if not self._unanswered:
                raise
            told = {"cause": error.code, "reason": error.words()}
            raise PaddleCloudError("submit_unanswered", **told) from error
        return answer

    def _ask_once(self, whole: Mapping[str, object]) -> dict[str, Any]:
        post = self._client.transport.post
        try:
            how = {"again": True, "sent": self._went_out}
            return post("/jobs", whole, schema=response_schemas.SUBMITTED, **how)
        except PaddleCloudError as error:
            if _is_refusal(error):
                self._unanswered = 0
            elif error.said is not None and isinstance(error, Retry) and error.code != _UNSURE:
                self._unanswered -= 1
            raise

    def _went_out(self) -> None:
        self._unanswered += 1


def _is_refusal(error: PaddleCloudError) -> bool:
    """Whether it is true of every try; a proxy that waited in vain has refused nothing."""
    if error.said is not None:
        return not isinstance(error, Retry | Internal)
    return error.code == "unknown_answer" and int(str(error.params["status"])) < 500


def _private_keys(client: Client, spec: Mapping[str, object]) -> dict[str, str]:
    """What a request has to bring along for a job with storage of its own; nothing for others."""
    if spec["public_bos"]:
        return {}
    from paddlecloud.client.upload import user_bucket  # noqa: PLC0415 - few jobs need it

    return user_bucket.keys_for(client, spec["bos_url"])


def _request(spec: Mapping[str, object], diff: str = "") -> dict[str, object]:
    """The request for a new job."""
    request: dict[str, object] = {"spec": spec, "idempotency_key": os.urandom(16).hex()}
    return {**request, "diff": diff} if diff else request


def _once(found: Scan, note: Note) -> Callable[[], None]:
    """Tells what was found, when it is first called. Before that the directory may have to be read
    again, and a line for each reading would tell of files that no job gets."""
    left = [*found.notes]

    def tell() -> None:
        while left:
            code, params = left.pop(0)
            note(code, **params)

    return tell


def _from(directory: str, path: str) -> str:
    """The path as seen from the submitted directory, as it is in all that is told of files."""
    above = os.path.abspath(directory).rstrip("/")  # noqa: PTH100 - pathlib costs 8 ms
    return path.removeprefix(f"{shown(above)}/")


def _tell_changes(found: Scan, note: Note) -> None:
    """The job gets what was read; whoever went on typing meanwhile should know."""
    changed = found.changed()
    if changed:
        note("files_changed_since", paths=few(changed))


def _spec(client: Client, parameters: Mapping[str, Any]) -> tuple[dict[str, object], str | None]:
    """The wire spec, and the directory that has to be scanned for it."""
    raw = dict(parameters)
    snapshot = raw.pop("snapshot", None)
    if snapshot is not None and not raw.get("files"):
        # The rules ask for files; these are on the server already, under no directory's name.
        raw["files"] = "."
    if raw.get("requirements"):
        raw["requirements"] = requirements_of(raw["requirements"])
    spec = parse_parameters(raw)
    if client.config.embedded:
        spec["inherited_env"] = _inherited({**client.environ, HOME: client.config.home})
    if snapshot is not None:
        return spec | {"snapshot": snapshot}, None
    return spec, directory_of(raw)


def requirements_of(path: str) -> str:
    """What is in the file: it is the text that travels. Its byte order mark says how it is written,
    as it does to pip. An empty file asks for no package, but for an environment all the same."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a Path costs start-up time
            data = file.read(_MOST_READ + 1)
            size = max(len(data), os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Invalid("requirements_unreadable", path=str(path), reason=reason) from error
    if len(data) > _MOST_READ:
        raise Invalid("requirements_long", size=size, limit=MAX_REQUIREMENTS_BYTES)
    return _decoded(data, path).replace("\r\n", "\n").replace("\r", "\n") or "\n"


def _decoded(data: bytes, path: str) -> str:
    mark, encoding = next((each for each in _MARKS if data.startswith(each[0])), (b"", "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # UTF-16 without a mark has many
        raise Invalid("requirements_encoding", path=str(path))
    return text


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes `python` and `paddlecloud` in the job the submitter's own; text that is not UTF-8
    stays here."""
    found = {name: environ[name] for name in INHERITED_NAMES if environ.get(name)}
    return {name: value for name, value in found.items() if value.isprintable()}
