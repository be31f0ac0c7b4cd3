"""Gives a replica what the attempt before it left in OUTPUT_PATH, so that it can go on from there.

The server has every file that was shipped, and that is what counts. An attempt that ran on this
machine and whose outputs the server has to the last byte needs no way back: its directory is moved.
Otherwise each file is fetched, checked by size and sha256, and put in its place whole. What came
back need not be shipped again, and that is noted beside it.

Done before the order is written, so before anything runs; doing it again after a failure goes on
where it stopped.
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
    from pathlib import Path

    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel

_FETCHES = 3
_ASIDE = "output.part"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def give_back(
    tracked: Tracked, earlier: Tracked | None, channel: Channel, *, owner: int | None
) -> str:
    """Fill the output directory of `tracked`; says how, for the log.

    `earlier` is the replica of the attempt before if it ran on this machine. Raises Retry when the
    server cannot be reached, or the replica is no longer wanted.
    """
    if earlier is not None and _take_over(tracked, earlier, owner):
        return "moved from the attempt before"
    path = f"/agent/replicas/{quote(tracked.id)}/outputs"
    rows: list[Any] = channel.json("GET", path).get("files", [])
    digests: dict[str, str] = {}
    for name, size, mtime in rows:
        _check_wanted(tracked)
        check_path(name, below=True)
        digests[f"{OUTPUT}/{name}"] = _bring(tracked, name, int(size), float(mtime), channel, owner)
    _note_all(tracked.root, digests)
    return f"{len(rows)} files fetched"


def _take_over(tracked: Tracked, earlier: Tracked, owner: int | None) -> bool:
    """Only of one that ran and that the server has whole; then nobody reads there any more.

    What the server has is noted once the directory is moved: whoever finds the note and no
    directory to move knows that this was done. Its earlier owner may be deleted at any moment, and
    then everything is fetched.
    """
    if earlier.alive or not earlier.shipped or earlier.started is None:
        return False
    source, note = earlier.path(OUTPUT), tracked.root / SHIPPED
    try:
        if os.stat(source).st_uid != (os.geteuid() if owner is None else owner):  # noqa: PTH116 - text
            return False
        marks = records.read(earlier.root / SHIPPED) or {}
        ours = {name: mark for name, mark in marks.items() if name.startswith(f"{OUTPUT}/")}
        os.rename(source, tracked.path(OUTPUT))  # noqa: PTH104 - both are text
        records.write(note, ours)
    except FileNotFoundError:
        return note.exists()
    except OSError:
        return False
    return True


def _bring(
    tracked: Tracked, name: str, size: int, mtime: float, channel: Channel, owner: int | None
) -> str:
    """Put one file in its place, unless it is there; its sha256."""
    when = round(mtime * 1e6) * 1000
    folder, last = _open_folder(tracked.path(OUTPUT), name, owner)
    try:
        if _is_there(folder, last, size, when):
            return _digest(folder, last)
        aside = tracked.root / _ASIDE
        for _ in range(_FETCHES):
            sha256 = _fetch(tracked, name, size, aside, channel)
            if sha256 is not None:
                break
        else:
            raise Invalid("agent_output_damaged", path=name)
        os.utime(aside, ns=(when, when))
        if owner is not None:
            os.chown(aside, owner, owner)
        os.rename(aside, last, dst_dir_fd=folder)
        return sha256
    finally:
        os.close(folder)


def _fetch(tracked: Tracked, name: str, size: int, aside: Path, channel: Channel) -> str | None:
    """The sha256 of the file if it arrived as it was sent: it comes behind the content."""
    digest = hashlib.sha256()
    tail = bytearray()
    taken = 0
    with aside.open("wb") as out:

        def take(piece: bytes) -> None:
            nonlocal taken
            _check_wanted(tracked)
            whole = piece[: max(0, size - taken)]
            out.write(whole)
            digest.update(whole)
            tail.extend(piece[len(whole) :])
            taken += len(whole)

        path = f"/agent/replicas/{quote(tracked.id)}/outputs/{quote(name, '/')}"
        channel.call("GET", path, sink=take)
    return digest.hexdigest() if taken == size and bytes(tail) == digest.digest() else None


def _check_wanted(tracked: Tracked) -> None:
    if not tracked.wanted:
        raise Retry("replica_not_started", replica=tracked.id, reason="it is to stop")


def _open_folder(top: str, name: str, owner: int | None) -> tuple[int, str]:
    """The open directory in which `name` lies, made if need be, and the last part of the name.

    We are root and the directory was a job's: a link in it leads nowhere, OSError says so.
    """
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


def _is_there(folder: int, name: str, size: int, when: int) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (size, when)


def _digest(folder: int, name: str) -> str:
    """Of a file that an earlier try brought; nobody has written to it since."""
    with open(os.open(name, _FILE, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note_all(root: Path, digests: dict[str, str]) -> None:
    """The server has all that lies there: it sent it."""
    sent = SentFiles(root)
    for found in scan.scan(root):
        sent.add(found, digests.get(found.name, ""))
    sent.save()
