"""The output files of one replica: what changed is sent, what fails is tried again or given up.

Files are sent in passes over the output directories. While the job runs, a pass sends the files
whose size or modification time changed, and of a file that only grew, the rest. When the job is
over, the final passes read every file once more, because a write through a memory map may have left
size and time as they were, and send those whose digest differs. Then the server gets a list of all
files with their digests, and what it does not have is sent again.

There is one clock for everything that fails: when nothing was stored for as long as `retry_limits`
allows for the errors that are left, the rest is given up and kept in `unsent`. A turn ends after
some seconds, so that other replicas get the thread, and the next turn continues the same pass: a
file that fails never comes before those that were not tried yet.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING

from paddlecloud.agent.outputs import _multipart, _send, scan, unsent
from paddlecloud.agent.outputs._large_files import LOAD, LargeFileQueue, Outcome, attempt
from paddlecloud.agent.outputs._send import Bundle
from paddlecloud.agent.outputs.retry_limits import is_store_failure, retry_seconds
from paddlecloud.agent.outputs.sent_files import SentFiles
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import notices
from paddlecloud.agent.sandbox import workspace
from paddlecloud.agent.server_link.channel import Backoff, is_internal_error
from paddlecloud.model.errors import (
    PaddleCloudError,
    Retry,
    StaleFence,
    StorageFull,
    Unauthenticated,
    Unreachable,
)
from paddlecloud.model.protocol.bce_auth import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.outputs._large_files import Sent
    from paddlecloud.agent.outputs.scan import Found
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.agent.work_queue import WorkQueue
    from paddlecloud.transfer.presigned import PresignedConnections
    from paddlecloud.transfer.slots import Slots

    Errors = Mapping[str, OSError | PaddleCloudError]

_LIST_TIMEOUT = 60.0
_LONGEST_BACKOFF = 30.0
#: The last try comes this many seconds after the time limit, not again and again before it.
_SOON = 0.1
#: A server that was not reached for this many seconds is away, and its store is not to blame.
_SERVER_AWAY = 60.0
#: Seconds that a replica has a thread for itself.
_TURN = 5.0
#: After this many CPU seconds a running job pauses, also in the middle of a pass.
_PASS_CPU_SECONDS = 3.0
#: However much work a pass was, the next one starts after this many seconds.
_LONGEST_PAUSE = 60.0
#: A larger file of a running job is sent by another thread, so that small ones do not wait for it.
_LARGE_WHILE_RUNNING = 8 * 1024 * 1024
#: A replica that is over and has a larger file moves to the queue for large files.
_LARGE = 64 * 1024 * 1024


@dataclass(slots=True)
class _FileState:
    """What this agent knows of a file beside what was sent; the next agent finds it out again."""

    changing: bool = False
    """The last pass found it being written, while the job runs."""
    not_before: float = 0.0
    """While the job runs, a file that was much work is left alone until then (monotonic)."""
    error: OSError | PaddleCloudError | None = None
    """Why it is not stored."""
    refused: scan.Mark | None = None
    """In this state it is not tried again before the job is over."""
    read_at_end: bool = False
    """It was read since the job is over: what the server has is final."""
    part_progress: _multipart.PartProgress | None = None
    """Of a large file that is sent in parts."""


class _Pass:
    """One walk over the files. It may take several turns."""

    def __init__(self, tracked: Tracked) -> None:
        self.skipped = scan.Skipped()
        self.files = scan.scan(tracked.root, self.skipped)
        self.names: set[str] = set()
        self.changed = False
        """A file changed while it was sent."""
        self.postponed = False
        """A large file is left to the queue for those."""


class ReplicaOutputs:
    """One thread at a time may call `ship`; another one may call `send_large_file` at the same
    time."""

    def __init__(
        self,
        tracked: Tracked,
        context: Context,
        connections: PresignedConnections,
        slots: Slots,
        large: WorkQueue,
    ) -> None:
        self._tracked = tracked
        self._context = context
        self._connections = connections
        self._slots = slots
        self._large_queue = large
        self._sent = SentFiles(tracked.root)
        self._large_file_queue = LargeFileQueue()
        self._pass: _Pass | None = None
        self._cpu_seconds = 0.0
        """Of the current pass."""
        self.files: dict[str, _FileState] = {}
        self.backoff = Backoff(first=0.1, longest=_LONGEST_BACKOFF)
        self.progress_at = time.monotonic()
        """When something was stored last."""
        self.final = False
        """The job is over, and these are the last passes."""
        self.large = False
        """What is left of a replica that is over may take long."""

    def ship(self, channel: Channel) -> float | None:
        """Send files for one turn; seconds until the next turn, None when all is done."""
        began, cpu = time.monotonic(), time.thread_time()
        try:
            if self._tracked.stage is Stage.OVER and not self.final:
                if not self._large_file_queue.close():
                    return _LONGEST_PAUSE  # the thread that sends a large file ends the pause
                self._begin_final_passes(began)
            while (outcome := self._large_file_queue.next_outcome()) is not None:
                self._settle(outcome)
            finished = self._send_files(channel, until=began + _TURN)
            self._cpu_seconds += time.thread_time() - cpu
            if not finished:
                return self._end_turn(began, channel)
            return self._end_final_pass(channel) if self.final else self._end_pass()
        except (Retry, Unauthenticated) as error:
            self._pass = None
            return self._wait_or_give_up(error, channel)
        finally:
            with suppress(FileNotFoundError):
                try:
                    self._sent.save()
                except OSError as error:
                    self._warn(f"what was sent cannot be noted, it may be sent again: {error}")

    def send_large_file(self, channel: Channel) -> bool:
        """Send the next large file of the running job; False when none waits."""
        found = self._large_file_queue.next_file()
        if found is not None:
            self._large_file_queue.end(
                attempt(found, partial(self._put, found, channel, self._slots))
            )
        return found is not None

    def file(self, name: str) -> _FileState:
        return self.files.setdefault(name, _FileState())

    def _begin_final_passes(self, now: float) -> None:
        while (outcome := self._large_file_queue.next_outcome()) is not None:
            if outcome.error is None:
                self._settle(outcome)
        self._pass = None
        self.final, self.progress_at = True, now
        self.backoff.reset()
        self.files.clear()

    def _send_files(self, channel: Channel, *, until: float) -> bool:
        """Continue the pass; False if it is not at its end when the turn is."""
        self._pass = current = self._pass or _Pass(self._tracked)
        bundle = Bundle()
        finished = True
        for found in current.files:
            if self._tracked.released or self._context.stopping.is_set():
                return False
            current.names.add(found.name)
            if self._is_due(found, current):
                small = found.size <= _send.LARGEST and not self._sent.has(found)
                if not small:
                    self._send(found, channel)
                elif bundle.add(found):
                    self._send_bundle(bundle, channel)
            if time.monotonic() > until:
                finished = False
                break
        self._send_bundle(bundle, channel)
        return finished

    def _is_due(self, found: Found, current: _Pass) -> bool:
        """Whether to send this file now, or to compare it with what was sent."""
        state = self.file(found.name)
        if self._is_sent(found):
            state.changing = False
            return False
        if state.refused == found.mark or self._large_file_queue.has(found.name):
            return False
        if self.final:
            if found.size >= _LARGE and not self.large:
                self.large = current.postponed = True
                return False
            return True
        now = time.time()
        is_settled = scan.is_settled(found, now=now, was_changing=state.changing)
        state.changing = not scan.is_settled(found, now=now, was_changing=False)
        if not is_settled or time.monotonic() < state.not_before:
            return False
        if found.size >= _LARGE_WHILE_RUNNING:
            if self._large_file_queue.add(found):
                self._large_queue.put(self._tracked)
            return False
        return True

    def _is_sent(self, found: Found) -> bool:
        return self._sent.has(found) and (not self.final or self.file(found.name).read_at_end)

    def _send_bundle(self, bundle: Bundle, channel: Channel) -> None:
        """Send small files in one request, and those by themselves that it did not bring."""
        files = bundle.take()
        sent: dict[str, tuple[Found, str]] = {}
        try:
            if len(files) > 1:
                sent = _send.send(self._tracked, files, channel)
        except PaddleCloudError as error:
            # The error may be about one of the files; but an absent server is absent for all.
            if isinstance(error, Unreachable) and not is_internal_error(error):
                raise
        for each in sent.values():
            self._settle(Outcome(found=each[0], sent=each, error=None, not_before=0.0))
        for found in files:
            if found.name not in sent:
                self._send(found, channel)

    def _send(self, found: Found, channel: Channel) -> None:
        slots = self._slots if self.large else None
        self._settle(attempt(found, partial(self._put, found, channel, slots)))

    def _put(self, found: Found, channel: Channel, slots: Slots | None) -> Sent:
        """Send one file: nothing if the server has it, the rest if it grew, in parts if it is
        large. `slots` bounds what is in memory where many files are sent at once."""
        tracked = self._tracked
        file = scan.open_inside(found, tracked.root)
        if file is None:
            return found, ""
        with file:
            scan.refuse_sparse(found, file)
            now = scan.refreshed(found, file)
            known, prefix = self._sent.sha256(now), self._sent.prefix(now)
            digest = _send.same(now, file, known) if known else None
            if prefix is not None:
                digest = _send.put_growth(tracked, now, file, prefix, channel, slots)
            if digest is None and now.size >= _multipart.least(tracked):
                digest = self._put_parts(now, file, channel, slots)
                if digest is None and scan.refreshed(now, file).mark != now.mark:
                    return None
            if digest is None:
                digest = _send.put_whole(tracked, now, file, channel)
        return None if digest is None else (now, digest)

    def _put_parts(
        self, found: Found, file: IO[bytes], channel: Channel, slots: Slots | None
    ) -> str | None:
        """The digest of the file if it went in parts; None when it has to be sent whole."""
        state = self.file(found.name)
        state.part_progress = progress = state.part_progress or _multipart.PartProgress()
        args = (self._tracked, found, file, channel, self._connections, slots, progress)
        digest = _multipart.put(*args)
        state.part_progress = None
        return digest

    def _settle(self, outcome: Outcome) -> None:
        """Note how sending a file ended. Raises an error that concerns all files alike."""
        found, state = outcome.found, self.file(outcome.found.name)
        try:
            sent = outcome.result()
        except (OSError, PaddleCloudError) as error:
            if is_store_failure(error) and not isinstance(error, StorageFull):
                raise
            state.error, state.not_before = error, outcome.not_before
            for_good = not retry_seconds(error, None)
            if for_good or (isinstance(error, OSError) and not self.final):
                state.refused = found.mark
                self._warn(f"{found.name} is not sent: {error}")
            return
        self.progress_at = time.monotonic()
        self.files[found.name] = _FileState(
            changing=state.changing, not_before=outcome.not_before, read_at_end=self.final
        )
        if sent is not None:
            self._sent.add(*sent)
        elif self._pass is not None:
            self._pass.changed = True

    def _end_turn(self, began: float, channel: Channel) -> float | None:
        """The pass goes on in the next turn: at once, unless the store took nothing in this one."""
        errors = (state.error for state in self.files.values())
        full = next((error for error in errors if isinstance(error, StorageFull)), None)
        if full is not None and self.progress_at <= began:
            return self._wait_or_give_up(full, channel)
        if self.final:
            self.large = True
            return 0.0
        return 0.0 if self._cpu_seconds < _PASS_CPU_SECONDS else self._pause_by_cpu()

    def _end_pass(self) -> float:
        """Of a running job; seconds until the next."""
        assert self._pass is not None
        current, self._pass = self._pass, None
        known = list(self.files.items())  # the thread of a large file may add one at any moment
        self.files = {name: state for name, state in known if name in current.names}
        self.backoff.reset()
        own_bucket = self._tracked.own_bucket
        for name, error in self._errors().items():
            if isinstance(error, StorageFull) or (own_bucket and not is_internal_error(error)):
                self._hold(scan.unreadable(name, error))
                break
        else:
            self._tracked.held = None
            if self._tracked.held_known:
                self._context.wake_reporter()
        return self._pause_by_cpu()

    def _pause_by_cpu(self) -> float:
        cpu, self._cpu_seconds = self._cpu_seconds, 0.0
        return max(self._context.ship_interval, min(cpu / LOAD, _LONGEST_PAUSE))

    def _end_final_pass(self, channel: Channel) -> float | None:
        assert self._pass is not None
        current, self._pass = self._pass, None
        if current.postponed:
            return 0.0
        errors = {n: error for n, error in self._errors().items() if n in current.names}
        errors |= current.skipped.unreadable
        for name, error in errors.items():
            if self._may_retry(error):
                return self._wait(scan.unreadable(name, error))
        if current.changed:
            return self._next_pause()
        failed = next((e for e in errors.values() if isinstance(e, StorageFull)), None)
        if failed is not None:
            self._give_up(failed, channel)
            return None
        if not self._confirm(channel):
            return self._next_pause()
        self._finish(errors, current.skipped, lost=False)
        return None

    def _errors(self) -> dict[str, OSError | PaddleCloudError]:
        """Why each file is not stored that is not."""
        found = ((name, state.error) for name, state in list(self.files.items()))
        return {name: error for name, error in found if error is not None}

    def _wait_or_give_up(self, error: PaddleCloudError, channel: Channel) -> float | None:
        if not self.final or self._may_retry(error):
            return self._wait(error)
        self._give_up(error, channel)
        return None

    def _give_up(self, error: PaddleCloudError, channel: Channel) -> None:
        """Send no more: confirm what the server has, and keep the rest here."""
        try:
            # What the server misses cannot be sent any more: the second list is without it.
            _ = self._confirm(channel) or self._confirm(channel)
        except (Retry, Unauthenticated) as trouble:
            self._warn(f"its files cannot be listed: {trouble}")
        skipped = scan.Skipped()
        files = scan.scan(self._tracked.root, skipped)
        names = [found.name for found in files if not self._is_sent(found)]
        errors = {name: self.file(name).error or error for name in names}
        self._finish({**errors, **skipped.unreadable}, skipped, lost=is_store_failure(error))

    def _may_retry(self, error: OSError | PaddleCloudError) -> bool:
        """Whether something that fails with this error may still be stored in time."""
        now, timeout = time.monotonic(), self._tracked.store_timeout
        if timeout is not None and self._context.link.away_for(now) > min(
            _SERVER_AWAY, timeout / 2
        ):
            self.progress_at = now
        return now - self._last_progress() < retry_seconds(error, timeout)

    def _last_progress(self) -> float:
        """When a file, or a part of one, was stored last."""
        parted = (state.part_progress for state in list(self.files.values()))
        return max([self.progress_at, *(one.moved_at for one in parted if one is not None)])

    def _wait(self, error: PaddleCloudError) -> float:
        """Report what holds the replica up; seconds until the next try."""
        pause = self._next_pause()
        self._hold(error)
        if isinstance(error, Unauthenticated):
            self._context.link.renew_keys()
        if isinstance(error, StorageFull) or pause >= 1.0:
            self._warn(f"its outputs wait, next try in {pause:g} s: {error}")
        if isinstance(error, StorageFull) and self.final:
            # Its disk may be the server's own, and nothing needs its working files any more.
            workspace.clear(self._tracked.root)
        return pause

    def _next_pause(self) -> float:
        """Seconds before the next try; the last one comes when the time is over."""
        pause, timeout = self.backoff.next(), self._tracked.store_timeout
        if not self.final or timeout is None:
            return pause
        left = self._last_progress() + timeout - time.monotonic()
        return min(pause, max(left, _SOON))

    def _hold(self, error: PaddleCloudError) -> None:
        held = notices.from_error(error)
        if self._tracked.alive:
            held["runs"] = True
        self._tracked.hold(held, now=time.monotonic())
        self._context.wake_reporter()

    def _confirm(self, channel: Channel) -> bool:
        """Send the list of all files with their digests; whether the server has them all."""
        rows = self._sent.rows()
        if not rows:
            return True
        path = f"/agent/replicas/{quote(self._tracked.id)}/listing"
        query = {"fence": self._tracked.fence}
        try:
            answer = channel.json("POST", path, {"files": rows}, query, _LIST_TIMEOUT)
        except (Retry, Unauthenticated):
            raise
        except PaddleCloudError as error:
            self._warn(f"its files cannot be listed: {error}")
            return True
        missing = answer.get("missing", [])
        for name in missing:
            self._warn(f"the server misses {name}")
            self._sent.remove(name)
        return not missing

    def _finish(self, errors: Errors, skipped: scan.Skipped, *, lost: bool) -> None:
        """All is stored but the files of `errors`, which are kept here and named in the end of the
        replica. Files of an attempt that no longer counts are not: the server has no use for them.
        """
        tracked = self._tracked
        names = {
            "output_links_outside": skipped.outside,
            "output_no_files": skipped.special,
            "output_names_bytes": skipped.renamed,
        }
        lines = "".join(notices.output_lines(code, tracked.id, names[code]) for code in names)
        try:
            if lines:
                notices.append_once(tracked.root, lines)
        except OSError as error:
            self._warn(f"its skipped files cannot be named in its log: {error}")
        unsent_files = {
            name: scan.unreadable(name, error)
            for name, error in errors.items()
            if not isinstance(error, StaleFence)
        }
        if unsent_files:
            lost = lost or tracked.own_bucket
            unsent.keep(tracked, unsent_files, self._context, lost=lost)

    def _warn(self, text: str) -> None:
        self._context.log.warning(text, self._tracked.id)
