"""Restores the outputs of the previous attempt into OUTPUT_PATH, so that the job can continue.

If that attempt ran on this machine and the server has all of its outputs, its directory is moved.
Otherwise every file that the server has is downloaded, and verified by size and sha256. Files that
were restored count as sent.

This happens before the order is written, so before anything runs. A repeated call continues where
the last one failed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.outputs.sent_files import SHIPPED, SentFiles
from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox.workspace import OUTPUT
from paddlecloud.model.errors import Invalid, Retry
from paddlecloud.model.files.snapshot import check_path
from paddlecloud.model.protocol.bce_auth import quote

if TYPE_CHECKING:
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel

_ATTEMPTS = 3
_PART = "output.part"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def needs_fetch(earlier: Tracked | None) -> bool:
    """Whether the outputs of the replica `earlier` have to be downloaded. None: it did not run on
    this machine."""
    return earlier is None or earlier.alive or not earlier.shipped or earlier.started is None


def restore(
    tracked: Tracked, earlier: Tracked | None, channel: Channel, *, owner: int | None
) -> str:
    """Fill the output directory of `tracked`; how, for the log. `earlier` is the replica of the
    previous attempt if it ran on this machine. Raises Retry when the server cannot be reached, or
    the replica is not wanted any more."""
    if earlier is not None and not needs_fetch(earlier) and _move(tracked, earlier, owner):
        return "moved from the previous attempt"
    path = f"/agent/replicas/{quote(tracked.id)}/outputs"
    rows: list[Any] = channel.json("GET", path).get("files", [])
    digests: dict[str, str] = {}
    for name, size, mtime in rows:
        _check_wanted(tracked)
        check_path(name, below=True)
        sha256 = _restore_file(tracked, name, int(size), float(mtime), channel, owner)
        digests[f"{OUTPUT}/{name}"] = sha256
    sent = SentFiles(tracked.root)
    for found in scan.scan(tracked.root):
        sent.add(found, digests.get(found.name, ""))
    sent.save()
    return f"{len(rows)} files downloaded"


def _move(tracked: Tracked, earlier: Tracked, owner: int | None) -> bool:
    """Move the directory; False if that is not possible. `earlier` may be deleted at any moment.

    The list of sent files is written after the move: if there is a list and no directory to move,
    the directory was moved before.
    """
    source, sent_files = earlier.path(OUTPUT), tracked.root / SHIPPED
    try:
        if os.stat(source).st_uid != (os.geteuid() if owner is None else owner):  # noqa: PTH116 - text
            return False
        marks = records.read(earlier.root / SHIPPED) or {}
        outputs = {name: mark for name, mark in marks.items() if name.startswith(f"{OUTPUT}/")}
        os.rename(source, tracked.path(OUTPUT))  # noqa: PTH104 - both are text
        records.write(sent_files, outputs)
    except FileNotFoundError:
        return sent_files.exists()
    except OSError:
        return False
    return True


def _restore_file(
    tracked: Tracked, name: str, size: int, mtime: float, channel: Channel, owner: int | None
) -> str:
    """Download one file, unless it is there; its sha256."""
    mtime_ns = round(mtime * 1e6) * 1000
    folder, last = _open_folder(tracked.path(OUTPUT), name, owner)
    try:
        with suppress(FileNotFoundError):
            found = os.stat(last, dir_fd=folder, follow_symlinks=False)
            is_same = (found.st_size, found.st_mtime_ns) == (size, mtime_ns)
            if is_same and stat.S_ISREG(found.st_mode):
                with open(os.open(last, _FILE, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor
                    return hashlib.file_digest(file, "sha256").hexdigest()
        part = tracked.root / _PART
        for _ in range(_ATTEMPTS):
            sha256 = _download(tracked, name, size, channel)
            if sha256 is not None:
                break
        else:
            raise Invalid("agent_output_damaged", path=name)
        os.utime(part, ns=(mtime_ns, mtime_ns))
        if owner is not None:
            os.chown(part, owner, owner)
        os.rename(part, last, dst_dir_fd=folder)
        return sha256
    finally:
        os.close(folder)


def _download(tracked: Tracked, name: str, size: int, channel: Channel) -> str | None:
    """The sha256 of the file; None if it arrived damaged. The digest follows the content."""
    digest = hashlib.sha256()
    tail = bytearray()
    received = 0
    with (tracked.root / _PART).open("wb") as out:

        def write(chunk: bytes) -> None:
            nonlocal received
            _check_wanted(tracked)
            content = chunk[: max(0, size - received)]
            out.write(content)
            digest.update(content)
            tail.extend(chunk[len(content) :])
            received += len(content)

        path = f"/agent/replicas/{quote(tracked.id)}/outputs/{quote(name, '/')}"
        channel.call("GET", path, sink=write)
    return digest.hexdigest() if received == size and bytes(tail) == digest.digest() else None


def _check_wanted(tracked: Tracked) -> None:
    if not tracked.wanted:
        raise Retry("replica_not_started", replica=tracked.id, reason="it is to stop")


def _open_folder(top: str, name: str, owner: int | None) -> tuple[int, str]:
    """The directory of the file `name` below `top`, created if it is missing, and the file's name
    in it. Symbolic links, which the earlier job may have made, raise OSError."""
    *above, last = name.split("/")
    current = os.open(top, _FOLDER)
    for part in above:
        try:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=current)
            below = os.open(part, _FOLDER, dir_fd=current)
        finally:
            os.close(current)
        current = below
        if owner is not None:
            os.fchown(current, owner, owner)
    return current, last
