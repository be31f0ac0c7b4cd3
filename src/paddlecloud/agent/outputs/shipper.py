"""Brings output files to the server, while the job runs and at its end.

While it runs, what changed is sent every `ship_interval` seconds, and once a minute when that is
much work; of a file that only grew, what it grew by. At the end everything is sent before the end
is reported, however long the server is away. A store that takes nothing, the server's or its
owner's own bucket, is waited for as long as the server says (hours, and seconds for a job that was
killed); what it did not take by then is kept here (`agent.outputs.unsent`), and so is a file about
which the server makes a mistake again and again. One that finds no room holds up no other. What
waits is told. A file that may have changed without a trace (`agent.outputs.scan`) is read once more
in the end. Last comes a list of all files with their digests, and what the server does not have as
it says is sent once more. A larger file goes in parts (`agent.outputs.multipart`), of a job whose
outputs lie in a bucket past the server.

There are four lanes with threads of their own, so that a job with one small file does not wait for
those with hours to send: replicas that run; their large files (`agent.outputs.large_files`);
replicas that are over, with what is soon sent; and the rest of these. In each a replica makes room
for the next one after some seconds, between two files. One large file may take hours, and it cannot
be put aside: so the last lane has more threads, and the large files of several replicas are on
their way at once. Of what they have in memory there is no more for that.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import IO, TYPE_CHECKING

from paddlecloud.agent.inputs.presigned import Buckets
from paddlecloud.agent.outputs import multipart, scan, send, unsent
from paddlecloud.agent.outputs.large_files import LOAD, Outcome, tried
from paddlecloud.agent.outputs.send import Bundle
from paddlecloud.agent.outputs.state import Shipment
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import notices
from paddlecloud.agent.sandbox import workspace
from paddlecloud.agent.server_link.channel import is_stumble
from paddlecloud.agent.work_queue import Turns
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
    from collections.abc import Callable

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.outputs.large_files import Sent
    from paddlecloud.agent.outputs.scan import Found
    from paddlecloud.agent.outputs.state import File
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel

_TIMEOUT = 60.0
#: A last try may be a little late, but not again and again.
_SOON = 0.1
#: A server that was not heard of for this many seconds is away: it is asked for orders more often.
_SERVER_AWAY = 60.0
#: So many times a file is sent about which the server makes a mistake: that is ten minutes.
_MOST_STUMBLES = 30
#: For so many seconds a replica has a thread for itself.
_TURN = 5.0
#: After so many seconds of work a running job has sent enough for now, whatever is left.
_ROUND = 3.0
#: However much work it was, so many seconds later the files of a running job are looked at again.
_LONGEST_PAUSE = 60.0
#: A larger file of a running job does not hold up its small ones.
_ASIDE = 8 * 1024 * 1024
#: A larger file of a replica that is over is left to the lane in which they may take long.
_LARGE = 64 * 1024 * 1024
_THREADS = 2
"""In each lane but those for large files."""
_ASIDE_THREADS = 4
_LARGE_THREADS = 8
_LARGE_PARTS = 2
"""Of large files, in memory at a time."""
_LISTING = ""


class Shippers:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._running, self._aside = Turns(), Turns()
        self._ended, self._large = Turns(), Turns()
        self._lock = threading.Lock()
        """Guards who is at a replica."""
        self._shipments: dict[str, Shipment] = {}
        self._buckets = Buckets()
        self._room = multipart.Room(_LARGE_PARTS)

    def follow(self, tracked: Tracked) -> None:
        """Send what it puts out from time to time while it runs."""
        if tracked.stage is Stage.LAUNCHED:
            self._running.put(tracked, time.monotonic() + self._site.ship_interval)

    def finish(self, tracked: Tracked) -> None:
        """It is over: send the rest, then let the reporter tell its end.

        With nothing to send that is true at once; the caller wakes the reporter if it is another.
        """
        if tracked.id in self._shipments or scan.anything(tracked.root):
            tracked.hold(notices.of("held_sending"), now=time.monotonic())
            self._lane(tracked).put(tracked)
        else:
            tracked.shipped = True

    def hurry(self, tracked: Tracked | None = None) -> None:
        """Try at once what waits: the server is back, or this one is asked to end."""
        with self._lock:
            if tracked is not None and tracked.shipping:
                tracked.ship_again = True
            for lane in self._lanes():
                lane.hurry(tracked)

    def close(self) -> None:
        """Let the threads end."""
        for lane in self._lanes():
            lane.close()

    def bodies(self) -> list[Callable[[], None]]:
        """The body of each thread."""
        return [
            partial(self._work, lane) for lane in self._lanes() for _ in range(self._most(lane))
        ]

    def _work(self, lane: Turns) -> None:
        channel = self._site.link.channel()
        turn = self._turn_aside if lane is self._aside else self._turn
        self._site.guarded("a shipper", lambda: turn(lane, channel))

    def _most(self, lane: Turns) -> int:
        return {self._large: _LARGE_THREADS, self._aside: _ASIDE_THREADS}.get(lane, _THREADS)

    def _lanes(self) -> tuple[Turns, ...]:
        return self._ended, self._large, self._running, self._aside

    def _lane(self, tracked: Tracked) -> Turns:
        if tracked.stage is not Stage.OVER:
            return self._running
        shipment = self._shipments.get(tracked.id)
        return self._large if shipment is not None and shipment.large else self._ended

    def _done(self, tracked: Tracked) -> None:
        self._shipments.pop(tracked.id, None)
        tracked.held = None
        tracked.shipped = True
        self._site.wake_reporter()

    def _turn(self, lane: Turns, channel: Channel) -> None:
        tracked = lane.take()
        if tracked is None:
            return
        if self._lane(tracked) is not lane:
            # It came to its end while it waited here.
            self._lane(tracked).put(tracked)
            return
        if not self._begin(tracked):
            return
        pause: float | None = 1.0
        try:
            pause = self._ship(tracked, channel)
        finally:
            # Also after an error nobody expected: an end that is never shipped is never told.
            with self._lock:
                tracked.shipping = False
                again, tracked.ship_again = tracked.ship_again, False
                if pause is not None:
                    due = time.monotonic() + (0.0 if again else pause)
                    self._lane(tracked).put(tracked, due)

    def _turn_aside(self, lane: Turns, channel: Channel) -> None:
        """One large file of a replica that runs; its next one is behind those of others."""
        tracked = lane.take()
        shipment = None if tracked is None else self._shipments.get(tracked.id)
        found = None if shipment is None else shipment.aside.next()
        if tracked is None or shipment is None or found is None:
            return
        put = partial(self._put_file, shipment, found, channel, self._room)
        shipment.aside.end(tried(found, put))
        lane.put(tracked)
        if tracked.stage is Stage.OVER:
            self.hurry(tracked)

    def _begin(self, tracked: Tracked) -> bool:
        """Whether it is wanted, and no other thread is at it."""
        with self._lock:
            tracked.ship_again = tracked.ship_again or tracked.shipping
            if tracked.forget:
                self._shipments.pop(tracked.id, None)
            if tracked.forget or tracked.shipped or tracked.shipping:
                return False
            tracked.shipping = True
            return True

    def _ship(self, tracked: Tracked, channel: Channel) -> float | None:
        """One pass; seconds until the next, None when there is none."""
        over = tracked.stage is Stage.OVER
        began, worked = time.monotonic(), time.thread_time()
        shipment = self._shipments.get(tracked.id)
        if shipment is None:
            shipment = self._shipments.setdefault(tracked.id, Shipment(tracked, now=began))
        if over and not shipment.last_round:
            if not shipment.aside.close():
                return _LONGEST_PAUSE  # whoever is at a large file of it says when that is sent
            shipment.begin_last_round(began)
        try:
            self._take_up(shipment)
            settled = self._pass(shipment, channel, over=over)
            settled = settled and (not over or self._list(shipment, channel))
        except (Retry, Unauthenticated) as error:
            return self._pause_after(shipment, error, channel)
        finally:
            self._save(shipment)
        shipment.spent += time.thread_time() - worked
        if shipment.cut and (over or shipment.spent < _ROUND):
            return 0.0
        if over and not settled:
            return self._next_pause(shipment)
        shipment.backoff.reset()
        if over:
            self._end(shipment)
            return None
        self._tell_of_refused(shipment)
        spent, shipment.spent = shipment.spent, 0.0
        return max(self._site.ship_interval, min(spent / LOAD, _LONGEST_PAUSE))

    def _take_up(self, shipment: Shipment) -> None:
        """What came of large files meanwhile; in the last round what failed is tried anyway."""
        while (outcome := shipment.aside.take_up()) is not None:
            if outcome.error is None or not shipment.last_round:
                self._settle(shipment, outcome)

    def _end(self, shipment: Shipment) -> None:
        tracked = shipment.tracked
        refusals = shipment.refusals()
        if refusals:
            lost = shipment.lost or tracked.own_bucket
            unsent.leave(tracked, refusals, self._site, lost=lost)
        self._done(tracked)

    def _tell_of_refused(self, shipment: Shipment) -> None:
        """While it runs: what does not get through, and when all does again."""
        refusals = shipment.refusals()
        if refusals:
            self._hold(shipment, next(iter(refusals.values())))
        elif shipment.tracked.alive:
            shipment.tracked.held = None
            if shipment.tracked.held_known:
                self._site.wake_reporter()

    def _hold(self, shipment: Shipment, error: PaddleCloudError) -> None:
        held = notices.of_error(error)
        if shipment.tracked.alive:
            held["runs"] = True
        shipment.tracked.hold(held, now=time.monotonic())
        self._site.wake_reporter()

    def _is_out_of_patience(self, shipment: Shipment) -> bool:
        """Whether the store took nothing for too long, while the server was there."""
        now = time.monotonic()
        patience = shipment.tracked.patience
        if patience is None:
            return False
        if self._site.link.away_for(now) > min(_SERVER_AWAY, patience / 2):
            shipment.moved_at = now
        return now - shipment.moved_last() > patience

    def _next_pause(self, shipment: Shipment) -> float:
        """Before the next try; when nobody waits any longer is the last one."""
        pause, patience = shipment.backoff.next(), shipment.tracked.patience
        if not shipment.last_round or patience is None:
            return pause
        left = shipment.waits_since() + patience - time.monotonic()
        return min(pause, max(left, _SOON))

    def _give_up_rest(self, shipment: Shipment, error: PaddleCloudError, channel: Channel) -> None:
        """What was not taken is kept; of what was the digests are told all the same."""
        shipment.lost = True
        try:
            # What the server misses cannot be sent any more: the second list is without it.
            _ = self._list(shipment, channel) or self._list(shipment, channel)
        except (Retry, Unauthenticated) as trouble:
            text = f"its files cannot be listed: {trouble}"
            self._site.journal.warning(text, shipment.tracked.id)
        passed = scan.Passed()
        for found in scan.scan(shipment.tracked.root, passed):
            if not shipment.has(found):
                file = shipment.file(found.name)
                file.refusal = file.refusal or error
        for each in passed.unread.items():
            self._pass_over(shipment, *each)
        self._tell_of_names(shipment.tracked, passed)
        self._end(shipment)

    def _pause_after(
        self, shipment: Shipment, error: PaddleCloudError, channel: Channel
    ) -> float | None:
        pause = self._next_pause(shipment)
        if shipment.tracked.stage is Stage.OVER and self._is_out_of_patience(shipment):
            self._give_up_rest(shipment, error, channel)
            return None
        self._hold(shipment, error)
        if isinstance(error, Unauthenticated):
            self._site.link.renew_keys()
        if isinstance(error, StorageFull) or pause >= 1.0:
            text = f"its output waits, next try in {pause:g} s: {error}"
            self._site.journal.warning(text, shipment.tracked.id)
        if isinstance(error, StorageFull) and not shipment.tracked.alive:
            # Its disk may be the server's own: nobody will ask for its working files.
            workspace.clear(shipment.tracked.root)
        return pause

    def _pass(self, shipment: Shipment, channel: Channel, *, over: bool) -> bool:
        """Send every file that changed; `over` sends all, otherwise only those that rest.

        False when some file changed while it was sent, or something is left for another reason:
        others wait for the thread (`cut`), the server made a mistake, we were interrupted. A file
        that finds no room holds up no other: StorageFull comes when all were tried.
        """
        seen: set[str] = set()
        began = time.monotonic()
        settled, shipment.cut = True, False
        passed = scan.Passed()
        bundle = Bundle()
        for found in scan.scan(shipment.tracked.root, passed):
            if shipment.tracked.forget or self._site.stopping.is_set():
                return False
            seen.add(found.name)
            if not self._is_due(shipment, found):
                continue
            settled = self._deliver(shipment, found, bundle, channel) and settled
            if time.monotonic() > began + _TURN:
                shipment.cut = True
                break
        settled = self._send_bundle(shipment, bundle, channel) and settled
        shipment.large = shipment.large or (over and shipment.cut)
        settled = shipment.end_turn(seen, since=began) and settled
        if shipment.cut or not settled:
            return False
        if over and all([self._is_unread(shipment, *each) for each in passed.unread.items()]):
            self._tell_of_names(shipment.tracked, passed)
            return True
        return not over

    def _is_due(self, shipment: Shipment, found: Found) -> bool:
        """Whether it is to be sent in this turn."""
        if shipment.has(found):
            shipment.rests(found.name)
            return False
        file = shipment.file(found.name)
        if file.given_up == found.mark or file.put_off or shipment.aside.has(found.name):
            return False
        if not shipment.last_round:
            return self._may_send(file, found) and not self._is_put_aside(shipment, found)
        if found.size >= _LARGE and not shipment.large:
            shipment.cut = True
            return False
        return True

    def _may_send(self, file: File, found: Found) -> bool:
        """Whether to send it although its job runs, and may be at it."""
        now = time.time()
        rests = scan.rests(found, now=now, seen_before=file.changed)
        file.changed = not scan.rests(found, now=now, seen_before=False)
        return rests and time.monotonic() >= file.not_before

    def _is_put_aside(self, shipment: Shipment, found: Found) -> bool:
        """Whether another thread sends it."""
        if found.size < _ASIDE:
            return False
        if shipment.aside.add(found):
            self._aside.put(shipment.tracked)
        return True

    def _tell_of_names(self, tracked: Tracked, passed: scan.Passed) -> None:
        """In the job's own log, before its end is told: whoever misses a file looks there."""
        told = {
            "output_links_outside": passed.outside,
            "output_no_files": passed.odd,
            "output_names_bytes": passed.renamed,
        }
        said = "".join(notices.of_outputs(code, tracked.id, told[code]) for code in told)
        try:
            if said:
                notices.say_once(tracked.root, said)
        except OSError as error:
            self._site.journal.warning(f"its names cannot be told of: {error}", tracked.id)

    def _list(self, shipment: Shipment, channel: Channel) -> bool:
        """Tell the server what it must have by now; whether it has."""
        rows = shipment.shipped.rows()
        if not rows:
            return True
        tracked = shipment.tracked
        path = f"/agent/replicas/{quote(tracked.id)}/listing"
        try:
            answer = channel.json("POST", path, {"files": rows}, {"fence": tracked.fence}, _TIMEOUT)
        except (Retry, Unauthenticated) as error:
            if not is_stumble(error):
                raise
            return not self._is_worth_a_try(shipment, _LISTING, error)
        except PaddleCloudError as error:
            self._site.journal.warning(f"its files cannot be listed: {error}", tracked.id)
            return True
        missing = answer.get("missing", [])
        for name in missing:
            self._site.journal.warning(f"{name} is missed by the server", tracked.id)
            shipment.shipped.forget(name)
        return not missing

    def _deliver(self, shipment: Shipment, found: Found, bundle: Bundle, channel: Channel) -> bool:
        """Send it, a small one with others; whether nothing more has to be done about any sent."""
        if found.size > send.LARGEST or shipment.shipped.has(found):
            return self._send(shipment, found, channel)
        return not bundle.add(found) or self._send_bundle(shipment, bundle, channel)

    def _send_bundle(self, shipment: Shipment, bundle: Bundle, channel: Channel) -> bool:
        """Send small files in one request, and those by themselves that it did not bring."""
        files = bundle.take()
        sent: dict[str, tuple[Found, str]] = {}
        try:
            if len(files) > 1:
                sent = send.send(shipment.tracked, files, channel)
        except PaddleCloudError as error:
            # What is wrong may be one of them; but who is not there is there for none.
            if isinstance(error, Unreachable) and not is_stumble(error):
                raise
        for each in sent.values():
            self._settle(shipment, Outcome(found=each[0], sent=each, error=None, not_before=0.0))
        return all(
            [self._send(shipment, found, channel) for found in files if found.name not in sent]
        )

    def _send(self, shipment: Shipment, found: Found, channel: Channel) -> bool:
        """Whether nothing more has to be done about this file in its present state."""
        room = self._room if self._lane(shipment.tracked) is self._large else None
        put = partial(self._put_file, shipment, found, channel, room)
        return self._settle(shipment, tried(found, put))

    def _settle(self, shipment: Shipment, outcome: Outcome) -> bool:
        """The same, once it was tried."""
        found = outcome.found
        try:
            sent = outcome.result()
        except OSError as error:
            file = shipment.file(found.name)
            file.put_off = not self._is_unread(shipment, found.name, error)
            if file.put_off:
                file.refusal = scan.unreadable(found.name, error)
                return False
            file.given_up = found.mark
        except StorageFull as error:
            # Of the store nothing else is known: a smaller file may find room.
            file = shipment.file(found.name)
            file.refusal, file.put_off = error, True
            file.not_before = outcome.not_before
            return False
        except (Retry, Unauthenticated) as error:
            if not is_stumble(error):
                raise
            file = shipment.file(found.name)
            file.put_off = self._is_worth_a_try(shipment, found.name, error)
            if file.put_off:
                return False
            self._give_up(shipment, found, str(error))
            file.refusal = error
        except PaddleCloudError as error:
            self._give_up(shipment, found, str(error))
            self._note_refused(shipment, found.name, error)
        else:
            shipment.moved_at = time.monotonic()
            shipment.sent(found.name, not_before=outcome.not_before)
            if sent is None:
                return False
            shipment.shipped.add(*sent)
        return True

    def _is_unread(self, shipment: Shipment, name: str, error: OSError | PaddleCloudError) -> bool:
        """Whether it is passed over because it cannot be read; a disk may do better next time."""
        if shipment.last_round and _may_be_read(shipment, name, error):
            self._hold(shipment, scan.unreadable(name, error))
            return False
        self._pass_over(shipment, name, error)
        return True

    def _pass_over(self, shipment: Shipment, name: str, error: OSError | PaddleCloudError) -> None:
        self._site.journal.warning(f"{name} is not sent: {error}", shipment.tracked.id)
        self._note_refused(shipment, name, scan.unreadable(name, error))

    def _note_refused(self, shipment: Shipment, name: str, error: PaddleCloudError) -> None:
        """It is kept and told. But of an attempt that no longer counts the server has no use for
        anything, and while a job runs it is the owner of a bucket who can do something about it."""
        wanted = shipment.last_round and not isinstance(error, StaleFence)
        told = wanted or shipment.tracked.own_bucket
        shipment.file(name).refusal = error if told else None

    def _is_worth_a_try(self, shipment: Shipment, name: str, error: PaddleCloudError) -> bool:
        """Whether to send it again, although the server makes mistakes about it. While the job runs
        it is always: nothing is lost by that."""
        file = shipment.file(name)
        if shipment.last_round:
            file.stumbles += 1
            self._hold(shipment, error)
        tries = file.stumbles
        text = f"{name or 'the list of its files'} waits, after {tries} tries: {error}"
        self._site.journal.warning(text, shipment.tracked.id)
        killed = shipment.last_round and self._is_out_of_patience(shipment)
        return tries < _MOST_STUMBLES and not killed

    def _put_file(
        self, shipment: Shipment, found: Found, channel: Channel, room: multipart.Room | None
    ) -> Sent:
        """Send one file, or what it grew by, or nothing if the server has it. Where many send at
        once, what each has in memory waits for a place in `room`."""
        tracked = shipment.tracked
        file = scan.open_inside(found, tracked.root)
        if file is None:
            return found, ""
        with file:
            scan.refuse_hollow(found, file)
            sent = scan.to_send(found, file, now=time.time())
            shorter = shipment.shipped.shorter(sent)
            known = shipment.shipped.digest(sent)
            digest = send.same(sent, file, known) if known else None
            if shorter is not None:
                digest = send.put_growth(tracked, sent, file, shorter, channel, room)
            if digest is None and sent.size >= multipart.least(tracked):
                digest = self._put_parts(shipment, sent, file, channel, room)
                if digest is None and scan.found_again(sent, file).mark != sent.mark:
                    return None
            if digest is None:
                digest = send.put_whole(tracked, sent, file, channel)
        return None if digest is None else (sent, digest)

    def _put_parts(
        self,
        shipment: Shipment,
        sent: Found,
        file: IO[bytes],
        channel: Channel,
        room: multipart.Room | None,
    ) -> str | None:
        """The digest of the file if it went in parts; None when it has to go another way."""
        file.seek(0)
        tracked, known = shipment.tracked, shipment.file(sent.name)
        known.patience = patience = known.patience or multipart.Patience()
        digest = multipart.put(tracked, sent, file, channel, self._buckets, room, patience)
        known.patience = None
        return digest

    def _give_up(self, shipment: Shipment, found: Found, reason: str) -> None:
        shipment.file(found.name).given_up = found.mark
        self._site.journal.warning(f"{found.name} is not sent: {reason}", shipment.tracked.id)

    def _save(self, shipment: Shipment) -> None:
        with suppress(FileNotFoundError):
            try:
                shipment.shipped.save()
            except OSError as error:
                text = f"what was sent cannot be noted, it may be sent again: {error}"
                self._site.journal.warning(text, shipment.tracked.id)


def _may_be_read(shipment: Shipment, name: str, error: OSError | PaddleCloudError) -> bool:
    """Whether to try it once more."""
    now, file = time.monotonic(), shipment.file(name)
    file.unread_since = now if file.unread_since is None else file.unread_since
    lasted, patience = now - file.unread_since, shipment.tracked.patience
    return scan.may_be_read(error, lasted=lasted, patience=patience)
