"""What is recorded about the repository of submitted files, with the real git."""

from __future__ import annotations

import select
import subprocess
from pathlib import Path

import pytest

from paddlecloud.client import repository

ENVIRON = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What git says is tested here, and not how long it takes on a busy machine."""
    monkeypatch.setattr(repository, "PATIENCE", 60.0)


def git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, env=ENVIRON, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "job").mkdir(parents=True)
    git(root, "init", "-q", "-b", "trunk")
    (root / "job" / "train.py").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def looked(directory: Path) -> tuple[dict[str, str], str]:
    looking = repository.look(str(directory), ENVIRON)
    assert looking is not None
    return looking.result()


def test_a_clean_tree(repo: Path) -> None:
    words, diff = looked(repo / "job")
    want = {"commit": git(repo, "rev-parse", "HEAD"), "branch": "trunk", "dirty": "0"}
    assert (words, diff) == (want, "")


def test_what_differs_below_the_directory_is_kept(repo: Path) -> None:
    (repo / "job" / "train.py").write_text("two\n")
    (repo / "elsewhere").write_text("x")
    words, diff = looked(repo / "job")
    assert words["dirty"] == "1"
    assert "-one\n+two\n" in diff
    assert "elsewhere" not in diff


def test_a_new_file_makes_it_dirty(repo: Path) -> None:
    (repo / "job" / "new.py").write_text("x")
    assert looked(repo / "job")[0]["dirty"] == "1"


def test_a_long_difference_is_cut(repo: Path) -> None:
    (repo / "job" / "train.py").write_text("a line of some length\n" * 100_000)
    words, diff = looked(repo / "job")
    assert (words["cut"], len(diff)) == ("1", repository.MAX_DIFF)


def test_no_program_of_the_repository_is_run(repo: Path) -> None:
    """Whoever submits somebody else's directory has not asked for that."""
    ran = repo / "ran"
    for name in ("diff.external", "core.fsmonitor", "core.pager", "diff.x.textconv"):
        git(repo, "config", name, f"touch {ran};")
    (repo / ".gitattributes").write_text("*.py diff=x\n")
    (repo / "job" / "train.py").write_text("two\n")
    assert "+two" in looked(repo / "job")[1]
    assert not ran.exists()


def test_nothing_committed_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert looked(tmp_path) == ({}, "")


def test_git_that_takes_too_long(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is not done when somebody asks is too slow, however long ago it was begun."""
    monkeypatch.setattr(repository, "PATIENCE", 0.0)
    looking = repository.look(str(repo), ENVIRON)
    assert looking is not None
    for reading in (looking._status, looking._diff):
        assert reading is not None
        reading._thread.join(60)
    assert looking.result()[0]["branch"] == "trunk"
    monkeypatch.setattr(repository, "_GIT", ("sh", "-c", "exec sleep 600"))
    looking = repository.look(str(repo), ENVIRON)
    assert looking is not None
    begun = [looking._status, looking._diff]
    assert looking.result() == ({}, "")
    assert [reading and reading._process.returncode for reading in begun] == [-9, -9]


def test_a_pipe_need_not_tell_whether_there_is_something_to_read(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows `select` takes sockets alone; here it is made to."""

    def refuse(*_: object) -> None:
        raise OSError(10038, "An operation was attempted on something that is not a socket")

    monkeypatch.setattr(select, "select", refuse)
    (repo / "job" / "train.py").write_text("two\n")
    words, diff = looked(repo / "job")
    assert words["dirty"] == "1"
    assert "-one\n+two\n" in diff


def test_no_git_at_all(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_GIT", ("no-such-program",))
    assert looked(repo) == ({}, "")


def test_no_repository(tmp_path: Path) -> None:
    assert repository.look(str(tmp_path), ENVIRON) is None
