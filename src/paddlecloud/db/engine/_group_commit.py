"""Group commit: the writes of many callers in one transaction, for both engines.

Writes are queued, and one thread at a time leads: it takes everything submitted so far, runs each
callable isolated from the failures of the others, and commits them together, so eight waiting
callers share one disk flush. A caller that finds no leader leads itself, which saves an idle server
two thread switches per write; a background thread leads for `submit`. The engine's `Writer` defines
what a transaction is and how one callable's changes are rolled back.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

from paddlecloud.db.engine.base import Listener, Tx
from paddlecloud.model.errors import PaddleCloudError, Retry

T = TypeVar("T")
Notice = tuple[str, str]

GROUP_LIMIT = 64
"""Callables in one commit; limited because the first waits for the last."""
TRIES = 4
"""Attempts in all to run a group whose transaction is lost before the commit."""

log = logging.getLogger(__name__)


class Lost(Exception):
    """The transaction is gone and was certainly not committed: its callables may be retried."""

    def __init__(self, error: PaddleCloudError) -> None:
        super().__init__(error.code)
        self.error = error


class Task:
    """One submitted callable and its result."""

    __slots__ = ("durable", "error", "future", "notices", "result", "work")

    def __init__(self, work: Callable[[Tx], Any], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.future: Future[Any] = Future()
        self.clear()

    def clear(self) -> None:
        """Reset the result before it is run (again)."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.notices: Sequence[Notice] = ()

    def wanted(self) -> bool:
        """False if its caller cancelled it before it started."""
        return self.future.set_running_or_notify_cancel()

    def settle(self) -> None:
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Writer(Protocol):
    """One transaction at a time, used by one thread at a time. Raises PaddleCloudError only."""

    def begin(self, *, durable: bool) -> None:
        """Start a transaction, rolling back one that was left open; may raise Lost."""

    def run(self, task: Task, *, guarded: bool) -> None:
        """Run a callable and store its result; roll back its changes if it failed.

        `guarded`: the transaction has changes of others, which must stay. Raises (also Lost) only
        if the whole transaction is gone.
        """

    def commit(self, notices: Sequence[Notice]) -> None:
        """Commit and notify other servers; raises Lost only if surely nothing was committed."""

    def abandon(self, error: PaddleCloudError) -> None:
        """Prepare for the next transaction after this one failed. Never raises."""

    def close(self) -> None: ...


class Group:
    """The write queue of one database, and the listeners to its notifications."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._listeners: tuple[Listener, ...] = ()
        self._queue: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._leader = 0
        self._held: Task | None = None
        self.closed = False
        self.gate = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="database-writer", daemon=True)
        self._thread.start()

    def write(self, work: Callable[[Tx], T], *, durable: bool) -> T:
        if self._leader == threading.get_ident():
            raise RuntimeError("a write inside a write or a listener would wait for itself")
        task = self._enqueue(work, durable)
        self.drain(task.future)
        return cast("Future[T]", task.future).result()

    def submit(self, work: Callable[[Tx], T], *, durable: bool) -> Future[T]:
        task = self._enqueue(work, durable)
        self._wakeups.put(True)
        return task.future

    def defer(self, work: Callable[[Tx], T], *, durable: bool) -> Future[T]:
        """Queue a write without waking a thread: the caller has to `drain` it later."""
        return self._enqueue(work, durable).future

    def drain(self, last: Future[Any]) -> None:
        """Commit on this thread until `last` is done; returns at once if another thread leads."""
        if self._turn.acquire(blocking=False):
            self._lead(last)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        with self.gate:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self.gate:
                self._listeners = tuple(it for it in self._listeners if it is not listener)

        return unsubscribe

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Call every listener, on this thread."""
        for channel, payload in notices:
            for listener in self._listeners:
                try:
                    listener(channel, payload)
                except Exception:  # the write is committed: a listener cannot take it back
                    log.exception("a listener failed on %s %s", channel, payload)

    def close(self) -> bool:
        """Finish what was submitted; False if it was closed before."""
        with self.gate:
            if self.closed:
                return False
            self.closed = True
            self._wakeups.put(False)
        self._thread.join()
        self._writer.close()
        return True

    def _enqueue(self, work: Callable[[Tx], Any], durable: bool) -> Task:
        task = Task(work, durable)
        with self.gate:
            if self.closed:
                raise Retry("database_closed")
            self._queue.put(task)
        return task

    def _serve(self) -> None:
        """The background thread: at each wake-up, commit what is queued unless another leads."""
        while self._wakeups.get():
            if self._turn.acquire(blocking=False):
                self._lead()
        self._turn.acquire()
        self._lead()

    def _lead(self, mine: Future[Any] | None = None) -> None:
        """Holding `_turn`, commit groups until `mine` is done (None: until the queue is empty).

        `_turn` is released before the queue is checked for the last time: what was queued earlier
        is found by that check, and a caller that queues later can lead. So no task is left behind.
        """
        self._leader = threading.get_ident()
        try:
            while (first := self._next()) is not None:
                if first.wanted():
                    self._commit_group(first)
                if mine is not None and mine.done():
                    break
        finally:
            self._leader = 0
            self._turn.release()
        if self._held is not None or not self._queue.empty():
            self._wakeups.put(True)

    def _next(self) -> Task | None:
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def _commit_group(self, first: Task) -> None:
        group: list[Task] = []
        arriving = self._arriving(first)
        for left in range(TRIES - 1, -1, -1):
            try:
                notices = self._try_commit(group, arriving, durable=first.durable)
            except Lost as lost:
                self._writer.abandon(lost.error)
                if left:
                    continue
                self._fail(group or [first], lost.error)
            except PaddleCloudError as error:
                self._writer.abandon(error)
                self._fail(group or [first], error)
            except Exception as error:  # a bug; no caller may wait forever because of it
                log.exception("a group of writes failed")
                failed = Retry("database_failed", path="", detail=repr(error))
                self._writer.abandon(failed)
                self._fail(group or [first], failed)
            else:
                self.deliver(notices)
                for task in group:
                    task.settle()
            return

    def _try_commit(
        self, group: list[Task], arriving: Iterator[Task], *, durable: bool
    ) -> list[Notice]:
        """Run and commit what is in `group` already and what arrives; it is added to `group`."""
        self._writer.begin(durable=durable)
        again = len(group)
        for number, task in enumerate(chain(tuple(group), arriving)):
            if number < again:
                task.clear()
            else:
                group.append(task)
            self._writer.run(task, guarded=number > 0)
        notices = list(dict.fromkeys(notice for task in group for notice in task.notices))
        self._writer.commit(notices)
        return notices

    def _arriving(self, first: Task) -> Iterator[Task]:
        """`first`, then what is submitted while the ones before it run, without waiting for more.

        Callers released by the last commit usually write again just then, so they share this one.
        """
        yield first
        for _ in range(GROUP_LIMIT):
            task = self._next()
            if task is None:
                return
            if task.durable and not first.durable:
                self._held = task
                return
            if task.wanted():
                yield task

    def _fail(self, group: Sequence[Task], error: PaddleCloudError) -> None:
        """Report a failed commit, of which nothing was kept, to every caller of the group."""
        for task in group:
            task.error = task.error or type(error)(error.code, **error.params)
            task.settle()
