"""Downloads whose connection breaks are resumed; a damaged blob is downloaded again as a whole."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.inputs.cache import InputCache
from paddlecloud.agent.server_link.channel import Channel
from paddlecloud.model.errors import Invalid, Retry, Unreachable

MIB = 1024 * 1024
CONTENT = os.urandom(10 * MIB)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
AWAY = Unreachable("server_closed", address="x")


class Line:
    """To a server, and to a bucket if it has one. Each request gives as many MiB as the script says
    and breaks then; when the script is at its end, all that is left."""

    def __init__(self, *script: int | Exception, past: tuple[int, ...] = ()) -> None:
        self.script = [*script]
        self.past = [*past]
        self.content = CONTENT
        self.sent = 0
        self.asked: list[int] = []

    def call(
        self, _method: str, _path: str, *, query: dict[str, Any], sink: Callable[[bytes], object]
    ) -> bytes:
        start = int(query.get("offset", 0))
        self.asked.append(start)
        said = self.script.pop(0) if self.script else None
        if isinstance(said, Exception):
            raise said
        if not self._send(start, said, sink):
            raise AWAY
        return b""

    def fetch(self, _address: str, take: Callable[[bytes], object], _tag: str, start: int) -> bool:
        self.asked.append(-start)
        return self._send(start, self.past.pop(0) if self.past else 0, take)

    def _send(self, start: int, most: int | None, take: Callable[[bytes], object]) -> bool:
        end = len(self.content) if most is None else start + most * MIB
        for at in range(start, end, MIB):
            self.sent += MIB
            take(self.content[at : at + MIB])
        return end == len(self.content)

    def drop_idle(self) -> None:
        pass

    def json(self, *_rest: object) -> dict[str, Any]:
        return {"contents": [[DIGEST, len(CONTENT), "http://bucket/x", ""]]}


class Scene:
    def __init__(self, cache: Path) -> None:
        self.folder = cache
        self.cache = InputCache(cache, limit=1 << 40)

    def fetch(self, line: Line, *, direct: bool = False) -> bytes:
        self.cache._downloads.direct = cast("Any", line)
        source = self.cache.source("r", None, cast("Channel", line), direct=direct)
        with open(source(DIGEST, len(CONTENT)), "rb") as file:  # noqa: PTH123 - a descriptor
            return file.read()

    def files(self) -> list[str]:
        return [path.name for path in (self.folder / "blobs").rglob("*") if path.is_file()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_line_that_breaks_again_and_again_costs_nothing_twice(scene: Scene) -> None:
    line = Line(1, 2, 3)
    assert scene.fetch(line) == CONTENT
    assert line.asked == [0, MIB, 3 * MIB, 6 * MIB]
    assert line.sent == len(CONTENT)
    assert scene.files() == [DIGEST]


def test_a_bucket_is_asked_for_the_rest_and_then_the_server(scene: Scene) -> None:
    line = Line(2, past=(3, 1, 0))
    assert scene.fetch(line, direct=True) == CONTENT
    assert line.asked == [0, -3 * MIB, -4 * MIB, 4 * MIB, 6 * MIB]
    assert line.sent == len(CONTENT)


def test_a_server_that_is_away_for_a_while_is_asked_for_the_rest(scene: Scene) -> None:
    line = Line(4, AWAY, AWAY, Retry("scripted"), 5)
    for _ in range(3):
        with pytest.raises(Retry):
            scene.fetch(line)
    assert scene.fetch(line) == CONTENT
    assert line.asked == [0, *[4 * MIB] * 4, 9 * MIB]
    assert line.sent == len(CONTENT)


def test_what_turns_out_to_be_wrong_comes_anew_from_its_beginning(scene: Scene) -> None:
    line = Line(4, AWAY)
    line.content = b"!" + CONTENT[1:]
    with pytest.raises(Unreachable):
        scene.fetch(line)
    line.content = CONTENT
    assert scene.fetch(line) == CONTENT
    assert line.asked == [0, 4 * MIB, 4 * MIB, 0]
    line.content = b"!" + CONTENT[1:]
    (scene.folder / "blobs" / DIGEST[:2] / DIGEST).unlink()
    with pytest.raises(Invalid):
        scene.fetch(line)
    assert scene.files() == []


def test_a_half_counts_in_the_cache_and_goes_like_all_else(scene: Scene) -> None:
    line = Line(4, AWAY)
    with pytest.raises(Unreachable):
        scene.fetch(line)
    later = time.time() + 100
    scene.cache.set_limit(5 * MIB)
    assert scene.cache.prune(later) == 0
    scene.cache.set_limit(3 * MIB)
    assert scene.cache.prune(later) == 4 * MIB
    assert scene.files() == []
    assert scene.fetch(line) == CONTENT
    assert line.asked == [0, 4 * MIB, 0]


def test_a_half_with_which_somebody_goes_on_is_not_deleted(scene: Scene) -> None:
    line = Line(4, AWAY)
    with pytest.raises(Unreachable):
        scene.fetch(line)
    scene.cache.set_limit(0)
    freed: list[int] = []

    class Meanwhile(Line):
        def _send(self, start: int, most: int | None, take: Callable[[bytes], object]) -> bool:
            freed.append(scene.cache.prune(time.time() + 100))
            return super()._send(start, most, take)

    assert scene.fetch(Meanwhile()) == CONTENT
    assert freed == [0]


def test_a_half_that_is_not_as_it_was_left_is_of_no_use(scene: Scene) -> None:
    line = Line(4, AWAY)
    with pytest.raises(Unreachable):
        scene.fetch(line)
    (name,) = scene.files()
    os.truncate(scene.folder / "blobs" / DIGEST[:2] / name, 1)
    assert scene.fetch(line) == CONTENT
    assert (line.asked[-1], scene.files()) == (0, [DIGEST])


def test_a_full_disk_is_left_nothing_of_it(scene: Scene) -> None:
    line = Line(4, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="space"):
        scene.fetch(line)
    assert scene.files() == []


def test_of_two_halves_the_larger_is_kept(scene: Scene) -> None:
    line = Line(2, AWAY)

    class Slower(Line):
        """While it is asked, another one gets further and gives up as well."""

        def _send(self, start: int, most: int | None, take: Callable[[bytes], object]) -> bool:
            for _ in line.script:
                with pytest.raises(Unreachable):
                    scene.fetch(line)
                break
            return super()._send(start, most, take)

    with pytest.raises(Unreachable):
        scene.fetch(Slower(1, AWAY))
    assert len(scene.files()) == 1
    assert scene.fetch(line) == CONTENT
    assert line.asked == [0, 2 * MIB, 2 * MIB]
