"""Submits a job: validates it, scans the directory, uploads what the server lacks, posts the job.

The server validates the job before much of the directory is read and before any byte is uploaded.
One idempotency key covers every attempt at one submit, so that it becomes one job.
"""

from __future__ import annotations

import os
from time import time

from paddlecloud.client import response_schemas
from paddlecloud.client._inherited_env import inherited_env
from paddlecloud.client.file_names import few, shown
from paddlecloud.client.scan import git as scan_git
from paddlecloud.client.scan.walk import scan as scanned
from paddlecloud.client.upload.blobs import ignore_note, missing_blobs, upload
from paddlecloud.client.upload.local_handoff import LocalHandoff
from paddlecloud.messages import render
from paddlecloud.model.errors import (
    Conflict,
    Internal,
    Invalid,
    NotFound,
    PaddleCloudError,
    Retry,
)
from paddlecloud.model.jobs.params import MAX_REQUIREMENTS_BYTES, directory_of, parse_parameters
from paddlecloud.net import retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paddlecloud.client.scan.walk import Scan, ScanProgress
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.upload.blobs import Progress

    Note = Callable[..., None]
    Confirm = Callable[[str, str], bool]
    """Asks the user by a code of `messages` and a path."""
    Accepted = Callable[[Mapping[str, Any]], None]
    """Called with the new job."""

#: The home of the embedded server, which is known here even when no variable names it.
HOME = "PADDLECLOUD_HOME"
#: Attempts at a directory that changes while it is submitted.
TRIES = 3
#: Stands for files that were not scanned yet; no server has them.
NO_SNAPSHOT = f"sha256:{'0' * 64}"
#: The code of a server that does not know itself whether it stored the job.
_UNSURE = "database_unsure"
_NEW = ("require", "secret")
#: Bytes of a requirements file that are read: in any encoding this is more than it may hold.
_MOST_READ = 16 * MAX_REQUIREMENTS_BYTES
#: The longer ones first: UTF-32 begins as UTF-16 does.
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


def submit(
    client: Client,
    parameters: Mapping[str, Any],
    progress: Progress | None = None,
    note: Note = ignore_note,
    scan_progress: ScanProgress | None = None,
    accepted: Accepted | None = None,
    skipped: Progress | None = None,
    confirm: Confirm | None = None,
) -> dict[str, Any]:
    """The server's answer: `job` and `notes`. Invalid before anything is sent if a rule is broken.

    `note(code, **params)` is called with what was found, left out or changed, `progress` with the
    bytes that were uploaded, `skipped` with those that had arrived before, and `accepted` with the
    job before anything else is reported. `scan_progress` counts what was read of the directory.
    `confirm(code, path)` is asked before a whole home or disk is read; without it that is refused.
    """
    spec, directory = _spec(client, parameters, note)
    if directory is not None:
        _confirm_directory(client, directory, confirm)
    one = Submit(client, spec, progress, note, scan_progress, accepted, skipped)
    return one.of_known_files() if directory is None else one.of_directory(directory)


def dry_run(
    client: Client,
    parameters: Mapping[str, Any],
    scan_progress: ScanProgress | None = None,
    confirm: Confirm | None = None,
) -> dict[str, Any]:
    """What a submit would send and start, and `refused`: the errors it would end with. Nothing is
    stored or uploaded. Invalid if a parameter is wrong."""
    notes: list[str] = []

    def note(code: str, **params: object) -> None:
        notes.append(render(code, params, client.config.lang))

    spec, directory = _spec(client, parameters, note)
    if directory is not None:
        _confirm_directory(client, directory, confirm)
    refused: list[PaddleCloudError] = []
    files = plan = None
    try:
        one = Submit(client, spec, scan_progress=scan_progress)
        answer = one.plan(has_files=directory is not None)
        plan = answer.get("plan")
        notes += answer.get("notes") or ()
    except Retry:
        raise
    except PaddleCloudError as error:
        refused.append(error)
    try:
        if directory is not None:
            files = _dry_files(client, spec, directory, scan_progress)
    except Retry:
        raise
    except PaddleCloudError as error:
        refused.append(error)
    named = ("job_name", "start_cmd", "wall_time", "env", "requirements", "inherited_env")
    job: dict[str, Any] = {name: spec[name] for name in named}
    job["inherited_env"] = sorted(job["inherited_env"])
    job["secrets"] = [*map(str, spec["secret"])]  # type: ignore[call-overload]
    errors = [error.to_wire(client.config.lang) for error in refused]
    found = {"accepted": not refused, "files": files, "job": job, "plan": plan}
    return {**found, "notes": notes, "refused": errors}


