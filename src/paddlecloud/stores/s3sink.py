"""A file on its way into a bucket: kept until it is a part's worth, then sent part by part.

The caller writes on while parts are sent, until too many bytes are under way. Nothing has the
file's name before `commit`: whatever fails before leaves parts that are dropped, or, if this
process dies, swept.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.stores import s3parts
from paddlecloud.stores.base import Part, Stat

if TYPE_CHECKING:
    from paddlecloud.stores.s3 import S3Store

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
        # Whoever gives up while another thread writes must not take the buffer from under it.
        self._lock = threading.Lock()

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        with self._lock:
            self._check_open()
            if len(self._buffer) + len(data) <= PART:
                self._buffer += data
                return
            view = memoryview(data)
            while view:
                room = self._part_size() - len(self._buffer)
                self._buffer += view[:room]
                view = view[room:]
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
        """The same, done by the store's own threads while the caller goes on."""
        with self._lock:
            self._check_open()
            self._open = False
        try:
            if self._upload:
                stat = self._finish()
            else:
                return self._store.crew.submit(len(self._buffer), self._finish)
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
        """Hand what is kept to the store's threads as the next part."""
        for future in self._sent:
            if future.done():
                future.result()
        store = self._store
        if not self._upload:
            key = store.key(self._path)
            self._upload = s3parts.begin(store.wire, key, store.meta(self._modified))
        data, self._buffer = self._buffer, bytearray()
        self._sent.append(store.crew.submit(len(data), self._put, len(self._sent) + 1, data))

    def _put(self, number: int, data: bytearray) -> Part:
        store, upload = self._store, self._upload
        key = store.key(self._path)
        return s3parts.put_patiently(
            store.wire, key, upload, number, data, wanted=lambda: self._upload == upload
        )

    def _drop(self) -> None:
        """Forget everything; what cannot be dropped now is swept later."""
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
            s3parts.drop(self._store.wire, self._store.key(self._path), upload)
