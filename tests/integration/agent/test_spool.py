"""The output of a command on disk: exact, a few chunks at a time, whenever they are collected."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.agent.exec import _spool
from paddlecloud.agent.exec._spool import Spool
from tests.integration.agent.replicas import eventually

WHOLE = bytes(range(251)) * 40


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spool, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(_spool, "MAX_CHUNKS", 3)


def begun(root: Path, data: bytes) -> Spool:
    """A stream that is written and then closed."""
    made = Spool(root, "out")
    pen = os.dup(made.writer)

    def write() -> None:
        with os.fdopen(pen, "wb") as file:
            file.write(data)

    made.start()
    threading.Thread(target=write).start()
    return made


def lay(root: Path, *numbers: int) -> None:
    """Chunks as a command leaves them."""
    for number in numbers:
        data = WHOLE[number * 1000 : (number + 1) * 1000]
        _spool.path_of(root, "out", number).write_bytes(data)


class Killed:
    """A process that ends after it has deleted one file."""

    def __init__(self, unlink: Callable[..., None]) -> None:
        self._unlink = unlink
        self._done = False

    def __get__(self, path: Path, _owner: type[Path]) -> Callable[..., None]:
        return partial(self._once, path)

    def _once(self, path: Path, **how: bool) -> None:
        if self._done:
            raise KeyboardInterrupt
        self._unlink(path, **how)
        self._done = True


def pieces(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def full(root: Path) -> bool:
    return len(pieces(root)) == 3 and all(path.stat().st_size == 1000 for path in root.iterdir())


def test_it_goes_on_when_a_piece_was_taken(tmp_path: Path) -> None:
    made, got = begun(tmp_path, WHOLE), b""
    eventually(lambda: full(tmp_path))
    while len(got) < len(WHOLE):
        got += eventually(partial(_spool.read, tmp_path, "out", len(got), 700))
        _spool.delete_before(tmp_path, "out", len(got))
        assert len(pieces(tmp_path)) <= 3
    made.finish()
    assert got == WHOLE
    assert _spool.read(tmp_path, "out", len(got), 700) == b""
    assert (made.lost, pieces(tmp_path)) == (0, ["out.10"])


def test_at_the_end_it_waits_for_nobody(tmp_path: Path) -> None:
    made = begun(tmp_path, WHOLE)
    eventually(lambda: full(tmp_path))
    made.finish()
    assert b"".join(_spool.read(tmp_path, "out", n * 1000, 1000) for n in range(11)) == WHOLE


def test_what_was_let_go_is_not_taken_for_the_end(tmp_path: Path) -> None:
    lay(tmp_path, 0, 1, 2)
    _spool.delete_before(tmp_path, "out", 1999)
    assert pieces(tmp_path) == ["out.1", "out.2"]
    with pytest.raises(ValueError, match="from byte 500 on is lost"):
        _spool.read(tmp_path, "out", 500, 10)


def test_pieces_that_are_begun_between_two_looks_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalled(root: Path, _stream: str, number: int) -> bool:
        lay(root, number, number + 1)
        return True

    monkeypatch.setattr(_spool, "_has_later_chunk", stalled)
    assert _spool.read(tmp_path, "out", 1007, 5) == WHOLE[1007:1012]


def test_whoever_is_killed_while_letting_go_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, 0, 1, 2, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Killed(Path.unlink))
        with pytest.raises(KeyboardInterrupt):
            _spool.delete_before(tmp_path, "out", 3000)
    assert pieces(tmp_path) == ["out.1", "out.2", "out.3"]
    _spool.delete_before(tmp_path, "out", 3000)
    assert pieces(tmp_path) == ["out.3"]


def test_a_directory_that_is_gone_holds_nobody(tmp_path: Path) -> None:
    root = tmp_path / "command"
    root.mkdir()
    made = begun(root, WHOLE)
    eventually(lambda: full(root))
    root.rename(tmp_path / "elsewhere")
    made.finish()
    assert made.lost == len(WHOLE) - 3000
