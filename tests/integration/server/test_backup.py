"""`admin backup` and `admin restore`: what is copied, when, and what of it another home gets."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.copies import copy_database
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.db.tables import attempts, counters, jobs
from paddlecloud.model.diagnosis.outcome import RESTORED
from paddlecloud.model.errors import PaddleCloudError, Refused
from paddlecloud.model.jobs.job import ReplicaState
from paddlecloud.server import lost_database
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.admin import _backup_format, backup, garbage_collection, restore
from paddlecloud.server.services.admin._backup_format import Progress
from paddlecloud.server.services.jobs import delete
from paddlecloud.server.settings import Settings, StoreSettings
from paddlecloud.testing import NOON
from tests.contract.disk import small_disk
from tests.contract.test_db_migrations import an_old_database
from tests.integration.server.world import Stage, World

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """That of the server's program."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of the server that is restored."""
    return tmp_path / "other"


def back_up(world: World, target: Path, *, blobs: bool = True) -> int:
    (world.deps.settings.server_dir / "server.key").write_text(KEY)
    settings = world.deps.settings
    return backup.main(settings, None, {}, target=target, blobs=blobs, as_json=True, lang="en")


def restored(home: Path, target: Path) -> int:
    return restore.main(home, None, {}, backup=target, as_json=True, lang="en")


def finished(world: World, output: bytes = b"weights", **spec: object) -> str:
    job_id, order = world.placed(**spec)
    world.agent.start(order)
    world.agent.log(order, 0, b"epoch 1\n")
    assert world.agent.upload(order, "model", output).status == 200
    world.agent.exit(order)
    world.release()
    return job_id


def files_below(root: Path) -> dict[str, bytes]:
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_another_home_gets_jobs_keys_and_files(
    world: World, stage: Stage, target: Path, home: Path
) -> None:
    done = finished(world)
    running, order = world.placed(wall_time=3600)
    world.agent.start(order)
    world.agent.log(order, 0, b"half\n")
    waiting = world.submit()
    assert back_up(world, target) == 0
    store = world.deps.settings.store_dir
    assert files_below(target / "store" / "users") == files_below(store / "users")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*") if path.is_file()}
    assert (modes, stat.S_IMODE(target.stat().st_mode)) == ({0o600}, 0o700)
    checked = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=target, check=True)
    assert checked.returncode == 0
    assert restored(home, target) == 0
    assert files_below(home / "store" / "users") == files_below(store / "users")
    blob = home / world.blob(b"echo hi\n").relative_to(world.deps.settings.home)
    assert blob.read_bytes() == b"echo hi\n"
    assert stat.S_IMODE(blob.stat().st_mode) == 0o644
    assert blob.stat().st_mtime_ns == world.blob(b"echo hi\n").stat().st_mtime_ns
    assert (home / "server" / "server.key").read_text() == KEY
    assert {path.name for path in (home / "server").iterdir()} == {
        "lock", "paddlecloud.db", "server.key",
    }  # fmt: skip
    # The restored server, with the keys of before.
    caller = world.user
    world.close()
    there = World(stage, home)
    there.clock.move(hours=30)
    there.user = there.signed(caller.ak)
    try:
        assert there.state(done) == "success"
        assert there.state(running) == "running"
        Watch().tick(there.deps, there.clock())
        view = there.look(running)
        assert view["job_status"] == "failed"
        assert "restored from its backup of 20" in view["error_msg"]
        assert "trainer-0 was running on machine node" in view["error_msg"]
        job = there.job(running)
        assert job.failure is not None
        assert (job.failure.reason.code, job.failure.last_lines) == (RESTORED, ("half",))
        # The hours since the backup are not charged.
        assert job.finished_at is not None
        assert job.started_at is not None
        assert job.finished_at - job.started_at < timedelta(minutes=1)
        assert there.state(waiting) in ("schedule", "queue")
        assert there.log(done) == b"epoch 1\n"
    finally:
        there.close()


