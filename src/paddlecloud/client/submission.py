"""Submits a job: checks the parameters, looks at the directory, and uploads only what is missing.

The spec goes first and the files after it, so a job that the server would refuse costs no upload.
One idempotency key covers every try of one submit: whatever breaks, it is one job.
"""

from __future__ import annotations

import os
from time import time

from paddlecloud.client import repository
from paddlecloud.client.handing import Handing
from paddlecloud.client.naming import few
from paddlecloud.client.retries import patiently
from paddlecloud.client.scanning import scan as scanned
from paddlecloud.client.uploading import persistently, upload
from paddlecloud.model.errors import Conflict, Invalid, SnapshotMissing
from paddlecloud.model.submit import (
    INHERITED_NAMES,
    MAX_REQUIREMENTS_BYTES,
    directory_of,
    parse_parameters,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paddlecloud.client.scanning import Reading, Scan
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.uploading import Progress

    Note = Callable[..., None]

#: Where the private server is: known here even when no variable says it.
HOME = "PADDLECLOUD_HOME"
#: A directory that changes while it is submitted settles within a few tries, or never.
TRIES = 3
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
) -> dict[str, Any]:
    """The server's answer: `job` and `notes`. Invalid before anything is sent if a rule is broken.

    `note(code, **params)` hears what was found, what was left out, and what changed meanwhile;
    `reading` tells how much of the directory was looked at so far.
    """
    spec, directory = _spec(client, parameters)
    keys = private_keys(client, spec)
    if keys:
        return _submit_private(client, spec, directory, keys, progress, note, reading)
    if directory is None:
        return ask(client.transport, request_for(spec), note)
    looking = repository.look(directory, client.environ)
    for tries_left in range(TRIES - 1, -1, -1):
        try:
            with Handing(client.transport, near=client.config.embedded) as handing:
                return _submit_directory(
                    client, spec, directory, looking, handing, progress, note, reading
                )
        except Conflict as error:
            if error.code != "files_changed" or not tries_left:
                raise
            note("files_read_again", path=error.params["path"])
    raise AssertionError("the last try returns or raises")


def private_keys(client: Client, spec: Mapping[str, object]) -> dict[str, str]:
    """What a request has to bring along for a job with storage of its own; nothing for others."""
    if spec["public_bos"]:
        return {}
    from paddlecloud.client import private  # noqa: PLC0415 - few jobs need it

    return private.keys_for(client, spec["bos_url"])


def request_for(
    spec: Mapping[str, object],
    looking: repository.Looking | None = None,
    found: Scan | None = None,
) -> dict[str, object]:
    """The request for a new job, with what git says of the files that were found; however often it
    is sent, it is one job."""
    paths = {row[0] for row in found.entries} if found is not None else ()
    git, diff = looking.result(paths) if looking is not None else ({}, "")
    told = {**spec, "git": git} if git else spec
    request: dict[str, object] = {"spec": told, "idempotency_key": os.urandom(16).hex()}
    return {**request, "diff": diff} if diff else request


def ask(transport: Transport, request: Mapping[str, object], note: Note) -> dict[str, Any]:
    """The server's answer to such a request. Whoever does not wait for it hears that there may be a
    job: the same command once more would make a second one."""
    try:
        return patiently(lambda: transport.post("/jobs", request, again=True))
    except KeyboardInterrupt:
        if transport.is_found:
            note("submit_unsure")
        raise


def _submit_private(
    client: Client,
    spec: dict[str, object],
    directory: str | None,
    keys: dict[str, str],
    progress: Progress | None,
    note: Note,
    reading: Reading | None,
) -> dict[str, Any]:
    """The directory goes into the bucket, and the job is given all that lies there then."""
    from paddlecloud.client import private  # noqa: PLC0415 - few jobs need it

    if directory is None:
        request = request_for(spec) | keys
        return private.with_keys(client, lambda: ask(client.transport, request, note))
    looking = repository.look(directory, client.environ)
    found = scanned(directory, now=time(), home=client.config.home, reading=reading)
    request = request_for({**spec, "directory": found.directory}, looking, found) | keys
    for code, params in found.notes:
        note(code, **params)

    told: set[str] = set()

    def note_once(code: str, **params: object) -> None:
        if code not in told:
            told.add(code)
            note(code, **params)

    def bring(tell: Progress) -> None:
        private.bring(client.transport, found, request, tell, note_once)

    def send() -> dict[str, Any]:
        persistently(bring, progress, note)
        _tell_changes(found, note)
        return ask(client.transport, request, note)

    return private.with_keys(client, send)


def _submit_directory(
    client: Client,
    spec: dict[str, object],
    directory: str,
    looking: repository.Looking | None,
    handing: Handing,
    progress: Progress | None,
    note: Note,
    reading: Reading | None,
) -> dict[str, Any]:
    home = client.config.home
    found = scanned(directory, now=time(), home=home, handing=handing, reading=reading)
    spec = {**spec, "snapshot": found.id, "directory": found.directory}
    request = request_for(spec, looking, found)
    try:
        answer = ask(client.transport, request, note)
    except SnapshotMissing:
        answer = None
    for code, params in found.notes:
        note(code, **params)
    if answer is not None:
        return answer
    persistently(lambda tell: upload(client.transport, found, tell, handing), progress, note)
    _tell_changes(found, note)
    return ask(client.transport, request, note)


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
