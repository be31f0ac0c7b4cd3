"""Group commit: many callers' writes in one transaction, whatever the engine below.

Writes queue up and whoever has the turn commits for all: it takes everything submitted so far, runs
each callable so that its failure is nobody else's, and commits them together, so eight waiting
callers share one wait for the disk. A caller that finds the turn free takes it itself, which spares
an idle server two changes of thread per write; a thread of ours serves what nobody waits for. What
a transaction is, and how one callable's part of it is undone, is the engine's `Writer`.
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
"""Callables in one commit: the first of them waits for the last, so not without end."""
TRIES = 4
"""Times that a group is run in all, when its transaction is lost before the commit."""

log = logging.getLogger(__name__)


class Lost(Exception):
    """The transaction is gone and certainly not committed: its callables may be run again."""

    def __init__(self, error: PaddleCloudError) -> None:
        super().__init__(error.code)
        self.error = error


class Task:
    """One submitted callable with what became of it."""

    __slots__ = ("durable", "error", "future", "notices", "result", "work")

    def __init__(self, work: Callable[[Tx], Any], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.future: Future[Any] = Future()
        self.clear()

    def clear(self) -> None:
        """Forget what became of it: it is run (again)."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.notices: Sequence[Notice] = ()

    def wanted(self) -> bool:
        """False when its caller cancelled it before it began."""
        return self.future.set_running_or_notify_cancel()

    def settle(self) -> None:
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Writer(Protocol):
    """One transaction at a time, used by one thread at a time. Errors are those of our tree."""

    def begin(self, *, durable: bool) -> None:
        """Start a transaction, ending one that was left open; may raise Lost."""

    def run(self, task: Task, *, guarded: bool) -> None:
        """Run a callable and note what became of it; undo its changes if it failed.

        `guarded` says that others in the transaction have to be left unharmed. Raises, or raises
        Lost, only when the whole transaction is gone.
        """

    def commit(self, notices: Sequence[Notice]) -> None:
        """Keep everything, and tell other servers; may raise Lost only if surely nothing is kept"""

    def abandon(self, error: PaddleCloudError) -> None:
        """The transaction failed with this: be ready for the next one. Never raises."""

    def close(self) -> None: ...


class Group:
    """The queue of writes of one database, and the listeners to their wake-ups."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._listeners: tuple[Listener, ...] = ()
        self._queue: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
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
        self._bell.put(True)
        return task.future

    def defer(self, work: Callable[[Tx], T], *, durable: bool) -> Future[T]:
        """Queue a write and ring for nobody: whoever leaves it has to `drain`."""
        return self._enqueue(work, durable).future

    def drain(self, last: Future[Any]) -> None:
        """Commit on this thread until `last` is done, unless somebody is at it: they see to it."""
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
        """Tell every listener, on this thread."""
        for channel, payload in notices:
            for listener in self._listeners:
                try:
                    listener(channel, payload)
                except Exception:  # the write is committed: a listener cannot take it back
                    log.exception("a listener failed on %s %s", channel, payload)

    def close(self) -> bool:
        """Finish what was submitted; False if that was done before."""
        with self.gate:
            if self.closed:
                return False
            self.closed = True
            self._bell.put(False)
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
        """Our own thread: at each ring, commit what is queued, if nobody else is at it."""
        while self._bell.get():
            if self._turn.acquire(blocking=False):
                self._lead()
        self._turn.acquire()
        self._lead()

    def _lead(self, mine: Future[Any] | None = None) -> None:
        """Holding the turn, commit groups until `mine` is done (without one: until none is left).

        The turn is given back before the last look at the queue: who queued earlier is seen by
        that look, who queues later finds the turn free. So no task is left lying.
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
            self._bell.put(True)

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
                self._tell_failed(group or [first], lost.error)
            except PaddleCloudError as error:
                self._writer.abandon(error)
                self._tell_failed(group or [first], error)
            except Exception as error:  # a mistake of ours; nobody may wait for ever because of it
                log.exception("a group of writes failed")
                failed = Retry("database_failed", path="", detail=repr(error))
                self._writer.abandon(failed)
                self._tell_failed(group or [first], failed)
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
        """`first`, then whatever is submitted while the ones before it run: nobody waits for more.

        Those who were answered by the last commit come back just then, so they share this one.
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

    def _tell_failed(self, group: Sequence[Task], error: PaddleCloudError) -> None:
        """The commit failed: nobody's changes were kept, and everybody is told."""
        for task in group:
            task.error = task.error or type(error)(error.code, **error.params)
            task.settle()
