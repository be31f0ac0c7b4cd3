"""Digests of uploads that are being verified.

A file of many gigabytes is not read within one request: the caller is answered "not yet", asks
again, and finds the digest that is under way. After a restart it is taken from the beginning.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from paddlecloud.stores.deadline import be_prompt

WAIT = 15.0
"""Seconds after which a caller is answered."""
_KEPT = 256
"""Digests in memory; beyond that those are dropped that are done and not asked for."""
_THREADS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="verify", initializer=be_prompt)


class Verifications:
    """By the name of an upload. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digests: dict[str, Future[str]] = {}

    def sha256(self, upload: str, chunks: Callable[[], Iterable[bytes]]) -> str | None:
        """The digest of an upload, whose bytes `chunks` gives; None: it is not done yet, or a part
        was replaced while it was read."""
        with self._lock:
            if len(self._digests) > _KEPT:
                self._digests = {k: v for k, v in self._digests.items() if not v.done()}
            future = self._digests.get(upload)
            if future is None:
                future = self._digests[upload] = _THREADS.submit(_sha256, chunks)
        try:
            digest = future.result(WAIT)
        except TimeoutError:
            return None
        finally:
            with self._lock:
                is_current = self._digests.get(upload) is future
                if is_current and future.done():
                    del self._digests[upload]
        return digest if is_current else None

    def drop(self, upload: str) -> None:
        """What was read of this upload counts no more."""
        with self._lock:
            self._digests.pop(upload, None)


def _sha256(chunks: Callable[[], Iterable[bytes]]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks():
        digest.update(chunk)
    return digest.hexdigest()
