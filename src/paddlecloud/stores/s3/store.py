"""The S3 store, for AWS, the S3 endpoint of BOS, MinIO, SeaweedFS and others.

A small file is one PUT; a larger one is a multipart upload while it is written. This module adds
what S3 lacks: our own modification times (in metadata, so a listing has the time of the upload),
paths with arbitrary bytes, the order of paths, and that a name is either a file or a directory (two
servers that create both at the same moment are not detected).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, cast
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element

from paddlecloud.model.errors import ConfigError, Conflict, NotFound, Refused, Retry
from paddlecloud.model.files.snapshot import is_digest
from paddlecloud.net.proxy import DIRECT, Proxies
from paddlecloud.stores.base import Part, Reader, Stat, check_whole, pour
from paddlecloud.stores.directory.safe_open import shown, split
from paddlecloud.stores.s3 import _multipart as multipart
from paddlecloud.stores.s3._client import Clock, Request, S3Client, http_time
from paddlecloud.stores.s3._errors import TRIES
from paddlecloud.stores.s3._keys import name_of, path_of, stem
from paddlecloud.stores.s3._streams import S3Sink, Stream
from paddlecloud.stores.s3._workers import WorkerPool
from paddlecloud.stores.s3.sigv4 import Keys

WORKERS = 16
"""Concurrent requests of one store, besides those on the threads of its callers."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes in progress: eight parts, some of which are still being hashed."""
MTIME = "x-amz-meta-mtime"
"""Seconds since 1970, as rclone writes it too."""
PROBE = ".paddlecloud-probe"
"""Name of the empty file that is written and deleted to check the keys."""
_FEW = 3
"""Up to so many files of one directory are requested one by one; else the directory is listed."""
_KNOWN = 10_000
_LIST = "ListBucketResult"


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket and the keys to it."""

    endpoint: str
    bucket: str
    keys: Keys
    region: str = ""
    """Region of the signatures; empty: us-east-1."""
    prefix: str = ""
    """Empty: the whole bucket."""
    path_style: bool = True
    """Whether the bucket is in the path of a URL, or in the host name."""
    proxies: Proxies = DIRECT


def create(settings: Mapping[str, object]) -> S3Store:
    """`open_bucket` from a mapping of settings."""
    known = {name: value for name, value in settings.items() if value not in (None, "")}
    keys = Keys(
        access_key=str(known.pop("access_key", "")),
        secret_key=str(known.pop("secret_key", "")),
        session_token=str(known.pop("session_token", "")),
    )
    where = {"endpoint": "", "bucket": "", **known}
    return open_bucket(Bucket(**cast("dict[str, Any]", where), keys=keys))


def open_bucket(bucket: Bucket) -> S3Store:
    """Open the store in this bucket, below its `prefix`, without a request."""
    needed = {
        "endpoint": bucket.endpoint,
        "bucket": bucket.bucket,
        "access_key": bucket.keys.access_key,
        "secret_key": bucket.keys.secret_key,
    }
    for name, value in needed.items():
        if not value:
            raise ConfigError("store_setting_missing", kind="s3", setting=name)
    client = S3Client(
        bucket.endpoint,
        bucket.bucket,
        bucket.keys,
        region=bucket.region or "us-east-1",
        path_style=bucket.path_style,
        clock=_utc_now,
        proxies=bucket.proxies,
    )
    return S3Store(client, prefix=bucket.prefix)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class S3Store:
    def __init__(self, client: S3Client, *, prefix: str = "", clock: Clock = _utc_now) -> None:
        self.client = client
        self._clock = clock
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        if self._prefix:
            split(prefix.strip("/"))
        self.page = 1000
        """Keys per page of a listing, the maximum of S3."""
        self.workers = WorkerPool(workers=WORKERS, max_bytes=MAX_BYTES)
        self._directories: set[str] = set()
        """Paths that had files below them when they were last checked."""
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Name of the bucket in messages."""
        return self.client.place

    def probe(self) -> None:
        """List one name; raises if keys, bucket or connection are wrong."""
        self._page(self._prefix, 1, None, tries=2)

    def try_keys(self) -> None:
        """`probe`, and write, stat and delete an empty file to check the permissions."""
        self.probe()
        self.write(PROBE, [])
        try:
            self.stat(PROBE)
        finally:
            self.delete(PROBE)

    def is_file(self) -> bool:
        """Whether the prefix of this store is a file; False without permission to check it."""
        if not self._prefix:
            return False
        try:
            name = name_of(self._prefix.rstrip("/"))
            self.client.ask(Request(method="HEAD", key=name, tries=2))
        except (NotFound, Refused):
            return False
        return True

    def list(self, prefix: str = "") -> Iterator[Stat]:
        above = prefix.rpartition("/")[0]
        if above:
            split(above)
        rows = self.listed(prefix)
        first = len(above) + 1 if above else 0
        # Not every server sorts by whole names; within one stem both orders have the same files.
        groups = groupby(rows, key=lambda row: stem(row.path[first:]))
        return (row for _, group in groups for row in sorted(group, key=lambda row: row.path))

    def listed(self, prefix: str = "") -> Iterator[Stat]:
        """Like `list`, in the order of the server."""
        token: str | None = None
        while True:
            rows, token = self._page(self._prefix + prefix, self.page, token)
            yield from rows
            if token is None:
                return

    def listed_at_once(self) -> Sequence[Stat] | None:
        """Every file, if one page has them all; else None."""
        rows, token = self._page(self._prefix, self.page, None)
        return rows if token is None else None

    def level(self, directory: str = "") -> Iterator[Stat | str]:
        """The files directly in a directory ("" or ending with a slash), and the paths of its
        subdirectories, ending with a slash. Not recursive."""
        token: str | None = None
        while True:
            query = _page_query(self._prefix + directory, self.page, token)
            answer = self.client.ask(Request(method="GET", query=(*query, ("delimiter", "/"))))
            top = answer.xml(_LIST)
            rows, token = self._rows(top)
            yield from rows
            yield from self._directories_in(top)
            if token is None:
                return

    def stat(self, path: str) -> Stat | None:
        key = self.key(path)
        try:
            answer = self.client.ask(Request(method="HEAD", key=key))
        except NotFound:
            return None
        return _stat(path, answer.headers, int(answer.headers.get("content-length", 0)))

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        return {path: stat.size for path, stat in self.stats(paths).items()}

    def stats(self, paths: Iterable[str]) -> dict[str, Stat]:
        by_parent: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            split(path)
            by_parent.setdefault(path.rpartition("/")[0], []).append(path)
        work = []
        for parent, siblings in by_parent.items():
            if len(siblings) > _FEW and parent:
                work.append(self.workers.submit(0, self._stats_in, parent, siblings))
            else:
                work += [self.workers.submit(0, self._stat_of, path) for path in siblings]
        found: dict[str, Stat] = {}
        for future in work:
            found.update(future.result())
        return found

    def read(
        self, path: str, offset: int = 0, length: int | None = None, *, tag: str = ""
    ) -> Reader:
        """`tag`: Conflict if the ETag of the file is another."""
        stream = Stream(self.client, self.key(path), path, offset, length, tag)
        stat = _stat(path, stream.headers, stream.size)
        return Reader(stat, stream.length, stream.read, stream.close)

    def write(
        self, path: str, chunks: Iterable[bytes], *, modified: datetime | None = None
    ) -> Stat:
        return pour(self.open_write(path, modified=modified), chunks)

    def open_write(self, path: str, *, modified: datetime | None = None) -> S3Sink:
        self.key(path)
        return S3Sink(self, path, modified)

    def delete(self, path: str) -> None:
        try:
            self.client.ask(Request(method="DELETE", key=self.key(path)))
        except NotFound:
            return

    def delete_tree(self, path: str) -> int:
        file = self.stat(path)
        doomed = [*([file] if file else []), *self.listed(f"{path}/")]
        for future in [self.workers.submit(0, self.delete, stat.path) for stat in doomed]:
            future.result()
        return sum(stat.size for stat in doomed)

    def flush(self) -> None:
        """Does nothing: a server acknowledges only what is durable."""

    def sweep(self, before: datetime, below: str = "") -> int:
        """Abort unfinished multipart uploads without a part since `before`; returns how many.

        `below`: only those of paths with this prefix.
        """
        return multipart.drop_old(self.client, self._prefix + below, before)

    def begin_parts(self, path: str, *, part_size: int, modified: datetime | None = None) -> str:
        return multipart.begin(self.client, self.key(path), self.meta(modified))

    def put_part(self, path: str, upload: str, number: int, data: bytes | bytearray) -> Part:
        return multipart.put(self.client, self.key(path), upload, number, data)

    def parts(self, path: str, upload: str) -> Sequence[Part]:
        return multipart.listed(self.client, self.key(path), upload)

    def finish_parts(self, path: str, upload: str, *, size: int) -> Stat:
        found = self.parts(path, upload)
        check_whole(found, size)
        self.refuse_taken(path)
        return self.finished(path, upload, found)

    def drop_parts(self, path: str, upload: str) -> None:
        multipart.drop(self.client, self.key(path), upload)

    def presign_read(self, path: str, *, good_for: timedelta, now: datetime) -> str:
        return self.client.url("GET", self.key(path), (), good_for, now)

    def presign_write(self, path: str, *, good_for: timedelta, now: datetime) -> str:
        """A presigned URL to PUT this whole file to."""
        return self.client.url("PUT", self.key(path), (), good_for, now)

    def presign_part(
        self, path: str, upload: str, number: int, *, good_for: timedelta, now: datetime
    ) -> str:
        query = multipart.part_query(upload, number)
        return self.client.url("PUT", self.key(path), query, good_for, now)

    def close(self) -> None:
        """Close threads and connections; the store cannot be used afterwards."""
        self.workers.close()
        self.client.close()

    # -- what the sink needs -------------------------------------------------------------------

    def key(self, path: str) -> str:
        """The object key of this path, checked."""
        split(path)
        return name_of(self._prefix + path)

    def meta(self, modified: datetime | None) -> dict[str, str]:
        return {} if modified is None else {MTIME: f"{modified.timestamp():.9f}"}

    def put(self, path: str, data: bytearray, modified: datetime | None) -> Stat:
        """Store a whole file with one request."""
        self.refuse_taken(path)
        headers = self.meta(modified)
        self.client.ask(Request(method="PUT", key=self.key(path), body=data, headers=headers))
        return Stat(path=path, size=len(data), modified=modified or self._clock())

    def finished(self, path: str, upload: str, parts: Iterable[Part]) -> Stat:
        """Join the parts to the file."""
        joined = list(parts)
        try:
            multipart.finish(self.client, self.key(path), upload, joined)
        except NotFound:
            # The response to an earlier attempt was lost: the file exists and the upload does not.
            stat = self.stat(path)
            if stat is None or stat.size != sum(part.size for part in joined):
                raise
        found = self.stat(path)
        if found is None:
            raise Retry("store_failed", place=self.place, detail="a joined file is missing")
        return found

    def refuse_taken(self, path: str) -> None:
        """Conflict if a parent of this path is a file, or if it has files below it."""
        names = path.split("/")
        above = ["/".join(names[:depth]) for depth in range(1, len(names))]
        with self._lock:
            self._directories.discard(path)
            unknown = [directory for directory in above if directory not in self._directories]
        if any(self.stat(directory) is not None for directory in unknown):
            raise Conflict("store_path_taken", path=shown(path))
        # A blob has nothing below it: that saves every second request.
        if not is_digest(names[-1]) and self._page(self._prefix + path + "/", 1, None)[0]:
            raise Conflict("store_path_taken", path=shown(path))
        with self._lock:
            if len(self._directories) > _KNOWN:
                self._directories.clear()
            self._directories.update(above)

    # -- helpers -------------------------------------------------------------------------------

    def _page(
        self, prefix: str, most: int, token: str | None, tries: int = TRIES
    ) -> tuple[Sequence[Stat], str | None]:
        query = _page_query(prefix, most, token)
        answer = self.client.ask(Request(method="GET", query=query, tries=tries))
        return self._rows(answer.xml(_LIST))

    def _rows(self, top: Element) -> tuple[Sequence[Stat], str | None]:
        rows = []
        for item in top.iter("Contents"):
            path = _path(top, item.findtext("Key"))
            if path.startswith(self._prefix) and not path.endswith("/"):
                modified = datetime.fromisoformat(item.findtext("LastModified") or "")
                size, tag = int(item.findtext("Size") or 0), item.findtext("ETag") or ""
                below = path[len(self._prefix) :]
                rows.append(Stat(path=below, size=size, modified=modified, tag=tag))
        more = top.findtext("IsTruncated") == "true"
        return rows, top.findtext("NextContinuationToken") if more else None

    def _directories_in(self, top: Element) -> Sequence[str]:
        found = [_path(top, item.findtext("Prefix")) for item in top.iter("CommonPrefixes")]
        return [path[len(self._prefix) :] for path in found if path.startswith(self._prefix)]

    def _stat_of(self, path: str) -> dict[str, Stat]:
        found = self.stat(path)
        return {path: found} if found else {}

    def _stats_in(self, parent: str, siblings: Iterable[str]) -> dict[str, Stat]:
        wanted = set(siblings)
        return {row.path: row for row in self.listed(f"{parent}/") if row.path in wanted}


def _page_query(prefix: str, most: int, token: str | None) -> tuple[tuple[str, str], ...]:
    query = (
        ("list-type", "2"),
        ("max-keys", str(most)),
        ("encoding-type", "url"),
        ("prefix", name_of(prefix)),
    )
    return query if token is None else (*query, ("continuation-token", token))


def _path(top: Element, key: str | None) -> str:
    """The path of a key or prefix in a listing."""
    quoted = top.findtext("EncodingType") == "url"
    return path_of(unquote_plus(key or "") if quoted else key or "")


def _stat(path: str, headers: Mapping[str, str], size: int) -> Stat:
    modified = http_time(headers.get("last-modified", "")) or datetime.fromtimestamp(0, UTC)
    with suppress(KeyError, ValueError, OverflowError):
        modified = datetime.fromtimestamp(float(headers[MTIME]), UTC)
    return Stat(path=path, size=size, modified=modified, tag=headers.get("etag", ""))
