"""Short names of long directories: created when needed, deleted with the replica."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.sandbox import tmpdir

REPLICA = f"job-{'0' * 32}.1.trainer-0"


@pytest.fixture
def home() -> Iterator[Path]:
    """As short as homes are; that of a test is as long as the test's name."""
    place = Path(tempfile.mkdtemp(prefix="pc", dir="/tmp"))
    yield place
    shutil.rmtree(place)


def a_replica(home: Path) -> Path:
    root = home / "agent" / "replicas" / REPLICA
    (root / "tmp").mkdir(parents=True)
    return root


def test_a_long_name_gets_a_short_one_once(home: Path) -> None:
    root = a_replica(home)
    name = tmpdir.short(root, f"{root}/tmp")
    assert name.startswith(f"{home}/agent/t/")
    assert len(name) <= tmpdir.LONGEST
    assert Path(name).resolve() == (root / "tmp").resolve()
    assert tmpdir.short(root, f"{root}/tmp") == name
    assert len(list((home / "agent" / "t").iterdir())) == 1


def test_a_name_that_is_short_enough_stays(home: Path) -> None:
    target = "/" + "x" * (tmpdir.LONGEST - 1)
    root = a_replica(home)
    assert tmpdir.short(root, target) == target
    assert tmpdir.short(root, target + "x") != target + "x"


def test_a_deep_home_has_its_short_names_elsewhere(home: Path) -> None:
    root = a_replica(home / ("deep" * 20))
    name = Path(tmpdir.short(root, f"{root}/tmp"))
    assert name.parent == Path(f"/tmp/paddlecloud-{os.getuid()}")
    assert name.parent.stat().st_mode & 0o077 == 0
    assert name.resolve() == (root / "tmp").resolve()
    tmpdir.remove_links(root)
    assert not name.is_symlink()


def test_a_name_that_somebody_has_is_not_taken(home: Path) -> None:
    root = a_replica(home)
    link = home / "agent" / "t" / Path(tmpdir.short(root, f"{root}/tmp")).name
    link.unlink()
    link.symlink_to("/somewhere/else")
    assert tmpdir.short(root, f"{root}/tmp") == f"{root}/tmp"
    tmpdir.remove_links(root)
    assert str(link.readlink()) == "/somewhere/else"


def test_a_directory_that_others_may_write_to_is_not_used(home: Path) -> None:
    root = a_replica(home)
    (home / "agent" / "t").mkdir()
    (home / "agent" / "t").chmod(0o777)
    assert tmpdir.short(root, f"{root}/tmp") == f"{root}/tmp"


def test_links_that_lead_nowhere_are_swept_away(home: Path) -> None:
    (home / "gone").symlink_to(home / "nothing")
    (home / "kept").symlink_to(home)
    (home / "file").write_text("")
    tmpdir.sweep(home)
    assert sorted(path.name for path in home.iterdir()) == ["file", "kept"]


def test_a_place_that_somebody_made_for_us_is_not_swept(home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine" / "gone").symlink_to(home / "nothing")
    (home / "trap").symlink_to(home / "mine")
    tmpdir.sweep(home / "trap")
    assert (home / "mine" / "gone").is_symlink()


def test_it_goes_with_its_replica(home: Path) -> None:
    root = a_replica(home)
    name = Path(tmpdir.short(root, f"{root}/tmp"))
    tmpdir.remove_links(root)
    assert not name.is_symlink()
    tmpdir.remove_links(root)
