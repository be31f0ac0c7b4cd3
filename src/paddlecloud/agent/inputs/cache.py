"""Submitted files on this machine: lists of files by snapshot, contents by sha256.

On the server's own machine contents are read from the server's store (`blobs_dir`). Elsewhere they
are fetched into the agent's cache, checked, and kept for the next job: from the bucket where they
lie in one, and through the server where that cannot be reached. What no digest and no tag proves is
fetched a second time, through the server, and kept if the same came: a damage is not the same
twice. A file appears under its final name only when it is whole, so a cache is never half right.
`prune` keeps the whole cache within its limit, also what others keep in it, and gives it up for a
disk that is full; as long as it is `crowded`, it has to be called again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs._partial_download import PART, Halves, aside
from paddlecloud.agent.inputs._presigned import Addresses, Buckets, Wanted, side_by_side
from paddlecloud.model.errors import Invalid, Retry
from paddlecloud.model.files.snapshot import (
    Entry,
    EntryKind,
    Snapshot,
    check_path,
    resolve_link,
    snapshot_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from paddlecloud.agent.inputs._partial_download import Fetch, Half, Take
    from paddlecloud.agent.server_link.channel import Channel

    Source = Callable[[str, int], int]
    Kept = tuple[int, int, Callable[[], object]]
    """Something that may be deleted: when it was used last (ns), its size, how to delete it."""

_READ = os.O_RDONLY | os.O_CLOEXEC
_FETCHES = 3
_BEFORE = b'{"entries":'
_AFTER = b"}"
_PLAIN_LENGTH = 250
_NOT_PLAIN = ("//", "/./", "/../", "\\", "\0", ":")
_KINDS = {kind.value: kind for kind in EntryKind}
_REMEMBERED = 16
_REMEMBERED_ENTRIES = 5000
_SPARED_SECONDS = 60.0
#: Seconds between two looks at a cache that is above its limit.
LOOK_AGAIN = 15.0
#: And this part of one thread's time may be spent on them.
_LOAD = 0.05
#: Something half fetched that nobody added to for so long is left over from an agent that ended.
_PART_SECONDS = 3600.0
#: By so many seconds the times of files may be behind the clock.
_CLOCK = 1.0
#: Smaller contents are not worth a look whether they are needed twice.
_LARGE = 1024 * 1024


class InputCache:
    """Safe for several threads. Trouble on the way to the server leaves as Retry."""

    def __init__(self, cache: Path, *, limit: int | None) -> None:
        self._cache = cache
        self._limit = limit
        """None: nobody has said it yet."""
        self._lock = threading.Lock()
        self._known: dict[str, Snapshot] = {}
        self._once: dict[str, str] = {}
        """Digests of what came once and is not proven, by the content that was wanted."""
        self._halves = Halves()
        self._buckets = Buckets()
        self._grown = 0 if limit is None else limit + 1
        """Bytes fetched since the last `prune`; at the start nobody knows what is there."""
        self._pruning = threading.Lock()
        self._looked_at = 0.0
        self._pause = LOOK_AGAIN
        self.crowded = False
        """The last `prune` found more than the limit."""
        self.spares = False
        """Something was left the last time only because it was used a moment before."""
        self._begun: dict[object, float] = {}
        """Since when each of those is at work who use what lies here."""

    def snapshot(self, snapshot_id: str, replica: str, channel: Channel) -> Snapshot:
        """The list of files named by `snapshot_id`, whose id proves that it is the right one."""
        check_id(snapshot_id)
        found = self._known.get(snapshot_id) or self._cached(snapshot_id)
        if found is None:
            path = f"/agent/snapshots/{snapshot_id}"
            answer = channel.call("GET", path, query={"replica": replica})
            text = _entries_of(snapshot_id, answer, channel)
            found = _checked(snapshot_id, text)
            self._store(snapshot_id, text)
        self._remember(found)
        return found

    def remembered(self, snapshot_id: str) -> Snapshot | None:
        """The list of files if it is in memory: those of small snapshots that were used lately."""
        return self._known.get(snapshot_id)

    def source(
        self,
        replica: str,
        blobs_dir: str | None,
        channel: Channel,
        *,
        direct: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Source:
        """What opens a file with a wanted content; one that neither the store nor the cache has is
        fetched for that replica. `direct`: it lies in a bucket, and so do those after it. Retry as
        soon as nobody wants the replica any more, also in the middle of a file."""
        addresses = Addresses(replica, channel) if direct else None

        def check() -> None:
            if not is_wanted():
                raise Retry("replica_not_started", replica=replica, reason="it is to stop")

        def fetch_past(wanted: Wanted) -> None:
            self._fetch_past(wanted, check)

        def open_content(sha256: str, size: int) -> int:
            check()
            if blobs_dir is not None:
                with suppress(FileNotFoundError):
                    return os.open(f"{blobs_dir}/{sha256[:2]}/{sha256}", _READ)
            cached = self._cached_content(sha256)
            with suppress(FileNotFoundError):
                return _sound(cached, size)
            wanted = Wanted(sha256, size)
            if addresses is not None:
                wanted, ahead = addresses.of(sha256)
                side_by_side(ahead, fetch_past, self._buckets.leave, is_wanted)
                check()
                with suppress(FileNotFoundError):
                    return _sound(cached, size)
            self._fetch(wanted, replica, cached, channel, check)
            with suppress(FileNotFoundError):
                return os.open(cached, _READ)
            self._fetch(
                wanted, replica, cached, channel, check
            )  # it was pruned at that very moment
            return os.open(cached, _READ)

        return open_content

    def place(self, blobs_dir: str | None) -> str:
        """The directory in which contents may lie on this machine, each as `naming` calls it."""
        if blobs_dir is not None:
            return blobs_dir
        own = self._cache / "blobs"
        with suppress(OSError):
            self._make(own)
        return str(own)

    def grew(self, size: int) -> None:
        """So much was added to the cache by somebody else."""
        self._grown += size

    @contextmanager
    def using(self, now: float) -> Iterator[None]:
        """What is used, or fetched, from now on is not deleted before this is left."""
        key = object()
        self._begun[key] = now
        try:
            yield
        finally:
            del self._begun[key]

    def copied(self, contents: Mapping[str, int]) -> None:
        """These have copies elsewhere in the cache: of what is here twice, one goes first."""
        for sha256, size in contents.items():
            if size >= _LARGE:
                with suppress(OSError):
                    os.utime(self._cached_content(sha256), (0, 0))

    def hold_to(self, limit: int | None) -> None:
        """From now on this is the limit; another one than before makes `prune` due."""
        if limit is not None and limit != self._limit:
            self._limit, self._grown = limit, limit + 1

    def is_due(self, now: float) -> bool:
        """Whether `prune` has something to do: much was fetched, or there was too much. Never
        before the limit is known."""
        if self._limit is None:
            return False
        waited = abs(now - self._looked_at) >= self._pause
        return self._grown > self._limit // 10 or (self.crowded and waited)

    def prune(
        self,
        now: float,
        others: Callable[[], Iterable[Kept]] = tuple,
        is_short: Callable[[], bool] = lambda: False,
    ) -> int:
        """Delete what was used longest ago until the rest fits the limit, and for as long as the
        disk `is_short` of space; bytes freed.

        Spares what was used a moment ago: another thread may be about to copy it. `others` lists
        what else lies in the cache and counts; what is in use there does not let itself be deleted.
        `now` is the time of day.
        """
        with self._pruning:
            if not self.is_due(now) and not is_short():
                return 0
            began = time.monotonic()
            self._grown, self._looked_at = 0, now
            found = [*self._files(now), *others()]
            self._pause = max(LOOK_AGAIN, (time.monotonic() - began) / _LOAD)
            limit = self._limit
            surplus = 0 if limit is None else sum(size for _, size, _ in found) - limit
            self.crowded = surplus > 0
            return self._delete(found, surplus, now, is_short)

    def size(self, now: float, others: Callable[[], Iterable[Kept]]) -> int:
        """Bytes of all that could be deleted, in use or not."""
        return sum(size for _, size, _ in (*self._files(now), *others()))

    def _delete(
        self, found: list[Kept], surplus: int, now: float, is_short: Callable[[], bool]
    ) -> int:
        since = min([now - _SPARED_SECONDS, *(at - _CLOCK for at in [*self._begun.values()])])
        freed = 0
        self.spares = False
        for used_at, size, delete in sorted(found, key=lambda kept: kept[:2]):
            if freed >= surplus and not is_short():
                break
            if since < used_at / 1e9 < now + _SPARED_SECONDS:
                self.spares = self.spares or size > 0
                continue
            with suppress(OSError):
                delete()
                freed += size
        return freed

    def _files(self, now: float) -> Iterator[Kept]:
        for kind in ("blobs", "snapshots"):
            for path in (self._cache / kind).rglob("*"):
                with suppress(OSError):
                    found = path.lstat()
                    delete = self._halves.deletion(path) if path.suffix == PART else None
                    young = now - found.st_mtime < _PART_SECONDS
                    if path.suffix == PART and delete is None and young:
                        continue
                    if stat.S_ISREG(found.st_mode):
                        # What has a second name, in a tree, counts there.
                        size = found.st_size if found.st_nlink == 1 else 0
                        yield found.st_mtime_ns, size, delete or path.unlink

    def _cached_content(self, sha256: str) -> Path:
        return self._cache / "blobs" / sha256[:2] / sha256

    def _cached(self, snapshot_id: str) -> Snapshot | None:
        try:
            return _checked(snapshot_id, self._manifest(snapshot_id).read_bytes())
        except (OSError, ValueError, Invalid):
            return None

    def _store(self, snapshot_id: str, text: bytes) -> None:
        """Keep it for the next job; a cache that cannot be written is no reason to fail."""
        path = self._manifest(snapshot_id)
        with suppress(OSError):
            self._make(path.parent)
            half = aside(path)
            try:
                half.write_bytes(text)
                half.replace(path)
            finally:
                half.unlink(missing_ok=True)

    def _remember(self, snapshot: Snapshot) -> None:
        if len(snapshot.entries) > _REMEMBERED_ENTRIES:
            return
        with self._lock:
            self._known.pop(snapshot.id, None)
            self._known[snapshot.id] = snapshot
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]

    def _manifest(self, snapshot_id: str) -> Path:
        return self._cache / "snapshots" / (snapshot_id.replace(":", "-") + ".json")

    def _make(self, directory: Path) -> None:
        self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(parents=True, exist_ok=True)

    def _fetch(
        self,
        wanted: Wanted,
        replica: str,
        target: Path,
        channel: Channel,
        check: Callable[[], None],
    ) -> None:
        """Ask again for what arrives damaged; the owner hears of it if it always does."""
        path = f"/agent/blobs/{wanted.sha256}"

        def through_the_server(start: int, take: Take) -> bool:
            query = {"replica": replica, **({"offset": start} if start else {})}
            channel.call("GET", path, query=query, sink=take)
            return True

        for _ in range(_FETCHES):
            received = self._fetch_once(wanted, target, through_the_server, check)
            if received is None:
                return
        raise Invalid("agent_blob_damaged", sha256=wanted.sha256, received=received)

    def _fetch_past(self, wanted: Wanted, check: Callable[[], None]) -> None:
        """From the bucket, if it can be had there; whatever fails is tried through the server."""
        target = self._cached_content(wanted.sha256)
        if wanted.address and not target.exists():
            with suppress(OSError, Retry):
                self._fetch_once(
                    wanted,
                    target,
                    lambda start, take: self._buckets.fetch(
                        wanted.address, take, wanted.tag, start
                    ),
                    check,
                )

    def _fetch_once(
        self,
        wanted: Wanted,
        target: Path,
        fetch: Fetch,
        check_wanted: Callable[[], None],
    ) -> str | None:
        """None when it is at `target`; else the digest of what arrived instead. What came before
        the line broke for good is kept for the next time."""
        self._make(target.parent)
        half = self._halves.take(wanted, target)
        try:
            whole = half.receive(fetch, check_wanted)
        except OSError:
            half.drop()  # it may be the disk that is full
            raise
        except BaseException:
            self._halves.keep(half)
            raise
        if not whole:
            self._halves.keep(half)
            return half.check.received
        return self._take_in(half, target)

    def _take_in(self, half: Half, target: Path) -> str | None:
        wanted, check = half.wanted, half.check
        try:
            if not check.is_good():
                return check.received
            if not check.is_proven() and not self._came_before(wanted, check.received):
                return check.received
            self._grown += check.size
            half.path.replace(target)
        finally:
            half.drop()
        return None

    def _came_before(self, wanted: Wanted, received: str) -> bool:
        """Whether the last one that was fetched for it was the same."""
        with self._lock:
            before = self._once.pop(wanted.sha256, None)
            if before != received:
                self._once[wanted.sha256] = received
            return before == received


def check_id(snapshot_id: str) -> None:
    """Refuse what is not the id of a snapshot: it becomes part of a path."""
    kind, _, digest = snapshot_id.partition(":")
    if kind != "sha256" or len(digest) != 64 or digest.strip("0123456789abcdef"):
        raise Invalid("agent_snapshot_damaged", snapshot=snapshot_id[:100])


def _entries_of(snapshot_id: str, answer: bytes, channel: Channel) -> bytes:
    """The list in the server's answer, as text. A server keeps it in the form that the id was made
    of, so that it need not be taken apart to be kept and checked."""
    text = answer[len(_BEFORE) : -len(_AFTER)]
    if _id_of(text) == snapshot_id:
        return text
    return json.dumps(channel.parsed(answer).get("entries")).encode()


def _checked(snapshot_id: str, text: bytes) -> Snapshot:
    """The snapshot that this list describes, if it really is the one of that id.

    Rows in the order and the form in which the id was made of them were checked when they were
    submitted; their paths are looked at once more, because they become paths of this machine.
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
            _check_paths(entries)
            return Snapshot(id=snapshot_id, entries=tuple(entries))
        found = snapshot_of(entries)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Invalid("agent_snapshot_damaged", snapshot=snapshot_id) from error
    if found.id != snapshot_id:
        raise Invalid("agent_snapshot_damaged", snapshot=snapshot_id)
    return found


