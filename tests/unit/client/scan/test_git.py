"""What is recorded about the repository of submitted files, with the real git."""

from __future__ import annotations

import select
import subprocess
from pathlib import Path

import pytest

from paddlecloud.client.scan import git as scan_git
from paddlecloud.client.scan.walk import scan
from paddlecloud.model.jobs.param_checks import GIT_WORDS, MAX_GIT_WORD

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
    monkeypatch.setattr(scan_git, "TIMEOUT", 60.0)


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
    """With all that a scan of the directory would submit."""
    inspection = scan_git.inspect(str(directory), ENVIRON)
    assert inspection is not None
    return inspection.result({row[0] for row in scan(str(directory), now=0).entries})


def test_a_clean_tree(repo: Path) -> None:
    words, diff = looked(repo / "job")
    want = {"commit": git(repo, "rev-parse", "HEAD"), "branch": "trunk", "dirty": "0"}
    assert (words, diff) == (want, "")


def test_a_link_to_a_directory_in_a_repository(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(repo / "job")
    (repo / "job" / "train.py").write_text("two\n")
    words, diff = looked(tmp_path / "way")
    assert words["commit"] == git(repo, "rev-parse", "HEAD")
    assert "+two" in diff


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"])
def test_another_repository_in_the_environment_is_none_of_ours(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As in a hook: git tells what it runs where the repository is that it runs for."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "elsewhere")
    places = {"GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git" / "index"}
    want = looked(repo / "job")
    monkeypatch.setitem(ENVIRON, name, str(places.get(name, other / ".git")))
    assert looked(repo / "job") == want


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
    assert (words["cut"], len(diff)) == ("1", scan_git.MAX_DIFF)


def test_no_program_of_the_repository_is_run(repo: Path) -> None:
    """Whoever submits somebody else's directory has not asked for that."""
    ran = repo / "ran"
    for name in ("diff.external", "core.fsmonitor", "core.pager", "diff.x.textconv"):
        git(repo, "config", name, f"touch {ran};")
    (repo / ".gitattributes").write_text("*.py diff=x\n")
    (repo / "job" / "train.py").write_text("two\n")
    assert "+two" in looked(repo / "job")[1]
    assert not ran.exists()


SECRET = "password=hunter2"


@pytest.mark.parametrize("change", ["changed", "deleted", "staged", "renamed", "forgotten"])
def test_what_is_left_out_of_the_job_is_left_out_of_its_record(repo: Path, change: str) -> None:
    """Neither what a secret is now nor what it was is anybody's business."""
    secret = repo / "job" / "secret.env"
    secret.write_text(f"{SECRET}-old\n" * 20)
    (repo / "job" / ".paddlecloudignore").write_text("*.env\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "a mistake")
    (repo / "job" / "train.py").write_text("two\n")
    if change in ("changed", "staged"):
        secret.write_text(f"{SECRET}-new\n")
    if change == "staged":
        git(repo, "add", ".")
    if change == "deleted":
        secret.unlink()
    if change == "renamed":
        git(repo, "mv", "job/secret.env", "job/other.env")
    if change == "forgotten":
        git(repo, "rm", "-q", "--cached", "job/secret.env")
    words, diff = looked(repo / "job")
    assert SECRET not in diff
    assert "-one\n+two\n" in diff
    assert words["dirty"] == "1"
    want = {"changed": "secret.env", "staged": "secret.env", "renamed": "other.env"}.get(change)
    assert words.get("left_out") == want
    assert set(words) <= set(GIT_WORDS)


def test_a_file_that_became_a_directory_with_a_secret_in_it(repo: Path) -> None:
    (repo / "job" / "conf").write_text("plain\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "second")
    (repo / "job" / "conf").unlink()
    (repo / "job" / "conf").mkdir()
    (repo / "job" / "conf" / "secret.env").write_text(f"{SECRET}\n")
    (repo / "job" / ".paddlecloudignore").write_text("*.env\n")
    git(repo, "add", "-f", ".")
    words, diff = looked(repo / "job")
    assert SECRET not in diff
    assert words["left_out"] == "conf/secret.env"
    assert ".paddlecloudignore" in diff


def test_a_secret_of_a_submodule(repo: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "trunk")
    (inner / "secret.env").write_text("old\n")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "first")
    allow = ("-c", "protocol.file.allow=always")
    git(repo, *allow, "submodule", "add", "-q", str(inner), "job/inner")
    git(repo, "commit", "-q", "-m", "second")
    git(repo, "config", "diff.submodule", "diff")
    (repo / "job" / "inner" / "secret.env").write_text(f"{SECRET}\n")
    words, diff = looked(repo / "job")
    assert SECRET not in diff
    assert words["dirty"] == "1"


def test_names_that_look_like_patterns_or_flags(repo: Path) -> None:
    for name in (":(top)a", "*.env", "-q", "a\nb", "模型"):
        (repo / "job" / name).write_text("one\n")
    (repo / "job" / "x.env").write_text("one\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "second")
    for path in (repo / "job").iterdir():
        path.write_text("two\n")
    inspection = scan_git.inspect(str(repo / "job"), ENVIRON)
    assert inspection is not None
    words, diff = inspection.result({":(top)a", "*.env", "-q", "a\nb", "模型"})
    assert diff.count("+two") == 5
    assert words["left_out"] == "train.py, x.env"


def test_more_changes_than_a_command_line_holds(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_git, "_MOST_WORDS", 100)
    for number in range(50):
        (repo / "job" / f"file-{number}").write_text("one\n")
    git(repo, "add", ".")
    words, diff = looked(repo / "job")
    assert words["cut"] == "1"
    assert 0 < diff.count("+one") < 50


def test_many_long_names_that_are_left_out(repo: Path) -> None:
    (repo / "job" / ".paddlecloudignore").write_text("*.env\n")
    for number in range(5):
        (repo / "job" / f"{'x' * 220}{number}.env").write_text("one\n")
    git(repo, "add", "-f", ".")
    assert len(looked(repo / "job")[0]["left_out"]) <= MAX_GIT_WORD


def test_nothing_committed_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert looked(tmp_path) == ({}, "")


def test_git_that_takes_too_long(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is not done when somebody asks is too slow, however long ago it was begun."""
    monkeypatch.setattr(scan_git, "TIMEOUT", 0.0)
    inspection = scan_git.inspect(str(repo), ENVIRON)
    assert inspection is not None
    for reading in inspection._begun:
        assert reading is not None
        reading._thread.join(60)
    assert inspection.result(())[0]["branch"] == "trunk"
    monkeypatch.setattr(scan_git, "_GIT", ("sh", "-c", "exec sleep 600"))
    inspection = scan_git.inspect(str(repo), ENVIRON)
    assert inspection is not None
    assert inspection.result(()) == ({}, "")
    codes = [reading and reading._process.returncode for reading in inspection._begun]
    assert codes == [-9, -9]


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
    monkeypatch.setattr(scan_git, "_GIT", ("no-such-program",))
    assert looked(repo) == ({}, "")


def test_no_repository(tmp_path: Path) -> None:
    assert scan_git.inspect(str(tmp_path), ENVIRON) is None
