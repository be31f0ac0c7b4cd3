"""What is known of the shipping of one replica, from one pass over its files to the next.

What was sent is kept beside the files (`outputs.Shipped`); the rest is known to this agent alone,
and the next one finds it out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.outputs.large_files import Aside
from paddlecloud.agent.server_link.channel import Backoff
from paddlecloud.model.errors import StorageFull

if TYPE_CHECKING:
    from paddlecloud.agent.outputs.multipart import Patience
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.model.errors import PaddleCloudError

_LONGEST_PAUSE = 30.0


class File:
    """One file, or a directory that cannot be listed."""

    __slots__ = (
        "changed",
        "given_up",
        "not_before",
        "patience",
        "put_off",
        "read_last",
        "refusal",
        "stumbles",
        "unread_since",
    )

    def __init__(
        self, *, not_before: float = 0.0, changed: bool = False, read_last: bool = False
    ) -> None:
        self.changed = changed
        """The last pass found it being changed, while the job runs."""
        self.read_last = read_last
        """It was read since nobody writes to it any more: the job is over."""
        self.not_before = not_before
        """One that took long to send is left alone for longer, while the job runs."""
        self.given_up: scan.Mark | None = None
        """Refused or unreadable in this state; tried once more when the job is over."""
        self.refusal: PaddleCloudError | None = None
        """Why it was not taken. In the end that is told, and it is kept here."""
        self.put_off = False
        """It was tried in vain: all others have their turn before it is tried again."""
        self.stumbles = 0
        """How often the server made a mistake about it in the last round."""
        self.unread_since: float | None = None
        """Since when it cannot be read, of the last round (monotonic)."""
        self.patience: Patience | None = None
        """With a bucket that took some parts of it."""


class Shipment:
    def __init__(self, tracked: Tracked, *, now: float) -> None:
        self.tracked = tracked
        self.shipped = scan.Shipped(tracked.root)
        self.backoff = Backoff(first=0.1, longest=_LONGEST_PAUSE)
        self.files: dict[str, File] = {}
        """By name; those of which there is something to remember."""
        self.last_round = False
        self.moved_at = now
        """When something was taken last; a server that is away is no fault of its store."""
        self.lost = False
        """The store took nothing for too long: outputs are lost to it."""
        self.large = False
        """What is left of it, now that it is over, may take long."""
        self.cut = False
        """The last turn left something to the next, for the sake of others."""
        self.spent = 0.0
        """Seconds of work since everything was sent, while the job runs."""
        self.aside = Aside()

    def begin_last_round(self, now: float) -> None:
        """Its job is over: what was given up is tried once more, and told if that is in vain."""
        self.last_round, self.moved_at = True, now
        self.backoff.reset()
        self.files.clear()

    def file(self, name: str) -> File:
        return self.files.setdefault(name, File())

    def sent(self, name: str, *, not_before: float) -> None:
        """Nothing is known against it any more."""
        changed = self.file(name).changed
        self.files[name] = File(not_before=not_before, changed=changed, read_last=self.last_round)

    def has(self, found: scan.Found) -> bool:
        """Whether the server has it as it is. While its job runs its mark says so; then that has
        to be certain."""
        if not self.last_round or self.shipped.relies_on(found):
            return self.shipped.has(found)
        file = self.files.get(found.name)
        return file is not None and file.read_last and self.shipped.has(found)

    def rests(self, name: str) -> None:
        """It is as it was sent."""
        if name in self.files:
            self.files[name].changed = False

    def end_turn(self, seen: set[str], *, since: float) -> bool:
        """Whether no file is put off; `seen` are all that there are, unless it was `cut`.

        StorageFull if some found no room, once all others had their turn. Before that only if
        nothing was taken `since` it began: a full store is not asked for everything without a
        pause.
        """
        if not self.cut and not self.last_round:
            known = list(self.files.items())  # another thread may add one at any moment
            self.files = {name: file for name, file in known if name in seen}
        put_off = [file for file in self.files.values() if file.put_off]
        for file in put_off:
            file.put_off = self.cut
        full = next((f.refusal for f in put_off if isinstance(f.refusal, StorageFull)), None)
        if full is not None and not (self.cut and self.moved_at > since):
            raise full
        return not put_off

    def refusals(self) -> dict[str, PaddleCloudError]:
        """Why each file was not taken that was not."""
        found = ((name, file.refusal) for name, file in self.files.items())
        return {name: error for name, error in found if error is not None}

    def waits_since(self) -> float:
        """The oldest moment since which something is waited for: the store, or a disk."""
        unread = (file.unread_since for file in self.files.values())
        return min([self.moved_last(), *(since for since in unread if since is not None)])

    def moved_last(self) -> float:
        """When a file, or a part of one, was taken last."""
        parted = (file.patience for file in self.files.values() if file.patience is not None)
        return max([self.moved_at, *(one.moved_at for one in parted)])
