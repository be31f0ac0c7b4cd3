"""The resume loop of an upload: repeats what is left of it, as long as more arrives.

A request is retried by the transport; this loop is the only one above it. Each attempt asks first
what the server, or the bucket, already has, so only the rest is sent.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from time import sleep

from paddlecloud.model.errors import PaddleCloudError, Retry
from paddlecloud.net.retry import RESUME, Retries, is_transient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[int, int], object]
    """Gets bytes: how many more, and how many there will be in all."""
    Note = Callable[..., None]

#: What was sent is not there after all, or the state of the upload was another one: the next
#: attempt asks for it, without a pause.
UNFINISHED = "upload_unfinished"
_DAMAGED = ("store_damaged", "upload_damaged")
#: The upload is not in the state that the sender believes.
_STALE = frozenset(("blob_digest", "upload_incomplete", "upload_missing"))


def resume(work: Callable[[], object], progress: Progress, note: Note) -> None:
    """Call `work` until it returns; again after a pause when it raises a transient error.

    Gives up after three pauses without progress. Reports "upload_again" before the first pause, and
    "upload_kept" when something arrived and the user can resume later.
    """
    retries = Retries(RESUME)
    while True:
        try:
            work()
            return
        except KeyboardInterrupt:
            if progress.has_begun:
                note("upload_kept")
            raise
        except Retry as error:
            if not is_transient(error) or _is_unknown_bucket(error, progress):
                raise
            if progress.has_grown():
                retries.reset()
            pause, is_silent = retries.next_pause(error), error.code == UNFINISHED
            if pause is None:
                if not is_silent:
                    note("upload_kept")
                raise
            if retries.failed == 1 and not is_silent:
                note("upload_again_damaged" if error.code in _DAMAGED else "upload_again")
        sleep(0.0 if is_silent else pause)


def _is_unknown_bucket(error: Retry, progress: Progress) -> bool:
    """Whether a bucket never answered: its address may be wrong, so it is not waited for."""
    return error.code == "private_store_unreachable" and not progress.has_begun


@contextmanager
def restarted_if_stale(path: str) -> Iterator[None]:
    """Has the resume loop ask again how the upload of this file stands."""
    try:
        yield
    except PaddleCloudError as error:
        if error.code not in _STALE:
            raise
        raise Retry(UNFINISHED, files=1, path=path) from error


class Progress:
    """Bytes of an upload that may be resumed: each is reported once, however often it is sent.
    Safe for several threads, and reports one at a time."""

    def __init__(self, sent: Report | None = None, skipped: Report | None = None) -> None:
        """`skipped` gets the bytes that were there before this upload; `sent`, if it is None."""
        self._lock = Lock()
        self._report_sent = sent
        self._report_skipped = skipped or sent
        self._total = 0
        self._there = 0
        self._most = 0
        self._grown_to = 0

    @property
    def has_begun(self) -> bool:
        return self._total > 0

    def begin(self, left: int) -> None:
        """An attempt begins, with so many bytes left."""
        with self._lock:
            self._total = self._total or left
            self._there = self._total - left

    def add(self, count: int) -> None:
        """So many bytes more were sent; negative: so many have to be sent again; 0: begins."""
        self._add(count, self._report_sent)

    def skip(self, count: int) -> None:
        """So many bytes more were there already."""
        self._add(count, self._report_skipped)

    def has_grown(self) -> bool:
        """Whether more was sent than at any time before this was last called."""
        before, self._grown_to = self._grown_to, self._most
        return self._most > before

    def _add(self, count: int, report: Report | None) -> None:
        with self._lock:
            self._there += count
            news = max(0, self._there - self._most)
            self._most += news
            if report is not None and (news or not count):
                report(news, self._total)