def test_what_ran_is_ordered_to_stop_and_numbers_go_on_above(
    world: World, target: Path, home: Path
) -> None:
    _, order = world.placed()
    world.agent.start(order)
    assert back_up(world, target) == 0
    assert restored(home, target) == 0
    with closing(open_sqlite(home / "server" / "paddlecloud.db", now=world.clock())) as db:
        (attempt,) = db.read(attempts.live_attempts)
        (replica,) = attempt.replicas
        assert replica.state is ReplicaState.LOST
        rows = db.read(lambda tx: tx.all("select want, seq from replicas"))
        assert rows == [("stop", rows[0][1])]
        assert rows[0][1] > restore.SKIPPED_NUMBERS
        assert db.write(lambda tx: counters.next_number(tx, "fence")) > restore.SKIPPED_NUMBERS


def test_a_job_that_is_being_killed_is_killed(
    world: World, stage: Stage, target: Path, home: Path
) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.user.post(f"/api/v1/jobs/{job_id}/kill", {})
    back_up(world, target)
    restored(home, target)
    caller = world.user
    world.close()
    there = World(stage, home)
    there.user = there.signed(caller.ak)
    try:
        Watch().tick(there.deps, there.clock())
        assert there.state(job_id) == "killed"
    finally:
        there.close()


