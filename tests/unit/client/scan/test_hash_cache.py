"""The cache of digests: what was read once is not read again, and nothing else is believed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.scan import walk
from paddlecloud.client.scan.walk import BLOCK, ScanProgress, scan
from tests.unit.client.trees import NOW, as_snapshot, rows, sha256, tree


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return tree(tmp_path / "job", {f"d{n % 7}/f{n}": b"%d" % n for n in range(250)})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths whose content was read, in order."""
    seen: list[str] = []
    digest = walk._digest

    def watched(absolute: str, path: str, *how: Any) -> object:
        seen.append(path)
        return digest(absolute, path, *how)

    monkeypatch.setattr(walk, "_digest", watched)
    return seen


def test_an_unchanged_file_is_not_read_again(many: Path, home: Path, hashed: list[str]) -> None:
    first = scan(str(many), now=NOW, home=str(home))
    assert len(hashed) == 250
    hashed.clear()
    second = scan(str(many), now=NOW, home=str(home))
    assert (second.id, second.sources, hashed) == (first.id, first.sources, [])
    (many / "d0/f0").write_bytes(b"!")
    third = scan(str(many), now=NOW, home=str(home))
    assert hashed == ["d0/f0"]
    assert rows(third)["d0/f0"][2] == sha256(b"!")
    assert as_snapshot(third).id == third.id


class Steps(ScanProgress):
    """Remembers what it was told."""

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told: list[int] = []

    def add(self, count: int) -> None:
        super().add(count)
        self.told.append(count)


def test_a_file_is_counted_as_it_is_read_and_at_once_if_it_is_known(
    tmp_path: Path, home: Path
) -> None:
    size = 9 * BLOCK + 1
    tree(tmp_path / "job", {"large": b"1" * size, "small": b"22"})
    first, second = Steps(), Steps()
    for scan_progress in (first, second):
        scan(str(tmp_path / "job"), now=NOW, home=str(home), scan_progress=scan_progress)
        assert (scan_progress.files, scan_progress.bytes) == (2, size + 2)
    assert sum(first.told) == size + 2
    assert max(first.told) < BLOCK
    assert second.told == []


def test_windows_tells_no_inode_in_a_listing(tmp_path: Path) -> None:
    """There the cache would never know a file again."""
    tree(tmp_path, {"f": b"1"})

    class Listed:
        path = str(tmp_path / "f")

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            return os.stat_result((0,) * 10)

    entry: Any = Listed()
    assert walk._status(entry, windows=True).st_ino == (tmp_path / "f").stat().st_ino
    assert walk._status(entry, windows=False).st_ino == 0


def test_a_change_that_hides_its_time_is_seen(many: Path, home: Path) -> None:
    scan(str(many), now=NOW, home=str(home))
    path = many / "d0/f0"
    before = path.stat()
    path.write_bytes(b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rows(scan(str(many), now=NOW, home=str(home)))["d0/f0"][2] == sha256(b"!")


def test_a_fresh_file_is_not_trusted(many: Path, home: Path, hashed: list[str]) -> None:
    oldest = min(path.stat().st_ctime for path in many.rglob("f*"))
    for _ in range(2):
        scan(str(many), now=oldest + 1, home=str(home))
    assert len(hashed) == 500


@pytest.mark.parametrize(
    "damage", [b"", b"nonsense\n1 2", b"\xff\xfe", b"paddlecloud-files\t1\nx y"]
)
def test_a_damaged_cache_is_as_good_as_none(many: Path, home: Path, damage: bytes) -> None:
    want = scan(str(many), now=NOW, home=str(home)).id
    [cache] = (home / "cache/files").iterdir()
    cache.write_bytes(damage)
    assert scan(str(many), now=NOW, home=str(home)).id == want


def test_the_cache_is_the_owners_alone_and_optional(many: Path, home: Path, tmp_path: Path) -> None:
    want = scan(str(many), now=NOW, home=str(home)).id
    [cache] = (home / "cache/files").iterdir()
    assert cache.stat().st_mode & 0o777 == 0o600
    blocked = tree(tmp_path, {"blocked": b"a file where a directory should be"}) / "blocked"
    assert scan(str(many), now=NOW, home=str(blocked)).id == want


def test_of_caches_those_are_kept_that_were_used_last(many: Path, home: Path) -> None:
    scan(str(many), now=NOW, home=str(home))
    [cache] = (home / "cache/files").iterdir()
    for number in range(1500):
        old = cache.with_name(f"{number:032x}")
        old.write_text("")
        os.utime(old, (number, number))
    os.utime(cache, (0, 0))
    scan(str(many), now=NOW, home=str(home))
    assert len(list(cache.parent.iterdir())) == 1501
    assert cache.stat().st_mtime > 1500
    for number in range(3):
        (many / "d0/f0").write_bytes(b"!" * number)
        scan(str(many), now=NOW, home=str(home))
    left = set(cache.parent.iterdir())
    assert cache in left
    assert len(left) == 100


def test_a_cache_that_cannot_be_swept_is_no_harm(
    many: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = scan(str(many), now=NOW).id

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    tree(home / "cache/files", {f"{number}": b"" for number in range(150)})
    for name in ("unlink", "utime"):
        monkeypatch.setattr(os, name, refuse)
    for _ in range(2):
        assert scan(str(many), now=NOW, home=str(home)).id == want


def test_a_small_directory_needs_no_cache(tmp_path: Path, home: Path) -> None:
    scan(str(tree(tmp_path / "job", {"f": b"1"})), now=NOW, home=str(home))
    assert not home.exists()
