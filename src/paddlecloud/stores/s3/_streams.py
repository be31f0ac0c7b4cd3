"""Streaming into and out of a bucket: a writer in parts, and a reader that resumes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Conflict, NotFound, PaddleCloudError, Retry, Unreachable
from paddlecloud.net.http1 import Response
from paddlecloud.stores.base import Part, Stat
from paddlecloud.stores.deadline import is_prompt, prompt_if
from paddlecloud.stores.directory.safe_open import shown
from paddlecloud.stores.s3 import _multipart as multipart
from paddlecloud.stores.s3._client import CONNECTION_BROKEN, Request, S3Client

if TYPE_CHECKING:
    from paddlecloud.stores.s3.store import S3Store

PART = 8 * 1024 * 1024

GROWS_AFTER = 1000
"""Parts are twice as large after each so many: 10,000 of them are allowed, 1.5 TB then."""

LARGEST = 256 * 1024 * 1024


class S3Sink:
    def __init__(self, store: S3Store, path: str, modified: datetime | None) -> None:
        self._store, self._path, self._modified = store, path, modified
        self._buffer = bytearray()
        self._upload = ""
        self._sent: list[Future[Part]] = []
        self._open = True
        # An abort must not take the buffer away while another thread writes.
        self._lock = threading.Lock()

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        with self._lock:
            self._check_open()
            if len(self._buffer) + len(data) <= PART:
                self._buffer += data
                return
            view = memoryview(data)
            while view:
                space = self._part_size() - len(self._buffer)
                self._buffer += view[:space]
                view = view[space:]
                if view:
                    self._send()

    def commit(self) -> Stat:
        """Give the file its name."""
        with self._lock:
            self._check_open()
            self._open = False
        try:
            return self._finish()
        except BaseException:
            self._drop()
            raise

    def commit_later(self) -> Future[Stat]:
        """The same, by the threads of the store while the caller continues."""
        with self._lock:
            self._check_open()
            self._open = False
        try:
            if self._upload:
                stat = self._finish()
            else:
                return self._store.workers.submit(len(self._buffer), self._finish)
        except BaseException:
            self._drop()
            raise
        done: Future[Stat] = Future()
        done.set_result(stat)
        return done

    def abort(self) -> None:
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self._drop()

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self.abort()

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the file was committed or aborted")

    def _finish(self) -> Stat:
        if not self._upload:
            return self._store.put(self._path, self._buffer, self._modified)
        self._send()
        parts = [future.result() for future in self._sent]
        self._store.refuse_taken(self._path)
        return self._store.finished(self._path, self._upload, parts)

    def _part_size(self) -> int:
        return min(PART << (len(self._sent) // GROWS_AFTER), LARGEST)

    def _send(self) -> None:
        """Hand the buffer to the threads of the store as the next part."""
        for future in self._sent:
            if future.done():
                future.result()
        store = self._store
        if not self._upload:
            key = store.key(self._path)
            self._upload = multipart.begin(store.client, key, store.meta(self._modified))
        data, self._buffer = self._buffer, bytearray()
        self._sent.append(store.workers.submit(len(data), self._put, len(self._sent) + 1, data))

    def _put(self, number: int, data: bytearray) -> Part:
        store, upload = self._store, self._upload
        key = store.key(self._path)
        return multipart.put_with_retries(
            store.client, key, upload, number, data, wanted=lambda: self._upload == upload
        )

    def _drop(self) -> None:
        """Delete everything; what cannot be deleted now is swept later."""
        self._buffer = bytearray()
        upload, self._upload = self._upload, ""
        if not upload:
            return
        for future in self._sent:
            future.cancel()
        for future in self._sent:
            with suppress(BaseException):
                future.result()
        with suppress(PaddleCloudError):
            multipart.drop(self._store.client, self._store.key(self._path), upload)


TIMES = 5
"""Attempts to reconnect without a byte in between."""

_SKIP = 256 * 1024


class Stream:
    def __init__(
        self, client: S3Client, key: str, path: str, offset: int, length: int | None, tag: str = ""
    ) -> None:
        """Opened at once; NotFound when there is no such object, Conflict when its ETag is not
        `tag`."""
        self._client, self._key, self._path = client, key, path
        self._response: Response | None = None
        self._at = offset
        self._prompt = is_prompt()
        """Whether the caller that opened it waits; other threads may read."""
        self.headers: Mapping[str, str] = {}
        self.size = 0
        """Of the whole object."""
        try:
            self._open_first(length, {"if-match": tag} if tag else {})
        except NotFound:
            raise NotFound("file_missing", path=shown(path)) from None
        except Unreachable as error:
            self._drop()
            if error.code not in CONNECTION_BROKEN:
                raise
            raise client.unreachable(error) from error
        beyond = self.size if length is None else offset + length
        self._end = min(self.size, max(0, beyond))
        self.length = max(0, self._end - offset)
        """Bytes that will come."""

    def read(self, most: int) -> bytes:
        """Some of the next bytes."""
        with prompt_if(self._prompt):
            return self._read(most)

    def close(self) -> None:
        self._drop()

    def _read(self, most: int) -> bytes:
        failure: PaddleCloudError | None = None
        silent = False
        for _ in range(TIMES):
            try:
                data = self._source().read(most)
            except Unreachable as error:
                if error.code not in CONNECTION_BROKEN:
                    raise
                failure = self._client.unreachable(error)
                before, silent = silent, error.code == "server_timeout"
                if self._prompt and silent and before:
                    # One connection may stall; a second one that stalls too is a silent server.
                    self._drop()
                    break
            else:
                if data:
                    self._at += len(data)
                    return data
                detail = "the bytes end early"
                failure = Retry("store_failed", place=self._client.place, detail=detail)
            self._drop()
        assert failure is not None
        raise failure

    def _open_first(self, length: int | None, match: Mapping[str, str]) -> None:
        if length is None or length > 0:
            last = "" if length is None else str(self._at + length - 1)
            wanted = {"range": f"bytes={self._at}-{last}"} if self._at or last else {}
            if (headers := self._open({**wanted, **match})) is not None:
                self.headers, self.size = headers, _whole_size(headers)
                return
        answer = self._client.ask(Request(method="HEAD", key=self._key, headers=match))
        self.headers = answer.headers
        self.size = int(answer.headers.get("content-length", 0))

    def _source(self) -> Response:
        if self._response is None:
            wanted = {"range": f"bytes={self._at}-{self._end - 1}"}
            if "etag" in self.headers:
                wanted["if-match"] = self.headers["etag"]
            try:
                self._open(wanted)
            except (Conflict, NotFound):
                raise Retry("store_changed", path=shown(self._path)) from None
        if self._response is None:
            raise Retry("store_changed", path=shown(self._path))
        return self._response

    def _open(self, wanted: Mapping[str, str]) -> Mapping[str, str] | None:
        """Ask for it; None when the object ends before the range that is wanted. Unreachable when
        the connection breaks before that range begins."""
        request = Request(method="GET", key=self._key, headers=wanted, good=(200, 206, 416))
        response = self._client.begin(request)
        if response.status == 416:
            response.close()
            return None
        self._response = response
        if response.status == 200 and self._at:
            self._skip(response, self._at)
        return response.headers

    def _skip(self, response: Response, count: int) -> None:
        while count and (data := response.read(min(count, _SKIP))):
            count -= len(data)

    def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()


def _whole_size(headers: Mapping[str, str]) -> int:
    """Of the object, from the headers of a response with a part of it."""
    _, slash, total = headers.get("content-range", "").rpartition("/")
    known = slash and total.isascii() and total.isdigit()
    return int(total if known else headers.get("content-length", 0))