def test_files_and_rows_fit_whatever_happens_in_between(
    world: World, target: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New before the copy of the database: step 3 finds it. Deleted after it: step 1 has it."""
    old = finished(world, snapshot=world.snapshot({"old.py": b"old"}))
    deleted = finished(world, b"deleted before")
    new: list[str] = []

    def while_copied(place: str | Path, into: Path, environ: Mapping[str, str]) -> None:
        world.user.post(f"/api/v1/jobs/{deleted}/delete")
        new.append(world.submit(snapshot=world.snapshot({"new.py": b"new"})))
        copy_database(place, into, environ)
        world.user.post(f"/api/v1/jobs/{old}/delete")
        world.clock.move(days=1000)
        garbage_collection.collect(world.deps)
        new.append(world.submit(snapshot=world.snapshot({"later.py": b"later"})))

    monkeypatch.setattr(backup, "copy_database", while_copied)
    monkeypatch.setattr(delete, "POLL_WITHIN", 0.0)
    assert back_up(world, target) == 0
    assert not world.blob(b"old").exists()
    assert restored(home, target) == 0
    with closing(open_sqlite(home / "server" / "paddlecloud.db", now=world.clock())) as db:
        assert db.read(jobs.all_ids) == {old, new[0]}
    found = files_below(home / "store" / "users" / "someone")
    assert b"old" in found.values()
    assert b"new" in found.values()
    assert found[f"output/{old}/rank-0/model"] == b"weights"
    assert not [path for path in found if deleted in path]


def test_directories_of_the_store_that_are_and_are_not_copied(world: World, target: Path) -> None:
    store = world.deps.settings.store_dir
    kept = ("begun/x", ".times/users/x", "later/x", "users/ann/output/x")
    others = ("locks/x", ".tmp/x", ".snapshot/x", "users/ann/uploads/x", "users/ann/sending/x")
    for name in (*kept, *others):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(name)
    back_up(world, target)
    assert {*files_below(target / "store")} == {*kept}


def test_blobs_may_be_left_out(world: World, target: Path, home: Path) -> None:
    done = finished(world)
    assert back_up(world, target, blobs=False) == 0
    assert {path.name for path in target.iterdir()} == {
        "SHA256SUMS", "manifest.json", "database.sqlite", "server",
    }  # fmt: skip
    shutil.copytree(world.deps.settings.store_dir, home / "store")
    assert restored(home, target) == 0
    assert (home / "store" / "users" / "someone" / "output" / done).is_dir()


def test_a_damaged_blob_is_reported_and_copied(
    world: World, target: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(world)
    world.blob(b"echo hi\n").write_bytes(b"echo ho\n")
    assert back_up(world, target) == 1
    out, err = capsys.readouterr()
    assert len(json.loads(out)["damaged"]) == 1
    assert "keep older backups" in err
    assert restored(home, target) == 0


def flip(target: Path) -> None:
    (blob,) = target.glob("store/users/*/blobs/*/*")
    blob.write_bytes(b"echo ho\n")


def shorten(target: Path) -> None:
    sums = target / "SHA256SUMS"
    sums.write_bytes(sums.read_bytes().partition(b"\n")[2])


def of_tomorrow(target: Path) -> None:
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps(manifest | {"format": 2, "version": "9"}))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (flip, "backup_damaged"),
        (shorten, "backup_damaged"),
        (lambda target: (target / "database.sqlite").unlink(), "backup_not_complete"),
        (lambda target: (target / "manifest.json").unlink(), "backup_not_complete"),
        (lambda target: (target / "manifest.json").write_text("{}"), "backup_not_complete"),
        (of_tomorrow, "backup_newer"),
    ],
)
def test_a_backup_is_checked_before_anything_is_written(
    world: World, target: Path, home: Path, change: Callable[[Path], object], code: str
) -> None:
    finished(world)
    back_up(world, target)
    change(target)
    with pytest.raises(Refused) as refused:
        restored(home, target)
    assert refused.value.code == code
    assert not home.exists()


def test_names_of_files_may_be_strange(tmp_path: Path) -> None:
    names = ["plain", "two\nlines", "back\\slash", "\\n", "cr\r", os.fsdecode(b"\xff\xfe"), "中文"]
    sums = {}
    for name in names:
        (tmp_path / name).write_bytes(os.fsencode(name))
        sums[name] = hashlib.sha256(os.fsencode(name)).hexdigest()
    digest = _backup_format.write_sums(tmp_path, sums)
    manifest = _backup_format.Manifest(
        version="1", created_at="", database="", store="", blobs=True, files=0, bytes=0, sums=digest
    )
    assert dict(_backup_format.read_sums(tmp_path, manifest)) == sums
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path)
    assert done.returncode == 0


def test_a_home_that_is_not_empty_is_left_alone(world: World, target: Path, home: Path) -> None:
    finished(world)
    back_up(world, target)
    for name in ("server/paddlecloud.db", "server/server.key", "agent/agent.json", "store/users/x"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
        with pytest.raises(Refused) as refused:
            restored(home, target)
        assert refused.value.code == "restore_home_used"
        assert path.read_text() == "theirs"
        path.unlink()
    lock = os.open(home / "server" / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(Refused) as refused:
        restored(home, target)
    assert refused.value.code == "restore_server_runs"
    os.close(lock)
    assert restored(home, target) == 0


def test_an_interrupted_restore_is_repeated_and_no_server_starts_before(
    world: World, target: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(world)
    back_up(world, target)
    steps = ("_copy_store", "write_private", "_lose_running", "_delete_unknown", "sync")

    class Killed(BaseException):
        pass

    for step in steps:
        original = getattr(restore, step)

        def killed(*args: object, _original: Callable[..., object] = original) -> None:
            _original(*args)
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(restore, step, killed)
            with pytest.raises(Killed):
                restored(home, target)
        with pytest.raises(Refused) as refused:
            lost_database.check_restored(Settings(home=home))
        assert refused.value.code == "restore_unfinished"
        assert str(target) in str(refused.value)
    finished(world)
    other = target.with_name("second")
    back_up(world, other)
    with pytest.raises(Refused) as refused:
        restored(home, other)
    assert refused.value.code == "restore_other_backup"
    assert restored(home, target) == 0
    lost_database.check_restored(Settings(home=home))
    assert len(list((home / "server").glob("paddlecloud.db*"))) == 1


def test_where_a_backup_may_not_be(world: World, target: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    store = world.deps.settings.store_dir
    for place, code in (
        (taken, "backup_exists"),
        (tmp_path / "missing" / "backup", "backup_parent_missing"),
        (store / "users" / "backup", "backup_in_store"),
    ):
        (store / "users").mkdir(exist_ok=True)
        with pytest.raises(Refused) as refused:
            back_up(world, place)
        assert refused.value.code == code
    own = target.with_name("backup.partial")
    own.mkdir()
    (own / "thesis.tex").write_text("mine")
    with pytest.raises(Refused) as refused:
        back_up(world, target)
    assert (refused.value.code, (own / "thesis.tex").read_text()) == ("backup_exists", "mine")


def test_one_backup_at_a_time_and_leftovers_go(world: World, target: Path) -> None:
    partial = target.with_name("backup.partial")
    (partial / "store").mkdir(parents=True)
    (partial / "store" / "left").write_text("of a killed one")
    held = os.open(partial, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(Refused) as refused:
        back_up(world, target)
    assert refused.value.code == "backup_runs"
    os.close(held)
    assert back_up(world, target) == 0
    assert not partial.exists()
    assert not (target / "store" / "left").exists()


def test_a_failed_backup_leaves_nothing(world: World, target: Path, tmp_path: Path) -> None:
    """Here the database is damaged; the same holds for a full disk."""
    finished(world)
    path = world.deps.settings.server_dir / "paddlecloud.db"
    bad = tmp_path / "bad"
    (bad / "server").mkdir(parents=True)
    (bad / "server" / path.name).write_bytes(b"SQLite format 3\0" + b"\xff" * 8192)
    with pytest.raises(PaddleCloudError):
        backup.main(
            Settings(home=bad), None, {}, target=target, blobs=True, as_json=True, lang="en"
        )
    assert not list(tmp_path.glob("backup*"))
    with pytest.raises(PaddleCloudError) as refused:
        empty = Settings(home=tmp_path / "empty")
        backup.main(empty, None, {}, target=target, blobs=True, as_json=True, lang="en")
    assert refused.value.code == "database_missing"


@pytest.mark.parametrize("large", [False, True], ids=["the database", "a file"])
def test_a_full_disk_is_reported_and_left_empty(
    world: World, tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(world, b"x" * (2**20 if large else 1))
    with small_disk(tmp_path / "disk", size="1m" if large else "200k") as disk:
        with pytest.raises(Refused) as refused:
            back_up(world, disk / "backup")
        assert refused.value.code == "backup_failed"
        assert "No space left on device" in str(refused.value)
        assert str(disk) in str(refused.value)
        assert list(disk.iterdir()) == []


def test_what_takes_long_reports_how_far_it_is(
    world: World,
    target: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finished(world)
    monkeypatch.setattr(_backup_format, "PROGRESS_SECONDS", 0.0)
    back_up(world, target)
    assert "copied so far: 1 files" in capsys.readouterr().err
    restored(home, target)
    assert "checked so far: 2 files" in capsys.readouterr().err


def test_settings_come_along_unless_there_are_others(
    world: World, target: Path, home: Path, tmp_path: Path
) -> None:
    finished(world)
    own = world.deps.settings.home / "server.toml"
    own.write_text('[store]\nroot = "files"\n')
    back_up(world, target)
    restored(home, target)
    assert (home / "server.toml").read_text() == own.read_text()
    assert list(home.glob("files/users/*/blobs/*/*"))
    third = tmp_path / "third"
    third.mkdir()
    (third / "server.toml").write_text('[store]\nroot = "elsewhere"\n')
    restored(third, target)
    assert list(third.glob("elsewhere/users/*/blobs/*/*"))
    other = StoreSettings(kind="s3")
    with pytest.raises(Refused) as refused:
        progress = Progress(code="restore_checked", lang="en")
        manifest, paths = restore.checked(target, progress)
        restore.restore(
            Settings(home=tmp_path / "x", store=other), target, manifest, paths, {}, progress
        )
    assert refused.value.code == "restore_other_kind"


def test_a_database_of_the_first_release_is_restored(tmp_path: Path, target: Path) -> None:
    place = tmp_path / "old" / "server"
    place.mkdir(parents=True)
    an_old_database("sqlite", place)
    old = Settings(home=place.parent)
    assert backup.main(old, None, {}, target=target, blobs=True, as_json=True, lang="en") == 0
    assert restored(tmp_path / "new", target) == 0
    with closing(open_sqlite(tmp_path / "new/server/paddlecloud.db", now=NOON)) as db:
        assert db.read(jobs.all_ids) == {"job-1", "job-2"}
