"""Logs by lines: those of several workers as one, and those that match.

The server searches what is there already: that may be a gigabyte, and its lines do not travel. What
comes later is searched here: a follower must cost the server next to nothing, and whoever thinks of
a pattern that takes for ever should be the one who waits for it. Either way a broken connection is
taken up where each worker's log was left.
"""

from __future__ import annotations

from paddlecloud.client.following import Patience, Place, answers, has_newer
from paddlecloud.client.naming import shown
from paddlecloud.client.quickjson import loads
from paddlecloud.client.responses import anything, by_key, check, refuse
from paddlecloud.model.errors import Refused
from paddlecloud.model.logframes import TROUBLE, Frames, Prefixes
from paddlecloud.model.loggrep import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from paddlecloud.client.sdk import Client
    from paddlecloud.model.loggrep import Pattern

    Frame = tuple[str, int, bytes]

#: A longer line is searched in parts.
LONGEST = 16 * 1024 * 1024
#: Workers of one job: more are not from our server.
_MOST_WORKERS = 10_000
#: Bytes of a stream that is none of ours, as a person is shown it.
_SHOWN = 40


def lines(client: Client, job_id: str, asked: Mapping[str, object]) -> Iterator[bytes]:
    """What is asked for, as text: with `merge` each line names its worker."""
    grep, follow = asked.get("grep"), bool(asked["follow"])
    pattern = compiled(str(grep)) if grep is not None else None
    prefixes = Prefixes()
    for worker, data in _chosen(client, job_id, _LinePlace(asked), pattern, follow):
        told = prefixes.add(worker, data) if asked.get("merge") else data
        if told:
            yield told


def _chosen(
    client: Client, job_id: str, place: _LinePlace, pattern: Pattern | None, follow: bool
) -> Iterator[tuple[str, bytes]]:
    patience = Patience(client, follow=follow)
    while True:
        if pattern is not None:
            place.searches(True)
            for worker, _, data in _frames(client, job_id, place, patience):
                yield worker, data
        if follow or pattern is None:
            place.searches(False)
            live = _frames(client, job_id, place, patience)
            if pattern is None:
                yield from ((worker, data) for worker, _, data in live)
            else:
                yield from _matching(pattern, live)
        if not place.moves_on or not has_newer(client, job_id, place.attempt, patience):
            return
        place.next_attempt()


def _frames(client: Client, job_id: str, place: _LinePlace, patience: Patience) -> Iterator[Frame]:
    for piece in answers(client, job_id, place, patience):
        try:
            frames = [*place.parser.feed(piece)]
        except ValueError:
            refuse("log", shown(piece[:_SHOWN].decode("latin-1")), "response_frame")
        for frame in frames:
            worker, reached, data = frame
            if worker == TROUBLE:
                raise _trouble(data)
            place.reach(worker, reached)
            yield frame


def _trouble(data: bytes) -> Refused:
    """Why the server cannot go on, as its last frame tells it."""
    try:
        code, _, params = data.decode().partition(" ")
        given = loads(params)
        check(given, by_key(anything))
    except ValueError:
        refuse("log", shown(data[:_SHOWN].decode("latin-1")), "response_frame")
    return Refused(code, **given)


def _matching(pattern: Pattern, frames: Iterator[Frame]) -> Iterator[tuple[str, bytes]]:
    """The lines that match, each when its end has come."""
    kept: dict[str, bytes] = {}
    for worker, _, data in frames:
        data = kept.pop(worker, b"") + data
        cut = data.rfind(b"\n") + 1 or (len(data) if len(data) > LONGEST else 0)
        if data[cut:]:
            kept[worker] = data[cut:]
        if cut:
            yield worker, b"".join(pattern.lines(data[:cut]))
    for worker, rest in kept.items():
        if pattern.matches(rest):
            yield worker, rest + b"\n"


class _LinePlace(Place):
    """Where the reader is in each worker's log of one attempt."""

    def __init__(self, asked: Mapping[str, object]) -> None:
        super().__init__(asked)
        self._asked = dict(asked)
        self._reached: dict[str, int] = {}
        self.parser = Frames()
        self.query["frames"] = 1

    def searches(self, yes: bool) -> None:
        """The next answer is one of a search, or one of all lines that were not searched yet."""
        asked = self._asked
        self.query["follow"] = 0 if yes else asked["follow"]
        self.query["grep"] = asked.get("grep") if yes else None
        self.query["complete"] = asked["follow"] if yes else None
        self.query["merge"] = asked.get("merge") if yes else 1

    def enter(self, headers: Mapping[str, str]) -> None:
        super().enter(headers)
        self.parser = Frames()

    def reach(self, worker: str, reached: int) -> None:
        """Everything of this worker's log was told up to here."""
        self._reached[worker] = reached
        if len(self._reached) > _MOST_WORKERS:
            refuse("log", len(self._reached), "response_count", most=_MOST_WORKERS)
        self.query["at"] = ",".join(f"{name}:{offset}" for name, offset in self._reached.items())

    def next_attempt(self) -> None:
        self._reached = {}
        self.query |= {"at": None, "tail": None, "since": None}
        super().next_attempt()