class Submit:
    """One submit. If its last request gets no answer, the error warns that there may be a job: the
    same call once more would make a second one."""

    def __init__(
        self,
        client: Client,
        spec: Mapping[str, object],
        progress: Progress | None = None,
        note: Note = ignore_note,
        scan_progress: ScanProgress | None = None,
        accepted: Accepted | None = None,
        skipped: Progress | None = None,
    ) -> None:
        self._client = client
        self._spec = spec
        self._progress = progress
        self._note = note
        self._scan_progress = scan_progress
        self._accepted = accepted
        self._skipped = skipped or progress
        self._keys: dict[str, str] = {}
        """Those of the user's bucket, for a job with private storage."""
        if not spec["public_bos"]:
            from paddlecloud.client.upload import user_bucket  # noqa: PLC0415 - few jobs need it

            self._keys = user_bucket.keys_for(client, spec["bos_url"])
        self._git: scan_git.Inspection | None = None
        self._is_validated = False
        self._unanswered = 0
        """Requests that were sent and may have made the job without an answer."""

    def of_known_files(self, diff: str = "") -> dict[str, Any]:
        """The answer for files that need not be sent; `diff` is what they differ in from their
        commit."""
        request = _request(self._spec, diff)
        return self._with_keys(lambda: self._post(request))

    def of_directory(self, directory: str) -> dict[str, Any]:
        """The answer for the files of a directory, which is read again if it changes."""
        self._git = scan_git.inspect(directory, self._client.environ)
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                if self._keys:
                    return self._with_keys(lambda: self._to_bucket(directory))
                return self._to_store(directory)
            except Conflict as error:
                if error.code != "files_changed":
                    raise
                # Relative to the directory, as in all messages about files.
                above = os.path.abspath(directory).rstrip("/")  # noqa: PTH100 - pathlib costs 8 ms
                path = str(error.params["path"]).removeprefix(f"{shown(above)}/")
                if not tries_left:
                    raise Conflict("files_changed", path=path) from None
                self._note("files_read_again", path=path)
        raise AssertionError("the last attempt returns or raises")

    def plan(self, *, has_files: bool) -> Mapping[str, Any]:
        """What the server answers about a job that is not submitted. Raises what it would refuse
        it for."""
        files = {"snapshot": NO_SNAPSHOT} if has_files and not self._keys else {}
        return self._with_keys(lambda: self._asked(_request({**self._spec, **files})))

    def _to_bucket(self, directory: str) -> dict[str, Any]:
        """Upload the directory into the user's bucket; the job gets all files that are there."""
        from paddlecloud.client.upload import user_bucket  # noqa: PLC0415 - few jobs need it

        found = self._scanned(directory)
        request = self._request_for(found)
        for code, params in found.notes:
            self._note(code, **params)
        transport, whole = self._client.transport, request | self._keys
        user_bucket.bring(transport, found, whole, self._progress, self._note)
        _report_changes(found, self._note)
        return self._post(request)

    def _to_store(self, directory: str) -> dict[str, Any]:
        """Upload what the server lacks of the directory."""
        transport = self._client.transport
        with LocalHandoff(transport, near=self._client.config.embedded) as handoff:
            found = self._scanned(directory, handoff)
            request = self._request_for(found, snapshot=found.id)
            unreported = [*found.notes]

            def report_found() -> None:
                """Once nothing is left that could make the scan start again."""
                while unreported:
                    code, params = unreported.pop(0)
                    self._note(code, **params)

            if not self._is_validated and self._validate(request):
                answer = self._post(request)
                report_found()
                return answer

            def reporting(progress: Progress | None) -> Progress:
                def report(count: int, total: int) -> None:
                    report_found()
                    if progress is not None:
                        progress(count, total)

                return report

            reports = reporting(self._progress), handoff, reporting(self._skipped)
            upload(transport, found, *reports, self._note)
            report_found()
            _report_changes(found, self._note)
            return self._post(request)

    def _scanned(self, directory: str, handoff: LocalHandoff | None = None) -> Scan:
        def validate() -> None:
            files = {} if self._keys else {"snapshot": NO_SNAPSHOT}
            self._validate(_request({**self._spec, **files}))

        return scanned(
            directory,
            now=time(),
            home=self._client.config.home,
            outside_links=self._client.config.embedded and not self._keys,
            handoff=handoff,
            scan_progress=self._scan_progress,
            before_much=None if self._is_validated else validate,
        )

    def _validate(self, request: Mapping[str, object]) -> bool:
        """Raise what the server would refuse the job for; else whether it has all of its files.

        If the answer is lost the submit continues, because the job itself is checked again. An
        older server does not know the route.
        """
        try:
            answer = self._asked(request)
        except NotFound as error:
            if error.code != "route_unknown":
                raise
            return False
        except Retry as error:
            if not retry.is_transient(error) or error.code in retry.NOT_SENT:
                raise
            return False
        self._is_validated = True
        return bool(answer["has_files"])

    def _asked(self, request: Mapping[str, object]) -> dict[str, Any]:
        asked = {name: value for name, value in request.items() if name != "diff"} | self._keys
        return self._client.transport.post(
            "/jobs/validate",
            asked,
            schema=response_schemas.VALIDATED,
            idempotent=True,
            policy=retry.IMMEDIATE,
        )

    def _request_for(self, found: Scan, **more: object) -> dict[str, object]:
        """The request, with the commit and the changes that git reports."""
        spec = {**self._spec, **more, "directory": found.directory}
        if self._git is None:
            return _request(spec)
        git, diff = self._git.result({row[0] for row in found.entries})
        return _request({**spec, "git": git} if git else spec, diff)

    def _with_keys(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if not self._keys:
            return call()
        from paddlecloud.client.upload import user_bucket  # noqa: PLC0415 - few jobs need it

        return user_bucket.with_keys(self._client, call)

    def _post(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The server's answer to the job; however often it is sent, it is one job."""
        whole = {**request, **self._keys}
        try:
            answer = retry.run(lambda: self._post_once(whole))
            if self._accepted is not None:
                self._accepted(answer["job"])
        except KeyboardInterrupt:
            if self._unanswered:
                self._note("submit_unsure")
            raise
        except PaddleCloudError as error:
            if not self._unanswered:
                raise
            params = {"cause": error.code, "reason": error.words()}
            raise PaddleCloudError("submit_unanswered", **params) from error
        return answer

    def _post_once(self, whole: Mapping[str, object]) -> dict[str, Any]:
        def sent() -> None:
            self._unanswered += 1

        try:
            return self._client.transport.post(
                "/jobs",
                whole,
                schema=response_schemas.SUBMITTED,
                on_send=sent,
                policy=retry.ONCE,
            )
        except PaddleCloudError as error:
            # A refusal holds for every attempt; a proxy that timed out has refused nothing.
            if error.said is None:
                is_refusal = (
                    error.code == "unknown_answer" and int(str(error.params["status"])) < 500
                )
            else:
                is_refusal = not isinstance(error, Retry | Internal)
            if is_refusal:
                self._unanswered = 0
            elif error.said is not None and isinstance(error, Retry) and error.code != _UNSURE:
                self._unanswered -= 1
            raise


def _request(spec: Mapping[str, object], diff: str = "") -> dict[str, object]:
    """The request for a new job."""
    # Servers of the previous version refuse names that they do not know.
    sent = {name: value for name, value in spec.items() if value or name not in _NEW}
    request: dict[str, object] = {"spec": sent, "idempotency_key": os.urandom(16).hex()}
    return {**request, "diff": diff} if diff else request


def _report_changes(found: Scan, note: Note) -> None:
    """Files that changed since they were read: the job gets what was read."""
    changed = found.changed()
    if changed:
        note("files_changed_since", paths=few(changed))


def _confirm_directory(client: Client, directory: str, confirm: Confirm | None) -> None:
    """Invalid for a whole disk or home (or what is above it) that the user did not confirm."""
    try:
        root = os.path.realpath(directory)
    except ValueError:  # a name that no file can have; the scan refuses it
        return
    home = client.environ.get("HOME") or client.environ.get("USERPROFILE") or ""
    if os.path.dirname(root) == root:  # noqa: PTH120 - pathlib costs 8 ms
        code = "files_whole_disk"
    elif home and f"{os.path.realpath(home)}{os.sep}".startswith(f"{root}{os.sep}"):
        code = "files_whole_home"
    else:
        return
    if confirm is None or not confirm(code, shown(root)):
        raise Invalid(code, path=shown(root))


def _dry_files(
    client: Client, spec: Mapping[str, object], directory: str, scan_progress: ScanProgress | None
) -> dict[str, Any]:
    """What a directory holds, and what of it would be uploaded."""
    config = client.config
    found = scanned(
        directory,
        now=time(),
        home=config.home,
        outside_links=config.embedded and bool(spec["public_bos"]),
        scan_progress=scan_progress,
    )
    missing = missing_blobs(client.transport, found) if spec["public_bos"] else None
    return {
        "directory": shown(found.root),
        "count": sum(1 for row in found.entries if row[1] == "file"),
        "bytes": found.bytes,
        # Of a bucket that is not known before its files are listed.
        "new_files": None if missing is None else len(missing),
        "new_bytes": None if missing is None else sum(found.sources[sha][1] for sha in missing),
        "ignored": {rule: sorted(map(shown, paths)) for rule, paths in found.skipped.items()},
        "notes": [render(code, params, config.lang) for code, params in found.notes],
    }


def _spec(
    client: Client, parameters: Mapping[str, Any], note: Note
) -> tuple[dict[str, object], str | None]:
    """The wire spec, and the directory that has to be scanned for it."""
    raw = dict(parameters)
    snapshot = raw.pop("snapshot", None)
    if snapshot is not None and not raw.get("files"):
        # The rules require files; these are on the server already.
        raw["files"] = "."
    if raw.get("requirements"):
        raw["requirements"] = requirements_of(raw["requirements"])
    spec = parse_parameters(raw)
    if client.config.embedded:
        # With these `python` and `paddlecloud` in the job are the submitter's own.
        spec["inherited_env"], changed = inherited_env({**client.environ, HOME: client.config.home})
        if changed is not None:
            note("job_python_changed" if changed["python"] else "job_python_none", **changed)
    if snapshot is not None:
        return spec | {"snapshot": snapshot}, None
    return spec, directory_of(raw)


def requirements_of(path: str) -> str:
    """The text of the file, which is what is sent. Its byte order mark names its encoding, as for
    pip. An empty file asks for no package, but for an environment all the same."""
    if not isinstance(path, str | os.PathLike):  # a number would be a file that is open
        raise Invalid("param_path", name="requirements", value=repr(path)[:100])
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a Path costs start-up time
            data = file.read(_MOST_READ + 1)
            size = max(len(data), os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Invalid("requirements_unreadable", path=str(path), reason=reason) from error
    if len(data) > _MOST_READ:
        raise Invalid("requirements_long", size=size, limit=MAX_REQUIREMENTS_BYTES)
    mark, encoding = next((each for each in _MARKS if data.startswith(each[0])), (b"", "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # UTF-16 without a mark has many
        raise Invalid("requirements_encoding", path=str(path))
    return text.replace("\r\n", "\n").replace("\r", "\n") or "\n"
