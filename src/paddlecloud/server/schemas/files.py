"""JSON schemas of files, snapshots and blobs."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from paddlecloud.server.schemas.base import Answer, Natural, Request


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
    """By path where else a file is: on this machine (an embedded server's), or at an address of the
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
