"""Submits a job: checks the parameters, looks at the directory, and uploads only what is missing.

The spec goes first and the files after it, so a job that the server would refuse costs no upload.
One idempotency key covers every try of one submit: whatever breaks, it is one job.
"""

from __future__ import annotations

import hashlib
import os
from time import time

from paddlecloud.client import files
from paddlecloud.client.retries import patiently
from paddlecloud.model.errors import Retry, SnapshotMissing
from paddlecloud.model.submit import INHERITED_NAMES, local_parameters, parse_parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from paddlecloud.client.sdk import Client
    from paddlecloud.client.transport import Transport

    Progress = Callable[[int, int], None]
    """Hears of uploaded bytes: how many now, how many there will be in all."""
    Note = Callable[..., None]

#: Where the private server is: known here even when no variable says it.
HOME = "PADDLECLOUD_HOME"
#: One upload request of small files; it is held in memory so that each file is read once.
BATCH = 8 * 1024 * 1024
#: A directory that changes while it is uploaded settles within a few rounds, or never.
ROUNDS = 3


def submit(
    client: Client,
    parameters: Mapping[str, Any],
    progress: Progress | None = None,
    note: Note = lambda code, **params: None,
) -> dict[str, Any]:
    """The server's answer: `job` and `notes`. Invalid before anything is sent if a rule is broken.

    `note(code, **params)` hears what the scan left out.
    """
    transport = client.transport
    spec, directory = _spec(client, parameters)
    scan = None
    if directory is not None:
        scan = files.scan(directory, now=time(), home=client.config.home)
        spec |= {"snapshot": scan.id, "directory": scan.directory}
        for code, params in scan.notes:
            note(code, **params)
    request = {"spec": spec, "idempotency_key": os.urandom(16).hex()}
    try:
        return _post(transport, request)
    except SnapshotMissing:
        if scan is None:
            raise
    upload(transport, scan, progress)
    return _post(transport, request)


def upload(transport: Transport, scan: files.Scan, progress: Progress | None = None) -> None:
    """Bring the contents that the server lacks, until it has the whole snapshot."""
    body = {"entries": scan.entries}
    for _ in range(ROUNDS):
        missing = patiently(lambda: transport.post("/snapshots", body, again=True))["missing"]
        if not missing:
            return
        total = sum(scan.sources[sha256][1] for sha256 in missing)
        for group in files.batches(scan.sources, missing, BATCH):
            _send(transport, scan, group, progress, total)
    raise Retry("upload_unfinished", files=len(missing))


def _spec(client: Client, parameters: Mapping[str, Any]) -> tuple[dict[str, object], str | None]:
    """The wire spec, and the directory that has to be scanned for it."""
    raw = dict(parameters)
    snapshot = raw.pop("snapshot", None)
    if snapshot is not None and not raw.get("files"):
        # The rules ask for files; these are on the server already, under no directory's name.
        raw["files"] = "."
    spec = parse_parameters(raw)
    if client.config.embedded:
        spec["inherited_env"] = _inherited({**client.environ, HOME: client.config.home})
    if snapshot is not None:
        return spec | {"snapshot": snapshot}, None
    return spec, local_parameters(raw)[0]


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes `python` and `paddlecloud` in the job the submitter's own; text that is not UTF-8
    stays here."""
    found = {name: environ[name] for name in INHERITED_NAMES if environ.get(name)}
    return {name: value for name, value in found.items() if value.isprintable()}


def _post(transport: Transport, request: Mapping[str, object]) -> dict[str, Any]:
    answer: dict[str, Any] = patiently(lambda: transport.post("/jobs", request, again=True))
    return answer


def _send(
    transport: Transport,
    scan: files.Scan,
    group: list[str],
    progress: Progress | None,
    total: int,
) -> None:
    stream, length = files.pack(scan.sources, group)
    pieces: Iterable[bytes]
    if length <= BATCH:
        pieces = [b"".join(stream)]
        sha256 = hashlib.sha256(pieces[0]).hexdigest()
    else:
        pieces, sha256 = stream, stream.sha256()

    def produce() -> Iterator[bytes]:
        for piece in pieces:
            # Before the piece: whoever counts the bytes does not come back after the last one.
            if progress is not None:
                progress(len(piece), total)
            yield piece

    patiently(lambda: transport.send("/blobs", produce, length, sha256, again=True))
