"""The agent's cache of submitted files: lists of files by snapshot id, blobs by sha256.

Where the server's store is on this machine, blobs are read from there (`blobs_dir`). Elsewhere they
are downloaded, verified, and kept for the next job (`_blob_source`). A file has its final name only
when it is complete. `prune` keeps the cache within its limit, together with what other modules
keep in it, and empties it when the disk is full.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from paddlecloud.agent.inputs._blob_source import PART, BlobDownloads, BlobSource, part_path
from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.snapshot import (
    Entry,
    EntryKind,
    Snapshot,
    check_link,
    check_path,
    snapshot_of,
)
from paddlecloud.net.proxy import DIRECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.net.proxy import Proxies

    OpenBlob = Callable[[str, int], int]
    """Opens the blob of this sha256 and size; returns a descriptor."""

_BEFORE_ENTRIES = b'{"entries":'
_AFTER_ENTRIES = b"}"
_PLAIN_LENGTH = 250
_NOT_PLAIN = ("//", "/./", "/../", "\\", "\0", ":")
_KINDS = {kind.value: kind for kind in EntryKind}
#: Lists that are kept in memory, and the entries of the longest.
_LISTS_IN_MEMORY = 16
_MAX_ENTRIES_IN_MEMORY = 5000
#: What was used within so many seconds is not deleted: another thread may be about to copy it.
_SPARED_SECONDS = 60.0
#: Seconds between two checks of a cache that is above its limit.
RECHECK_SECONDS = 15.0
#: Part of a thread's time that these checks may take.
_LOAD = 0.05
#: A `.part` file that did not change for so long was left by an earlier agent.
_PART_SECONDS = 3600.0
#: Seconds by which the times of files may be behind the clock.
_CLOCK_SECONDS = 1.0
#: Smaller blobs are not worth a system call to find out whether they have a copy.
_LARGE = 1024 * 1024


class Evictable(NamedTuple):
    """Something in the cache that may be deleted."""

    used_at: int
    """Nanoseconds since 1970."""
    size: int
    delete: Callable[[], object]
    """Raises OSError when it is in use."""


class InputCache:
    """Thread-safe. Raises Retry when the server cannot be reached."""

    def __init__(self, cache: Path, *, limit: int | None, proxies: Proxies = DIRECT) -> None:
        self._cache = cache
        self._blobs = cache / "blobs"
        self._limit = limit
        """None until the server has sent it."""
        self._lock = threading.Lock()
        self._lists: dict[str, Snapshot] = {}
        """Lists in memory."""
        self._downloads = BlobDownloads(self._blobs, proxies, self.grew)
        self._grown = 0 if limit is None else limit + 1
        """Bytes added since the last `prune`; at the start the size of the cache is not known."""
        self._pruning = threading.Lock()
        self._checked_at = 0.0
        self._pause = RECHECK_SECONDS
        self.above_limit = False
        """The last `prune` found more than the limit."""
        self.has_spared = False
        """The last `prune` spared something only because it was used a moment before."""
        self._in_use_since: dict[object, float] = {}

    def snapshot(self, snapshot_id: str, replica: str, channel: Channel) -> Snapshot:
        """The list of files of this snapshot, downloaded if necessary and verified by its id."""
        found = self.cached_snapshot(snapshot_id)
        if found is None:
            path = f"/agent/snapshots/{snapshot_id}"
            response = channel.call("GET", path, query={"replica": replica})
            # Servers send the JSON of which the id is the digest: normally it is not parsed here.
            text = response[len(_BEFORE_ENTRIES) : -len(_AFTER_ENTRIES)]
            if _id_of(text) != snapshot_id:
                text = json.dumps(channel.parsed(response).get("entries")).encode()
            found = _checked(snapshot_id, text)
            self._store(snapshot_id, text)
        self._keep_in_memory(found)
        return found

    def snapshot_in_memory(self, snapshot_id: str) -> Snapshot | None:
        """The list if it is in memory, as small ones are that were used recently."""
        return self._lists.get(snapshot_id)

    def cached_snapshot(self, snapshot_id: str) -> Snapshot | None:
        """The list if it is in the cache."""
        check_id(snapshot_id)
        found = self._lists.get(snapshot_id)
        if found is not None:
            return found
        try:
            return _checked(snapshot_id, self._list_path(snapshot_id).read_bytes())
        except (OSError, ValueError, Invalid):
            return None

    def has_list(self, snapshot_id: str) -> bool:
        """Whether the list is in the cache, without reading it."""
        check_id(snapshot_id)
        return snapshot_id in self._lists or self._list_path(snapshot_id).exists()

    def has_blobs(self, snapshot: Snapshot) -> bool:
        """Whether the cache has every blob of these files."""
        return all(self._downloads.path(sha256).exists() for sha256 in snapshot.digests)

    def source(
        self,
        replica: str,
        blobs_dir: str | None,
        channel: Channel,
        *,
        direct: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> OpenBlob:
        """A function that opens blobs, from `blobs_dir` or the cache, and downloads missing ones;
        `direct`: by presigned URLs. It raises Retry when the replica is not wanted any more, also
        in the middle of a download."""
        return BlobSource(
            self._downloads, replica, blobs_dir, channel, direct=direct, is_wanted=is_wanted
        ).open

    def blobs_directory(self) -> str:
        """The directory of the cached blobs."""
        with suppress(OSError):
            self._make(self._blobs)
        return str(self._blobs)

    def grew(self, size: int) -> None:
        """Count bytes that were added to the cache."""
        self._grown += size

    @contextmanager
    def in_use(self, now: float) -> Iterator[None]:
        """Until this is left, nothing is deleted that is used from now on."""
        key = object()
        self._in_use_since[key] = now
        try:
            yield
        finally:
            del self._in_use_since[key]

    def mark_copied(self, blobs: Mapping[str, int]) -> None:
        """These have copies elsewhere in the cache, so they are the first to be deleted."""
        for sha256, size in blobs.items():
            if size >= _LARGE:
                with suppress(OSError):
                    os.utime(self._downloads.path(sha256), (0, 0))

    def set_limit(self, limit: int | None) -> None:
        """A new limit makes `prune` due."""
        if limit is not None and limit != self._limit:
            self._limit, self._grown = limit, limit + 1

    def is_due(self, now: float) -> bool:
        """Whether `prune` has something to do: much was added, or there was too much. False until
        the limit is known."""
        if self._limit is None:
            return False
        waited = abs(now - self._checked_at) >= self._pause
        return self._grown > self._limit // 10 or (self.above_limit and waited)

    def prune(
        self,
        now: float,
        others: Callable[[], Iterable[Evictable]] = tuple,
        is_short: Callable[[], bool] = lambda: False,
    ) -> int:
        """Delete what was used longest ago until the rest is within the limit, and while the disk
        `is_short` of space; bytes freed.

        `others` lists what else is in the cache. `now` is the time of day.
        """
        with self._pruning:
            if not self.is_due(now) and not is_short():
                return 0
            began = time.monotonic()
            self._grown, self._checked_at = 0, now
            found = [*self._files(now), *others()]
            self._pause = max(RECHECK_SECONDS, (time.monotonic() - began) / _LOAD)
            surplus = 0 if self._limit is None else sum(each.size for each in found) - self._limit
            self.above_limit = surplus > 0
            self.has_spared = False
            in_use = [at - _CLOCK_SECONDS for at in [*self._in_use_since.values()]]
            since = min([now - _SPARED_SECONDS, *in_use])
            freed = 0
            for used_at, size, delete in sorted(found, key=lambda each: each[:2]):
                if freed >= surplus and not is_short():
                    break
                if since < used_at / 1e9 < now + _SPARED_SECONDS:
                    self.has_spared = self.has_spared or size > 0
                    continue
                with suppress(OSError):
                    delete()
                    freed += size
            return freed

    def size(self, now: float, others: Callable[[], Iterable[Evictable]]) -> int:
        """Bytes of everything that could be deleted, in use or not."""
        return sum(each.size for each in (*self._files(now), *others()))

    def _files(self, now: float) -> Iterator[Evictable]:
        for kind in ("blobs", "snapshots"):
            for path in (self._cache / kind).rglob("*"):
                with suppress(OSError):
                    found = path.lstat()
                    delete = self._downloads.partial.deletion(path) if path.suffix == PART else None
                    is_new = now - found.st_mtime < _PART_SECONDS
                    if path.suffix == PART and delete is None and is_new:
                        continue  # a download that runs
                    if stat.S_ISREG(found.st_mode):
                        # A file with a hard link in a tree is counted there.
                        size = found.st_size if found.st_nlink == 1 else 0
                        yield Evictable(found.st_mtime_ns, size, delete or path.unlink)

    def _store(self, snapshot_id: str, text: bytes) -> None:
        """Keep a list for the next job; a cache that cannot be written is no reason to fail."""
        path = self._list_path(snapshot_id)
        with suppress(OSError):
            self._make(path.parent)
            part = part_path(path)
            try:
                part.write_bytes(text)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)

    def _keep_in_memory(self, snapshot: Snapshot) -> None:
        if len(snapshot.entries) > _MAX_ENTRIES_IN_MEMORY:
            return
        with self._lock:
            self._lists.pop(snapshot.id, None)
            self._lists[snapshot.id] = snapshot
            while len(self._lists) > _LISTS_IN_MEMORY:
                del self._lists[next(iter(self._lists))]

    def _list_path(self, snapshot_id: str) -> Path:
        return self._cache / "snapshots" / (snapshot_id.replace(":", "-") + ".json")

    def _make(self, directory: Path) -> None:
        self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(parents=True, exist_ok=True)


def check_id(snapshot_id: str) -> None:
    """Refuse what is not the id of a snapshot: it becomes part of a path."""
    kind, _, digest = snapshot_id.partition(":")
    if kind != "sha256" or len(digest) != 64 or digest.strip("0123456789abcdef"):
        raise Invalid("agent_snapshot_damaged", snapshot=snapshot_id[:100])


def _checked(snapshot_id: str, text: bytes) -> Snapshot:
    """The snapshot of this list, if it is the one of that id.

    Where the id is the digest of the text, the entries were checked at their submission; only their
    paths are checked again, because they become paths on this machine.
    """
    try:
        entries = [
            Entry(
                path=path,
                kind=_KINDS[kind],
                size=size,
                sha256=sha256,
                executable=bool(executable),
                target=target,
            )
            for path, kind, size, sha256, executable, target in json.loads(text)
        ]
        if _id_of(text) == snapshot_id:
            if not _are_plain([entry.path for entry in entries]):
                for entry in entries:
                    check_path(entry.path, below=True)
            for entry in entries:
                if entry.kind is EntryKind.LINK:
                    # Whether one may lead out is the server's decision; the job could make it, too.
                    check_link(entry.path, entry.target, outside=True)
            return Snapshot(id=snapshot_id, entries=tuple(entries))
        found = snapshot_of(entries, outside_links=True)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Invalid("agent_snapshot_damaged", snapshot=snapshot_id) from error
    if found.id != snapshot_id:
        raise Invalid("agent_snapshot_damaged", snapshot=snapshot_id)
    return found


def _id_of(text: bytes) -> str:
    return "sha256:" + hashlib.sha256(text).hexdigest()


def _are_plain(paths: Sequence[str]) -> bool:
    """Whether no path needs a check of its own, as in nearly all snapshots. One test for all of
    them, because one by one it takes a tenth of the time of creating the files."""
    text = "/" + "/\n/".join(paths) + "/"
    return (
        max(map(len, paths), default=0) < _PLAIN_LENGTH
        and text.count("\n") < max(len(paths), 1)
        and text.isascii()
        and not any(part in text for part in _NOT_PLAIN)
    )