def _id_of(text: bytes) -> str:
    return "sha256:" + hashlib.sha256(text).hexdigest()


def _check_paths(entries: Sequence[Entry]) -> None:
    if not _are_plain([entry.path for entry in entries]):
        for entry in entries:
            check_path(entry.path, below=True)
    for entry in entries:
        if entry.kind is EntryKind.LINK:
            check_path(resolve_link(entry.path, entry.target), below=True)


def _are_plain(paths: Sequence[str]) -> bool:
    """Whether none of these paths needs a further look, as is so for nearly all snapshots. Asked of
    all at once, because one by one it takes a tenth of the time that making the files does."""
    text = "/" + "/\n/".join(paths) + "/"
    return (
        max(map(len, paths), default=0) < _PLAIN_LENGTH
        and text.count("\n") < max(len(paths), 1)
        and text.isascii()
        and not any(part in text for part in _NOT_PLAIN)
    )


def _sound(cached: Path, size: int) -> int:
    """The cached file, open and marked as used. One that a loss of power cut short is deleted and
    counts as not there."""
    fd = os.open(cached, _READ)
    if os.fstat(fd).st_size != size:
        os.close(fd)
        cached.unlink(missing_ok=True)
        raise FileNotFoundError(cached)
    with suppress(OSError):
        os.utime(fd)
    return fd
