"""JSON schemas of files, snapshots and blobs."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from paddlecloud.server.schemas.base import Answer, Flag, Natural, Request


class FilesQuery(Request, frozen=True, kw_only=True):
    prefix: str | None = None
    direct: bool = False
    """Whether the response includes direct download locations; see `ways`."""


class FileRow(Answer, frozen=True, kw_only=True):
    path: str
    size: int
    time: str
    sha256: str | None = None
    """Known for submitted files, and for outputs of workers that have ended."""
    written_sha256: str | UnsetType = UNSET
    """What the worker wrote, if the stored file has another time or size now: a file that was
    restored from a backup still has these bytes."""


class FilesAnswer(Answer, frozen=True, kw_only=True):
    job_id: str
    files: list[FileRow]
    job_status: str
    """Read before the files were listed: if the job had ended, the list is complete."""
    ways: dict[str, str] | UnsetType = UNSET
    """Direct download locations by path: a local path (embedded server) or a presigned URL. The
    client has to compare the sha256."""
    left_behind: str | UnsetType = UNSET
    """Outputs that did not reach the server, and where they are; empty if all did."""


class FileQuery(Request, frozen=True, kw_only=True):
    offset: Natural = 0
    length: Natural | None = None
    """At most so many bytes."""
    digest: bool = False
    """Whether the sha256 follows the bytes, as 32 bytes."""


EntryRow = tuple[str, str, Natural, str, int, str]
"""path, kind, size, sha256, executable 0|1, target."""


class SnapshotRequest(Request, frozen=True, kw_only=True):
    entries: list[EntryRow]
    dry_run: Flag = 0
    """1: only report what is missing; nothing is stored."""


class SnapshotAnswer(Answer, frozen=True, kw_only=True):
    id: str
    missing: list[str]


class JobFilesAnswer(Answer, frozen=True, kw_only=True):
    id: str | None
    """Of the snapshot; None: the job has no submitted files."""
    entries: list[EntryRow]
    time: str = ""
    """When the job was submitted; the time of all its submitted files."""
    tags: dict[str, str] | None = None
    """ETag by path, for files in the user's bucket. The digests of such entries are marks made by
    the server, not digests of the bytes."""


class BlobsAnswer(Answer, frozen=True, kw_only=True):
    stored: int
